//! `NodeRestriction`: what a node writes is about itself and the Pods that are on it.

use std::collections::BTreeSet;

use machinery::status::Status;
use serde_json::{Map, Value};

use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};
use crate::auth::nodes::graph::{MIRROR, Used, is_mirror, used};
use crate::auth::nodes::node_of;
use crate::context::Context;

const PODS: &str = "core/pods";
const NODES: &str = "core/nodes";

/// Holds nodes to what is theirs.
pub struct Nodes;

impl Plugin for Nodes {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let Some(node) = node_of(attributes.user) else { return Ok(()) };
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", attributes.user.name);
            return Err(forbidden(attributes, why));
        }
        if attributes.operation == Operation::Connect {
            return Ok(());
        }
        let told = match (attributes.resource.gk(), attributes.subresource) {
            (("", "Pod"), "") => pod(attributes, node)?,
            (("", "Pod"), "status") => pod_status(attributes, node),
            // Evictions are judged where they are: what comes of them is a deletion.
            (("", "Pod"), "eviction") => Ok(()),
            (("", "Pod"), part) => {
                Err(format!("unexpected pod subresource {part:?}, only 'status' and 'eviction' are allowed"))
            }
            (("", "Node"), _) => own(attributes, node),
            (("", "PersistentVolumeClaim"), "status") => claim_status(attributes, node),
            (("", "PersistentVolumeClaim"), _) => Err("may only update PVC status".into()),
            (("coordination.k8s.io", "Lease"), _) => lease(attributes, node),
            (("storage.k8s.io", "CSINode"), _) => match attributes.name == node {
                true => Ok(()),
                false => Err("can only access CSINode with the same name as the requesting node".into()),
            },
            (("resource.k8s.io", "ResourceSlice"), _) => slice(attributes, node),
            (("certificates.k8s.io", "CertificateSigningRequest"), _) => certificate(attributes, node),
            _ => Ok(()),
        };
        told.map_err(|why| forbidden(attributes, why))
    }
}

type Verdict = Result<(), String>;

fn pod(attributes: &Attributes<'_>, node: &str) -> Result<Verdict, Status> {
    Ok(match attributes.operation {
        Operation::Create => mirror(attributes, node)?,
        Operation::Delete if attributes.old["spec"]["nodeName"] != node => {
            Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        Operation::Delete => Ok(()),
        other => Err(format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            other.as_str()
        )),
    })
}

/// The Pods that a node makes only show what it runs by itself.
fn mirror(attributes: &Attributes<'_>, node: &str) -> Result<Verdict, Status> {
    let (meta, spec) = (&attributes.object["metadata"], &attributes.object["spec"]);
    let can_only = |what: &str| Ok(Err(format!("node {node:?} can only create pods with {what}")));
    if !is_mirror(&attributes.object) {
        return Ok(Err(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods")));
    }
    if spec["nodeName"] != node {
        return can_only("spec.nodeName set to itself");
    }
    let owner = match meta["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => return can_only("an owner reference set to itself"),
        [owner] => owner,
        _ => return can_only("a single owner reference set to itself"),
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return can_only("an owner reference set to itself");
    }
    if owner["controller"] != true {
        return can_only("a controller owner reference set to itself");
    }
    if owner["blockOwnerDeletion"] == true {
        return Ok(Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference")));
    }
    let Some(stored) = attributes.view.object(NODES, node) else {
        return Err(Status::not_found("", "node", node));
    };
    let uid = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (said, there) = (uid(&owner["uid"]), uid(&stored["metadata"]["uid"]));
    if said != there {
        return Ok(Err(format!("node {node} UID mismatch: expected {said} got {there}")));
    }
    Ok(match references(&attributes.object) {
        Some(what) => Err(format!("node {node:?} can not create pods that reference {what}")),
        None => Ok(()),
    })
}

/// What of the API a Pod refers to.
fn references(pod: &Value) -> Option<&'static str> {
    let found = used(pod);
    let uses = |what: Used| found.iter().any(|(used, _)| *used == what);
    match () {
        () if uses(Used::Account) => Some("serviceaccounts"),
        () if uses(Used::Secret) => Some("secrets"),
        () if uses(Used::ConfigMap) => Some("configmaps"),
        () if uses(Used::Devices) || pod["spec"]["resourceClaims"].as_array().is_some_and(|own| !own.is_empty()) => {
            Some("resourceclaims")
        }
        () => pod["spec"]["volumes"].as_array().into_iter().flatten().find_map(of_volume),
    }
}

fn of_volume(volume: &Value) -> Option<&'static str> {
    let direct = [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    let projected = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let of = |source: &Value, table: &[(&str, &'static str)]| {
        table.iter().find(|(kind, _)| source[*kind].is_object()).map(|(_, what)| *what)
    };
    let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
    of(volume, &direct).or_else(|| sources.find_map(|source| of(source, &projected)))
}

fn pod_status(attributes: &Attributes<'_>, node: &str) -> Verdict {
    let (new, old) = (&attributes.object, attributes.old);
    let empty = |labels: &Value| labels.as_object().cloned().unwrap_or_default();
    let claims = |pod: &Value| -> Vec<(Value, Value)> {
        let list = pod["status"]["resourceClaimStatuses"].as_array().cloned().unwrap_or_default();
        list.into_iter().map(|own| (own["name"].clone(), own["resourceClaimName"].clone())).collect()
    };
    match () {
        () if attributes.operation != Operation::Update => {
            Err(format!("unexpected operation {:?}", attributes.operation.as_str()))
        }
        () if old["spec"]["nodeName"] != node => {
            Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"))
        }
        () if empty(&old["metadata"]["labels"]) != empty(&new["metadata"]["labels"]) => {
            Err(format!("node {node:?} cannot update labels through pod status"))
        }
        () if claims(old) != claims(new) => Err(format!("node {node:?} cannot update resource claim statues")),
        () if old["status"]["extendedResourceClaimStatus"] != new["status"]["extendedResourceClaimStatus"] => {
            Err(format!("node {node:?} cannot update extended resource claim status"))
        }
        () => Ok(()),
    }
}

/// A node's own Node.
fn own(attributes: &Attributes<'_>, node: &str) -> Verdict {
    if attributes.name != node {
        return Err(format!("node {node:?} is not allowed to modify node {:?}", attributes.name));
    }
    let (new, old) = (&attributes.object, attributes.old);
    let source = |node: &Value| node["spec"]["configSource"].clone();
    match attributes.operation {
        Operation::Create => {
            if !source(new).is_null() {
                return Err(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
            }
            match forbidden_labels(new, &Value::Null).as_str() {
                "" => Ok(()),
                labels => Err(format!("node {node:?} is not allowed to set the following labels: {labels}")),
            }
        }
        Operation::Update => {
            if !source(new).is_null() && source(new) != source(old) {
                return Err(format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            if list(&new["spec"]["taints"]) != list(&old["spec"]["taints"]) {
                return Err(format!("node {node:?} is not allowed to modify taints"));
            }
            if list(&new["metadata"]["ownerReferences"]) != list(&old["metadata"]["ownerReferences"]) {
                return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            match forbidden_labels(new, old).as_str() {
                "" => Ok(()),
                labels => Err(format!("is not allowed to modify labels: {labels}")),
            }
        }
        _ => Ok(()),
    }
}

/// The labels among those that differ that are not for a node to set: with them it would draw others' Pods to itself.
fn forbidden_labels(new: &Value, old: &Value) -> String {
    const KUBELET: [&str; 11] = [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ];
    let none = Map::new();
    let of = |node: &'_ Value| node["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let (new, old) = (of(new), if old.is_null() { none } else { of(old) });
    let differ = new.keys().chain(old.keys()).filter(|key| new.get(*key) != old.get(*key));
    let bad: BTreeSet<&str> = differ
        .map(String::as_str)
        .filter(|key| {
            let space = key.split_once('/').map_or("", |(space, _)| space);
            let within = |of: &str| space.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
            let kubelet = KUBELET.contains(key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
            within("node-restriction.kubernetes.io") || ((within("kubernetes.io") || within("k8s.io")) && !kubelet)
        })
        .collect();
    bad.into_iter().collect::<Vec<_>>().join(", ")
}

/// Of a claim a node says only how large it has become.
fn claim_status(attributes: &Attributes<'_>, node: &str) -> Verdict {
    if attributes.operation != Operation::Update {
        return Err(format!("unexpected operation {:?}", attributes.operation.as_str()));
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
            if let Some(status) = claim["status"].as_object_mut() {
                status.remove(field);
            }
        }
        let meta = crate::write::meta_mut(&mut claim);
        meta.remove("resourceVersion");
        meta.remove("managedFields");
        claim
    };
    match rest(&attributes.object) == rest(attributes.old) {
        true => Ok(()),
        false => Err(format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        )),
    }
}

fn lease(attributes: &Attributes<'_>, node: &str) -> Verdict {
    const NAMESPACE: &str = "kube-node-lease";
    match () {
        () if attributes.namespace != NAMESPACE => {
            Err(format!("can only access leases in the {NAMESPACE:?} system namespace"))
        }
        () if attributes.name != node => {
            Err("can only access node lease with the same name as the requesting node".into())
        }
        () => Ok(()),
    }
}

fn slice(attributes: &Attributes<'_>, node: &str) -> Verdict {
    let (object, verb) = match attributes.operation {
        Operation::Create => (&attributes.object, "create"),
        Operation::Delete => (attributes.old, "delete"),
        _ => return Ok(()),
    };
    match object["spec"]["nodeName"] == node {
        true => Ok(()),
        false => Err(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node")),
    }
}

fn certificate(attributes: &Attributes<'_>, node: &str) -> Verdict {
    let spec = &attributes.object["spec"];
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let of_nodes = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
    if attributes.operation != Operation::Create || !of_nodes.contains(&signer) {
        return Ok(());
    }
    let name = crate::signer::common_name(&spec["request"]).map_err(|why| format!("unable to parse csr: {why}"))?;
    match name == format!("system:node:{node}") {
        true => Ok(()),
        false => Err(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

/// Whether a node may evict a Pod: one that is on it.
pub fn may_evict(cx: &Context) -> Result<(), Status> {
    let Some(node) = node_of(&cx.user) else { return Ok(()) };
    let key = format!("{}/{}", cx.info.namespace, cx.info.name);
    let pod = cx.server.store.get(PODS, &key).and_then(|entry| crate::plan::parse_stored(&entry).ok());
    match pod {
        None => Err(Status::not_found("", "pod", &cx.info.name)),
        Some(pod) if pod["spec"]["nodeName"] == node => Ok(()),
        Some(_) => {
            let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
            Err(Status::forbidden("", "pods", &cx.info.name, why))
        }
    }
}
