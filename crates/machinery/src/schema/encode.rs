//! Writing objects as Kubernetes does: compact JSON, fields in the order of Go's types, maps sorted.
use serde_json::{Map, Number, Value};

use super::{Field, Schema, Shape};

/// Writes a value. Fields stand in the order of their type; what the type does not know follows, sorted.
pub fn encode(value: &Value, schema: Schema<'_>, out: &mut Vec<u8>) {
    Writer { out, version: None }.value(value, Some(schema));
}

/// Writes a whole object and says where the value of its `metadata.resourceVersion` begins, just after the opening quote,
/// so that it can be put in without writing the object again. Without a schema the object is a custom resource: its
/// fields are sorted. An object without resourceVersion is written with an empty one; `None` if it has no metadata.
pub fn encode_object(value: &Value, schema: Option<Schema<'_>>, out: &mut Vec<u8>) -> Option<usize> {
    let mut writer = Writer { out, version: None };
    match value {
        Value::Object(map) => writer.root(map, schema),
        other => writer.value(other, schema),
    }
    writer.version
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    version: Option<usize>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, schema: Option<Schema<'_>>) {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(number) => write_number(number, self.out),
            Value::String(text) => write_string(text, self.out),
            Value::Array(items) => {
                let of = schema.and_then(Schema::items);
                self.out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    self.value(item, of);
                }
                self.out.push(b']');
            }
            Value::Object(map) => {
                self.out.push(b'{');
                let mut first = true;
                for (name, value, of) in in_order(map, schema) {
                    self.name(name, &mut first);
                    self.value(value, of);
                }
                self.out.push(b'}');
            }
        }
    }

    /// The object itself, whose metadata gets special care.
    fn root(&mut self, map: &Map<String, Value>, schema: Option<Schema<'_>>) {
        self.out.push(b'{');
        let mut first = true;
        for (name, value, of) in in_order(map, schema) {
            self.name(name, &mut first);
            match value {
                Value::Object(metadata) if name == "metadata" => self.metadata(metadata, of),
                other => self.value(other, of),
            }
        }
        self.out.push(b'}');
    }

    fn metadata(&mut self, map: &Map<String, Value>, schema: Option<Schema<'_>>) {
        self.out.push(b'{');
        let mut first = true;
        let order = |name: &str| match schema {
            Some(schema) => schema.field(name).map_or(u32::MAX, |field| field.order.into()),
            None => 0,
        };
        let (own, own_name) = (order("resourceVersion"), "resourceVersion");
        for (name, value, of) in in_order(map, schema) {
            if name == own_name {
                continue;
            }
            if self.version.is_none() && (own, own_name) < (order(name), name) {
                self.resource_version(map, &mut first);
            }
            self.name(name, &mut first);
            self.value(value, of);
        }
        if self.version.is_none() {
            self.resource_version(map, &mut first);
        }
        self.out.push(b'}');
    }

    fn resource_version(&mut self, map: &Map<String, Value>, first: &mut bool) {
        self.name("resourceVersion", first);
        self.version = Some(self.out.len() + 1);
        write_string(map.get("resourceVersion").and_then(Value::as_str).unwrap_or(""), self.out);
    }

    fn name(&mut self, name: &str, first: &mut bool) {
        if !std::mem::take(first) {
            self.out.push(b',');
        }
        write_string(name, self.out);
        self.out.push(b':');
    }
}

/// The entries of an object in the order they are written, each with its type.
fn in_order<'v, 's>(
    map: &'v Map<String, Value>,
    schema: Option<Schema<'s>>,
) -> impl Iterator<Item = (&'v str, &'v Value, Option<Schema<'s>>)> {
    let fields: &[Field] = match schema.map(Schema::shape) {
        Some(Shape::Object(fields)) => fields,
        _ => &[],
    };
    let mut entries: Vec<(u32, &str, &Value, Option<Schema<'s>>)> = Vec::with_capacity(map.len());
    for (name, value) in map {
        let found = fields.binary_search_by(|field| (*field.name).cmp(name)).ok().map(|at| &fields[at]);
        match (found, schema) {
            (Some(field), Some(schema)) => {
                entries.push((field.order.into(), name, value, Some(schema.at(field.schema))));
            }
            _ => entries.push((u32::MAX, name, value, schema.and_then(|schema| schema.child(name)))),
        }
    }
    if !fields.is_empty() {
        entries.sort_by_key(|entry| entry.0);
    }
    entries.into_iter().map(|(_, name, value, of)| (name, value, of))
}

/// Writes a string as Go's encoder does, which also escapes `<`, `>`, `&` and the two line separators of JavaScript.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let separator = byte == 0xe2 && matches!(bytes.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9]));
        if byte >= 0x20 && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&') && !separator {
            continue;
        }
        if at < plain {
            continue;
        }
        out.extend_from_slice(&bytes[plain..at]);
        plain = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0xe2 => {
                out.extend_from_slice(b"\\u202");
                out.push(HEX[usize::from(bytes[at + 2] & 15)]);
                plain = at + 3;
            }
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}

/// Writes a number as Go's encoder does: floats without a fraction look like integers, large and small ones get an exponent.
fn write_number(number: &Number, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to a Vec cannot fail.
    let _ = match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(number), _, _) => write!(out, "{number}"),
        (_, Some(number), _) => write!(out, "{number}"),
        (_, _, Some(number)) if number != 0.0 && !(1e-6..1e21).contains(&number.abs()) => {
            let text = format!("{number:e}");
            match text.split_once('e') {
                Some((digits, exponent)) if !exponent.starts_with('-') => write!(out, "{digits}e+{exponent}"),
                _ => write!(out, "{text}"),
            }
        }
        (_, _, Some(number)) => write!(out, "{number}"),
        _ => write!(out, "{number}"),
    };
}
