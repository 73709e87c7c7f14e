//! A cluster, managers on it, and ways to look at both.
#![allow(dead_code, reason = "each test uses its part")]

pub mod faulty;
pub mod people;
pub mod scenario;

use std::time::{Duration, Instant};

use conductor_apiserver::{Options as ServerOptions, Server, User};
use conductor_claims::lifecycle::Target;
use conductor_managers::{Api, Managers, Options, install};
use http::Method;
use serde_json::{Value, json};

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server in memory, or any that a client reaches.
pub struct Cluster {
    server: Option<Server>,
    client: kube::Client,
    pub api: Api,
}

pub fn admin() -> std::sync::Arc<User> {
    User::new("admin", ["system:masters"])
}

impl Cluster {
    pub async fn start(types: bool) -> Cluster {
        let server = Server::start(ServerOptions::default()).await.expect("a server");
        let mut cluster = Cluster::of(server.client(admin()));
        cluster.server = Some(server);
        if types {
            install::install(&cluster.api).await.expect("installed");
        }
        cluster
    }

    /// Any cluster.
    pub fn of(client: kube::Client) -> Cluster {
        let filter = tracing_subscriber::EnvFilter::try_from_env("CONDUCTOR_LOG").unwrap_or_else(|_| "error".into());
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        Cluster { server: None, api: Api::new(client.clone()), client }
    }

    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The server, where it is in this process.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("a server in this process")
    }

    pub async fn managers(&self, options: Options) -> Managers {
        Managers::start(self.client(), options).await.expect("managers")
    }

    pub async fn create(&self, object: &Value) -> Value {
        self.create_with(object, "").await
    }

    /// Makes an object, with this after the path.
    pub async fn create_with(&self, object: &Value, query: &str) -> Value {
        let mut target = Target::of(object);
        target.name.clear();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let result = match self.api.path(&target).await {
                Ok(path) => {
                    let (path, body) = (format!("{path}{query}"), object.to_string().into_bytes());
                    self.api.call(Method::POST, &path, "application/json", body).await
                }
                Err(failure) => Err(failure),
            };
            match result {
                Ok(made) => return made,
                Err(failure) if is_early(&failure) && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(failure) => panic!("{failure}: {object}"),
            }
        }
    }

    pub async fn patch(&self, target: &Target, patch: Value) -> Value {
        let path = self.api.path(target).await.expect("a path");
        let body = patch.to_string().into_bytes();
        self.api
            .call(Method::PATCH, &path, "application/merge-patch+json", body)
            .await
            .unwrap_or_else(|e| panic!("{e}: {path}"))
    }

    pub async fn delete(&self, target: &Target) {
        let path = self.api.path(target).await.expect("a path");
        self.api
            .call(Method::DELETE, &path, "application/json", Vec::new())
            .await
            .unwrap_or_else(|e| panic!("{e}: {path}"));
    }

    /// The object with everything about it, `managedFields` included.
    pub async fn get(&self, target: &Target) -> Option<Value> {
        let answer = match self.api.path(target).await {
            Ok(path) => self.api.call_bytes(Method::GET, &path, "application/json", Vec::new()).await,
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(bytes) => Some(serde_json::from_slice(&bytes).expect("JSON")),
            Err(failure) if failure.code == 404 => None,
            Err(failure) => panic!("{failure}: {target:?}"),
        }
    }

    pub async fn namespace(&self, name: &str) {
        self.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }

    /// Waits until an object is as expected.
    pub async fn until(&self, target: &Target, what: &str, holds: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.get(target).await;
            if holds(object.as_ref()) {
                return object;
            }
            assert!(Instant::now() < deadline, "{what}: {target:?} is {object:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Whether what a write needs is still being made: its kind, a Pod's service account, or a real Kubernetes' knowledge of the kind
/// that a policy names, which it renews every 30 seconds.
fn is_early(failure: &conductor_managers::Failure) -> bool {
    let said = |text: &str| failure.message.contains(text);
    failure.code == 404
        || said("serviceaccount")
        || said("failed to find resource referenced by paramKind")
        || said("There can be a delay between when CustomResourceDefinitions are created")
}

pub fn target(api_version: &str, kind: &str, namespace: &str, name: &str) -> Target {
    Target {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        status: false,
    }
}

pub fn pv(name: &str) -> Target {
    target("v1", "PersistentVolume", "", name)
}

pub fn pvc(namespace: &str, name: &str) -> Target {
    target("v1", "PersistentVolumeClaim", namespace, name)
}

pub fn volume(name: &str, size: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/tmp"},
        },
    })
}

pub fn volume_claim(namespace: &str, name: &str, size: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}}},
    })
}

/// A class of volumes that are made of RDSInstances, and its template.
pub fn class_of_volumes() -> [Value; 2] {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "nfs"},
        "provisioner": "volume.conductor.io", "reclaimPolicy": "Delete", "parameters": {"template": "nfs"},
    });
    let template = json!({
        "apiVersion": "conductor.io/v1alpha1", "kind": "VolumeTemplate", "metadata": {"name": "nfs"},
        "spec": {
            "template": {"apiVersion": faulty::RDS, "kind": "RDSInstance", "spec": {"storage": "${claim.spec.resources.requests.storage}"}},
            "volume": {"nfs": {"server": "${implementation.status.host}", "path": "/${claim.metadata.name}"}},
        },
    });
    [class, template]
}

pub fn phase_is(phase: &'static str) -> impl Fn(Option<&Value>) -> bool {
    move |object| object.is_some_and(|o| o["status"]["phase"] == phase)
}

/// Whether everything expected is there: maps by key, null is absent, lists item by item.
pub fn covers(live: &Value, expected: &Value) -> bool {
    match expected {
        Value::Object(map) => map.iter().all(|(key, value)| match value {
            Value::Null => live[key].is_null(),
            value => covers(&live[key], value),
        }),
        Value::Array(items) => {
            let live = live.as_array().map_or(&[][..], Vec::as_slice);
            live.len() == items.len() && live.iter().zip(items).all(|(l, e)| covers(l, e))
        }
        Value::String(text) if text.starts_with("~") => live.as_str().is_some_and(|l| l.contains(&text[1..])),
        value => live == value,
    }
}
