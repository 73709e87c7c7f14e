//! What must hold for any sequence of writes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::raw;
use super::testing::SAMPLE;
use super::types::Type;
use super::{ApplyError, Conflict, FieldSet, Path, compare, merge, remove_items, to_field_set};

const NOW: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T03:05:05Z";

fn text() -> impl Strategy<Value = Value> {
    prop_oneof!["x", "y"].prop_map(Value::from)
}

fn optional(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let each: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| prop::option::of(value).prop_map(move |value| value.map(|value| (name.to_owned(), value))))
        .collect();
    each.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>())).boxed()
}

/// A configuration without nulls and empty objects, as people write them.
fn config() -> BoxedStrategy<Value> {
    let texts = prop::collection::btree_map("[abc]", text(), 1..3).prop_map(|m| json!(m)).boxed();
    let zones = prop::sample::subsequence(vec!["p", "q", "r"], 1..=3).prop_shuffle().prop_map(|z| json!(z)).boxed();
    let port = (80..83, prop::option::of("TCP|UDP"), prop::option::of(text())).prop_map(|(port, protocol, name)| {
        let mut item = json!({"port": port});
        if let Some(protocol) = protocol {
            item["protocol"] = json!(protocol);
        }
        if let Some(name) = name {
            item["name"] = name;
        }
        item
    });
    let ports = prop::collection::vec(port, 1..4).prop_map(|ports| {
        let mut seen = Vec::new();
        let fresh = |port: &Value| {
            let key = (port["port"].clone(), port.get("protocol").cloned().unwrap_or(json!("TCP")));
            let new = !seen.contains(&key);
            seen.push(key);
            new
        };
        Value::Array(ports.into_iter().filter(fresh).collect())
    });
    let spec = optional(vec![
        ("replicas", (1..4).prop_map(Value::from).boxed()),
        ("name", text().boxed()),
        ("selector", texts.clone()),
        ("template", text().prop_map(|image| json!({"image": image})).boxed()),
        ("args", prop::collection::vec(text(), 1..3).prop_map(Value::Array).boxed()),
        ("zones", zones),
        ("ports", ports.boxed()),
        ("free", text().prop_map(|x| json!({"m": {"n": x}, "l": [1, 2]})).boxed()),
    ]);
    let spec = spec.prop_filter("not empty", |spec| spec.as_object().is_some_and(|spec| !spec.is_empty()));
    optional(vec![("data", texts), ("spec", spec.boxed())])
        .prop_map(|mut body| {
            body["apiVersion"] = json!("v1");
            body["kind"] = json!("Sample");
            body["metadata"] = json!({"name": "a"});
            body
        })
        .boxed()
}

fn apply(live: Option<&Value>, config: &Value, manager: &str, force: bool, now: &str) -> Result<Value, ApplyError> {
    SAMPLE.tracker().apply(live, config, manager, force, now)
}

fn entries(object: &Value) -> Vec<(String, String, FieldSet)> {
    let managed = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    managed
        .iter()
        .map(|e| (text(e, "manager"), text(e, "operation"), FieldSet::from_json(&e["fieldsV1"]).unwrap()))
        .collect()
}

fn owned_by(object: &Value, manager: &str) -> FieldSet {
    entries(object).into_iter().filter(|e| e.0 == manager).fold(FieldSet::new(), |all, e| all.union(&e.2))
}

fn content(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    object
}

/// Some object that several have applied to and updated.
fn history() -> BoxedStrategy<Value> {
    prop::collection::vec((config(), 0..4usize), 1..5)
        .prop_map(|steps| {
            let mut live: Option<Value> = None;
            for (config, who) in steps {
                let mut next = if who == 3 {
                    let mut new = config;
                    let _ = SAMPLE.tracker().update(live.as_ref(), &mut new, "updater", NOW);
                    new
                } else {
                    apply(live.as_ref(), &config, ["a", "b", "c"][who], true, NOW).unwrap()
                };
                next["metadata"]["uid"] = json!("u");
                live = Some(next);
            }
            live.unwrap()
        })
        .boxed()
}

fn tree() -> BoxedStrategy<Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 12, 3, |inner| {
        let keys =
            prop_oneof!["f:[ab]", Just("k:{\"a\":1}".to_owned()), Just("v:\"x\"".to_owned()), Just(".".to_owned())];
        prop::collection::btree_map(keys, inner, 0..3).prop_map(|mut map| {
            if let Some(own) = map.get_mut(".") {
                *own = json!({});
            }
            json!(map)
        })
    })
    .boxed()
}

fn canonical(tree: &Value) -> (FieldSet, Value) {
    let set = FieldSet::from_json(tree).unwrap();
    let json = set.to_json();
    (set, json)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_changes_nothing(live in history(), config in config()) {
        let once = apply(Some(&live), &config, "a", true, NOW).unwrap();
        let twice = apply(Some(&once), &config, "a", false, LATER).unwrap();
        // A field without a schema whose last owners let go of all in it stays as null, and both servers refuse the object:
        // there is no second apply.
        prop_assume!(once.pointer("/spec/free") != Some(&Value::Null));
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn managers_own_exactly_what_they_apply(live in history(), config in config()) {
        let applied = apply(Some(&live), &config, "new", true, NOW).unwrap();
        let mentioned = to_field_set(&config, SAMPLE.schema());
        let identity = FieldSet::of_fields(&[&["apiVersion"], &["kind"], &["metadata", "name"]]);
        prop_assert_eq!(owned_by(&applied, "new"), mentioned.difference(&identity));
        // And what is applied is there.
        prop_assert_eq!(merge(&applied, &config, SAMPLE.schema()).unwrap(), applied);
    }

    #[test]
    fn what_others_own_changes_only_by_force(live in history(), config in config()) {
        let others = ["b", "c", "updater"].iter().fold(FieldSet::new(), |all, who| all.union(&owned_by(&live, who)));
        match apply(Some(&live), &config, "a", false, NOW) {
            Ok(applied) => {
                let changed = compare(&content(&live), &content(&applied), SAMPLE.schema()).unwrap();
                prop_assert!(changed.modified.intersection(&others).is_empty());
                // In a field without a schema, who owned a whole value and lets go of it takes along what others have put below
                // since, as seen on a real kube-apiserver.
                let own = owned_by(&live, "a");
                let along = |path: &Path| (1..path.0.len()).any(|depth| own.has(&Path(path.0[..depth].to_vec())));
                let gone = changed.removed.intersection(&others).paths();
                let gone: Vec<String> = gone.iter().filter(|path| !along(path)).map(Path::to_string).collect();
                prop_assert!(gone.is_empty(), "{:?}", gone);
            }
            Err(ApplyError::Conflicts(conflicts)) => {
                // An object whose managers all let go of everything is untracked: the first apply finds that out.
                let untracked = |c: &Conflict| c.manager.manager == "before-first-apply";
                prop_assert!(!conflicts.is_empty() && conflicts.iter().all(|c| others.has(&c.path) || untracked(c)));
                prop_assert!(apply(Some(&live), &config, "a", true, NOW).is_ok());
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn what_nobody_owns_is_not_removed(live in history(), config in config()) {
        // Defaults and admission put things there that have no owner.
        let mut live = live;
        if !live.get("data").is_some_and(Value::is_object) {
            live["data"] = json!({});
        }
        live["data"]["nobody's"] = json!("kept");
        if let Some(Value::Array(ports)) = live.pointer_mut("/spec/ports") {
            ports.push(json!({"port": 9999, "protocol": "TCP", "name": "nobody's"}));
        }
        let root = Type::root(SAMPLE.schema());
        let new = to_field_set(&config, SAMPLE.schema());
        let (had, has) = (owned_by(&live, "a").with_named_fields(root), new.with_named_fields(root));
        let applied = apply(Some(&live), &config, "a", true, NOW).unwrap();
        let removed = compare(&content(&live), &content(&applied), SAMPLE.schema()).unwrap().removed.leaves();
        // A declared field goes with the last that its applier had in it, and takes along what nobody owns, as seen on a
        // real kube-apiserver; so does a value that is replaced as a whole.
        let along = |part: Path| had.has(&part) && !has.has(&part) || new.has(&part);
        let goes = |path: &Path| (1..=path.0.len()).any(|depth| along(Path(path.0[..depth].to_vec())));
        let gone: Vec<String> = removed.paths().iter().filter(|path| !goes(path)).map(Path::to_string).collect();
        prop_assert!(gone.is_empty(), "{:?}", gone);
    }

    #[test]
    fn disjoint_managers_may_come_in_any_order(value in text(), data in text(), first in history()) {
        let one = json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a"}, "data": {"one": value}});
        let two = json!({"apiVersion": "v1", "kind": "Sample", "metadata": {"name": "a"}, "data": {"two": data}});
        let both = |a: (&str, &Value), b: (&str, &Value)| {
            let live = apply(Some(&first), a.1, a.0, false, NOW).unwrap();
            apply(Some(&live), b.1, b.0, false, NOW).unwrap()
        };
        prop_assert_eq!(both(("x", &one), ("y", &two)), both(("y", &two), ("x", &one)));
    }

    #[test]
    fn comparing_is_exact(left in history(), right in history()) {
        let (left, right) = (content(&left), content(&right));
        let found = compare(&left, &right, SAMPLE.schema()).unwrap();
        prop_assert_eq!(found.is_same(), left == right);
        let back = compare(&right, &left, SAMPLE.schema()).unwrap();
        prop_assert_eq!(&found.added, &back.removed);
        prop_assert_eq!(&found.modified, &back.modified);
        prop_assert!(!found.added.intersects(&found.removed) && !found.added.intersects(&found.modified));
    }

    #[test]
    fn removing_all_that_is_mentioned_leaves_nothing_mentioned(live in history()) {
        let live = content(&live);
        let all = to_field_set(&live, SAMPLE.schema());
        let left = remove_items(&live, &all, SAMPLE.schema());
        let mentioned = to_field_set(&left, SAMPLE.schema());
        prop_assert!(!mentioned.leaves().intersects(&all.leaves()));
    }

    #[test]
    fn json_of_sets_is_edited_as_sets_are(left in tree(), right in tree()) {
        let ((a, mut a_json), (b, b_json)) = (canonical(&left), canonical(&right));
        prop_assert_eq!(raw::shares_member(&a_json, &b_json), a.intersects(&b));
        prop_assert_eq!(raw::covers(&a_json, &b_json), b.difference(&a).is_empty());
        let mut joined = a_json.clone();
        raw::add(&mut joined, &b_json);
        prop_assert_eq!(joined, a.union(&b).to_json());
        raw::subtract(&mut a_json, &b_json);
        prop_assert_eq!(a_json, a.difference(&b).to_json());
        prop_assert_eq!(a.intersection(&b), a.difference(&a.difference(&b)));
    }
}
