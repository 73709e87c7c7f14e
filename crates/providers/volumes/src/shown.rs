//! How a volume appears: as a PersistentVolume of this machine's Node.
//!
//! A volume that the claim engine made is shown by the engine; one that an administrator declares is shown here, and from then on the
//! engine leads its life as it does any other's.

use conductor_claims::lifecycle::{CLAIM_UID, RECORDED, RESOURCE_FINALIZER, RESOURCE_REF, RESOURCE_UID, RETAINED};
use conductor_claims::volumes::{IMPLEMENTATION, PROVISIONED_BY, PROVISIONER, RECLAIM};
use conductor_local::{Object, Trouble};
use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};

use crate::spec::Shown;

/// The source of a PersistentVolume that is a directory of this machine: goes into `status.volume`.
pub fn source(path: &str, node: &str) -> Value {
    json!({
        "local": {"path": path},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{
            "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}],
        }]}},
    })
}

fn behind(object: &Object) -> Value {
    json!({
        "apiVersion": object.0["apiVersion"], "kind": object.0["kind"],
        "namespace": object.namespace(), "name": object.name(),
    })
}

fn is_behind(volume: &Value, object: &Object) -> bool {
    let said = volume["metadata"]["annotations"][IMPLEMENTATION].as_str().unwrap_or_default();
    serde_json::from_str::<Value>(said).is_ok_and(|said| said == behind(object))
}

/// Whether an administrator made it: the engine labels what it makes. What is behind a resource of another type is that type's to show.
fn is_declared(object: &Object) -> bool {
    let meta = &object.0["metadata"];
    let of = meta["annotations"][RESOURCE_REF].as_str().and_then(|reference| reference.split(' ').nth(1));
    meta["labels"][CLAIM_UID].is_null() && of.is_none_or(|kind| kind == "PersistentVolume")
}

/// The PersistentVolume of a declared volume, as it is to be.
pub fn volume(object: &Object, spec: &Shown, source: &Value, capacity: &str) -> Value {
    let mut annotations = json!({PROVISIONED_BY: PROVISIONER, IMPLEMENTATION: behind(object).to_string()});
    let policy = match spec.reclaim_policy.as_str() {
        "Recycle" => {
            annotations[RECLAIM] = json!("Recycle");
            "Retain"
        }
        "Delete" => "Delete",
        _ => "Retain",
    };
    let mut inner: Map<String, Value> = source.as_object().cloned().unwrap_or_default();
    let modes = if spec.access_modes.is_empty() { json!(["ReadWriteOnce"]) } else { json!(spec.access_modes) };
    inner.insert("capacity".into(), json!({"storage": capacity}));
    inner.insert("accessModes".into(), modes);
    inner.insert("persistentVolumeReclaimPolicy".into(), json!(policy));
    inner.insert("storageClassName".into(), json!(spec.storage_class_name));
    let labels = object.0["metadata"]["labels"].as_object().into_iter().flatten();
    let labels: Map<String, Value> =
        labels.filter(|(key, _)| !key.contains("conductor.io/")).map(|(k, v)| (k.clone(), v.clone())).collect();
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": object.name(), "labels": labels, "annotations": annotations, "finalizers": [RESOURCE_FINALIZER],
        },
        "spec": inner,
    })
}

fn own(client: &kube::Client, object: &Object) -> Api<DynamicObject> {
    let text = |key: &str| object.0[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let plural = format!("{}s", kind.to_ascii_lowercase());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &plural);
    Api::namespaced_with(client.clone(), object.namespace(), &resource)
}

async fn find(client: &kube::Client, name: &str) -> Result<Option<Value>, Trouble> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let found = volumes.get_opt(name).await?;
    Ok(found.and_then(|volume| serde_json::to_value(volume).ok()))
}

/// Sees to it that a declared volume is shown. What an administrator took out of service stays out.
pub async fn show(
    client: &kube::Client,
    object: &Object,
    spec: &Shown,
    source: &Value,
    capacity: &str,
) -> Result<(), Trouble> {
    let retained = object.0["metadata"]["annotations"][RETAINED].as_str() == Some("true");
    if !is_declared(object) || retained {
        return Ok(());
    }
    let live = match find(client, object.name()).await? {
        Some(live) if !is_behind(&live, object) => {
            let message = format!(
                "PersistentVolume {} exists and is not this volume's: rename the {}",
                object.name(),
                object.0["kind"].as_str().unwrap_or("object")
            );
            return Err(Trouble::new("NameTaken", message));
        }
        Some(live) => live,
        None => {
            // before anybody can use it: what a volume says is behind it counts only where that says so, too
            let reference = format!("v1 PersistentVolume {}", object.name());
            if object.0["metadata"]["annotations"][RESOURCE_REF] != reference {
                let patch = json!({"metadata": {"uid": object.uid(), "annotations": {RESOURCE_REF: reference}}});
                own(client, object).patch(object.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            let wanted = volume(object, spec, source, capacity);
            let wanted: PersistentVolume = serde_json::from_value(wanted)
                .map_err(|e| Trouble::new("Invalid", format!("it cannot be shown as a PersistentVolume: {e}")))?;
            let volumes: Api<PersistentVolume> = Api::all(client.clone());
            let made = volumes.create(&PostParams::default(), &wanted).await?;
            serde_json::to_value(made).unwrap_or_default()
        }
    };
    let uid = &live["metadata"]["uid"];
    if object.0["metadata"]["labels"][RESOURCE_UID] != *uid {
        let patch = json!({"metadata": {
            "uid": object.uid(),
            "labels": {RESOURCE_UID: uid},
            "annotations": {RECORDED: "true", RESOURCE_REF: format!("v1 PersistentVolume {}", object.name())},
        }});
        own(client, object).patch(object.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    if live["spec"]["capacity"]["storage"].as_str() != Some(capacity) {
        let patch = json!({"spec": {"capacity": {"storage": capacity}}});
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        volumes.patch(object.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// Whether a volume is a claim's: from when it refers to it, for that it is Bound may be said later, until it is Released.
fn is_taken(volume: &Value) -> bool {
    let referring = volume["spec"]["claimRef"]["uid"].as_str().is_some_and(|uid| !uid.is_empty());
    match volume["status"]["phase"].as_str() {
        Some("Bound") => true,
        Some("Released" | "Failed") => false,
        _ => referring,
    }
}

/// Before anything is destroyed: not under a claim.
pub async fn ensure_unused(client: &kube::Client, object: &Object) -> Result<(), Trouble> {
    let Some(volume) = find(client, object.name()).await? else { return Ok(()) };
    if !is_behind(&volume, object) || !is_taken(&volume) {
        return Ok(());
    }
    let claim = |key: &str| volume["spec"]["claimRef"][key].as_str().unwrap_or_default();
    let message = format!(
        "it holds the data of PersistentVolumeClaim {}/{}: it goes when that is gone",
        claim("namespace"),
        claim("name")
    );
    Err(Trouble::held(message))
}

/// Says something of a volume where people look for it: on the claim that has it, or on the volume itself.
pub async fn warn(client: &kube::Client, object: &Object, reason: &str, message: &str) {
    let volume = find(client, object.name()).await.ok().flatten().filter(|volume| is_behind(volume, object));
    let claim = volume.map(|volume| volume["spec"]["claimRef"].clone()).filter(|claim| !claim["uid"].is_null());
    let mut about = claim.unwrap_or_else(|| {
        let mut about = behind(object);
        about["uid"] = json!(object.uid());
        about
    });
    for (key, usual) in [("apiVersion", "v1"), ("kind", "PersistentVolumeClaim")] {
        if about[key].is_null() {
            about[key] = json!(usual);
        }
    }
    let namespace = about["namespace"].as_str().unwrap_or_default().to_owned();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{}.{:x}", about["name"].as_str().unwrap_or_default(), since.as_nanos());
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
        "involvedObject": about, "type": "Warning", "reason": reason, "message": message, "count": 1,
        "firstTimestamp": crate::now(), "lastTimestamp": crate::now(),
        "source": {"component": "conductor"}, "reportingComponent": "conductor.io/volumes",
    });
    let Ok(event) = serde_json::from_value::<Event>(event) else { return };
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::debug!(%error, "an Event could not be written");
    }
}

/// Takes the PersistentVolume of a declared volume away; the engine lets it go when it sees that nothing is behind it.
pub async fn hide(client: &kube::Client, object: &Object) -> Result<(), Trouble> {
    if !is_declared(object) {
        return Ok(());
    }
    let Some(volume) = find(client, object.name()).await? else { return Ok(()) };
    if is_behind(&volume, object) && volume["metadata"]["deletionTimestamp"].is_null() {
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        match volumes.delete(object.name(), &Default::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => drop(outcome?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_its_claim_s_from_the_reference_on() {
        let (claim, reserved) = (json!({"name": "c", "uid": "u"}), json!({"name": "c"}));
        for (reference, phase, taken) in [
            (&claim, "Bound", true),
            (&claim, "Available", true),
            (&claim, "Pending", true),
            (&claim, "", true),
            (&claim, "Released", false),
            (&claim, "Failed", false),
            (&reserved, "Available", false),
            (&Value::Null, "Available", false),
            (&Value::Null, "Bound", true),
        ] {
            let volume = json!({"spec": {"claimRef": reference}, "status": {"phase": phase}});
            assert_eq!(is_taken(&volume), taken, "{volume}");
        }
    }

    #[test]
    fn a_declared_volume_is_shown_with_its_labels_and_policy() {
        let object = Object(json!({
            "apiVersion": "volume.local.conductor.io/v1alpha1", "kind": "DirectoryVolume",
            "metadata": {"name": "a", "namespace": "conductor-system", "labels": {"disk": "fast", "conductor.io/resource-uid": "x"}},
        }));
        let check = |policy: &str, expected: &str, recycle: bool| {
            let spec = Shown { reclaim_policy: policy.into(), ..Shown::default() };
            let shown = volume(&object, &spec, &source("/srv/a", "n1"), "10Gi");
            assert_eq!(shown["spec"]["persistentVolumeReclaimPolicy"], expected, "{policy}");
            assert_eq!(shown["metadata"]["annotations"][RECLAIM].is_string(), recycle, "{policy}");
            assert_eq!(shown["metadata"]["labels"], json!({"disk": "fast"}));
            assert!(is_behind(&shown, &object));
            serde_json::from_value::<PersistentVolume>(shown).expect("is a PersistentVolume");
        };
        check("", "Retain", false);
        check("Recycle", "Retain", true);
        check("Delete", "Delete", false);
    }
}
