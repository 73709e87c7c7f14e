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
    /// The names under which it is served; none if it is not.
    pub served_as: Option<Value>,
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
            served_as: ["NamesAccepted", "Established"].iter().any(|one| condition(crd, one)).then(|| accepted.clone()),
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

/// What a definition may be called.
pub struct Decision {
    /// The names it gets: those that nobody has, and of those that are taken what it had before.
    pub names: Value,
    /// Why it does not get all it wants: a reason's name, and what is taken.
    pub conflict: Option<(&'static str, String)>,
}

/// Decides what a definition may be called, given all names there are in its group, its own among them.
pub fn decide(crd: &Value, looked_at: &BTreeMap<String, LookedAt>) -> Decision {
    let (wanted, mut names) = (&crd["spec"]["names"], crd["status"]["acceptedNames"].clone());
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    let all = || looked_at.values().filter(|own| own.group == group);
    let is_name = |name: &str| all().any(|own| own.names.iter().any(|taken| taken == name));
    let is_kind = |kind: &str| all().any(|own| own.kinds.iter().any(|taken| taken == kind));
    let in_use = |name: &str| format!("{name:?} is already in use");
    if !names.is_object() {
        names = json!({});
    }
    // Of several reasons the last one is told.
    let mut conflict = None;
    for (field, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("shortNames", "ShortNamesConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ] {
        if wanted.get(field) == names.get(field) {
            continue;
        }
        let taken: Vec<String> = match &wanted[field] {
            Value::Array(list) => {
                let had = |name: &&str| names[field].as_array().is_some_and(|had| had.iter().any(|own| own == *name));
                let new = list.iter().filter_map(Value::as_str).filter(|name| !had(name));
                new.filter(|name| is_name(name)).map(in_use).collect()
            }
            one => {
                let name = one.as_str().unwrap_or_default();
                let taken = if field.ends_with("ind") { is_kind(name) } else { is_name(name) };
                taken.then(|| in_use(name)).into_iter().collect()
            }
        };
        match taken.as_slice() {
            [] => set_name(&mut names, wanted, field),
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    set_name(&mut names, wanted, "categories");
    for field in ["plural", "kind"] {
        if names.get(field).is_none() {
            names[field] = "".into();
        }
    }
    Decision { names, conflict }
}

fn set_name(names: &mut Value, wanted: &Value, field: &str) {
    let Value::Object(names) = names else { return };
    match wanted.get(field) {
        Some(value) => names.insert(field.into(), value.clone()),
        None => names.remove(field),
    };
}

/// Whether a definition has the names that it wants, and says all there is to say.
pub fn is_settled(crd: &Value) -> bool {
    crd["metadata"].get("deletionTimestamp").is_none()
        && condition(crd, "NamesAccepted")
        && crd["status"]["acceptedNames"] == crd["spec"]["names"]
        && accept(crd, &Decision { names: crd["spec"]["names"].clone(), conflict: None }, "") == crd["status"]
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
        // How many are left to go changes all the time.
        Some(own)
            if own["reason"] == reason
                && own["status"] == value
                && (own["message"] == message || kind == "Terminating") => {}
        Some(own) => *own = new,
        None => list.push(new),
    }
    status["conditions"] = list.into();
}

/// The status a definition should have, given what is taken of its names.
pub fn accept(crd: &Value, decision: &Decision, now: &str) -> Value {
    let mut status = crd["status"].clone();
    let mut set = |kind: &str, value: &str, reason: &str, message: String| {
        set_condition(&mut status, kind, (value, reason, &message), now);
    };
    match &decision.conflict {
        Some((reason, taken)) => {
            set("NamesAccepted", "False", reason, taken.clone());
            if !condition(crd, "Established") {
                set("Established", "False", "NotAccepted", "not all names are accepted".into());
            }
        }
        None => {
            set("NamesAccepted", "True", "NoConflicts", "no conflicts found".into());
            match condition(crd, "Established") || crate::custom::check::has_authorities(crd) {
                true => {
                    set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted".into())
                }
                false => {
                    set("Established", "False", "InvalidCABundle", "The conversion webhook CABundle is invalid".into())
                }
            }
        }
    }
    if let Some((value, reason, message)) = approval(crd) {
        set("KubernetesAPIApprovalPolicyConformant", value, reason, message);
    }
    status["acceptedNames"] = decision.names.clone();
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
