//! The plain objects of the core group, nodes, and what belongs to the server itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::format::{joined, or, quantity};
use super::{AGE, Column, NAME, Printer, age, condition, name};
use crate::value::{entries, flag, get, list, size, text};

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "ConfigMap",
        columns: &[NAME, Column::text("Data", "How many entries it has."), AGE],
        cells: |object, now| {
            vec![name(object), json!(size(object, "data") + size(object, "binaryData")), age(object, now)]
        },
    },
    Printer {
        group: "",
        kind: "Secret",
        columns: &[
            NAME,
            Column::text("Type", "What its data is for."),
            Column::text("Data", "How many entries it has."),
            AGE,
        ],
        cells: |object, now| {
            vec![name(object), json!(text(object, "type")), json!(size(object, "data")), age(object, now)]
        },
    },
    Printer {
        group: "",
        kind: "Namespace",
        columns: &[NAME, Column::text("Status", "Whether it is in use or going away."), AGE],
        cells: |object, now| vec![name(object), json!(text(object, "status.phase")), age(object, now)],
    },
    Printer {
        group: "",
        kind: "ServiceAccount",
        columns: &[NAME, AGE],
        cells: |object, now| vec![name(object), age(object, now)],
    },
    Printer {
        group: "",
        kind: "Node",
        columns: &[
            NAME,
            Column::text("Status", "Whether it is ready and takes new pods."),
            Column::text("Roles", "What it is used for."),
            AGE,
            Column::text("Version", "Version of its kubelet."),
            Column::text("Internal-IP", "Address inside the cluster.").wide(),
            Column::text("External-IP", "Address outside the cluster.").wide(),
            Column::text("OS-Image", "Operating system it reports.").wide(),
            Column::text("Kernel-Version", "Kernel it reports.").wide(),
            Column::text("Container-Runtime", "What runs its containers.").wide(),
        ],
        cells: node,
    },
    Printer {
        group: "",
        kind: "ResourceQuota",
        columns: &[
            NAME,
            Column::text("Request", "Used and allowed, of requests and counts."),
            Column::text("Limit", "Used and allowed, of limits."),
            AGE,
        ],
        cells: quota,
    },
    Printer {
        group: "",
        kind: "ComponentStatus",
        columns: &[
            NAME,
            Column::text("Status", "Whether the component is healthy."),
            Column::text("Message", "What it said."),
            Column::text("Error", "What went wrong."),
        ],
        cells: |object, _| {
            let healthy = condition(object, "conditions", "Healthy");
            let status = match healthy.map(|condition| text(condition, "status")) {
                Some("True") => "Healthy",
                Some(_) => "Unhealthy",
                None => "Unknown",
            };
            let healthy = healthy.unwrap_or(&Value::Null);
            vec![name(object), json!(status), json!(text(healthy, "message")), json!(text(healthy, "error"))]
        },
    },
    Printer {
        group: "",
        kind: "Status",
        columns: &[
            Column::text("Status", "Success or failure."),
            Column::text("Reason", "The kind of failure, in one word."),
            Column::text("Message", "What happened."),
        ],
        cells: |object, _| ["status", "reason", "message"].map(|field| json!(text(object, field))).to_vec(),
    },
    Printer {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        columns: &[
            NAME,
            Column::text("Service", "Who serves this group and version."),
            Column::text("Available", "Whether it can be reached."),
            AGE,
        ],
        cells: api_service,
    },
];

fn node(object: &Value, now: i64) -> Vec<Value> {
    // The last of a type counts.
    let ready = list(object, "status.conditions").iter().rfind(|condition| text(condition, "type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if flag(object, "spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let roles: BTreeSet<&str> = entries(object, "metadata.labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    let address = |of: &str| {
        let found = list(object, "status.addresses").iter().find(|address| text(address, "type") == of);
        json!(found.map_or("<none>", |address| text(address, "address")))
    };
    let info = get(object, "status.nodeInfo");
    let mut kernel = or(info, "kernelVersion", "<unknown>").to_owned();
    if !text(info, "architecture").is_empty() {
        kernel.push_str(&format!(" ({})", text(info, "architecture")));
    }
    vec![
        name(object),
        json!(status),
        json!(if roles.is_empty() { "<none>".to_owned() } else { joined(roles.into_iter()) }),
        age(object, now),
        json!(text(info, "kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        json!(or(info, "osImage", "<unknown>")),
        json!(kernel),
        json!(or(info, "containerRuntimeVersion", "<unknown>")),
    ]
}

fn quota(object: &Value, now: i64) -> Vec<Value> {
    let used = get(object, "status.used");
    let mut columns = [Vec::new(), Vec::new()];
    for (resource, hard) in entries(object, "status.hard") {
        let used = quantity(used.get(resource).unwrap_or(&Value::Null));
        let column = usize::from(resource.starts_with("limits."));
        columns[column].push(format!("{resource}: {used}/{}", quantity(hard)));
    }
    let [requests, limits] = columns.map(|column| json!(column.join(", ")));
    vec![name(object), requests, limits, age(object, now)]
}

fn api_service(object: &Value, now: i64) -> Vec<Value> {
    let service = get(object, "spec.service");
    let service = match service.is_null() {
        true => "Local".to_owned(),
        false => format!("{}/{}", text(service, "namespace"), text(service, "name")),
    };
    let available = condition(object, "status.conditions", "Available");
    let available = match available.map(|condition| (text(condition, "status"), text(condition, "reason"))) {
        None => "Unknown".to_owned(),
        Some((status, reason)) if status == "True" || reason.is_empty() => status.to_owned(),
        Some((status, reason)) => format!("{status} ({reason})"),
    };
    vec![name(object), json!(service), json!(available), age(object, now)]
}
