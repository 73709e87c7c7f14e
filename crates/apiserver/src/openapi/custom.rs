//! Types of custom resources. They are shown as their definition has them; where there is none, as requests are checked.

use machinery::schema::{Field, Id, Rules, Schema, Shape};
use serde_json::{Map, Value, json};

use super::schemas::{COMPONENTS, OBJECT_META, list_kind};

/// How deep a schema is shown. Definitions are not that deep; this is for the stack's sake.
const MAX_DEPTH: usize = 128;

/// Objects within objects have an apiVersion, a kind and metadata.
pub fn embed(schema: &mut Value, depth: usize) {
    if depth >= MAX_DEPTH {
        return;
    }
    for key in ["items", "additionalProperties"] {
        if let Some(of) = schema.get_mut(key).filter(|of| of.is_object()) {
            embed(of, depth + 1);
        }
    }
    for of in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(|all| all.values_mut()) {
        embed(of, depth + 1);
    }
    if schema["x-kubernetes-embedded-resource"] == true
        && let Some(fields) = schema.as_object_mut()
    {
        let properties = fields.entry("properties").or_insert_with(|| json!({}));
        if properties.is_object() {
            properties["apiVersion"] = json!({"type": "string", "description": "The version of the object's schema."});
            properties["kind"] = json!({"type": "string", "description": "The kind of the object."});
            properties["metadata"] = json!({
                "description": "The object's name, labels and the like.",
                "allOf": [{"$ref": format!("{COMPONENTS}{OBJECT_META}")}],
            });
        }
        let required = fields.entry("required").or_insert_with(|| json!([]));
        for name in ["kind", "apiVersion"] {
            if let Some(all) = required.as_array_mut().filter(|all| !all.iter().any(|one| one == name)) {
                all.push(name.into());
            }
        }
    }
}

/// A type of a custom resource with all that is in it.
pub fn tree(schema: Schema<'_>, depth: usize) -> Value {
    let node = schema.node();
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.into(), value);
    if depth >= MAX_DEPTH {
        return json!({"x-kubernetes-preserve-unknown-fields": true});
    }
    let below = |id| tree(schema.at(id), depth + 1);
    match schema.shape() {
        Shape::Any => {}
        Shape::Object(fields) => {
            put("type", "object".into());
            let field = |field: &Field| {
                let mut value = below(field.schema);
                if let (Some(default), Some(value)) = (&field.default, value.as_object_mut()) {
                    value.insert("default".into(), default.clone());
                }
                (field.name.to_string(), value)
            };
            let properties: Map<String, Value> = fields.iter().map(field).collect();
            if !properties.is_empty() {
                put("properties", properties.into());
            }
        }
        Shape::Map(values) => {
            put("type", "object".into());
            put("additionalProperties", below(*values));
        }
        Shape::List { items, list } => {
            put("type", "array".into());
            put("items", below(*items));
            list_kind(list, &mut put);
        }
        Shape::IntOrString => {
            put("x-kubernetes-int-or-string", true.into());
        }
        // Formats of custom resources are among their rules.
        Shape::Integer { .. } => {
            put("type", "integer".into());
        }
        Shape::Number => {
            put("type", "number".into());
        }
        Shape::String(_) => {
            put("type", "string".into());
        }
        Shape::Boolean => {
            put("type", "boolean".into());
        }
    }
    for (key, set) in [
        ("nullable", node.nullable),
        ("x-kubernetes-preserve-unknown-fields", node.preserve_unknown),
        ("x-kubernetes-embedded-resource", node.embedded),
    ] {
        if set {
            put(key, true.into());
        }
    }
    if node.atomic && matches!(node.shape, Shape::Object(_) | Shape::Map(_)) {
        put("x-kubernetes-map-type", "atomic".into());
    }
    if let Some(of) = &node.rules {
        rules(of, &mut put, &below);
    }
    if node.untyped {
        out.remove("type");
    }
    out.into()
}

fn rules(rules: &Rules, put: &mut impl FnMut(&str, Value) -> Option<Value>, below: &impl Fn(Id) -> Value) {
    let texts = [
        ("description", rules.description.as_deref()),
        ("title", rules.title.as_deref()),
        ("format", rules.format.as_deref()),
        ("pattern", rules.pattern.as_ref().map(|pattern| pattern.as_str())),
    ];
    for (key, text) in texts {
        text.map(|text| put(key, text.into()));
    }
    let numbers = [("minimum", rules.minimum), ("maximum", rules.maximum), ("multipleOf", rules.multiple_of)];
    for (key, number) in numbers {
        number.map(|number| put(key, whole(number)));
    }
    let counts = [
        ("minLength", rules.min_length),
        ("maxLength", rules.max_length),
        ("minItems", rules.min_items),
        ("maxItems", rules.max_items),
        ("minProperties", rules.min_properties),
        ("maxProperties", rules.max_properties),
    ];
    for (key, count) in counts {
        count.map(|count| put(key, count.into()));
    }
    for (key, set) in [
        ("exclusiveMinimum", rules.exclusive_minimum),
        ("exclusiveMaximum", rules.exclusive_maximum),
        ("uniqueItems", rules.unique_items),
    ] {
        if set {
            put(key, true.into());
        }
    }
    if let Some(values) = &rules.enumeration {
        put("enum", values.clone().into());
    }
    if let Some(default) = &rules.default {
        put("default", default.clone());
    }
    if !rules.required.is_empty() {
        put("required", rules.required.iter().map(|name| Value::from(&**name)).collect());
    }
    for (key, all) in [("allOf", &rules.all_of), ("anyOf", &rules.any_of), ("oneOf", &rules.one_of)] {
        if !all.is_empty() {
            put(key, all.iter().map(|id| below(*id)).collect());
        }
    }
    rules.not.map(|id| put("not", below(id)));
    if !rules.validations.is_empty() {
        put("x-kubernetes-validations", rules.validations.clone().into());
    }
}

/// Whole numbers are written without a fraction.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9.0e15 { json!(number as i64) } else { json!(number) }
}
