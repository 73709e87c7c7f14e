use serde_json::json;

use super::*;

fn autoscaler() -> &'static Twin {
    twin("autoscaling", "v1", "HorizontalPodAutoscaler").expect("served in two versions")
}

#[test]
fn what_the_older_version_does_not_know_survives_it() {
    let stored = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "minReplicas": 1, "maxReplicas": 3,
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
                {"type": "Object", "object": {
                    "describedObject": {"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
                    "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
                    "target": {"type": "Value", "value": "10"}}},
                {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "2"}}},
                {"type": "ContainerResource", "containerResource": {
                    "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 7}}},
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
            ],
            "behavior": {
                "scaleUp": {"selectPolicy": "Max", "stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]},
                "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
            },
        },
        "status": {
            "currentReplicas": 1, "desiredReplicas": 1,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5, "averageValue": "3m"}}}],
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "message": "a < b"}],
        },
    });
    let shown = autoscaler().from_stored(stored.clone());
    assert_eq!(shown["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(shown["status"]["currentCPUUtilizationPercentage"], 5);
    let annotation =
        |name: &str| shown["metadata"]["annotations"][format!("autoscaling.alpha.kubernetes.io/{name}")].as_str();
    assert_eq!(
        annotation("conditions"),
        Some(
            r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z","message":"a \u003c b"}]"#
        )
    );
    assert!(annotation("metrics").is_some_and(|text| {
        text.starts_with(r#"[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5"}}"#)
    }));
    assert!(annotation("behavior").is_some_and(|text| text.contains(
        r#""SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null"#
    )));
    assert_eq!(autoscaler().to_stored(shown), stored);
}

#[test]
fn nothing_said_is_a_share_of_the_cpu() {
    let stored = autoscaler().to_stored(json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 2}}));
    assert_eq!(stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    assert_eq!(stored["apiVersion"], "autoscaling/v2");
}

#[test]
fn events_are_renamed_there_and_back() {
    let twin = twin("events.k8s.io", "v1", "Event").expect("served in two groups");
    let stored = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "message": "m",
        "source": {"component": "c"}, "firstTimestamp": null, "lastTimestamp": null, "count": 3, "eventTime": null,
        "reportingComponent": "r", "reportingInstance": "i",
    });
    let shown = twin.from_stored(stored.clone());
    assert_eq!(
        (&shown["note"], &shown["deprecatedCount"], &shown["apiVersion"]),
        (&json!("m"), &json!(3), &json!("events.k8s.io/v1"))
    );
    assert_eq!(twin.to_stored(shown), stored);
}
