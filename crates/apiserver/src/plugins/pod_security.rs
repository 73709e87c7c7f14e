//! `PodSecurity`: the labels of a namespace say what its Pods may ask for.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use kinds::pod_security::{LATEST, Level, Violation, describe, reasons, violations};
use machinery::status::Status;
use serde_json::Value;
use store::{Entry, KeyRange};

use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};

const PREFIX: &str = "pod-security.kubernetes.io/";

/// Holds Pods to the level of their namespace.
pub struct PodSecurity;

/// What a namespace says: a level and the version it is written for.
#[derive(Default)]
struct Wanted {
    level: Level,
    version: String,
}

impl Wanted {
    /// What a Pod asks for that it may not.
    fn violated(&self, pod: &Value) -> Vec<Violation> {
        let minor = self.version.strip_prefix("v1.").and_then(|minor| minor.parse().ok()).unwrap_or(LATEST);
        violations(self.level, minor, &pod["metadata"], &pod["spec"])
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = if self.version.is_empty() { "latest" } else { &self.version };
        write!(f, "{}:{version}", self.level.as_str())
    }
}

fn is_version(text: &str) -> bool {
    let minor = text.strip_prefix("v1.").unwrap_or_default();
    text == "latest" || (!minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit()))
}

fn wanted(namespace: &Value, mode: &str) -> Wanted {
    let labels = &namespace["metadata"]["labels"];
    let text = |key: String| labels[key].as_str().unwrap_or_default();
    let level = match text(format!("{PREFIX}{mode}")) {
        "" => Level::Privileged,
        // Whoever wrote something that cannot be read gets the strictest that is meant by no one else.
        text => Level::read(text).unwrap_or(if mode == "enforce" { Level::Restricted } else { Level::Privileged }),
    };
    let version = text(format!("{PREFIX}{mode}-version"));
    let version = if is_version(version) && version != "latest" { version } else { "" };
    Wanted { level, version: version.to_owned() }
}

/// The Pod in an object: itself, or what a workload makes Pods from.
fn template(attributes: &Attributes<'_>) -> Option<(bool, &'static str)> {
    Some(match attributes.resource.gk() {
        ("", "Pod") => (true, ""),
        ("", "PodTemplate") => (false, "/template"),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job") => (false, "/spec/template"),
        ("batch", "CronJob") => (false, "/spec/jobTemplate/spec/template"),
        _ => return None,
    })
}

/// Whether an update changes what is judged: images, or the containers there are.
fn significant(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value| {
        ["initContainers", "containers", "ephemeralContainers"].map(|field| {
            let list = pod["spec"][field].as_array().into_iter().flatten();
            list.map(|own| own["image"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        })
    };
    images(new) != images(old)
}

impl Plugin for PodSecurity {
    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if attributes.resource.gk() == ("", "Namespace") {
            return labels(attributes);
        }
        let Some((is_pod, pointer)) = template(attributes) else { return Ok(()) };
        let part = attributes.subresource;
        let concerned = match attributes.operation {
            Operation::Create => part.is_empty(),
            Operation::Update if is_pod => {
                matches!(part, "" | "ephemeralcontainers" | "resize") && significant(&attributes.object, attributes.old)
            }
            Operation::Update => part.is_empty(),
            _ => false,
        };
        if !concerned {
            return Ok(());
        }
        let Ok(namespace) = attributes.namespace_object(attributes.namespace) else { return Ok(()) };
        let labelled = namespace["metadata"]["labels"]
            .as_object()
            .is_some_and(|own| own.keys().any(|key| key.starts_with(PREFIX)));
        let Some(pod) = attributes.object.pointer(pointer).filter(|pod| labelled && pod["spec"].is_object()) else {
            return Ok(());
        };
        let audit = wanted(&namespace, "audit");
        let violated = audit.violated(pod);
        if !violated.is_empty() {
            let said = format!("would violate PodSecurity \"{audit}\": {}", describe(&violated));
            attributes.cx.annotate(format!("{PREFIX}audit-violations"), said);
        }
        if is_pod {
            let enforce = wanted(&namespace, "enforce");
            attributes.cx.annotate(format!("{PREFIX}enforce-policy"), enforce.to_string());
            let violated = enforce.violated(pod);
            if !violated.is_empty() {
                return Err(forbidden(
                    attributes,
                    format!("violates PodSecurity \"{enforce}\": {}", describe(&violated)),
                ));
            }
        }
        let warn = wanted(&namespace, "warn");
        let violated = warn.violated(pod);
        if !violated.is_empty() {
            attributes.cx.warn(format!("would violate PodSecurity \"{warn}\": {}", describe(&violated)));
        }
        Ok(())
    }
}

/// The labels of a namespace must be readable when they are written.
fn labels(attributes: &Attributes<'_>) -> Result<(), Status> {
    use machinery::field::{Error, Path};
    if !attributes.subresource.is_empty() || !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        for (suffix, is_level) in [("", true), ("-version", false)] {
            let key = format!("{PREFIX}{mode}{suffix}");
            let (new, old) =
                (&attributes.object["metadata"]["labels"][&key], &attributes.old["metadata"]["labels"][&key]);
            let Some(value) = new.as_str().filter(|_| new != old) else { continue };
            let path = Path::root("metadata").child("labels").key(&key);
            if is_level && Level::read(value).is_none() {
                errors.push(Error::invalid(&path, value, "must be one of privileged, baseline, restricted"));
            } else if !is_level && !is_version(value) {
                errors.push(Error::invalid(&path, value, "must be \"latest\" or \"v1.x\""));
            }
        }
    }
    if !errors.is_empty() {
        return Err(Status::invalid("", "Namespace", attributes.name, &errors));
    }
    if attributes.operation == Operation::Update {
        let (new, old) = (wanted(&attributes.object, "enforce"), wanted(attributes.old, "enforce"));
        // What asks for less of the same, or for nothing, needs no look at what is there.
        let relaxed = new.version == old.version && new.level <= old.level;
        if !relaxed && new.level != Level::Privileged {
            existing(attributes, &new);
        }
    }
    Ok(())
}

/// How many Pods of a namespace are looked at when it asks for more, and for how long.
const MOST: usize = 3000;
const LONGEST: Duration = Duration::from_secs(1);

/// Warns of the Pods there are that a namespace would not let in any more.
fn existing(attributes: &Attributes<'_>, enforce: &Wanted) {
    let (cx, namespace) = (attributes.cx, attributes.name);
    let prefix = format!("{namespace}/");
    let Ok(list) = cx.server.store.list("core/pods", KeyRange::prefix(&prefix), None) else { return };
    let until = Instant::now() + LONGEST;
    let total = list.entries.len();
    // Pods of one controller are alike: the first of each comes before its twins.
    let (mut first, mut twins, mut controllers) = (Vec::new(), Vec::new(), HashSet::new());
    for entry in &list.entries {
        let is_first = controller(entry).is_none_or(|uid| controllers.insert(uid));
        if is_first { first.push(entry) } else { twins.push(entry) }
    }
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut checked = 0;
    for entry in first.into_iter().chain(twins).take(MOST) {
        checked += 1;
        if let Ok(pod) = crate::plan::parse_stored(entry) {
            let violated = enforce.violated(&pod);
            if !violated.is_empty() {
                let name = entry.key[prefix.len()..].to_owned();
                let (least, count) = found.entry(reasons(&violated)).or_insert_with(|| (name.clone(), 0));
                *count += 1;
                if name < *least {
                    *least = name;
                }
            }
        }
        if Instant::now() > until {
            break;
        }
    }
    if checked < total {
        cx.warn(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if found.is_empty() {
        return;
    }
    cx.warn(format!(
        "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
    ));
    let mut said: Vec<String> = found
        .into_iter()
        .map(|(why, (name, count))| match count {
            1 => format!("{name}: {why}"),
            2 => format!("{name} (and 1 other pod): {why}"),
            more => format!("{name} (and {} other pods): {why}", more - 1),
        })
        .collect();
    said.sort();
    said.into_iter().for_each(|warning| cx.warn(warning));
}

/// The uid of the controller that a stored Pod has.
fn controller(entry: &Entry) -> Option<String> {
    let pod = crate::plan::parse_stored(entry).ok()?;
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    owner["uid"].as_str().map(str::to_owned)
}
