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
