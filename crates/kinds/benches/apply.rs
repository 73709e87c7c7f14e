//! What managedFields cost: `cargo bench -p conductor-kinds --bench apply`.

use std::hint::black_box;
use std::time::Instant;

use conductor_kinds::{defaults, schema_of};
use conductor_machinery::apply::{FieldSet, Filter, OneVersion, Tracker};
use conductor_machinery::schema::decode;
use serde_json::{Value, json};

/// Times a function: the best of several rounds, in microseconds for each call.
fn bench(name: &str, mut run: impl FnMut()) {
    // Short rounds, so that some of them are not interrupted.
    let rounds = 500;
    let calls = 20;
    let best = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| run());
            start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
        })
        .fold(f64::MAX, f64::min);
    println!("{name:<50} {best:>8.2} µs");
}

fn pod() -> Value {
    let container = |name: &str| {
        json!({"name": name, "image": "registry.example/app:1", "ports": [{"containerPort": 80}, {"containerPort": 443}],
            "env": (0..8).map(|i| json!({"name": format!("VARIABLE_{i}"), "value": "value"})).collect::<Vec<_>>(),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/etc/app"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 80}}})
    };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web", "tier": "front"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true}]},
        "spec": {"containers": [container("app"), container("side")],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "config", "configMap": {"name": "web"}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]}})
}

fn status(at: usize) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let container = |name: &str| {
        json!({"name": name, "image": "i", "imageID": "i", "ready": true, "restartCount": at,
            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}})
    };
    json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": "2026-01-02T03:04:05Z", "containerStatuses": [container("app"), container("side")],
        "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")]})
}

fn main() {
    let schema = schema_of("", "v1", "Pod").expect("Pods are built in");
    let main = Filter::Exclude(FieldSet::of_fields(&[&["status"]]));
    let of_status = Filter::Exclude(FieldSet::of_fields(&[
        &["spec"],
        &["metadata", "deletionTimestamp"],
        &["metadata", "ownerReferences"],
    ]));
    let tracker = Tracker {
        schema,
        api_version: "v1",
        kind: "Pod",
        subresource: "",
        reset: &main,
        reset_elsewhere: &Filter::Everything,
        converter: &OneVersion,
        custom: false,
    };
    let kubelet = Tracker { subresource: "status", reset: &of_status, ..tracker };
    let now = "2026-01-02T03:04:05Z";
    let canonical = |object: Value| {
        let mut object = decode(object, schema).expect("a Pod").value;
        defaults::apply("", "Pod", &mut object);
        object
    };
    let mut live = canonical(pod());
    let fresh = live.clone();
    tracker.update(None, &mut live, "controller", now).expect("tracks");
    live["metadata"]["uid"] = json!("u");
    for at in 0..2 {
        let mut new = live.clone();
        new["status"] = status(at);
        let mut new = canonical(new);
        kubelet.update(Some(&live), &mut new, "kubelet", now).expect("tracks");
        live = new;
    }
    println!(
        "a Pod of {} bytes, {} of them managedFields",
        live.to_string().len(),
        live["metadata"]["managedFields"].to_string().len()
    );
    bench("clone (part of all below)", || {
        black_box(live.clone());
    });
    bench("create", || {
        let mut new = fresh.clone();
        tracker.update(None, &mut new, "controller", now).expect("tracks");
        black_box(new);
    });
    bench("update, nothing changed", || {
        let mut new = live.clone();
        tracker.update(Some(&live), &mut new, "controller", now).expect("tracks");
        black_box(new);
    });
    let mut changed = live.clone();
    changed["metadata"]["labels"]["tier"] = json!("back");
    bench("update by the owner, one label", || {
        let mut new = changed.clone();
        tracker.update(Some(&live), &mut new, "controller", now).expect("tracks");
        black_box(new);
    });
    bench("update by another, one label", || {
        let mut new = changed.clone();
        tracker.update(Some(&live), &mut new, "another", now).expect("tracks");
        black_box(new);
    });
    let mut reported = live.clone();
    reported["status"]["containerStatuses"][0]["restartCount"] = json!(9);
    reported["status"]["conditions"][1]["status"] = json!("False");
    bench("status by the kubelet", || {
        let mut new = reported.clone();
        kubelet.update(Some(&live), &mut new, "kubelet", now).expect("tracks");
        black_box(new);
    });
    let patch = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "labels": {"app": "web", "x": "y"}},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]}});
    let applied = tracker.apply(Some(&live), &patch, "applier", false, now).expect("applies");
    bench("apply, the same again", || {
        black_box(tracker.apply(Some(&applied), &patch, "applier", false, now).expect("applies"));
    });
    let mut other = patch.clone();
    other["metadata"]["labels"]["x"] = json!("z");
    bench("apply, one label changed", || {
        black_box(tracker.apply(Some(&applied), &other, "applier", false, now).expect("applies"));
    });
    other["metadata"]["labels"] = json!({"app": "web"});
    bench("apply, one label removed", || {
        black_box(tracker.apply(Some(&applied), &other, "applier", false, now).expect("applies"));
    });
}
