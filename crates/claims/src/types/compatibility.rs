//! What a change of a ResourceType may do: add and loosen, with or without a new version, and take away what no object has. Earlier versions
//! are served on, with the fields of the newest, so that no object loses anything; whatever would needs a type of another name.

use serde_json::Value;

use crate::errors::{FieldError, Path};
use crate::extract::class_fields;
use crate::rules::{Attribute, Match};
use crate::types::model::ResourceType;
use crate::views::Reclaim;

/// Something in a changed type that objects of the old one may not survive.
pub struct Break {
    error: FieldError,
    /// Whether an object stands in the way; without it, nothing helps.
    hinders: Option<Box<dyn Fn(&Value, What) -> bool + Send + Sync>>,
}

/// What an object is to its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Resource,
    Claim,
    Class,
}

/// What of a type's objects would not survive a change, given all of them; `None`: they could not be looked at.
pub fn incompatibilities(old: &ResourceType, new: &ResourceType, objects: Option<&[Value]>) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = breaks(old, new).into_iter().filter_map(|b| b.judge(old, objects)).collect();
    if let Some(last) = errors.last_mut() {
        last.message += " (a type may add and loosen, take away what no object has, and change spec.version with that, the earlier \
                         version being served on: for anything else make a type with other names)";
    }
    errors
}

impl Break {
    fn judge(self, kind: &ResourceType, objects: Option<&[Value]>) -> Option<FieldError> {
        let Break { mut error, hinders } = self;
        let (Some(hinders), Some(objects)) = (hinders, objects) else { return Some(error) };
        let names = &kind.names;
        let whats = [(What::Claim, &names.claim), (What::Resource, &names.resource), (What::Class, &names.class)];
        let mut counted = Vec::new();
        for (what, name) in whats {
            let own = objects.iter().filter(|o| o["kind"].as_str() == Some(name));
            let mut hindering = own.filter(|object| hinders(object, what));
            let Some(first) = hindering.next() else { continue };
            let called = [&first["metadata"]["namespace"], &first["metadata"]["name"]];
            let called = called.into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join("/");
            counted.push(match hindering.count() {
                0 => format!("{name} {called}"),
                more => format!("{name} {called} and {more} more"),
            });
        }
        let counted = (!counted.is_empty()).then(|| counted.join(", "))?;
        error.message = format!("{} (those that do: {counted}; change or delete them first)", error.message);
        Some(error)
    }
}

/// The part of an object that says attributes.
fn said(object: &Value, what: What) -> &Value {
    match what {
        What::Class => &class_fields(object)["offers"],
        What::Resource | What::Claim => &object["spec"],
    }
}

/// Whether an object has an attribute under any of its names; a class, too, if it speaks of it.
fn has(attribute: &Attribute) -> impl Fn(&Value, What) -> bool + Send + Sync + use<> {
    let names: Vec<String> =
        [Some(&attribute.name), attribute.alias.as_ref()].into_iter().flatten().map(ToString::to_string).collect();
    move |object, what| {
        names.iter().any(|name| !said(object, what)[name].is_null() || speaks_of(object, &["spec"], name))
    }
}

/// Whether an expression somewhere in an object names a field of one of these, as in `claim.spec.engine`.
fn speaks_of(object: &Value, parents: &[&str], name: &str) -> bool {
    let own =
        object.as_object().into_iter().flatten().filter(|(key, _)| !["metadata", "status"].contains(&key.as_str()));
    own.map(|(_, value)| value.to_string()).any(|text| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].trim_end_matches(['.', '?', '[', '\'', '"', '\\']);
            let after = text[at + name.len()..].chars().next();
            before.len() < at && parents.iter().any(|parent| before.ends_with(parent)) && !after.is_some_and(word)
        })
    })
}

/// Whether an object has any of a capacity.
fn measures(name: &str) -> impl Fn(&Value, What) -> bool + Send + Sync + use<> {
    let name = name.to_owned();
    move |object, what| {
        let spec = &object["spec"];
        let given = spec["claimRefs"].as_array().into_iter().flatten().any(|r| !r["amounts"][&name].is_null());
        let places = match what {
            What::Class => vec![&class_fields(object)["offers"]["capacity"]],
            What::Claim => vec![&spec["resources"]["requests"], &spec["resources"]["limits"]],
            What::Resource => vec![&spec["capacity"]],
        };
        let parents = ["capacity", "requests", "limits"];
        given || places.iter().any(|place| !place[&name].is_null()) || speaks_of(object, &parents, &name)
    }
}

/// Whether a text, or any of several, is such.
fn any(value: &Value, is: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is(text),
        Value::Array(items) => items.iter().any(|item| any(item, is)),
        _ => false,
    }
}

fn breaks(old: &ResourceType, new: &ResourceType) -> Vec<Break> {
    let mut all = Vec::new();
    let spec = Path::root().field("spec");
    let mut same = |name: &str, old: &str, new: &str| {
        if old != new {
            let message = format!("may not change from {old:?} to {new:?}: make a new type");
            all.push(Break { error: spec.field(name).error(message), hinders: None });
        }
    };
    same("group", &old.group, &new.group);
    same("names.resource", &old.names.resource, &new.names.resource);
    same("names.claim", &old.names.claim, &new.names.claim);
    same("names.class", &old.names.class, &new.names.class);

    let path = spec.field("attributes");
    for before in &old.attributes {
        let path = path.field(&before.name);
        match new.attributes.iter().find(|a| a.name == before.name) {
            None => all.push(Break::unless(path.error("may not be removed while objects have it"), has(before))),
            Some(after) => attribute(before, after, &path, &mut all),
        }
    }
    for added in new.attributes.iter().filter(|a| a.required && !old.attributes.iter().any(|b| b.name == a.name)) {
        let error = path.field(&added.name).field("required");
        all.push(Break::unless(
            error.error("a new attribute may not be required while resources lack it"),
            lacks(added),
        ));
    }

    let path = spec.field("capacities");
    let kept: Vec<_> = old.capacities.iter().filter(|c| new.capacities.iter().any(|n| n.name == c.name)).collect();
    for before in &old.capacities {
        let path = path.field(&before.name);
        let position = kept.iter().position(|c| c.name == before.name).unwrap_or_default();
        match new.capacities.iter().position(|c| c.name == before.name) {
            None => {
                let error = path.error("may not be removed while objects have it");
                all.push(Break::unless(error, measures(&before.name)));
            }
            Some(now) if now != position => {
                let message = "may not change: it decides which fit is tightest; add new ones last";
                all.push(Break::unless(path.field("order").error(message), |_, _| true));
            }
            Some(now) if new.capacities[now].exact && !before.exact => {
                let error = path.field("match").error("may not change from AtLeast to Equal while objects have it");
                all.push(Break::unless(error, measures(&before.name)));
            }
            Some(_) => {}
        }
    }
    for mode in old.access_modes.iter().filter(|m| !new.access_modes.contains(m)) {
        let (error, mode) = (format!("{mode:?} may not be removed while objects have it"), mode.to_string());
        all.push(Break::unless(spec.field("accessModes").error(error), move |object, what| {
            let of = if what == What::Class { class_fields(object) } else { &object["spec"] };
            any(&of["accessModes"], &|text| text == mode)
        }));
    }
    if new.max_claims < old.max_claims {
        let (most, before) = (u64::from(new.max_claims), old.max_claims);
        let message = format!("may not shrink below {before} while resources have more claims, or room for them");
        all.push(Break::unless(spec.field("sharing.maxClaims").error(message), move |object, what| {
            let refs = object["spec"]["claimRefs"].as_array().map_or(0, Vec::len) as u64;
            what == What::Resource && refs > object["spec"]["maxClaims"].as_u64().unwrap_or(most)
        }));
    }
    for policy in old.reclaim_policies.iter().copied().filter(|p| !new.reclaim_policies.contains(p)) {
        let message = format!("{} may not be removed while objects have it", policy.name());
        all.push(Break::unless(spec.field("reclaimPolicies").error(message), move |object, what| {
            let (of, unsaid) = match what {
                What::Class => (class_fields(object), Reclaim::Delete),
                _ => (&object["spec"], Reclaim::Retain),
            };
            what != What::Claim && of["reclaimPolicy"].as_str().and_then(Reclaim::parse).unwrap_or(unsaid) == policy
        }));
    }
    all
}

impl Break {
    fn unless(error: FieldError, hinders: impl Fn(&Value, What) -> bool + Send + Sync + 'static) -> Break {
        Break { error, hinders: Some(Box::new(hinders)) }
    }
}

/// Whether a resource has nothing of an attribute.
fn lacks(attribute: &Attribute) -> impl Fn(&Value, What) -> bool + Send + Sync + use<> {
    let attribute = attribute.clone();
    move |object, what| {
        let value = |name: &str| object["spec"][name].is_null();
        what == What::Resource && value(&attribute.name) && attribute.alias.as_deref().is_none_or(value)
    }
}

fn attribute(old: &Attribute, new: &Attribute, path: &Path, all: &mut Vec<Break>) {
    if old.kind != new.kind {
        all.push(Break::unless(path.field("type").error("may not change while objects have it"), has(old)));
    }
    if old.matching != new.matching {
        let (from, to) = (old.matching.name(), new.matching.name());
        let message = format!("may not change from {from} to {to} while objects have it");
        all.push(Break::unless(path.field("match").error(message), has(old)));
    }
    if new.required && !old.required {
        all.push(Break::unless(
            path.field("required").error("may not become true while resources lack it"),
            lacks(new),
        ));
    }
    if let Some(alias) = old.alias.as_ref().filter(|_| old.alias != new.alias) {
        let alias = alias.to_string();
        let error = path.field("alias").error("may not change or go while objects use it");
        all.push(Break::unless(error, move |object, what| {
            !said(object, what)[&alias].is_null() || speaks_of(object, &["spec"], &alias)
        }));
    }
    let kept: Vec<_> = new.values.iter().filter(|v| old.values.contains(v)).collect();
    let ordered = matches!(old.matching, Match::AtLeast | Match::AtMost);
    let narrowed = match (old.values.is_empty(), new.values.is_empty()) {
        (true, narrow) => !narrow,
        (false, true) => ordered,
        (false, false) => kept.len() != old.values.len() || (ordered && !kept.iter().copied().eq(old.values.iter())),
    };
    if narrowed {
        let (uses, allowed) = (has(old), new.values.clone());
        let stay: Vec<_> = old.values.iter().filter(|v| new.values.contains(v)).collect();
        let reordered = ordered && (old.values.is_empty() || new.values.is_empty() || stay != kept);
        let names = [Some(old.name.clone()), old.alias.clone()];
        let message = "may only grow, and keep their order, while objects have others";
        all.push(Break::unless(path.field("values").error(message), move |object, what| {
            let other = |text: &str| !allowed.iter().any(|value| **value == *text);
            // where their order changes, each depends on the others
            reordered && uses(object, what)
                || names.iter().flatten().any(|name| any(&said(object, what)[name.as_ref()], &other))
        }));
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
        let errors = incompatibilities(&old, &new, None);
        assert_eq!(errors.first().map(|e| e.field.as_str()), refused, "{errors:?}");
    }

    /// With these objects there: what is refused, and who is named.
    fn check_with(change: impl Fn(&mut Value), objects: &[Value], refused: Option<(&str, &str)>) {
        let mut changed = base();
        change(&mut changed["spec"]);
        let old = ResourceType::parse(&base()).expect("the old type");
        let new = ResourceType::parse(&changed).unwrap_or_else(|e| panic!("{e:?}"));
        let errors = incompatibilities(&old, &new, Some(objects));
        assert_eq!(errors.first().map(|e| e.field.as_str()), refused.map(|(field, _)| field), "{errors:?}");
        if let Some((_, named)) = refused {
            assert!(errors[0].message.contains(named), "{errors:?}");
        }
    }

    #[test]
    fn what_no_object_has_may_go() {
        let object =
            |kind: &str, name: &str, spec: Value| json!({"kind": kind, "metadata": {"name": name}, "spec": spec});
        let plain = [
            object("Thing", "t", json!({"engine": "mysql", "capacity": {"storage": "1Gi"}, "reclaimPolicy": "Delete"})),
            object("ThingClaim", "c", json!({"engine": "mysql", "resources": {"requests": {"storage": "1Gi"}}})),
            object("ThingClass", "k", json!({"offers": {"engine": "mysql"}, "reclaimPolicy": "Delete"})),
        ];
        let with = |more: Value| plain.iter().cloned().chain([more]).collect::<Vec<Value>>();
        let tier = |s: &mut Value| s["attributes"] = json!({"engine": s["attributes"]["engine"]});
        check_with(tier, &plain, None);
        check_with(tier, &[], None);
        let field = "spec.attributes.tier";
        check_with(tier, &with(object("ThingClaim", "d", json!({"tier": "gold"}))), Some((field, "ThingClaim d;")));
        let offers = json!({"kind": "ThingClass", "metadata": {"name": "top"}, "offers": {"tier": "gold"}});
        check_with(tier, &with(offers), Some((field, "ThingClass top")));
        for spoken in ["${claim.spec.tier}", "${claim.spec.?tier.orValue('x')}", "${claim.spec['tier']}"] {
            let class = object("ThingClass", "s", json!({"template": {"spec": {"x": spoken}}}));
            check_with(tier, &with(class), Some((field, "ThingClass s")));
        }
        let other = object("ThingClass", "s", json!({"template": {"spec": {"x": "${claim.spec.tiers} tier x.tier"}}}));
        check_with(tier, &with(other), None);
        let gone = |s: &mut Value| s["attributes"] = json!({"tier": s["attributes"]["tier"]});
        check_with(gone, &plain, Some(("spec.attributes.engine", "ThingClaim c, Thing t, ThingClass k")));
        check_with(|s| s["attributes"]["tier"]["type"] = json!("string"), &plain, None);
        check_with(|s| s["attributes"]["tier"]["match"] = json!("Equal"), &plain, None);
        check_with(
            |s| s["attributes"]["tier"]["required"] = json!(true),
            &plain,
            Some(("spec.attributes.tier.required", "Thing t")),
        );
        let wide = with(object("Thing", "u", json!({"engine": "mysql", "tier": "gold"})));
        check_with(|s| s["attributes"]["tier"]["required"] = json!(true), &wide[1..], None);
        check_with(|s| s["attributes"]["tier"]["values"] = json!(["gold"]), &plain, None);
        // the order of those that stay is as it was, and nobody has the others
        check_with(|s| s["attributes"]["tier"]["values"] = json!(["gold"]), &wide, None);
        check_with(
            |s| s["attributes"]["tier"]["values"] = json!(["bronze"]),
            &wide,
            Some(("spec.attributes.tier.values", "Thing u")),
        );
        let engines = |s: &mut Value| s["attributes"]["engine"]["values"] = json!(["mysql"]);
        check_with(engines, &plain, None);
        let other = object("ThingClaim", "o", json!({"engine": "oracle"}));
        check_with(engines, &with(other), Some(("spec.attributes.engine.values", "ThingClaim o")));
        check_with(|s| s["capacities"] = json!({}), &plain, Some(("spec.capacities.storage", "ThingClaim c, Thing t")));
        check_with(|s| s["capacities"] = json!({}), &plain[2..], None);
        check_with(|s| s["sharing"]["maxClaims"] = json!(1), &plain, None);
        let shared = object("Thing", "v", json!({"claimRefs": [{"name": "a"}, {"name": "b"}]}));
        check_with(
            |s| s["sharing"]["maxClaims"] = json!(1),
            &with(shared),
            Some(("spec.sharing.maxClaims", "Thing v")),
        );
        check_with(|s| s["reclaimPolicies"] = json!(["Delete"]), &plain, None);
        let unsaid = object("Thing", "w", json!({"engine": "mysql"}));
        check_with(
            |s| s["reclaimPolicies"] = json!(["Delete"]),
            &with(unsaid),
            Some(("spec.reclaimPolicies", "Thing w")),
        );
        check_with(|s| s["names"]["claim"] = json!("Want"), &[], Some(("spec.names.claim", "make a new type")));
        check_with(|s| s["version"] = json!("v2"), &plain, None);
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
        check(|s| s["version"] = json!("v2"), None);
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
