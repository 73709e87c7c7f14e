//! Pods and what makes them.

use conductor_machinery::selector::Selector;
use serde_json::{Value, json};

use super::format::{containers, int_or_text, labels, number, selector};
use super::{AGE, CONTAINERS, Column, IMAGES, NAME, Printer, SELECTOR, age, metrics, name, pod};
use crate::value::{flag, get, list, text};

pub(super) static PRINTERS: &[Printer] = &[
    Printer { group: "", kind: "Pod", columns: pod::COLUMNS, cells: pod::cells },
    Printer {
        group: "",
        kind: "PodTemplate",
        columns: &[
            NAME,
            Column::text("Containers", CONTAINERS.description),
            Column::text("Images", IMAGES.description),
            Column::text("Pod Labels", "Labels of its pods."),
        ],
        cells: |object, _| {
            let [names, images] = containers(object, "template.spec");
            vec![name(object), names, images, json!(labels(object, "template.metadata.labels"))]
        },
    },
    Printer {
        group: "",
        kind: "ReplicationController",
        columns: &[
            NAME,
            Column::integer("Desired", "Pods there should be."),
            Column::integer("Current", "Pods there are."),
            Column::integer("Ready", "Pods that are ready."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| {
            let [names, images] = containers(object, "spec.template.spec");
            vec![
                name(object),
                json!(number(object, "spec.replicas")),
                json!(number(object, "status.replicas")),
                json!(number(object, "status.readyReplicas")),
                age(object, now),
                names,
                images,
                json!(labels(object, "spec.selector")),
            ]
        },
    },
    Printer {
        group: "apps",
        kind: "ReplicaSet",
        columns: &[
            NAME,
            Column::integer("Desired", "Pods there should be."),
            Column::integer("Current", "Pods there are."),
            Column::integer("Ready", "Pods that are ready."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: |object, now| {
            let [names, images] = containers(object, "spec.template.spec");
            vec![
                name(object),
                json!(number(object, "spec.replicas")),
                json!(number(object, "status.replicas")),
                json!(number(object, "status.readyReplicas")),
                age(object, now),
                names,
                images,
                json!(selector(object, "spec.selector")),
            ]
        },
    },
    Printer {
        group: "apps",
        kind: "Deployment",
        columns: &[
            NAME,
            Column::text("Ready", "Ready pods of those there should be."),
            Column::text("Up-to-date", "Pods made from the newest template."),
            Column::text("Available", "Pods that have been ready for long enough."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: deployment,
    },
    Printer {
        group: "apps",
        kind: "StatefulSet",
        columns: &[NAME, Column::text("Ready", "Ready pods of those there should be."), AGE, CONTAINERS, IMAGES],
        cells: |object, now| {
            let [names, images] = containers(object, "spec.template.spec");
            vec![name(object), ready(object), age(object, now), names, images]
        },
    },
    Printer {
        group: "apps",
        kind: "DaemonSet",
        columns: &[
            NAME,
            Column::integer("Desired", "Nodes that should run its pod."),
            Column::integer("Current", "Nodes that run its pod."),
            Column::integer("Ready", "Nodes whose pod is ready."),
            Column::integer("Up-to-date", "Nodes whose pod is made from the newest template."),
            Column::integer("Available", "Nodes whose pod has been ready for long enough."),
            Column::text("Node Selector", "Labels of the nodes it is for."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: daemon_set,
    },
    Printer {
        group: "apps",
        kind: "ControllerRevision",
        columns: &[
            NAME,
            Column::text("Controller", "The object whose history it is part of."),
            Column::text("Revision", "Its place in that history."),
            AGE,
        ],
        cells: revision,
    },
    Printer {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        columns: &[
            NAME,
            Column::text("Reference", "The object it scales."),
            Column::text("Targets", "Measured and wanted values."),
            Column::text("MinPods", "Fewest pods."),
            Column::text("MaxPods", "Most pods."),
            Column::text("Replicas", "Pods there are."),
            AGE,
        ],
        cells: metrics::autoscaler,
    },
    Printer {
        group: "autoscaling",
        kind: "Scale",
        columns: &[
            Column { format: "", ..NAME },
            Column::integer("Desired", "Pods there should be."),
            Column::integer("Available", "Pods there are."),
            AGE,
        ],
        cells: |object, now| {
            let [desired, available] = ["spec.replicas", "status.replicas"].map(|path| json!(number(object, path)));
            vec![name(object), desired, available, age(object, now)]
        },
    },
    Printer {
        group: "policy",
        kind: "PodDisruptionBudget",
        columns: &[
            NAME,
            Column::text("Min Available", "Pods that must stay."),
            Column::text("Max Unavailable", "Pods that may be missing."),
            Column::integer("Allowed Disruptions", "Pods that may be evicted now."),
            AGE,
        ],
        cells: |object, now| {
            let limit = |path| json!(int_or_text(get(object, path)).unwrap_or_else(|| "N/A".to_owned()));
            vec![
                name(object),
                limit("spec.minAvailable"),
                limit("spec.maxUnavailable"),
                json!(number(object, "status.disruptionsAllowed")),
                age(object, now),
            ]
        },
    },
];

fn ready(object: &Value) -> Value {
    json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas")))
}

fn deployment(object: &Value, now: i64) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template.spec");
    let selector = Selector::from_object(get(object, "spec.selector"));
    vec![
        name(object),
        ready(object),
        json!(number(object, "status.updatedReplicas")),
        json!(number(object, "status.availableReplicas")),
        age(object, now),
        names,
        images,
        json!(selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string())),
    ]
}

fn daemon_set(object: &Value, now: i64) -> Vec<Value> {
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ];
    let status = get(object, "status");
    let mut cells = vec![name(object)];
    cells.extend(counts.iter().map(|count| json!(number(status, count))));
    cells.extend([json!(labels(object, "spec.template.spec.nodeSelector")), age(object, now)]);
    cells.extend(containers(object, "spec.template.spec"));
    cells.push(json!(selector(object, "spec.selector")));
    cells
}

fn revision(object: &Value, now: i64) -> Vec<Value> {
    let owner = list(object, "metadata.ownerReferences").iter().find(|owner| flag(owner, "controller"));
    let owner = match owner {
        Some(owner) => {
            let kind = text(owner, "kind").to_lowercase();
            let name = text(owner, "name");
            match text(owner, "apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
                None => format!("{kind}/{name}"),
            }
        }
        None => "<none>".to_owned(),
    };
    vec![name(object), json!(owner), json!(number(object, "revision")), age(object, now)]
}
