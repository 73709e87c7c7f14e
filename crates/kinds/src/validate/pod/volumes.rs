//! Volumes of a Pod.

use std::collections::{HashMap, HashSet};

use conductor_machinery::field::Errors;
use conductor_machinery::names;
use serde_json::Value;

use super::environment::{object_field, resource_field};
use crate::validate::at::{At, Report};
use crate::validate::common::{csi_driver_name, label, local_path, quantity, subdomain, template_metadata};
use crate::validate::persistent::claim_spec;
use crate::validate::sources::{Owner, git_repo, next_source, shared_source};

/// All sources of a Pod's volume, in the order they are checked; `emptyDir` comes before them.
const SOURCES: &[&str] = &[
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// The volumes that mounts may name: by name, and whether a block device can be made of it.
pub(super) type Volumes<'a> = HashMap<&'a str, &'a Value>;

/// Checks all volumes and gives those that are fine.
pub(super) fn volumes<'a>(errors: &mut Errors, spec: &At<'a>, pod: &str, is_pod: bool) -> Volumes<'a> {
    let created: HashSet<String> = spec
        .items("volumes")
        .filter(|volume| volume.has("ephemeral") && !pod.is_empty())
        .map(|volume| format!("{pod}-{}", volume.text("name")))
        .collect();
    let mut known: Volumes<'a> = HashMap::new();
    for volume in spec.items("volumes") {
        let name = volume.text("name");
        let count = errors.len();
        source(errors, &volume, pod, is_pod);
        if name.is_empty() {
            errors.required(&volume.at("name"), "");
        } else {
            label(errors, &volume.at("name"), name);
        }
        if known.contains_key(name) {
            errors.duplicate(&volume.at("name"), name);
        }
        if errors.len() == count {
            known.insert(name, volume.value);
        }
        let claim = volume.text("persistentVolumeClaim.claimName");
        if created.contains(claim) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&volume.at("persistentVolumeClaim.claimName"), claim, detail);
        }
    }
    known
}

fn source(errors: &mut Errors, volume: &At<'_>, pod: &str, is_pod: bool) {
    let mut count = 0;
    if volume.has("emptyDir") {
        count += 1;
        if quantity(volume.get("emptyDir.sizeLimit")).sign() < 0 {
            errors.forbidden(&volume.at("emptyDir.sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
    }
    for kind in SOURCES {
        let Some(at) = next_source(errors, volume, kind, &mut count) else { continue };
        match *kind {
            "gitRepo" => git_repo(errors, &at),
            "secret" => keyed(errors, &at, "secretName"),
            "configMap" => keyed(errors, &at, "name"),
            "persistentVolumeClaim" => errors.required_text(&at, "claimName"),
            "downwardAPI" => {
                mode(errors, &at, "defaultMode");
                for file in at.list("items") {
                    downward_file(errors, &At::new(file, at.path.clone()));
                }
            }
            "projected" => projected(errors, &at),
            "csi" => {
                csi_driver_name(errors, &at.at("driver"), at.text("driver"));
                let secret = at.field("nodePublishSecretRef");
                if secret.exists() {
                    match secret.text("name") {
                        "" => errors.required(&secret.at("name"), ""),
                        name => subdomain(errors, &at.at("name"), name),
                    }
                }
            }
            "ephemeral" => ephemeral(errors, volume, &at, pod),
            "image" => {
                if is_pod {
                    errors.required_text(&at, "reference");
                }
                errors.required_one_of(&at, "pullPolicy", &["Always", "IfNotPresent", "Never"]);
            }
            kind => {
                shared_source(errors, kind, &at, Owner::Pod, volume.text("name"));
                if kind == "iscsi"
                    && at.has("initiatorName")
                    && volume.text("name").len() + 1 + at.text("targetPortal").len() > 64
                {
                    let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                        iscsi.initiatorName is specified.";
                    errors.invalid(&volume.at("name"), volume.text("name"), detail);
                }
            }
        }
    }
    if count == 0 {
        errors.required(&volume.path, "must specify a volume type");
    }
}

fn ephemeral(errors: &mut Errors, volume: &At<'_>, at: &At<'_>, pod: &str) {
    let template = at.field("volumeClaimTemplate");
    if !template.exists() {
        errors.required(&template.path, "");
    } else {
        template_metadata(errors, &template.field("metadata"));
        claim_spec(errors, &template.field("spec"));
    }
    let name = volume.text("name");
    if !pod.is_empty() && !name.is_empty() {
        let claim = format!("{pod}-{name}");
        for message in names::dns1123_subdomain(&claim) {
            errors.invalid(&volume.at("name"), name, format!("PVC name {claim:?}: {message}"));
        }
    }
}

fn mode(errors: &mut Errors, at: &At<'_>, field: &str) {
    if !(0..=0o777).contains(&at.int(field)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&at.at(field), at.int(field), detail);
    }
}

/// A Secret or ConfigMap whose keys become files.
fn keyed(errors: &mut Errors, at: &At<'_>, name: &str) {
    errors.required_text(at, name);
    mode(errors, at, "defaultMode");
    for item in at.items("items") {
        key_to_path(errors, &item);
    }
}

fn key_to_path(errors: &mut Errors, item: &At<'_>) {
    errors.required_text(item, "key");
    errors.required_text(item, "path");
    local_path(errors, &item.at("path"), item.text("path"));
    mode(errors, item, "mode");
}

fn downward_file(errors: &mut Errors, file: &At<'_>) {
    errors.required_text(file, "path");
    local_path(errors, &file.at("path"), file.text("path"));
    if file.has("fieldRef") {
        object_field(errors, &file.field("fieldRef"), FILE_FIELDS);
        if file.has("resourceFieldRef") {
            errors.invalid(&file.path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if file.has("resourceFieldRef") {
        resource_field(errors, &file.field("resourceFieldRef"), true);
    } else {
        errors.required(&file.path, "one of fieldRef and resourceFieldRef is required");
    }
    mode(errors, file, "mode");
}

fn projected(errors: &mut Errors, at: &At<'_>) {
    mode(errors, at, "defaultMode");
    let mut paths: HashSet<&str> = HashSet::new();
    for source in at.items("sources") {
        for kind in ["secret", "configMap"] {
            let keyed = source.field(kind);
            if !keyed.exists() {
                continue;
            }
            errors.required_text(&keyed, "name");
            for item in keyed.items("items") {
                key_to_path(errors, &item);
                once(errors, &mut paths, at, item.text("path"), keyed.text("name"));
            }
        }
        let downward = source.field("downwardAPI");
        for file in downward.list("items") {
            let file = At::new(file, downward.path.clone());
            downward_file(errors, &file);
            once(errors, &mut paths, at, file.text("path"), file.text("path"));
        }
        let token = source.field("serviceAccountToken");
        if token.exists() {
            let seconds = token.int("expirationSeconds");
            if seconds < 600 {
                let detail = "may not specify a duration less than 10 minutes";
                errors.invalid(&token.at("expirationSeconds"), seconds, detail);
            }
            if seconds > 1 << 32 {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.invalid(&token.at("expirationSeconds"), seconds, detail);
            }
            match token.text("path") {
                "" => errors.required(&at.at("path"), ""),
                path => local_path(errors, &at.at("path"), path),
            }
        }
        let bundle = source.field("clusterTrustBundle");
        if bundle.exists() {
            trust_bundle(errors, &bundle);
            once(errors, &mut paths, at, bundle.text("path"), bundle.text("path"));
        }
        let certificate = source.field("podCertificate");
        if certificate.exists() {
            let files = ["credentialBundlePath", "keyPath", "certificateChainPath"];
            for field in files {
                local_path(errors, &certificate.at(field), certificate.text(field));
                once(errors, &mut paths, at, certificate.text(field), certificate.text(field));
            }
            if files.iter().all(|field| certificate.text(field).is_empty()) {
                let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
                errors.required(&certificate.path, detail);
            }
        }
        let kinds = source.value.as_object().map_or(0, |map| map.values().filter(|value| !value.is_null()).count());
        if kinds > 1 {
            errors.forbidden(&source.path, "may not specify more than 1 volume type per source");
        }
    }
}

fn once<'a>(errors: &mut Errors, paths: &mut HashSet<&'a str>, at: &At<'_>, path: &'a str, shown: &str) {
    if path.is_empty() {
        return;
    }
    if !paths.insert(path) {
        errors.invalid(&at.path, shown, "conflicting duplicate paths");
    }
}

fn trust_bundle(errors: &mut Errors, bundle: &At<'_>) {
    match (bundle.has("name"), bundle.has("signerName")) {
        (true, true) => {
            errors.invalid(&bundle.path, bundle.value.clone(), "only one of name and signerName may be used");
        }
        (false, false) => errors.required(&bundle.path, "either name or signerName must be specified"),
        (true, false) if bundle.text("name").is_empty() => {
            errors.required(&bundle.at("name"), "must be a valid object name");
        }
        (true, false) if bundle.has("labelSelector") => {
            let detail = "labelSelector must be unset if name is specified";
            errors.invalid(&bundle.at("labelSelector"), bundle.get("labelSelector").clone(), detail);
        }
        _ => {}
    }
    errors.required_text(bundle, "path");
    local_path(errors, &bundle.at("path"), bundle.text("path"));
}
