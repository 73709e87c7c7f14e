//! Whose name is whose: what a definition may be called, given all others, and what its status says of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A definition that has been looked at: which names it has, and whether there is more to do than to wait for its change.
pub struct LookedAt {
    /// Of the stored definition.
    pub revision: u64,
    group: String,
    names: Vec<String>,
    kinds: Vec<String>,
    /// Whether it is served: its names are its own.
    pub accepted: bool,
    /// Whether it is to be looked at again though it has not changed.
    pub unfinished: bool,
}

impl LookedAt {
    /// As its status says.
    pub fn new(crd: &Value, revision: u64) -> LookedAt {
        LookedAt::with(crd, &crd["status"]["acceptedNames"], revision)
    }

    /// With names of its choice.
    pub fn with(crd: &Value, accepted: &Value, revision: u64) -> LookedAt {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let short = accepted["shortNames"].as_array().into_iter().flatten();
        LookedAt {
            revision,
            group: text(&crd["spec"]["group"]).unwrap_or_default(),
            names: [&accepted["plural"], &accepted["singular"]].into_iter().chain(short).filter_map(text).collect(),
            kinds: [&accepted["kind"], &accepted["listKind"]].into_iter().filter_map(text).collect(),
            accepted: condition(crd, "NamesAccepted"),
            unfinished: true,
        }
    }
}

/// Whether a condition holds.
pub fn condition(crd: &Value, kind: &str) -> bool {
    conditions(crd).iter().any(|own| own["type"] == kind && own["status"] == "True")
}

fn conditions(crd: &Value) -> &[Value] {
    crd["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What is taken of the names that a definition wants, with the reason's name; none if it can have them all.
pub fn conflict<'v>(
    crd: &'v Value,
    name: &str,
    looked_at: &BTreeMap<String, LookedAt>,
) -> Option<(&'static str, &'v str)> {
    let spec = &crd["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let others = || looked_at.iter().filter(|(other, own)| *other != name && own.group == group).map(|(_, own)| own);
    let is_taken = |name: &str| others().any(|own| own.names.iter().any(|taken| taken == name));
    let is_kind = |kind: &str| others().any(|own| own.kinds.iter().any(|taken| taken == kind));
    let names = &spec["names"];
    let text = |field: &str| names[field].as_str().unwrap_or_default();
    [("plural", "PluralConflict"), ("singular", "SingularConflict")]
        .iter()
        .find(|(field, _)| is_taken(text(field)))
        .map(|(field, reason)| (*reason, text(field)))
        .or_else(|| {
            let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
            short.into_iter().find(|name| is_taken(name)).map(|name| ("ShortNamesConflict", name))
        })
        .or_else(|| {
            [("kind", "KindConflict"), ("listKind", "ListKindConflict")]
                .iter()
                .find(|(field, _)| is_kind(text(field)))
                .map(|(field, reason)| (*reason, text(field)))
        })
}

/// Whether a definition has the names that it wants, and says all there is to say.
pub fn is_settled(crd: &Value) -> bool {
    crd["metadata"].get("deletionTimestamp").is_none()
        && condition(crd, "NamesAccepted")
        && crd["status"]["acceptedNames"] == crd["spec"]["names"]
        && accept(crd, None, "") == crd["status"]
}

/// Says something in a condition of a status; the same said again changes nothing.
pub fn set_condition(status: &mut Value, kind: &str, (value, reason, message): (&str, &str, &str), now: &str) {
    let mut list = status["conditions"].as_array().cloned().unwrap_or_default();
    let since = match list.iter().find(|own| own["type"] == kind) {
        Some(own) if own["status"] == value => own["lastTransitionTime"].clone(),
        _ => now.into(),
    };
    let new = json!({"type": kind, "status": value, "lastTransitionTime": since, "reason": reason, "message": message});
    match list.iter_mut().find(|own| own["type"] == kind) {
        Some(own) if own["reason"] == reason && own["status"] == value => {}
        Some(own) => *own = new,
        None => list.push(new),
    }
    status["conditions"] = list.into();
}

/// The status a definition should have, given what is taken of its names.
pub fn accept(crd: &Value, conflict: Option<(&str, &str)>, now: &str) -> Value {
    let mut status = crd["status"].clone();
    let mut set = |kind: &str, value: &str, reason: &str, message: String| {
        set_condition(&mut status, kind, (value, reason, &message), now);
    };
    match conflict {
        Some((reason, name)) => {
            set("NamesAccepted", "False", reason, format!("{name:?} is already in use"));
            if !condition(crd, "Established") {
                set("Established", "False", "NotAccepted", "not all names are accepted".into());
            }
        }
        None => {
            set("NamesAccepted", "True", "NoConflicts", "no conflicts found".into());
            set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted".into());
        }
    }
    if let Some((value, reason, message)) = approval(crd) {
        set("KubernetesAPIApprovalPolicyConformant", value, reason, message);
    }
    if conflict.is_none() {
        status["acceptedNames"] = crd["spec"]["names"].clone();
    }
    status
}

/// Whether a definition in one of Kubernetes' own groups says that it may be there; none of others do.
fn approval(crd: &Value) -> Option<(&'static str, &'static str, String)> {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    let community = ["k8s.io", "kubernetes.io"];
    if !community.iter().any(|own| group.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))) {
        return None;
    }
    let must = format!("protected groups must have approval annotation {ANNOTATION:?}");
    let url = |text: &str| text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some());
    Some(match crd["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default() {
        "" => ("False", "MissingAnnotation", format!("{must}, {SEE}")),
        said if said.starts_with("unapproved") => ("False", "UnapprovedAnnotation", format!("not approved: {said:?}")),
        said if url(said) => ("True", "ApprovedAnnotation", format!("approved in {said}")),
        _ => {
            let why = format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}");
            ("False", "InvalidAnnotation", why)
        }
    })
}
