//! Reading an object of a built-in kind as Kubernetes' typed decoder does: known fields only, right types, canonical text,
//! and every field that Go always writes.
use serde_json::{Map, Value};

use super::text::{Moment, from_base64};
use super::{Field, ListKind, Opaque, Schema, Shape, Text};
use crate::quantity::Quantity;

/// Values nested deeper than this are refused.
pub const MAX_DEPTH: usize = 300;

/// More unknown fields than this are not named, as in Kubernetes.
const MAX_UNKNOWN: usize = 100;

/// What became of a value.
#[derive(Debug)]
pub struct Decoded {
    /// The value in the form Kubernetes would write it.
    pub value: Value,
    /// The fields that were dropped because the type has none of that name, as strict validation words it:
    /// `unknown field "spec.containers[0].imge"`.
    pub unknown: Vec<String>,
    /// What was said in other words than the value has it in, as far as Kubernetes tells one from the other.
    pub said: Vec<Said>,
}

/// Something that was sent in another form than it is stored in: an empty list or map, which is stored as none, or a
/// quantity such as `1024Mi` in a list that is compared as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Where, as a JSON pointer.
    pub place: String,
    /// What was sent.
    pub value: Value,
    /// Whether it is inside an atomic list: Kubernetes compares those as they were sent.
    pub within: bool,
}

/// Why a value is none of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value of the wrong type.
    #[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
    Type {
        /// What was found: `string`, `object`, `number 1.5`.
        found: String,
        /// Where: `struct field PodSpec.spec.containers`.
        place: String,
        /// What should have been there, in Go's words: `[]v1.Container`.
        wanted: String,
    },
    /// A text that is malformed.
    #[error("{0}")]
    Text(String),
    /// The value is nested too deeply.
    #[error("json: exceeded max depth")]
    Depth,
}

impl DecodeError {
    /// The same in the words of Kubernetes' conversion from unstructured objects, which reads what a strategic merge gives.
    pub fn of_conversion(&self) -> String {
        let DecodeError::Type { found, wanted, .. } = self else { return self.to_string() };
        let (kind, name) = match found.split(' ').next().unwrap_or_default() {
            "object" => ("map", "map[string]interface {}"),
            "array" => ("slice", "[]interface {}"),
            "bool" => ("bool", "bool"),
            "string" => ("string", "string"),
            _ if found.trim_start_matches("number").contains(['.', 'e', 'E']) => ("float64", "float64"),
            _ => ("int64", "int64"),
        };
        match wanted.as_str() {
            wanted if wanted.starts_with("map[") => format!("cannot restore map from {kind}"),
            wanted if wanted.starts_with("[]") => format!("cannot restore slice from {kind}"),
            "string" if kind != "int64" => "unrecognized type: string".into(),
            "bool" => "unrecognized type: bool".into(),
            "string" | "int32" | "int64" if name.ends_with("64") => format!("cannot convert {name} to {wanted}"),
            "int32" | "int64" => format!("unrecognized type: {wanted}"),
            _ => format!("cannot restore struct from: {kind}"),
        }
    }
}

/// Reads a value of a built-in type: fields that the type does not have are dropped and named, nulls become zero values,
/// quantities, times and base64 are brought into canonical form, empty values are left out or written just as Go does.
///
/// Decoding a decoded value changes nothing.
pub fn decode(value: Value, schema: Schema<'_>) -> Result<Decoded, DecodeError> {
    let mut value = value;
    let mut walk = Walk {
        strict: Vec::new(),
        fields: Vec::new(),
        owner: None,
        unknown: Vec::new(),
        said: Vec::new(),
        atomic: 0,
        silent: 0,
        saved: None,
    };
    if value.is_null() {
        value = zero(schema);
    } else {
        walk.value(&mut value, schema, MAX_DEPTH)?;
    }
    match walk.saved {
        Some(error) => Err(error),
        None => Ok(Decoded { value, unknown: walk.unknown, said: walk.said }),
    }
}

/// What Go writes for a value that was never set.
pub fn zero(schema: Schema<'_>) -> Value {
    match schema.shape() {
        Shape::Any if matches!(schema.node().opaque, Opaque::SchemaOrBool(_)) => Value::Bool(false),
        Shape::Any | Shape::Map(_) | Shape::List { .. } => Value::Null,
        Shape::Object(fields) => {
            let mut map = Map::new();
            fill(&mut map, fields, schema);
            Value::Object(map)
        }
        Shape::String(Text::Quantity) => Value::from("0"),
        Shape::String(Text::Duration) => Value::from("0s"),
        Shape::String(Text::Time | Text::MicroTime | Text::Bytes) => Value::Null,
        Shape::String(Text::Plain) => Value::from(""),
        Shape::Integer { .. } | Shape::Number | Shape::IntOrString => Value::from(0),
        Shape::Boolean => Value::Bool(false),
    }
}

/// Adds the fields that are written even if they were never set. A type cannot contain itself in such a field (Go would
/// not compile it), so this ends.
fn fill(map: &mut Map<String, Value>, fields: &[Field], schema: Schema<'_>) {
    for field in fields.iter().filter(|field| always(field, schema)) {
        if !map.contains_key(&*field.name) {
            let value = if field.pointer { Value::Null } else { zero(schema.at(field.schema)) };
            map.insert(field.name.to_string(), value);
        }
    }
}

/// Whether the field is written when it was never set.
fn always(field: &Field, schema: Schema<'_>) -> bool {
    if field.omit_zero || (field.omit_empty && field.pointer) {
        return false;
    }
    !field.omit_empty || is_struct(schema.at(field.schema))
}

/// Whether Go's type is a struct, which `omitempty` never leaves out.
fn is_struct(schema: Schema<'_>) -> bool {
    match schema.shape() {
        Shape::Object(_) | Shape::IntOrString => true,
        Shape::Any => schema.node().opaque != Opaque::Plain,
        Shape::String(text) => !matches!(text, Text::Plain | Text::Bytes),
        _ => false,
    }
}

/// Whether `omitempty` leaves the value out; structs were sorted out before.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// One part of the way to a value.
enum Step<'a> {
    Field(&'a str),
    Key(String),
    Index(usize),
}

struct Walk<'a> {
    /// The way to the current value.
    strict: Vec<Step<'a>>,
    /// The fields on that way, without keys and indexes, as Go's type errors show them.
    fields: Vec<&'a str>,
    /// The innermost type that has fields.
    owner: Option<Schema<'a>>,
    unknown: Vec<String>,
    said: Vec<Said>,
    /// How many atomic lists the current value is in.
    atomic: usize,
    /// Inside a value with its own reader unknown fields are dropped without a word.
    silent: usize,
    /// The first value of a wrong type. Go reads on, and a malformed text further on is told instead.
    saved: Option<DecodeError>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, value: &mut Value, schema: Schema<'a>, depth: usize) -> Result<(), DecodeError> {
        let Some(depth) = depth.checked_sub(1) else { return Err(DecodeError::Depth) };
        match (schema.shape(), value) {
            (Shape::Any, value) => self.opaque(value, schema, depth)?,
            (Shape::Object(fields), Value::Object(map)) => self.object(map, fields, schema, depth)?,
            (Shape::Map(values), Value::Object(map)) => self.map(map, schema.at(*values), depth)?,
            (Shape::List { items, list: kind }, Value::Array(list)) => {
                let atomic = usize::from(*kind == ListKind::Atomic);
                self.atomic += atomic;
                self.list(list, schema.at(*items), depth)?;
                self.atomic -= atomic;
            }
            (Shape::String(Text::Plain), Value::String(_)) => {}
            (Shape::String(Text::Bytes), value @ Value::String(_)) => self.text(value, Text::Bytes)?,
            (Shape::String(text), value) if !matches!(text, Text::Plain | Text::Bytes) => self.text(value, *text)?,
            (Shape::Integer { bits }, value @ Value::Number(_)) => {
                let wrong = self.integer(value, *bits).err();
                self.save(wrong);
            }
            (Shape::Number, Value::Number(_)) | (Shape::Boolean, Value::Bool(_)) => {}
            (Shape::IntOrString, Value::String(_)) => {}
            (Shape::IntOrString, value) => self.integer(value, 32)?,
            (_, value) => {
                let wrong = self.wrong(found(value).to_owned(), go_type(schema));
                self.save(Some(wrong));
            }
        }
        Ok(())
    }

    fn save(&mut self, error: Option<DecodeError>) {
        if self.saved.is_none() {
            self.saved = error;
        }
    }

    fn object(
        &mut self,
        map: &mut Map<String, Value>,
        fields: &'a [Field],
        schema: Schema<'a>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let outer = self.owner.replace(schema);
        let mut failed = None;
        map.retain(|name, value| {
            if failed.is_some() {
                return true;
            }
            let Ok(at) = fields.binary_search_by(|field| (*field.name).cmp(name)) else {
                self.report(name);
                return false;
            };
            self.field(value, &fields[at], schema, depth).unwrap_or_else(|error| {
                failed = Some(error);
                true
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        self.owner = outer;
        fill(map, fields, schema);
        Ok(())
    }

    /// Reads a field and says whether it is written.
    fn field(
        &mut self,
        value: &mut Value,
        field: &'a Field,
        schema: Schema<'a>,
        depth: usize,
    ) -> Result<bool, DecodeError> {
        let of = schema.at(field.schema);
        if value.is_null() {
            // Left out here, filled in afterwards if Go writes it anyway.
            return Ok(false);
        }
        let length = self.fields.len();
        self.strict.push(Step::Field(&field.name));
        self.fields.extend(field.embedded.as_deref());
        self.fields.push(&field.name);
        self.value(value, of, depth)?;
        // Kubernetes stores protobuf, which does not tell an empty list from none.
        let forgotten = !field.pointer && !is_struct(of) && (value.is_array() || value.is_object()) && is_empty(value);
        if forgotten {
            let value = value.take();
            self.say(value);
        }
        self.strict.pop();
        self.fields.truncate(length);
        if field.pointer {
            // Only a time that is zero becomes null.
            return Ok(!value.is_null());
        }
        if is_struct(of) {
            // A time that is zero reads as null: the same as none.
            return Ok(!(value.is_null() && field.omit_zero));
        }
        Ok(!(field.omit_empty && is_empty(value)))
    }

    fn map(&mut self, map: &mut Map<String, Value>, of: Schema<'a>, depth: usize) -> Result<(), DecodeError> {
        for (key, value) in map.iter_mut() {
            if value.is_null() {
                // Bytes in a map are empty rather than none once they are stored.
                *value = if matches!(of.shape(), Shape::String(Text::Bytes)) { "".into() } else { zero(of) };
                continue;
            }
            // Most maps hold strings, which need no path.
            if matches!((of.shape(), &*value), (Shape::String(Text::Plain), Value::String(_))) {
                continue;
            }
            self.strict.push(Step::Key(key.clone()));
            self.value(value, of, depth)?;
            self.strict.pop();
        }
        Ok(())
    }

    fn list(&mut self, list: &mut [Value], of: Schema<'a>, depth: usize) -> Result<(), DecodeError> {
        for (index, value) in list.iter_mut().enumerate() {
            if value.is_null() {
                *value = zero(of);
                continue;
            }
            self.strict.push(Step::Index(index));
            self.value(value, of, depth)?;
            self.strict.pop();
        }
        Ok(())
    }

    fn opaque(&mut self, value: &mut Value, schema: Schema<'a>, depth: usize) -> Result<(), DecodeError> {
        let (id, other) = match schema.node().opaque {
            Opaque::Plain | Opaque::Raw | Opaque::Json | Opaque::Fields => return Ok(()),
            Opaque::SchemaOrBool(id) => (id, "boolean or JSON schema expected"),
            Opaque::SchemaOrList(id) => (id, "json: array or JSON schema expected"),
            Opaque::SchemaOrStrings(id) => (id, "json: list of strings or JSON schema expected"),
        };
        let of = schema.at(id);
        self.silent += 1;
        let fields = std::mem::take(&mut self.fields);
        match (value, schema.node().opaque) {
            (value @ Value::Object(_), _) => self.value(value, of, depth)?,
            (Value::Bool(_), Opaque::SchemaOrBool(_)) => {}
            (Value::Array(list), Opaque::SchemaOrList(_)) => self.list(list, of, depth)?,
            (Value::Array(list), Opaque::SchemaOrStrings(_)) if list.iter().all(Value::is_string) => {}
            _ => return Err(DecodeError::Text(other.to_owned())),
        }
        self.fields = fields;
        self.silent -= 1;
        Ok(())
    }

    fn integer(&self, value: &Value, bits: u8) -> Result<(), DecodeError> {
        let wanted = || format!("int{bits}");
        let Value::Number(number) = value else { return Err(self.wrong(found(value).to_owned(), wanted())) };
        let fits = number.as_i64().is_some_and(|number| bits == 64 || i32::try_from(number).is_ok());
        if fits { Ok(()) } else { Err(self.wrong(format!("number {number}"), wanted())) }
    }

    /// Brings a text into its canonical form.
    fn text(&mut self, value: &mut Value, text: Text) -> Result<(), DecodeError> {
        if text == Text::Quantity {
            let quantity = Quantity::from_json(value).map_err(|error| DecodeError::Text(error.to_string()))?;
            let canonical = quantity.to_string();
            if *value != canonical {
                let other = self.atomic > 0 && is_other(value, &canonical);
                let said = std::mem::replace(value, Value::String(canonical));
                if other {
                    self.say(said);
                }
            }
            return Ok(());
        }
        let Value::String(string) = value else {
            return Err(self.wrong(found(value).to_owned(), "string".into()));
        };
        match text {
            Text::Plain | Text::Quantity | Text::Duration => {}
            Text::Time | Text::MicroTime => {
                let micros = text == Text::MicroTime;
                let moment = Moment::parse(string, micros).map_err(DecodeError::Text)?;
                if moment == Moment::ZERO {
                    *value = Value::Null;
                } else {
                    *string = moment.format(micros);
                }
            }
            Text::Bytes => {
                let illegal = |at| DecodeError::Text(format!("illegal base64 data at input byte {at}"));
                from_base64(string).map_err(illegal)?;
                string.retain(|c| c != '\n' && c != '\r');
            }
        }
        Ok(())
    }

    fn wrong(&self, found: String, wanted: String) -> DecodeError {
        let place = match self.owner {
            Some(owner) if !self.fields.is_empty() => {
                let name = owner.name().and_then(|name| name.rsplit('.').next()).unwrap_or("");
                format!("struct field {name}.{}", self.fields.join("."))
            }
            _ => "value".to_owned(),
        };
        DecodeError::Type { found, place, wanted }
    }

    fn say(&mut self, value: Value) {
        self.said.push(Said { place: self.pointer(), value, within: self.atomic > 0 });
    }

    fn pointer(&self) -> String {
        let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
        let step = |step: &Step<'_>| match step {
            Step::Index(index) => format!("/{index}"),
            Step::Field(name) => format!("/{}", escape(name)),
            Step::Key(key) => format!("/{}", escape(key)),
        };
        self.strict.iter().map(step).collect()
    }

    fn report(&mut self, name: &str) {
        if self.silent > 0 || self.unknown.len() >= MAX_UNKNOWN {
            return;
        }
        let mut path = String::new();
        for step in &self.strict {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Field(name) => push(&mut path, name),
                Step::Key(key) => push(&mut path, key),
            }
        }
        push(&mut path, name);
        self.unknown.push(format!("unknown field {}", Value::String(path)));
    }
}

/// Whether Go's structure of a quantity differs from that of its canonical form. It has the text of most of those; without
/// it, whole binary numbers are just numbers.
fn is_other(said: &Value, canonical: &str) -> bool {
    let said = match said {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let number = |text: &str| text.strip_suffix(['K', 'M', 'G', 'T', 'P', 'E'])?.parse::<u64>().ok();
    let binary = |text: &str| text.strip_suffix('i').and_then(number);
    let textless = binary(&said).is_some() && binary(canonical).is_some_and(|number| number % 8 == 0);
    said != canonical && !textless
}

fn push(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// What Go calls a value of JSON.
fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What Go calls the type: `[]v1.Container`.
fn go_type(schema: Schema<'_>) -> String {
    if let Some(name) = schema.name() {
        let at = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
        return name[at..].to_owned();
    }
    match schema.shape() {
        Shape::Any => match schema.node().opaque {
            Opaque::Plain => "interface {}",
            Opaque::Raw => "runtime.RawExtension",
            Opaque::Json => "v1.JSON",
            Opaque::Fields => "v1.FieldsV1",
            Opaque::SchemaOrBool(_) => "v1.JSONSchemaPropsOrBool",
            Opaque::SchemaOrList(_) => "v1.JSONSchemaPropsOrArray",
            Opaque::SchemaOrStrings(_) => "v1.JSONSchemaPropsOrStringArray",
        }
        .into(),
        Shape::Object(_) => "struct".into(),
        Shape::Map(values) => format!("map[string]{}", go_type(schema.at(*values))),
        Shape::List { items, .. } => format!("[]{}", go_type(schema.at(*items))),
        Shape::String(Text::Bytes) => "[]uint8".into(),
        Shape::String(Text::Quantity) => "resource.Quantity".into(),
        Shape::String(Text::Time) => "v1.Time".into(),
        Shape::String(Text::MicroTime) => "v1.MicroTime".into(),
        Shape::String(Text::Duration) => "v1.Duration".into(),
        Shape::String(Text::Plain) => "string".into(),
        Shape::Integer { bits } => format!("int{bits}"),
        Shape::Number => "float64".into(),
        Shape::Boolean => "bool".into(),
        Shape::IntOrString => "intstr.IntOrString".into(),
    }
}
