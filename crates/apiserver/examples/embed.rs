//! A Kubernetes API server in this process, in memory, and a controller that runs against it without a socket.

use std::sync::Arc;
use std::time::Duration;

use conductor_apiserver::{Options, Server, User};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{Controller, controller::Action, watcher};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start(Options::default()).await?;
    let client = server.client(User::new("me", ["system:masters"]));
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let greet = |map: Arc<ConfigMap>, maps: Arc<Api<ConfigMap>>| async move {
        let name = map.metadata.name.clone().unwrap_or_default();
        if name == "world" {
            let patch = json!({"data": {"greeting": format!("hello, {name}")}});
            maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok::<_, kube::Error>(Action::await_change())
    };
    let controller = Controller::new(maps.clone(), watcher::Config::default()).run(
        greet,
        |_, _, _| Action::requeue(Duration::from_secs(1)),
        Arc::new(maps.clone()),
    );
    tokio::spawn(controller.for_each(|_| async {}));
    let world = ConfigMap {
        metadata: kube::core::ObjectMeta { name: Some("world".into()), ..Default::default() },
        ..Default::default()
    };
    maps.create(&PostParams::default(), &world).await?;
    let greeted = |map: Option<&ConfigMap>| map.is_some_and(|map| map.data.is_some());
    let map = kube::runtime::wait::await_condition(maps, "world", greeted).await?;
    println!("{}", map.and_then(|map| map.data).unwrap_or_default()["greeting"]);
    Ok(())
}
