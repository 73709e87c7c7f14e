//! The plans: what is written for which pods.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::pods::Pod;
use super::slices::{self, Write};
use super::subsets;

fn service(spec: Value) -> Value {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"app": "web"}},
        "spec": {
            "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

fn pod(at: usize) -> Pod {
    let address = IpAddr::from([10, 1, (at / 250) as u8, (at % 250 + 1) as u8]);
    Pod {
        uid: format!("pod-{at}").into(),
        addresses: vec![address].into(),
        ready: true,
        node: "node".into(),
        ports: vec![("named".into(), "TCP".into(), 9000)].into(),
        ..Pod::default()
    }
}

fn zone(node: &str) -> Option<Box<str>> {
    (node == "node").then(|| "east".into())
}

fn named(pods: &[Pod]) -> Vec<(&str, &Pod)> {
    pods.iter().map(|pod| (&*pod.uid, pod)).collect()
}

/// What the API would store after the writes.
fn apply(mut slices: Vec<Value>, writes: &[Write]) -> Vec<Value> {
    for write in writes {
        match write {
            Write::Create(slice) => {
                let mut slice = slice.clone();
                slice["metadata"]["name"] = format!("web-{}", slices.len()).into();
                slices.push(slice);
            }
            Write::Update(slice) => {
                let at = slices.iter().position(|own| own["metadata"]["name"] == slice["metadata"]["name"]).unwrap();
                slices[at] = slice.clone();
            }
            Write::Delete(name) => slices.retain(|own| own["metadata"]["name"] != **name),
        }
    }
    slices
}

fn sizes(slices: &[Value]) -> Vec<usize> {
    slices.iter().map(|slice| slice["endpoints"].as_array().unwrap().len()).collect()
}

/// Creates, updates, deletes.
fn counts(writes: &[Write]) -> [usize; 3] {
    let count = |is: fn(&Write) -> bool| writes.iter().filter(|write| is(write)).count();
    [
        count(|write| matches!(write, Write::Create(_))),
        count(|write| matches!(write, Write::Update(_))),
        count(|write| matches!(write, Write::Delete(_))),
    ]
}

#[test]
fn an_endpoint_says_what_is_known_of_its_pod() {
    let mut one = pod(0);
    (one.hostname, one.subdomain) = ("db".into(), "web".into());
    let writes = slices::plan(&service(json!({})), &[("a", &one)], &zone, &[]);
    let [Write::Create(slice)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(
        slice["endpoints"],
        json!([{
            "addresses": ["10.1.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
            "hostname": "db", "nodeName": "node", "zone": "east",
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "pod-0"},
        }])
    );
    assert_eq!(slice["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"app": "web", "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": slices::MANAGER})
    );
    assert_eq!(
        slice["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "u", "controller": true, "blockOwnerDeletion": true}])
    );
}

#[test]
fn readiness_and_deletion_show_in_conditions() {
    // Ready, terminating, published anyway: ready, serving, terminating.
    for (ready, terminating, publish, expected) in [
        (true, false, false, [true, true, false]),
        (false, false, false, [false, false, false]),
        (true, true, false, [false, true, true]),
        (false, false, true, [true, false, false]),
        (true, true, true, [true, true, true]),
    ] {
        let pod = Pod { ready, terminating, ..pod(0) };
        let service = service(json!({"publishNotReadyAddresses": publish}));
        let slices = apply(vec![], &slices::plan(&service, &[("a", &pod)], &zone, &[]));
        let conditions = &slices[0]["endpoints"][0]["conditions"];
        assert_eq!(*conditions, json!({"ready": expected[0], "serving": expected[1], "terminating": expected[2]}));
    }
}

#[test]
fn ports_are_found_by_number_and_by_name() {
    let named_port = json!({"name": "x", "port": 1, "protocol": "TCP", "targetPort": "named"});
    let missing = json!({"name": "y", "port": 2, "protocol": "UDP", "targetPort": "named"});
    let service = service(json!({"ports": [named_port, missing]}));
    let other = Pod { ports: vec![("named".into(), "TCP".into(), 9001)].into(), ..pod(1) };
    let slices = apply(vec![], &slices::plan(&service, &[("a", &pod(0)), ("b", &other)], &zone, &[]));
    let mut ports: Vec<&Value> = slices.iter().map(|slice| &slice["ports"]).collect();
    ports.sort_by_key(|ports| ports[0]["port"].as_u64());
    assert_eq!(
        ports,
        [
            &json!([{"name": "x", "port": 9000, "protocol": "TCP"}]),
            &json!([{"name": "x", "port": 9001, "protocol": "TCP"}]),
        ]
    );
}

#[test]
fn a_slice_is_never_overfull_and_writes_are_few() {
    let service = service(json!({}));
    let mut pods: Vec<Pod> = (0..250).map(pod).collect();
    let writes = slices::plan(&service, &named(&pods), &zone, &[]);
    assert_eq!(counts(&writes), [3, 0, 0]);
    let slices = apply(vec![], &writes);
    assert_eq!(sizes(&slices), [100, 100, 50]);
    // Nothing changed, nothing is written.
    assert_eq!(slices::plan(&service, &named(&pods), &zone, &slices), []);
    // One more fits; one less touches its own slice only; readiness too.
    pods.push(pod(250));
    let writes = slices::plan(&service, &named(&pods), &zone, &slices);
    assert_eq!(counts(&writes), [0, 1, 0]);
    let slices = apply(slices, &writes);
    pods.remove(0);
    let writes = slices::plan(&service, &named(&pods), &zone, &slices);
    assert_eq!(counts(&writes), [0, 1, 0]);
    let slices = apply(slices, &writes);
    pods[0].ready = false;
    let writes = slices::plan(&service, &named(&pods), &zone, &slices);
    assert_eq!(counts(&writes), [0, 1, 0]);
    let slices = apply(slices, &writes);
    // Without pods one empty slice is left.
    let writes = slices::plan(&service, &[], &zone, &slices);
    let slices = apply(slices, &writes);
    assert_eq!((sizes(&slices), &slices[0]["ports"]), (vec![0], &json!([])));
    assert_eq!(slices::plan(&service, &[], &zone, &slices), []);
}

#[test]
fn families_have_slices_of_their_own() {
    let service = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let both = Pod { addresses: vec!["10.1.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into(), ..pod(0) };
    let slices = apply(vec![], &slices::plan(&service, &[("a", &both)], &zone, &[]));
    let shown: Vec<_> = slices.iter().map(|own| (&own["addressType"], &own["endpoints"][0]["addresses"][0])).collect();
    assert_eq!(shown, [(&json!("IPv4"), &json!("10.1.0.1")), (&json!("IPv6"), &json!("fd00::1"))]);
    let mut service = service;
    service["spec"]["ipFamilies"] = json!(["IPv4"]);
    let writes = slices::plan(&service, &[("a", &both)], &zone, &slices);
    assert_eq!(writes, [Write::Delete("web-1".into())]);
}

#[test]
fn foreign_and_odd_cases() {
    let service = service(json!({}));
    // A pod whose node is gone is left out, unless everything is published.
    let lost = Pod { node: "gone".into(), ..pod(0) };
    assert_eq!(sizes(&apply(vec![], &slices::plan(&service, &[("a", &lost)], &zone, &[]))), [0]);
    let mut publish = service.clone();
    publish["spec"]["publishNotReadyAddresses"] = true.into();
    assert_eq!(sizes(&apply(vec![], &slices::plan(&publish, &[("a", &lost)], &zone, &[]))), [1]);
    // A slice of an earlier service of this name goes and is never taken over.
    let mut old = apply(vec![], &slices::plan(&service, &[("a", &pod(0))], &zone, &[]));
    old[0]["metadata"]["ownerReferences"][0]["uid"] = "earlier".into();
    assert_eq!(counts(&slices::plan(&service, &[("a", &pod(0))], &zone, &old)), [1, 0, 1]);
    // Nothing is made for a service that is going.
    let mut going = service.clone();
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(slices::plan(&going, &[("a", &pod(0))], &zone, &[]), []);
    // Labels follow the service; a headless one says so.
    let made = apply(vec![], &slices::plan(&service, &[("a", &pod(0))], &zone, &[]));
    let mut headless = service.clone();
    headless["spec"]["clusterIP"] = "None".into();
    let writes = slices::plan(&headless, &[("a", &pod(0))], &zone, &made);
    let [Write::Update(slice)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(slice["metadata"]["labels"][slices::HEADLESS], "");
}

#[test]
fn endpoints_group_ports_with_the_same_addresses() {
    let ports = json!([
        {"name": "a", "port": 1, "protocol": "TCP", "targetPort": 1},
        {"name": "b", "port": 2, "protocol": "TCP", "targetPort": 2},
        {"name": "c", "port": 3, "protocol": "TCP", "targetPort": "named"},
    ]);
    let service = service(json!({"ports": ports}));
    let other = Pod { ready: false, ports: Box::default(), ..pod(1) };
    let leaving = Pod { terminating: true, ..pod(2) };
    let pods = [pod(0), other, leaving];
    let made = subsets::plan(&service, &named(&pods), None).unwrap();
    let subsets = made["subsets"].as_array().unwrap();
    let shown: Vec<String> = subsets
        .iter()
        .map(|subset| {
            let list = |field: &str, key: &str| {
                let items = subset[field].as_array().into_iter().flatten();
                items.map(|item| item[key].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(",")
            };
            format!(
                "{} ready {} not {}",
                list("ports", "name"),
                list("addresses", "ip"),
                list("notReadyAddresses", "ip")
            )
        })
        .collect();
    assert_eq!(shown, ["a,b ready 10.1.0.1 not 10.1.0.2", "c ready 10.1.0.1 not "]);
    assert_eq!(subsets::plan(&service, &named(&pods), Some(&made)), None);
    let many: Vec<Pod> = (0..1200).map(|at| Pod { ready: at < 900, ..pod(at) }).collect();
    let simple = self::service(json!({}));
    let made = subsets::plan(&simple, &named(&many), None).unwrap();
    let count = |field: &str| made["subsets"][0][field].as_array().unwrap().len();
    assert_eq!((count("addresses"), count("notReadyAddresses")), (900, 100));
    assert_eq!(made["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"], "truncated");
}
