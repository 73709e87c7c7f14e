//! Results as JSON.

use serde_json::{Map as JsonMap, Number, Value as Json};

use crate::budget::Budget;
use crate::error::EvalError;
use crate::time::format_duration;
use crate::value::Value;

/// Deepest result that is converted.
const MAX_DEPTH: usize = 500;

impl Value<'_> {
    /// The value as JSON: timestamps and durations are strings, bytes are base64, an absent
    /// optional is null.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        convert(self, &mut Budget::kubernetes(), 0)
    }
}

fn convert(value: &Value<'_>, budget: &mut Budget, depth: usize) -> Result<Json, EvalError> {
    use base64::Engine;
    if depth > MAX_DEPTH {
        return Err(EvalError::failed("value is nested too deeply"));
    }
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(i) => Json::from(*i),
        Value::Uint(u) => Json::from(*u),
        Value::Double(d) => {
            Json::Number(Number::from_f64(*d).ok_or(EvalError::failed("NaN and infinity have no JSON form"))?)
        }
        Value::String(s) => Json::from(&**s),
        Value::Bytes(b) => Json::from(base64::engine::general_purpose::STANDARD.encode(b)),
        Value::Duration(d) => Json::from(format_duration(*d)),
        Value::Timestamp(t) => Json::from(t.format()),
        Value::List(list) => {
            let items = list.iter().map(|item| convert(&item?, budget, depth + 1));
            Json::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let mut out = JsonMap::new();
            for key in map.keys() {
                let name = match &key {
                    Value::String(s) => s.to_string(),
                    Value::Int(i) => i.to_string(),
                    Value::Uint(u) => u.to_string(),
                    Value::Bool(b) => b.to_string(),
                    _ => continue,
                };
                if let Some(entry) = map.get(&key, budget) {
                    let name = property(map, name);
                    out.insert(name, convert(&entry?, budget, depth + 1)?);
                }
            }
            Json::Object(out)
        }
        Value::Optional(Some(inner)) => convert(inner, budget, depth + 1)?,
        Value::Type(name) => Json::from(*name),
        Value::Quantity(q) => Json::from(q.to_string()),
        Value::Ip(ip) => Json::from(ip.to_string()),
        Value::Cidr(c) => Json::from(format!("{}/{}", c.address, c.prefix)),
        other => return Err(EvalError::failed(format!("{} has no JSON form", other.type_name()))),
    })
}

/// The name in JSON of an object's escaped field.
fn property(map: &crate::value::Map<'_>, ident: String) -> String {
    match map {
        crate::value::Map::Json(_, decl) => decl.field(&ident).map_or(ident, |f| f.property.clone()),
        _ => ident,
    }
}
