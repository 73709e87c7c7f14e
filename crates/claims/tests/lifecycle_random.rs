//! Random lives: crashes, races and stale looks at every point, and at the end every invariant holds.

mod toy;

use conductor_claims::invariants::violations;
use proptest::prelude::*;
use serde_json::{Value, json};
use toy::objects::{claim, class, key, kind, nothing_lost, resource};
use toy::{Api, Key};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A user makes a claim.
    Claim(u8, u8),
    /// A user deletes one.
    Unclaim(u8),
    /// An administrator makes a resource.
    Resource(u8, u8),
    /// An administrator deletes one.
    Unresource(u8),
    /// A manager refreshes its look.
    Look(bool),
    /// A manager works on one object with its look, and dies after some writes.
    Work(bool, u8, u8),
    /// Sweeping of orphans with a look that may be old.
    Sweep(bool),
    /// The provider works.
    Provide(u8),
    /// An administrator asks for new credentials.
    Rotate(u8),
    /// A user asks for more.
    Grow(u8),
    /// A user asks for something else before the claim is bound.
    Change(u8, u8),
    /// An administrator deletes what was made.
    Unmake(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..4, 0u8..4).prop_map(|(n, s)| Step::Claim(n, s)),
        1 => (0u8..4).prop_map(Step::Unclaim),
        2 => (0u8..5, 0u8..9).prop_map(|(n, s)| Step::Resource(n, s)),
        1 => (0u8..5).prop_map(Step::Unresource),
        4 => any::<bool>().prop_map(Step::Look),
        12 => (any::<bool>(), any::<u8>(), 0u8..8).prop_map(|(m, o, c)| Step::Work(m, o, c)),
        1 => any::<bool>().prop_map(Step::Sweep),
        3 => any::<u8>().prop_map(Step::Provide),
        1 => any::<u8>().prop_map(Step::Rotate),
        1 => (0u8..4).prop_map(Step::Grow),
        1 => (0u8..4, 0u8..6).prop_map(|(n, s)| Step::Change(n, s)),
        1 => any::<u8>().prop_map(Step::Unmake),
    ]
}

/// As many as CI runs, or as PROPTEST_CASES says.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn crashes_races_and_stale_looks_leave_no_trace(
        steps in prop::collection::vec(step(), 0..120),
        class_policy in 0usize..3,
    ) {
        let kind = kind();
        let policies = ["Delete", "Retain", "Recycle"];
        let mut api = Api::default();
        for name in ["fast", "other"] {
            api.create(class(name, policies[class_policy])).expect("created");
        }
        for (i, size) in ["10Gi", "20Gi", "20Gi"].into_iter().enumerate() {
            api.create(resource(&format!("r{i}"), size, policies[i], 1 + u32::from(i == 2), true)).expect("created");
        }
        api.settle(&kind);
        let mut looks = [api.clone(), api.clone()];
        for step in steps {
            match step {
                Step::Claim(n, size) => {
                    let class = if size == 3 { "none" } else { "fast" };
                    let _ = api.create(claim(&format!("c{n}"), &format!("{}Gi", 10 * (size + 1)), class));
                }
                Step::Unclaim(n) => api.delete(&key("DatabaseClaim", "apps", &format!("c{n}"))),
                Step::Resource(n, s) => {
                    let object = resource(&format!("r{n}"), &format!("{}Gi", 10 * (1 + s / 3)), policies[s as usize % 3], 1 + u32::from(s % 2), s != 4);
                    let _ = api.create(object);
                }
                Step::Unresource(n) => api.delete(&key("Database", "", &format!("r{n}"))),
                Step::Look(m) => looks[usize::from(m)] = api.clone(),
                Step::Provide(n) => {
                    let things: Vec<Key> = api.of_kind("Thing").map(|(k, _)| k.clone()).collect();
                    if !things.is_empty() {
                        api.provide(&things[n as usize % things.len()]);
                    }
                    prop_assert!(api.locked_out(&kind).is_empty(), "{:?}", api.locked_out(&kind));
                }
                Step::Grow(n) => {
                    let claim = key("DatabaseClaim", "apps", &format!("c{n}"));
                    if api.objects.get(&claim).is_some_and(|c| c["status"]["phase"] == "Bound") {
                        let has = &api.objects[&claim]["status"]["capacity"]["storage"];
                        let has: u64 = has.as_str().expect("an amount").trim_end_matches("Gi").parse().expect("a number");
                        api.patch(&claim, &json!({"spec": {"resources": {"requests": {"storage": format!("{}Gi", has + 5)}}}}), false);
                    }
                }
                Step::Change(n, to) => {
                    let claim = key("DatabaseClaim", "apps", &format!("c{n}"));
                    if api.objects.get(&claim).is_some_and(|c| !["Bound", "Lost"].iter().any(|p| c["status"]["phase"] == *p)) {
                        let class = if to % 2 == 0 { "fast" } else { "other" };
                        let size = format!("{}Gi", 10 * (1 + to / 2));
                        api.patch(&claim, &json!({"spec": {"class": class, "resources": {"requests": {"storage": size}}}}), false);
                    }
                }
                Step::Unmake(n) => {
                    let made: Vec<Key> = api.of_kind("Database").filter(|(k, _)| k.2.len() > 2).map(|(k, _)| k.clone()).collect();
                    if !made.is_empty() {
                        api.delete(&made[n as usize % made.len()]);
                    }
                }
                Step::Rotate(n) => {
                    let things: Vec<Key> = api.of_kind("Thing").map(|(k, _)| k.clone()).collect();
                    if !things.is_empty() {
                        let thing = &things[n as usize % things.len()];
                        let next = api.objects[thing]["spec"]["rotate"].as_i64().unwrap_or(0) + 1;
                        api.patch(thing, &json!({"spec": {"rotate": next}}), false);
                    }
                }
                Step::Sweep(m) => {
                    for plan in looks[usize::from(m)].orphan_plans(&api) {
                        api.execute(&plan, usize::MAX, |_| {});
                    }
                }
                Step::Work(m, o, cut) => {
                    let look = &looks[usize::from(m)];
                    let keys: Vec<&Key> = look.objects.keys().filter(|k| k.0 == "Database" || k.0 == "DatabaseClaim").collect();
                    if keys.is_empty() {
                        continue;
                    }
                    let chosen = keys[o as usize % keys.len()];
                    let plan = if chosen.0 == "Database" { look.resource_plan(&kind, chosen, &api) } else { look.claim_plan(&kind, chosen, &[]) };
                    let mut broken = Vec::new();
                    api.execute(&plan, usize::from(cut), |api| {
                        broken.extend(violations(&api.world(&kind), false).into_iter().map(|v| format!("{v:?}")));
                        broken.extend(nothing_lost(api));
                        broken.extend(api.locked_out(&kind));
                    });
                    prop_assert!(broken.is_empty(), "{:?}", broken);
                }
            }
        }
        api.settle(&kind);
        let broken = violations(&api.world(&kind), true);
        prop_assert!(broken.is_empty(), "{:?}\n{:#?}", broken, api.objects.values().collect::<Vec<_>>());
        // who asked for more has it, or knows why not
        for (key, claim) in api.of_kind("DatabaseClaim").filter(|(_, c)| c["status"]["phase"] == "Bound") {
            let amount = |value: &Value| conductor_claims::amount::Amount::from_json(value).expect("an amount");
            let (asked, has) = (&claim["spec"]["resources"]["requests"], &claim["status"]["capacity"]);
            let refused = claim["status"]["reason"] == "ResizeRefused";
            prop_assert!(refused || amount(&asked["storage"]) <= amount(&has["storage"]), "{:?} {}", key, claim);
            // and what was made for it was made as it asks
            let resource = &api.objects[&toy::objects::key("Database", "", claim["spec"]["resourceName"].as_str().expect("a name"))];
            let own = resource["metadata"]["annotations"]["conductor.io/provisioned-for"] == claim["metadata"]["uid"];
            prop_assert!(!own || resource["spec"]["class"] == claim["spec"]["class"], "{:?} {}", claim, resource);
        }
        // every rotation that was asked for is over
        for (key, thing) in api.of_kind("Thing") {
            let number = |value: &Value| value.as_i64().unwrap_or(0);
            let by_resource = thing["metadata"]["annotations"]["conductor.io/rotate"].as_str().and_then(|n| n.parse().ok());
            let wanted = number(&thing["spec"]["rotate"]).max(by_resource.unwrap_or(0));
            let retired = number(&thing["status"]["retired"]);
            let kept = thing["metadata"]["annotations"]["conductor.io/retained"].is_string();
            // but where a reference was left by a bind that will never come about, for its resource is going
            let going = api.of_kind("Database").any(|(_, r)| {
                r["status"]["implementationRef"] == json!(key.2) && !r["metadata"]["deletionTimestamp"].is_null()
            });
            prop_assert!(kept || going || wanted == retired, "{:?} {}", key, thing);
        }
        // nobody waits who could be served
        for (key, claim) in api.of_kind("DatabaseClaim").filter(|(_, c)| c["spec"]["class"] != "none") {
            prop_assert!(claim["status"]["phase"] == "Bound", "{:?} {}", key, claim);
        }
        // when everyone leaves, nothing of a Delete class is left
        let claims: Vec<Key> = api.of_kind("DatabaseClaim").map(|(k, _)| k.clone()).collect();
        for claim in claims {
            api.delete(&claim);
        }
        api.settle(&kind);
        prop_assert_eq!(api.of_kind("DatabaseClaim").count(), 0);
        prop_assert_eq!(api.of_kind("Secret").count(), 0);
        let made = api.of_kind("Database").filter(|(k, _)| !k.2.starts_with('r') || k.2.len() > 2).count();
        if class_policy == 0 {
            prop_assert_eq!(made, 0, "{:#?}", api.objects.values().collect::<Vec<_>>());
        }
        let broken = violations(&api.world(&kind), true);
        prop_assert!(broken.is_empty(), "{:?}", broken);
    }
}
