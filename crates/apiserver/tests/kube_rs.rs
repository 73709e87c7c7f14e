//! kube-rs' own runtime against the server, in process and over TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use conductor_apiserver::{Options, Server, User};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams,
    PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event as NewEvent, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizing, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event as Seen};
use kube::runtime::{Controller, WatchStreamExt, reflector};
use kube::{Client, Config, Resource, ResourceExt};
use serde_json::json;

fn named(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

async fn tls_client(server: &Server) -> Client {
    let listening = server.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("https://{}", listening.address);
    // The server listens for as long as the test runs.
    std::mem::forget(listening);
    let text = server.pki().kubeconfig(&url, "admin", Some("system:masters")).unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Runs a scenario in process and over TLS.
async fn both<F: Future<Output = ()>>(scenario: impl Fn(Client) -> F) {
    let server = Server::start(Options::default()).await.unwrap();
    scenario(server.client(User::new("me", ["system:masters"]))).await;
    let server = Server::start(Options::default()).await.unwrap();
    scenario(tls_client(&server).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_what_is_and_what_happens() {
    both(|client| async move {
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        maps.create(&PostParams::default(), &named("before")).await.unwrap();
        for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
            let mut events = watcher::watcher(maps.clone(), config.labels("!kube")).boxed();
            let mut seen = Vec::new();
            while let Some(event) = events.try_next().await.unwrap() {
                match event {
                    Seen::InitApply(map) => seen.push(format!("init {}", map.metadata.name.unwrap())),
                    Seen::InitDone => {
                        maps.create(&PostParams::default(), &named("during")).await.unwrap();
                        maps.delete("during", &DeleteParams::default()).await.unwrap();
                    }
                    Seen::Apply(map) => seen.push(format!("apply {}", map.metadata.name.unwrap())),
                    Seen::Delete(map) => {
                        seen.push(format!("delete {}", map.metadata.name.unwrap()));
                        break;
                    }
                    Seen::Init => {}
                }
            }
            assert_eq!(seen, ["init before", "init kube-root-ca.crt", "apply during", "delete during"]);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reflector_mirrors_the_server() {
    both(|client| async move {
        let secrets: Api<Secret> = Api::namespaced(client, "kube-public");
        let (store, writer) = reflector::store();
        let stream = reflector::reflector(writer, watcher::watcher(secrets.clone(), watcher::Config::default()));
        tokio::spawn(stream.applied_objects().for_each(|_| async {}));
        store.wait_until_ready().await.unwrap();
        for n in 0..50 {
            let secret = Secret {
                metadata: ObjectMeta { name: Some(format!("s{n}")), ..Default::default() },
                ..Default::default()
            };
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
        secrets
            .delete_collection(&DeleteParams::default(), &ListParams::default().fields("metadata.name=s7"))
            .await
            .unwrap();
        for _ in 0..500 {
            if store.len() == 49 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the mirror has {} secrets, the server 49", store.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_reconciles_and_records_events() {
    both(|client| async move {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let recorder = Recorder::new(client.clone(), Reporter { controller: "greeter".into(), instance: None });
        let reconcile = move |map: Arc<ConfigMap>, context: Arc<(Api<ConfigMap>, Recorder)>| async move {
            let name = map.metadata.name.clone().unwrap_or_default();
            if name.starts_with("greet") && map.data.is_none() {
                let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"hello": name}});
                context.0.patch(&name, &PatchParams::apply("greeter").force(), &Patch::Apply(patch)).await?;
                let event = NewEvent {
                    type_: EventType::Normal,
                    reason: "Greeted".into(),
                    note: Some(format!("said hello to {name}")),
                    action: "Greet".into(),
                    secondary: None,
                };
                context.1.publish(&event, &map.object_ref(&())).await?;
            }
            Ok::<_, kube::Error>(Action::await_change())
        };
        let controller = Controller::new(maps.clone(), watcher::Config::default()).run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(100)),
            Arc::new((maps.clone(), recorder)),
        );
        let task = tokio::spawn(controller.for_each(|_| async {}));
        for n in 0..10 {
            maps.create(&PostParams::default(), &named(&format!("greet-{n}"))).await.unwrap();
        }
        let events: Api<Event> = Api::namespaced(client, "default");
        let mut greeted = 0;
        for _ in 0..500 {
            let list = maps.list(&ListParams::default()).await.unwrap();
            let with = |map: &&ConfigMap| {
                map.data == Some(BTreeMap::from([("hello".into(), map.metadata.name.clone().unwrap())]))
            };
            greeted = list.items.iter().filter(with).count();
            let recorded = events.list(&ListParams::default().fields("reason=Greeted")).await.unwrap().items.len();
            if greeted == 10 && recorded == 10 {
                task.abort();
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{greeted} of 10 were greeted");
    })
    .await;
}

/// What a controller of Websites works with.
struct Sites {
    client: Client,
    kind: ApiResource,
}

impl Sites {
    fn sites(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", &self.kind)
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// As many pages as the site wants, each owned by it, and a status that counts them.
    async fn build(&self, site: &DynamicObject) -> Result<Action, kube::Error> {
        let name = site.name_any();
        let pages = site.data["spec"]["pages"].as_u64().unwrap_or(0);
        for page in 0..pages {
            let mut map = named(&format!("{name}-{page}"));
            map.metadata.owner_references = Some(vec![site.controller_owner_ref(&self.kind).expect("it is stored")]);
            map.data = Some(BTreeMap::from([("page".into(), page.to_string())]));
            let own = format!("{name}-{page}");
            let mut applied = serde_json::to_value(&map).map_err(kube::Error::SerdeError)?;
            applied["apiVersion"] = "v1".into();
            applied["kind"] = "ConfigMap".into();
            self.maps().patch(&own, &PatchParams::apply("sites").force(), &Patch::Apply(applied)).await?;
        }
        let status = json!({"status": {"pages": pages}});
        self.sites().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(Action::await_change())
    }

    /// Says goodbye before a site goes.
    async fn clean(&self, site: &DynamicObject) -> Result<Action, kube::Error> {
        let farewell = named(&format!("farewell-{}", site.name_any()));
        match self.maps().create(&PostParams::default(), &farewell).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
        Ok(Action::await_change())
    }
}

/// Waits until something holds.
async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    for _ in 0..1000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_its_own_kind_owns_objects_and_finalizes() {
    both(|client| async move {
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": "websites.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "websites", "kind": "Website"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"pages": {"type": "integer"}}},
                        "status": {"type": "object", "properties": {"pages": {"type": "integer"}}},
                    }}},
                }],
            },
        }))
        .unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let established = conditions::is_crd_established();
        await_condition(definitions, "websites.example.com", established).await.unwrap();
        // What is established is discovered.
        let found = kube::discovery::pinned_kind(&client, &GroupVersionKind::gvk("example.com", "v1", "Website")).await;
        let (kind, _) = found.unwrap();
        let context = Arc::new(Sites { client: client.clone(), kind: kind.clone() });
        let (sites, maps) = (context.sites(), context.maps());
        let reconcile = |site: Arc<DynamicObject>, context: Arc<Sites>| async move {
            finalizer(&context.sites(), "example.com/sites", site, |event| async {
                match event {
                    Finalizing::Apply(site) => context.build(&site).await,
                    Finalizing::Cleanup(site) => context.clean(&site).await,
                }
            })
            .await
        };
        let controller = Controller::new_with(sites.clone(), watcher::Config::default(), kind.clone())
            .owns(maps.clone(), watcher::Config::default())
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(50)), context.clone());
        let task = tokio::spawn(controller.for_each(|_| async {}));

        let site = DynamicObject::new("shop", &kind).data(json!({"spec": {"pages": 3}}));
        sites.create(&PostParams::default(), &site).await.unwrap();
        let pages = || async {
            let list = maps.list(&ListParams::default()).await.unwrap();
            list.items.iter().filter(|map| map.name_any().starts_with("shop-")).count()
        };
        until("three pages and a status", || async {
            let status = sites.get_status("shop").await.unwrap().data["status"]["pages"].clone();
            pages().await == 3 && status == 3
        })
        .await;
        // What is owned and deleted comes back.
        maps.delete("shop-1", &DeleteParams::default()).await.unwrap();
        until("three pages again", || async { pages().await == 3 }).await;
        // The site goes after its finalizer, and its pages after it.
        sites.delete("shop", &DeleteParams::default()).await.unwrap();
        until("the site is gone", || async { sites.get_opt("shop").await.unwrap().is_none() }).await;
        assert!(maps.get_opt("farewell-shop").await.unwrap().is_some(), "it went without its finalizer");
        until("no page is left", || async { pages().await == 0 }).await;
        task.abort();
    })
    .await;
}

/// As many headers as Go's servers take, or nearly so.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_have_many_headers() {
    let server = Server::start(Options::default()).await.unwrap();
    let client = tls_client(&server).await;
    for (headers, size) in [(150, 8), (240, 1000), (20, 10_000)] {
        let mut request = http::Request::get("/version").version(http::Version::HTTP_11);
        for number in 0..headers {
            request = request.header(format!("x-{number}"), "x".repeat(size));
        }
        let response = client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
        assert_eq!((response.status(), response.version()), (http::StatusCode::OK, http::Version::HTTP_11));
    }
}
