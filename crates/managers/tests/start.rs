//! What managers do before they have seen everything.

mod common;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use common::faulty::RDS;
use common::{Cluster, admin, class_of_volumes, pvc, volume_claim};
use conductor_apiserver::Service;
use conductor_apiserver::body::Body as Answer;
use conductor_managers::{Managers, Options};
use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

/// A server that takes its time to say which Managers there are.
#[derive(Clone)]
struct Slow(Service);

impl tower::Service<Request<Body>> for Slow {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut inner = self.0.clone();
        let waits = request.uri().path().ends_with("/managers");
        Box::pin(async move {
            if waits {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tower::Service::call(&mut inner, request).await
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_before_it_is_known_who_serves_what() {
    let cluster = Cluster::start(true).await;
    for object in class_of_volumes() {
        cluster.create(&object).await;
    }
    let manager = json!({
        "apiVersion": "conductor.io/v1alpha1", "kind": "Manager", "metadata": {"name": "others"},
        "spec": {"type": "persistentvolumes", "classes": [{"name": "another"}]},
    });
    cluster.create(&manager).await;
    cluster.create(&volume_claim("default", "c", "1Gi", "nfs")).await;
    let client = kube::Client::new(Slow(cluster.server().service(admin())), "default");
    let _managers = Managers::start(client, Options::default()).await.expect("managers");
    let unserved = |claim: Option<&serde_json::Value>| {
        let conditions = claim.and_then(|claim| claim["status"]["conditions"].as_array());
        conditions.is_some_and(|all| all.iter().any(|condition| condition["reason"] == "ClassUnserved"))
    };
    cluster.until(&pvc("default", "c"), "no manager serves it", unserved).await;
    let made = cluster.api.list(RDS, "RDSInstance", "").await.expect("a list");
    assert!(made.is_empty(), "{made:?}");
}
