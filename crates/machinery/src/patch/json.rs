//! JSON patch, with the liberties Kubernetes' implementation takes: `replace` of a key that is not there adds it, `test`
//! against null holds where nothing is, `copy` of nothing copies null, negative indices count from the end.

use serde_json::{Map, Value};

use super::PatchError;
use crate::json::{MAX_DEPTH, duplicate, sort_by_place};

/// A patch with more operations is refused.
pub const MAX_OPERATIONS: usize = 10_000;
/// All copies of a patch together may not write more bytes of JSON.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// More of what strict validation objects to is not named.
const MAX_PROBLEMS: usize = 100;

/// Applies the operations of a patch one after the other; if one fails, the object stays as it was.
///
/// ```
/// use conductor_machinery::patch::apply_json_patch;
/// use serde_json::json;
/// let patch = json!([{"op": "add", "path": "/a/-", "value": 2}]);
/// assert_eq!(apply_json_patch(&json!({"a": [1]}), &patch).unwrap(), json!({"a": [1, 2]}));
/// ```
pub fn apply_json_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => return Err(malformed(other, "a JSON patch is a list of operations")),
    };
    if let Some(odd) = operations.iter().find(|operation| !operation.is_object()) {
        return Err(malformed(odd, "an operation of a JSON patch is an object"));
    }
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let message = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(PatchError::TooLarge(message));
    }
    let mut patcher = Patcher { object: object.clone(), copied: 0 };
    for operation in operations {
        patcher.run(operation).map_err(PatchError::DoesNotApply)?;
    }
    Ok(patcher.object)
}

fn malformed(value: &Value, rule: &str) -> PatchError {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    PatchError::Malformed(format!("error decoding patch: {rule}, not {kind}"))
}

/// What strict field validation says about a patch, in the order of its text: fields that no operation has, and fields that
/// stand twice. What is in an unknown field is not looked at.
pub fn json_patch_strict_errors(text: &[u8], patch: &Value, duplicates: &[String]) -> Vec<String> {
    let known = |field: &str| matches!(field, "op" | "path" | "from" | "value");
    let is_read = |path: &&String| {
        let field = path.split_once("].").map_or("", |(_, rest)| rest);
        known(field.split(['.', '[']).next().unwrap_or_default())
    };
    let mut errors: Vec<String> = duplicates.iter().filter(is_read).map(|path| duplicate(path)).collect();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for field in operation.as_object().into_iter().flat_map(Map::keys).filter(|field| !known(field)) {
            errors.push(format!("unknown field {}", crate::field::quote(&format!("[{index}].{field}"))));
        }
    }
    if errors.len() > 1 {
        sort_by_place(text, &mut errors);
    }
    errors.truncate(MAX_PROBLEMS);
    errors.iter_mut().for_each(|error| error.insert_str(0, "json patch "));
    errors
}

struct Patcher {
    object: Value,
    copied: usize,
}

/// The container a path leads to, and the key or index in it.
struct Place<'a> {
    container: &'a mut Value,
    key: String,
    /// How deep the container lies.
    depth: usize,
}

fn decode(segment: &str) -> String {
    // One pass: "~01" is "~1", not "/".
    let mut decoded = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(at) = rest.find('~') {
        decoded.push_str(&rest[..at]);
        let (character, length) = match rest.as_bytes().get(at + 1) {
            Some(b'0') => ('~', 2),
            Some(b'1') => ('/', 2),
            _ => ('~', 1),
        };
        decoded.push(character);
        rest = &rest[at + length..];
    }
    decoded.push_str(rest);
    decoded
}

impl Patcher {
    fn run(&mut self, operation: &Value) -> Result<(), String> {
        let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
        let path = |what: &str| match operation.get(what) {
            Some(Value::String(path)) => Ok(path.as_str()),
            _ => Err(format!("{kind} operation failed to decode {what}: missing value")),
        };
        let value = operation.get("value");
        match kind {
            "add" => self.add(kind, path("path")?, value.cloned().unwrap_or_default()),
            "remove" => {
                let path = path("path")?;
                let place = self.find(path).ok_or_else(|| missing(kind, "path", path))?;
                remove(place).map(drop).map_err(|error| format!("error in remove for path: '{path}': {error}"))
            }
            "replace" => self.replace(path("path")?, value.cloned().unwrap_or_default()),
            "move" => {
                let from = path("from")?;
                let place = self.find(from).ok_or_else(|| missing(kind, "from path", from))?;
                let value = remove(place).map_err(|error| format!("error in move for path: '{from}': {error}"))?;
                self.add(kind, path("path")?, value)
            }
            "copy" => {
                let from = path("from")?;
                let place = self.find(from).ok_or_else(|| missing(kind, "from path", from))?;
                let value = get(&place).map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
                let value = value.cloned().unwrap_or_default();
                self.count(&value)?;
                self.add(kind, path("path")?, value)
            }
            "test" => self.test(path("path")?, value),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    /// Walks to the container that a path ends in. Nothing can be found in null or below a scalar.
    fn find(&mut self, path: &str) -> Option<Place<'_>> {
        let (_, path) = path.split_once('/')?;
        let mut container = &mut self.object;
        let mut segments = path.split('/').peekable();
        let mut depth = 1;
        loop {
            let key = decode(segments.next()?);
            if segments.peek().is_none() {
                let holds = container.is_object() || container.is_array();
                return holds.then_some(Place { container, key, depth });
            }
            container = match container {
                Value::Object(fields) => fields.get_mut(&key)?,
                Value::Array(items) => {
                    let index = index(&key, items.len()).ok()?;
                    items.get_mut(index)?
                }
                _ => return None,
            };
            depth += 1;
        }
    }

    fn add(&mut self, kind: &str, path: &str, value: Value) -> Result<(), String> {
        let what = if matches!(kind, "move" | "copy") { "destination path" } else { "path" };
        let place = self.find(path).ok_or_else(|| missing(kind, what, path))?;
        bounded(&place, &value)?;
        insert(place, value).map_err(|error| format!("error in {kind} for path: '{path}': {error}"))
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), String> {
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array".to_owned());
            }
            self.object = value;
            return Ok(());
        }
        let place = self.find(path).ok_or_else(|| missing("replace", "path", path))?;
        get(&place).map_err(|_| missing("replace", "key", path))?;
        bounded(&place, &value)?;
        match place.container {
            Value::Object(fields) => drop(fields.insert(place.key, value)),
            Value::Array(items) => {
                let index = index(&place.key, items.len())?;
                items[index] = value;
            }
            _ => {}
        }
        Ok(())
    }

    fn test(&mut self, path: &str, expected: Option<&Value>) -> Result<(), String> {
        let expected = expected.unwrap_or(&Value::Null);
        let holds = if path.is_empty() {
            self.object == *expected
        } else {
            let place = self.find(path).ok_or_else(|| missing("test", "path", path))?;
            let found = get(&place).map_err(|error| format!("error in test for path: '{path}': {error}"))?;
            found.unwrap_or(&Value::Null) == expected
        };
        if holds { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
    }

    fn count(&mut self, value: &Value) -> Result<(), String> {
        if !value.is_null() {
            self.copied += serde_json::to_vec(value).map_or(0, |bytes| bytes.len());
        }
        if self.copied > MAX_COPIED_BYTES {
            let copied = self.copied;
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit \
                 {MAX_COPIED_BYTES}"
            ));
        }
        Ok(())
    }
}

fn missing(kind: &str, what: &str, path: &str) -> String {
    format!("{kind} operation does not apply: doc is missing {what}: \"{path}\": missing value")
}

/// Operations could nest values without end; what they build is as bounded as what clients send.
fn bounded(place: &Place<'_>, value: &Value) -> Result<(), String> {
    fn fits(value: &Value, room: usize) -> bool {
        match value {
            Value::Array(items) => room > 0 && items.iter().all(|item| fits(item, room - 1)),
            Value::Object(fields) => room > 0 && fields.values().all(|field| fits(field, room - 1)),
            _ => true,
        }
    }
    let room = MAX_DEPTH.saturating_sub(place.depth);
    if fits(value, room) { Ok(()) } else { Err(format!("the result exceeds the max depth of {MAX_DEPTH}")) }
}

/// The position a key names in a list of this length; negative ones count from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let index: i64 = key.parse().map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    let invalid = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let length = i64::try_from(length).map_err(|_| invalid())?;
    let position = if index < 0 { index + length } else { index };
    if (0..length).contains(&position) { usize::try_from(position).map_err(|_| invalid()) } else { Err(invalid()) }
}

fn get<'a>(place: &'a Place<'_>) -> Result<Option<&'a Value>, String> {
    match &*place.container {
        Value::Object(fields) => Ok(fields.get(&place.key)),
        Value::Array(items) => Ok(items.get(index(&place.key, items.len())?)),
        _ => Ok(None),
    }
}

fn insert(place: Place<'_>, value: Value) -> Result<(), String> {
    match place.container {
        Value::Object(fields) => drop(fields.insert(place.key, value)),
        Value::Array(items) if place.key == "-" => items.push(value),
        // There is one more place to insert at than there are items.
        Value::Array(items) => items.insert(index(&place.key, items.len() + 1)?, value),
        _ => {}
    }
    Ok(())
}

fn remove(place: Place<'_>) -> Result<Value, String> {
    match place.container {
        Value::Object(fields) => fields
            .remove(&place.key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {}: missing value", place.key)),
        Value::Array(items) => Ok(items.remove(index(&place.key, items.len())?)),
        _ => Ok(Value::Null),
    }
}
