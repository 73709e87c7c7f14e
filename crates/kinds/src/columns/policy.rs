//! Who may do what, in which order, and what is checked: roles, admission, certificates, priorities, devices.

use serde_json::{Value, json};

use super::format::{number, or, texts};
use super::{AGE, Column, NAME, Printer, age, condition, is_being_deleted, name, time};
use crate::value::{entries, flag, get, has, int, list, text};

const ROLE_BINDING: &[Column] = &[
    NAME,
    Column::text("Role", "The role it gives."),
    AGE,
    Column::text("Users", "Users it gives the role to.").wide(),
    Column::text("Groups", "Groups it gives the role to.").wide(),
    Column::text("ServiceAccounts", "Service accounts it gives the role to.").wide(),
];

const WEBHOOKS: &[Column] = &[NAME, Column::integer("Webhooks", "How many webhooks it names."), AGE];

const POLICY_BINDING: &[Column] = &[
    NAME,
    Column::text("PolicyName", "The policy it puts to use."),
    Column::text("ParamRef", "The parameters it gives the policy."),
    AGE,
];

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) static PRINTERS: &[Printer] = &[
    Printer { group: RBAC, kind: "RoleBinding", columns: ROLE_BINDING, cells: role_binding },
    Printer { group: RBAC, kind: "ClusterRoleBinding", columns: ROLE_BINDING, cells: role_binding },
    Printer { group: ADMISSION, kind: "MutatingWebhookConfiguration", columns: WEBHOOKS, cells: webhooks },
    Printer { group: ADMISSION, kind: "ValidatingWebhookConfiguration", columns: WEBHOOKS, cells: webhooks },
    Printer {
        group: ADMISSION,
        kind: "ValidatingAdmissionPolicy",
        columns: &[
            NAME,
            Column::integer("Validations", "How many rules it has."),
            Column::text("ParamKind", "The kind of its parameters."),
            AGE,
        ],
        cells: |object, now| policy(object, "spec.validations", now),
    },
    Printer {
        group: ADMISSION,
        kind: "MutatingAdmissionPolicy",
        columns: &[
            NAME,
            Column::integer("Mutations", "How many changes it makes."),
            Column::text("ParamKind", "The kind of its parameters."),
            AGE,
        ],
        cells: |object, now| policy(object, "spec.mutations", now),
    },
    Printer { group: ADMISSION, kind: "ValidatingAdmissionPolicyBinding", columns: POLICY_BINDING, cells: binding },
    Printer { group: ADMISSION, kind: "MutatingAdmissionPolicyBinding", columns: POLICY_BINDING, cells: binding },
    Printer {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        columns: &[
            NAME,
            AGE,
            Column::text("SignerName", "Who is asked to sign."),
            Column::text("Requestor", "Who asks."),
            Column::text("RequestedDuration", "How long the certificate should be valid."),
            Column::text("Condition", "How far the request has come."),
        ],
        cells: signing_request,
    },
    Printer {
        group: "coordination.k8s.io",
        kind: "Lease",
        columns: &[NAME, Column::text("Holder", "Who holds it."), AGE],
        cells: |object, now| vec![name(object), json!(text(object, "spec.holderIdentity")), age(object, now)],
    },
    Printer {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        columns: &[
            NAME,
            Column::integer("Value", "The higher, the sooner its pods are scheduled."),
            Column::boolean("Global-Default", "Whether pods without a class have it."),
            AGE,
            Column::text("PreemptionPolicy", "Whether its pods may displace others."),
        ],
        cells: |object, now| {
            vec![
                name(object),
                json!(number(object, "value")),
                json!(flag(object, "globalDefault")),
                age(object, now),
                json!(text(object, "preemptionPolicy")),
            ]
        },
    },
    Printer {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        columns: &[NAME, Column::text("Handler", "What the node calls it."), AGE],
        cells: |object, now| vec![name(object), json!(text(object, "handler")), age(object, now)],
    },
    Printer {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "FlowSchema",
        columns: &[
            NAME,
            Column::text("PriorityLevel", "The level its requests go to."),
            Column::text("MatchingPrecedence", "The lower, the sooner it is tried."),
            Column::text("DistinguisherMethod", "How its requests are told apart."),
            AGE,
            Column::text("MissingPL", "Whether that level does not exist."),
        ],
        cells: flow_schema,
    },
    Printer {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "PriorityLevelConfiguration",
        columns: &[
            NAME,
            Column::text("Type", "Whether it is limited."),
            Column::text("NominalConcurrencyShares", "Its part of the requests served at once."),
            Column::text("Queues", "How many queues it has."),
            Column::text("HandSize", "How many queues a flow may use."),
            Column::text("QueueLengthLimit", "How many requests wait in a queue at most."),
            AGE,
        ],
        cells: priority_level,
    },
    Printer { group: "resource.k8s.io", kind: "DeviceClass", columns: &[NAME, AGE], cells: only_age },
    Printer { group: "resource.k8s.io", kind: "ResourceClaimTemplate", columns: &[NAME, AGE], cells: only_age },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        columns: &[NAME, Column::text("State", "How far it has come."), AGE],
        cells: |object, now| vec![name(object), json!(claim_state(object)), age(object, now)],
    },
    Printer {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        columns: &[
            NAME,
            Column::text("Node", "The node that has these devices."),
            Column::text("Driver", "The driver that manages them."),
            Column::text("Pool", "The pool they belong to."),
            AGE,
        ],
        cells: |object, now| {
            vec![
                name(object),
                json!(text(object, "spec.nodeName")),
                json!(text(object, "spec.driver")),
                json!(text(object, "spec.pool.name")),
                age(object, now),
            ]
        },
    },
];

fn only_age(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

fn role_binding(object: &Value, now: i64) -> Vec<Value> {
    let subjects = |kind: &str| {
        let all = list(object, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let names = all.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(object),
        json!(format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name"))),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn webhooks(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), json!(list(object, "webhooks").len()), age(object, now)]
}

fn policy(object: &Value, rules: &str, now: i64) -> Vec<Value> {
    let kind = get(object, "spec.paramKind");
    let kind = match kind.is_null() {
        true => "<unset>".to_owned(),
        false => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
    };
    vec![name(object), json!(list(object, rules).len()), json!(kind), age(object, now)]
}

fn binding(object: &Value, now: i64) -> Vec<Value> {
    let params = get(object, "spec.paramRef");
    let selector = get(params, "selector");
    let params = match (text(params, "namespace"), text(params, "name")) {
        (_, "") if selector.is_null() => "<unset>".to_owned(),
        (_, "") => go_syntax(selector),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![name(object), json!(text(object, "spec.policyName")), json!(params), age(object, now)]
}

/// A label selector as Kubernetes shows it here: the way Go prints the structure.
fn go_syntax(selector: &Value) -> String {
    let label = |(key, value): (&str, &Value)| format!("{key}: {},", value.as_str().unwrap_or_default());
    let labels: String = entries(selector, "matchLabels").map(label).collect();
    let expression = |expression: &Value| {
        let values = texts(expression, "values").collect::<Vec<_>>().join(" ");
        let (key, operator) = (text(expression, "key"), text(expression, "operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: String = list(selector, "matchExpressions").iter().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn signing_request(object: &Value, now: i64) -> Vec<Value> {
    let has_condition = |of: &str| condition(object, "status.conditions", of).is_some();
    let mut state = if has_condition("Denied") {
        "Denied"
    } else if has_condition("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has_condition("Failed") {
        state.push_str(",Failed");
    }
    if !text(object, "status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    let duration = int(object, "spec.expirationSeconds").map(|seconds| time::ago(0, seconds));
    vec![
        name(object),
        age(object, now),
        json!(or(object, "spec.signerName", "<none>")),
        json!(text(object, "spec.username")),
        json!(duration.unwrap_or_else(|| "<none>".to_owned())),
        json!(state),
    ]
}

fn flow_schema(object: &Value, now: i64) -> Vec<Value> {
    let method = get(object, "spec.distinguisherMethod");
    let dangling = condition(object, "status.conditions", "Dangling");
    vec![
        name(object),
        json!(text(object, "spec.priorityLevelConfiguration.name")),
        json!(number(object, "spec.matchingPrecedence")),
        json!(if method.is_null() { "<none>" } else { text(method, "type") }),
        age(object, now),
        json!(dangling.map_or("?", |condition| text(condition, "status"))),
    ]
}

fn priority_level(object: &Value, now: i64) -> Vec<Value> {
    let limited = get(object, "spec.limited");
    let queuing = get(limited, "limitResponse.queuing");
    let or_none = |of: &Value, field: &str| match of.is_null() {
        true => json!("<none>"),
        false => json!(number(of, field)),
    };
    vec![
        name(object),
        json!(text(object, "spec.type")),
        or_none(limited, "nominalConcurrencyShares"),
        or_none(queuing, "queues"),
        or_none(queuing, "handSize"),
        or_none(queuing, "queueLengthLimit"),
        age(object, now),
    ]
}

fn claim_state(object: &Value) -> &'static str {
    let allocated = has(object, "status.allocation");
    let reserved = allocated && !list(object, "status.reservedFor").is_empty();
    match (is_being_deleted(object), allocated, reserved) {
        (false, false, _) => "pending",
        (true, false, _) => "deleted",
        (false, true, false) => "allocated",
        (false, true, true) => "allocated,reserved",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
    }
}
