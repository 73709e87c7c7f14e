//! PersistentVolumes and PersistentVolumeClaims.

use conductor_machinery::field::{Errors, Path};
use conductor_machinery::names;
use serde_json::{Value, json};

use super::at::{At, IMMUTABLE, Report, same_field};
use super::common::{label, label_selector, node_selector, positive_amount, quantity, resource_amount, subdomain};
use super::sources::{Owner, csi_persistent, local, next_source, shared_source};
use crate::value::{annotation, get, set};

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// Sources that are mounted with options.
const MOUNT_OPTION_SOURCES: &[&str] = &[
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// All sources of a PersistentVolume, in the order they are checked.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn persistent_volume(errors: &mut Errors, object: &At<'_>) {
    volume_spec(errors, &object.field("spec"), object.text("metadata.name"), false);
    let spec = object.field("spec");
    if annotation(object.value, MOUNT_OPTIONS).is_some() && !MOUNT_OPTION_SOURCES.iter().any(|kind| spec.has(kind)) {
        let path = Path::root("metadata").child("annotations").child(MOUNT_OPTIONS);
        errors.forbidden(&path, "may not specify mount options for this volume type");
    }
}

/// The spec of a PersistentVolume, on its own or in line in a VolumeAttachment.
pub(super) fn volume_spec(errors: &mut Errors, spec: &At<'_>, name: &str, inline: bool) {
    if inline {
        let detail = "may not be specified in the context of inline volumes";
        for field in ["claimRef", "capacity"] {
            if spec.has(field) {
                errors.forbidden(&spec.at(field), detail);
            }
        }
        if !spec.has("csi") {
            errors.required(&spec.at("csi"), "has to be specified in the context of inline volumes");
        }
    }
    if spec.list("accessModes").is_empty() {
        errors.required(&spec.at("accessModes"), "");
    }
    access_modes(errors, spec);
    if !inline {
        capacity(errors, spec);
    }
    reclaim_policy(errors, spec, inline);
    let affinity = spec.field("nodeAffinity");
    if affinity.exists() {
        if inline {
            errors.forbidden(&affinity.path, "may not be specified in the context of inline volumes");
        } else if affinity.has("required") {
            node_selector(errors, &affinity.field("required"));
        } else {
            errors.required(&affinity.at("required"), "must specify required node constraints");
        }
    }
    source(errors, spec, name);
    let root = spec.text("hostPath.path");
    if !root.is_empty()
        && root.split('/').all(|step| matches!(step, "" | "."))
        && spec.text("persistentVolumeReclaimPolicy") == "Recycle"
    {
        errors.forbidden(&spec.at("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'");
    }
    class_names(errors, spec, inline);
}

fn access_modes(errors: &mut Errors, spec: &At<'_>) {
    let path = spec.at("accessModes");
    let modes: Vec<&str> = spec.list("accessModes").iter().map(|mode| mode.as_str().unwrap_or("")).collect();
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(&path, *mode, MODES);
    }
    let alone = modes.contains(&"ReadWriteOncePod");
    if alone && modes.iter().any(|mode| *mode != "ReadWriteOncePod" && MODES.contains(mode)) {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn capacity(errors: &mut Errors, spec: &At<'_>) {
    if spec.size("capacity") == 0 {
        errors.required(&spec.at("capacity"), "");
    }
    if spec.size("capacity") > 1 || !spec.has("capacity.storage") {
        errors.not_supported(&spec.at("capacity"), spec.get("capacity").clone(), &["storage"]);
    }
    for (_, amount) in spec.entries("capacity") {
        basic_amount(errors, &amount);
        positive_amount(errors, &amount.path, amount.value);
    }
}

fn basic_amount(errors: &mut Errors, amount: &At<'_>) {
    let value = quantity(amount.value).value();
    if value < 0 {
        errors.invalid(&amount.path, value, "must be a valid resource quantity");
    }
}

fn reclaim_policy(errors: &mut Errors, spec: &At<'_>, inline: bool) {
    let policy = spec.text("persistentVolumeReclaimPolicy");
    let path = spec.at("persistentVolumeReclaimPolicy");
    if inline && !policy.is_empty() && policy != "Retain" {
        errors.forbidden(&path, "may only be Retain in the context of inline volumes");
    } else if !inline && !policy.is_empty() && !matches!(policy, "Delete" | "Recycle" | "Retain") {
        errors.not_supported(&path, policy, &["Delete", "Recycle", "Retain"]);
    }
}

fn source(errors: &mut Errors, spec: &At<'_>, name: &str) {
    let mut count = 0;
    for kind in SOURCES {
        let Some(at) = next_source(errors, spec, kind, &mut count) else { continue };
        match *kind {
            "local" => {
                local(errors, &at);
                if !spec.has("nodeAffinity") {
                    errors.required(&spec.at("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            "csi" => csi_persistent(errors, &at),
            kind => shared_source(errors, kind, &at, Owner::PersistentVolume, name),
        }
    }
    if count == 0 {
        errors.required(&spec.path, "must specify a volume type");
    }
}

fn class_names(errors: &mut Errors, spec: &At<'_>, inline: bool) {
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        if inline {
            errors.forbidden(&spec.at("storageClassName"), "may not be specified in the context of inline volumes");
        } else {
            subdomain(errors, &spec.at("storageClassName"), class);
        }
    }
    if inline {
        if spec.has("volumeMode") && spec.text("volumeMode") != "Filesystem" {
            let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
            errors.forbidden(&spec.at("volumeMode"), detail);
        }
    } else {
        errors.one_of(spec, "volumeMode", &["Block", "Filesystem"]);
    }
    if spec.has("volumeAttributesClassName") && !inline {
        match spec.text("volumeAttributesClassName") {
            "" => errors.required(&spec.at("volumeAttributesClassName"), "an empty string is disallowed"),
            class => subdomain(errors, &spec.at("volumeAttributesClassName"), class),
        }
        if !spec.has("csi") {
            errors.required(&spec.at("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

pub(super) fn persistent_volume_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    persistent_volume(errors, new);
    let (now, before) = (get(new.value, "spec"), get(old.value, "spec"));
    let same = |kind: &str| {
        let (now, before) = (get(now, kind), get(before, kind));
        // The secret for expansion may be added later.
        if kind == "csi" && before.is_object() && get(before, "controllerExpandSecretRef").is_null() {
            let mut now = now.clone();
            now.as_object_mut().map(|source| source.remove("controllerExpandSecretRef"));
            return crate::value::same(&now, before);
        }
        crate::value::same(now, before)
    };
    if !SOURCES.iter().all(|kind| same(kind)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&new.at("spec.persistentvolumesource"), detail);
    }
    let immutable = |errors: &mut Errors, field: &str, detail: &str| {
        let (now, before) = (new.field("spec").get(field), old.field("spec").get(field));
        if !same_field(field, now, before) {
            errors.invalid(&Path::root(field), now.clone(), detail);
        }
    };
    immutable(errors, "volumeMode", IMMUTABLE);
    if old.has("spec.nodeAffinity") && !same_affinity(new.get("spec.nodeAffinity"), old.get("spec.nodeAffinity")) {
        let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
        errors.invalid(&Path::root("nodeAffinity"), new.get("spec.nodeAffinity").clone(), detail);
    }
    if old.has("spec.volumeAttributesClassName") && !new.has("spec.volumeAttributesClassName") {
        let detail = "update from non-nil value to nil is forbidden";
        errors.forbidden(&new.at("spec.volumeAttributesClassName"), detail);
    }
}

/// A node affinity may follow labels to their final names, and change in nothing else.
fn same_affinity(new: &Value, old: &Value) -> bool {
    let renamed = |key: &str| match key {
        "failure-domain.beta.kubernetes.io/zone" => Some("topology.kubernetes.io/zone"),
        "failure-domain.beta.kubernetes.io/region" => Some("topology.kubernetes.io/region"),
        "beta.kubernetes.io/os" => Some("kubernetes.io/os"),
        "beta.kubernetes.io/arch" => Some("kubernetes.io/arch"),
        "beta.kubernetes.io/instance-type" => Some("node.kubernetes.io/instance-type"),
        _ => None,
    };
    let mut old = old.clone();
    let terms = new.pointer("/required/nodeSelectorTerms").and_then(Value::as_array);
    let old_terms = old.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (term, old) in terms.into_iter().flatten().zip(old_terms.into_iter().flatten()) {
        let expressions = term.get("matchExpressions").and_then(Value::as_array);
        let old = old.get_mut("matchExpressions").and_then(Value::as_array_mut);
        for (requirement, old) in expressions.into_iter().flatten().zip(old.into_iter().flatten()) {
            let key = crate::value::text(old, "key").to_owned();
            if renamed(&key).is_some_and(|new| new == crate::value::text(requirement, "key")) {
                set(old, "", "key", renamed(&key).unwrap_or_default());
            }
        }
    }
    same_field("nodeAffinity", new, &old)
}

pub(super) fn persistent_volume_claim(errors: &mut Errors, object: &At<'_>) {
    claim_spec(errors, &object.field("spec"));
}

/// The spec of a claim, on its own or as a template.
pub(super) fn claim_spec(errors: &mut Errors, spec: &At<'_>) {
    if spec.list("accessModes").is_empty() {
        errors.required(&spec.at("accessModes"), "at least 1 access mode is required");
    }
    label_selector(errors, &spec.field("selector"));
    access_modes(errors, spec);
    let storage = spec.get("resources.requests.storage");
    let path = spec.at("resources").key("storage");
    if storage.is_null() {
        errors.required(&path, "");
    } else {
        let count = errors.len();
        positive_amount(errors, &path, storage);
        if errors.len() == count {
            resource_amount(errors, &path, "storage", storage);
        }
    }
    if !spec.text("storageClassName").is_empty() {
        subdomain(errors, &spec.at("storageClassName"), spec.text("storageClassName"));
    }
    errors.one_of(spec, "volumeMode", &["Block", "Filesystem"]);
    data_source(errors, &spec.field("dataSource"));
    let reference = spec.field("dataSourceRef");
    data_source(errors, &reference);
    if !reference.text("namespace").is_empty() {
        label(errors, &reference.at("namespace"), reference.text("namespace"));
    }
    if spec.has("dataSource") && reference.exists() {
        // Kubernetes gives the field's path where its value should stand
        let path = json!({});
        if !reference.text("namespace").is_empty() {
            errors.invalid(&spec.path, path, "may not be specified when dataSourceRef.namespace is specified");
        } else if ["apiGroup", "kind", "name"].iter().any(|f| spec.get("dataSource").get(*f) != reference.value.get(*f))
        {
            errors.invalid(&spec.path, path, "must match dataSourceRef");
        }
    }
    if !spec.text("volumeAttributesClassName").is_empty() {
        subdomain(errors, &spec.at("volumeAttributesClassName"), spec.text("volumeAttributesClassName"));
    }
}

fn data_source(errors: &mut Errors, source: &At<'_>) {
    if !source.exists() {
        return;
    }
    errors.required_text(source, "name");
    errors.required_text(source, "kind");
    match source.text("apiGroup") {
        "" if source.text("kind") != "PersistentVolumeClaim" => {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid(&source.path, source.text("kind"), detail);
        }
        "" => {}
        group => errors.each(&source.at("apiGroup"), group, names::dns1123_subdomain(group)),
    }
}

pub(super) fn claim_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    persistent_volume_claim(errors, new);
    let mut now = new.get("spec").clone();
    let mut before = old.get("spec").clone();
    // The binder names the volume once.
    if old.text("spec.volumeName").is_empty() {
        crate::value::keep(&mut before, &now, "volumeName");
    }
    let (old_class, new_class) = (old.get("spec.storageClassName"), new.get("spec.storageClassName"));
    let (old_note, new_note) = (annotation(old.value, CLASS_ANNOTATION), annotation(new.value, CLASS_ANNOTATION));
    let from_annotation = old_class.is_null()
        && old_note.is_some()
        && new_class.as_str() == old_note
        && (new_note.is_none() || new_note == old_note);
    let from_nil =
        old_class.is_null() && !new_class.is_null() && (old_note.is_none() || new_class.as_str() == old_note);
    if !from_annotation && old_note.unwrap_or("") != new_note.unwrap_or("") {
        let path = Path::root("metadata").child("annotations").child(CLASS_ANNOTATION);
        errors.invalid(&path, new_note.unwrap_or(""), IMMUTABLE);
    }
    if from_annotation || from_nil {
        crate::value::keep(&mut now, &before, "storageClassName");
    }
    if new.text("status.phase") == "Bound" {
        let size = old.get("spec.resources.requests.storage");
        if get(&now, "resources.requests").is_object() && !size.is_null() {
            set(&mut now, "resources.requests", "storage", size.clone());
        }
        crate::value::keep(&mut now, &before, "volumeAttributesClassName");
    }
    if !crate::value::same(&now, &before) {
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&new.at("spec"), detail);
    }
    let size = |claim: &At<'_>, path: &str| quantity(claim.get(path));
    let wanted = size(new, "spec.resources.requests.storage");
    if wanted < size(old, "spec.resources.requests.storage") && wanted <= size(old, "status.capacity.storage") {
        let detail = "field can not be less than status.capacity";
        errors.forbidden(&new.at("spec.resources.requests.storage"), detail);
    }
    if !same_field("volumeMode", new.get("spec.volumeMode"), old.get("spec.volumeMode")) {
        errors.invalid(&Path::root("volumeMode"), new.get("spec.volumeMode").clone(), IMMUTABLE);
    }
    let class = "spec.volumeAttributesClassName";
    let changed = !same_field("volumeAttributesClassName", new.get(class), old.get(class));
    if changed && old.has("status.currentVolumeAttributesClassName") && new.text(class).is_empty() {
        let to = if new.has(class) { "empty string" } else { "nil" };
        let detail = format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
        errors.forbidden(&new.at(class), &detail);
    }
}

pub(super) fn claim_status_update(errors: &mut Errors, new: &At<'_>) {
    version_required(errors, new);
    if new.list("spec.accessModes").is_empty() {
        errors.required(&Path::root("Spec").child("accessModes"), "");
    }
    for (_, amount) in new.entries("status.capacity") {
        basic_amount(errors, &amount);
    }
    let path = new.at("status.allocatedResourceStatuses");
    let states = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    for (name, state) in new.entries("status.allocatedResourceStatuses") {
        claim_resource(errors, &path, name);
        if !states.contains(&state.value.as_str().unwrap_or("")) {
            errors.not_supported(&path, json!(name), &states);
        }
    }
    for (name, amount) in new.entries("status.allocatedResources") {
        let count = errors.len();
        claim_resource(errors, &new.at("status.allocatedResources"), name);
        if errors.len() == count {
            resource_amount(errors, &amount.path, "storage", amount.value);
        }
    }
}

fn claim_resource(errors: &mut Errors, path: &Path, name: &str) {
    let messages = names::qualified_name(name);
    if messages.is_empty() && name != "storage" && (!name.contains('/') || name.contains("kubernetes.io/")) {
        errors.not_supported(path, name, &["storage"]);
    }
    errors.each(path, name, messages);
}

/// A status is written over the version it was read at.
pub(super) fn version_required(errors: &mut Errors, new: &At<'_>) {
    if new.text("metadata.resourceVersion").is_empty() {
        errors.required(&Path::root("resourceVersion"), "");
    }
}
