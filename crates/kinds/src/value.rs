//! Reading and filling JSON objects without panics: a missing, null or mistyped field reads as absent.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The value at a dotted path; `Null` when any step is missing.
pub fn get<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(value, |at, step| at.get(step)).unwrap_or(&NULL)
}

/// Whether there is a value other than null at a dotted path.
pub fn has(value: &Value, path: &str) -> bool {
    !get(value, path).is_null()
}

/// The text at a dotted path; empty when absent.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    get(value, path).as_str().unwrap_or("")
}

/// The integer at a dotted path.
pub fn int(value: &Value, path: &str) -> Option<i64> {
    get(value, path).as_i64()
}

/// The boolean at a dotted path; false when absent.
pub fn flag(value: &Value, path: &str) -> bool {
    get(value, path).as_bool().unwrap_or(false)
}

/// The items of the list at a dotted path.
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    get(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The entries of the object at a dotted path.
pub fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
    get(value, path).as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// How many entries the object at a dotted path has.
pub fn size(value: &Value, path: &str) -> usize {
    get(value, path).as_object().map_or(0, Map::len)
}

/// An annotation of an object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The object at a dotted path, made where it is missing. `None` when something that is no object is in the way.
pub fn object_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let mut at = value;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let next = at.as_object_mut()?.entry(step).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        at = next;
    }
    at.as_object_mut()
}

/// The value at a dotted path, if there is one other than null.
pub fn get_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let found = path.split('.').try_fold(value, |at, step| at.get_mut(step))?;
    (!found.is_null()).then_some(found)
}

/// The items of the list at a dotted path, to be changed.
pub fn list_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    get_mut(value, path).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Sets `object.path.key` to `value`.
pub fn set(object: &mut Value, path: &str, key: &str, value: impl Into<Value>) {
    if let Some(map) = object_mut(object, path) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Takes the field at `path.key` away.
pub fn remove(object: &mut Value, path: &str, key: &str) {
    let holder = if path.is_empty() { Some(object) } else { get_mut(object, path) };
    if let Some(map) = holder.and_then(Value::as_object_mut) {
        map.remove(key);
    }
}

/// Gives `to.field` the value `from.field` has, or takes it away when `from` has none.
pub fn keep(to: &mut Value, from: &Value, field: &str) {
    let Some(map) = to.as_object_mut() else { return };
    match from.get(field) {
        // nearly always: comparing is cheaper than copying
        Some(value) if map.get(field) == Some(value) => None,
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Sets a field that is absent or null.
pub fn fill(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let field = map.entry(key).or_insert(Value::Null);
    if field.is_null() {
        *field = value.into();
    }
}

/// Sets a text field that is absent, null or empty.
pub fn fill_text(map: &mut Map<String, Value>, key: &str, value: &str) {
    let field = map.entry(key).or_insert(Value::Null);
    if field.as_str().is_none_or(str::is_empty) && (field.is_null() || field.is_string()) {
        *field = value.into();
    }
}

/// Sets an integer field that is absent, null or 0.
pub fn fill_int(map: &mut Map<String, Value>, key: &str, value: i64) {
    let field = map.entry(key).or_insert(Value::Null);
    if field.is_null() || field.as_i64() == Some(0) {
        *field = value.into();
    }
}

/// Objects that are maps, or structures that are always there: empty is the same as absent. Elsewhere `{}` is a
/// choice (`emptyDir: {}`, `podSelector: {}`).
const EMPTY_IS_ABSENT: &[&str] = &[
    "annotations",
    "attributes",
    "binaryData",
    "capacity",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "metadata",
    "nodeSelector",
    "options",
    "overhead",
    "parameters",
    "requests",
    "status",
    "strategy",
    "updateStrategy",
    "volumeAttributes",
];

fn is_absent(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && EMPTY_IS_ABSENT.contains(&key),
        // A zero that is there in a decoded object was said: where it means nothing, decoding has dropped it.
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether two parts of decoded objects mean the same: an empty list or map is the same as none.
///
/// ```
/// use conductor_kinds::value::same;
/// use serde_json::json;
/// assert!(same(&json!({"nodeSelector": {}, "tolerations": []}), &json!({})));
/// assert!(!same(&json!({"emptyDir": {}}), &json!({})));
/// assert!(!same(&json!({"priority": 0}), &json!({})));
/// ```
pub fn same(a: &Value, b: &Value) -> bool {
    same_at("", a, b)
}

fn same_at(key: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| same_at(key, value, b.get(key).unwrap_or(&NULL)))
                && b.iter().all(|(key, value)| a.contains_key(key) || is_absent(key, value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_at("", a, b)),
        (a, b) => a == b || (is_absent(key, a) && is_absent(key, b)),
    }
}
