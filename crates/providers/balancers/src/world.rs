//! What is watched: balancers, the Ingresses and Services that use them, and the endpoints behind. Whoever it concerns is woken.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use conductor_local::{Object, Scene, Trouble, Wake};
use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::endpoints::{Network, external_name};
use crate::holdings::most_certificates;
use crate::names::{Names, Resolver};
use crate::routes::{CLAIM, Claim};

/// What is watched: apiVersion, kind, plural.
const WATCHED: [(&str, &str, &str); 4] = [
    ("networking.k8s.io/v1", "Ingress", "ingresses"),
    ("v1", "Service", "services"),
    ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    ("network.conductor.io/v1alpha1", "LoadBalancer", "loadbalancers"),
];

/// By namespace and name.
type Shelf = BTreeMap<(String, String), Arc<Value>>;

/// Everything that was shown. It stops watching when it is dropped.
pub struct World {
    shelves: [Mutex<Shelf>; WATCHED.len()],
    complete: watch::Sender<u8>,
    /// The namespaces a balancer's claims are in, by the balancer's uid.
    interests: Mutex<HashMap<String, HashSet<String>>>,
    wake: Wake,
    client: kube::Client,
    resolver: Resolver,
    tasks: Mutex<JoinSet<()>>,
}

/// What concerns one balancer.
#[derive(Default)]
pub struct Surroundings {
    /// Its claims, in the order in which they were bound.
    pub claims: Vec<Claim>,
    /// How many there may be.
    pub most_claims: usize,
    ingresses: Vec<Value>,
    services: Vec<Value>,
    slices: Vec<Value>,
    secrets: Vec<Value>,
    names: Names,
}

/// What of its surroundings a balancer needs beyond what is watched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// The certificates that Ingresses name.
    pub certificates: bool,
    /// What ExternalNames lead to.
    pub external_names: bool,
}

impl Surroundings {
    /// The objects of the claims' namespaces.
    pub fn network(&self) -> Network<'_> {
        Network {
            ingresses: &self.ingresses,
            services: &self.services,
            slices: &self.slices,
            secrets: &self.secrets,
            names: Some(&self.names),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Something to call the API with for a kind.
pub(crate) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

impl World {
    /// Starts watching.
    pub fn start(scene: &Scene) -> Arc<World> {
        let world = Arc::new(World {
            shelves: Default::default(),
            complete: watch::channel(0).0,
            interests: Mutex::default(),
            wake: scene.wake.clone(),
            client: scene.client.clone(),
            resolver: Resolver::default(),
            tasks: Mutex::default(),
        });
        for (at, (api_version, kind, plural)) in WATCHED.into_iter().enumerate() {
            let api: Api<DynamicObject> = Api::all_with(scene.client.clone(), &resource(api_version, kind, plural));
            let shown = Arc::downgrade(&world);
            world.tasks.lock().spawn(async move {
                let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
                let mut fresh: Option<Shelf> = None;
                while let Some(event) = events.next().await {
                    let Some(world) = shown.upgrade() else { return };
                    match event {
                        Ok(event) => world.see(at, event, &mut fresh),
                        Err(error) => tracing::debug!(kind, %error, "the watch broke; starting again"),
                    }
                }
            });
        }
        world
    }

    fn see(&self, at: usize, event: watcher::Event<DynamicObject>, fresh: &mut Option<Shelf>) {
        let object = |object: DynamicObject| {
            let value = serde_json::to_value(object).unwrap_or_default();
            let key = (text(&value["metadata"]["namespace"]).to_owned(), text(&value["metadata"]["name"]).to_owned());
            (key, Arc::new(value))
        };
        match event {
            watcher::Event::Init => *fresh = Some(Shelf::new()),
            watcher::Event::InitApply(shown) => {
                let (key, value) = object(shown);
                fresh.get_or_insert_default().insert(key, value);
            }
            watcher::Event::InitDone => {
                let all = fresh.take().unwrap_or_default();
                *self.shelves[at].lock() = all;
                self.complete.send_modify(|seen| *seen |= 1 << at);
                let every: Vec<String> = self.interests.lock().keys().cloned().collect();
                every.iter().for_each(|uid| (self.wake)(uid));
            }
            watcher::Event::Apply(shown) => {
                let (key, value) = object(shown);
                let before = self.shelves[at].lock().insert(key, value.clone());
                if before.is_none_or(|before| matters(&before) != matters(&value)) {
                    self.tell(at, &value);
                }
            }
            watcher::Event::Delete(shown) => {
                let (key, value) = object(shown);
                self.shelves[at].lock().remove(&key);
                self.tell(at, &value);
            }
        }
    }

    fn tell(&self, at: usize, object: &Value) {
        if WATCHED[at].1 == "LoadBalancer" {
            for implementation in object["status"]["implementations"].as_array().into_iter().flatten() {
                (self.wake)(text(&implementation["uid"]));
            }
            return;
        }
        let namespace = text(&object["metadata"]["namespace"]);
        let concerned: Vec<String> = {
            let interests = self.interests.lock();
            interests.iter().filter(|(_, all)| all.contains(namespace)).map(|(uid, _)| uid.clone()).collect()
        };
        concerned.iter().for_each(|uid| (self.wake)(uid));
    }

    /// What concerns a balancer. Waits until everything was shown once: what is not known yet would be taken out of service.
    pub async fn around(&self, object: &Object, needs: Needs) -> Result<Surroundings, Trouble> {
        let mut complete = self.complete.subscribe();
        let all = (1u8 << WATCHED.len()) - 1;
        let waiting = tokio::time::timeout(Duration::from_secs(10), complete.wait_for(|seen| *seen == all)).await;
        let synced = matches!(waiting, Ok(Ok(_)));
        // it holds a lock
        drop(waiting);
        if !synced {
            return Err(Trouble::new("NotSynced", "not everything it depends on has been seen yet"));
        }
        let (claims, most_claims) = self.claims(object);
        let namespaces: HashSet<String> = claims.iter().map(|claim| claim.namespace.clone()).collect();
        self.interests.lock().insert(object.uid().to_owned(), namespaces.clone());
        let of = |at: usize| -> Vec<Value> {
            let shelf = self.shelves[at].lock();
            shelf
                .iter()
                .filter(|((namespace, _), _)| namespaces.contains(namespace))
                .map(|(_, o)| (**o).clone())
                .collect()
        };
        let (ingresses, services, slices) = (of(0), of(1), of(2));
        let most = if needs.certificates { most_certificates(most_claims) } else { 0 };
        let secrets = self.certificates(&ingresses, most).await?;
        let external = services.iter().filter(|s| needs.external_names && text(&s["spec"]["type"]) == "ExternalName");
        let names = self.resolver.resolve(external.map(|s| external_name(s).to_owned()).collect()).await;
        Ok(Surroundings { claims, most_claims, ingresses, services, slices, secrets, names })
    }

    /// The TLS Secrets that Ingresses name, each asked for by its name: the others are none of our business. A balancer looks again every
    /// few seconds, and so sees a certificate that was renewed. No namespace can have it ask for more than so many.
    async fn certificates(&self, ingresses: &[Value], most: usize) -> Result<Vec<Value>, Trouble> {
        let mut wanted = BTreeSet::new();
        for ingress in ingresses.iter().filter(|i| i["metadata"]["annotations"][CLAIM].is_string()) {
            for tls in ingress["spec"]["tls"].as_array().into_iter().flatten() {
                wanted.insert((text(&ingress["metadata"]["namespace"]), text(&tls["secretName"])));
            }
        }
        let mut found = Vec::new();
        let mut asked: HashMap<&str, usize> = HashMap::new();
        for (namespace, name) in wanted.into_iter().filter(|(_, name)| !name.is_empty()) {
            let count = asked.entry(namespace).or_default();
            *count += 1;
            if *count > most {
                continue;
            }
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &resource("v1", "Secret", "secrets"));
            let secret = api.get_opt(name).await?.map(|secret| serde_json::to_value(secret).unwrap_or_default());
            found.extend(secret.filter(|secret| text(&secret["type"]) == "kubernetes.io/tls"));
        }
        Ok(found)
    }

    /// Claims of the LoadBalancer that a balancer is behind, and how many there may be.
    fn claims(&self, object: &Object) -> (Vec<Claim>, usize) {
        let reference = text(&object.0["metadata"]["annotations"][conductor_claims::lifecycle::RESOURCE_REF]);
        let name = reference.rsplit(' ').next().unwrap_or_default().to_owned();
        let uid = text(&object.0["metadata"]["labels"][conductor_claims::lifecycle::RESOURCE_UID]);
        let shelf = self.shelves[3].lock();
        let balancer = shelf.get(&(String::new(), name)).filter(|b| text(&b["metadata"]["uid"]) == uid);
        let references = balancer.and_then(|b| b["spec"]["claimRefs"].as_array()).into_iter().flatten();
        let claim = |r: &Value| Claim {
            uid: text(&r["uid"]).to_owned(),
            namespace: text(&r["namespace"]).to_owned(),
            name: text(&r["name"]).to_owned(),
        };
        let most = balancer.and_then(|b| b["spec"]["maxClaims"].as_u64()).unwrap_or(1);
        (references.map(claim).filter(|claim| !claim.uid.is_empty()).collect(), usize::try_from(most).unwrap_or(1))
    }

    /// Ingresses and Services that say they are reached at an address, or at one port of it, as kind, namespace and name.
    pub fn reached_at(&self, address: &str, port: Option<u16>) -> Vec<(&'static str, String, String)> {
        let there = |place: &Value| {
            let mut ports = place["ports"].as_array().into_iter().flatten();
            text(&place["ip"]) == address
                && port.is_none_or(|port| ports.any(|p| p["port"].as_u64() == Some(u64::from(port))))
        };
        let mut all = Vec::new();
        for (at, kind) in [(0, "Ingress"), (1, "Service")] {
            for ((namespace, name), object) in self.shelves[at].lock().iter() {
                let places = object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
                if places.into_iter().any(there) {
                    all.push((kind, namespace.clone(), name.clone()));
                }
            }
        }
        all
    }

    /// An Ingress or a Service as it was shown.
    pub fn consumer(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let at = if kind == "Ingress" { 0 } else { 1 };
        self.shelves[at].lock().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// A balancer is gone.
    pub fn forget(&self, uid: &str) {
        self.interests.lock().remove(uid);
    }
}

/// The parts of an object that a balancer's configuration can depend on.
fn matters(object: &Value) -> (Vec<&Value>, [&Value; 4]) {
    let parts = ["spec", "endpoints", "ports", "data", "addressType"].iter().map(|key| &object[*key]).collect();
    let meta = &object["metadata"];
    let behind = &object["status"]["implementations"];
    (parts, [&meta["annotations"], &meta["labels"], &meta["deletionTimestamp"], behind])
}
