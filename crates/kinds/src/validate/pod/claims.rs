//! Devices that a Pod claims, and which of its containers use them.

use std::collections::{BTreeSet, HashMap, HashSet};

use conductor_machinery::field::{Error, Errors};

use crate::validate::at::{At, Report};
use crate::validate::common::{label, subdomain};
use crate::value::text;

/// As many names are shown where all would be told, and in as many mistakes.
const SHOWN: usize = 64;
/// No name that is one is longer.
const LONGEST: usize = 63;

pub(super) fn resource_claims(errors: &mut Errors, spec: &At<'_>) {
    let mut seen = HashSet::new();
    for claim in spec.items("resourceClaims") {
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(&claim.at("name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(&claim.at("name"), name);
        } else {
            label(errors, &claim.at("name"), name);
            seen.insert(name);
        }
        let fields = ["resourceClaimName", "resourceClaimTemplateName"];
        match fields.iter().filter(|field| claim.has(field)).count() {
            0 => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&claim.path, claim.value.clone(), detail);
            }
            2 => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&claim.path, claim.value.clone(), detail);
            }
            _ => {}
        }
        for field in fields.into_iter().filter(|field| claim.has(field)) {
            subdomain(errors, &claim.at(field), claim.text(field));
        }
    }
}

/// What the claims of a Pod are called.
pub(super) fn claim_names<'a>(spec: &At<'a>) -> BTreeSet<&'a str> {
    spec.list("resourceClaims").iter().map(|claim| text(claim, "name")).filter(|name| !name.is_empty()).collect()
}

/// The claims, or requests of claims, that resources (`at`) name.
pub(super) fn used_claims(errors: &mut Errors, at: &At<'_>, known: &BTreeSet<&str>) {
    let mut whole: HashSet<&str> = HashSet::new();
    let mut parts: HashMap<&str, HashSet<&str>> = HashMap::new();
    for claim in at.items("claims") {
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            errors.required(&claim.path, "");
            continue;
        }
        if !request.is_empty() && !whole.contains(name) {
            label(errors, &claim.at("request"), request);
            if !parts.entry(name).or_default().insert(request) {
                errors.duplicate(&claim.path, format!("{name}/{request}"));
            }
        } else if !whole.insert(name) {
            errors.duplicate(&claim.path, name);
        } else {
            for _ in parts.get(name).into_iter().flatten() {
                errors.duplicate(&claim.path, name);
            }
        }
        if !known.contains(name) {
            let mut error = Error::not_found(&claim.path, name);
            error.detail = if known.is_empty() {
                "must be one of the names in pod.spec.resourceClaims which is empty".to_owned()
            } else if errors.len() >= SHOWN {
                "must be one of the names in pod.spec.resourceClaims".to_owned()
            } else {
                let names = known.iter().filter(|name| name.len() <= LONGEST).take(SHOWN);
                let shown = names.copied().collect::<Vec<_>>().join(", ");
                format!("must be one of the names in pod.spec.resourceClaims: {shown}")
            };
            errors.push(error);
        }
    }
}
