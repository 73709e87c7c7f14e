//! One balancer for several claims: whose hosts and ports are whose, and that nobody is kept from theirs.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use base64::Engine;
use serde_json::{Value, json};

use super::common::web::{Backend, ask};
use super::common::world::{World, condition, says, soon};
use super::{
    BALANCERS, CLAIMS, INGRESSES, SERVICES, address_for, answers, behind, claim, ingress, place, service, world,
};

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
