//! Values to protobuf.
use serde_json::{Map, Value};

use super::super::text::{Moment, from_base64};
use super::super::{Field, MAX_DEPTH, Opaque, Schema, Shape, Text};
use super::wire::{put_bytes, put_double, put_integer, put_message};

/// Writes an object as a message, without an envelope. Values that do not fit their type are left out: a decoded object
/// has none.
pub fn write(value: &Value, schema: Schema<'_>, out: &mut Vec<u8>) {
    message(value, schema, MAX_DEPTH, out);
}

/// The content of the message for a value whose type is a message.
fn message(value: &Value, schema: Schema<'_>, depth: usize, out: &mut Vec<u8>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match (schema.shape(), value) {
        (Shape::Object(fields), Value::Object(map)) => object(map, fields, schema, depth, out),
        (Shape::List { items, .. }, Value::Array(list)) => {
            let of = schema.at(*items);
            list.iter().for_each(|item| single(1, item, of, depth, out));
        }
        (Shape::String(Text::Quantity), Value::String(text)) => put_bytes(1, text.as_bytes(), out),
        (Shape::String(text @ (Text::Time | Text::MicroTime)), Value::String(string)) => {
            let micros = *text == Text::MicroTime;
            if let Ok(moment) = Moment::parse(string, micros) {
                put_integer(1, moment.seconds, out);
                put_integer(2, if micros { i64::from(moment.nanos) } else { 0 }, out);
            }
        }
        (Shape::IntOrString, Value::String(text)) => {
            put_integer(1, 1, out);
            put_integer(2, 0, out);
            put_bytes(3, text.as_bytes(), out);
        }
        (Shape::IntOrString, other) => {
            put_integer(1, 0, out);
            put_integer(2, other.as_i64().unwrap_or(0), out);
            put_bytes(3, b"", out);
        }
        (Shape::Any, other) => opaque(other, schema, depth, out),
        _ => {}
    }
}

fn opaque(value: &Value, schema: Schema<'_>, depth: usize, out: &mut Vec<u8>) {
    match (schema.node().opaque, value) {
        (Opaque::Plain | Opaque::Raw | Opaque::Json | Opaque::Fields, value) => {
            if !value.is_null() {
                put_bytes(1, value.to_string().as_bytes(), out);
            }
        }
        (Opaque::SchemaOrBool(_), Value::Bool(allows)) => put_integer(1, (*allows).into(), out),
        (Opaque::SchemaOrBool(id), value) => {
            put_integer(1, 1, out);
            put_message(2, out, |out| message(value, schema.at(id), depth, out));
        }
        (Opaque::SchemaOrList(id), Value::Array(list)) => {
            list.iter().for_each(|item| single(2, item, schema.at(id), depth, out));
        }
        (Opaque::SchemaOrStrings(_), Value::Array(list)) => {
            list.iter().filter_map(Value::as_str).for_each(|text| put_bytes(2, text.as_bytes(), out));
        }
        (Opaque::SchemaOrList(id) | Opaque::SchemaOrStrings(id), value) => {
            put_message(1, out, |out| message(value, schema.at(id), depth, out));
        }
    }
}

fn object(map: &Map<String, Value>, fields: &[Field], schema: Schema<'_>, depth: usize, out: &mut Vec<u8>) {
    let mut present: Vec<(&Field, &Value)> = map
        .iter()
        .filter(|(_, value)| !value.is_null())
        .filter_map(|(name, value)| {
            let at = fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
            Some((&fields[at], value)).filter(|(field, _)| field.proto > 0)
        })
        .collect();
    let path = |field: &Field, at: usize| field.inline.get(at).copied().unwrap_or(field.proto);
    present.sort_by_key(|(field, _)| {
        // Inlined messages are at most two deep; a shallower field never shares the number of a message.
        [path(field, 0), path(field, 1), field.proto]
    });
    inlined(&present, 0, schema, depth, out);
}

/// Writes fields that share their first `level` messages, each of those once.
fn inlined(present: &[(&Field, &Value)], level: usize, schema: Schema<'_>, depth: usize, out: &mut Vec<u8>) {
    for group in present.chunk_by(|(a, _), (b, _)| match (a.inline.get(level), b.inline.get(level)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }) {
        match group {
            [(field, value)] if field.inline.len() <= level => {
                any(field.proto, value, schema.at(field.schema), depth, out);
            }
            [(field, _), ..] => {
                let number = field.inline.get(level).copied().unwrap_or(0);
                put_message(number, out, |out| inlined(group, level + 1, schema, depth, out));
            }
            [] => {}
        }
    }
}

/// A field of any type: lists and maps repeat it.
fn any(number: u32, value: &Value, schema: Schema<'_>, depth: usize, out: &mut Vec<u8>) {
    match (schema.shape(), value) {
        (Shape::List { items, .. }, Value::Array(list)) if !schema.node().wrapped => {
            let of = schema.at(*items);
            list.iter().for_each(|item| single(number, item, of, depth, out));
        }
        (Shape::Map(values), Value::Object(map)) => {
            let of = schema.at(*values);
            for (key, value) in map {
                put_message(number, out, |out| {
                    put_bytes(1, key.as_bytes(), out);
                    if !(value.is_null() && matches!(of.shape(), Shape::String(Text::Bytes))) {
                        single(2, value, of, depth, out);
                    }
                });
            }
        }
        _ => single(number, value, schema, depth, out),
    }
}

/// One value: a scalar or a message.
fn single(number: u32, value: &Value, schema: Schema<'_>, depth: usize, out: &mut Vec<u8>) {
    match (schema.shape(), value) {
        (Shape::String(Text::Plain), Value::String(text)) => put_bytes(number, text.as_bytes(), out),
        (Shape::String(Text::Bytes), Value::String(text)) => {
            if let Ok(bytes) = from_base64(text) {
                put_bytes(number, &bytes, out);
            }
        }
        (Shape::Integer { .. }, value) => put_integer(number, value.as_i64().unwrap_or(0), out),
        (Shape::Number, value) => put_double(number, value.as_f64().unwrap_or(0.0), out),
        (Shape::Boolean, value) => put_integer(number, value.as_bool().unwrap_or(false).into(), out),
        _ => put_message(number, out, |out| message(value, schema, depth, out)),
    }
}
