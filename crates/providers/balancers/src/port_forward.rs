//! PortForward: a port of this machine that leads to a Service. It lives in this process: it is closed while Conductor does not run.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use conductor_local::{BoxFuture, Finding, Kind, Lack, Object, Report, Scene, Scrubbed, Trouble};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::addresses::Addresses;
use crate::consumers::Consumers;
use crate::endpoints::Endpoint;
use crate::forward::Forward;
use crate::haproxy_balancer::specific;
use crate::holdings::Holdings;
use crate::pool::{Asked, Place};
use crate::routes::{Plan, Rules, plan};
use crate::world::{Needs, World};
use crate::{API_VERSION, connections, is_ready};

/// The most connections at once where nothing is said.
const CONNECTIONS: u32 = 1000;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    pool: String,
    address: String,
    port: u16,
    connections: Value,
    external_names: String,
    scrub: i64,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            pool: "ports".into(),
            address: String::new(),
            port: 0,
            connections: Value::Null,
            external_names: "Refuse".into(),
            scrub: 0,
        }
    }
}

/// The kind. See the module.
pub struct PortForwards {
    world: Arc<World>,
    addresses: Arc<Addresses>,
    consumers: Arc<Consumers>,
    open: Mutex<HashMap<String, Arc<Forward>>>,
}

/// Of what a plan would carry, the one port a forward has: that of the claim that had it, or the oldest Service's first. The rest is
/// refused.
fn only_one(plan: &mut Plan, port: u16, held: &Holdings) -> Vec<Endpoint> {
    let each = plan.verdicts.iter().filter(|v| v.kind == "Service");
    let each = each.flat_map(|v| {
        v.ports.iter().map(move |number| (v.namespace.clone(), v.name.clone(), v.claim.clone(), *number))
    });
    let chosen = each.min_by_key(|(_, _, claim, number)| held.ports.get(number) != Some(claim));
    for verdict in &mut plan.verdicts {
        let wanted = std::mem::take(&mut verdict.ports);
        if verdict.kind == "Ingress" {
            verdict.refusals =
                vec!["a forwarded port carries TCP only: name the claim on a Service, or use a class with HTTP".into()];
            continue;
        }
        for number in wanted {
            let own = |(namespace, name, _, chosen): &(String, String, String, u16)| {
                *namespace == verdict.namespace && *name == verdict.name && *chosen == number
            };
            match chosen.as_ref().is_some_and(own) {
                true => verdict.ports.push(port),
                false => {
                    verdict.refusals.push(format!("port {number} is not carried: there is one port, and it is taken"))
                }
            }
        }
    }
    plan.held = Holdings::default();
    let Some((_, _, claim, number)) = chosen else { return Vec::new() };
    plan.held.ports.insert(number, claim);
    let backend = plan.listeners.get(&number).and_then(|name| plan.backends.get(name));
    backend.map(|backend| backend.endpoints.clone()).unwrap_or_default()
}

impl PortForwards {
    /// With what it shares.
    pub fn new(_: &Scene, world: Arc<World>, addresses: Arc<Addresses>, consumers: Arc<Consumers>) -> PortForwards {
        PortForwards { world, addresses, consumers, open: Mutex::default() }
    }

    async fn look(&self, object: &Object) -> Result<Report, Trouble> {
        let spec: Spec = object.spec()?;
        let connections = connections(object, &spec.connections, CONNECTIONS)?;
        let asked = Asked { address: specific(&spec.address)?, port: Some(spec.port).filter(|port| *port > 0) };
        let place = self.addresses.give(object, &spec.pool, &asked, &[]).await?;
        let Some(port) = place.port else {
            let message = format!("AddressPool {} gives no ports: name one with spec.ports", spec.pool);
            return Err(Trouble::new("PoolInvalid", message));
        };
        let address = SocketAddr::new(place.address, port);
        let external_names = spec.external_names == "Allow";
        let needs = Needs { certificates: false, external_names };
        let around = self.world.around(object, needs).await?;
        let rules = Rules { http: 0, https: 0, external_names, claims: around.most_claims };
        let held = Holdings::read(object.status("held"));
        let mut plan = plan(&around.claims, &around.network(), &rules, &held);
        let endpoints = only_one(&mut plan, port, &held);
        if plan.held != held {
            self.consumers.hold(object, self.plural(), &plan.held).await?;
        }
        let there = self.open.lock().get(object.uid()).cloned();
        let there = there.filter(|f| f.address() == address && f.most() == connections);
        let forward = match there {
            Some(forward) => forward,
            None => {
                self.open.lock().remove(object.uid());
                let made = Forward::open(address, connections)
                    .await
                    .map_err(|error| Trouble::new("AddressOccupied", format!("cannot listen on {address}: {error}")))?;
                let made = Arc::new(made);
                self.open.lock().insert(object.uid().to_owned(), made.clone());
                made
            }
        };
        let count = endpoints.len();
        forward.lead_to(endpoints);
        self.consumers.tell(object, place, &around.claims, &plan).await;
        Ok(Report {
            message: format!("listens on {address}, which leads to {count} endpoints"),
            attributes: Map::from_iter([
                ("address".to_owned(), json!(place.address.to_string())),
                ("availability".to_owned(), json!("SingleNode")),
                ("protocols".to_owned(), json!(["TCP"])),
            ]),
            capacity: Map::from_iter([("connections".to_owned(), json!(connections.to_string()))]),
            connection: Some(
                [("host", place.address.to_string()), ("port", port.to_string()), ("uri", format!("tcp://{address}"))]
                    .into_iter()
                    .map(|(k, v)| (k.to_owned(), v))
                    .collect(),
            ),
            scrubbed: (spec.scrub > 0).then(|| Scrubbed {
                number: spec.scrub,
                outcome: Ok("it leads nowhere until a claim has it".to_owned()),
            }),
            status: Map::from_iter([
                ("address".to_owned(), json!(place.address.to_string())),
                ("port".to_owned(), json!(port)),
            ]),
            again: Some(Duration::from_secs(15)),
            ..Report::default()
        })
    }
}

impl Kind for PortForwards {
    fn api_version(&self) -> &'static str {
        API_VERSION
    }

    fn kind(&self) -> &'static str {
        "PortForward"
    }

    fn plural(&self) -> &'static str {
        "portforwards"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Lack>> {
        Box::pin(async {
            if let Err(error) = self.addresses.tidy().await {
                tracing::debug!(%error, "AddressPools are not as they should be yet");
            }
            Ok(())
        })
    }

    fn bounded(&self) -> Vec<(&'static str, String)> {
        vec![("connections", crate::haproxy::most_connections().to_string())]
    }

    fn reconcile<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>> {
        Box::pin(self.look(object))
    }

    fn remove<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async move {
            self.open.lock().remove(object.uid());
            self.world.forget(object.uid());
            let port = object.status("port").as_u64().and_then(|port| u16::try_from(port).ok());
            if let Some(address) = specific(object.status("address").as_str().unwrap_or_default())? {
                self.consumers.withdraw(Place { address, port }).await?;
            }
            self.addresses.take_back(object).await
        })
    }

    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async move {
            let mut findings = self.addresses.audit("PortForward", objects).await?;
            let open: Vec<(String, SocketAddr)> =
                self.open.lock().iter().map(|(uid, forward)| (uid.clone(), forward.address())).collect();
            for (uid, address) in &open {
                if !objects.iter().any(|object| object.uid() == uid) {
                    findings.push(Finding {
                        object: address.to_string(),
                        invariant: "port-has-forward".into(),
                        message: "no PortForward has this port, which is open".into(),
                    });
                }
            }
            for object in objects.iter().filter(|object| is_ready(object)) {
                if !open.iter().any(|(uid, _)| uid == object.uid()) {
                    findings.push(Finding {
                        object: format!("PortForward {}", object.name()),
                        invariant: "forward-is-open".into(),
                        message: "it says Ready and its port is not open".into(),
                    });
                }
            }
            Ok(findings)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::endpoints::Network;
    use crate::routes::{CLAIM, Claim};

    #[test]
    fn the_claim_that_has_the_one_port_keeps_it() {
        let claims = ["a", "b"].map(|ns| Claim { uid: ns.into(), namespace: ns.into(), name: "door".into() });
        let service = |namespace: &str, name: &str, day: u8, port: u16| {
            json!({"metadata": {"namespace": namespace, "name": name, "annotations": {CLAIM: "door"},
                "creationTimestamp": format!("2026-01-0{day}T00:00:00Z")}, "spec": {"ports": [{"port": port}]}})
        };
        let rules = Rules { http: 0, https: 0, external_names: false, claims: 2 };
        let carried = |services: &[Value], held: &Holdings| {
            let mut plan = plan(&claims, &Network { services, ..Network::default() }, &rules, held);
            only_one(&mut plan, 31000, held);
            let who = plan.verdicts.iter().filter(|v| v.ports == [31000]).map(|v| v.name.clone());
            (who.collect::<Vec<_>>(), plan.held)
        };
        let newer = service("b", "newer", 5, 5432);
        let (who, held) = carried(std::slice::from_ref(&newer), &Holdings::default());
        assert_eq!(who, ["newer"]);
        // one that is older, and names the claim now: the same port, or another
        for port in [5432, 22] {
            let both = [service("a", "older", 1, port), newer.clone()];
            assert_eq!(carried(&both, &held), (vec!["newer".to_owned()], held.clone()));
            assert_eq!(carried(&both, &Holdings::default()).0, ["older"], "where nobody has it, the oldest");
            assert_eq!(carried(&both[..1], &held).0, ["older"], "who lets go of it, no longer has it");
        }
    }
}
