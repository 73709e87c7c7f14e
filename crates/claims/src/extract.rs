//! The views of generated types, read from their JSON.
//!
//! A resource is read leniently: what cannot be read is not offered. A claim strictly: what it asks wrongly is said, not guessed.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::amount::Amount;
use crate::errors::{FieldError, Path};
use crate::rules::{Attribute, Kind, Rules, Value, Want, texts};
use crate::selector::{Labels, Selector, Topology, labels_of};
use crate::views::{Ask, By, ClaimRef, ClassAsk, Measure, Offer, Phase, Profile, Reclaim, Shape, Source, Wish};

/// A text field, empty if it is not there.
pub(crate) fn text(value: &Json) -> Arc<str> {
    value.as_str().unwrap_or_default().into()
}

/// A field under its name or its alias.
fn field<'j>(attribute: &Attribute, map: &'j Json) -> &'j Json {
    match &map[attribute.name.as_ref()] {
        Json::Null => attribute.alias.as_ref().map_or(&Json::Null, |alias| &map[alias.as_ref()]),
        value => value,
    }
}

/// The resourceVersion as a number; 0 if it is none.
pub(crate) fn revision(object: &Json) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// Seconds since 1970 of an RFC 3339 time in UTC, such as `2026-11-15T08:30:51Z`; 0 if it is none.
pub fn seconds(time: &str) -> i64 {
    let number = |range: std::ops::Range<usize>| time.get(range).and_then(|t| t.parse::<i64>().ok());
    let parts = (number(0..4), number(5..7), number(8..10), number(11..13), number(14..16), number(17..19));
    let (Some(year), Some(month), Some(day), Some(hour), Some(minute), Some(second)) = parts else { return 0 };
    // days of the proleptic Gregorian calendar, counted from March so that the leap day comes last
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day - 719_469;
    ((days * 24 + hour) * 60 + minute) * 60 + second
}

/// Amounts of a map, in the order of the rules; what is missing or unreadable is zero.
fn amounts(rules: &Rules, maps: [&Json; 2]) -> Box<[Amount]> {
    let read = |name: &str| maps.iter().find_map(|m| Amount::from_json(&m[name]).ok()).unwrap_or_default();
    rules.capacities.iter().map(|c| read(&c.name)).collect()
}

/// Whether a name in the engine's sense is set.
pub(crate) fn name(value: &Json) -> Option<Arc<str>> {
    value.as_str().filter(|t| !t.is_empty()).map(Arc::from)
}

/// A resource as matching sees it. What its implementation reports counts before what its spec says.
pub fn offer(rules: &Rules, object: &Json) -> Offer {
    let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let attribute = |a: &Attribute| -> Option<Value> {
        let read = |map: &Json| a.read(field(a, map)).ok().flatten();
        read(&status["attributes"]).or_else(|| read(spec))
    };
    let terms = match &spec["topology"]["required"]["nodeSelectorTerms"] {
        Json::Null => &spec["topology"]["nodeSelectorTerms"],
        terms => terms,
    };
    Offer {
        name: text(&meta["name"]),
        uid: text(&meta["uid"]),
        revision: revision(object),
        shape: Arc::new(Shape {
            class: name(&spec["class"]),
            attributes: rules.attributes.iter().map(attribute).collect(),
            capabilities: texts(&spec["capabilities"]).unwrap_or_default(),
            modes: texts(&spec["accessModes"]).unwrap_or_default(),
            topology: Topology::from_terms(terms, &Path::root()).ok().map(Arc::new),
        }),
        capacity: amounts(rules, [&status["capacity"], &spec["capacity"]]),
        labels: labels_of(meta.get("labels")),
        phase: Phase::parse(status["phase"].as_str().unwrap_or_default()),
        deleting: !meta["deletionTimestamp"].is_null(),
        refs: spec["claimRefs"].as_array().into_iter().flatten().map(|r| reference(rules, r)).collect(),
        max_claims: spec["maxClaims"].as_u64().map_or(rules.max_claims, |n| n.clamp(1, 256) as u32),
    }
}

fn reference(rules: &Rules, json: &Json) -> ClaimRef {
    ClaimRef {
        uid: text(&json["uid"]),
        namespace: text(&json["namespace"]),
        name: text(&json["name"]),
        amounts: amounts(rules, [&json["amounts"], &Json::Null]),
        by: if json["by"].as_str() == Some("Manager") { By::Manager } else { By::Admin },
    }
}

/// A claim as matching sees it. `needed`: whether a consumer needs it; `node`: the labels of the node it will be used on, if known.
pub fn ask(rules: &Rules, object: &Json, needed: bool, node: Option<Labels>) -> Result<Ask, Vec<FieldError>> {
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    let path = Path::root().field("spec");
    let mut errors = Vec::new();
    let mut attributes: Vec<Option<Want>> = Vec::new();
    for attribute in &rules.attributes {
        attributes.push(attribute.read_want(field(attribute, spec)).unwrap_or_else(|message| {
            errors.push(path.field(&attribute.name).error(message));
            None
        }));
    }
    let mut bounds = |part: &str| -> Vec<Option<Amount>> {
        let path = path.field("resources").field(part);
        let read = |name: &str| match &spec["resources"][part][name] {
            Json::Null => Ok(None),
            value => Amount::from_json(value).map(Some).map_err(|e| path.field(name).error(e.to_string())),
        };
        rules
            .capacities
            .iter()
            .map(|c| {
                read(&c.name).unwrap_or_else(|e| {
                    errors.push(e);
                    None
                })
            })
            .collect()
    };
    let lower = bounds("requests").into_iter().map(Option::unwrap_or_default).collect();
    let upper = bounds("limits").into();
    let mut list = |key: &str| {
        texts(&spec[key]).unwrap_or_else(|message| {
            errors.push(path.field(key).error(message));
            Arc::from([])
        })
    };
    let (capabilities, modes) = (list("requests"), list("accessModes"));
    let selector = match &spec["selector"] {
        Json::Null => None,
        value => match Selector::from_json(value, &path.field("selector")) {
            Ok(selector) => Some(Arc::new(selector)).filter(|s| !s.is_empty()),
            Err(error) => {
                errors.push(error);
                None
            }
        },
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Ask {
        uid: text(&meta["uid"]),
        namespace: text(&meta["namespace"]),
        name: text(&meta["name"]),
        since: seconds(meta["creationTimestamp"].as_str().unwrap_or_default()),
        wish: Arc::new(Wish {
            class: match spec["class"].as_str() {
                None => ClassAsk::Unset,
                Some("") => ClassAsk::Without,
                Some(class) => ClassAsk::Named(class.into()),
            },
            attributes: attributes.into(),
            capabilities,
            modes,
            selector,
            expression: name(&spec["expression"]),
            node,
            content: false,
        }),
        lower,
        upper,
        resource_name: name(&spec["resourceName"]),
        needed,
        barred: Box::default(),
        bound: matches!(object["status"]["phase"].as_str(), Some("Bound" | "Lost")),
    })
}

/// Attributes of a claim or resource whose version was written as a number: `5.10` unquoted reads as 5.1.
pub fn unquoted_versions<'r>(attributes: &'r [Attribute], object: &Json) -> Vec<&'r str> {
    let unquoted = |a: &&Attribute| a.kind == Kind::Version && field(a, &object["spec"]).is_number();
    attributes.iter().filter(unquoted).map(|a| a.name.as_ref()).collect()
}

/// The fields of a class: under `spec`, or at the top.
pub fn class_fields(object: &Json) -> &Json {
    if object["spec"].is_object() { &object["spec"] } else { object }
}

/// What a class makes its resources of.
pub fn templates(class: &Json) -> impl Iterator<Item = &Json> {
    let fields = class_fields(class);
    let several = fields["templates"].as_array().into_iter().flatten().map(|item| &item["template"]);
    std::iter::once(&fields["template"]).chain(several)
}

/// A class as templates see it: with its fields under `spec` and at the top, wherever they were written.
pub(crate) fn class_view(object: &Json) -> Json {
    let mut fields = class_fields(object).clone();
    let mut view = serde_json::json!({});
    if let Some(fields) = fields.as_object_mut() {
        ["apiVersion", "kind", "metadata", "spec", "status"].iter().for_each(|key| drop(fields.remove(*key)));
        view = Json::Object(fields.clone());
    }
    for key in ["apiVersion", "kind", "metadata"] {
        view[key] = object[key].clone();
    }
    view["spec"] = fields;
    view
}

/// The expression, if the text is nothing but `${…}`.
fn expression(value: &Json) -> Option<Arc<str>> {
    crate::template::whole(value).map(Arc::from)
}

/// A class as matching sees it; `served`: whether a manager serves it.
pub fn profile(rules: &Rules, object: &Json, served: bool) -> Result<Profile, Vec<FieldError>> {
    let fields = class_fields(object);
    let path = Path::root().field("offers");
    let offers = &fields["offers"];
    let mut errors = Vec::new();
    let mut attributes = Vec::new();
    for attribute in &rules.attributes {
        let value = field(attribute, offers);
        let many = match (value, attribute.matching) {
            (Json::Null, _) => {
                attributes.push(None);
                continue;
            }
            (Json::Array(items), matching) if matching != crate::rules::Match::Contains => items.clone(),
            (value, _) => vec![value.clone()],
        };
        let source = match expression(value) {
            Some(expression) => Ok(Source::Expression(expression)),
            None => many
                .iter()
                .filter_map(|v| attribute.read(v).transpose())
                .collect::<Result<Vec<_>, _>>()
                .map(Source::OneOf),
        };
        match source {
            Ok(source) => attributes.push(Some(source)),
            Err(message) => errors.push(path.field(&attribute.name).error(message)),
        }
    }
    let mut capacity = Vec::new();
    for c in &rules.capacities {
        let path = path.field("capacity").field(&c.name);
        match measure(&offers["capacity"][c.name.as_ref()], &path) {
            Ok(measure) => capacity.push(measure),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let list = |key: &str| Some(&fields[key]).filter(|v| v.is_array()).and_then(|v| texts(v).ok());
    Ok(Profile {
        name: text(&object["metadata"]["name"]),
        attributes: attributes.into(),
        capacity: capacity.into(),
        capabilities: list("capabilities"),
        modes: list("accessModes"),
        provisions: fields["template"].is_object() || fields["templates"].as_array().is_some_and(|t| !t.is_empty()),
        late: fields["bindingMode"].as_str() == Some("WaitForFirstConsumer"),
        reclaim: fields["reclaimPolicy"].as_str().and_then(Reclaim::parse),
        deleting: !object["metadata"]["deletionTimestamp"].is_null(),
        served,
    })
}

fn measure(value: &Json, path: &Path) -> Result<Option<Measure>, FieldError> {
    let amount = |value: &Json, path: &Path| Amount::from_json(value).map_err(|e| path.error(e.to_string()));
    Ok(Some(match value {
        Json::Null => return Ok(None),
        Json::Object(map) => {
            let bound = |key: &str| map.get(key).map(|v| amount(v, &path.field(key))).transpose();
            let (least, most) = (bound("min")?.unwrap_or_default(), bound("max")?);
            if most.is_some_and(|most| most < least) {
                return Err(path.field("max").error(format!("is less than min, which is {least}")));
            }
            let usual = bound("default")?;
            if let Some(usual) = usual.filter(|usual| *usual < least || most.is_some_and(|most| *usual > most)) {
                return Err(path.field("default").error(format!("is {usual}, which is not between min and max")));
            }
            Measure::Between { least, most, usual: usual.unwrap_or(least) }
        }
        Json::Array(items) => {
            let read =
                items.iter().enumerate().map(|(i, v)| amount(v, &path.index(i))).collect::<Result<Vec<_>, _>>()?;
            Measure::OneOf(read)
        }
        value => match expression(value) {
            Some(expression) => Measure::Expression(expression),
            None => Measure::OneOf(vec![amount(value, path)?]),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (time, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-03-01T00:00:01Z", 951_868_801),
            ("2026-11-15T08:30:51Z", 1_794_731_451),
            ("", 0),
        ] {
            assert_eq!(seconds(time), expected, "{time}");
        }
    }
}
