//! Objects with one field changed, for every field that a schema knows: absent, of another type, of a value that
//! means nothing.

use machinery::schema::{Schema, Shape, Text};
use serde_json::{Map, Value, json};

/// A changed object.
pub struct Variant {
    /// What was changed: `spec.replicas=-1`.
    pub what: String,
    /// The object.
    pub object: Value,
}

/// At most this many levels below the object are changed.
const DEPTH: usize = 8;

/// All variants of an object. Metadata, the same for all kinds, is left alone unless asked for.
pub fn variants(object: &Value, schema: Schema<'_>, metadata: bool) -> Vec<Variant> {
    let mut changes = Vec::new();
    let mut path = Vec::new();
    walk(object, schema, &mut path, &mut changes);
    changes
        .into_iter()
        .filter(|(path, _)| match path.first().map(String::as_str) {
            Some("metadata") => metadata,
            Some("apiVersion" | "kind" | "status") => false,
            _ => true,
        })
        .filter_map(|(path, value)| {
            let mut changed = object.clone();
            let what = format!("{}={}", path.join("."), value.as_ref().map_or("absent".into(), Value::to_string));
            set(&mut changed, &path, value)?;
            Some(Variant { what, object: changed })
        })
        .collect()
}

type Change = (Vec<String>, Option<Value>);

fn walk(value: &Value, schema: Schema<'_>, path: &mut Vec<String>, changes: &mut Vec<Change>) {
    if path.len() > DEPTH {
        return;
    }
    match (schema.shape(), value) {
        (Shape::Object(fields), Value::Object(present)) => {
            for field in fields {
                path.push(field.name.to_string());
                let inner = schema.at(field.schema);
                let here = present.get(&*field.name);
                if here.is_some() {
                    changes.push((path.clone(), None));
                }
                changes.extend(values(inner).into_iter().map(|value| (path.clone(), Some(value))));
                if let Some(here) = here {
                    walk(here, inner, path, changes);
                }
                path.pop();
            }
        }
        (Shape::List { items, .. }, Value::Array(present)) => {
            if let Some(first) = present.first() {
                path.push("0".into());
                walk(first, schema.at(*items), path, changes);
                path.pop();
            }
        }
        _ => {}
    }
}

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
    for step in parents {
        here = match here {
            Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?)?,
            Value::Object(fields) => fields.entry(step.clone()).or_insert_with(|| Value::Object(Map::new())),
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
        let found: Vec<String> = variants(&object, schema, false).into_iter().map(|variant| variant.what).collect();
        for expected in ["spec=absent", "spec.containers=[]", "spec.containers.0.name=7", "spec.hostname=\"\""] {
            assert!(found.iter().any(|what| what == expected), "{expected} is not among {} variants", found.len());
        }
        assert!(!found.iter().any(|what| what.starts_with("metadata")));
    }
}
