//! Creation is checked against recorded answers in `tests/real.rs`; here is what only changes show.

use serde_json::json;

use super::*;

#[test]
fn a_change_warns_about_a_template_only_when_it_counts() {
    let template = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}});
    let old = json!({"metadata": {"generation": 1}, "spec": {"template": template}});
    let mut new = old.clone();
    assert!(update("apps", "Deployment", &new, &old).is_empty());
    new["metadata"]["generation"] = json!(2);
    let expected = "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead";
    assert_eq!(update("apps", "Deployment", &new, &old), [expected]);
}

#[test]
fn changes_of_pods_and_of_good_addresses_are_silent() {
    let pod = json!({"metadata": {"name": "a.b"}, "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}});
    assert!(update("", "Pod", &pod, &pod).is_empty());
    let status = json!({"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "2001:DB8::1"}]}});
    let expected =
        "status.podIPs[1].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")";
    assert_eq!(status_update("", "Pod", &status), [expected]);
    assert!(deprecated_api("", "v1", "Endpoints").is_some() && deprecated_api("", "v1", "Pod").is_none());
}

#[test]
fn no_more_is_warned_of_than_anyone_reads() {
    let items: Vec<Value> = (0..2000).map(|i| json!({"key": "k", "path": format!("a/{}", i % 2)})).collect();
    let name = "n".repeat(100_000);
    let source = json!({"configMap": {"name": name, "items": items}});
    let ports: Vec<Value> =
        (0..2000).map(|i| json!({"containerPort": 80, "protocol": "TCP", "hostPort": i % 2})).collect();
    for spec in [
        json!({"containers": [{"name": "c", "image": "i", "ports": ports}]}),
        json!({"containers": [], "volumes": [{"name": "v", "projected": {"sources": [source, source]}}]}),
        json!({"containers": [], "volumes": [{"name": "v", "configMap": source["configMap"]}]}),
        json!({"containers": [], "volumes": [{"name": "v", "projected": {"sources": vec![json!({}); 2000]}}]}),
    ] {
        let warnings = create("", "Pod", &json!({"metadata": {"name": "p"}, "spec": spec}));
        assert!((1..200).contains(&warnings.len()), "{}", warnings.len());
        assert!(warnings.iter().all(|warning| warning.len() < 2000), "{warnings:?}");
    }
}
