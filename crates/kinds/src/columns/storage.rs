//! Volumes, claims on them, their classes and drivers.

use serde_json::{Value, json};

use super::format::{int_or_text, joined, or, quantity, texts};
use super::{AGE, Column, NAME, Printer, age, is_being_deleted, name};
use crate::value::{annotation, flag, get, list, text};

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "PersistentVolume",
        columns: &[
            NAME,
            Column::text("Capacity", "How much it holds."),
            Column::text("Access Modes", "How it can be mounted."),
            Column::text("Reclaim Policy", "What becomes of it when its claim is gone."),
            Column::text("Status", "Whether it is free, bound or released."),
            Column::text("Claim", "The claim it is bound to."),
            Column::text("StorageClass", "Its class."),
            Column::text("VolumeAttributesClass", "The class of its attributes."),
            Column::text("Reason", "Why it is in this state."),
            AGE,
            Column::text("VolumeMode", "File system or block device.").wide(),
        ],
        cells: volume,
    },
    Printer {
        group: "",
        kind: "PersistentVolumeClaim",
        columns: &[
            NAME,
            Column::text("Status", "Whether it is bound."),
            Column::text("Volume", "The volume it is bound to."),
            Column::text("Capacity", "How much that volume holds."),
            Column::text("Access Modes", "How that volume can be mounted."),
            Column::text("StorageClass", "The class it asks for."),
            Column::text("VolumeAttributesClass", "The class of attributes it asks for."),
            AGE,
            Column::text("VolumeMode", "File system or block device.").wide(),
        ],
        cells: claim,
    },
    Printer {
        group: "storage.k8s.io",
        kind: "StorageClass",
        columns: &[
            NAME,
            Column::text("Provisioner", "What makes its volumes."),
            Column::text("ReclaimPolicy", "What becomes of a volume when its claim is gone."),
            Column::text("VolumeBindingMode", "When a claim is bound."),
            Column::text("AllowVolumeExpansion", "Whether its volumes can grow."),
            AGE,
        ],
        cells: class,
    },
    Printer {
        group: "storage.k8s.io",
        kind: "VolumeAttributesClass",
        columns: &[NAME, Column::text("DriverName", "The driver that understands its parameters."), AGE],
        cells: |object, now| vec![name(object), json!(text(object, "driverName")), age(object, now)],
    },
    Printer {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        columns: &[
            NAME,
            Column { format: "name", ..Column::text("Attacher", "The driver that attaches.") },
            Column::text("PV", "The volume."),
            Column::text("Node", "The node it is attached to."),
            Column::boolean("Attached", "Whether it is attached now."),
            AGE,
        ],
        cells: |object, now| {
            vec![
                name(object),
                json!(text(object, "spec.attacher")),
                json!(text(object, "spec.source.persistentVolumeName")),
                json!(text(object, "spec.nodeName")),
                json!(flag(object, "status.attached")),
                age(object, now),
            ]
        },
    },
    Printer {
        group: "storage.k8s.io",
        kind: "CSINode",
        columns: &[NAME, Column::integer("Drivers", "How many drivers the node has."), AGE],
        cells: |object, now| vec![name(object), json!(list(object, "spec.drivers").len()), age(object, now)],
    },
    Printer {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        columns: &[
            NAME,
            Column::boolean("AttachRequired", "Whether volumes are attached before they are mounted."),
            Column::boolean("PodInfoOnMount", "Whether the driver is told about the pod."),
            Column::boolean("StorageCapacity", "Whether the driver reports how much it has left."),
            Column::text("TokenRequests", "Audiences of the tokens the driver gets."),
            Column::boolean("RequiresRepublish", "Whether the driver is called again and again."),
            Column::text("Modes", "Lifecycles of volumes it supports."),
            AGE,
        ],
        cells: driver,
    },
];

/// The phase, or that it is going away.
fn phase(object: &Value) -> Value {
    json!(if is_being_deleted(object) { "Terminating" } else { text(object, "status.phase") })
}

fn storage_class(object: &Value) -> Value {
    let annotated = annotation(object, "volume.beta.kubernetes.io/storage-class");
    json!(annotated.unwrap_or(text(object, "spec.storageClassName")))
}

fn access_modes(object: &Value, path: &str) -> String {
    const MODES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| texts(object, path).any(|one| one == mode);
    joined(MODES.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short))
}

fn text_or_unset(object: &Value, path: &str) -> Value {
    json!(int_or_text(get(object, path)).unwrap_or_else(|| "<unset>".to_owned()))
}

fn volume(object: &Value, now: i64) -> Vec<Value> {
    let claim = get(object, "spec.claimRef");
    let claim = match claim.is_null() {
        true => String::new(),
        false => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
    };
    vec![
        name(object),
        json!(quantity(get(object, "spec.capacity.storage"))),
        json!(access_modes(object, "spec.accessModes")),
        json!(text(object, "spec.persistentVolumeReclaimPolicy")),
        phase(object),
        json!(claim),
        storage_class(object),
        text_or_unset(object, "spec.volumeAttributesClassName"),
        json!(text(object, "status.reason")),
        age(object, now),
        text_or_unset(object, "spec.volumeMode"),
    ]
}

fn claim(object: &Value, now: i64) -> Vec<Value> {
    let volume = text(object, "spec.volumeName");
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (quantity(get(object, "status.capacity.storage")), access_modes(object, "status.accessModes")),
    };
    vec![
        name(object),
        phase(object),
        json!(volume),
        json!(capacity),
        json!(modes),
        storage_class(object),
        text_or_unset(object, "spec.volumeAttributesClassName"),
        age(object, now),
        text_or_unset(object, "spec.volumeMode"),
    ]
}

fn class(object: &Value, now: i64) -> Vec<Value> {
    const DEFAULT: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let mut title = text(object, "metadata.name").to_owned();
    if DEFAULT.iter().any(|key| annotation(object, key) == Some("true")) {
        title.push_str(" (default)");
    }
    vec![
        json!(title),
        json!(text(object, "provisioner")),
        json!(or(object, "reclaimPolicy", "Delete")),
        json!(or(object, "volumeBindingMode", "Immediate")),
        json!(flag(object, "allowVolumeExpansion")),
        age(object, now),
    ]
}

fn driver(object: &Value, now: i64) -> Vec<Value> {
    let tokens = list(object, "spec.tokenRequests");
    let audiences = joined(tokens.iter().map(|token| text(token, "audience")));
    let modes = joined(texts(object, "spec.volumeLifecycleModes"));
    vec![
        name(object),
        json!(get(object, "spec.attachRequired").as_bool().unwrap_or(true)),
        json!(flag(object, "spec.podInfoOnMount")),
        json!(flag(object, "spec.storageCapacity")),
        json!(if tokens.is_empty() { "<unset>".to_owned() } else { audiences }),
        json!(flag(object, "spec.requiresRepublish")),
        json!(if modes.is_empty() { "<none>".to_owned() } else { modes }),
        age(object, now),
    ]
}
