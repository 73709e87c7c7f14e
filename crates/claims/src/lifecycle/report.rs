//! What the implementations of a resource report, and what of it cannot be read.

use serde_json::{Map, Value, json};

use crate::amount::Amount;
use crate::lifecycle::REPORTED;
use crate::lifecycle::WITHIN_CAPACITY;
use crate::lifecycle::resource::{ResourceScene, called};
use crate::lifecycle::status::{Condition, condition_of};
use crate::rules::Rules;

/// What the implementation says about its size, for its claims to say.
pub(super) fn sizes(scene: &ResourceScene<'_>) -> Vec<Condition> {
    let mut all = Vec::new();
    for kind in ["Resized", WITHIN_CAPACITY] {
        let said = scene.found.iter().find_map(|f| condition_of(f.object?, kind));
        all.extend(said.map(|(holds, reason, message)| Condition::new(kind, holds, reason, message)));
    }
    all
}

/// The reason of a resource whose implementation reports what cannot be read.
pub(super) const BAD_REPORT: &str = "BadReport";

/// What the implementations report, attributes and capacity, as the status is to have it: what they no longer report is null. Of what
/// cannot be read stands what was read last, so that the rest is told and nothing is promised on a guess, and it is the condition's to say.
pub(super) fn reported(scene: &ResourceScene<'_>) -> (Map<String, Value>, Option<Condition>) {
    let rules = scene.kind.rules();
    let (mut all, mut wrong) = (Map::new(), Vec::new());
    // what nothing is behind has its status from whoever made it
    if scene.found.iter().all(|f| f.object.is_none()) {
        return (all, None);
    }
    for key in ["attributes", "capacity"] {
        let (mut merged, mut unread) = (Map::new(), Vec::new());
        for object in scene.found.iter().filter_map(|f| f.object) {
            for (name, value) in object["status"][key].as_object().into_iter().flatten() {
                match read(&rules, key, name, value) {
                    Ok(value) => drop(merged.entry(name.clone()).or_insert(value)),
                    Err(why) => {
                        unread.push(name);
                        let [name, value, why] = [name, &value.to_string(), &why].map(|text| short(text));
                        wrong.push(format!("{} reports {key}.{name} {value}: {why}", called(object)));
                    }
                }
            }
        }
        for name in unread {
            let last = &scene.resource["status"][key][name];
            if !last.is_null() {
                merged.entry(name.clone()).or_insert_with(|| last.clone());
            }
        }
        all.insert(key.to_owned(), if merged.is_empty() { Value::Null } else { Value::Object(merged) });
    }
    let condition = match &wrong[..] {
        [] => condition_of(scene.resource, REPORTED)
            .map(|_| Condition::new(REPORTED, true, "Read", "what is behind it reports what can be read")),
        wrong => {
            let more = match wrong.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let some = wrong[..wrong.len().min(SHOWN)].join("; ");
            let message = format!("{some}{more}; what was read last stands: see to what its provider reports");
            Some(Condition::new(REPORTED, false, BAD_REPORT, message))
        }
    };
    (all, condition)
}

/// How many reports that cannot be read are said.
const SHOWN: usize = 3;

/// As much of a text as a message can bear.
fn short(text: &str) -> String {
    const MOST: usize = 100;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A value as a resource's status takes it; or what is wrong with it.
fn read(rules: &Rules, key: &str, name: &str, value: &Value) -> Result<Value, String> {
    if key == "capacity" {
        let amount = Amount::from_json(value).map_err(|error| error.to_string())?;
        return match value {
            _ if amount < Amount::ZERO => Err("must not be negative".into()),
            // a schema takes whole numbers and texts
            Value::Number(number) if !number.is_u64() => Ok(json!(amount.to_string())),
            value => Ok(value.clone()),
        };
    }
    let rule = rules.attributes.iter().find(|a| *a.name == *name || a.alias.as_deref() == Some(name));
    rule.map_or(Ok(None), |rule| rule.read(value)).map(|_| value.clone())
}
