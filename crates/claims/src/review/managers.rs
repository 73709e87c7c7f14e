//! Manager objects: one default per type, one manager per class; the older stands. One that lists no classes serves all that no
//! other lists.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::errors::{FieldError, Path};
use crate::extract::seconds;
use crate::review::{Operation, Request, Snapshot, Verdict};

/// The type of the managers of PersistentVolumes.
const VOLUMES: &str = "persistentvolumes";

/// Why a manager of volumes has no default class: the server gives claims theirs before a manager sees them.
pub const NO_DEFAULT: &str = "a StorageClass says itself that it stands in for claims that name none: annotate it with \
    storageclass.kubernetes.io/is-default-class: \"true\" and leave this out";

/// What a Manager really serves, after older ones had their say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether it serves claims that name no class.
    pub default: bool,
    /// The classes it serves.
    pub classes: Vec<String>,
    /// Whether it serves all classes that no manager lists.
    pub rest: bool,
    /// What it says and does not get, and to whom it went.
    pub conflicts: Vec<String>,
}

fn text<'v>(object: &'v Value, key: &str) -> &'v str {
    object["spec"][key].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn classes(object: &Value) -> Vec<&str> {
    object["spec"]["classes"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect()
}

/// Whether it lists no classes: then it is for all that nobody else lists.
fn lists_none(object: &Value) -> bool {
    classes(object).is_empty()
}

/// Older first; ties by name.
fn seniority(object: &Value) -> (i64, String) {
    (seconds(object["metadata"]["creationTimestamp"].as_str().unwrap_or_default()), name(object).to_owned())
}

/// What `manager` serves among all managers: whatever an older one of the same type serves, it does not.
pub fn standing(manager: &Value, all: &[Value]) -> Standing {
    let older = |o: &&Value| {
        name(o) != name(manager) && text(o, "type") == text(manager, "type") && seniority(o) < seniority(manager)
    };
    let elders: Vec<&Value> = all.iter().filter(older).collect();
    let mut standing =
        Standing { default: manager["spec"]["default"].as_bool().unwrap_or(false), ..Standing::default() };
    if standing.default
        && let Some(elder) = elders.iter().find(|e| e["spec"]["default"].as_bool().unwrap_or(false))
    {
        standing.default = false;
        standing.conflicts.push(format!("manager {} is the default of this type already", name(elder)));
    }
    for class in classes(manager) {
        match elders.iter().find(|e| classes(e).contains(&class)) {
            Some(elder) => {
                standing.conflicts.push(format!("class {class} is served by manager {} already", name(elder)))
            }
            None => standing.classes.push(class.to_owned()),
        }
    }
    if lists_none(manager) {
        match elders.iter().find(|e| lists_none(e)) {
            Some(elder) => standing
                .conflicts
                .push(format!("manager {} serves all classes of this type that nobody lists already", name(elder))),
            None => standing.rest = true,
        }
    }
    standing
}

/// What all managers of a type serve together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// The classes; `None`: every one.
    pub classes: Option<BTreeSet<String>>,
    /// The class of claims that name none.
    pub default: Option<String>,
}

/// What is served of a type. Without any manager, that is every class.
pub fn serving(kind: &str, managers: &[Value]) -> Serving {
    let mut serving = Serving::default();
    let mut listed = BTreeSet::new();
    let (mut any, mut rest) = (false, false);
    for manager in managers.iter().filter(|m| text(m, "type") == kind) {
        let standing = standing(manager, managers);
        any = true;
        rest |= standing.rest;
        listed.extend(standing.classes);
        if standing.default {
            serving.default = Some(text(manager, "defaultClass").to_owned()).filter(|class| !class.is_empty());
        }
    }
    serving.classes = (any && !rest).then_some(listed);
    serving
}

/// Which of the classes that exist a manager stands for: those it lists and gets, or all that nobody lists.
pub fn stands_for<'c>(manager: &Value, managers: &[Value], existing: impl Iterator<Item = &'c str>) -> Vec<String> {
    let own = standing(manager, managers);
    if !own.rest {
        return classes(manager).into_iter().map(str::to_owned).collect();
    }
    let same = |m: &&Value| text(m, "type") == text(manager, "type");
    let listed: BTreeSet<&str> = managers.iter().filter(same).flat_map(classes).collect();
    existing.filter(|class| !listed.contains(class)).map(str::to_owned).collect()
}

pub(super) fn review(request: &Request<'_>, snapshot: &Snapshot<'_>) -> Verdict {
    if request.operation == Operation::Delete {
        return Verdict::Allow(Vec::new());
    }
    let manager = request.object;
    let spec = Path::root().field("spec");
    let mut errors: Vec<FieldError> = Vec::new();
    let mut warnings = Vec::new();
    let kind = text(manager, "type");
    if !snapshot.types.iter().any(|t| t.name() == kind) && kind != VOLUMES {
        warnings.push(format!("there is no resource type {kind:?} yet"));
    }
    if request.operation == Operation::Update && text(request.old, "type") != kind {
        errors.push(spec.field("type").error("may not change: make another manager"));
    }
    let mut seen = BTreeSet::new();
    for (i, class) in classes(manager).into_iter().enumerate() {
        if !seen.insert(class) {
            errors.push(spec.field("classes").index(i).field("name").error(format!("{class:?} is there twice")));
        }
    }
    let default_class = text(manager, "defaultClass");
    if !default_class.is_empty() && !seen.is_empty() && !seen.contains(default_class) {
        errors.push(spec.field("defaultClass").error(format!("{default_class:?} is not among its classes")));
    }
    if kind == VOLUMES && !default_class.is_empty() && default_class != text(request.old, "defaultClass") {
        errors.push(spec.field("defaultClass").error(NO_DEFAULT));
    }
    for class in manager["spec"]["classes"].as_array().into_iter().flatten() {
        let number = |key: &str| class[key].as_i64();
        let ordered = |low: &str, high: &str| number(low).zip(number(high)).is_none_or(|(l, h)| l <= h);
        if !ordered("minFree", "maxFree") || !ordered("minFree", "maxInstances") {
            let class = class["name"].as_str().unwrap_or_default();
            errors.push(
                spec.field("classes").error(format!("minFree of {class:?} is more than maxFree or maxInstances")),
            );
        }
    }
    let same = |o: &&Value| name(o) != name(manager) && text(o, "type") == kind;
    for other in snapshot.managers.iter().filter(same) {
        if manager["spec"]["default"].as_bool() == Some(true) && other["spec"]["default"].as_bool() == Some(true) {
            errors.push(
                spec.field("default").error(format!("manager {} is the default of this type already", name(other))),
            );
        }
        if lists_none(manager) && lists_none(other) {
            errors.push(spec.field("classes").error(format!(
                "manager {} serves all classes of this type that nobody lists already: list some",
                name(other)
            )));
        }
        if let Some(class) = classes(manager).into_iter().find(|c| classes(other).contains(c)) {
            errors.push(
                spec.field("classes").error(format!("class {class} is served by manager {} already", name(other))),
            );
        }
    }
    Verdict::of(errors, warnings)
}
