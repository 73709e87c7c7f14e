//! What requests can say in their path and query.

use machinery::schema::{Shape, Text};
use serde_json::{Value, json};

/// A parameter of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameter {
    pub name: String,
    /// `path` or `query`.
    pub place: &'static str,
    pub kind: &'static str,
    pub description: String,
}

impl Parameter {
    fn new(name: &str, place: &'static str, kind: &'static str, description: &str) -> Parameter {
        Parameter { name: name.into(), place, kind, description: description.into() }
    }

    /// As OpenAPI v3 writes it.
    pub fn json(&self) -> Value {
        let mut json = json!({
            "name": self.name, "in": self.place, "description": self.description,
            "schema": {"type": self.kind, "uniqueItems": true},
        });
        if self.place == "path" {
            json["required"] = true.into();
        }
        json
    }
}

pub fn name(kind: &str) -> Parameter {
    Parameter::new("name", "path", "string", &format!("name of the {kind}"))
}

pub fn namespace() -> Parameter {
    Parameter::new("namespace", "path", "string", "the namespace the objects are in")
}

pub fn rest_of_path() -> Parameter {
    Parameter::new("path", "path", "string", "the path that is asked for behind the proxy")
}

pub fn pretty() -> Parameter {
    query("pretty", "string", "true: the answer is written for people, with line breaks")
}

fn query(name: &str, kind: &'static str, description: &str) -> Parameter {
    Parameter::new(name, "query", kind, description)
}

/// What a list, a watch or the deletion of a collection selects.
fn selecting() -> Vec<Parameter> {
    vec![
        query("continue", "string", "where the page begins, as the page before it said"),
        query(
            "fieldSelector",
            "string",
            "restricts the list of returned objects to those with these fields: metadata.name=a",
        ),
        query(
            "labelSelector",
            "string",
            "restricts the list of returned objects to those with these labels: a=b,c in (d,e),!f",
        ),
        query("limit", "integer", "the most objects a page has"),
        query("resourceVersion", "string", "which state is asked for; empty: the newest"),
        query("resourceVersionMatch", "string", "how resourceVersion is meant: Exact or NotOlderThan"),
        query("sendInitialEvents", "boolean", "a watch first shows what there is"),
        query("shardSelector", "string", "only a part of the objects"),
        query("timeoutSeconds", "integer", "the request ends after this time"),
    ]
}

/// Lists and watches.
pub fn list() -> Vec<Parameter> {
    let mut all = selecting();
    all.push(query("allowWatchBookmarks", "boolean", "a watch also says up to where it has come"));
    all.push(query("watch", "boolean", "Watch for changes to the described resources: they are sent as they happen"));
    all
}

/// What a write has beside its object.
pub fn write() -> Vec<Parameter> {
    vec![
        dry_run(),
        query("fieldManager", "string", "who is making the change; owns the fields it sets"),
        query("fieldValidation", "string", "what becomes of unknown and duplicate fields: Ignore, Warn or Strict"),
    ]
}

/// Patches.
pub fn patch() -> Vec<Parameter> {
    let mut all = write();
    all.push(query("force", "boolean", "apply also takes fields that others own"));
    all
}

fn dry_run() -> Parameter {
    query("dryRun", "string", "All: everything is checked and nothing is changed")
}

/// Deletions of one object.
pub fn delete() -> Vec<Parameter> {
    vec![
        dry_run(),
        query("gracePeriodSeconds", "integer", "how long the object may take to end; 0: at once"),
        query(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            "boolean",
            "also deletes an object that can no longer be read",
        ),
        query("orphanDependents", "boolean", "old form of propagationPolicy"),
        query("propagationPolicy", "string", "what becomes of dependents: Orphan, Background or Foreground"),
    ]
}

/// Deletions of many objects.
pub fn delete_collection() -> Vec<Parameter> {
    let mut all = selecting();
    all.extend(delete());
    all
}

/// The fields of a kind that is given as query parameters, as the options of `pods/exec` are.
pub fn of_options(group: &str, version: &str, kind: &str) -> Vec<Parameter> {
    let Some(schema) = kinds::schema_of(group, version, kind) else { return Vec::new() };
    let Shape::Object(fields) = schema.shape() else { return Vec::new() };
    let parameter = |field: &machinery::schema::Field| {
        let mut of = schema.at(field.schema);
        if let Some(items) = of.items() {
            of = items;
        }
        let kind = match of.shape() {
            Shape::String(Text::Time) => return None,
            Shape::Integer { .. } => "integer",
            Shape::Boolean => "boolean",
            _ => "string",
        };
        Some(query(&field.name, kind, "see the command of this name"))
    };
    let own = fields.iter().filter(|field| !matches!(&*field.name, "apiVersion" | "kind"));
    own.filter_map(parameter).collect()
}
