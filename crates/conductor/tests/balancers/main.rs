//! Real load balancers behind claims: HAProxy in front of real HTTP servers, forwarded ports, addresses from pools.

mod addresses;
#[path = "../common/mod.rs"]
mod common;
mod haproxy;
mod sharing;

use std::net::{IpAddr, SocketAddr};

use common::web::{ask, own_address};
use common::world::{HAPROXY, World, has, soon};
use serde_json::{Value, json};

const CLAIMS: &str = "/apis/network.conductor.io/v1alpha1/namespaces/default/ingressclaims";
const BALANCERS: &str = "/apis/network.conductor.io/v1alpha1/loadbalancers";
const LOCAL: &str = "/apis/network.local.conductor.io/v1alpha1";
const HAPROXIES: &str = "/apis/network.local.conductor.io/v1alpha1/namespaces/conductor-system/haproxybalancers";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A world whose addresses no other test uses: 127.80.N.1 to 127.80.N.20, each of which may be given again after a second.
fn world(number: u8) -> World {
    world_with(number, &[])
}

fn world_with(number: u8, variables: &[(&str, &str)]) -> World {
    let world = World::with(variables);
    for pool in ["local", "ports"] {
        soon("a pool", || world.get(&format!("{LOCAL}/addresspools/{pool}")));
    }
    let range = format!("127.80.{number}.1-127.80.{number}.20");
    world.patch(&format!("{LOCAL}/addresspools/local"), json!({"spec": {"addresses": [range], "holdFor": "1s"}}));
    let own = format!("127.80.{number}.200");
    world.patch(&format!("{LOCAL}/addresspools/ports"), json!({"spec": {"addresses": [own]}}));
    world
}

fn claim(world: &World, name: &str, spec: Value) {
    let claim = json!({
        "apiVersion": "network.conductor.io/v1alpha1", "kind": "IngressClaim", "metadata": {"name": name}, "spec": spec,
    });
    world.create(CLAIMS, &claim);
}

/// Where a claim's balancer takes connections.
fn place(world: &World, claim: &str) -> SocketAddr {
    let details = world.details(CLAIMS, claim);
    SocketAddr::new(details["host"].parse().expect("an address"), details["port"].parse().expect("a port"))
}

/// What is behind a claim: its path and itself.
fn behind(world: &World, claim: &str) -> (String, Value) {
    let claim = world.get(&format!("{CLAIMS}/{claim}")).expect("is there");
    let name = claim["spec"]["resourceName"].as_str().expect("is bound");
    let resource = world.get(&format!("{BALANCERS}/{name}")).expect("is there");
    let name = resource["status"]["implementations"][0]["name"].as_str().expect("has one");
    let path = format!("{HAPROXIES}/{name}");
    let object = world.get(&path).expect("is there");
    (path, object)
}

/// A Service in front of servers wherever they are.
fn service(world: &World, name: &str, servers: &[SocketAddr]) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80}]},
    });
    world.create(SERVICES, &service);
    for (at, server) in servers.iter().enumerate() {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{name}-{at}"), "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": [{"addresses": [server.ip().to_string()]}],
            "ports": [{"name": "http", "port": server.port()}],
        });
        world.create(SLICES, &slice);
    }
}

fn ingress(name: &str, claim: &str, host: &str, path: &str, service: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "annotations": {"network.conductor.io/claim": claim}},
        "spec": {"rules": [{"host": host, "http": {"paths": [
            {"path": path, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"name": "http"}}}},
        ]}}]},
    })
}

/// Waits until a path is answered so.
fn answers(to: SocketAddr, host: &str, path: &str, expected: (u16, &str)) {
    let fine = |(code, body): &(u16, String)| *code == expected.0 && body.contains(expected.1);
    soon(&format!("answered {expected:?} at {host}{path}"), || ask(to, host, path).ok().filter(fine));
}

/// Whether this machine has all that a test needs.
fn address_for(test: &str) -> Option<IpAddr> {
    if !has(test, HAPROXY) {
        return None;
    }
    let own = own_address();
    if own.is_none() {
        conductor_testkit::skip(test, "this machine has no address but loopback ones, which no endpoint may have");
    }
    own
}
