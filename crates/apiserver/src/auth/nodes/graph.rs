//! What belongs to which node: the Pods that are on it, what they use, and the volumes behind their claims.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use store::Entry;

use crate::auth::followed::Follower;

/// A kind of thing that a Pod uses in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Used {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A PersistentVolumeClaim.
    Claim,
    /// A ServiceAccount.
    Account,
    /// A ResourceClaim.
    Devices,
}

type Thing = (Used, String, String);

struct OnNode {
    node: String,
    uses: BTreeSet<Thing>,
}

struct Volume {
    claim: (String, String),
    secrets: Vec<(String, String)>,
}

/// Everything that nodes may ask for because it is theirs.
#[derive(Default)]
pub struct Graph {
    pods: HashMap<Arc<str>, OnNode>,
    /// The Pods that use a thing, by their keys.
    users: HashMap<Thing, BTreeSet<Arc<str>>>,
    volumes: HashMap<Arc<str>, Volume>,
    /// The volumes that need a Secret.
    secrets: HashMap<(String, String), BTreeSet<Arc<str>>>,
    attachments: HashMap<Arc<str>, String>,
    slices: HashMap<Arc<str>, String>,
}

const PODS: usize = 0;
const VOLUMES: usize = 1;
const ATTACHMENTS: usize = 2;

impl Graph {
    /// Whether a Pod is on a node.
    pub fn has_pod(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.pods.get(format!("{namespace}/{name}").as_str()).is_some_and(|pod| pod.node == node)
    }

    /// Whether a Pod on a node uses something, itself or through a volume of its claims.
    pub fn uses(&self, node: &str, what: Used, namespace: &str, name: &str) -> bool {
        let thing = (what, namespace.to_owned(), name.to_owned());
        let on_node = |pod: &Arc<str>| self.pods.get(pod).is_some_and(|pod| pod.node == node);
        if self.users.get(&thing).is_some_and(|pods| pods.iter().any(on_node)) {
            return true;
        }
        let volumes = self.secrets.get(&(thing.1, thing.2)).filter(|_| what == Used::Secret);
        volumes.is_some_and(|volumes| volumes.iter().any(|volume| self.has_volume(node, volume)))
    }

    /// Whether a volume is behind a claim of a Pod on a node.
    pub fn has_volume(&self, node: &str, name: &str) -> bool {
        let volume = self.volumes.get(name);
        volume.is_some_and(|volume| self.uses(node, Used::Claim, &volume.claim.0, &volume.claim.1))
    }

    /// Whether an attachment is to a node.
    pub fn has_attachment(&self, node: &str, name: &str) -> bool {
        self.attachments.get(name).is_some_and(|own| own == node)
    }

    /// Whether devices are a node's.
    pub fn has_slice(&self, node: &str, name: &str) -> bool {
        self.slices.get(name).is_some_and(|own| own == node)
    }
}

impl Follower for Graph {
    const TABLES: &'static [&'static str] =
        &["core/pods", "core/persistentvolumes", "storage.k8s.io/volumeattachments", "resource.k8s.io/resourceslices"];

    fn put(&mut self, table: usize, entry: &Entry) {
        self.remove(table, &entry.key);
        let Ok(object) = serde_json::from_slice::<Value>(&entry.value) else { return };
        let (spec, key) = (&object["spec"], entry.key.clone());
        let node = spec["nodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_owned);
        match (table, node) {
            (PODS, Some(node)) => {
                let namespace = key.split('/').next().unwrap_or_default();
                // A mirror of a node's own Pod gives it nothing.
                let named = if is_mirror(&object) { Vec::new() } else { used(&object) }.into_iter();
                let uses: BTreeSet<Thing> = named.map(|(what, name)| (what, namespace.to_owned(), name)).collect();
                for thing in &uses {
                    self.users.entry(thing.clone()).or_default().insert(key.clone());
                }
                self.pods.insert(key, OnNode { node, uses });
            }
            (VOLUMES, _) => {
                let text = |name: &str| spec["claimRef"][name].as_str().unwrap_or_default().to_owned();
                if !spec["claimRef"].is_object() {
                    return;
                }
                let claim = (text("namespace"), text("name"));
                let secrets = secrets_of(spec, &claim.0);
                for secret in &secrets {
                    self.secrets.entry(secret.clone()).or_default().insert(key.clone());
                }
                self.volumes.insert(key, Volume { claim, secrets });
            }
            (ATTACHMENTS, Some(node)) => drop(self.attachments.insert(key, node)),
            (_, Some(node)) if table > ATTACHMENTS => drop(self.slices.insert(key, node)),
            _ => {}
        }
    }

    fn remove(&mut self, table: usize, key: &Arc<str>) {
        match table {
            PODS => {
                let Some(pod) = self.pods.remove(key) else { return };
                for thing in pod.uses {
                    take(&mut self.users, thing, key);
                }
            }
            VOLUMES => {
                let Some(volume) = self.volumes.remove(key) else { return };
                for secret in volume.secrets {
                    take(&mut self.secrets, secret, key);
                }
            }
            ATTACHMENTS => drop(self.attachments.remove(key)),
            _ => drop(self.slices.remove(key)),
        }
    }
}

fn take<K: std::hash::Hash + Eq>(of: &mut HashMap<K, BTreeSet<Arc<str>>>, thing: K, key: &Arc<str>) {
    let none = of.get_mut(&thing).is_some_and(|keys| {
        keys.remove(key);
        keys.is_empty()
    });
    if none {
        of.remove(&thing);
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The annotation of a Pod that mirrors one which only its node knows.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a Pod has it.
pub fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

/// What a Pod uses by name, in its namespace.
pub fn used(pod: &Value) -> Vec<(Used, String)> {
    let spec = &pod["spec"];
    let mut found: Vec<(Used, String)> = Vec::new();
    let mut add = |what: Used, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            found.push((what, name.to_owned()));
        }
    };
    add(Used::Account, &spec["serviceAccountName"]);
    list(&spec["imagePullSecrets"]).for_each(|secret| add(Used::Secret, &secret["name"]));
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(&spec[field]) {
            for from in list(&container["envFrom"]) {
                add(Used::Secret, &from["secretRef"]["name"]);
                add(Used::ConfigMap, &from["configMapRef"]["name"]);
            }
            for own in list(&container["env"]) {
                add(Used::Secret, &own["valueFrom"]["secretKeyRef"]["name"]);
                add(Used::ConfigMap, &own["valueFrom"]["configMapKeyRef"]["name"]);
            }
        }
    }
    for volume in list(&spec["volumes"]) {
        add(Used::Secret, &volume["secret"]["secretName"]);
        add(Used::Secret, &volume["azureFile"]["secretName"]);
        for kind in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            add(Used::Secret, &volume[kind]["secretRef"]["name"]);
        }
        add(Used::Secret, &volume["csi"]["nodePublishSecretRef"]["name"]);
        add(Used::ConfigMap, &volume["configMap"]["name"]);
        for source in list(&volume["projected"]["sources"]) {
            add(Used::Secret, &source["secret"]["name"]);
            add(Used::ConfigMap, &source["configMap"]["name"]);
        }
        add(Used::Claim, &volume["persistentVolumeClaim"]["claimName"]);
        if volume["ephemeral"].is_object() {
            add(Used::Claim, &claim_of(pod, volume));
        }
    }
    let statuses = &pod["status"]["resourceClaimStatuses"];
    for claim in list(&spec["resourceClaims"]) {
        add(Used::Devices, &claim["resourceClaimName"]);
        let made = list(statuses).find(|status| status["name"] == claim["name"]);
        if claim.get("resourceClaimTemplateName").is_some() {
            add(Used::Devices, &made.unwrap_or(&Value::Null)["resourceClaimName"]);
        }
    }
    add(Used::Devices, &pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]);
    found
}

/// The name of the claim that is made for a Pod's ephemeral volume.
pub fn claim_of(pod: &Value, volume: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"])).into()
}

/// The Secrets that a node needs for a volume; what old volumes leave to guess is in the claim's namespace.
fn secrets_of(spec: &Value, claim: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |secret: &Value, (field, at): (&str, &str), otherwise: &str| {
        if let Some(name) = secret[field].as_str().filter(|name| !name.is_empty()) {
            let own = secret[at].as_str().filter(|own| !own.is_empty());
            found.push((own.unwrap_or(otherwise).to_owned(), name.to_owned()));
        }
    };
    add(&spec["azureFile"], ("secretName", "secretNamespace"), claim);
    for kind in ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"] {
        add(&spec[kind]["secretRef"], ("name", "namespace"), claim);
    }
    for kind in ["cinder", "storageos"] {
        add(&spec[kind]["secretRef"], ("name", "namespace"), "");
    }
    for secret in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
        add(&spec["csi"][secret], ("name", "namespace"), "");
    }
    found
}
