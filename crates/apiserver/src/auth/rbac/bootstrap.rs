//! The roles and bindings that every server has: made at the first start, completed at later ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::status::Status;
use serde_json::{Map, Value, json};
use store::{Entry, Expect, Op, Transaction};

use super::rule::Rule;
use super::{GROUP, aggregation};
use crate::plan::{commit_status, parse_stored};
use crate::server::Server;

const POLICY: &str = include_str!("policy.txt");
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// One object of the policy.
#[derive(Debug)]
struct Wanted {
    plural: &'static str,
    key: String,
    object: Value,
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(|item| if item == "core" { String::new() } else { item.to_owned() }).collect()
}

fn rule(line: &str) -> Rule {
    let cells: Vec<&str> = line.split_whitespace().collect();
    match cells.as_slice() {
        [verbs, paths] => Rule { verbs: list(verbs), paths: list(paths), ..Rule::default() },
        [verbs, groups, resources, names @ ..] => Rule {
            verbs: list(verbs),
            groups: list(groups),
            resources: list(resources),
            names: names.first().map(|names| list(names)).unwrap_or_default(),
            ..Rule::default()
        },
        _ => Rule::default(),
    }
}

fn reference(cell: &str, subject: bool) -> Value {
    let (kind, name) = cell.split_once('=').unwrap_or(("", cell));
    match (kind, name.split_once('/')) {
        ("ServiceAccount", Some((namespace, name))) if subject => {
            json!({"kind": kind, "namespace": namespace, "name": name})
        }
        _ => json!({"apiGroup": GROUP, "kind": kind, "name": name}),
    }
}

/// Reads the policy. Whatever is wrong with it, a test finds it.
fn policy(text: &str) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with(' ') {
            if let Some(rules) = all.last_mut().and_then(|wanted| wanted.object["rules"].as_array_mut()) {
                rules.push(rule(line).to_json());
            }
            continue;
        }
        let cells: Vec<&str> = line.split_whitespace().collect();
        let [kind, key, rest @ ..] = cells.as_slice() else { continue };
        let plural = match *kind {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            "ClusterRoleBinding" => "clusterrolebindings",
            "RoleBinding" => "rolebindings",
            _ => continue,
        };
        let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let mut selectors = Vec::new();
        let in_namespace = matches!(*kind, "Role" | "RoleBinding");
        let mut object = json!({"kind": kind, "apiVersion": format!("{GROUP}/v1"), "metadata": {}});
        if kind.ends_with("Binding") {
            let [role, subjects @ ..] = rest else { continue };
            object["roleRef"] = reference(role, false);
            object["subjects"] = subjects.iter().map(|subject| reference(subject, true)).collect();
        } else {
            object["rules"] = json!([]);
            for cell in rest {
                if let Some(label) = cell.strip_prefix('+') {
                    labels[format!("{GROUP}/{label}")] = "true".into();
                } else if let Some(label) = cell.strip_prefix('<') {
                    selectors.push(json!({"matchLabels": {format!("{GROUP}/{label}"): "true"}}));
                }
            }
        }
        if !selectors.is_empty() {
            object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        let meta = &mut object["metadata"];
        match key.split_once('/') {
            Some((namespace, name)) if in_namespace => {
                meta["name"] = name.into();
                meta["namespace"] = namespace.into();
            }
            _ => meta["name"] = (*key).into(),
        }
        meta["labels"] = labels;
        meta["annotations"] = json!({AUTOUPDATE: "true"});
        all.push(Wanted { plural, key: (*key).to_owned(), object });
    }
    let mut roles: BTreeMap<String, Value> = all
        .iter()
        .filter(|wanted| wanted.plural == "clusterroles")
        .map(|wanted| (wanted.key.clone(), wanted.object.clone()))
        .collect();
    aggregation::settle(&mut roles);
    for wanted in all.iter_mut().filter(|wanted| wanted.object.get("aggregationRule").is_some()) {
        if let Some(role) = roles.remove(&wanted.key) {
            wanted.object = role;
        }
    }
    all
}

/// The rules of one of its roles.
pub fn rules_of(role: &str) -> Vec<Rule> {
    let wanted = policy(POLICY).into_iter().find(|wanted| wanted.plural == "clusterroles" && wanted.key == role);
    let rules = wanted.map(|mut wanted| wanted.object["rules"].take()).unwrap_or_default();
    rules.as_array().into_iter().flatten().map(Rule::from_json).collect()
}

/// Makes what is missing, in one commit.
pub async fn run(server: &Server) -> Result<(), Status> {
    let store = server.store();
    let catalog = server.0.catalog();
    let now = server.0.now();
    let mut ops = Vec::new();
    for wanted in policy(POLICY) {
        let Some(resource) = catalog.find(GROUP, "v1", wanted.plural) else { continue };
        let current: Option<Arc<Entry>> = store.get(&resource.table, &wanted.key);
        let (object, expect) = match current {
            None => {
                let from = splits_off(&wanted).and_then(|from| store.get(&resource.table, from));
                let mut object = match from {
                    Some(from) => inherited(wanted.object, &parse_stored(&from)?),
                    None => wanted.object,
                };
                let fields = owned(&object);
                let meta = &mut object["metadata"];
                meta["uid"] = server.0.new_uid().into();
                meta["creationTimestamp"] = now.as_str().into();
                meta["managedFields"] = json!([{
                    "manager": "kube-apiserver", "operation": "Update", "apiVersion": format!("{GROUP}/v1"),
                    "time": now, "fieldsType": "FieldsV1", "fieldsV1": fields,
                }]);
                (object, Expect::Absent)
            }
            Some(entry) => match completed(&parse_stored(&entry)?, &wanted.object) {
                Some(object) => (object, Expect::Revision(entry.revision)),
                None => continue,
            },
        };
        ops.push(Op::put(resource.table.clone(), wanted.key, resource.encode(&object), expect));
    }
    if !ops.is_empty() {
        store.commit(Transaction { ops }).await.map_err(commit_status)?;
    }
    Ok(())
}

/// The binding that one was a part of: where administrators keep the old one as they made it, whom they took out is not to come
/// back by the new one, and whom they added is in both.
fn splits_off(wanted: &Wanted) -> Option<&'static str> {
    let is_part = wanted.plural == "clusterrolebindings" && wanted.key == "system:public-info-viewer";
    is_part.then_some("system:discovery")
}

/// A binding for those of another one, said about as that one is.
fn inherited(wanted: Value, from: &Value) -> Value {
    let mut object = wanted.clone();
    copy(&mut object, from, "subjects");
    for part in ["labels", "annotations"] {
        copy(&mut object["metadata"], &from["metadata"], part);
    }
    completed(&object, &wanted).unwrap_or(object)
}

/// Gives an object the field of another one, or takes it away.
fn copy(object: &mut Value, from: &Value, field: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    match from.get(field).filter(|value| !value.is_null()) {
        Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
        None => drop(fields.remove(field)),
    }
}

/// The fields that a new object sets, as `managedFields` name them. All lists of these kinds are atomic.
fn owned(object: &Value) -> Value {
    let mut fields = Map::new();
    let keys = |map: &Value| {
        let mut own: Map<String, Value> = Map::from_iter([(".".to_owned(), json!({}))]);
        own.extend(map.as_object().into_iter().flatten().map(|(key, _)| (format!("f:{key}"), json!({}))));
        Value::Object(own)
    };
    let meta = &object["metadata"];
    fields.insert(
        "f:metadata".into(),
        json!({"f:annotations": keys(&meta["annotations"]), "f:labels": keys(&meta["labels"])}),
    );
    if object.get("aggregationRule").is_some() {
        fields.insert("f:aggregationRule".into(), json!({".": {}, "f:clusterRoleSelectors": {}}));
    }
    for field in ["roleRef", "rules", "subjects"] {
        if object.get(field).is_some() {
            fields.insert(format!("f:{field}"), json!({}));
        }
    }
    fields.into()
}

/// A stored object with what it lacks of the wanted one; `None` if it lacks nothing or must not be touched. More than is
/// wanted may stay: administrators may have added it.
fn completed(current: &Value, wanted: &Value) -> Option<Value> {
    if current["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return None;
    }
    let mut object = current.clone();
    for part in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][part].as_object().into_iter().flatten() {
            if object["metadata"][part].get(key).is_none() {
                object["metadata"][part][key] = value.clone();
            }
        }
    }
    if object["roleRef"] != wanted["roleRef"] {
        object["roleRef"] = wanted["roleRef"].clone();
    }
    let mut complete = |pointer: &str| {
        for item in wanted.pointer(pointer).and_then(Value::as_array).into_iter().flatten() {
            match object.pointer_mut(pointer) {
                Some(Value::Array(own)) if own.contains(item) => {}
                Some(Value::Array(own)) => own.push(item.clone()),
                _ => crate::verbs::subresources::set_pointer(&mut object, pointer, json!([item])),
            }
        }
    };
    complete("/subjects");
    complete("/aggregationRule/clusterRoleSelectors");
    if wanted.get("aggregationRule").is_none() {
        let own: Vec<Rule> = object["rules"].as_array().into_iter().flatten().map(Rule::from_json).collect();
        let missing: Vec<Value> = wanted["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|rule| !Rule::from_json(rule).atoms().all(|atom| own.iter().any(|own| own.covers(&atom))))
            .cloned()
            .collect();
        if !missing.is_empty() {
            let mut rules = object["rules"].as_array().cloned().unwrap_or_default();
            rules.extend(missing);
            object["rules"] = rules.into();
        }
    }
    (object != *current).then_some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_whole_and_valid() {
        let all = policy(POLICY);
        let count = |plural: &str| all.iter().filter(|wanted| wanted.plural == plural).count();
        assert_eq!(["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(count), [69, 50, 7, 7]);
        for wanted in &all {
            let kind = wanted.object["kind"].as_str().unwrap();
            let errors = kinds::validate::create(GROUP, kind, &wanted.object);
            assert!(errors.is_empty(), "{}: {errors:?}", wanted.key);
            assert_eq!(completed(&wanted.object, &wanted.object), None, "{}", wanted.key);
        }
        let rules = |name: &str| {
            let role = all.iter().find(|wanted| wanted.plural == "clusterroles" && wanted.key == name).unwrap();
            role.object["rules"].as_array().unwrap().len()
        };
        assert!(rules("view") > 5 && rules("edit") > rules("view") && rules("admin") > rules("edit"));
        assert_eq!(rules("cluster-admin"), 2);
    }

    #[test]
    fn what_is_missing_comes_back_and_what_was_added_stays() {
        let all = policy(POLICY);
        let wanted = &all
            .iter()
            .find(|wanted| wanted.key == "system:basic-user" && wanted.plural == "clusterroles")
            .unwrap()
            .object;
        let mut current = wanted.clone();
        let extra = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        current["rules"] = json!([extra]);
        current["metadata"].as_object_mut().unwrap().remove("labels");
        let fixed = completed(&current, wanted).unwrap();
        assert_eq!(fixed["rules"].as_array().unwrap().len(), 1 + wanted["rules"].as_array().unwrap().len());
        assert_eq!(fixed["metadata"]["labels"], wanted["metadata"]["labels"]);
        current["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(completed(&current, wanted), None);
        let binding = &all
            .iter()
            .find(|wanted| wanted.key == "system:discovery" && wanted.plural == "clusterrolebindings")
            .unwrap()
            .object;
        let mut current = binding.clone();
        current["subjects"] = json!([{"apiGroup": GROUP, "kind": "User", "name": "me"}]);
        assert_eq!(completed(&current, binding).unwrap()["subjects"].as_array().unwrap().len(), 2);
        let wanted = all.iter().find(|wanted| splits_off(wanted).is_some()).unwrap().object.clone();
        assert_eq!(inherited(wanted.clone(), &current)["subjects"].as_array().unwrap().len(), 3);
        current["metadata"]["annotations"] = json!({AUTOUPDATE: "false", "why": "mine"});
        let mut bare = current.clone();
        bare.as_object_mut().unwrap().remove("subjects");
        bare["metadata"].as_object_mut().unwrap().remove("labels");
        let own = inherited(wanted.clone(), &bare);
        assert_eq!((own.get("subjects"), own["metadata"].get("labels")), (None, None), "there is none, not a null");
        let own = inherited(wanted, &current);
        assert_eq!(
            (&own["subjects"], &own["metadata"]["annotations"]),
            (&current["subjects"], &current["metadata"]["annotations"])
        );
        assert_eq!(
            (&own["metadata"]["name"], &own["roleRef"]["name"]),
            (&json!("system:public-info-viewer"), &json!("system:public-info-viewer"))
        );
    }
}
