//! `LimitRanger`: defaults, minima, maxima and ratios for containers, Pods and volume claims.

use kinds::compute::{Amounts, aggregate, amounts};
use machinery::quantity::Quantity;
use machinery::status::Status;
use serde_json::Value;

use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};

/// Holds Pods and claims to the LimitRanges of their namespace.
pub struct Limits;

/// Whether a write may change what an object asks for. What a Pod asks for changes through its `resize` only, and nobody
/// holds up what is going.
fn concerned(attributes: &Attributes<'_>) -> bool {
    let (creates, updates) = (attributes.operation == Operation::Create, attributes.operation == Operation::Update);
    let asks = match (attributes.resource.gk(), attributes.subresource) {
        (("", "Pod"), "") => creates,
        (("", "Pod"), "resize") => updates,
        (("", "PersistentVolumeClaim"), "") => creates || updates,
        (_, "") => attributes.resource.charge().is_some() && (creates || updates),
        _ => false,
    };
    asks && attributes.old["metadata"]["deletionTimestamp"].is_null()
}

/// The limits that concern a write.
fn ranges(attributes: &Attributes<'_>) -> Vec<Value> {
    if !concerned(attributes) {
        return Vec::new();
    }
    attributes.view.list("core/limitranges", &format!("{}/", attributes.namespace))
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |limit| limit["type"] == kind)
}

impl Plugin for Limits {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if let Some(charge) = attributes.resource.charge().filter(|_| attributes.operation == Operation::Create) {
            let kind = limit_type(attributes);
            let charge = charge.clone();
            for range in ranges(attributes) {
                let range = in_own_words(&range, &attributes.resource.group);
                for limit in limits_of(&range, &kind) {
                    let none = serde_json::Map::new();
                    let defaults = limit["defaultRequest"].as_object().unwrap_or(&none);
                    charge.fill(&mut attributes.object, defaults);
                }
            }
        }
        if attributes.resource.gk() != ("", "Pod") {
            return Ok(());
        }
        for range in ranges(attributes) {
            let (mut requests, mut limits) = (serde_json::Map::new(), serde_json::Map::new());
            for limit in limits_of(&range, "Container") {
                requests.extend(limit["defaultRequest"].as_object().cloned().unwrap_or_default());
                limits.extend(limit["default"].as_object().cloned().unwrap_or_default());
            }
            fill(&mut attributes.object, &requests, &limits);
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        for range in ranges(attributes) {
            let mut problems = Vec::new();
            if attributes.resource.gk() == ("", "Pod") {
                pod(&range, &attributes.object["spec"], &mut problems);
            } else if let Some(charge) = attributes.resource.charge() {
                let range = in_own_words(&range, &attributes.resource.group);
                claim(&range, &limit_type(attributes), &charge.requests(&attributes.object), &mut problems);
            } else {
                let requests = amounts(&attributes.object, "spec.resources.requests");
                claim(&range, "PersistentVolumeClaim", &requests, &mut problems);
            }
            match problems.as_slice() {
                [] => {}
                [one] => return Err(forbidden(attributes, one)),
                many => return Err(forbidden(attributes, format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

/// A LimitRange takes amounts only by names that Kubernetes knows, or that have a group before them: `GROUP/connections` is what
/// claims of that group call `connections`.
fn in_own_words(range: &Value, group: &str) -> Value {
    let mut range = range.clone();
    let limits = range["spec"]["limits"].as_array_mut().into_iter().flatten();
    for amounts in limits.filter_map(Value::as_object_mut).flat_map(|limit| limit.values_mut()) {
        let Some(amounts) = amounts.as_object_mut() else { continue };
        let plain = |name: String| {
            name.strip_prefix(group).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned).unwrap_or(name)
        };
        *amounts = std::mem::take(amounts).into_iter().map(|(name, amount)| (plain(name), amount)).collect();
    }
    range
}

/// Gives containers what they do not say themselves, and notes on the Pod what was given.
fn fill(pod: &mut Value, requests: &serde_json::Map<String, Value>, limits: &serde_json::Map<String, Value>) {
    let mut notes = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in kinds::value::list_mut(pod, &format!("spec.{list}")) {
            let mut set = Vec::new();
            for (part, defaults) in [("requests", requests), ("limits", limits)] {
                let own = &container["resources"][part];
                let missing: Vec<(String, Value)> = defaults
                    .iter()
                    .filter(|(name, _)| own.get(name.as_str()).is_none())
                    .map(|(name, amount)| (name.clone(), amount.clone()))
                    .collect();
                for (name, amount) in missing {
                    container["resources"][part][&name] = amount;
                    set.push((part, name));
                }
            }
            for part in ["requests", "limits"] {
                let names: Vec<&str> =
                    set.iter().filter(|(own, _)| *own == part).map(|(_, name)| name.as_str()).collect();
                if !names.is_empty() {
                    let word = if part == "requests" { "request" } else { "limit" };
                    let container = container["name"].as_str().unwrap_or_default();
                    notes.push(format!("{} {word} for {what} {container}", names.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = note.into();
    }
}

fn pod(range: &Value, spec: &Value, problems: &mut Vec<String>) {
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        match limit["type"].as_str() {
            Some("Container") => {
                for list in ["containers", "initContainers"] {
                    for container in spec[list].as_array().into_iter().flatten() {
                        let requests = amounts(container, "resources.requests");
                        let limits = amounts(container, "resources.limits");
                        all(limit, "Container", &requests, &limits, problems);
                    }
                }
            }
            Some("Pod") => {
                let mut sums = ["requests", "limits"].map(|which| aggregate(spec, which));
                for (sum, which) in sums.iter_mut().zip(["requests", "limits"]) {
                    // What is said for the whole Pod takes the place of the sum.
                    sum.extend(amounts(spec, &format!("resources.{which}")));
                }
                let [requests, limits] = sums;
                all(limit, "Pod", &requests, &limits, problems);
            }
            _ => {}
        }
    }
}

/// The type of limits for objects of a custom kind: `storage.example.com/BucketClaim`.
fn limit_type(attributes: &Attributes<'_>) -> String {
    format!("{}/{}", attributes.resource.group, attributes.resource.kind)
}

fn claim(range: &Value, kind: &str, requests: &Amounts, problems: &mut Vec<String>) {
    for limit in limits_of(range, kind) {
        for (name, enforced) in amounts(limit, "min") {
            problems.extend(minimum(kind, &name, &enforced, requests, &Amounts::new()));
        }
        for (name, enforced) in amounts(limit, "max") {
            let start = format!("maximum {name} usage per {kind} is {enforced}");
            match requests.get(&name) {
                None => problems.push(format!("{start}.  No request is specified")),
                Some(request) if *request > enforced => problems.push(format!("{start}, but request is {request}")),
                Some(_) => {}
            }
        }
    }
}

fn all(limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts, problems: &mut Vec<String>) {
    for (name, enforced) in amounts(limit, "min") {
        problems.extend(minimum(kind, &name, &enforced, requests, limits));
    }
    for (name, enforced) in amounts(limit, "max") {
        problems.extend(maximum(kind, &name, &enforced, requests, limits));
    }
    for (name, enforced) in amounts(limit, "maxLimitRequestRatio") {
        problems.extend(ratio(kind, &name, &enforced, requests, limits));
    }
}

fn minimum(kind: &str, name: &str, enforced: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let start = format!("minimum {name} usage per {kind} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{start}.  No request is specified")),
        (Some(request), _) if request < enforced => Some(format!("{start}, but request is {request}")),
        (_, Some(limit)) if limit < enforced => Some(format!("{start}, but limit is {limit}")),
        _ => None,
    }
}

fn maximum(kind: &str, name: &str, enforced: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let start = format!("maximum {name} usage per {kind} is {enforced}");
    match (requests.get(name), limits.get(name)) {
        (_, None) => Some(format!("{start}.  No limit is specified")),
        (_, Some(limit)) if limit > enforced => Some(format!("{start}, but limit is {limit}")),
        (Some(request), _) if request > enforced => Some(format!("{start}, but request is {request}")),
        _ => None,
    }
}

fn ratio(kind: &str, name: &str, enforced: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {kind} is {enforced}");
    let Some(request) = requests.get(name).filter(|request| !request.is_zero()) else {
        return Some(format!("{start}, but no request is specified or request is 0"));
    };
    let Some(limit) = limits.get(name).filter(|limit| !limit.is_zero()) else {
        return Some(format!("{start}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.approximate_f64() / request.approximate_f64();
    (ratio > enforced.approximate_f64()).then(|| format!("{start}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_filled_in_and_noted() {
        let mut pod = json!({"metadata": {}, "spec": {"containers": [
            {"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "2"}}},
        ]}});
        let map = |value: Value| value.as_object().cloned().unwrap();
        fill(&mut pod, &map(json!({"cpu": "100m"})), &map(json!({"cpu": "1", "memory": "1Gi"})));
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}})
        );
        assert_eq!(pod["spec"]["containers"][1]["resources"]["limits"]["cpu"], "2");
        assert_eq!(
            pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
            "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; \
             cpu request for container b; memory limit for container b"
        );
    }

    #[test]
    fn limits_are_held() {
        let check = |limit: Value, resources: Value, expected: &[&str]| {
            let range = json!({"spec": {"limits": [limit]}});
            let mut problems = Vec::new();
            pod(&range, &json!({"containers": [{"resources": resources}]}), &mut problems);
            assert_eq!(problems, expected);
        };
        let min = json!({"type": "Container", "min": {"cpu": "100m"}});
        check(min.clone(), json!({}), &["minimum cpu usage per Container is 100m.  No request is specified"]);
        check(
            min.clone(),
            json!({"requests": {"cpu": "50m"}}),
            &["minimum cpu usage per Container is 100m, but request is 50m"],
        );
        check(min, json!({"requests": {"cpu": "0.1"}}), &[]);
        let max = json!({"type": "Pod", "max": {"memory": "1Gi"}});
        check(max.clone(), json!({}), &["maximum memory usage per Pod is 1Gi.  No limit is specified"]);
        check(max, json!({"limits": {"memory": "2Gi"}}), &["maximum memory usage per Pod is 1Gi, but limit is 2Gi"]);
        let ratio = json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}});
        check(ratio.clone(), json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}), &[]);
        check(
            ratio,
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}),
            &["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
        );
    }
}
