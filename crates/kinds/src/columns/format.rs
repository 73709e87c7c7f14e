//! Lists, labels, selectors and quantities in one cell.

use conductor_machinery::quantity::Quantity;
use conductor_machinery::selector::Selector;
use serde_json::{Value, json};

use crate::value::{entries, get, list, text};

/// The text at a dotted path, or this when it is empty.
pub(super) fn or<'a>(object: &'a Value, path: &str, otherwise: &'a str) -> &'a str {
    match text(object, path) {
        "" => otherwise,
        text => text,
    }
}

/// The integer at a dotted path; 0 when absent.
pub(super) fn number(object: &Value, path: &str) -> i64 {
    get(object, path).as_i64().unwrap_or(0)
}

/// Texts with a comma between them.
pub(super) fn joined<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(",")
}

/// The texts in the list at a dotted path.
pub(super) fn texts<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a str> {
    list(object, path).iter().filter_map(Value::as_str)
}

/// The first three of some texts, and how many more there are.
pub(super) fn first_three(mut items: Vec<String>) -> String {
    let more = items.len().saturating_sub(3);
    items.truncate(3);
    let shown = items.join(",");
    match more {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// Labels as `a=1,b=2`.
pub(super) fn labels(object: &Value, path: &str) -> String {
    let mut pairs: Vec<String> =
        entries(object, path).map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() {
        return "<none>".to_owned();
    }
    // By the whole pair: "a-b=1" comes before "a=1".
    pairs.sort_unstable();
    pairs.join(",")
}

/// A label selector in its text form; `<none>` when it selects everything or nothing.
pub(super) fn selector(object: &Value, path: &str) -> String {
    match Selector::from_object(get(object, path)).map(|selector| selector.to_string()) {
        Ok(text) if text.is_empty() => "<none>".to_owned(),
        Ok(text) => text,
        Err(_) => "<error>".to_owned(),
    }
}

/// Names and images of the containers of a pod template.
pub(super) fn containers(object: &Value, pod_spec: &str) -> [Value; 2] {
    let containers = list(get(object, pod_spec), "containers");
    ["name", "image"].map(|field| json!(joined(containers.iter().map(|container| text(container, field)))))
}

/// A quantity in its canonical form; `0` when absent.
pub(super) fn quantity(value: &Value) -> String {
    match Quantity::from_json(value) {
        Ok(quantity) => quantity.to_string(),
        Err(_) => value.as_str().unwrap_or("0").to_owned(),
    }
}

/// A number or a text (`IntOrString`).
pub(super) fn int_or_text(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}
