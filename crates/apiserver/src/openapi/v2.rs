//! The one document of OpenAPI v2, for older clients: that of v3 in other words, without what v2 cannot say.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::Site;
use super::descriptions::Descriptions;
use super::documents::{Document, entries, info};
use super::protobuf;
use super::schemas::{COMPONENTS, Components, Kinds, SELECTABLE, Writer};
use super::templates::Templates;

const DEFINITIONS: &str = "#/definitions/";

/// Writes the document, in JSON or in protobuf.
pub fn write(site: &Site<'_>, descriptions: &Descriptions, as_protobuf: bool, out: &mut dyn Write) -> io::Result<()> {
    let catalog = site.catalog;
    let documents = Document::all(catalog);
    let mut components = Components::default();
    documents.iter().for_each(|document| components.extend(document.components(catalog)));
    let mut versions: Vec<(&str, &str)> =
        catalog.all().iter().map(|resource| (&*resource.group, &*resource.version)).collect();
    versions.sort_unstable();
    versions.dedup();
    let kinds = Kinds::new(&versions);
    let writer = Writer { kinds: &kinds, descriptions, site };
    let definitions = components.iter().map(|(name, component)| {
        let schema = writer.component(name, component);
        (name.to_owned(), definition(schema, name.ends_with(".Quantity"), name.ends_with(".IntOrString")))
    });
    let rest = json!({
        "swagger": "2.0", "info": info(), "security": [{"BearerToken": []}],
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "in": "header", "name": "authorization", "description": "a bearer token",
        }},
    });
    if as_protobuf {
        let paths = documents.iter().flat_map(|document| document.paths(catalog));
        return protobuf::write(&rest, paths.map(|(path, item)| (path, path_item(item))), definitions, out);
    }
    let text = rest.to_string();
    out.write_all(text.strip_suffix('}').unwrap_or(&text).as_bytes())?;
    out.write_all(br#","paths":{"#)?;
    let mut templates = Templates::default();
    for (at, document) in documents.iter().enumerate() {
        let (path, item) = document.own_path();
        let mut paths = vec![(path, path_item(item).to_string())];
        document.resources(catalog).for_each(|resource| paths.extend(templates.paths(resource, path_item)));
        paths.sort_unstable();
        for (nth, (path, text)) in paths.iter().enumerate() {
            let comma = if (at, nth) == (0, 0) { "" } else { "," };
            write!(out, "{comma}{}:{text}", Value::from(&**path))?;
        }
    }
    out.write_all(br#"},"definitions":"#)?;
    entries(out, definitions)?;
    out.write_all(b"}")
}

fn definition(schema: Value, quantity: bool, int_or_string: bool) -> Value {
    // Of a kind that takes all there is, clients are told nothing more: they would refuse what is not named.
    if let (Some(kinds), Some(Value::Bool(true))) =
        (schema.get("x-kubernetes-group-version-kind"), schema.get("x-kubernetes-preserve-unknown-fields"))
    {
        let mut object = json!({"type": "object", "x-kubernetes-group-version-kind": kinds});
        if let Some(fields) = schema.get(SELECTABLE) {
            object[SELECTABLE] = fields.clone();
        }
        return object;
    }
    let mut schema = self::schema(schema);
    if quantity || int_or_string {
        schema["type"] = "string".into();
    }
    schema
}

/// A type of v3 as v2 says it.
fn schema(schema: Value) -> Value {
    let Value::Object(mut fields) = schema else { return schema };
    if let Some(Value::Array(all)) = fields.remove("allOf")
        && let [one] = all.as_slice()
        && let Some(reference) = one.get("$ref")
    {
        fields.insert("$ref".into(), reference.clone());
    }
    // Clients of v2 took what they did not know for an error.
    let nullable = fields.remove("nullable").is_some();
    let any = nullable || fields.contains_key("x-kubernetes-preserve-unknown-fields");
    let loose = ["type", "properties", "additionalProperties", "items"];
    let absent = ["oneOf", "anyOf", "not", "default"];
    for key in absent.iter().chain(any.then_some(&loose).into_iter().flatten()) {
        fields.remove(*key);
    }
    let converted = fields.into_iter().map(|(key, value)| {
        let value = match (&*key, value) {
            ("$ref", Value::String(reference)) => reference.replace(COMPONENTS, DEFINITIONS).into(),
            ("properties", Value::Object(all)) => {
                all.into_iter().map(|(name, of)| (name, self::schema(of))).collect::<Map<_, _>>().into()
            }
            ("items" | "additionalProperties", of) => self::schema(of),
            (_, other) => other,
        };
        (key, value)
    });
    converted.collect::<Map<_, _>>().into()
}

fn path_item(item: Value) -> Value {
    let Value::Object(methods) = item else { return item };
    let converted = methods.into_iter().map(|(method, of)| {
        let of = if method == "parameters" { parameters(of) } else { operation(of) };
        (method, of)
    });
    converted.collect::<Map<_, _>>().into()
}

fn parameters(all: Value) -> Value {
    let Value::Array(all) = all else { return all };
    let flat = all.into_iter().map(|mut parameter| {
        if let Some(Value::Object(schema)) = parameter.get_mut("schema").map(Value::take)
            && let Some(fields) = parameter.as_object_mut()
        {
            fields.remove("schema");
            fields.extend(schema);
        }
        parameter
    });
    flat.collect()
}

fn operation(mut operation: Value) -> Value {
    let mut all = match operation.get_mut("parameters").map(Value::take) {
        Some(own) => parameters(own),
        None => json!([]),
    };
    let mut consumes = json!(["*/*"]);
    if let Some(fields) = operation.as_object_mut()
        && let Some(mut body) = fields.remove("requestBody")
    {
        let types = body["content"].as_object_mut().map(std::mem::take).unwrap_or_default();
        if types.len() > 1 {
            consumes = types.keys().cloned().collect();
        }
        let of = types.into_iter().next().map(|(_, mut of)| of["schema"].take()).unwrap_or_default();
        let mut parameter = json!({"in": "body", "name": "body", "schema": schema(of)});
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        if let Some(all) = all.as_array_mut() {
            all.insert(0, parameter);
        }
    }
    let mut produces = Vec::new();
    for response in operation["responses"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        let Some(Value::Object(types)) = response.as_object_mut().and_then(|fields| fields.remove("content")) else {
            continue;
        };
        for (of, mut content) in types {
            response["schema"] = schema(content["schema"].take());
            if !produces.contains(&of) {
                produces.push(of);
            }
        }
    }
    match all.as_array().is_some_and(Vec::is_empty) {
        true => operation.as_object_mut().and_then(|fields| fields.remove("parameters")),
        false => operation.as_object_mut().and_then(|fields| fields.insert("parameters".into(), all)),
    };
    operation["consumes"] = consumes;
    operation["produces"] = produces.into();
    operation["schemes"] = json!(["https"]);
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_takes_everything_is_an_object_and_no_more() {
        let mut schema = json!({
            "type": "object", "description": "d", "x-kubernetes-group-version-kind": [{"kind": "Foo"}],
            "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        });
        let loose = definition(schema.clone(), false, false);
        assert_eq!(loose["properties"]["spec"], json!({"x-kubernetes-preserve-unknown-fields": true}));
        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
        schema[SELECTABLE] = json!([{"fieldPath": "spec.a"}]);
        let mut expected = json!({"type": "object", "x-kubernetes-group-version-kind": [{"kind": "Foo"}]});
        expected[SELECTABLE] = json!([{"fieldPath": "spec.a"}]);
        assert_eq!(definition(schema, false, false), expected);
    }
}
