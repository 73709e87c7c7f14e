use serde_json::{Value, json};

use super::*;

/// As a server that asked for less has stored it: neither its schema, nor its column, nor its conversion would be taken today.
fn stored() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "conversion": {"strategy": "None", "webhook": {"clientConfig": {"url": "https://a.b/c"}}},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "size": {"type": "integer", "default": "big"},
                }}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": "size"}],
            }],
        },
        "status": {"storedVersions": ["v1"]},
    })
}

/// Where there are mistakes once something is set.
fn wrong(pointer: &str, value: Value) -> Vec<String> {
    let (old, mut new) = (stored(), stored());
    *new.pointer_mut(pointer).expect("it is there") = value;
    update(&new, &old).into_iter().map(|error| error.path.to_string()).collect()
}

#[test]
fn what_stood_in_the_old_definition_is_not_asked_about_again() {
    let all: Vec<String> = create(&stored()).into_iter().map(|error| error.path.to_string()).collect();
    let schema = "spec.validation.openAPIV3Schema.properties[size].default";
    let (column, conversion) = ("spec.additionalPrinterColumns[0].JSONPath", "spec.conversion.webhookClientConfig");
    assert_eq!(all, [schema, column, conversion]);

    let none: [&str; 0] = [];
    assert_eq!(wrong("/metadata", json!({"name": "widgets.example.com", "labels": {"a": "b"}})), none);
    assert_eq!(wrong("/spec/names/singular", json!("wodget")), none);
    let version = &stored()["spec"]["versions"][0];
    let sound =
        json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}});
    assert_eq!(wrong("/spec/versions", json!([sound, version])), none);
    assert_eq!(wrong("/spec/versions/0/served", json!(false)), none);
}

#[test]
fn what_is_new_is() {
    let schema = json!({"type": "object", "properties": {"size": {"type": "integer", "default": "small"}}});
    let path = "spec.validation.openAPIV3Schema.properties[size].default";
    assert_eq!(wrong("/spec/versions/0/schema/openAPIV3Schema", schema), [path]);
    let columns = json!([{"name": "Size", "type": "integer", "jsonPath": "spec.size"}]);
    let path = "spec.additionalPrinterColumns[0].JSONPath";
    assert_eq!(wrong("/spec/versions/0/additionalPrinterColumns", columns), [path]);
    assert_eq!(
        wrong("/spec/conversion/strategy", json!("none")),
        ["spec.conversion.strategy", "spec.conversion.webhookClientConfig"]
    );
    let broken =
        json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "objekt"}}});
    let version = &stored()["spec"]["versions"][0];
    let path = "spec.versions[1].schema.openAPIV3Schema.type";
    assert!(wrong("/spec/versions", json!([version, broken])).iter().all(|own| own == path));
}
