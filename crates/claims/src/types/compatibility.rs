//! What a change of a ResourceType may do: add and loosen. Everything else needs a new version.

use crate::errors::{FieldError, Path};
use crate::rules::{Attribute, Match};
use crate::types::model::ResourceType;

/// Everything in a changed type that objects of the old one would not survive.
pub fn incompatibilities(old: &ResourceType, new: &ResourceType) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::root().field("spec");
    let mut same = |name: &str, old: &dyn std::fmt::Debug, new: &dyn std::fmt::Debug| {
        if format!("{old:?}") != format!("{new:?}") {
            errors.push(spec.field(name).error(format!("may not change from {old:?} to {new:?}: make a new type")));
        }
    };
    same("group", &old.group, &new.group);
    same("version", &old.version, &new.version);
    same("names.resource", &old.names.resource, &new.names.resource);
    same("names.claim", &old.names.claim, &new.names.claim);
    same("names.class", &old.names.class, &new.names.class);

    let path = spec.field("attributes");
    for before in &old.attributes {
        let path = path.field(&before.name);
        match new.attributes.iter().find(|a| a.name == before.name) {
            None => errors.push(path.error("may not be removed: objects have it")),
            Some(after) => attribute(before, after, &path, &mut errors),
        }
    }
    for added in new.attributes.iter().filter(|a| a.required && !old.attributes.iter().any(|b| b.name == a.name)) {
        errors.push(
            path.field(&added.name).field("required").error("a new attribute may not be required: resources lack it"),
        );
    }

    let path = spec.field("capacities");
    for (position, before) in old.capacities.iter().enumerate() {
        let path = path.field(&before.name);
        match new.capacities.iter().position(|c| c.name == before.name) {
            None => errors.push(path.error("may not be removed: objects have it")),
            Some(now) if now != position => {
                errors.push(
                    path.field("order").error("may not change: it decides which fit is tightest; add new ones last"),
                );
            }
            Some(now) if new.capacities[now].exact && !before.exact => {
                errors.push(path.field("match").error("may not change from AtLeast to Equal"));
            }
            Some(_) => {}
        }
    }
    if let Some(mode) = old.access_modes.iter().find(|m| !new.access_modes.contains(m)) {
        errors.push(spec.field("accessModes").error(format!("{mode:?} may not be removed: objects have it")));
    }
    if new.max_claims < old.max_claims {
        errors.push(
            spec.field("sharing.maxClaims")
                .error(format!("may not shrink below {}: as many may be bound", old.max_claims)),
        );
    }
    for policy in old.reclaim_policies.iter().filter(|p| !new.reclaim_policies.contains(p)) {
        errors.push(
            spec.field("reclaimPolicies").error(format!("{} may not be removed: objects have it", policy.name())),
        );
    }
    errors
}

fn attribute(old: &Attribute, new: &Attribute, path: &Path, errors: &mut Vec<FieldError>) {
    if old.kind != new.kind {
        errors.push(path.field("type").error("may not change"));
    }
    if old.matching != new.matching {
        errors.push(path.field("match").error(format!(
            "may not change from {} to {}",
            old.matching.name(),
            new.matching.name()
        )));
    }
    if new.required && !old.required {
        errors.push(path.field("required").error("may not become true: resources may lack it"));
    }
    if old.alias.is_some() && old.alias != new.alias {
        errors.push(path.field("alias").error("may not change or go: objects may use it"));
    }
    let kept: Vec<_> = new.values.iter().filter(|v| old.values.contains(v)).collect();
    let ordered = matches!(old.matching, Match::AtLeast | Match::AtMost);
    let narrowed = match (old.values.is_empty(), new.values.is_empty()) {
        (true, narrow) => !narrow,
        (false, true) => ordered,
        (false, false) => kept.len() != old.values.len() || (ordered && !kept.iter().copied().eq(old.values.iter())),
    };
    if narrowed {
        errors.push(path.field("values").error("may only grow, and keep their order"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn base() -> Value {
        json!({"spec": {
            "group": "a.example.com", "version": "v1", "names": {"resource": "Thing"},
            "attributes": {
                "engine": {"type": "string", "required": true},
                "tier": {"type": "string", "match": "AtLeast", "values": ["bronze", "gold"]},
            },
            "capacities": {"storage": {}},
            "sharing": {"maxClaims": 4},
            "reclaimPolicies": ["Delete", "Retain"],
        }})
    }

    fn check(change: impl Fn(&mut Value), refused: Option<&str>) {
        let mut changed = base();
        change(&mut changed["spec"]);
        let old = ResourceType::parse(&base()).expect("the old type");
        let new = ResourceType::parse(&changed).unwrap_or_else(|e| panic!("{e:?}"));
        let errors = incompatibilities(&old, &new);
        assert_eq!(errors.first().map(|e| e.field.as_str()), refused, "{errors:?}");
    }

    #[test]
    fn a_type_may_add_and_loosen() {
        check(|_| {}, None);
        check(|s| s["attributes"]["region"] = json!({}), None);
        check(|s| s["attributes"]["engine"]["required"] = json!(false), None);
        check(|s| s["attributes"]["engine"]["alias"] = json!("db-engine"), None);
        check(|s| s["attributes"]["tier"]["values"] = json!(["bronze", "silver", "gold"]), None);
        check(|s| s["capacities"]["tapes"] = json!({}), None);
        check(|s| s["sharing"]["maxClaims"] = json!(8), None);
        check(|s| s["reclaimPolicies"] = json!(["Delete", "Retain", "Recycle"]), None);
    }

    #[test]
    fn anything_else_needs_a_new_version() {
        check(|s| s["version"] = json!("v2"), Some("spec.version"));
        check(|s| s["names"]["claim"] = json!("Want"), Some("spec.names.claim"));
        check(|s| s["attributes"] = json!({"tier": s["attributes"]["tier"]}), Some("spec.attributes.engine"));
        check(|s| s["attributes"]["engine"]["type"] = json!("boolean"), Some("spec.attributes.engine.type"));
        check(|s| s["attributes"]["engine"]["match"] = json!("In"), Some("spec.attributes.engine.match"));
        check(|s| s["attributes"]["tier"]["required"] = json!(true), Some("spec.attributes.tier.required"));
        check(|s| s["attributes"]["new"] = json!({"required": true}), Some("spec.attributes.new.required"));
        check(|s| s["attributes"]["tier"]["values"] = json!(["gold", "bronze"]), Some("spec.attributes.tier.values"));
        check(|s| s["attributes"]["engine"]["values"] = json!(["mysql"]), Some("spec.attributes.engine.values"));
        check(|s| s["capacities"] = json!({}), Some("spec.capacities.storage"));
        check(|s| s["capacities"]["aaa"] = json!({}), Some("spec.capacities.storage.order"));
        check(|s| s["sharing"]["maxClaims"] = json!(2), Some("spec.sharing.maxClaims"));
        check(|s| s["reclaimPolicies"] = json!(["Delete"]), Some("spec.reclaimPolicies"));
    }
}
