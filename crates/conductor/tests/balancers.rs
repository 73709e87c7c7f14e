//! Real load balancers behind claims: HAProxy in front of real HTTP servers, forwarded ports, addresses from pools.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use common::web::{Backend, Load, ask, own_address};
use common::world::{HAPROXY, World, condition, has, kill, ready, says, soon};
use conductor_local::identity;
use rustix::process::Signal;
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

/// The state of a server as HAProxy sees it.
fn is_state(balancer: &Value, server: SocketAddr, state: &str) -> bool {
    let backends = balancer["status"]["backends"].as_array().cloned().unwrap_or_default();
    let servers = backends.iter().flat_map(|b| b["servers"].as_array().cloned().unwrap_or_default());
    servers.into_iter().any(|s| s["server"] == server.to_string() && says(&s["state"], state))
}

/// One balancer for two claims: where it is.
fn share(world: &World, [first, second]: [&str; 2]) -> SocketAddr {
    let shared = json!({
        "apiVersion": "network.conductor.io/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "shared"},
        "spec": {
            "class": "shared", "maxClaims": 8, "reclaimPolicy": "Delete", "protocols": ["HTTP", "HTTPS", "TCP"],
            "template": {
                "apiVersion": "network.local.conductor.io/v1alpha1", "kind": "HAProxyBalancer", "spec": {"pool": "local"},
            },
        },
    });
    world.create(BALANCERS, &shared);
    claim(world, first, json!({"class": "shared"}));
    let to = place(world, first);
    claim(world, second, json!({"class": "shared"}));
    assert_eq!(place(world, second), to, "it is one balancer");
    to
}

#[test]
fn requests_reach_living_backends_reloads_lose_none_and_drift_is_corrected() {
    let Some(own) = address_for("HAProxy") else { return };
    let mut world = world(1);
    let (one, mut two) = (Backend::start("one", own), Backend::start("two", own));
    service(&world, "web", &[one.address, two.address]);
    claim(&world, "front", json!({"class": "silver"}));
    let to = place(&world, "front");
    world.create(INGRESSES, &ingress("web", "front", "www.example", "/", "web"));
    answers(to, "www.example", "/", (200, "one"));
    answers(to, "www.example", "/", (200, "two"));
    answers(to, "elsewhere.example", "/", (404, "no Ingress"));
    let path = format!("{INGRESSES}/web");
    world.until(&path, "told its address", |i| i["status"]["loadBalancer"]["ingress"][0]["ip"] == *to.ip().to_string());
    let curl = world.conductor(&["connect", "front", "--", "-H", "Host: www.example"]);
    assert!(["one", "two"].contains(&curl.trim()), "{curl}");

    // one dies: not a single request fails once that is known
    let (balancer, before) = behind(&world, "front");
    two.kill();
    world.until(&balancer, "aware of it", |b| is_state(b, two.address, "DOWN"));
    for _ in 0..300 {
        assert_eq!(ask(to, "www.example", "/").expect("is answered"), (200, "one".to_owned()));
    }
    two.revive();
    world.until(&balancer, "aware of it", |b| is_state(b, two.address, "UP"));

    // reloads under load: every request is answered
    let load = Load::start(4, to, "www.example");
    load.more(50);
    for n in 0..6 {
        let (_, now) = behind(&world, "front");
        world.create(INGRESSES, &ingress(&format!("more-{n}"), "front", &format!("{n}.example"), "/", "web"));
        let was = now["status"]["configuration"].clone();
        world.until(&balancer, "reloaded", |b| b["status"]["configuration"] != was);
        load.more(50);
    }
    let (count, failures) = load.stop();
    assert!(failures.is_empty() && count > 300, "{count} went well, {failures:?} did not");
    let (_, now) = behind(&world, "front");
    assert_eq!(now["status"]["process"], before["status"]["process"], "it is the same process");

    // someone edits the configuration and has it loaded
    let uid = before["metadata"]["uid"].as_str().expect("has one");
    let file = world.home("balancers").join("haproxy").join(&uid[..18]).join("haproxy.cfg");
    let right = fs::read_to_string(&file).expect("is there");
    fs::write(&file, right.replace("no Ingress has this host", "hacked")).expect("may");
    let pid = i32::try_from(before["status"]["process"]["pid"].as_i64().expect("says so")).expect("a pid");
    kill(pid, Signal::USR2);
    world.until(&balancer, "aware of it", |b| b["status"]["driftsCorrected"].as_u64() >= Some(1));
    answers(to, "elsewhere.example", "/", (404, "no Ingress"));
    assert_eq!(fs::read_to_string(&file).expect("is there"), right);

    // someone removes its directory: it could not be reloaded any more, and is replaced
    fs::remove_dir_all(file.parent().expect("has one")).expect("may");
    world.create(INGRESSES, &ingress("after", "front", "after.example", "/", "web"));
    answers(to, "after.example", "/", (200, ""));
    let now = world.until(&balancer, "well", |b| ready(b) && b["status"]["process"]["pid"] != pid);
    assert!(world.conductor(&["logs", "ingressclaim/front"]).contains("worker"), "its log is there again");
    let pid = i32::try_from(now["status"]["process"]["pid"].as_i64().expect("says so")).expect("a pid");

    // Conductor is not needed; it finds the same process again
    world.kill_conductor();
    assert_eq!(ask(to, "www.example", "/").expect("is answered").0, 200);
    world.start_conductor();
    world.poke(&balancer);
    let found = world.until(&balancer, "looked at", |b| ready(b) && b["status"]["process"]["pid"] == pid);
    assert_eq!(found["status"]["process"]["restarts"], 0);

    // it dies itself: started again, and the claim says so
    kill(pid, Signal::KILL);
    let restarted = |c: &Value| ready(c) && condition(c, "Ready")["reason"] == "Restarted";
    world.until(&format!("{CLAIMS}/front"), "saying that it was started again", restarted);
    world.until(&balancer, "started again", |b| ready(b) && b["status"]["process"]["restarts"] == 1);
    answers(to, "www.example", "/", (200, ""));
    assert!(world.conductor(&["logs", "ingressclaim/front"]).contains("worker"), "its log can be read");
    world.audit_is_clean();

    // a claim that is used is kept until nobody uses it
    world.delete(&format!("{CLAIMS}/front"));
    world.until(&format!("{CLAIMS}/front"), "held", |c| says(&c["status"]["message"], "Ingress"));
    assert_eq!(ask(to, "www.example", "/").expect("is answered").0, 200);
    for ingress in world.list(INGRESSES) {
        world.delete(&format!("{INGRESSES}/{}", ingress["metadata"]["name"].as_str().expect("has a name")));
    }
    world.gone(&format!("{CLAIMS}/front"));
    world.gone(&balancer);
    assert!(TcpStream::connect(to).is_err() && !file.exists() && world.processes("balancers").is_empty());
    world.audit_is_clean();
}

#[test]
fn an_edited_configuration_is_corrected_as_soon_as_it_is_written() {
    if !has("drift of HAProxy", HAPROXY) {
        return;
    }
    // nothing is looked at because some time went by
    let world = world_with(12, &[("CONDUCTOR_LOOK_AGAIN_SECONDS", "3600")]);
    claim(&world, "front", json!({"class": "silver"}));
    let to = place(&world, "front");
    let (balancer, object) = behind(&world, "front");
    let uid = object["metadata"]["uid"].as_str().expect("has one");
    let file = world.home("balancers").join("haproxy").join(&uid[..18]).join("haproxy.cfg");
    let right = fs::read_to_string(&file).expect("is there");
    for drifts in 1..4 {
        match drifts {
            1 => fs::write(&file, "rubbish").expect("may"),
            2 => fs::remove_file(&file).expect("may"),
            _ => {
                let edited = file.with_extension("edited");
                fs::write(&edited, right.replace("no Ingress has this host", "hacked")).expect("may");
                fs::rename(edited, &file).expect("may");
            }
        }
        world.until(&balancer, "aware of it", |b| b["status"]["driftsCorrected"] == drifts);
        assert_eq!(fs::read_to_string(&file).expect("is there"), right);
        answers(to, "elsewhere.example", "/", (404, "no Ingress"));
    }
}

/// A certificate for a host, its authority, and the Secret with it.
fn certificate(name: &str, host: &str) -> (String, Value) {
    let key = rcgen::KeyPair::generate().expect("is made");
    let certificate = rcgen::CertificateParams::new(vec![host.to_owned()]).expect("is a name").self_signed(&key);
    let pem = certificate.expect("is signed").pem();
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": name},
        "data": {"tls.crt": encode(&pem), "tls.key": encode(&key.serialize_pem())},
    });
    (pem, secret)
}

#[test]
fn claims_that_share_a_balancer_are_kept_apart_with_tls_and_ports_of_their_own() {
    let Some(own) = address_for("a shared balancer") else { return };
    let world = world(2);
    let backend = Backend::start("one", own);
    service(&world, "web", &[backend.address]);
    let to = share(&world, ["blog", "shop"]);

    // a host belongs to the claim that had it first
    world.create(INGRESSES, &ingress("blog", "blog", "blog.example", "/", "web"));
    answers(to, "blog.example", "/", (200, "one"));
    let mut thief = ingress("thief", "shop", "blog.example", "/admin", "web");
    let rule = ingress("", "", "shop.example", "/", "web")["spec"]["rules"][0].clone();
    thief["spec"]["rules"].as_array_mut().expect("a list").push(rule);
    world.create(INGRESSES, &thief);
    answers(to, "shop.example", "/", (200, "one"));
    let refused = world.until(&format!("{CLAIMS}/shop"), "told", |c| condition(c, "Routed")["status"] == "False");
    let why = &condition(&refused, "Routed")["message"];
    assert!(says(why, "blog.example") && says(why, "claim blog"), "{why}");
    world.until(&format!("{CLAIMS}/blog"), "well", |c| condition(c, "Routed")["status"] == "True");
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=thief";
    soon("an Event", || world.list(events).iter().any(|e| says(&e["message"], "blog.example")).then_some(()));
    // when the first lets go of it, the other has it
    world.delete_now(&format!("{INGRESSES}/blog"));
    world.until(&format!("{CLAIMS}/shop"), "carried", |c| condition(c, "Routed")["status"] == "True");
    answers(to, "blog.example", "/admin", (200, "one"));

    // TLS ends at the balancer; a certificate that is none keeps nobody from being served
    let (authority, secret) = certificate("shop-tls", "shop.example");
    world.create("/api/v1/namespaces/default/secrets", &secret);
    let mut broken = certificate("broken", "x.example").1;
    broken["data"]["tls.key"] = secret["data"]["tls.key"].clone();
    world.create("/api/v1/namespaces/default/secrets", &broken);
    let tls = |secret: &str, host: &str| json!({"spec": {"tls": [{"hosts": [host], "secretName": secret}]}});
    world.patch(&format!("{INGRESSES}/thief"), tls("shop-tls", "shop.example"));
    let mut other = ingress("other", "shop", "x.example", "/", "web");
    other["spec"]["tls"] = tls("broken", "x.example")["spec"]["tls"].clone();
    world.create(INGRESSES, &other);
    let file = world.data.with_extension("pem");
    fs::write(&file, authority).expect("is written");
    let resolve = format!("shop.example:443:{}", to.ip());
    let arguments = ["-sS", "--max-time", "5", "--resolve", &resolve, "--cacert", file.to_str().expect("is text")];
    let curl = || {
        let output = Command::new("curl").args(arguments).arg("https://shop.example/").output().expect("runs");
        (output.status.success() && output.stdout == b"one").then_some(())
    };
    soon("served over TLS", curl);
    let refused = world.until(&format!("{CLAIMS}/shop"), "told", |c| condition(c, "Routed")["status"] == "False");
    assert!(says(&condition(&refused, "Routed")["message"], "broken"), "{refused}");
    answers(to, "x.example", "/", (200, "one"));
    // a new certificate in the Secret is shown soon
    let (renewed, secret) = certificate("shop-tls", "shop.example");
    fs::write(&file, renewed).expect("is written");
    world.patch("/api/v1/namespaces/default/secrets/shop-tls", json!({"data": secret["data"]}));
    soon("the new certificate", curl);

    // a Service that names the claim is carried as TCP, on its own port
    let database = TcpListener::bind((own, 0)).expect("listens");
    let at = database.local_addr().expect("has one");
    std::thread::spawn(move || {
        for client in database.incoming().flatten() {
            let _ = (&client).write_all(b"ready for queries\n");
        }
    });
    service(&world, "database", &[at]);
    let named = json!({"metadata": {"annotations": {"network.conductor.io/claim": "blog"}}, "spec": {
        "type": "LoadBalancer", "ports": [{"name": "http", "port": 5432}]}});
    world.patch(&format!("{SERVICES}/database"), named);
    let greeting = || {
        let mut socket = TcpStream::connect((to.ip(), 5432)).ok()?;
        let mut text = String::new();
        socket.read_to_string(&mut text).ok()?;
        (text == "ready for queries\n").then_some(())
    };
    soon("carried as TCP", greeting);
    let told = |s: &Value| s["status"]["loadBalancer"]["ingress"][0]["ip"] == *to.ip().to_string();
    world.until(&format!("{SERVICES}/database"), "told its address", told);
    // someone who kept count sees it
    let (path, _) = behind(&world, "blog");
    world.until(&path, "counted", |b| b["status"]["statistics"]["requests"].is_u64());

    // a Service that names it no longer is told so; one claim goes, the other's routes stay
    world.patch(
        &format!("{SERVICES}/database"),
        json!({"metadata": {"annotations": {"network.conductor.io/claim": null}}}),
    );
    world.until(&format!("{SERVICES}/database"), "told", |s| s["status"]["loadBalancer"]["ingress"].is_null());
    world.delete_now(&format!("{CLAIMS}/blog"));
    soon("closed", || TcpStream::connect((to.ip(), 5432)).is_err().then_some(()));
    answers(to, "shop.example", "/", (200, "one"));
    world.audit_is_clean();
}

#[test]
fn whoever_has_a_host_or_a_port_of_a_shared_balancer_keeps_it() {
    let Some(own) = address_for("a shared balancer") else { return };
    let mut world = world(6);
    let (mine, theirs) = (Backend::start("mine", own), Backend::start("theirs", own));
    service(&world, "mine", &[mine.address]);
    service(&world, "theirs", &[theirs.address]);
    let to = share(&world, ["older", "newer"]);
    world.create(INGRESSES, &ingress("old", "older", "old.example", "/", "theirs"));
    answers(to, "old.example", "/", (200, "theirs"));
    world.create(INGRESSES, &ingress("mine", "newer", "shop.example", "/shop", "mine"));
    answers(to, "shop.example", "/shop", (200, "mine"));

    // the older claim wants the host: in a new Ingress, in its old one, and through a wildcard and the rest
    world.create(INGRESSES, &ingress("steal", "older", "shop.example", "/", "theirs"));
    let mut wide = ingress("wide", "older", "*.example", "/", "theirs");
    wide["spec"]["defaultBackend"] = json!({"service": {"name": "theirs", "port": {"name": "http"}}});
    world.create(INGRESSES, &wide);
    let rules = ["old.example", "shop.example"].map(|h| ingress("", "", h, "/", "theirs")["spec"]["rules"][0].clone());
    world.patch(&format!("{INGRESSES}/old"), json!({"spec": {"rules": rules}}));
    // and port 80 for itself
    service(&world, "grab", &[theirs.address]);
    let grab =
        json!({"metadata": {"annotations": {"network.conductor.io/claim": "older"}}, "spec": {"type": "LoadBalancer"}});
    world.patch(&format!("{SERVICES}/grab"), grab);
    let told = |c: &Value| {
        let why = condition(c, "Routed")["message"].clone();
        ["Ingress steal: host shop.example", "Ingress old: host shop.example", "Service grab: port 80"]
            .iter()
            .all(|word| says(&why, word))
    };
    let refused = world.until(&format!("{CLAIMS}/older"), "told", told);
    let said = |c: &Value| c["status"]["reason"] == "Refused" && says(&c["status"]["message"], "shop.example");
    world.until(&format!("{CLAIMS}/older"), "saying so where people look", said);
    assert_eq!(refused["status"]["phase"], "Bound");
    let fine = |world: &World| {
        answers(to, "other.example", "/", (200, "theirs"));
        answers(to, "nobody.test", "/", (200, "theirs"));
        assert_eq!(ask(to, "shop.example", "/shop").expect("is answered"), (200, "mine".to_owned()));
        assert_eq!(ask(to, "SHOP.example.:80", "/shop").expect("is answered"), (200, "mine".to_owned()));
        // what its owner has no path for is nobody's
        assert_eq!(ask(to, "shop.example", "/").expect("is answered").0, 404);
        let claim = world.get(&format!("{CLAIMS}/newer")).expect("is there");
        assert_eq!(condition(&claim, "Routed")["status"], "True", "{claim}");
        assert!(claim["status"]["reason"].is_null(), "{claim}");
    };
    fine(&world);

    // it asks for more than HAProxy takes, and for what cannot be said: nobody else is kept from anything
    world.create("/api/v1/namespaces/default/secrets", &certificate("greedy", "greedy.test").1);
    let mut greedy = ingress("greedy", "older", "greedy.test", "/", "theirs");
    let hosts: Vec<String> = (0..2100).map(|n| format!("h{n}.greedy.test")).collect();
    greedy["spec"]["tls"] = json!([{"hosts": hosts, "secretName": "greedy"}]);
    world.create(INGRESSES, &greedy);
    answers(to, "greedy.test", "/", (200, "theirs"));
    let other = TcpListener::bind("0.0.0.0:0").expect("listens");
    let port = other.local_addr().expect("has one").port();
    world.patch(&format!("{SERVICES}/grab"), json!({"spec": {"ports": [{"name": "http", "port": port}]}}));
    let told = |c: &Value| says(&condition(c, "Routed")["message"], &format!("port {port}"));
    world.until(&format!("{CLAIMS}/older"), "told that another program has it", told);
    world.create(INGRESSES, &ingress("long", "older", "long.test", &format!("/{}", "\u{1}".repeat(200_000)), "theirs"));
    fine(&world);

    // it is known after a restart, too
    world.kill_conductor();
    world.start_conductor();
    let (balancer, _) = behind(&world, "newer");
    world.poke(&balancer);
    world.create(INGRESSES, &ingress("later", "newer", "later.test", "/", "mine"));
    answers(to, "later.test", "/", (200, "mine"));
    fine(&world);
    drop(other);
    answers(SocketAddr::new(to.ip(), port), "any.test", "/", (200, "theirs"));

    // each Ingress is told once, and one that is made anew is told again
    let events = |name: &str, uid: &Value| {
        let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
        let all = world.list(&path);
        all.iter().filter(|e| e["involvedObject"]["uid"] == *uid && says(&e["message"], "shop.example")).count()
    };
    let uid = world.get(&format!("{INGRESSES}/steal")).expect("is there")["metadata"]["uid"].clone();
    assert_eq!(events("steal", &uid), 1);
    world.delete_now(&format!("{INGRESSES}/steal"));
    let again = world.create(INGRESSES, &ingress("steal", "older", "shop.example", "/", "theirs"));
    soon("told again", || (events("steal", &again["metadata"]["uid"]) == 1).then_some(()));
    world.audit_is_clean();
}

#[test]
fn one_specific_address_is_given_or_waited_for() {
    if !has("specific addresses", HAPROXY) {
        return;
    }
    let world = world(3);
    claim(&world, "first", json!({"class": "silver", "address": "127.80.3.7"}));
    assert_eq!(place(&world, "first").ip().to_string(), "127.80.3.7");
    claim(&world, "second", json!({"class": "silver", "address": "127.80.3.7"}));
    let path = format!("{CLAIMS}/second");
    let waiting = world.until(&path, "told", |c| says(&c["status"]["message"], "127.80.3.7"));
    assert_eq!(waiting["status"]["phase"], "Pending", "{waiting}");
    assert!(says(&waiting["status"]["message"], "taken"), "{waiting}");
    let (_, holder) = behind(&world, "first");
    assert!(!says(&waiting["status"]["message"], holder["metadata"]["name"].as_str().expect("has one")), "{waiting}");
    claim(&world, "stray", json!({"class": "silver", "address": "10.1.2.3"}));
    let stray = world.until(&format!("{CLAIMS}/stray"), "told", |c| says(&c["status"]["message"], "10.1.2.3"));
    assert!(says(&stray["status"]["message"], "127.80.3.1-127.80.3.20"), "it says what there is: {stray}");
    // who asks for none is not kept from the rest
    claim(&world, "any", json!({"class": "silver"}));
    assert_ne!(place(&world, "any").ip().to_string(), "127.80.3.7");
    // freed, and given to who waits
    world.delete_now(&format!("{CLAIMS}/first"));
    assert_eq!(place(&world, "second").ip().to_string(), "127.80.3.7");
    // a pool that is used does not go; one that somebody made go by force, and made again, knows who has what
    let pool = format!("{LOCAL}/addresspools/local");
    let before = world.get(&pool).expect("is there");
    world.delete(&pool);
    assert_eq!(world.get(&pool).map(|pool| pool["status"]["held"].clone()), Some(before["status"]["held"].clone()));
    world.patch(&pool, json!({"metadata": {"finalizers": null}}));
    world.gone(&pool);
    let again = json!({
        "apiVersion": before["apiVersion"], "kind": "AddressPool", "metadata": {"name": "local"}, "spec": before["spec"],
    });
    world.create(&format!("{LOCAL}/addresspools"), &again);
    let held = |pool: &Value| pool["status"]["held"].as_array().is_some_and(|held| held.len() == 2);
    let places = |pool: &Value| {
        let held = pool["status"]["held"].as_array().cloned().unwrap_or_default();
        held.iter().map(|held| format!("{} {}", held["uid"], held["place"])).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(places(&world.until(&pool, "known to its users", held)), places(&before));
    for name in ["second", "stray", "any"] {
        world.delete_now(&format!("{CLAIMS}/{name}"));
    }
    soon("free again", || {
        let pool = world.get(&format!("{LOCAL}/addresspools/local"))?;
        pool["status"]["held"].as_array().is_none_or(Vec::is_empty).then_some(())
    });
    world.audit_is_clean();
    world.delete_now(&pool);
}

#[test]
fn a_forwarded_port_leads_to_a_service_and_is_the_same_after_a_restart() {
    let Some(own) = own_address() else {
        return conductor_testkit::skip("forwarded ports", "this machine has no address but loopback");
    };
    let mut world = world(4);
    let server = TcpListener::bind((own, 0)).expect("listens");
    let server_address = server.local_addr().expect("has one");
    std::thread::spawn(move || {
        for client in server.incoming().flatten() {
            let _ = (&client).write_all(b"hello");
        }
    });
    service(&world, "greeter", &[server_address]);
    let mut ports = world.get(&format!("{SERVICES}/greeter")).expect("is there")["spec"]["ports"].clone();
    ports[0]["appProtocol"] = json!("greeting");
    let named = json!({"metadata": {"annotations": {"network.conductor.io/claim": "door"}}, "spec": {"ports": ports}});
    world.patch(&format!("{SERVICES}/greeter"), named);
    claim(&world, "door", json!({"class": "bronze"}));
    let to = place(&world, "door");
    // no Service can lead to a loopback address, and one that leads elsewhere is none
    assert_eq!(world.get(&format!("{SERVICES}/door-loadbalancer")), None);
    let said = world.get(&format!("{CLAIMS}/door")).expect("is there");
    assert!(says(&condition(&said, "ConnectionReady")["message"], "no Service can lead to 127.80.4."), "{said}");
    let greeted = || {
        let mut text = String::new();
        TcpStream::connect(to).ok()?.read_to_string(&mut text).ok()?;
        (text == "hello").then_some(())
    };
    soon("greeted", greeted);
    let said = world.conductor(&["connect", "door"]);
    assert!(said.starts_with("hello") && said.contains(&format!("{to}, which lead to Service greeter")), "{said}");
    // what speaks HTTP is asked in HTTP
    let front = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "annotations": {"network.conductor.io/claim": "web"}},
        "spec": {"ports": [{"port": 5000, "name": "http"}]},
    });
    world.create(SERVICES, &front);
    claim(&world, "web", json!({"class": "bronze"}));
    place(&world, "web");
    let (fine, said) = world.run(&["connect", "web"]);
    assert!(!fine && said.contains("curl: ("), "{said}");
    world.delete_now(&format!("{SERVICES}/web"));
    world.delete_now(&format!("{CLAIMS}/web"));
    world.kill_conductor();
    assert!(TcpStream::connect(to).is_err(), "it lives in Conductor");
    world.start_conductor();
    soon("greeted again", greeted);
    assert_eq!(place(&world, "door"), to);
    world.delete_now(&format!("{SERVICES}/greeter"));
    world.delete_now(&format!("{CLAIMS}/door"));
    soon("closed", || TcpStream::connect(to).is_err().then_some(()));
    world.audit_is_clean();
    assert!(identity::marked(&world.home("balancers").display().to_string()).is_empty());
}

#[test]
fn no_name_of_a_users_leads_to_what_listens_on_this_machine_alone() {
    let world = world(5);
    let private = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = private.local_addr().expect("has one").port();
    let asked = Arc::new(AtomicBool::new(false));
    let seen = asked.clone();
    std::thread::spawn(move || {
        for client in private.incoming().flatten() {
            seen.store(true, Ordering::SeqCst);
            let _ = (&client).write_all(b"private");
        }
    });
    let classes = "/apis/network.conductor.io/v1alpha1/loadbalancerclasses";
    let mut open = soon("a class", || world.get(&format!("{classes}/bronze")));
    assert_eq!(open["spec"]["template"]["spec"]["externalNames"], "Refuse", "{open}");
    open["metadata"] = json!({"name": "open"});
    open["spec"]["template"]["spec"]["externalNames"] = json!("Allow");
    world.create(classes, &open);
    let managers = "/apis/conductor.io/v1alpha1/managers/local-balancers";
    let all = json!([{"name": "silver"}, {"name": "bronze"}, {"name": "open"}]);
    world.patch(managers, json!({"spec": {"classes": all}}));
    for (class, host, why) in [
        ("bronze", "localhost", "does not allow"),
        ("open", "localhost", "may not lead"),
        ("open", "127.1", "may not lead"),
        ("open", "169.254.169.254", "may not lead"),
    ] {
        claim(&world, "door", json!({"class": class}));
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "inward", "annotations": {"network.conductor.io/claim": "door"}},
            "spec": {"type": "ExternalName", "externalName": host, "ports": [{"name": "main", "port": port}]},
        });
        world.create(SERVICES, &service);
        let to = place(&world, "door");
        let told = |c: &Value| says(&condition(c, "Routed")["message"], why);
        world.until(&format!("{CLAIMS}/door"), "told", told);
        let mut text = String::new();
        let _ = TcpStream::connect(to).and_then(|mut client| client.read_to_string(&mut text));
        assert_eq!(text, "", "{class} {host}");
        world.delete_now(&format!("{SERVICES}/inward"));
        world.delete_now(&format!("{CLAIMS}/door"));
    }
    assert!(!asked.load(Ordering::SeqCst), "nobody got there");
}

#[test]
fn a_balancer_takes_as_many_connections_as_are_asked_for() {
    if !has("HAProxy", HAPROXY) {
        return;
    }
    let world = world(31);
    let asked = |n: &str| json!({"class": "silver", "resources": {"requests": {"connections": n}}});
    claim(&world, "some", asked("1500"));
    place(&world, "some");
    let (path, object) = behind(&world, "some");
    assert_eq!(
        (&object["spec"]["connections"], &object["status"]["capacity"]["connections"]),
        (&json!("1500"), &json!("1500"))
    );
    let of = |name: &str| world.get(&format!("{CLAIMS}/{name}")).expect("is there");
    assert_eq!(of("some")["status"]["capacity"], json!({"connections": "1500"}));
    let uid = object["metadata"]["uid"].as_str().expect("has one");
    let files = fs::read_dir(world.home("balancers").join("haproxy")).expect("is there").flatten();
    let own = files.into_iter().find(|f| uid.starts_with(&*f.file_name().to_string_lossy())).expect("has a directory");
    let configuration = fs::read_to_string(own.path().join("haproxy.cfg")).expect("is there");
    assert!(configuration.contains("maxconn 1500"), "{path}: {configuration}");

    // what no process here can have is not given in part, and the limit of a claim is none to go past
    let most = conductor_balancers::haproxy::most_connections();
    let more = (u64::from(most) + 1).to_string();
    claim(&world, "many", asked(&more));
    let limited = |n: &str| json!({"class": "silver", "resources": {"limits": {"connections": n}}});
    claim(&world, "few", limited("5"));
    for name in ["many", "few"] {
        let said = |c: &Value| says(&c["status"]["message"], "connections");
        let waits = world.until(&format!("{CLAIMS}/{name}"), "saying why it waits", said);
        assert_eq!(waits["status"]["phase"], "Pending", "{waits}");
    }
    // who does not say how many gets what is usual, and no more than a limit
    claim(&world, "any", json!({"class": "silver"}));
    claim(&world, "fewer", limited("50"));
    claim(&world, "least", asked("20"));
    for (name, expected) in [("any", "1000"), ("fewer", "50"), ("least", "20")] {
        place(&world, name);
        assert_eq!(of(name)["status"]["capacity"]["connections"], expected, "{name}");
    }
}
