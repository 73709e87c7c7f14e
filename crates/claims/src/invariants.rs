//! What must be true of the whole, by name. Used by tests and by `conductor audit`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::extract::{ask, offer};
use crate::lifecycle::{PROVISIONED_FOR, RESOURCE_UID, RETAINED, condition_of};
use crate::types::ResourceType;

/// Everything of one type, at one moment.
pub struct World<'w> {
    /// The type.
    pub kind: &'w ResourceType,
    /// Every claim; `None`: not ours to see, and what is about them is not checked.
    pub claims: Option<Vec<&'w Value>>,
    /// Every resource.
    pub resources: Vec<&'w Value>,
    /// Every implementation that bears our label.
    pub implementations: Vec<&'w Value>,
}

/// When an invariant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// After every single write.
    Always,
    /// When nothing is left to be done.
    AtRest,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name.
    pub invariant: &'static str,
    /// The object it is broken on.
    pub object: String,
    /// What is wrong.
    pub message: String,
}

type Check = fn(&World<'_>) -> Vec<(String, String)>;

/// The invariant of claims that resources refer to.
pub const HAS_ITS_CLAIM: &str = "a reference has its claim";

/// Every invariant with its name.
pub const INVARIANTS: [(&str, Holds, Check); 8] = [
    ("no more claims or amount than a resource has", Holds::Always, no_overcommitment),
    ("a used resource is scrubbed before it is free", Holds::Always, never_free_unscrubbed),
    ("one resource says Bound for a claim", Holds::Always, one_bound_resource),
    ("a claim has one resource", Holds::AtRest, one_resource),
    ("a bound pair agrees", Holds::AtRest, bound_pairs_agree),
    (HAS_ITS_CLAIM, Holds::AtRest, no_dangling_reference),
    ("an implementation has its resource", Holds::AtRest, no_orphan),
    ("nothing is made twice", Holds::AtRest, nothing_doubled),
];

/// Every violation; at rest all invariants count, otherwise those that always hold.
pub fn violations(world: &World<'_>, at_rest: bool) -> Vec<Violation> {
    let mut all = Vec::new();
    for (name, holds, check) in INVARIANTS {
        if holds == Holds::Always || at_rest {
            all.extend(check(world).into_iter().map(|(object, message)| Violation {
                invariant: name,
                object,
                message,
            }));
        }
    }
    all
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name(object: &Value) -> String {
    let (kind, meta) = (text(&object["kind"]), &object["metadata"]);
    match text(&meta["namespace"]) {
        "" => format!("{kind} {}", text(&meta["name"])),
        namespace => format!("{kind} {namespace}/{}", text(&meta["name"])),
    }
}

fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

fn phase(object: &Value) -> &str {
    text(&object["status"]["phase"])
}

/// The uids a resource refers to.
fn referred(resource: &Value) -> Vec<&str> {
    let refs = resource["spec"]["claimRefs"].as_array().into_iter().flatten();
    refs.map(|r| text(&r["uid"])).filter(|u| !u.is_empty()).collect()
}

fn no_overcommitment(world: &World<'_>) -> Vec<(String, String)> {
    let rules = world.kind.rules();
    let mut broken = Vec::new();
    for resource in &world.resources {
        let seen = offer(&rules, resource);
        if seen.refs.len() as u64 > u64::from(seen.max_claims) {
            broken.push((name(resource), format!("has {} claims, takes {}", seen.refs.len(), seen.max_claims)));
        }
        if seen.max_claims > 1 {
            for (i, capacity) in rules.capacities.iter().enumerate() {
                let used: i128 = seen.refs.iter().filter_map(|r| r.amounts.get(i)).map(|a| a.nanos()).sum();
                if used > seen.capacity[i].nanos() {
                    broken.push((name(resource), format!("more {} is taken than it has", capacity.name)));
                }
            }
        }
    }
    broken
}

fn never_free_unscrubbed(world: &World<'_>) -> Vec<(String, String)> {
    let used = |r: &&&Value| condition_of(r, "Bound").is_some_and(|(bound, _, _)| !bound);
    let scrubbed = |r: &Value| condition_of(r, "Scrubbed").is_some_and(|(done, _, _)| done);
    let free = world.resources.iter().filter(|r| phase(r) == "Available").filter(used);
    free.filter(|r| !scrubbed(r)).map(|r| (name(r), "is Available, was used and never scrubbed".to_owned())).collect()
}

fn one_bound_resource(world: &World<'_>) -> Vec<(String, String)> {
    let mut by_claim: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for resource in world.resources.iter().filter(|r| phase(r) == "Bound") {
        for claim in referred(resource) {
            by_claim.entry(claim).or_default().push(resource);
        }
    }
    let many = by_claim.into_iter().filter(|(_, resources)| resources.len() > 1);
    many.map(|(claim, resources)| {
        (name(resources[0]), format!("and {} others are Bound to claim {claim}", resources.len() - 1))
    })
    .collect()
}

fn one_resource(world: &World<'_>) -> Vec<(String, String)> {
    let mut by_claim: BTreeMap<&str, usize> = BTreeMap::new();
    for claim in world.resources.iter().flat_map(|r| referred(r)) {
        *by_claim.entry(claim).or_default() += 1;
    }
    let many = by_claim.into_iter().filter(|(_, n)| *n > 1);
    many.map(|(claim, n)| (claim.to_owned(), format!("{n} resources refer to it"))).collect()
}

fn bound_pairs_agree(world: &World<'_>) -> Vec<(String, String)> {
    let by_name: BTreeMap<&str, &&Value> = world.resources.iter().map(|r| (text(&r["metadata"]["name"]), r)).collect();
    let mut broken = Vec::new();
    for claim in world.claims.iter().flatten().filter(|c| phase(c) == "Bound") {
        match by_name.get(text(&claim["spec"]["resourceName"])) {
            None => broken.push((name(claim), "is Bound to a resource that does not exist".to_owned())),
            Some(resource) if !referred(resource).contains(&uid(claim)) => {
                broken.push((name(claim), format!("is Bound to {}, which does not refer to it", name(resource))));
            }
            Some(resource) if phase(resource) != "Bound" => {
                broken.push((name(claim), format!("is Bound to {}, which is {}", name(resource), phase(resource))));
            }
            Some(resource) => broken.extend(differences(world.kind, claim, resource).map(|why| (name(claim), why))),
        }
    }
    broken
}

/// What a bound claim asked for and its resource has not. What it asks for since, it is given as the resource grows: of amounts, what
/// was reserved for it counts.
fn differences<'d>(kind: &'d ResourceType, claim: &'d Value, resource: &'d Value) -> impl Iterator<Item = String> + 'd {
    let rules = kind.rules();
    let (seen, called) = (offer(&rules, resource), name(resource));
    let wants = ask(&rules, claim, true, None).map(|ask| ask.wish.attributes.clone()).unwrap_or_default();
    let mut all = Vec::new();
    for (i, want) in wants.iter().enumerate() {
        let (attribute, has) = (&rules.attributes[i], seen.shape.attributes[i].as_ref());
        if want.as_ref().is_some_and(|want| !attribute.satisfied(want, has)) {
            let field = |name: &str| Some(&claim["spec"][name]).filter(|value| !value.is_null());
            let asked = field(&attribute.name).or_else(|| field(attribute.alias.as_deref()?));
            let has = has.map_or_else(|| "not said".to_owned(), |has| has.json().to_string());
            all.push(format!("{} of {called} is {has}, asked {}", attribute.name, asked.unwrap_or(&Value::Null)));
        }
    }
    let own = seen.refs.iter().find(|r| *r.uid == *uid(claim));
    for (i, capacity) in rules.capacities.iter().enumerate() {
        let reserved = own.and_then(|r| r.amounts.get(i).copied()).unwrap_or_default();
        if reserved > seen.capacity[i] {
            all.push(format!("{called} has {} {}, and {reserved} is its", seen.capacity[i], capacity.name));
        }
    }
    all.into_iter()
}

fn no_dangling_reference(world: &World<'_>) -> Vec<(String, String)> {
    let Some(claims) = &world.claims else { return Vec::new() };
    let claims: BTreeMap<&str, &&Value> = claims.iter().map(|c| (uid(c), c)).collect();
    let mut broken = Vec::new();
    for resource in &world.resources {
        for claim in referred(resource) {
            match claims.get(claim) {
                None => broken.push((name(resource), format!("refers to claim {claim}, which does not exist"))),
                Some(claim) => {
                    let named = text(&claim["spec"]["resourceName"]);
                    if !named.is_empty() && named != text(&resource["metadata"]["name"]) {
                        broken.push((name(resource), format!("refers to {}, which names {named}", name(claim))));
                    }
                }
            }
        }
    }
    broken
}

fn no_orphan(world: &World<'_>) -> Vec<(String, String)> {
    let resources: BTreeSet<&str> = world.resources.iter().map(|r| uid(r)).collect();
    let orphaned = |i: &&&Value| {
        let owner = text(&i["metadata"]["labels"][RESOURCE_UID]);
        !resources.contains(owner) && text(&i["metadata"]["annotations"][RETAINED]) != "true"
    };
    world.implementations.iter().filter(orphaned).map(|i| (name(i), "its resource does not exist".to_owned())).collect()
}

fn nothing_doubled(world: &World<'_>) -> Vec<(String, String)> {
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    for resource in &world.resources {
        let claim = text(&resource["metadata"]["annotations"][PROVISIONED_FOR]);
        if !claim.is_empty() {
            *made.entry(claim).or_default() += 1;
        }
    }
    let twice = made.into_iter().filter(|(_, n)| *n > 1);
    twice.map(|(claim, n)| (claim.to_owned(), format!("{n} resources were made for it"))).collect()
}

/// Violations among PersistentVolumes and PersistentVolumeClaims; other objects are passed over.
pub fn volume_violations(objects: &[&Value], at_rest: bool) -> Vec<Violation> {
    let of_kind = |kind: &'static str| objects.iter().copied().filter(move |o| text(&o["kind"]) == kind);
    let violation = |invariant, object: &Value, message| Violation { invariant, object: name(object), message };
    let mut broken = Vec::new();
    let mut holders: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    // those that are Released refer to whom they had
    for volume in of_kind("PersistentVolume").filter(|v| !matches!(phase(v), "Released" | "Failed")) {
        let claim = text(&volume["spec"]["claimRef"]["uid"]);
        if !claim.is_empty() {
            holders.entry(claim).or_default().push(volume);
        }
    }
    for (claim, volumes) in &holders {
        let bound = volumes.iter().filter(|v| phase(v) == "Bound").count();
        if bound > 1 || (at_rest && volumes.len() > 1) {
            broken.push(violation(
                "a claim has one volume",
                volumes[0],
                format!("{} volumes refer to claim {claim}", volumes.len()),
            ));
        }
    }
    if !at_rest {
        return broken;
    }
    let volumes: BTreeMap<&str, &Value> =
        of_kind("PersistentVolume").map(|v| (text(&v["metadata"]["name"]), v)).collect();
    let claims: BTreeSet<&str> = of_kind("PersistentVolumeClaim").map(uid).collect();
    for claim in of_kind("PersistentVolumeClaim").filter(|c| phase(c) == "Bound") {
        let volume = volumes.get(text(&claim["spec"]["volumeName"]));
        let agrees = volume.is_some_and(|v| text(&v["spec"]["claimRef"]["uid"]) == uid(claim) && phase(v) == "Bound");
        if !agrees {
            let refers = volume.is_some_and(|v| text(&v["spec"]["claimRef"]["uid"]) == uid(claim));
            let why = match refers && volume.is_some_and(|v| matches!(phase(v), "" | "Pending" | "Available")) {
                true => {
                    "its volume refers to it and does not say Bound yet: it may take half a minute while many are bound"
                }
                false => "its volume does not say so",
            };
            broken.push(violation("a bound pair agrees", claim, why.to_owned()));
        }
    }
    for volume in of_kind("PersistentVolume").filter(|v| phase(v) == "Bound") {
        let claim = text(&volume["spec"]["claimRef"]["uid"]);
        if !claims.contains(claim) {
            broken.push(violation(HAS_ITS_CLAIM, volume, format!("is Bound to claim {claim}, which does not exist")));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn without_the_claims_the_rest_is_checked() {
        let kind = json!({"spec": {"group": "a.example.com", "version": "v1", "names": {"resource": "Database"}}});
        let kind = ResourceType::parse(&kind).unwrap();
        let claim = |uid: &str| json!({"namespace": "n", "name": uid, "uid": uid});
        let resource =
            json!({"kind": "Database", "metadata": {"name": "d"}, "spec": {"claimRefs": [claim("a"), claim("b")]}});
        let broken = |claims| {
            let world = World { kind: &kind, claims, resources: vec![&resource], implementations: Vec::new() };
            violations(&world, true).iter().map(|own| own.invariant).collect::<BTreeSet<_>>()
        };
        let too_many = "no more claims or amount than a resource has";
        assert_eq!(broken(None), BTreeSet::from([too_many]));
        assert_eq!(broken(Some(Vec::new())), BTreeSet::from([too_many, HAS_ITS_CLAIM]));
    }

    /// What an older version, or somebody with enough rights, may have left.
    #[test]
    fn a_bound_pair_agrees_in_what_was_asked_and_reserved() {
        let kind = json!({"spec": {
            "group": "a.example.com", "version": "v1", "names": {"resource": "Database"},
            "attributes": {"engine": {"type": "string"}}, "capacities": {"storage": {}},
        }});
        let kind = ResourceType::parse(&kind).unwrap();
        let check = |engine: &str, capacity: &str, asked: &str, expected: &[&str]| {
            let claim = json!({
                "kind": "DatabaseClaim", "metadata": {"namespace": "n", "name": "c", "uid": "u"}, "status": {"phase": "Bound"},
                "spec": {"engine": "mysql", "resourceName": "d", "resources": {"requests": {"storage": asked}}},
            });
            let reference = json!({"namespace": "n", "name": "c", "uid": "u", "amounts": {"storage": "5Gi"}});
            let resource = json!({
                "kind": "Database", "metadata": {"name": "d", "uid": "r"}, "status": {"phase": "Bound"},
                "spec": {"engine": engine, "capacity": {"storage": capacity}, "claimRefs": [reference]},
            });
            let (claims, resources) = (Some(vec![&claim]), vec![&resource]);
            let world = World { kind: &kind, claims, resources, implementations: Vec::new() };
            let said: Vec<String> = violations(&world, true).into_iter().map(|v| v.message).collect();
            assert_eq!(said, expected, "{engine} {capacity}");
        };
        check("mysql", "5Gi", "5Gi", &[]);
        // it is being made larger
        check("mysql", "5Gi", "9Gi", &[]);
        check("postgres", "5Gi", "5Gi", &["engine of Database d is \"postgres\", asked \"mysql\""]);
        check("mysql", "4Gi", "5Gi", &["Database d has 4Gi storage, and 5Gi is its"]);
    }
}
