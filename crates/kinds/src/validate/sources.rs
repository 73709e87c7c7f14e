//! Where volumes come from: the sources of PersistentVolumes and of Pods' volumes.

use conductor_machinery::field::Errors;
use conductor_machinery::names;

use super::at::{At, Report};
use super::common::{csi_driver_name, descending_path, label, no_backsteps, subdomain};

/// Whose volume it is; the same source asks a little more of a PersistentVolume, whose secrets are in any namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Pod,
    PersistentVolume,
}

/// How a source is called where it is one too many, and where its own fields are.
fn spelling(source: &str) -> (&str, &str) {
    match source {
        "gcePersistentDisk" => ("gcePersistentDisk", "persistentDisk"),
        "cephfs" => ("cephFS", "cephfs"),
        "downwardAPI" => ("downwarAPI", "downwardAPI"),
        same => (same, same),
    }
}

/// Reports a source that is one too many, or its path for checking it.
pub(super) fn next_source<'a>(errors: &mut Errors, holder: &At<'a>, source: &str, count: &mut usize) -> Option<At<'a>> {
    if !holder.has(source) {
        return None;
    }
    let (extra, own) = spelling(source);
    // FlexVolumes of PersistentVolumes are not counted against the others.
    let uncounted = source == "flexVolume" && holder.has("accessModes");
    if *count > 0 && !uncounted {
        errors.forbidden(&holder.at(extra), "may not specify more than 1 volume type");
        return None;
    }
    *count += 1;
    Some(At::new(holder.get(source), holder.at(own)))
}

/// Checks a source that both Pods and PersistentVolumes can have. `volume` is the volume's name.
pub(super) fn shared_source(errors: &mut Errors, source: &str, at: &At<'_>, owner: Owner, volume: &str) {
    let mut need = |fields: &[&str]| {
        for field in fields {
            errors.required_text(at, field);
        }
    };
    match source {
        "awsElasticBlockStore" => {
            need(&["volumeID"]);
            partition(errors, at);
        }
        "gcePersistentDisk" => {
            need(&["pdName"]);
            partition(errors, at);
        }
        "vsphereVolume" => need(&["volumePath"]),
        "photonPersistentDisk" => need(&["pdID"]),
        "portworxVolume" => need(&["volumeID"]),
        "scaleIO" => need(&["gateway", "system", "volumeName"]),
        "hostPath" => host_path(errors, at),
        "nfs" => {
            need(&["server", "path"]);
            if !at.text("path").starts_with('/') {
                errors.invalid(&at.at("path"), at.text("path"), "must be an absolute path");
            }
        }
        "glusterfs" => {
            need(&["endpoints", "path"]);
            if owner == Owner::PersistentVolume && at.has("endpointsNamespace") {
                match at.text("endpointsNamespace") {
                    "" => {
                        let detail = "if the endpointnamespace is set, it must be a valid namespace name";
                        errors.invalid(&at.at("endpointsNamespace"), "", detail);
                    }
                    namespace => label(errors, &at.at("endpointsNamespace"), namespace),
                }
            }
        }
        "rbd" => {
            if at.list("monitors").is_empty() {
                errors.required(&at.at("monitors"), "");
            }
            errors.required_text(at, "image");
        }
        "cephfs" if at.list("monitors").is_empty() => {
            errors.required(&at.at("monitors"), "");
        }
        "cinder" => {
            need(&["volumeID"]);
            secret_ref(errors, at, owner);
        }
        "storageos" => storage_os(errors, at, owner),
        "quobyte" => quobyte(errors, at),
        "flocker" => flocker(errors, at),
        "fc" => fibre_channel(errors, at),
        "flexVolume" => flex(errors, at),
        "azureFile" => {
            need(&["secretName", "shareName"]);
            if owner == Owner::PersistentVolume && at.has("secretNamespace") {
                errors.required_text(at, "secretNamespace");
            }
        }
        "azureDisk" => azure_disk(errors, at),
        "iscsi" => iscsi(errors, at, owner, volume),
        _ => {}
    }
}

fn partition(errors: &mut Errors, at: &At<'_>) {
    if !(0..=255).contains(&at.int("partition")) {
        errors.invalid(&at.at("partition"), at.int("partition"), names::range_error(1, 255));
    }
}

fn secret_ref(errors: &mut Errors, at: &At<'_>, owner: Owner) {
    let secret = at.field("secretRef");
    if secret.exists() {
        errors.required_text(&secret, "name");
        if owner == Owner::PersistentVolume {
            errors.required_text(&secret, "namespace");
        }
    }
}

pub(super) fn host_path(errors: &mut Errors, at: &At<'_>) {
    let path = at.text("path");
    if path.is_empty() {
        return errors.required(&at.at("path"), "");
    }
    no_backsteps(errors, &at.at("path"), path);
    let types = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    errors.one_of(at, "type", &types);
}

fn storage_os(errors: &mut Errors, at: &At<'_>, owner: Owner) {
    match at.text("volumeName") {
        "" => errors.required(&at.at("volumeName"), ""),
        name => label(errors, &at.at("volumeName"), name),
    }
    if !at.text("volumeNamespace").is_empty() {
        label(errors, &at.at("volumeNamespace"), at.text("volumeNamespace"));
    }
    secret_ref(errors, at, owner);
}

fn quobyte(errors: &mut Errors, at: &At<'_>) {
    let registry = at.text("registry");
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    if registry.is_empty() {
        errors.required(&at.at("registry"), detail);
    } else if at.text("tenant").len() >= 65 {
        errors.required(&at.at("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for pair in registry.split(',') {
            let one_colon = pair.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
            if !one_colon {
                errors.invalid(&at.at("registry"), registry, detail);
            }
        }
    }
    errors.required_text(at, "volume");
}

fn flocker(errors: &mut Errors, at: &At<'_>) {
    let (name, uuid) = (at.text("datasetName"), at.text("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(&at.path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errors.invalid(&at.path, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        errors.invalid(&at.at("datasetName"), name, "must not contain '/'");
    }
}

fn fibre_channel(errors: &mut Errors, at: &At<'_>) {
    let (targets, ids) = (at.list("targetWWNs"), at.list("wwids"));
    if targets.is_empty() && ids.is_empty() {
        errors.required(&at.at("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&at.at("targetWWNs"), targets.to_vec(), detail);
    }
    if !targets.is_empty() {
        match at.maybe_int("lun") {
            None => errors.required(&at.at("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) if !(0..=255).contains(&lun) => errors.invalid(&at.at("lun"), lun, names::range_error(0, 255)),
            Some(_) => {}
        }
    }
}

fn flex(errors: &mut Errors, at: &At<'_>) {
    errors.required_text(at, "driver");
    for (key, option) in at.entries("options") {
        let namespace = format!(".{}", key.split('/').next().unwrap_or("").to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            errors.invalid(&option.path, key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_disk(errors: &mut Errors, at: &At<'_>) {
    errors.required_text(at, "diskName");
    errors.required_text(at, "diskURI");
    errors.one_of(at, "cachingMode", &["None", "ReadOnly", "ReadWrite"]);
    errors.one_of(at, "kind", &["Dedicated", "Managed", "Shared"]);
    if at.has("kind") {
        let uri = at.text("diskURI");
        let managed = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
        let blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
        if at.text("kind") == "Managed" {
            if !uri.starts_with("/subscriptions/") {
                errors.not_supported(&at.at("diskURI"), uri, &[managed]);
            }
        } else if !uri.starts_with("https://") {
            errors.not_supported(&at.at("diskURI"), uri, &[blob]);
        }
    }
}

fn iscsi(errors: &mut Errors, at: &At<'_>, owner: Owner, volume: &str) {
    let persistent = owner == Owner::PersistentVolume;
    errors.required_text(at, "targetPortal");
    let portal = at.text("targetPortal");
    let too_long = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
        iscsi.initiatorName is specified.";
    let long = at.has("initiatorName") && volume.len() + 1 + portal.len() > 64;
    if long && persistent {
        errors.invalid(&at.at("targetportal"), portal, too_long);
    }
    let unknown =
        if persistent { "must be valid format" } else { "must be valid format starting with iqn, eui, or naa" };
    match at.text("iqn") {
        "" => errors.required(&at.at("iqn"), ""),
        name => initiator(errors, &at.at("iqn"), name, unknown),
    }
    if !(0..=255).contains(&at.int("lun")) {
        errors.invalid(&at.at("lun"), at.int("lun"), names::range_error(0, 255));
    }
    if (at.flag("chapAuthDiscovery") || at.flag("chapAuthSession")) && !at.has("secretRef") {
        errors.required(&at.at("secretRef"), "");
    }
    if persistent && at.has("secretRef") {
        errors.required_text(&at.field("secretRef"), "name");
    }
    if at.has("initiatorName") {
        initiator(errors, &at.at("initiatorname"), at.text("initiatorName"), unknown);
    }
}

/// `iqn.2001-04.com.example:storage`, `eui.` and 16 characters, `naa.` and 32.
fn initiator(errors: &mut Errors, path: &conductor_machinery::field::Path, name: &str, unknown: &str) {
    let alphanumeric = |text: &str, length: usize| {
        text.chars().count() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let fine = if name.starts_with("iqn") {
        is_iqn(name)
    } else if let Some(rest) = name.strip_prefix("eui") {
        rest.get(1..).is_some_and(|id| alphanumeric(id, 16))
    } else if let Some(rest) = name.strip_prefix("naa") {
        rest.get(1..).is_some_and(|id| alphanumeric(id, 32))
    } else {
        return errors.invalid(path, name, unknown);
    };
    if !fine {
        errors.invalid(path, name, "must be valid format");
    }
}

fn is_iqn(name: &str) -> bool {
    let Some((authority, target)) = name.strip_prefix("iqn.").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let Some((date, domain)) = authority.split_once('.') else { return false };
    let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    let dated = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    dated
        && !domain.is_empty()
        && domain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        && !target.is_empty()
        && !target.chars().any(|c| c.is_whitespace() || ",;*&$|".contains(c))
}

/// A CSI volume of a PersistentVolume.
pub(super) fn csi_persistent(errors: &mut Errors, at: &At<'_>) {
    csi_driver_name(errors, &at.at("driver"), at.text("driver"));
    errors.required_text(at, "volumeHandle");
    for field in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let secret = at.field(field);
        if secret.exists() {
            match secret.text("name") {
                "" => errors.required(&secret.at("name"), ""),
                name => subdomain(errors, &secret.at("name"), name),
            }
            match secret.text("namespace") {
                "" => errors.required(&secret.at("namespace"), ""),
                namespace => label(errors, &secret.at("namespace"), namespace),
            }
        }
    }
}

/// A local disk.
pub(super) fn local(errors: &mut Errors, at: &At<'_>) {
    match at.text("path") {
        "" => errors.required(&at.at("path"), ""),
        path => no_backsteps(errors, &at.at("path"), path),
    }
}

/// A git repository.
pub(super) fn git_repo(errors: &mut Errors, at: &At<'_>) {
    errors.required_text(at, "repository");
    descending_path(errors, &at.at("directory"), at.text("directory"));
}
