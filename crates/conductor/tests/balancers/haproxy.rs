//! A balancer of a claim's own: whom it asks, how it is reloaded and put right, and how much it takes.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use conductor_local::identity;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::common::web::{Backend, Load, ask};
use super::common::world::{HAPROXY, condition, has, kill, ready, says};
use super::{CLAIMS, INGRESSES, address_for, answers, behind, claim, ingress, place, service, world, world_with};

/// The state of a server as HAProxy sees it.
fn is_state(balancer: &Value, server: SocketAddr, state: &str) -> bool {
    let backends = balancer["status"]["backends"].as_array().cloned().unwrap_or_default();
    let servers = backends.iter().flat_map(|b| b["servers"].as_array().cloned().unwrap_or_default());
    servers.into_iter().any(|s| s["server"] == server.to_string() && says(&s["state"], state))
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

#[test]
fn a_balancer_that_hangs_is_said_to_and_started_anew() {
    if !has("an HAProxy that hangs", HAPROXY) {
        return;
    }
    let world = world(13);
    claim(&world, "front", json!({"class": "silver"}));
    let to = place(&world, "front");
    answers(to, "elsewhere.example", "/", (404, "no Ingress"));
    let (balancer, _) = behind(&world, "front");
    for (mark, pid) in world.processes("balancers") {
        for seen in identity::belonging(&mark, Some(pid), Path::new(&mark), None) {
            kill(seen.pid, Signal::STOP);
        }
    }
    let silent = |object: &Value| condition(object, "Ready")["reason"] == "NotAnswering";
    world.until(&balancer, "said to hang", silent);
    world.until(&balancer, "well", ready);
    answers(to, "elsewhere.example", "/", (404, "no Ingress"));
    world.audit_is_clean();
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
