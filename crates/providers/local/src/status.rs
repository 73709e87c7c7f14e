//! A report as a status, and what differs from the one there is. Pure.

use std::collections::BTreeMap;

use conductor_claims::lifecycle::{Condition, RESTARTED, ROTATION, status_patch};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::kind::{Object, Report};

/// The name of the Secret with an implementation's connection details; for one of several claims, with the claim's uid. A name that
/// its status has from before stays: others have been told of it.
pub fn secret_name(object: &Object, claim: Option<&str>) -> String {
    match (claim, told_name(object)) {
        (None, Some(told)) => told.to_owned(),
        (None, None) => own_name(object),
        (Some(uid), _) => conductor_claims::names::joined(object.name(), uid),
    }
}

/// A Secret with an object's connection details, from a rotation if there was any.
pub(crate) fn secret(object: &Object, name: &str, details: &BTreeMap<String, String>, rotation: Option<i64>) -> Value {
    let annotations: BTreeMap<&str, String> = rotation.iter().map(|n| (ROTATION, n.to_string())).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": name, "namespace": object.namespace(),
            "labels": {"app.kubernetes.io/managed-by": "conductor"}, "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": object.0["apiVersion"], "kind": object.0["kind"],
                "name": object.name(), "uid": object.uid(), "controller": true, "blockOwnerDeletion": false,
            }],
        },
        "stringData": details,
    })
}

/// No object of another kind has this name.
fn own_name(object: &Object) -> String {
    let kind = object.0["kind"].as_str().unwrap_or_default();
    conductor_claims::names::joined(object.name(), &kind.to_ascii_lowercase())
}

fn told_name(object: &Object) -> Option<&str> {
    object.status("connectionSecretRef")["name"].as_str().filter(|name| !name.is_empty())
}

/// Why an object must leave the Secret of this name and these owners alone; the report that says so.
pub(crate) fn refusal(object: &Object, name: &str, owners: &[OwnerReference]) -> Option<Report> {
    let own = owners.iter().any(|owner| owner.uid == object.uid());
    let other = owners.iter().find(|owner| owner.uid != object.uid() && (!own || owner.controller == Some(true)));
    let whose = match other {
        Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
        None if own => return None,
        None => "is not Conductor's".to_owned(),
    };
    let message = format!(
        "Secret {}/{name} {whose}, and the connection details are to be written there: rename or delete it",
        object.namespace()
    );
    let mut report = Report::not_ready("SecretTaken", message);
    if told_name(object) == Some(name) && name != own_name(object) {
        // a name from when kinds shared them: the next look takes one that is its own
        report.status.insert("connectionSecretRef".into(), Value::Null);
    }
    Some(report)
}

/// The patch that makes a status say what is reported; `None` if it does.
pub(crate) fn patch(object: &Object, report: &Report, now: &str) -> Option<Value> {
    let mut fields = json!({"observedGeneration": object.0["metadata"]["generation"]});
    let mut conditions = report.conditions.clone();
    match &report.not_ready {
        Some(trouble) => conditions.insert(0, Condition::new("Ready", false, &*trouble.reason, &*trouble.message)),
        None => {
            let mut message = if report.message.is_empty() { "ready to be used" } else { &report.message }.to_owned();
            let often = match report.restarts {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            };
            let reason = if report.restarts == 0 { "Ready" } else { RESTARTED };
            if report.restarts > 0 {
                message += &format!("; its process ended by itself and was started again, {often} so far");
            }
            conditions.insert(0, Condition::new("Ready", true, reason, message));
            if !object.was_ready() {
                fields["readySince"] = json!(now);
            }
        }
    }
    for (key, map) in [("attributes", &report.attributes), ("capacity", &report.capacity)] {
        if !map.is_empty() {
            fields[key] = Value::Object(map.clone());
        }
    }
    if report.connection.is_some() {
        fields["connectionSecretRef"] = json!({"name": secret_name(object, None), "namespace": object.namespace()});
    }
    if let Some(connections) = &report.connections {
        let each = connections.keys().map(|uid| {
            let secret = json!({"name": secret_name(object, Some(uid)), "namespace": object.namespace()});
            json!({"claimUid": uid, "secretRef": secret})
        });
        fields["connections"] = each.collect();
    }
    if let Some(scrubbed) = &report.scrubbed {
        fields["scrubbed"] = json!(scrubbed.number);
        conditions.push(match &scrubbed.outcome {
            Ok(how) => Condition::new("Scrubbed", true, "Verified", how.clone()),
            Err(why) => Condition::new("Scrubbed", false, "ScrubFailed", why.clone()),
        });
    }
    if let Some(number) = report.rotated {
        fields["rotated"] = json!(number);
    }
    for (key, value) in &report.status {
        fields[key.as_str()] = value.clone();
    }
    status_patch(&object.0, fields, &conditions, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Scrubbed;

    #[test]
    fn a_report_becomes_a_status_once() {
        let mut object = Object(json!({"metadata": {"name": "a", "namespace": "n", "generation": 3}}));
        let report = Report {
            connection: Some([("host".to_owned(), "x".to_owned())].into()),
            scrubbed: Some(Scrubbed { number: 2, outcome: Err("no".into()) }),
            rotated: Some(4),
            ..Report::default()
        };
        let first = patch(&object, &report, "t1").expect("says something new");
        assert_eq!(first["observedGeneration"], 3);
        assert_eq!(first["connectionSecretRef"]["namespace"], "n");
        assert_eq!((&first["scrubbed"], &first["rotated"]), (&json!(2), &json!(4)));
        assert_eq!(first["conditions"][0]["status"], "True");
        assert_eq!(first["conditions"][1]["status"], "False");
        object.0["status"] = first;
        assert!(object.was_ready());
        assert_eq!(patch(&object, &report, "t2"), None);
    }

    #[test]
    fn a_secret_belongs_to_one_object() {
        let object = |kind: &str, uid: &str| {
            Object(json!({"kind": kind, "metadata": {"name": "shared", "namespace": "n", "uid": uid}}))
        };
        let (mut server, balancer) = (object("PostgresInstance", "1"), object("HAProxyBalancer", "2"));
        assert_ne!(secret_name(&server, None), secret_name(&balancer, None));
        assert_eq!(secret_name(&server, None), "shared-postgresinstance");
        let owner = |kind: &str, uid: &str| OwnerReference {
            kind: kind.into(),
            name: "shared".into(),
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let (ours, theirs) = (owner("PostgresInstance", "1"), owner("HAProxyBalancer", "2"));
        let check = |object: &Object, owners: &[OwnerReference], expected: &str| {
            let report = refusal(object, &secret_name(object, None), owners);
            let said = report.and_then(|report| report.not_ready).map(|trouble| trouble.message).unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
        };
        check(&server, std::slice::from_ref(&ours), "");
        check(&server, &[], "Secret n/shared-postgresinstance is not Conductor's");
        check(&server, std::slice::from_ref(&theirs), "belongs to HAProxyBalancer shared");
        check(&server, &[ours.clone(), theirs.clone()], "belongs to HAProxyBalancer shared");
        // an owner that controls nothing changes nothing
        check(&server, &[ours.clone(), OwnerReference { controller: None, ..theirs.clone() }], "");

        // the name of before stays while it is its own alone
        server.0["status"] = json!({"connectionSecretRef": {"name": "shared-connection"}});
        assert_eq!(secret_name(&server, None), "shared-connection");
        check(&server, std::slice::from_ref(&ours), "");
        let report = refusal(&server, "shared-connection", &[ours, theirs]).expect("is mixed");
        let status = patch(&server, &report, "t1").expect("is new");
        assert_eq!(status["connectionSecretRef"], Value::Null);
        assert!(status.get("connectionSecretRef").is_some(), "{status}");
    }

    #[test]
    fn what_was_ready_once_stays_known_as_such() {
        let object = Object(json!({"metadata": {"name": "a"}, "status": {"readySince": "t0"}}));
        let status = patch(&object, &Report::not_ready("Lost", "gone"), "t1").expect("is new");
        assert!(status.get("readySince").is_none(), "{status}");
        assert_eq!(status["conditions"][0]["reason"], "Lost");
    }
}
