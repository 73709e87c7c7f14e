//! Resource types: what comes along, what is refused, and what the definitions look like.

use conductor_claims::types::{
    ResourceType, builtin_implementations, builtin_types, crds, manager_crd, resource_type_crd,
};
use conductor_machinery::jsonpath::JsonPath;
use serde_json::{Value, json};

fn database() -> ResourceType {
    let all = builtin_types().expect("built-in types");
    ResourceType::parse(&all[0]).expect("the database")
}

#[test]
fn built_in_types_are_good() {
    for object in builtin_types().expect("built-in types") {
        let read = ResourceType::parse(&object).unwrap_or_else(|e| panic!("{object}: {e:?}"));
        assert_eq!(object["metadata"]["name"], json!(read.name()));
        for crd in crds(&read) {
            structural(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", true);
        }
    }
    structural(&resource_type_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", true);
    structural(&manager_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", true);
    for crd in builtin_implementations().expect("implementations") {
        structural(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", true);
    }
}

/// What Kubernetes demands of a structural schema, as far as ours could break it.
fn structural(schema: &Value, path: &str, root: bool) {
    let typed = schema["type"].is_string();
    let free = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    let int_or_string = schema["x-kubernetes-int-or-string"] == json!(true);
    assert!(typed || free || int_or_string, "{path}: has no type");
    assert!(!root || schema["type"] == json!("object"), "the root is an object");
    assert!(!(int_or_string && typed), "{path}: int-or-string has no type");
    if schema["type"] == json!("array") {
        structural(&schema["items"], &format!("{path}[]"), false);
        if schema["x-kubernetes-list-type"] == json!("map") {
            for key in schema["x-kubernetes-list-map-keys"].as_array().expect("keys") {
                let key = key.as_str().expect("a key");
                let required = schema["items"]["required"].as_array().is_some_and(|r| r.contains(&json!(key)));
                let default = schema["items"]["properties"][key].get("default").is_some();
                assert!(required || default, "{path}: {key} is neither required nor defaulted");
            }
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        structural(property, &format!("{path}.{name}"), false);
    }
    if let Some(values) = schema.get("additionalProperties") {
        assert!(schema.get("properties").is_none(), "{path}: properties and additionalProperties");
        structural(values, &format!("{path}.*"), false);
    }
}

/// Fields of an object that the schema does not know: strict validation refuses them.
fn unknown(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let free = schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = format!("{path}.{name}");
                match schema["properties"].get(name).or(schema.get("additionalProperties")) {
                    Some(schema) => unknown(schema, value, &path, found),
                    None if free || path.starts_with(".metadata") => {}
                    None => found.push(path),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| unknown(&schema["items"], item, path, found)),
        Value::Null => {}
        scalar => {
            let kind = match schema["type"].as_str() {
                Some(kind) => kind,
                None => return,
            };
            let fits = match kind {
                "string" => scalar.is_string(),
                "boolean" => scalar.is_boolean(),
                "integer" => scalar.is_i64(),
                "number" => scalar.is_number(),
                _ => false,
            };
            if !fits {
                found.push(format!("{path} is no {kind}"));
            }
        }
    }
}

#[test]
fn the_model_s_manifests_have_only_known_fields() {
    let [resource, claim, class] = crds(&database());
    let check = |crd: &Value, yaml: &str| {
        let object = conductor_claims::types::read_yaml(yaml).expect("yaml");
        let mut found = Vec::new();
        unknown(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &object, "", &mut found);
        assert_eq!(found, Vec::<String>::new());
        object
    };
    check(
        &resource,
        "
apiVersion: storage.conductor.io/v1alpha1
kind: RelationalDatabase
metadata: {name: database-445, namespace: conductor-system}
spec:
  engine: mysql
  version: 5.6
  highly-available: true
  capacity: {storage: 50Gi}
  reclaimPolicy: Delete
  template:
    apiVersion: database.aws.conductor.io/v1alpha1
    kind: RDSInstance
    metadata: {label: foo}
    spec: {class: db.t2.small, masterUsername: masteruser}
status: {phase: Created, implementationRef: rds-instance-6763d}
",
    );
    check(
        &claim,
        "
apiVersion: storage.conductor.io/v1alpha1
kind: RelationalDatabaseClaim
metadata: {name: wordpress-db, namespace: wordpress}
spec:
  engine: mysql
  version: '>= 5.6'
  resources: {requests: {storage: 25Gi}}
  class: performance
  resourceName: database-445
  selector:
    matchExpressions:
      - {key: environment, operator: In, values: [dev]}
status: {phase: Bound}
",
    );
    check(
        &claim,
        "
spec:
  resources:
  requests:
  class: slow
  selector:
    matchLabels: {release: stable}
    matchExpressions: [{key: environment, operator: In, values: [dev]}]
",
    );
    for indent in ["", "spec:\n  "] {
        let body = format!(
            "{indent}reclaimPolicy: Retain\n{}template: {{apiVersion: a/v1, kind: B, metadata: {{label: foo}}, spec: {{x: 1}}}}\n",
            if indent.is_empty() { "" } else { "  " }
        );
        check(&class, &body);
    }
}

#[test]
fn definitions_have_the_shape_kubectl_shows() {
    let [resource, claim, class] = crds(&database());
    assert_eq!(resource["metadata"]["name"], json!("relationaldatabases.storage.conductor.io"));
    assert_eq!(claim["metadata"]["name"], json!("relationaldatabaseclaims.storage.conductor.io"));
    assert_eq!(class["metadata"]["name"], json!("relationaldatabaseclasses.storage.conductor.io"));
    assert_eq!((&resource["spec"]["scope"], &claim["spec"]["scope"]), (&json!("Cluster"), &json!("Namespaced")));
    let refs =
        &resource["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["claimRefs"];
    assert_eq!(refs["x-kubernetes-list-map-keys"], json!(["namespace", "name", "uid"]));
    assert!(resource["spec"]["versions"][0]["subresources"]["status"].is_object());
    assert!(class["spec"]["versions"][0].get("subresources").is_none());
    let version =
        &claim["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["version"];
    assert_eq!((&version["x-kubernetes-preserve-unknown-fields"], &version["type"]), (&json!(true), &Value::Null));
    // kubectl explain has something to say about every field
    for definition in [&resource, &claim, &class] {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let fields = [&schema["properties"], &schema["properties"]["spec"]["properties"]];
        for (name, field) in fields.into_iter().flat_map(|fields| fields.as_object().into_iter().flatten()) {
            let standard = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
            assert!(standard || field["description"].is_string(), "{}: {name}", definition["metadata"]["name"]);
        }
    }
    let columns: Vec<&str> = claim["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .expect("columns")
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    assert_eq!(columns, ["Phase", "Class", "Resource", "Storage", "Binding", "Reason", "Message", "Age"]);
}

#[test]
fn tables_show_what_there_is_and_else_what_was_asked_for() {
    let [resource, _, _] = crds(&database());
    let columns = resource["spec"]["versions"][0]["additionalPrinterColumns"].as_array().expect("columns");
    let check = |column: &str, object: Value, expected: Option<Value>| {
        let column = columns.iter().find(|c| c["name"] == column).expect("a column");
        let path = JsonPath::parse(column["jsonPath"].as_str().expect("a path")).expect("a path");
        assert_eq!(path.first(&object).map(std::borrow::Cow::into_owned), expected, "{object}");
    };
    let reported = json!({"attributes": {"version": "16.4", "highlyAvailable": false}});
    check("Version", json!({"spec": {"version": "17"}, "status": reported}), Some(json!("16.4")));
    check("Version", json!({"spec": {"version": "17"}, "status": {}}), Some(json!("17")));
    check("Version", json!({"spec": {"engine": "postgres"}}), None);
    check("HighlyAvailable", json!({"spec": {"highly-available": true}, "status": reported}), Some(json!(false)));
    check("HighlyAvailable", json!({"spec": {"highly-available": true}}), Some(json!(true)));
}

#[test]
fn what_is_wrong_is_said_with_its_field() {
    let base = json!({"metadata": {"name": "things.a.example.com"}, "spec": {
        "group": "a.example.com", "version": "v1", "names": {"resource": "Thing"}}});
    let check = |change: &dyn Fn(&mut Value), field: &str| {
        let mut object = base.clone();
        change(&mut object);
        let first = ResourceType::parse(&object).err().and_then(|e| e.into_iter().next());
        assert_eq!(first.map(|e| e.field).unwrap_or_default(), field, "{object}");
    };
    check(&|_| {}, "");
    check(&|o| o["metadata"]["name"] = json!("wrong"), "metadata.name");
    check(&|o| o["spec"]["group"] = json!("nodot"), "spec.group");
    check(&|o| o["spec"]["version"] = json!("1"), "spec.version");
    check(&|o| o["spec"]["extra"] = json!(1), "spec.extra");
    check(&|o| o["spec"]["names"] = json!({"resource": "thing"}), "spec.names.resource");
    check(&|o| o["spec"]["attributes"] = json!({"class": {}}), "spec.attributes.class");
    check(&|o| o["spec"]["attributes"] = json!({"topology": {}}), "spec.attributes.topology");
    check(&|o| o["spec"]["attributes"] = json!({"a": {"alias": "capacity"}}), "spec.attributes.a.alias");
    check(&|o| o["spec"]["attributes"] = json!({"a": {"alias": "b"}, "b": {}}), "spec.attributes.a.alias");
    check(&|o| o["spec"]["attributes"] = json!({"a": {"match": "Near"}}), "spec.attributes.a.match");
    check(&|o| o["spec"]["attributes"] = json!({"a": {"match": "AtLeast"}}), "spec.attributes.a.values");
    check(
        &|o| o["spec"]["attributes"] = json!({"a": {"match": "VersionRange", "type": "string"}}),
        "spec.attributes.a.type",
    );
    check(&|o| o["spec"]["sharing"] = json!({"maxClaims": 257}), "spec.sharing.maxClaims");
    check(&|o| o["spec"]["sharing"] = json!({"maxClaims": 256}), "");
    check(&|o| o["spec"]["reclaimPolicies"] = json!(["Burn"]), "spec.reclaimPolicies[0]");
    check(&|o| o["spec"] = json!(null), "spec");
}
