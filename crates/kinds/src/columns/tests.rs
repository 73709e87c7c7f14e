use serde_json::{Value, json};

use super::*;

/// Tables of a real kube-apiserver 1.36.4: columns as `[group, kind, [[name, type, format, priority]]]`, rows as
/// `[group, kind, now, object, cells]`.
fn recorded() -> Value {
    serde_json::from_str(include_str!("recorded.json")).expect("recorded tables")
}

#[test]
fn columns_are_those_of_kubernetes() {
    for entry in list(&recorded(), "columns") {
        let (group, kind) = (entry[0].as_str().unwrap(), entry[1].as_str().unwrap());
        let ours = definitions(group, kind).iter();
        let ours: Vec<Value> =
            ours.map(|column| json!([column.name, column.kind, column.format, column.priority])).collect();
        assert_eq!(json!(ours), entry[2], "{group} {kind}");
    }
}

#[test]
fn every_printed_kind_was_recorded() {
    let recorded = recorded();
    for printer in PRINTERS.iter().copied().flatten().filter(|printer| printer.kind != "Status") {
        let same = |entry: &&Value| entry[0] == printer.group && entry[1] == printer.kind;
        assert!(list(&recorded, "columns").iter().any(|entry| same(&entry)), "{} {}", printer.group, printer.kind);
    }
}

#[test]
fn every_column_is_described_and_has_a_cell() {
    for printer in PRINTERS.iter().copied().flatten().chain([&DEFAULT]) {
        let cells = (printer.cells)(&json!({}), 0).len();
        let extra = usize::from(printer.kind == "IPAddress");
        assert_eq!(printer.columns.len() + extra, cells, "{} {}", printer.group, printer.kind);
        assert!(printer.columns.iter().all(|column| column.description.ends_with('.')));
    }
}

#[test]
fn cells_are_those_of_kubernetes() {
    for row in list(&recorded(), "rows") {
        let (group, kind) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        let now = row[2].as_i64().unwrap();
        // The clock of the recording was read up to a second after the server's.
        let ours = [now, now - 1].map(|now| json!(cells(group, kind, &row[3], now)));
        assert!(ours.contains(&row[4]), "{group} {kind}\n ours {}\n real {}", ours[0], row[4]);
    }
}

/// Puts a value in every place of an object in turn.
fn everywhere(object: &Value, value: &Value, visit: &mut dyn FnMut(&Value)) {
    let mut pointers = vec![String::new()];
    while let Some(pointer) = pointers.pop() {
        let mut changed = object.clone();
        let place = changed.pointer_mut(&pointer).expect("a place in the object");
        let children: Vec<String> = match &*place {
            Value::Object(map) => map.keys().map(|key| key.replace('~', "~0").replace('/', "~1")).collect(),
            Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
            _ => Vec::new(),
        };
        pointers.extend(children.iter().map(|child| format!("{pointer}/{child}")));
        *place = value.clone();
        visit(&changed);
    }
}

#[test]
fn any_json_gets_a_row() {
    let junk =
        [json!(null), json!(-1.5e300), json!(i64::MAX), json!("x:é"), json!([null, "a"]), json!({"a": {"b": [1]}})];
    for row in list(&recorded(), "rows") {
        let (group, kind) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        for value in &junk {
            everywhere(&row[3], value, &mut |object| {
                for now in [i64::MIN, 0, i64::MAX] {
                    assert_eq!(cells(group, kind, object, now).len(), row[4].as_array().unwrap().len());
                }
            });
        }
    }
}

#[test]
fn pods_that_ended_say_so() {
    let of = |phase: &str| conditions("", "Pod", &json!({"status": {"phase": phase}}));
    assert_eq!(of("Running"), None);
    assert_eq!(of("Failed").unwrap()[0]["reason"], "Failed");
    assert_eq!(of("Succeeded").unwrap()[0]["type"], "Completed");
    assert_eq!(conditions("", "Node", &json!({"status": {"phase": "Failed"}})), None);
}

/// What the recorded cluster did not show.
#[test]
fn pods_going_away() {
    #[track_caller]
    fn check(status: Value, expected: &str) {
        let pod = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": status});
        assert_eq!(cells("", "Pod", &pod, 0)[2], expected);
    }
    check(json!({"phase": "Running"}), "Terminating");
    check(json!({"phase": "Running", "reason": "NodeLost"}), "Unknown");
    check(json!({"phase": "Succeeded"}), "Succeeded");
}

#[test]
fn pods_by_their_containers() {
    #[track_caller]
    fn check(states: Value, ready: bool, expected: &str) {
        let ready = if ready { "True" } else { "False" };
        let pod = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": states,
        }});
        assert_eq!(cells("", "Pod", &pod, 0)[2], expected);
    }
    let completed = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let failed = json!({"state": {"terminated": {"exitCode": 1, "reason": "Error"}}});
    let killed = json!({"state": {"terminated": {"exitCode": 137, "signal": 9}}});
    let silent = json!({"state": {"terminated": {"exitCode": 3}}});
    let running = json!({"ready": true, "state": {"running": {}}});
    check(json!([completed, running]), true, "Running");
    check(json!([completed, running]), false, "NotReady");
    check(json!([completed, failed]), false, "Error");
    check(json!([failed, completed]), false, "Error");
    check(json!([killed]), false, "Signal:9");
    check(json!([silent]), false, "ExitCode:3");
    check(json!([{"state": {"waiting": {}}}]), false, "Running");
}

#[test]
fn jobs_and_claims_in_every_state() {
    #[track_caller]
    fn check(group: &str, kind: &str, object: Value, column: usize, expected: &str) {
        assert_eq!(cells(group, kind, &object, 1_767_225_600)[column], expected);
    }
    let job = |conditions: &[&str], deleted: bool| {
        let conditions: Vec<Value> = conditions.iter().map(|of| json!({"type": of, "status": "True"})).collect();
        let deletion = if deleted { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        json!({"metadata": {"deletionTimestamp": deletion}, "status": {"conditions": conditions}})
    };
    check("batch", "Job", job(&[], false), 1, "Running");
    check("batch", "Job", job(&["SuccessCriteriaMet", "Complete"], true), 1, "Complete");
    check("batch", "Job", job(&["FailureTarget", "Failed"], false), 1, "Failed");
    check("batch", "Job", job(&["Suspended"], true), 1, "Terminating");
    check("batch", "Job", job(&["FailureTarget"], false), 1, "FailureTarget");
    let start = "2025-12-31T23:50:00Z";
    check("batch", "Job", json!({"status": {"startTime": start}}), 3, "10m");
    let done = json!({"status": {"startTime": start, "completionTime": "2025-12-31T23:50:07Z"}});
    check("batch", "Job", done, 3, "7s");

    let claim = |status: Value, deleted: bool| {
        let deletion = if deleted { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        json!({"metadata": {"deletionTimestamp": deletion}, "status": status})
    };
    let reserved = json!({"allocation": {}, "reservedFor": [{}]});
    check("resource.k8s.io", "ResourceClaim", claim(json!({"allocation": {}}), false), 1, "allocated");
    check("resource.k8s.io", "ResourceClaim", claim(reserved, true), 1, "deleted,allocated,reserved");
    check("resource.k8s.io", "ResourceClaim", claim(json!({}), true), 1, "deleted");

    let quota = json!({"status": {
        "hard": {"limits.cpu": "3500m", "pods": "20", "requests.cpu": "2.5", "limits": "1"},
        "used": {"pods": "3", "requests.cpu": "1000m"},
    }});
    check("", "ResourceQuota", quota.clone(), 1, "limits: 0/1, pods: 3/20, requests.cpu: 1/2500m");
    check("", "ResourceQuota", quota, 2, "limits.cpu: 0/3500m");
    check("", "ComponentStatus", json!({"conditions": [{"type": "Healthy", "status": "False"}]}), 1, "Unhealthy");
    let broken = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}});
    check("apps", "Deployment", broken.clone(), 7, "<invalid>");
    check("apps", "ReplicaSet", broken, 7, "<error>");
    check("", "Status", json!({"status": "Failure", "reason": "NotFound", "message": "m"}), 1, "NotFound");
}
