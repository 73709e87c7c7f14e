//! Table columns of custom resources: JSONPaths into the object.

use machinery::jsonpath::JsonPath;
use machinery::time::Time;
use serde_json::{Value, json};

/// One column.
#[derive(Debug)]
pub struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: JsonPath,
}

impl Column {
    /// Reads `additionalPrinterColumns`, up to one whose path cannot be read; without any there is the age.
    pub fn read(list: &Value) -> Vec<Column> {
        match list.as_array() {
            Some(columns) if !columns.is_empty() => columns.iter().map_while(Column::read_one).collect(),
            _ => Column::age().into_iter().collect(),
        }
    }

    fn read_one(column: &Value) -> Option<Column> {
        let text = |name: &str| column[name].as_str().unwrap_or_default().to_owned();
        let described = Some(text("description")).filter(|text| !text.is_empty());
        let path = text("jsonPath");
        Some(Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            path: JsonPath::parse(&path).ok()?,
            description: described
                .unwrap_or_else(|| format!("Custom resource definition column (in JSONPath format): {path}")),
            priority: column["priority"].as_i64().unwrap_or(0),
        })
    }

    fn age() -> Option<Column> {
        Some(Column {
            name: "Age".into(),
            kind: "date".into(),
            format: String::new(),
            description: "When the object was created".into(),
            priority: 0,
            path: JsonPath::parse(".metadata.creationTimestamp").ok()?,
        })
    }
}

/// The row of an object.
pub fn cells(columns: &[Column], object: &Value, now: i64) -> Vec<Value> {
    let mut cells = vec![object["metadata"]["name"].clone()];
    cells.extend(columns.iter().map(|column| cell(column, object, now)));
    cells
}

fn cell(column: &Column, object: &Value, now: i64) -> Value {
    let Ok(found) = column.path.find(object) else { return Value::Null };
    let Some(first) = found.first().filter(|first| !first.is_null()) else { return Value::Null };
    match column.kind.as_str() {
        "integer" => first
            .as_i64()
            .map_or_else(|| first.as_f64().map_or(Value::Null, |number| Value::from(number as i64)), Value::from),
        "number" => first.as_f64().map_or(Value::Null, |_| (**first).clone()),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date" => match first.as_str() {
            Some(text) => age(text, now).into(),
            None => Value::Null,
        },
        // Of several hits the first is shown.
        _ => match &**first {
            Value::String(text) => text.as_str().into(),
            other => other.to_string().into(),
        },
    }
}

/// How long ago a time was, as kubectl shows it.
pub fn age(text: &str, now: i64) -> String {
    match (text.parse::<Time>(), Time::new(now, 0)) {
        (Ok(then), Some(now)) => then.age(now),
        _ => "<invalid>".into(),
    }
}

/// The columns, as tables describe them.
pub fn definitions(columns: &[Column]) -> Value {
    let mut out = vec![json!({
        "name": "Name", "type": "string", "format": "name", "description": "The name of the object", "priority": 0,
    })];
    out.extend(columns.iter().map(|column| {
        json!({
            "name": column.name, "type": column.kind, "format": column.format, "description": column.description,
            "priority": column.priority,
        })
    }));
    out.into()
}
