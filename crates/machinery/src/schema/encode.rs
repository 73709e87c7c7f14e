//! Writing objects as Kubernetes does: compact JSON, fields in the order of Go's types, maps sorted.
use serde_json::{Map, Number, Value};

use super::{Field, Schema, Shape};

/// Writes a value. Fields stand in the order of their type; what the type does not know follows, sorted.
pub fn encode(value: &Value, schema: Schema<'_>, out: &mut Vec<u8>) {
    Writer { out, entries: Vec::new(), version: None }.value(value, Some(schema));
}

/// Writes a whole object and says where the value of its `metadata.resourceVersion` begins, just after the opening quote,
/// so that it can be put in without writing the object again. Without a schema the object is a custom resource: its
/// fields are sorted. An object without resourceVersion is written with an empty one; `None` if it has no metadata.
pub fn encode_object(value: &Value, schema: Option<Schema<'_>>, out: &mut Vec<u8>) -> Option<usize> {
    let mut writer = Writer { out, entries: Vec::new(), version: None };
    match value {
        Value::Object(map) => writer.object(map, schema, Part::Object),
        other => writer.value(other, schema),
    }
    writer.version
}

/// What part of a whole object is written: its metadata gets special care.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Object,
    Metadata,
    Other,
}

/// A field to be written: its place among the others, its name, value and type.
type Entry<'v, 's> = (u32, &'v str, &'v Value, Option<Schema<'s>>);

struct Writer<'o, 'v, 's> {
    out: &'o mut Vec<u8>,
    /// The fields of all objects that are being written, innermost last: one allocation for all.
    entries: Vec<Entry<'v, 's>>,
    version: Option<usize>,
}

impl<'v, 's> Writer<'_, 'v, 's> {
    fn value(&mut self, value: &'v Value, schema: Option<Schema<'s>>) {
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
            Value::Object(map) => self.object(map, schema, Part::Other),
        }
    }

    fn object(&mut self, map: &'v Map<String, Value>, schema: Option<Schema<'s>>, part: Part) {
        self.out.push(b'{');
        let mut first = true;
        let fields: &[Field] = match schema.map(Schema::shape) {
            Some(Shape::Object(fields)) => fields,
            _ => &[],
        };
        if part == Part::Other && fields.is_empty() {
            // A map, or an object nothing is known of: it is sorted already.
            let of = match schema.map(|schema| (schema, schema.shape())) {
                Some((schema, Shape::Map(values))) => Some(schema.at(*values)),
                _ => None,
            };
            for (name, value) in map {
                self.name(name, &mut first);
                self.value(value, of);
            }
            self.out.push(b'}');
            return;
        }
        let start = self.entries.len();
        self.sort(map, fields, schema, part);
        for at in start..self.entries.len() {
            let (_, name, value, of) = self.entries[at];
            self.name(name, &mut first);
            match (part, name, value) {
                (Part::Object, "metadata", Value::Object(metadata)) => self.object(metadata, of, Part::Metadata),
                (Part::Metadata, "resourceVersion", value) => {
                    self.version = Some(self.out.len() + 1);
                    write_string(value.as_str().unwrap_or(""), self.out);
                }
                _ => self.value(value, of),
            }
        }
        self.entries.truncate(start);
        self.out.push(b'}');
    }

    /// Adds the fields of an object in the order they are written.
    fn sort(&mut self, map: &'v Map<String, Value>, fields: &'s [Field], schema: Option<Schema<'s>>, part: Part) {
        const VERSION: &str = "resourceVersion";
        let start = self.entries.len();
        // Both are sorted by name: the search goes on where it ended.
        let mut rest = fields;
        let mut place = |name: &str| match rest.binary_search_by(|field| (*field.name).cmp(name)) {
            Ok(at) => {
                let field = &rest[at];
                rest = &rest[at + 1..];
                (u32::from(field.order), schema.map(|schema| schema.at(field.schema)))
            }
            Err(at) => {
                rest = &rest[at..];
                (u32::MAX, None)
            }
        };
        let mut missing = part == Part::Metadata;
        for (name, value) in map {
            if missing && name.as_str() >= VERSION {
                if name != VERSION {
                    let (order, of) = place(VERSION);
                    self.entries.push((order, VERSION, &Value::Null, of));
                }
                missing = false;
            }
            let (order, of) = place(name);
            self.entries.push((order, name, value, of));
        }
        if missing {
            let (order, of) = place(VERSION);
            self.entries.push((order, VERSION, &Value::Null, of));
        }
        if !fields.is_empty() {
            self.entries[start..].sort_by_key(|entry| entry.0);
        }
    }

    fn name(&mut self, name: &str, first: &mut bool) {
        if !std::mem::take(first) {
            self.out.push(b',');
        }
        write_string(name, self.out);
        self.out.push(b':');
    }
}

/// Which bytes cannot be written as they are: 1 always, 2 if the line separators U+2028 or U+2029 begin here.
const SPECIAL: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = 1;
        byte += 1;
    }
    table[b'"' as usize] = 1;
    table[b'\\' as usize] = 1;
    table[b'<' as usize] = 1;
    table[b'>' as usize] = 1;
    table[b'&' as usize] = 1;
    table[0xe2] = 2;
    table
};

/// Writes a string as Go's encoder does, which also escapes `<`, `>`, `&` and the two line separators of JavaScript.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        match SPECIAL[usize::from(byte)] {
            0 => continue,
            2 if !matches!(bytes.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])) => continue,
            _ => {}
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
