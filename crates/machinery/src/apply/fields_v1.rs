//! FieldsV1: the JSON form of a [`FieldSet`].

use serde_json::{Map, Value};

use super::path::{PathElement, PathError};
use super::set::{Entry, FieldSet};

/// How deep a set may be. Deeper JSON is refused by the parser anyway.
pub const MAX_DEPTH: usize = 128;

/// How many elements a set may have: more than any object of the largest allowed size can need.
pub const MAX_ELEMENTS: usize = 1 << 20;

/// Why FieldsV1 cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// A key is no path element.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Something else than an object stands where one must.
    #[error("expected an object under {0:?}")]
    NotAnObject(String),
    /// Deeper than [`MAX_DEPTH`].
    #[error("fields nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More than [`MAX_ELEMENTS`].
    #[error("more than {MAX_ELEMENTS} fields")]
    TooMany,
}

impl FieldSet {
    /// Reads FieldsV1.
    ///
    /// ```
    /// use conductor_machinery::apply::FieldSet;
    /// use serde_json::json;
    /// let fields = json!({"f:data": {".": {}, "f:key": {}}});
    /// let set = FieldSet::from_json(&fields).unwrap();
    /// let shown: Vec<String> = set.paths().iter().map(|path| path.to_string()).collect();
    /// assert_eq!(shown, [".data", ".data.key"]);
    /// assert_eq!(set.to_json(), fields);
    /// ```
    pub fn from_json(fields: &Value) -> Result<Self, FieldsError> {
        let mut budget = MAX_ELEMENTS;
        Ok(read(fields, "", 0, &mut budget)?.0)
    }

    /// Writes FieldsV1.
    pub fn to_json(&self) -> Value {
        Value::Object(self.write(false))
    }

    fn write(&self, member: bool) -> Map<String, Value> {
        let mut out = Map::new();
        if member && !self.is_empty() {
            out.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for entry in &self.entries {
            let mut key = String::new();
            entry.element.write(&mut key);
            out.insert(key, Value::Object(entry.children.write(entry.member)));
        }
        out
    }
}

/// Reads one level: what is below, and whether the level itself is a member of its parent.
fn read(fields: &Value, at: &str, depth: usize, budget: &mut usize) -> Result<(FieldSet, bool), FieldsError> {
    if depth > MAX_DEPTH {
        return Err(FieldsError::TooDeep);
    }
    let map = match fields {
        Value::Object(map) => map,
        Value::Null => return Ok((FieldSet::new(), true)),
        _ => return Err(FieldsError::NotAnObject(at.to_owned())),
    };
    let mut set = FieldSet { entries: Vec::with_capacity(map.len()) };
    let mut member = false;
    for (key, below) in map {
        if key == "." {
            member = true;
            continue;
        }
        *budget = budget.checked_sub(1).ok_or(FieldsError::TooMany)?;
        let Some(element) = PathElement::parse(key)? else { continue };
        let (children, is_member) = read(below, key, depth + 1, budget)?;
        // Mostly they come in order; two spellings of one element are joined.
        match set.entries.last().map(|last| last.element.cmp(&element)) {
            None | Some(std::cmp::Ordering::Less) => set.entries.push(Entry { element, member: is_member, children }),
            _ => {
                let entry = set.entry(element);
                entry.member |= is_member;
                entry.children = entry.children.union(&children);
            }
        }
    }
    let member = member || set.is_empty();
    Ok((set, member))
}
