//! Which address and port a claim gets, and where that leads and where it never does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conductor_local::identity;
use serde_json::{Value, json};

use super::common::web::own_address;
use super::common::world::{HAPROXY, condition, has, says, soon};
use super::{CLAIMS, LOCAL, SERVICES, behind, claim, place, service, world};

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
