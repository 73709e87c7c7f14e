//! Resources, claims, classes and consumers.

use serde_json::Value;

use crate::amount::Amount;
use crate::errors::{FieldError, Path};
use crate::expressions::{self, Place};
use crate::extract;
use crate::review::{Operation, Request, Verdict};
use crate::rules::Rules;
use crate::template;
use crate::types::ResourceType;
use crate::views::Offer;

fn quoting(kind: &ResourceType, object: &Value) -> Vec<String> {
    let rules = kind.rules();
    let unquoted = extract::unquoted_versions(&rules, object).into_iter();
    unquoted.map(|name| format!("spec.{name} is a number: quote it, for 5.10 reads as 5.1")).collect()
}

/// What is wrong with what a class or resource says of its implementation. What it said before is not asked again: managers
/// write resources, and an expression that was let through once must not stop them.
fn making(kind: &ResourceType, fields: &Value, old: &Value, path: &Path, place: Place) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |template: &Value, path: &Path| {
        let within = |error: FieldError| FieldError { field: path.field(&error.field).to_string(), ..error };
        errors.extend(template::check(template).into_iter().map(within));
        errors.extend(filled(Some(kind), template, path, place));
    };
    if fields["template"].is_object() && fields["template"] != old["template"] {
        check(&fields["template"], &path.field("template"));
    }
    if fields["templates"] != old["templates"] {
        for (i, item) in fields["templates"].as_array().into_iter().flatten().enumerate() {
            check(&item["template"], &path.field("templates").index(i).field("template"));
        }
    }
    if !fields["template"].is_null() && !fields["templates"].is_null() {
        errors.push(path.field("templates").error("write template or templates, not both"));
    }
    let mut ready = |value: &Value, old: &Value, path: Path| {
        if let Some(expression) = value.as_str().filter(|e| !e.is_empty() && value != old) {
            errors.extend(expressions::check(Some(kind), Place::ReadyWhen, expression).err().map(|e| path.error(e)));
        }
    };
    ready(&fields["readyWhen"], &old["readyWhen"], path.field("readyWhen"));
    for (i, item) in fields["templates"].as_array().into_iter().flatten().enumerate() {
        let path = path.field("templates").index(i).field("readyWhen");
        ready(&item["readyWhen"], &old["templates"][i]["readyWhen"], path);
    }
    for (key, value) in fields["connection"].as_object().into_iter().flatten() {
        let path = path.field("connection").field(key);
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if key.len() > 253 || !key.bytes().all(fine) {
            errors.push(path.error("is no key of a Secret: letters, digits, -, _ and . are"));
        }
        match value.as_str() {
            _ if *value == old["connection"][key] => {}
            // a text with ${…} is a template, any other is an expression
            Some(expression) if !expression.contains("${") => {
                errors
                    .extend(expressions::check(Some(kind), Place::Connection, expression).err().map(|e| path.error(e)));
            }
            _ => errors.extend(filled(Some(kind), value, &path, Place::Connection)),
        }
    }
    errors
}

/// What is wrong with the expressions of a template; its form is judged elsewhere.
fn filled(kind: Option<&ResourceType>, template: &Value, path: &Path, place: Place) -> Vec<FieldError> {
    let all = match template::expressions(template) {
        Ok(all) => all,
        // the form of a template is judged where the rest of it is
        Err(error) if matches!(place, Place::Connection | Place::Offers | Place::Volume) => {
            let path = if error.field.is_empty() { path.clone() } else { path.field(&error.field) };
            return vec![path.error(error.message)];
        }
        Err(_) => Vec::new(),
    };
    let wrong = all.into_iter().filter_map(|(field, expression)| {
        let path = if field.is_empty() { path.clone() } else { path.field(&field) };
        expressions::check(kind, place, &expression).err().map(|error| path.error(error))
    });
    wrong.collect()
}

pub(super) fn resource(kind: &ResourceType, request: &Request<'_>) -> Verdict {
    let rules = kind.rules();
    let (object, spec) = (request.object, Path::root().field("spec"));
    let mut errors = making(kind, &object["spec"], &request.old["spec"], &spec, Place::ResourceTemplate);
    let adopts = &object["spec"]["implementationRef"];
    if adopts.is_object() && *adopts != request.old["spec"]["implementationRef"] {
        let missing = ["apiVersion", "kind", "name"].into_iter();
        let missing = missing.filter(|key| adopts[key].as_str().is_none_or(str::is_empty));
        errors.extend(missing.map(|key| spec.field("implementationRef").field(key).error("is required")));
    }
    for attribute in &rules.attributes {
        let value = &object["spec"][attribute.name.as_ref()];
        let aliased = attribute.alias.as_ref().map_or(&Value::Null, |a| &object["spec"][a.as_ref()]);
        if !value.is_null() && !aliased.is_null() {
            let message =
                format!("is the same as {}: write one of them", attribute.alias.as_deref().unwrap_or_default());
            errors.push(spec.field(&attribute.name).error(message));
        }
        let value = if value.is_null() { aliased } else { value };
        match attribute.read(value) {
            Err(message) => errors.push(spec.field(&attribute.name).error(message)),
            Ok(None) if attribute.required => {
                errors.push(spec.field(&attribute.name).error(format!("is required of a {}", kind.names.resource)));
            }
            Ok(_) => {}
        }
    }
    let seen = extract::offer(&rules, object);
    if seen.refs.len() as u64 > u64::from(seen.max_claims) {
        errors.push(spec.field("claimRefs").error(format!(
            "has {} claims, and takes {}",
            seen.refs.len(),
            seen.max_claims
        )));
    }
    if seen.max_claims > 1 {
        for (i, capacity) in rules.capacities.iter().enumerate() {
            let used: i128 = seen.refs.iter().filter_map(|r| r.amounts.get(i)).map(|a| a.nanos()).sum();
            if used > seen.capacity[i].nanos() {
                errors.push(spec.field("claimRefs").error(format!("takes more {} than there is", capacity.name)));
            }
        }
    }
    if request.operation == Operation::Update && request.old["status"]["phase"] == "Bound" {
        errors.extend(bound(&rules, request, &seen));
    }
    Verdict::of(errors, quoting(kind, object))
}

/// What is wrong with changes of a resource that claims use: they were given what it was.
fn bound(rules: &Rules, request: &Request<'_>, seen: &Offer) -> Vec<FieldError> {
    let (new, old, path) = (&request.object["spec"], &request.old["spec"], Path::root().field("spec"));
    let mut errors = Vec::new();
    let used = "while claims use it: release them first, or make another resource";
    for attribute in &rules.attributes {
        let value = |spec: &Value| {
            let aliased = attribute.alias.as_ref().map_or(&Value::Null, |alias| &spec[alias.as_ref()]);
            let own = &spec[attribute.name.as_ref()];
            attribute.read(if own.is_null() { aliased } else { own }).ok().flatten()
        };
        if value(new) != value(old) {
            errors.push(path.field(&attribute.name).error(format!("may not change {used}")));
        }
    }
    for key in ["apiVersion", "kind"].iter().filter(|key| new["template"][key] != old["template"][key]) {
        errors.push(path.field("template").field(key).error(format!("may not change {used}")));
    }
    for (i, capacity) in rules.capacities.iter().enumerate() {
        let amount = |spec: &Value| Amount::from_json(&spec["capacity"][capacity.name.as_ref()]).ok();
        let taken: i128 = seen.refs.iter().filter_map(|r| r.amounts.get(i)).map(|a| a.nanos()).sum();
        if amount(new) != amount(old) && amount(new).is_some_and(|amount| amount.nanos() < taken) {
            let message = "is less than its claims were given: resources do not shrink under them";
            errors.push(path.field("capacity").field(&capacity.name).error(message));
        }
    }
    errors
}

pub(super) fn claim(kind: &ResourceType, request: &Request<'_>, class: Option<&Value>) -> Verdict {
    let rules = kind.rules();
    let (object, spec) = (request.object, Path::root().field("spec"));
    let mut errors = match extract::ask(&rules, object, true, None) {
        Err(errors) => errors,
        Ok(ask) => {
            let above = |i: usize| ask.upper[i].is_some_and(|upper| upper < ask.lower[i]);
            let capacities = rules.capacities.iter().enumerate().filter(|(i, _)| above(*i));
            capacities
                .map(|(_, c)| spec.field("resources.limits").field(&c.name).error("is less than the request"))
                .collect()
        }
    };
    let expression = object["spec"]["expression"].as_str().filter(|e| !e.is_empty());
    if let Some(expression) = expression.filter(|e| request.old["spec"]["expression"].as_str() != Some(e)) {
        let wrong = expressions::check(Some(kind), Place::Claim, expression).err();
        errors.extend(wrong.map(|error| spec.field("expression").error(error)));
    }
    if request.operation == Operation::Update {
        let named = request.old["spec"]["resourceName"].as_str().unwrap_or_default();
        if !named.is_empty() && object["spec"]["resourceName"].as_str() != Some(named) {
            errors.push(spec.field("resourceName").error("may not change once it is set: make another claim"));
        }
        let bound = matches!(request.old["status"]["phase"].as_str(), Some("Bound" | "Lost"));
        let changed = |key: &&str| object["spec"][key] != request.old["spec"][key];
        let attributes = rules.attributes.iter().flat_map(|a| [Some(a.name.as_ref()), a.alias.as_deref()]).flatten();
        let fixed: Vec<&str> =
            attributes.chain(["requests", "accessModes", "class", "selector", "expression"]).collect();
        for key in fixed.iter().filter(|_| bound).filter(|k| changed(k)) {
            errors.push(spec.field(key).error("may not change while the claim is bound: make another claim"));
        }
        if bound {
            errors.extend(resized(kind, request, class));
        }
    }
    Verdict::of(errors, quoting(kind, object))
}

/// What is wrong with the amounts that a bound claim asks for now: it may grow, if its class lets it, and nothing shrinks.
fn resized(kind: &ResourceType, request: &Request<'_>, class: Option<&Value>) -> Vec<FieldError> {
    let path = Path::root().field("spec").field("resources");
    let mut errors = Vec::new();
    for capacity in &kind.capacities {
        let name = capacity.name.as_ref();
        let amount = |value: &Value| Amount::from_json(value).ok();
        let asked = |object: &Value, part: &str| amount(&object["spec"]["resources"][part][name]);
        let (old, new) = (asked(request.old, "requests"), asked(request.object, "requests"));
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        let has = amount(&request.old["status"]["capacity"][name]).unwrap_or(old);
        let request_path = path.field("requests").field(name);
        if new < old && new < has {
            let message = format!(
                "may not be lowered from {old} to {new} while the claim is bound: resources do not shrink; make another claim"
            );
            errors.push(request_path.error(message));
        } else if new > old
            && new > has
            && let Some(class) = class.filter(|class| extract::class_fields(class)["allowExpansion"] != true)
        {
            let message = format!(
                "may not grow from {has} to {new}: class {} does not let what it made grow (allowExpansion); make another claim",
                class["metadata"]["name"].as_str().unwrap_or_default()
            );
            errors.push(request_path.error(message));
        }
        let limits = (asked(request.old, "limits"), asked(request.object, "limits"));
        if limits.0 != limits.1 && limits.1.is_some_and(|limit| limit < has) {
            let message = format!("is less than the {has} that the claim has: resources do not shrink");
            errors.push(path.field("limits").field(name).error(message));
        }
    }
    errors
}

pub(super) fn class(kind: &ResourceType, request: &Request<'_>) -> Verdict {
    let object = request.object;
    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
    let mut errors = Vec::new();
    let outside = object.as_object().into_iter().flatten().map(|(k, _)| k.as_str()).find(|k| !known.contains(k));
    if let Some(outside) = outside.filter(|_| object["spec"].is_object()) {
        errors
            .push(Path::root().field(outside).error("write the fields of a class under spec or at the top, not both"));
    }
    let path = if object["spec"].is_object() { Path::root().field("spec") } else { Path::root() };
    let (fields, old) = (extract::class_fields(object), extract::class_fields(request.old));
    errors.extend(making(kind, fields, old, &path, Place::ClassTemplate));
    if fields["offers"] != old["offers"] {
        errors.extend(filled(Some(kind), &fields["offers"], &path.field("offers"), Place::Offers));
    }
    let wrong = extract::profile(&kind.rules(), object, true).err().unwrap_or_default();
    errors.extend(wrong.into_iter().map(|e| FieldError { field: path.field(&e.field).to_string(), ..e }));
    Verdict::of(errors, Vec::new())
}

/// How volumes are made.
pub(super) fn volume_template(request: &Request<'_>) -> Verdict {
    let (spec, old, path) = (&request.object["spec"], &request.old["spec"], Path::root().field("spec"));
    let mut errors = Vec::new();
    if spec["template"] != old["template"] {
        let within = |e: FieldError| FieldError { field: path.field("template").field(&e.field).to_string(), ..e };
        errors.extend(template::check(&spec["template"]).into_iter().map(within));
        errors.extend(filled(None, &spec["template"], &path.field("template"), Place::VolumeTemplate));
    }
    if spec["volume"] != old["volume"] {
        errors.extend(filled(None, &spec["volume"], &path.field("volume"), Place::Volume));
    }
    let ready = spec["readyWhen"].as_str().filter(|e| !e.is_empty() && spec["readyWhen"] != old["readyWhen"]);
    let wrong = ready.and_then(|e| expressions::check(None, Place::ReadyWhen, e).err());
    errors.extend(wrong.map(|e| path.field("readyWhen").error(e)));
    Verdict::of(errors, Vec::new())
}

/// A consumer names claims of its own namespace only, so names have no namespace in them.
pub(super) fn consumer(request: &Request<'_>) -> Verdict {
    if request.operation == Operation::Delete {
        return Verdict::Allow(Vec::new());
    }
    let annotations = &request.object["metadata"]["annotations"];
    let path = Path::root().field("metadata").field("annotations");
    let label = |t: &str| {
        !t.is_empty()
            && t.len() <= 253
            && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
    };
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    if let Some(claims) = annotations["conductor.io/claims"].as_str() {
        for claim in claims.split(',').map(str::trim).filter(|c| !c.is_empty()) {
            let fine =
                claim.split_once('/').is_some_and(|(kind, name)| label(&kind.to_ascii_lowercase()) && label(name));
            if !fine {
                let message = format!("{claim:?} must be KIND/NAME of a claim in the same namespace");
                errors.push(path.field("conductor.io/claims").error(message));
            }
            let volume = ["persistentvolumeclaim/", "persistentvolumeclaims/", "pvc/"];
            if volume.iter().any(|kind| claim.to_ascii_lowercase().starts_with(kind)) {
                warnings.push(format!("{claim} in conductor.io/claims has no effect: name volumes in spec.volumes"));
            }
        }
    }
    if let Some(claim) = annotations["network.conductor.io/claim"].as_str().filter(|c| !label(c)) {
        let message = format!("{claim:?} must be the name of an IngressClaim in the same namespace");
        errors.push(path.field("network.conductor.io/claim").error(message));
    }
    Verdict::of(errors, warnings)
}
