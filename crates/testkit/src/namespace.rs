//! A namespace per test.

use serde_json::json;

use crate::{Cluster, Request};

/// A namespace that goes with this value.
pub struct Namespace {
    cluster: Cluster,
    name: String,
}

impl Namespace {
    /// Makes a namespace and waits until Pods could be created in it.
    pub async fn create(cluster: &Cluster, name: &str) -> Namespace {
        let body = json!({"metadata": {"name": name}});
        cluster.send(&Request::json("POST", "/api/v1/namespaces", &body)).await.ok();
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        for _ in 0..500 {
            if cluster.send(&Request::new("GET", path.as_str())).await.code == 200 {
                return Namespace { cluster: cluster.clone(), name: name.into() };
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{}: namespace {name} got no default service account", cluster.name());
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // An embedded cluster goes as a whole.
        if self.cluster.server().is_some() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let request = Request::new("DELETE", format!("/api/v1/namespaces/{}", self.name));
        let cluster = self.cluster.clone();
        // The runtime of a test ends with it: wait for the answer here, on a thread of its own.
        let task = move || runtime.block_on(async move { cluster.send(&request).await });
        let _ = std::thread::spawn(task).join();
    }
}
