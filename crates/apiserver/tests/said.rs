//! What was sent in another form than it is stored in, where Kubernetes tells one from the other: who owns it, and what counts
//! as a change.

mod common;

use common::Api;
use serde_json::{Value, json};

/// Creates an object as `a`, patches it as `b`, and says who owns which fields then, and the object.
async fn patched(path: &str, object: Value, patch: Value) -> (Vec<(String, Value)>, Value) {
    let api = Api::new().await;
    api.create(&format!("{path}?fieldManager=a"), &object).await;
    let (code, now) =
        api.merge(&format!("{path}/{}?fieldManager=b", object["metadata"]["name"].as_str().unwrap()), &patch).await;
    assert_eq!(code, 200, "{now}");
    let managers = now["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let owners = managers.iter().map(|own| (own["manager"].as_str().unwrap().to_owned(), own["fieldsV1"].clone()));
    (owners.collect(), now)
}

fn owners(list: &[(&str, Value)]) -> Vec<(String, Value)> {
    list.iter().map(|(name, fields)| ((*name).to_owned(), fields.clone())).collect()
}

#[tokio::test]
async fn an_empty_list_belongs_to_who_sent_it_where_none_is_written_too() {
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = |rules: Value| json!({"metadata": {"name": "r"}, "rules": rules});
    let rules = json!({"f:rules": {}});
    let check = async |made: Value, patch: Value, expected: &[(&str, Value)]| {
        let (found, now) = patched(roles, made.clone(), patch.clone()).await;
        assert_eq!((found, &now["rules"]), (owners(expected), &Value::Null), "{made} {patch}");
    };
    check(role(json!([])), json!({}), &[("a", rules.clone())]).await;
    // Where nobody is recorded, nobody is.
    check(json!({"metadata": {"name": "r"}}), json!({"rules": []}), &[]).await;
    check(role(json!([])), json!({"rules": []}), &[("b", rules)]).await;
    check(role(json!(null)), json!({"rules": null}), &[]).await;
    // Nothing is written of an empty map that may be left out.
    let (found, _) =
        patched("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "c"}, "data": {}}), json!({}))
            .await;
    assert_eq!(found, []);
}

#[tokio::test]
async fn quantities_in_lists_that_are_compared_as_a_whole_are_compared_as_they_were_sent() {
    let ranges = "/api/v1/namespaces/default/limitranges";
    let limits = |amount: &str| json!({"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": amount}}]});
    for (before, after, owner) in [
        ("2Gi", "2Gi", "a"),
        ("2Gi", "2048Mi", "b"),
        ("1", "1000m", "b"),
        ("500m", "0.5", "b"),
        // Whole binary numbers that eight divides are numbers without a text.
        ("8Gi", "8192Mi", "a"),
    ] {
        let object = json!({"metadata": {"name": "l"}, "spec": limits(before)});
        let (found, now) = patched(ranges, object, json!({"spec": limits(after)})).await;
        assert_eq!(found, owners(&[(owner, json!({"f:spec": {"f:limits": {}}}))]), "{before} {after}");
        assert_eq!(now["spec"], limits(before));
    }
}

#[tokio::test]
async fn empty_lists_count_as_changes_of_some_kinds() {
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let selector = json!({"podSelector": {}});
    for (path, spec, patch, expected) in [
        (hooks, json!(null), json!({"webhooks": []}), 2),
        (hooks, json!(null), json!({"metadata": {"labels": {}}}), 1),
        (policies, selector.clone(), json!({"spec": {"ingress": []}}), 2),
        (policies, selector.clone(), json!({"spec": {"podSelector": {"matchLabels": {}}}}), 2),
        (policies, selector, json!({"spec": {"podSelector": {}}}), 1),
        (budgets, json!({"minAvailable": 1}), json!({"spec": {"selector": {"matchLabels": {}}}}), 2),
        (budgets, json!({"selector": {}}), json!({"spec": {"selector": {"matchLabels": {}}}}), 1),
    ] {
        let (_, now) = patched(path, json!({"metadata": {"name": "x"}, "spec": spec}), patch.clone()).await;
        assert_eq!(now["metadata"]["generation"], expected, "{path} {patch}");
    }
}

#[tokio::test]
async fn what_an_older_version_says_in_another_order_is_stored_so() {
    let api = Api::new().await;
    let of = |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let target = json!({"type": "AverageValue", "averageValue": "1"});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": target}});
    let spec = json!({"maxReplicas": 2, "minReplicas": 1, "scaleTargetRef": {"kind": "ReplicationController", "name": "d"}, "metrics": [cpu, pods]});
    api.create(&of("v2"), &json!({"metadata": {"name": "h"}, "spec": spec})).await;
    let nothing = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler"}).to_string();
    let path = format!("{}/h?fieldManager=m", of("v1"));
    let (code, _) = api.send(http::Method::PATCH, &path, "application/apply-patch+yaml", nothing).await;
    let (_, now) = api.get(&format!("{}/h", of("v2"))).await;
    assert_eq!((code, &now["spec"]["metrics"]), (200, &json!([cpu, pods])), "nothing was applied");
    let (code, _) = api.merge(&format!("{}/h", of("v1")), &json!({"spec": {"minReplicas": 1}})).await;
    let (_, now) = api.get(&format!("{}/h", of("v2"))).await;
    assert_eq!((code, &now["spec"]["metrics"]), (200, &json!([pods, cpu])));
    let mut forgetful = api.get(&format!("{}/h", of("v1"))).await.1;
    forgetful["metadata"]["managedFields"] = json!([]);
    let (code, forgotten) = api.put(&format!("{}/h", of("v1")), &forgetful).await;
    assert_eq!((code, &forgotten["metadata"]["managedFields"]), (200, &Value::Null));
    let version = &forgotten["metadata"]["resourceVersion"];
    let (_, same) = api.merge(&format!("{}/h", of("v1")), &json!({"spec": {"minReplicas": 1}})).await;
    assert_eq!(&same["metadata"]["resourceVersion"], version);
}

#[tokio::test]
async fn what_is_applied_with_a_uid_must_be_there() {
    let api = Api::new().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "uid": "u"}}).to_string();
    let path = "/api/v1/namespaces/default/configmaps/m?fieldManager=m";
    let (code, answer) = api.send(http::Method::PATCH, path, "application/apply-patch+yaml", object).await;
    assert_eq!(code, 409);
    let said = "uid mismatch: the provided object specified uid u, and no existing object was found";
    assert!(answer["message"].as_str().unwrap_or_default().ends_with(said), "{answer}");
}
