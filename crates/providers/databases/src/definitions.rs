//! The definitions of the kinds, and the classes a new installation begins with.

use conductor_local::install;
use serde_json::{Map, Value, json};

use crate::engine::{Engine, Names};
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;

/// All definitions.
pub fn all() -> Vec<Value> {
    vec![
        instance::<Postgres>(&["pgi"]),
        database::<Postgres>(&["pgdb"]),
        instance::<MariaDb>(&["mdbi"]),
        database::<MariaDb>(&["mdb"]),
    ]
}

/// The classes and the manager a new installation begins with.
pub fn examples() -> Vec<Value> {
    match install::parse(include_str!("../examples.yaml")) {
        Ok(objects) => objects,
        Err(error) => {
            tracing::error!(%error, "the built-in examples are broken");
            Vec::new()
        }
    }
}

fn quantity(description: &str) -> Value {
    json!({
        "description": description, "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "minimum": 0, "pattern": "^\\+?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$",
    })
}

/// The most that counts up: as a float, which Kubernetes compares it as, `i64::MAX` is no integer of 64 bits any more.
const MOST: i64 = (1 << 53) - 1;

fn number(description: &str, least: i64, most: i64) -> Value {
    json!({"description": description, "type": "integer", "format": "int64", "minimum": least, "maximum": most})
}

fn common<E: Engine>() -> Map<String, Value> {
    let engine = format!("What the resource offers {} as; what its class says if left out", E::ENGINE);
    let common = json!({
        "engine": {"description": engine, "type": "string"},
        "storage": quantity("How much it may hold: measured, and said when it is more"),
        "scrub": number("Asks for scrub number N: everything is made anew and empty, with new credentials", 0, MOST),
        "rotate": number("Asks for rotation number N of the credentials; status.rotated answers, then status.retired", 0, MOST),
        "rotationGraceSeconds": number("How long the old credentials work after the Secrets of all claims have the new ones; 60 if left out", 0, 604_800),
    });
    common.as_object().cloned().unwrap_or_default()
}

fn instance<E: Engine>(short: &[&str]) -> Value {
    let mut spec = common::<E>();
    let more = json!({
        "version": {"description": "The version, series or range: \"15\", \">= 14\"; the newest installed if left out or empty", "x-kubernetes-preserve-unknown-fields": true},
        "memory": quantity("How much memory its settings are made for; 64Mi if left out"),
        "database": {
            "description": "The database's name; app if left out", "type": "string",
            "pattern": "^[a-z_][a-z0-9_]{0,47}$",
        },
        "address": {"description": "The address to listen on; 127.0.0.1 if left out", "type": "string"},
        "port": number("The port to listen on; a free one if left out", 1, 65_535),
        "maxConnections": number("How many may connect to the server at a time, all logins together; 100 if left out", 5, 10_000),
        "settings": {
            "description": "More settings, in the engine's own words", "type": "object",
            "additionalProperties": {"x-kubernetes-preserve-unknown-fields": true},
        },
        "overcommit": number("How many times the disk and the memory of this machine may be promised to all instances; 10 if left out", 1, 1000),
        "superuser": {
            "description": "Whether the login may do everything: a server for databases of several claims", "type": "boolean",
        },
    });
    spec.extend(more.as_object().cloned().unwrap_or_default());
    let columns = json!([
        {"name": "Version", "type": "string", "jsonPath": ".status.attributes.version"},
        {"name": "Port", "type": "integer", "jsonPath": ".status.port"},
        {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
    ]);
    definition(E::INSTANCE, short, &json!({"type": "object", "properties": spec}), &columns)
}

fn database<E: Engine>(short: &[&str]) -> Value {
    let mut spec = common::<E>();
    let reference = json!({
        "description": "The Secret with host, port, username and password of one who may make databases and roles",
        "type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1}},
    });
    spec.insert("serverSecretRef".into(), reference);
    let connections = "How many connections each login may have at a time, so that nobody takes them all from the others. A database has one login, or one \
         for each claim that shares it; 20 if left out";
    spec.insert("maxConnections".into(), number(connections, 1, 10_000));
    let columns = json!([
        {"name": "Server", "type": "string", "jsonPath": ".spec.serverSecretRef.name"},
        {"name": "At", "type": "string", "jsonPath": ".status.server", "priority": 1},
        {"name": "Version", "type": "string", "jsonPath": ".status.attributes.version"},
    ]);
    let spec = json!({"type": "object", "required": ["serverSecretRef"], "properties": spec});
    definition(E::DATABASE, short, &spec, &columns)
}

fn definition(names: Names, short: &[&str], spec: &Value, columns: &Value) -> Value {
    let Names { kind, plural } = names;
    let (group, version) = crate::API_VERSION.split_once('/').unwrap_or_default();
    let mut columns = columns.as_array().cloned().unwrap_or_default();
    columns.push(
        json!({"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}),
    );
    columns.push(
        json!({"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}),
    );
    columns.push(json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"), "labels": {"app.kubernetes.io/managed-by": "conductor"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_ascii_lowercase(),
                "shortNames": short, "categories": ["conductor", "implementations"],
            },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                        "spec": spec,
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_numbers_that_kubernetes_compares() {
        fn bounds(value: &Value, found: &mut Vec<i64>) {
            for (key, value) in value.as_object().into_iter().flatten() {
                found.extend(value.as_i64().filter(|_| key == "maximum"));
                bounds(value, found);
            }
            value.as_array().into_iter().flatten().for_each(|value| bounds(value, found));
        }
        let mut found = Vec::new();
        all().iter().for_each(|definition| bounds(definition, &mut found));
        assert!(!found.is_empty() && found.iter().all(|bound| *bound <= MOST), "{found:?}");
    }
}
