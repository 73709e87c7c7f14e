//! Resources, claims, classes and consumers.

use std::cell::LazyCell;

use conductor_cel::Type;
use serde_json::{Value, json};

use crate::amount::Amount;
use crate::errors::{FieldError, Path};
use crate::expressions::{Checker, Place, Surroundings};
use crate::extract;
use crate::lifecycle::parts;
use crate::review::fit::Fit;
use crate::review::{Operation, Request, Verdict};
use crate::rules::{Attribute, Kind, Match, Rules};
use crate::template;
use crate::types::ResourceType;
use crate::views::Offer;

fn quoting(kind: &ResourceType, object: &Value) -> Vec<String> {
    let unquoted = extract::unquoted_versions(&kind.attributes, object).into_iter();
    unquoted.map(|name| format!("spec.{name} is a number: quote it, for 5.10 reads as 5.1")).collect()
}

/// What expressions may name in a class or resource: `implementation` is its first, or the one of this number.
fn around<'a>(fields: &'a Value, number: usize, openapi: &'a [Value]) -> Surroundings<'a> {
    let mut around = Surroundings::of(fields);
    let several = fields["templates"].as_array().into_iter().flatten();
    for template in several.clone() {
        let name = format!("implementations.{}", template["name"].as_str().unwrap_or_default());
        around.schemas.extend(Fit::of(openapi, &template["template"]).map(|fit| (name, fit.0)));
    }
    let own = several.map(|item| &item["template"]).nth(number).unwrap_or(&fields["template"]);
    around.schemas.extend(Fit::of(openapi, own).map(|fit| ("implementation".to_owned(), fit.0)));
    around
}

/// What is wrong with what a class or resource says of its implementation. What it said before is not asked again: managers
/// write resources, and an expression that was let through once must not stop them.
fn making(
    kind: &ResourceType,
    [fields, old]: [&Value; 2],
    path: &Path,
    place: Place,
    openapi: &[Value],
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if fields["template"] != old["template"] || fields["templates"] != old["templates"] {
        let checker = Checker::new(Some(kind), place, &around(fields, 0, openapi));
        for (template, path) in templates(fields, path) {
            errors.extend(template_errors(template, &path, &checker, openapi));
        }
    }
    if !fields["template"].is_null() && !fields["templates"].is_null() {
        errors.push(path.field("templates").error("write template or templates, not both"));
    }
    let mut ready = |value: &Value, old: &Value, path: Path, number: usize| {
        if let Some(expression) = value.as_str().filter(|e| !e.is_empty() && value != old) {
            let checker = Checker::new(Some(kind), Place::ReadyWhen, &around(fields, number, openapi));
            errors.extend(checker.check(expression).err().map(|e| path.error(e)));
        }
    };
    ready(&fields["readyWhen"], &old["readyWhen"], path.field("readyWhen"), 0);
    for (i, item) in fields["templates"].as_array().into_iter().flatten().enumerate() {
        let path = path.field("templates").index(i).field("readyWhen");
        ready(&item["readyWhen"], &old["templates"][i]["readyWhen"], path, i);
    }
    let checker = LazyCell::new(|| Checker::new(Some(kind), Place::Connection, &around(fields, 0, openapi)));
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
                errors.extend(checker.check(expression).err().map(|e| path.error(e)));
            }
            _ => errors.extend(filled(value, &path, &checker, true)),
        }
    }
    errors
}

/// What is wrong with a template.
fn template_errors(template: &Value, path: &Path, checker: &Checker, openapi: &[Value]) -> Vec<FieldError> {
    let within = |error: FieldError| FieldError { field: path.field(&error.field).to_string(), ..error };
    let mut errors: Vec<FieldError> = template::check(template).into_iter().map(within).collect();
    // its form is judged above
    errors.extend(filled(template, path, checker, false));
    let yields = |expression: &str| checker.check(expression).ok();
    let space = template["metadata"]["namespace"].as_str().filter(|space| !space.contains("${"));
    if let Some(message) = space.and_then(|space| parts::place(&Value::from(space)).err()) {
        errors.push(path.field("metadata.namespace").error(message.trim_start_matches("metadata.namespace: ")));
    }
    errors.extend(Fit::metadata().misplaced(&template["metadata"], &path.field("metadata"), &yields));
    let fit = Fit::of(openapi, template);
    errors.extend(fit.map(|fit| fit.misfits(template, path, &yields)).unwrap_or_default());
    errors
}

/// What is wrong with the expressions of a template, and with their form if that is asked.
fn filled(template: &Value, path: &Path, checker: &Checker, form: bool) -> Vec<FieldError> {
    let within = |field: &str| if field.is_empty() { path.clone() } else { path.field(field) };
    let all = match template::expressions(template) {
        Ok(all) => all,
        Err(error) if form => return vec![within(&error.field).error(error.message)],
        Err(_) => Vec::new(),
    };
    let wrong = all.into_iter().filter_map(|placed| match checker.check(&placed.expression) {
        Err(error) => Some(within(&placed.field).error(error)),
        Ok(yields @ (Type::List(_) | Type::Map(_) | Type::Object(_) | Type::Null)) if !placed.alone => {
            let expression = &placed.expression;
            let message = format!("`{expression}` yields {yields}, and a longer text needs a text, number or boolean");
            Some(within(&placed.field).error(message))
        }
        Ok(_) => None,
    });
    wrong.collect()
}

pub(super) fn resource(kind: &ResourceType, request: &Request<'_>, openapi: &[Value]) -> Verdict {
    let rules = kind.rules();
    let (object, spec) = (request.object, Path::root().field("spec"));
    let both = [&object["spec"], &request.old["spec"]];
    let mut errors = making(kind, both, &spec, Place::ResourceTemplate, openapi);
    let adopts = &object["spec"]["implementationRef"];
    if adopts.is_object() && *adopts != request.old["spec"]["implementationRef"] {
        let missing = ["apiVersion", "kind", "name"].into_iter();
        let missing = missing.filter(|key| adopts[key].as_str().is_none_or(str::is_empty));
        errors.extend(missing.map(|key| spec.field("implementationRef").field(key).error("is required")));
        if ["template", "templates"].iter().any(|key| !object["spec"][key].is_null()) {
            let message = "adopts what exists, and a template makes it anew: write one of them";
            errors.push(spec.field("implementationRef").error(message));
        }
        if let Err(message) = parts::place(&adopts["namespace"]) {
            let message = message.trim_start_matches("metadata.namespace: ").to_owned();
            errors.push(spec.field("implementationRef.namespace").error(message));
        }
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
    if request.operation == Operation::Update {
        errors.extend(replaced(request));
        if request.old["status"]["phase"] == "Bound" {
            errors.extend(bound(&rules, request, &seen));
        }
    }
    let mut warnings = quoting(kind, object);
    if !object["spec"]["topology"].is_null() {
        let message = "spec.topology rules nothing out: claims are bound before their consumers have a node; label the resource, and \
                       have claims select it";
        warnings.push(message.to_owned());
    }
    Verdict::of(errors, warnings)
}

/// What is wrong with changes of what is behind a resource, once it is there: nobody would know of it any more.
fn replaced(request: &Request<'_>) -> Option<FieldError> {
    let made = request.old["status"]["implementations"].as_array()?.iter().any(|made| !made["uid"].is_null());
    let which = |template: &Value| {
        let version = template["apiVersion"].as_str().unwrap_or_default();
        (version.rsplit_once('/').map_or("", |(group, _)| group).to_owned(), template["kind"].clone())
    };
    let several = |spec: &Value| {
        let templates = spec["templates"].as_array().into_iter().flatten();
        templates.map(|item| (item["name"].clone(), which(&item["template"]))).collect::<Vec<_>>()
    };
    let (new, old) = (&request.object["spec"], &request.old["spec"]);
    let field = match () {
        () if which(&new["template"]) != which(&old["template"]) => "template",
        () if several(new) != several(old) => "templates",
        () if new["implementationRef"] != old["implementationRef"] => "implementationRef",
        () => return None,
    };
    let message = "may not name other objects than those that are there: make another resource for them";
    // what was adopted and is gone is left to nobody: something else may be adopted in its place
    let lost = request.old["status"]["reason"] == "ImplementationLost";
    let instead = lost && old["implementationRef"].is_object() && new["implementationRef"].is_object();
    (made && !instead).then(|| Path::root().field("spec").field(field).error(message))
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
        let checker = Checker::new(Some(kind), Place::Claim, &Surroundings::of(&Value::Null));
        errors.extend(checker.check(expression).err().map(|error| spec.field("expression").error(error)));
    }
    if request.operation == Operation::Update {
        let named = request.old["spec"]["resourceName"].as_str().unwrap_or_default();
        if !named.is_empty() && object["spec"]["resourceName"].as_str() != Some(named) {
            errors.push(spec.field("resourceName").error("may not change once it is set: make another claim"));
        }
        let bound = matches!(request.old["status"]["phase"].as_str(), Some("Bound" | "Lost"));
        // a version that was a number may be quoted
        let read = |value: &Value| if value.is_number() { Value::String(value.to_string()) } else { value.clone() };
        let changed = |key: &&str| read(&object["spec"][key]) != read(&request.old["spec"][key]);
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

/// The templates of a class, each with its path.
fn templates<'f>(fields: &'f Value, path: &Path) -> Vec<(&'f Value, Path)> {
    let several = fields["templates"].as_array().into_iter().flatten().enumerate();
    let several = several.map(|(i, item)| (&item["template"], path.field("templates").index(i).field("template")));
    let one = Some((&fields["template"], path.field("template"))).filter(|(template, _)| template.is_object());
    one.into_iter().chain(several).collect()
}

/// Whether a template of a class is a claim that comes from this class again.
fn claims_from(template: &Value, kind: &ResourceType, class: &Value) -> bool {
    let group = template["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    let said = &template["spec"]["class"];
    let again = said == class || ["${claim.spec.class}", "${class.metadata.name}"].iter().any(|own| said == own);
    group == Some(kind.group.as_str()) && template["kind"] == *kind.names.claim && again && !said.is_null()
}

/// What in the templates of a class has no effect, or not the one that is meant.
fn remarks(fields: &Value, path: &Path, openapi: &[Value]) -> Vec<String> {
    let mut all = Vec::new();
    for (template, path) in templates(fields, path) {
        if !template["metadata"]["name"].is_null() {
            let field = path.field("metadata.name").to_string();
            all.push(format!("{field} has no effect: what is made is named after its resource"));
        }
        if !template["status"].is_null() {
            all.push(format!("{} has no effect: its provider reports it", path.field("status")));
        }
    }
    if fields["reclaimPolicy"] == "Recycle"
        && let Some((template, _)) = templates(fields, path).first()
        && Fit::of(openapi, template).is_some_and(|fit| !fit.scrubs())
    {
        let kind = template["kind"].as_str().unwrap_or_default();
        all.push(format!(
            "{}: a {kind} cannot be scrubbed (it has no spec.scrub): what comes back waits for somebody; choose Delete or Retain",
            path.field("reclaimPolicy")
        ));
    }
    all
}

/// What is wrong with what a class offers, beyond what keeps it from being read.
fn offers(kind: &ResourceType, fields: &Value, path: &Path, checker: &Checker) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let offers = &fields["offers"];
    let yields = |value: &Value| checker.check(&template::whole(value)?).ok().map(|yields| (value.clone(), yields));
    let stranger = |value: &Value| value.as_str().is_some_and(|t| t.contains("${")) && template::whole(value).is_none();
    for attribute in kind.attributes.iter() {
        let names = [Some(attribute.name.as_ref()), attribute.alias.as_deref()];
        for name in names.into_iter().flatten() {
            let path = path.field(name);
            match &offers[name] {
                Value::Array(items) if items.is_empty() && attribute.matching != Match::Contains => {
                    errors.push(path.error("is empty: write what there is to choose from, or leave it out"));
                }
                Value::Array(items) => {
                    let wrong = items.iter().enumerate().filter(|(_, v)| is_range(attribute.kind, v));
                    errors.extend(wrong.map(|(i, _)| path.index(i).error(NO_RANGE)));
                    let computed = |v: &Value| v.as_str().is_some_and(|text| text.contains("${"));
                    let wrong = items.iter().enumerate().filter(|(_, v)| computed(v));
                    errors.extend(wrong.map(|(i, _)| path.index(i).error(ALONE)));
                }
                value if is_range(attribute.kind, value) => errors.push(path.error(NO_RANGE)),
                value if stranger(value) => errors.push(path.error(ALONE)),
                value => errors.extend(yields(value).filter(|(_, yields)| !suits(attribute, yields)).map(
                    |(value, yields)| path.error(format!("{value} yields {yields}, and must be {}", wanted(attribute))),
                )),
            }
        }
    }
    for capacity in &kind.capacities {
        let path = path.field("capacity").field(&capacity.name);
        let mut amounts: Vec<(&Value, Path)> = Vec::new();
        match &offers["capacity"][capacity.name.as_ref()] {
            Value::Object(range) => {
                for (key, value) in range {
                    let path = path.field(key);
                    if ["min", "max", "default"].contains(&key.as_str()) {
                        amounts.push((value, path));
                    } else {
                        errors.push(path.error("is no word here: there are min, max and default"));
                    }
                }
            }
            Value::Array(items) if items.is_empty() => {
                errors.push(path.error("is empty: write what there is to choose from, or leave it out"));
            }
            Value::Array(items) => amounts.extend(items.iter().enumerate().map(|(i, value)| (value, path.index(i)))),
            value if stranger(value) => errors.push(path.error(ALONE)),
            value => {
                if let Some((value, yields)) = yields(value).filter(|(_, yields)| !is_amount(yields)) {
                    errors.push(path.error(format!("{value} yields {yields}, and must be an amount")));
                }
                amounts.push((value, path));
            }
        }
        let below = |value: &Value| Amount::from_json(value).is_ok_and(|amount| amount < Amount::ZERO);
        let negative = amounts.into_iter().filter(|(value, _)| below(value));
        errors.extend(negative.map(|(_, path)| path.error("may not be negative")));
    }
    errors
}

const NO_RANGE: &str =
    "is a range: a class offers a version, or a list of versions of which the highest that fits is made";

const ALONE: &str = "an expression stands for the whole value here: write one ${...} and nothing else";

fn is_amount(yields: &Type) -> bool {
    matches!(yields, Type::String | Type::Int | Type::Uint | Type::Double) || is_any(yields)
}

/// Whether only evaluating tells what it is.
fn is_any(yields: &Type) -> bool {
    !matches!(
        yields,
        Type::Bool
            | Type::String
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::List(_)
            | Type::Map(_)
            | Type::Object(_)
            | Type::Bytes
    )
}

/// Whether what an expression yields can be the value of an attribute.
fn suits(attribute: &Attribute, yields: &Type) -> bool {
    match (attribute.matching, attribute.kind, yields) {
        (_, _, other) if is_any(other) => true,
        (Match::Contains, _, yields) => matches!(yields, Type::List(_) | Type::String),
        (_, Kind::Text, yields) => matches!(yields, Type::String),
        (_, Kind::Flag, yields) => matches!(yields, Type::Bool),
        (_, Kind::Integer | Kind::Number, yields) => matches!(yields, Type::Int | Type::Uint | Type::Double),
        (_, Kind::Quantity | Kind::Version, yields) => is_amount(yields),
    }
}

/// What the values of an attribute are, in words.
fn wanted(attribute: &Attribute) -> &'static str {
    match (attribute.matching, attribute.kind) {
        (Match::Contains, _) => "a list of texts",
        (_, Kind::Text) => "a text",
        (_, Kind::Flag) => "true or false",
        (_, Kind::Integer | Kind::Number) => "a number",
        (_, Kind::Quantity) => "an amount",
        (_, Kind::Version) => "a version, as text",
    }
}

/// Whether a range stands where a version belongs.
fn is_range(kind: Kind, value: &Value) -> bool {
    let marks = |c: char| "<>=!~^,|*".contains(c) || c.is_whitespace();
    kind == Kind::Version && value.as_str().is_some_and(|text| !text.contains("${") && text.contains(marks))
}

pub(super) fn class(kind: &ResourceType, request: &Request<'_>, openapi: &[Value]) -> Verdict {
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
    errors.extend(making(kind, [fields, old], &path, Place::ClassTemplate, openapi));
    let before = templates(old, &path);
    let new = templates(fields, &path).into_iter().filter(|(t, _)| !before.iter().any(|(old, _)| old == t));
    let own = new.filter(|(template, _)| claims_from(template, kind, &object["metadata"]["name"]));
    errors.extend(own.map(|(_, path)| {
        path.field("spec.class").error("is this very class, which would make claims without end: name another class")
    }));
    if fields["offers"] != old["offers"] {
        let checker = Checker::new(Some(kind), Place::Offers, &Surroundings::of(fields));
        errors.extend(filled(&fields["offers"], &path.field("offers"), &checker, true));
        errors.extend(offers(kind, fields, &path.field("offers"), &checker));
    }
    let wrong = extract::profile(&kind.rules(), object, true).err().unwrap_or_default();
    errors.extend(wrong.into_iter().map(|e| FieldError { field: path.field(&e.field).to_string(), ..e }));
    Verdict::of(errors, remarks(fields, &path, openapi))
}

/// How volumes are made.
pub(super) fn volume_template(request: &Request<'_>, openapi: &[Value]) -> Verdict {
    let (spec, old, path) = (&request.object["spec"], &request.old["spec"], Path::root().field("spec"));
    let mut errors = Vec::new();
    let kinds = [("claim", "v1", "PersistentVolumeClaim"), ("class", "storage.k8s.io/v1", "StorageClass")];
    let mut around = Surroundings::of(spec);
    for (name, api_version, kind) in kinds {
        let fit = Fit::of(openapi, &json!({"apiVersion": api_version, "kind": kind}));
        around.schemas.extend(fit.map(|fit| (name.to_owned(), fit.0)));
    }
    around.schemas.extend(Fit::of(openapi, &spec["template"]).map(|fit| ("implementation".to_owned(), fit.0)));
    if spec["template"] != old["template"] {
        let checker = Checker::new(None, Place::VolumeTemplate, &around);
        errors.extend(template_errors(&spec["template"], &path.field("template"), &checker, openapi));
    }
    if spec["volume"] != old["volume"] {
        let checker = Checker::new(None, Place::Volume, &around);
        errors.extend(filled(&spec["volume"], &path.field("volume"), &checker, true));
    }
    if let Some(ready) = spec["readyWhen"].as_str().filter(|e| !e.is_empty() && spec["readyWhen"] != old["readyWhen"]) {
        let checker = Checker::new(None, Place::ReadyWhen, &around);
        errors.extend(checker.check(ready).err().map(|e| path.field("readyWhen").error(e)));
    }
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
