//! Whatever an object of a built-in kind looks like, reading and writing it changes nothing more.
use conductor_kinds::{resources, types};
use conductor_machinery::schema::{Opaque, Schema, Shape, Text, apply_openapi_defaults, decode, encode, protobuf};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Draws numbers from bytes: proptest shrinks the bytes, so also the objects.
struct Source<'a>(std::slice::Iter<'a, u8>);

impl Source<'_> {
    fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }
}

/// A value of a type, with surprises: nulls, empty values, unknown fields, texts that are not canonical.
fn value(schema: Schema<'_>, source: &mut Source<'_>, depth: u8) -> Value {
    let choice = source.next();
    if choice % 16 == 15 {
        return Value::Null;
    }
    let pick = |texts: &[&str]| Value::from(texts[usize::from(choice) % texts.len()]);
    match schema.shape() {
        Shape::Object(fields) => {
            let mut map = Map::new();
            // Protobuf has apiVersion and kind in the envelope only.
            for field in fields.iter().filter(|field| field.proto > 0) {
                if depth > 0 && source.next() % 3 == 1 {
                    map.insert(field.name.to_string(), value(schema.at(field.schema), source, depth - 1));
                }
            }
            if choice % 16 == 14 {
                map.insert("unknownField".into(), json!({"a": [1]}));
            }
            Value::Object(map)
        }
        Shape::Map(values) => {
            let entries = (0..choice % 3).map(|n| (format!("k{n}"), value(schema.at(*values), source, depth)));
            Value::Object(entries.collect())
        }
        Shape::List { items, .. } => (0..choice % 3).map(|_| value(schema.at(*items), source, depth)).collect(),
        Shape::String(Text::Quantity) => pick(&["1Gi", "1024Mi", "0.5", "1e3", "100m", "-3"]),
        Shape::String(Text::Time) => {
            pick(&["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5+01:00", "0001-01-01T00:00:00Z"])
        }
        Shape::String(Text::MicroTime) => pick(&["2026-01-02T03:04:05.000001Z", "2026-01-02T03:04:05.100000+01:00"]),
        Shape::String(Text::Bytes) => pick(&["", "YQ==", "YWJj"]),
        Shape::String(_) => pick(&["", "a", "ü<&>\"\\\n\u{2028}"]),
        Shape::Integer { .. } => Value::from(i64::from(choice) - 100),
        // a whole one is written without a point, and protobuf does not know it from one with
        Shape::Number => Value::from(f64::from(choice) - 99.5),
        Shape::Boolean => Value::from(choice % 2 == 1),
        Shape::IntOrString => [json!("50%"), json!(7), json!(0)][usize::from(choice % 3)].clone(),
        Shape::Any => match schema.node().opaque {
            Opaque::SchemaOrBool(id) | Opaque::SchemaOrList(id) | Opaque::SchemaOrStrings(id) => {
                value(schema.at(id), source, depth.saturating_sub(1)).as_object().map_or(json!({}), |map| json!(map))
            }
            _ => json!({"a": [1, "<", null], "b": {}}),
        },
    }
}

fn written(value: &Value, schema: Schema<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, schema, &mut out);
    out
}

/// The values of `extra` are messages with a list in them, which protobuf cannot leave out: null comes back as an empty list, as
/// in Go.
fn through_protobuf(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                *value = through_protobuf(value.take());
                if key == "extra" {
                    value
                        .as_object_mut()
                        .into_iter()
                        .flatten()
                        .filter(|(_, v)| v.is_null())
                        .for_each(|(_, v)| *v = json!([]));
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = through_protobuf(item.take())),
        _ => {}
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_and_writing_is_stable(kind in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let resource = kind.get(resources());
        let schema = types().schema(resource.schema);
        let mut object = value(schema, &mut Source(bytes.iter()), 6);
        if !object.is_object() {
            object = json!({});
        }
        object["kind"] = resource.kind.into();
        object["apiVersion"] = resource.api_version().into();

        let once = decode(object, schema).unwrap().value;
        let twice = decode(once.clone(), schema).unwrap();
        prop_assert_eq!(&twice.value, &once);
        prop_assert!(twice.unknown.is_empty());

        let text = written(&once, schema);
        let read: Value = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(&read, &once);

        let proto = protobuf::to_protobuf(&once, schema);
        prop_assert_eq!(protobuf::from_protobuf(&proto, schema).unwrap(), through_protobuf(once.clone()));
        prop_assert_eq!(protobuf::to_protobuf(&once, schema), proto);

        let mut defaulted = once.clone();
        apply_openapi_defaults(&mut defaulted, schema);
        let first = defaulted.clone();
        apply_openapi_defaults(&mut defaulted, schema);
        prop_assert_eq!(defaulted, first);
    }

    #[test]
    fn any_bytes_are_read_or_refused(kind in any::<prop::sample::Index>(), bytes: Vec<u8>) {
        let schema = types().schema(kind.get(resources()).schema);
        let mut enveloped = b"k8s\0".to_vec();
        enveloped.extend_from_slice(&bytes);
        let _ = protobuf::from_protobuf(&enveloped, schema);
        let mut proper = Vec::new();
        protobuf::Envelope { api_version: "v1", kind: "X", raw: &bytes }.write(&mut proper);
        if let Ok(value) = protobuf::from_protobuf(&proper, schema) {
            let again = protobuf::to_protobuf(&value, schema);
            prop_assert_eq!(protobuf::from_protobuf(&again, schema), Ok(value));
        }
    }
}
