//! Objects with one field changed, for every field that a schema knows: absent, of another type, of a value that
//! means nothing.

use machinery::schema::{Id, Schema, Shape, Text};
use serde_json::{Value, json};

/// A changed object.
pub struct Variant {
    /// What was changed: `spec.replicas=-1`.
    pub what: String,
    /// The object.
    pub object: Value,
}

/// At most this many levels below the object are changed where it has something there.
const DEPTH: usize = 8;
/// And this many below what it has: what is missing in between is made, empty.
const BELOW: usize = 4;

/// Which fields of an object are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but metadata, the same for all kinds, and status.
    Wish,
    /// These and metadata.
    WishAndMetadata,
    /// Status alone.
    Status,
}

impl Part {
    fn has(self, field: &str) -> bool {
        match field {
            "apiVersion" | "kind" => false,
            "metadata" => self == Part::WishAndMetadata,
            "status" => self == Part::Status,
            _ => self != Part::Status,
        }
    }
}

/// All variants of an object: of the fields that it has and those below them, and of those that it could have.
pub fn variants(object: &Value, schema: Schema<'_>, part: Part) -> Vec<Variant> {
    let mut walk = Walk::default();
    walk.at(Some(object), schema, BELOW);
    let changes = walk.changes.into_iter();
    changes
        .into_iter()
        .filter(|(path, _)| path.first().is_some_and(|field| part.has(field)))
        .filter_map(|(path, value)| {
            let mut changed = object.clone();
            let what = format!("{}={}", path.join("."), value.as_ref().map_or("absent".into(), Value::to_string));
            set(&mut changed, &path, value)?;
            Some(Variant { what, object: changed })
        })
        .collect()
}

type Change = (Vec<String>, Option<Value>);

#[derive(Default)]
struct Walk {
    path: Vec<String>,
    /// The types on the way here: one that has itself within is entered once.
    types: Vec<Id>,
    changes: Vec<Change>,
}

impl Walk {
    fn at(&mut self, value: Option<&Value>, schema: Schema<'_>, below: usize) {
        if self.path.len() > DEPTH || below == 0 {
            return;
        }
        // Templates of Pods are checked as Pods are.
        if value.is_none() && self.path.iter().any(|step| step == "template") {
            return;
        }
        let below = if value.is_some() { BELOW } else { below - 1 };
        match (schema.shape(), value) {
            (Shape::Object(fields), None | Some(Value::Object(_))) => {
                for field in fields {
                    let here = value.and_then(|value| value.get(&*field.name));
                    self.path.push(field.name.to_string());
                    if here.is_some() {
                        self.changes.push((self.path.clone(), None));
                    }
                    let values = values(schema.at(field.schema));
                    self.changes.extend(values.into_iter().map(|value| (self.path.clone(), Some(value))));
                    self.within(here, schema, field.schema, below);
                    self.path.pop();
                }
            }
            (Shape::List { items, .. }, None | Some(Value::Array(_))) => {
                self.path.push(FIRST.into());
                self.within(value.and_then(|value| value.get(0)), schema, *items, below);
                self.path.pop();
            }
            _ => {}
        }
    }

    fn within(&mut self, value: Option<&Value>, outer: Schema<'_>, inner: Id, below: usize) {
        if value.is_none() && self.types.contains(&inner) {
            return;
        }
        self.types.push(inner);
        self.at(value, outer.at(inner), below);
        self.types.pop();
    }
}

/// The step to the first item of a list.
const FIRST: &str = "0";

/// Values that a field of this type should not have, or hardly.
fn values(schema: Schema<'_>) -> Vec<Value> {
    match schema.shape() {
        Shape::Object(_) => vec![json!({}), json!("text")],
        Shape::Map(values) => {
            let inner = match schema.at(*values).shape() {
                Shape::String(Text::Quantity) => json!("-1"),
                Shape::String(Text::Bytes) => json!("AA=="),
                Shape::String(_) => json!("b c"),
                _ => json!({}),
            };
            vec![json!({"a b": inner}), json!({"": inner}), json!([])]
        }
        Shape::List { items, .. } => {
            let item = match schema.at(*items).shape() {
                Shape::Object(_) => json!({}),
                Shape::String(_) => json!("Not Valid!"),
                _ => Value::Null,
            };
            vec![json!([]), json!([item.clone()]), json!([item.clone(), item]), json!({})]
        }
        Shape::String(Text::Plain) => vec![json!(""), json!("Not Valid!"), json!("a"), json!(7)],
        Shape::String(Text::Quantity) => vec![json!("-1"), json!("1.5"), json!("x"), json!(true)],
        Shape::String(Text::Bytes) => vec![json!("not base64!"), json!(7)],
        Shape::String(_) => vec![json!("yesterday"), json!(7)],
        Shape::Integer { bits } => {
            let large = if *bits == 32 { json!(99_999_999_999_i64) } else { json!(1e30) };
            vec![json!(-1), json!(0), json!(100_000), json!("text"), json!(1.5), large]
        }
        Shape::Number => vec![json!("text")],
        Shape::Boolean => vec![json!(true), json!("true")],
        Shape::IntOrString => vec![json!(-1), json!("150%"), json!("Not Valid!"), json!({})],
        Shape::Any => Vec::new(),
    }
}

fn set(object: &mut Value, path: &[String], value: Option<Value>) -> Option<()> {
    let (last, parents) = path.split_last()?;
    let mut here = object;
    for (step, next) in parents.iter().zip(path.iter().skip(1)) {
        let empty = || if next == FIRST { json!([{}]) } else { json!({}) };
        here = match here {
            Value::Array(items) => {
                if items.is_empty() {
                    items.push(json!({}));
                }
                items.get_mut(step.parse::<usize>().ok()?)?
            }
            Value::Object(fields) => fields.entry(step.clone()).or_insert_with(empty),
            _ => return None,
        };
    }
    let fields = here.as_object_mut()?;
    match value {
        Some(value) => fields.insert(last.clone(), value),
        None => fields.remove(last),
    };
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_variants() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}});
        let schema = kinds::schema_of("", "v1", "Pod").expect("a built-in kind");
        let found: Vec<String> =
            variants(&object, schema, Part::Wish).into_iter().map(|variant| variant.what).collect();
        for expected in [
            "spec=absent",
            "spec.containers=[]",
            "spec.containers.0.name=7",
            "spec.hostname=\"\"",
            "spec.containers.0.livenessProbe.httpGet.port=-1",
            "spec.volumes.0.nfs.server=\"\"",
        ] {
            assert!(found.iter().any(|what| what == expected), "{expected} is not among {} variants", found.len());
        }
        assert!(!found.iter().any(|what| what.starts_with("metadata") || what.starts_with("status")));
        let status = variants(&object, schema, Part::Status);
        assert!(status.iter().all(|variant| variant.what.starts_with("status")));
        assert!(status.iter().any(|variant| variant.what == "status.conditions.0.type=\"\""));
    }
}
