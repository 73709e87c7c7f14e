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
    let found = wrong("/spec/versions", json!([version, broken]));
    let path = "spec.versions[1].schema.openAPIV3Schema.type";
    assert!(!found.is_empty() && found.iter().all(|own| own == path), "{found:?}");
}

#[test]
fn a_version_stood_under_its_own_name_only() {
    let version = stored()["spec"]["versions"][0].clone();
    let mut other = version.clone();
    (other["name"], other["storage"]) = ("v2".into(), false.into());
    let shared =
        ["spec.validation.openAPIV3Schema.properties[size].default", "spec.additionalPrinterColumns[0].JSONPath"];
    assert_eq!(wrong("/spec/versions", json!([version, other])), shared);
    assert_eq!(wrong("/spec/versions", json!([other, version])), shared);

    let sound =
        json!({"name": "v3", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let own = [
        "spec.versions[1].schema.openAPIV3Schema.properties[size].default",
        "spec.versions[1].additionalPrinterColumns[0].JSONPath",
    ];
    assert_eq!(wrong("/spec/versions", json!([version, other, sound])), own);
}

/// A version with so many selectable fields.
fn selects(name: &str, count: usize) -> Value {
    let all: Vec<String> = (0..12).map(|i| format!("f{i}")).collect();
    let properties: Map<String, Value> = all.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
    let fields: Vec<Value> = all[..count].iter().map(|name| json!({"jsonPath": format!(".{name}")})).collect();
    json!({
        "name": name, "served": true, "storage": name == "v1",
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "selectableFields": fields,
    })
}

/// What is wrong with versions where there were others.
fn told(new: &[Value], old: &[Value]) -> Vec<String> {
    let errors = versions(&json!({"versions": new}), old, &Path::root("spec"));
    errors.into_iter().map(|error| error.to_string()).collect()
}

#[test]
fn too_many_selectable_fields_may_stay_as_they_are() {
    let described = |mut version: Value| {
        version["schema"]["openAPIV3Schema"]["description"] = version["name"].clone();
        version
    };
    let none: [&str; 0] = [];
    let many = |path: &str, count: usize| [format!("{path}: Too many: {count}: must have at most 8 items")];
    let old = [selects("v1", 9)];
    assert_eq!(told(&old, &[]), many("spec.selectableFields", 9));
    assert_eq!(told(&[described(selects("v1", 9))], &old), none);
    assert_eq!(told(&[selects("v1", 9), selects("v2", 9)], &old), none);
    assert_eq!(told(&[selects("v1", 10)], &old), many("spec.selectableFields", 10));

    let old = [described(selects("v1", 9)), selects("v2", 10)];
    assert_eq!(told(&[described(selects("v1", 9)), described(selects("v2", 10))], &old), none);
    let new = [described(selects("v1", 9)), selects("v2", 11)];
    assert_eq!(told(&new, &old), many("spec.versions[1].selectableFields", 11));
    let new = [described(selects("v1", 9)), selects("v2", 10), described(selects("v3", 10))];
    assert_eq!(told(&new, &old), many("spec.versions[2].selectableFields", 10));
}

#[test]
fn selectable_fields_stand_beside_the_schema() {
    let (one, two) = (selects("v1", 1), selects("v2", 2));
    let own = |i: usize| {
        format!(
            "spec.versions[{i}].selectableFields: Invalid value: \"\": may only be set when `version.schema.openAPIV3Schema` is not \
             included"
        )
    };
    assert_eq!(told(&[one.clone(), two.clone()], &[]), [own(0), own(1)]);
    assert_eq!(told(&[one.clone(), two.clone()], std::slice::from_ref(&one)), [own(0), own(1)]);

    let mut bare = two;
    bare["schema"] = json!({});
    let required = "spec.versions[1].schema.openAPIV3Schema: Required value";
    assert_eq!(told(&[one.clone(), bare], &[]), [required.to_owned(), own(1)]);

    let mut other = selects("v2", 1);
    other["schema"]["openAPIV3Schema"]["description"] = "Another.".into();
    let top = "spec.selectableFields: Invalid value: \"\": may only be set when validations.schema is included";
    assert_eq!(told(&[one, other], &[]), [top]);
}

#[test]
fn what_a_rule_costs_is_not_asked_about_again() {
    let described = |name: &str, description: &str, status: bool| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "description": description, "properties": {"text": {
                "type": "array", "maxItems": 20_000, "items": {
                    "type": "string", "maxLength": 8000, "x-kubernetes-validations": [{"rule": "self.contains('a')"}],
                },
            }}}},
            "subresources": if status { json!({"status": {}}) } else { Value::Null },
        })
    };
    let version = |name: &str, status: bool| described(name, "", status);
    let asked = |new: &[Value], old: &[Value], path: &str| {
        let path = format!("{path}.openAPIV3Schema.properties[text].items.x-kubernetes-validations[0].rule: ");
        let found = told(new, old);
        assert!(found.len() == 1 && found[0].starts_with(&path), "{found:?}");
    };
    let none: [&str; 0] = [];
    let (one, two, other) = (version("v1", false), version("v2", false), described("v2", "Another.", false));
    let old = [one.clone()];
    asked(&old, &[], "spec.validation");
    assert_eq!(told(&[version("v1", true)], &old), none);
    // What all versions had alike was nobody's own.
    assert_eq!(told(&[one.clone(), two.clone()], &old), none);
    assert_eq!(told(&[two, one.clone()], &old), none);
    asked(&[one.clone(), other.clone()], &old, "spec.versions[1].schema");
    asked(&[one.clone(), other.clone(), version("v3", false)], &[one, other], "spec.versions[2].schema");
}

#[test]
fn a_shared_schema_says_less_if_any_version_has_a_status() {
    let version = |name: &str, subresources: Value| {
        let schema = json!({"type": "object", "maxProperties": 5});
        json!({
            "name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
            "subresources": subresources,
        })
    };
    let none: [&str; 0] = [];
    assert_eq!(told(&[version("v1", json!({})), version("v2", json!({}))], &[]), none);
    let found = told(&[version("v1", json!({})), version("v2", json!({"status": {}}))], &[]);
    assert!(found.len() == 1 && found[0].contains("if the status subresource is enabled"), "{found:?}");
}
