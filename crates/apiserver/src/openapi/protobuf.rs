//! The document of OpenAPI v2 in protobuf, as `openapi_v2.Document` of gnostic defines it. Numbers of fields are from there.

use std::io::{self, Write};

use serde_json::Value;

/// A message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, of: Message) {
        self.bytes(field, &of.0);
    }

    fn text(&mut self, field: u32, of: &Value) {
        if let Some(text) = of.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u32, of: &Value) {
        for text in of.as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u32, of: &Value) {
        if of == &Value::Bool(true) {
            self.varint(u64::from(field) << 3);
            self.varint(1);
        }
    }

    fn count(&mut self, field: u32, of: &Value) {
        if let Some(count) = of.as_i64().filter(|count| *count != 0) {
            self.varint(u64::from(field) << 3);
            // Negative numbers are written as what they are in two's complement.
            self.varint(count as u64);
        }
    }

    fn number(&mut self, field: u32, of: &Value) {
        if let Some(number) = of.as_f64().filter(|number| *number != 0.0) {
            self.varint(u64::from(field) << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Any value, as YAML. JSON is YAML.
    fn any(&mut self, field: u32, of: &Value) {
        let mut any = Message::default();
        any.bytes(2, of.to_string().as_bytes());
        self.message(field, any);
    }

    /// What begins with `x-`.
    fn extensions(&mut self, field: u32, of: &Value) {
        let all = of.as_object().into_iter().flatten();
        for (name, value) in all.filter(|(name, _)| name.starts_with("x-")) {
            let mut named = Message::default();
            named.bytes(1, name.as_bytes());
            named.any(2, value);
            self.message(field, named);
        }
    }

    fn named(&mut self, field: u32, name: &str, value: Message) {
        let mut named = Message::default();
        named.bytes(1, name.as_bytes());
        named.message(2, value);
        self.message(field, named);
    }
}

/// One message in another.
fn within(field: u32, of: Message) -> Message {
    let mut outer = Message::default();
    outer.message(field, of);
    outer
}

/// Writes the document. Paths and types, each a message in a message, are written as parts of the same one: protobuf
/// merges them, so none of them need to be known before the first is written.
pub fn write(
    rest: &Value,
    paths: impl Iterator<Item = (String, Value)>,
    definitions: impl Iterator<Item = (String, Value)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut head = Message::default();
    head.text(1, &rest["swagger"]);
    let mut info = Message::default();
    info.text(1, &rest["info"]["title"]);
    info.text(2, &rest["info"]["version"]);
    head.message(2, info);
    out.write_all(&head.0)?;
    for (path, item) in paths {
        let mut part = Message::default();
        part.named(2, &path, path_item(&item));
        out.write_all(&within(8, part).0)?;
    }
    for (name, of) in definitions {
        let mut part = Message::default();
        part.named(1, &name, schema(&of));
        out.write_all(&within(9, part).0)?;
    }
    let mut tail = Message::default();
    for requirement in rest["security"].as_array().into_iter().flatten() {
        for (name, _) in requirement.as_object().into_iter().flatten() {
            let mut part = Message::default();
            part.named(1, name, Message::default());
            tail.message(12, part);
        }
    }
    for (name, of) in rest["securityDefinitions"].as_object().into_iter().flatten() {
        let mut key = Message::default();
        for (field, at) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
            key.text(field, &of[at]);
        }
        let mut part = Message::default();
        part.named(1, name, within(2, key));
        tail.message(13, part);
    }
    out.write_all(&tail.0)
}

fn path_item(of: &Value) -> Message {
    let mut item = Message::default();
    let methods = [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")];
    for (field, method) in methods {
        if let Some(of) = of.get(method) {
            item.message(field, operation(of));
        }
    }
    parameters(&mut item, 9, &of["parameters"]);
    item
}

fn operation(of: &Value) -> Message {
    let mut operation = Message::default();
    operation.texts(1, &of["tags"]);
    operation.text(3, &of["description"]);
    operation.text(5, &of["operationId"]);
    operation.texts(6, &of["produces"]);
    operation.texts(7, &of["consumes"]);
    parameters(&mut operation, 8, &of["parameters"]);
    let mut responses = Message::default();
    for (code, of) in of["responses"].as_object().into_iter().flatten() {
        let mut response = Message::default();
        response.text(1, &of["description"]);
        if let Some(of) = of.get("schema") {
            response.message(2, within(1, schema(of)));
        }
        responses.named(1, code, within(1, response));
    }
    operation.message(9, responses);
    operation.texts(10, &of["schemes"]);
    operation.extensions(13, of);
    operation
}

fn parameters(into: &mut Message, field: u32, all: &Value) {
    for of in all.as_array().into_iter().flatten() {
        let parameter = match of["in"].as_str() {
            Some("body") => {
                let mut body = Message::default();
                body.text(1, &of["description"]);
                body.text(2, &of["name"]);
                body.text(3, &of["in"]);
                body.flag(4, &of["required"]);
                body.message(5, schema(&of["schema"]));
                within(1, body)
            }
            place => {
                // Both kinds have the same fields; a query's may be empty, which moves the numbers by one.
                let (kind, moved) = if place == Some("path") { (4, 0) } else { (3, 1) };
                let mut plain = Message::default();
                plain.flag(1, &of["required"]);
                plain.text(2, &of["in"]);
                plain.text(3, &of["description"]);
                plain.text(4, &of["name"]);
                plain.text(5 + moved, &of["type"]);
                plain.text(6 + moved, &of["format"]);
                plain.flag(19 + moved, &of["uniqueItems"]);
                within(2, within(kind, plain))
            }
        };
        into.message(field, within(1, parameter));
    }
}

fn schema(of: &Value) -> Message {
    let mut schema = Message::default();
    for (field, at) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        schema.text(field, &of[at]);
    }
    for (field, at) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        schema.number(field, &of[at]);
    }
    for (field, at) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        schema.flag(field, &of[at]);
    }
    for (field, at) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        schema.count(field, &of[at]);
    }
    schema.texts(19, &of["required"]);
    for value in of["enum"].as_array().into_iter().flatten() {
        schema.any(20, value);
    }
    match &of["additionalProperties"] {
        Value::Null => {}
        Value::Bool(any) => {
            let mut item = Message::default();
            item.varint(2 << 3);
            item.varint(u64::from(*any));
            schema.message(21, item);
        }
        values => schema.message(21, within(1, self::schema(values))),
    }
    if let Some(kind) = of["type"].as_str() {
        let mut item = Message::default();
        item.bytes(1, kind.as_bytes());
        schema.message(22, item);
    }
    if let Some(items) = of.get("items") {
        schema.message(23, within(1, self::schema(items)));
    }
    if let Some(all) = of["properties"].as_object() {
        let mut properties = Message::default();
        for (name, of) in all {
            properties.named(1, name, self::schema(of));
        }
        schema.message(25, properties);
    }
    schema.extensions(31, of);
    schema
}
