//! Protobuf to values.
use serde_json::{Map, Number, Value};

use super::super::text::{Moment, to_base64};
use super::super::{DecodeError, Field, MAX_DEPTH, Opaque, Schema, Shape, Text};
use super::ProtobufError;
use super::wire::{Reader, Wire};

/// Reads a message without an envelope. What Kubernetes' type does not know is skipped.
pub(super) fn message(bytes: &[u8], schema: Schema<'_>) -> Result<Value, ProtobufError> {
    of_message(bytes, schema, MAX_DEPTH)
}

/// The value of a type that is a message.
fn of_message(bytes: &[u8], schema: Schema<'_>, depth: usize) -> Result<Value, ProtobufError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError::Depth)?;
    match schema.shape() {
        Shape::Object(fields) => {
            let mut map = Map::new();
            object(bytes, fields, &mut Vec::new(), schema, &mut map, depth)?;
            Ok(Value::Object(map))
        }
        Shape::List { items, .. } => {
            let mut list = Vec::new();
            let mut reader = Reader::new(bytes);
            while let Some((number, wire)) = reader.field()? {
                if number == 1 {
                    list.push(single(wire, schema.at(*items), depth)?);
                }
            }
            Ok(Value::Array(list))
        }
        Shape::String(Text::Quantity) => {
            let mut text = "0";
            let mut reader = Reader::new(bytes);
            while let Some((number, wire)) = reader.field()? {
                if number == 1 {
                    text = wire.text()?;
                }
            }
            Ok(Value::from(text))
        }
        Shape::String(Text::Time) => time(bytes, false),
        Shape::String(Text::MicroTime) => time(bytes, true),
        Shape::IntOrString => int_or_string(bytes),
        Shape::Any => opaque(bytes, schema, depth),
        _ => Err(ProtobufError::Malformed("wrong wireType")),
    }
}

/// Reads the fields of a message and of those that JSON writes in line; `inline` has the numbers of the messages around.
fn object(
    bytes: &[u8],
    fields: &[Field],
    inline: &mut Vec<u32>,
    schema: Schema<'_>,
    map: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        if let Some(field) = fields.iter().find(|field| field.proto == number && *field.inline == **inline) {
            repeated(wire, field, schema.at(field.schema), map, depth)?;
            continue;
        }
        inline.push(number);
        if fields.iter().any(|field| field.inline.starts_with(inline)) {
            object(wire.bytes()?, fields, inline, schema, map, depth)?;
        }
        inline.pop();
    }
    Ok(())
}

/// Adds one occurrence of a field to what is there of it.
fn repeated(
    wire: Wire<'_>,
    field: &Field,
    schema: Schema<'_>,
    map: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    match schema.shape() {
        Shape::List { items, .. } if !schema.node().wrapped => {
            let of = schema.at(*items);
            let entry = map.entry(&*field.name).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(list) = entry else { return Ok(()) };
            match (of.shape(), wire) {
                // Numbers may come packed.
                (Shape::Integer { .. } | Shape::Boolean, Wire::Bytes(packed)) => {
                    let mut reader = Reader::new(packed);
                    while !reader.is_empty() {
                        list.push(single(Wire::Varint(reader.varint()?), of, depth)?);
                    }
                }
                _ => list.push(single(wire, of, depth)?),
            }
        }
        Shape::Map(values) => {
            let of = schema.at(*values);
            let (mut key, mut value) = ("", None);
            let mut reader = Reader::new(wire.bytes()?);
            while let Some((number, wire)) = reader.field()? {
                match number {
                    1 => key = wire.text()?,
                    2 => value = Some(single(wire, of, depth)?),
                    _ => {}
                }
            }
            let entry = map.entry(&*field.name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = entry {
                // Go gives an empty value, never nil bytes.
                let empty = || if matches!(of.shape(), Shape::String(Text::Bytes)) { "".into() } else { Value::Null };
                map.insert(key.to_owned(), value.unwrap_or_else(empty));
            }
        }
        _ => {
            let value = single(wire, schema, depth)?;
            map.insert(field.name.to_string(), value);
        }
    }
    Ok(())
}

fn single(wire: Wire<'_>, schema: Schema<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match schema.shape() {
        Shape::String(Text::Plain) => Value::from(wire.text()?),
        Shape::String(Text::Bytes) => Value::from(to_base64(wire.bytes()?)),
        Shape::Integer { bits: 32 } => Value::from(wire.integer()? as i32),
        Shape::Integer { .. } => Value::from(wire.integer()?),
        Shape::Boolean => Value::from(wire.integer()? != 0),
        Shape::Number => {
            let number = match wire {
                Wire::Fixed64(bits) => f64::from_bits(bits),
                Wire::Fixed32(bits) => f32::from_bits(bits).into(),
                _ => return Err(ProtobufError::Malformed("wrong wireType")),
            };
            Number::from_f64(number).map_or(Value::Null, Value::Number)
        }
        _ => of_message(wire.bytes()?, schema, depth)?,
    })
}

fn time(bytes: &[u8], micros: bool) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let mut moment = Moment { seconds: 0, nanos: 0 };
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => moment.seconds = wire.integer()?,
            2 if micros => moment.nanos = u32::try_from(wire.integer()?).unwrap_or(0).min(999_999_999),
            _ => {}
        }
    }
    // Years that RFC 3339 cannot write.
    if !(Moment::ZERO.seconds..=253_402_300_799).contains(&moment.seconds) {
        return Err(ProtobufError::Malformed("time out of range"));
    }
    Ok(if moment == Moment::ZERO { Value::Null } else { Value::from(moment.format(micros)) })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_string, mut number_value, mut text) = (false, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => is_string = wire.integer()? == 1,
            2 => number_value = wire.integer()? as i32,
            3 => text = wire.text()?,
            _ => {}
        }
    }
    Ok(if is_string { Value::from(text) } else { Value::from(number_value) })
}

fn opaque(bytes: &[u8], schema: Schema<'_>, depth: usize) -> Result<Value, ProtobufError> {
    let id = match schema.node().opaque {
        Opaque::Plain | Opaque::Raw | Opaque::Json | Opaque::Fields => return raw(bytes),
        Opaque::SchemaOrBool(id) | Opaque::SchemaOrList(id) | Opaque::SchemaOrStrings(id) => id,
    };
    let or_bool = matches!(schema.node().opaque, Opaque::SchemaOrBool(_));
    let or_strings = matches!(schema.node().opaque, Opaque::SchemaOrStrings(_));
    let mut value = if or_bool { Value::Bool(false) } else { Value::Null };
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (number, or_bool) {
            (1, true) if !value.is_object() => value = Value::Bool(wire.integer()? != 0),
            (2, true) | (1, false) => value = of_message(wire.bytes()?, schema.at(id), depth)?,
            (2, false) => {
                let item = if or_strings {
                    Value::from(wire.text()?)
                } else {
                    of_message(wire.bytes()?, schema.at(id), depth)?
                };
                match &mut value {
                    Value::Array(list) => list.push(item),
                    other => *other = Value::Array(vec![item]),
                }
            }
            _ => {}
        }
    }
    Ok(value)
}

fn raw(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut value = Value::Null;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        if number == 1 {
            value = serde_json::from_slice(wire.bytes()?)
                .map_err(|_| ProtobufError::Malformed("an object inside is no JSON"))?;
        }
    }
    Ok(value)
}
