//! A report as a status, and what differs from the one there is. Pure.

use conductor_claims::lifecycle::{Condition, RESTARTED, status_patch};
use serde_json::{Value, json};

use crate::kind::{Object, Report};

/// The name of the Secret with an implementation's connection details; for one of several claims, with the claim's uid.
pub fn secret_name(object: &Object, claim: Option<&str>) -> String {
    match claim {
        None => conductor_claims::names::joined(object.name(), "connection"),
        Some(uid) => conductor_claims::names::joined(object.name(), uid),
    }
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
    if !report.connections.is_empty() {
        let each = report.connections.keys().map(|uid| {
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
    fn what_was_ready_once_stays_known_as_such() {
        let object = Object(json!({"metadata": {"name": "a"}, "status": {"readySince": "t0"}}));
        let status = patch(&object, &Report::not_ready("Lost", "gone"), "t1").expect("is new");
        assert!(status.get("readySince").is_none(), "{status}");
        assert_eq!(status["conditions"][0]["reason"], "Lost");
    }
}
