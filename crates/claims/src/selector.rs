//! Label selectors and topology terms, compiled once and asked often.

use std::sync::Arc;

use serde_json::Value;

use crate::errors::{FieldError, Path};

/// Labels, sorted by key.
pub type Labels = Arc<[(Arc<str>, Arc<str>)]>;

/// Reads a JSON map of labels.
pub fn labels_of(value: Option<&Value>) -> Labels {
    value
        .and_then(Value::as_object)
        .map(|map| map.iter().filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into()))).collect())
        .unwrap_or_else(|| Arc::from([]))
}

/// What a [`Topology`] asks of a node: its labels and, as a label that no node can have, its name.
pub fn node_of(node: &Value) -> Labels {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let mut all = vec![(field_key("metadata.name").into(), name.into())];
    all.extend(labels_of(node["metadata"].get("labels")).iter().cloned());
    all.sort();
    all.into()
}

/// The key under which a node's field is among its labels.
fn field_key(field: &str) -> String {
    format!("/{field}")
}

/// The value of one label.
pub fn label<'l>(labels: &'l [(Arc<str>, Arc<str>)], key: &str) -> Option<&'l str> {
    labels.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok().map(|i| labels[i].1.as_ref())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    fn holds(&self, labels: &[(Arc<str>, Arc<str>)]) -> bool {
        let value = label(labels, &self.key);
        let listed = |v: &str| self.values.iter().any(|x| x == v);
        let number = |v: Option<&str>| v.and_then(|v| v.parse::<i64>().ok());
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt | Operator::Lt => {
                let bound = number(self.values.first().map(String::as_str));
                match (number(value), bound) {
                    (Some(value), Some(bound)) if self.operator == Operator::Gt => value > bound,
                    (Some(value), Some(bound)) => value < bound,
                    _ => false,
                }
            }
        }
    }
}

/// A label selector: all requirements must hold; an empty one takes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    all: Vec<Requirement>,
}

impl Selector {
    /// Reads a Kubernetes LabelSelector.
    pub fn from_json(value: &Value, path: &Path) -> Result<Selector, FieldError> {
        let Some(map) = value.as_object() else {
            return Err(path.error("must be an object with matchLabels or matchExpressions"));
        };
        let mut all = Vec::new();
        if let Some(labels) = map.get("matchLabels").filter(|v| !v.is_null()) {
            let path = path.field("matchLabels");
            let labels = labels.as_object().ok_or_else(|| path.error("must be a map of labels"))?;
            for (key, value) in labels {
                let value = value.as_str().ok_or_else(|| path.field(key).error("must be a string"))?;
                checked(key, [value], &path.field(key))?;
                all.push(Requirement { key: key.clone(), operator: Operator::In, values: vec![value.to_owned()] });
            }
        }
        if let Some(expressions) = map.get("matchExpressions").filter(|v| !v.is_null()) {
            requirements(expressions, &path.field("matchExpressions"), false, &mut all)?;
        }
        all.sort();
        Ok(Selector { all })
    }

    /// Whether the labels satisfy every requirement.
    pub fn matches(&self, labels: &[(Arc<str>, Arc<str>)]) -> bool {
        self.all.iter().all(|r| r.holds(labels))
    }

    /// Whether it takes everything.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

fn requirements(list: &Value, path: &Path, numeric: bool, all: &mut Vec<Requirement>) -> Result<(), FieldError> {
    let list = list.as_array().ok_or_else(|| path.error("must be a list"))?;
    for (index, item) in list.iter().enumerate() {
        let path = path.index(index);
        let key = item["key"].as_str().ok_or_else(|| path.field("key").error("is required"))?.to_owned();
        let operator = match item["operator"].as_str() {
            Some("In") => Operator::In,
            Some("NotIn") => Operator::NotIn,
            Some("Exists") => Operator::Exists,
            Some("DoesNotExist") => Operator::DoesNotExist,
            Some("Gt") if numeric => Operator::Gt,
            Some("Lt") if numeric => Operator::Lt,
            _ => return Err(path.field("operator").error("must be one of In, NotIn, Exists, DoesNotExist")),
        };
        let values: Vec<String> = item["values"]
            .as_array()
            .map(|v| v.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
            .unwrap_or_default();
        if values.is_empty() != matches!(operator, Operator::Exists | Operator::DoesNotExist) {
            return Err(path
                .field("values")
                .error("is required for In and NotIn, forbidden for Exists and DoesNotExist"));
        }
        if !numeric {
            checked(&key, values.iter().map(String::as_str), &path)?;
        }
        all.push(Requirement { key, operator, values });
    }
    Ok(())
}

/// Refuses keys and values that no label has.
fn checked<'v>(key: &str, values: impl IntoIterator<Item = &'v str>, path: &Path) -> Result<(), FieldError> {
    let word = |text: &str| {
        let letter = |b: u8| b.is_ascii_alphanumeric();
        let ends = text.bytes().next().is_some_and(letter) && text.bytes().last().is_some_and(letter);
        ends && text.len() <= 63 && text.bytes().all(|b| letter(b) || b"-_.".contains(&b))
    };
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    let domain = prefix.len() <= 253
        && prefix
            .split('.')
            .all(|l| word(l) && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
    if !domain || !word(name) {
        return Err(path.error(format!("{key:?} is no key of a label")));
    }
    match values.into_iter().find(|value| !value.is_empty() && !word(value)) {
        Some(value) => Err(path.error(format!("{value:?} is no value of a label"))),
        None => Ok(()),
    }
}

/// Where a resource can be used: one of the terms must hold of a node ([`node_of`]), in its labels and its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topology {
    any: Vec<Selector>,
}

impl Topology {
    /// Reads `nodeSelectorTerms`; a term without requirements holds nowhere, as in Kubernetes.
    pub fn from_terms(terms: &Value, path: &Path) -> Result<Topology, FieldError> {
        let list = terms.as_array().ok_or_else(|| path.error("must be a list"))?;
        let mut any = Vec::new();
        for (index, term) in list.iter().enumerate() {
            let path = path.index(index);
            let mut all = Vec::new();
            if let Some(expressions) = term.get("matchExpressions").filter(|v| !v.is_null()) {
                requirements(expressions, &path.field("matchExpressions"), true, &mut all)?;
            }
            if let Some(fields) = term.get("matchFields").filter(|v| !v.is_null()) {
                let first = all.len();
                requirements(fields, &path.field("matchFields"), true, &mut all)?;
                all.iter_mut().skip(first).for_each(|requirement| requirement.key = field_key(&requirement.key));
            }
            if !all.is_empty() {
                any.push(Selector { all });
            }
        }
        Ok(Topology { any })
    }

    /// Whether a node can use the resource.
    pub fn reaches(&self, node: &[(Arc<str>, Arc<str>)]) -> bool {
        self.any.iter().any(|term| term.matches(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors() {
        let labels = labels_of(Some(&json!({"environment": "dev", "tier": "2"})));
        let check = |selector: Value, expected: bool| {
            let read = Selector::from_json(&selector, &Path::root()).unwrap_or_else(|e| panic!("{selector}: {e}"));
            assert_eq!(read.matches(&labels), expected, "{selector}");
        };
        check(json!({}), true);
        check(json!({"matchLabels": {"environment": "dev"}}), true);
        check(json!({"matchLabels": {"environment": "prod"}}), false);
        check(json!({"matchExpressions": [{"key": "environment", "operator": "In", "values": ["dev"]}]}), true);
        check(json!({"matchExpressions": [{"key": "environment", "operator": "NotIn", "values": ["dev"]}]}), false);
        check(json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}), true);
        check(json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false);
        check(json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}), true);
    }

    #[test]
    fn errors_name_the_field() {
        let check = |selector: Value, field: &str| {
            let error = Selector::from_json(&selector, &Path::root().field("selector")).expect_err("refused");
            assert_eq!(error.field, field);
        };
        check(json!([]), "selector");
        check(json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}), "selector.matchExpressions[0].operator");
        check(json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), "selector.matchExpressions[0].values");
        check(json!({"matchLabels": {"a": 1}}), "selector.matchLabels.a");
    }

    #[test]
    fn topology_is_any_of_its_terms() {
        let terms = json!([
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
            {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]},
            {},
        ]);
        let topology = Topology::from_terms(&terms, &Path::root()).expect("terms");
        assert!(topology.reaches(&labels_of(Some(&json!({"zone": "a"})))));
        assert!(topology.reaches(&labels_of(Some(&json!({"cores": "8"})))));
        assert!(!topology.reaches(&labels_of(Some(&json!({"cores": "2", "zone": "b"})))));
    }

    #[test]
    fn a_term_holds_in_labels_and_fields() {
        let on = |names: &[&str]| json!([{"key": "metadata.name", "operator": "In", "values": names}]);
        let in_zone = json!([{"key": "zone", "operator": "In", "values": ["a"]}]);
        let node =
            |name: &str| json!({"metadata": {"name": name, "labels": {"zone": "a", "metadata.name": "n9", "b": "c"}}});
        let check = |terms: Value, name: &str, expected: bool| {
            let topology = Topology::from_terms(&terms, &Path::root()).expect("terms");
            assert_eq!(topology.reaches(&node_of(&node(name))), expected, "{terms} {name}");
        };
        check(json!([{"matchFields": on(&["n1"])}]), "n1", true);
        check(json!([{"matchFields": on(&["n1"])}]), "n2", false);
        check(json!([{"matchFields": on(&["n9"])}]), "n1", false);
        check(json!([{"matchFields": on(&["n1"]), "matchExpressions": in_zone}]), "n1", true);
        check(json!([{"matchFields": on(&["n2"]), "matchExpressions": in_zone}]), "n1", false);
        check(json!([{"matchFields": on(&["n2"])}, {"matchExpressions": in_zone}]), "n1", true);
    }
}
