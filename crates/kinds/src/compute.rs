//! What the containers of a Pod ask for together, and the quality of service that follows from it.

use std::collections::BTreeMap;

use conductor_machinery::quantity::Quantity;
use serde_json::Value;

use crate::value::{entries, get, list, size, text};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// The amounts in an object such as `resources.requests`. What cannot be read is left out: the schema has refused it.
pub fn amounts(holder: &Value, path: &str) -> Amounts {
    entries(holder, path)
        .filter_map(|(name, amount)| Some((name.to_owned(), Quantity::from_json(amount).ok()?)))
        .collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.get(name).map_or_else(|| amount.clone(), |have| have.add(amount));
        total.insert(name.clone(), sum);
    }
}

/// The larger of the two, resource by resource.
fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if total.get(name).is_none_or(|have| have < amount) {
            total.insert(name.clone(), amount.clone());
        }
    }
}

/// What a Pod's containers ask for (`requests`) or may use (`limits`) at the moment they need most: all containers and
/// sidecars at once, or one init container beside the sidecars started before it.
pub fn aggregate(pod_spec: &Value, which: &str) -> Amounts {
    let path = format!("resources.{which}");
    let mut total = Amounts::new();
    for container in list(pod_spec, "containers") {
        add(&mut total, &amounts(container, &path));
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for container in list(pod_spec, "initContainers") {
        let mut own = amounts(container, &path);
        if text(container, "restartPolicy") == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut starting, &own);
    }
    raise(&mut total, &starting);
    total
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn quality_of_service(pod_spec: &Value) -> &'static str {
    let compute = |amounts: Amounts| -> Amounts {
        amounts
            .into_iter()
            .filter(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && amount.sign() > 0)
            .collect()
    };
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut guaranteed = true;
    if get(pod_spec, "resources").is_object() {
        requests = compute(amounts(pod_spec, "resources.requests"));
        limits = compute(amounts(pod_spec, "resources.limits"));
        guaranteed = size(pod_spec, "resources.limits") == 0 || limits.len() == 2;
    } else {
        for container in list(pod_spec, "containers").iter().chain(list(pod_spec, "initContainers")) {
            add(&mut requests, &compute(amounts(container, "resources.requests")));
            let own = compute(amounts(container, "resources.limits"));
            guaranteed &= own.len() == 2;
            add(&mut limits, &own);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    if guaranteed && requests == limits { "Guaranteed" } else { "Burstable" }
}
