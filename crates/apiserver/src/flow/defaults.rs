//! The schemas and levels that every server has, as Kubernetes suggests them.

use machinery::status::Status;
use serde_json::{Value, json};
use store::{Expect, Op, Transaction};

use super::{GROUP, LEVELS, SCHEMAS};
use crate::plan::commit_status;
use crate::server::Server;

const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Name, shares, per cent that may be lent, queues, hand.
const QUEUED: [(&str, u32, u32, u32, u32); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn resources(verbs: &[&str], groups: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [groups], "resources": resources, "namespaces": ["*"]});
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

fn paths(verb: &str, paths: &[&str]) -> Value {
    json!({"verbs": [verb], "nonResourceURLs": paths})
}

fn everything(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects, "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [paths("*", &["*"])],
    })
}

fn schema(name: &str, level: &str, precedence: u32, distinguisher: &str, rule: Value) -> (&'static str, Value) {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule],
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    (SCHEMAS, object("FlowSchema", name, spec))
}

fn level(name: &str, spec: Value) -> (&'static str, Value) {
    (LEVELS, object("PriorityLevelConfiguration", name, spec))
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "kind": kind, "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}}, "spec": spec,
    })
}

/// All of them, with their tables; levels first.
pub fn objects() -> Vec<(&'static str, Value)> {
    let anybody = || vec![group("system:unauthenticated"), group("system:authenticated")];
    let kube_system = || json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let leaders = vec![user("system:kube-controller-manager"), user("system:kube-scheduler"), kube_system()];
    let leases = |verbs: &[&str]| resources(verbs, "coordination.k8s.io", &["leases"], false);
    let nodes = resources(&["*"], "", &["nodes", "nodes/status"], true);
    let mut all = vec![
        level("exempt", json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})),
        level(
            "catch-all",
            json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"},
            }}),
        ),
    ];
    all.extend(QUEUED.map(|(name, shares, lendable, queues, hand)| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        });
        level(name, json!({"type": "Limited", "limited": limited}))
    }));
    let probes = json!({"subjects": anybody(), "nonResourceRules": [paths("get", &["/healthz", "/readyz", "/livez"])]});
    let elections = json!({"subjects": leaders, "resourceRules": [leases(&["get", "create", "update"])]});
    let beats = json!({"subjects": [group("system:nodes")], "resourceRules": [nodes, leases(&["*"])]});
    let one = |subject: Value| everything(vec![subject]);
    all.extend([
        schema("exempt", "exempt", 1, "", one(group("system:masters"))),
        schema("probes", "exempt", 2, "", probes),
        schema("system-leader-election", "leader-election", 100, "ByUser", elections),
        schema("system-node-high", "node-high", 400, "ByUser", beats),
        schema("system-nodes", "system", 500, "ByUser", one(group("system:nodes"))),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            one(user("system:kube-controller-manager")),
        ),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", one(user("system:kube-scheduler"))),
        schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", one(kube_system())),
        schema("service-accounts", "workload-low", 9000, "ByUser", one(group("system:serviceaccounts"))),
        schema("global-default", "global-default", 9900, "ByUser", everything(anybody())),
        schema("catch-all", "catch-all", 10000, "ByUser", everything(anybody())),
    ]);
    all
}

/// Whether a schema's level exists, as the condition that says so.
pub fn condition(level: &str, exists: bool, now: &str) -> Value {
    let (status, reason, rest) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {rest}");
    json!({"type": "Dangling", "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
}

/// Makes what is missing, in one commit.
pub async fn run(server: &Server) -> Result<(), Status> {
    let catalog = server.0.catalog();
    let now = server.0.now();
    let mut ops = Vec::new();
    for (table, mut object) in objects() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let plural = table.rsplit('/').next().unwrap_or_default();
        let Some(resource) = catalog.find(GROUP, "v1", plural) else { continue };
        if server.store().get(table, &name).is_some() {
            continue;
        }
        let entry = |manager: &str, fields: Value| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": format!("{GROUP}/v1"), "time": now,
                "fieldsType": "FieldsV1", "fieldsV1": fields,
            })
        };
        let mut spec = json!({});
        for (field, value) in object["spec"].as_object().into_iter().flatten() {
            spec[format!("f:{field}")] = owned(field, value);
        }
        let annotations = json!({"f:annotations": {".": {}, "f:apf.kubernetes.io/autoupdate-spec": {}}});
        let mut managed = vec![entry(PRODUCER, json!({"f:metadata": annotations, "f:spec": spec}))];
        if table == SCHEMAS {
            let level = object["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
            let condition = condition(level, true, &now);
            let mut fields = json!({".": {}});
            for field in condition.as_object().into_iter().flatten().map(|(field, _)| field) {
                fields[format!("f:{field}")] = json!({});
            }
            object["status"] = json!({"conditions": [condition]});
            let conditions = json!({".": {}, "k:{\"type\":\"Dangling\"}": fields});
            let mut status = entry(CONSUMER, json!({"f:status": {"f:conditions": conditions}}));
            status["operation"] = "Apply".into();
            status["subresource"] = "status".into();
            managed.insert(0, status);
        } else {
            object["status"] = json!({});
        }
        let meta = &mut object["metadata"];
        meta["uid"] = server.0.new_uid().into();
        meta["creationTimestamp"] = now.as_str().into();
        meta["generation"] = 1.into();
        meta["managedFields"] = managed.into();
        ops.push(Op::put(resource.table.clone(), name, resource.encode(&object), Expect::Absent));
    }
    if ops.is_empty() {
        return Ok(());
    }
    server.store().commit(Transaction { ops }).await.map(drop).map_err(commit_status)
}

/// The fields below one that is set. All lists of these kinds are atomic; of single objects some are owned by their fields.
fn owned(field: &str, value: &Value) -> Value {
    let single = matches!(
        field,
        "priorityLevelConfiguration" | "limited" | "limitResponse" | "queuing" | "exempt" | "distinguisherMethod"
    );
    let mut fields = json!({});
    if single {
        // What is a pointer in Go is owned itself, too.
        if matches!(field, "limited" | "queuing" | "exempt" | "distinguisherMethod") {
            fields["."] = json!({});
        }
        for (below, value) in value.as_object().into_iter().flatten() {
            fields[format!("f:{below}")] = owned(below, value);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        for (_, object) in objects() {
            let kind = object["kind"].as_str().unwrap();
            let errors = kinds::validate::create(GROUP, kind, &object);
            assert!(errors.is_empty(), "{object}: {errors:?}");
        }
    }
}
