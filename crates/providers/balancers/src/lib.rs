//! Load balancers on this machine, group `network.local.conductor.io`.
//!
//! An `HAProxyBalancer` is an HAProxy of its own on an address of its own: HTTP by host and path, TLS, health checks, and TCP by port. A
//! `PortForward` is one port, forwarded by this process. Addresses and ports come from an `AddressPool`. Both are implementations of a
//! LoadBalancer, which IngressClaims claim and Ingresses and Services use.

mod addresses;
pub mod config;
mod consumers;
pub mod endpoints;
pub mod forward;
pub mod haproxy;
mod haproxy_balancer;
pub mod holdings;
pub mod names;
pub mod pool;
mod port_forward;
pub mod routes;
mod statistics;
mod world;

use std::sync::Arc;

use conductor_claims::amount::Amount;
use conductor_local::{Kind, Object, Provider, Trouble, install};
use serde_json::{Value, json};

pub use haproxy_balancer::HAProxyBalancers;
pub use port_forward::PortForwards;

/// The group and version of the kinds here.
pub const API_VERSION: &str = "network.local.conductor.io/v1alpha1";

/// The provider of both kinds.
pub fn provider() -> Result<Provider, String> {
    let mut examples = install::parse(include_str!("../kinds/examples.yaml"))?;
    // whoever may not listen on the usual ports has others
    if !haproxy_balancer::may_bind(80) {
        for class in examples.iter_mut().filter(|o| o["spec"]["template"]["kind"] == "HAProxyBalancer") {
            class["spec"]["template"]["spec"]["ports"] = json!({"http": 8080, "https": 8443});
        }
    }
    Ok(Provider {
        name: "balancers",
        definitions: install::parse(include_str!("../kinds/definitions.yaml"))?,
        rules: rules(),
        examples,
        kinds: Box::new(|scene| {
            let world = world::World::start(scene);
            let addresses = Arc::new(addresses::Addresses::new(scene.client.clone(), scene.wake.clone()));
            let consumers = Arc::new(consumers::Consumers::new(scene.client.clone(), world.clone()));
            let all: Vec<Arc<dyn Kind>> = vec![
                Arc::new(HAProxyBalancers::new(scene, world.clone(), addresses.clone(), consumers.clone())),
                Arc::new(PortForwards::new(scene, world, addresses, consumers)),
            ];
            all
        }),
    })
}

/// How many connections an object is to take: what it asks for, or the usual number. One that is in use goes on with as many as there
/// can be.
pub(crate) fn connections(object: &Object, asked: &Value, usual: u32) -> Result<u32, Trouble> {
    let most = haproxy::most_connections();
    if asked.is_null() {
        return Ok(usual.min(most));
    }
    let wrong = |e| Trouble::new("Invalid", format!("spec.connections: {asked} is no amount: {e}"));
    let amount = Amount::from_json(asked).map_err(wrong)?.nanos() / 1_000_000_000;
    let asked = u32::try_from(amount.max(1)).unwrap_or(u32::MAX);
    if asked > most && !object.was_ready() {
        let message = format!(
            "asks for {asked} connections, and a process of this machine can have {most}: ask for less, or let it open more files \
             (ulimit -n)"
        );
        return Err(Trouble::new("NoRoom", message));
    }
    Ok(asked.min(most))
}

/// What it needs beyond its own kinds: to see who uses a balancer, and to tell them.
fn rules() -> Vec<Value> {
    let look = ["get", "list", "watch"];
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    vec![
        rule("networking.k8s.io", &["ingresses"], &look),
        rule("networking.k8s.io", &["ingresses/status"], &["patch"]),
        rule("", &["services"], &look),
        // those that Ingresses name, one by one
        rule("", &["secrets"], &["get"]),
        rule("", &["services/status"], &["patch"]),
        rule("", &["events"], &["create"]),
        rule("discovery.k8s.io", &["endpointslices"], &look),
        rule("network.conductor.io", &["loadbalancers"], &look),
        rule("network.conductor.io", &["ingressclaims"], &["get"]),
        rule("network.conductor.io", &["ingressclaims/status"], &["patch"]),
    ]
}

pub(crate) fn is_ready(object: &Object) -> bool {
    let conditions = object.status("conditions").as_array();
    conditions.into_iter().flatten().any(|c: &Value| c["type"] == "Ready" && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_can_be_read() {
        let provider = provider().expect("is read");
        assert_eq!(provider.definitions.len(), 3);
        for example in provider.examples.iter().filter(|e| e["kind"] == "AddressPool") {
            pool::Pool::read(example).expect("is a pool");
        }
        let listing = provider.rules.iter().filter(|rule| rule["resources"].to_string().contains("secrets"));
        assert!(listing.into_iter().all(|rule| rule["verbs"] == json!(["get"])), "it lists nobody's Secrets");
        let classes = provider.examples.iter().filter(|e| e["kind"] == "LoadBalancerClass");
        for class in classes.clone() {
            assert_eq!(class["spec"]["template"]["spec"]["externalNames"], "Refuse", "{class}");
        }
        assert_eq!(classes.count(), 2);
    }

    #[test]
    fn as_many_connections_as_are_asked_for_or_none() {
        let new = Object(json!({"metadata": {"name": "a"}}));
        let used = Object(json!({"metadata": {"name": "a"}, "status": {"readySince": "t"}}));
        let most = haproxy::most_connections();
        assert_eq!(connections(&new, &Value::Null, 1000).expect("may"), 1000.min(most));
        assert_eq!(connections(&new, &json!(50), 1000).expect("may"), 50);
        assert_eq!(connections(&new, &json!("0.1k"), 1000).expect("may"), 100);
        assert_eq!(connections(&new, &json!(most), 1000).expect("may"), most);
        let refused = connections(&new, &json!(u64::from(most) + 1), 1000).expect_err("there are not so many");
        assert!(refused.message.contains("ask for less"), "{refused}");
        assert_eq!(connections(&used, &json!(u64::from(most) + 1), 1000).expect("goes on"), most);
        connections(&new, &json!("many"), 1000).expect_err("is no amount");
    }
}
