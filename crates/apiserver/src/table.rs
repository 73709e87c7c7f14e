//! Tables: what `kubectl get` shows, made by the server.

use serde_json::{Value, json};

use crate::resource::{Nature, Resource};

/// How a table shows the object of each row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Not at all.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the option `includeObject`.
    pub fn parse(text: Option<&str>) -> Option<Include> {
        match text {
            None | Some("Metadata") => Some(Include::Metadata),
            Some("None") => Some(Include::None),
            Some("Object") => Some(Include::Object),
            Some(_) => None,
        }
    }
}

/// A table of objects.
pub fn table(
    resource: &Resource,
    objects: &[Value],
    meta: Option<Value>,
    include: Include,
    now: i64,
    columns: bool,
    api_version: &str,
) -> Value {
    let mut shown: Vec<&Value> = objects.iter().collect();
    if resource.gk() == ("flowcontrol.apiserver.k8s.io", "FlowSchema") {
        // in the order in which they are asked; a name decides between equals, and they come by name
        shown.sort_by_key(|own| own["spec"]["matchingPrecedence"].as_i64());
    }
    let rows: Vec<Value> = shown
        .into_iter()
        .map(|object| {
            let cells = match &resource.nature {
                Nature::BuiltIn(_) => {
                    kinds::columns::cells(resource.internal_group(), &resource.kind, &resource.internal(object), now)
                }
                Nature::Custom(custom) => custom.cells(object, now),
            };
            // The bookmark that ends what was there is always told by its annotation.
            let ends = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
            let shown = match include {
                Include::None if !ends => Value::Null,
                Include::Object => object.clone(),
                Include::Metadata | Include::None => json!({
                    "kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": resource.metadata(object),
                }),
            };
            let mut row = json!({"cells": cells, "object": shown});
            if let Some(conditions) = kinds::columns::conditions(&resource.group, &resource.kind, object) {
                row["conditions"] = conditions;
            }
            row
        })
        .collect();
    // As in Kubernetes, kinds without columns of their own have no rows rather than none.
    let plain = !resource.is_custom() && !kinds::columns::has_own(&resource.group, &resource.kind);
    let rows = if rows.is_empty() && plain { Value::Null } else { Value::Array(rows) };
    let definitions: Value = if columns {
        match &resource.nature {
            Nature::BuiltIn(_) => kinds::columns::definitions(&resource.group, &resource.kind)
                .iter()
                .map(|column| {
                    json!({
                        "name": column.name, "type": column.kind, "format": column.format,
                        "description": column.description, "priority": column.priority,
                    })
                })
                .collect(),
            Nature::Custom(custom) => custom.columns(),
        }
    } else {
        Value::Null
    };
    let meta = meta.unwrap_or_else(|| match objects {
        [one] => json!({"resourceVersion": one["metadata"]["resourceVersion"]}),
        _ => json!({}),
    });
    json!({
        "kind": "Table", "apiVersion": api_version, "metadata": meta,
        "columnDefinitions": definitions, "rows": rows,
    })
}
