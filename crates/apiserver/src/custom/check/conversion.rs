//! How a definition's versions are converted.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{Error, Errors, Path};
use machinery::names;
use serde_json::{Value, json};

use super::{is_established, list, text};

/// The reviews that are spoken here.
const SPOKEN: [&str; 2] = ["v1", "v1beta1"];

/// What is wrong with the conversion of a definition, which may be a new one.
pub fn check(crd: &Value, old: &Value, path: &Path) -> Errors {
    let own = &crd["spec"]["conversion"];
    if !own.is_object() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let strategy = text(own, "strategy");
    match strategy {
        "" => errors.push(Error::required(&path.child("strategy"), "")),
        "None" | "Webhook" => {}
        other => errors.push(Error::not_supported(&path.child("strategy"), other, &["None", "Webhook"])),
    }
    if crd["spec"]["preserveUnknownFields"] == true && strategy != "None" {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(Error::invalid(&path.child("strategy"), strategy, detail));
    }
    let config = &own["webhook"]["clientConfig"];
    let versions = list(&own["webhook"], "conversionReviewVersions");
    let at = path.child("webhookClientConfig");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_object() {
            errors.push(Error::forbidden(&at, detail));
        }
        if !versions.is_empty() {
            errors.push(Error::forbidden(&path.child("conversionReviewVersions"), detail));
        }
        return errors;
    }
    if config.is_object() {
        kinds::validate::admission::webhook_client(&mut errors, &at, config);
    } else {
        errors.push(Error::required(&at, "required when strategy is set to Webhook"));
    }
    if is_established(old) && has_authorities(old) && !has_authorities(crd) {
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.push(Error::invalid(&at.child("caBundle"), config["caBundle"].clone(), detail));
    }
    let before = list(&old["spec"]["conversion"]["webhook"], "conversionReviewVersions");
    errors.extend(review_versions(versions, before, &path.child("conversionReviewVersions")));
    errors
}

/// Whether the authorities that the conversion webhook is to be believed by can be read, if there are any.
pub fn has_authorities(crd: &Value) -> bool {
    let bundle = text(&crd["spec"]["conversion"]["webhook"]["clientConfig"], "caBundle");
    bundle.is_empty() || STANDARD.decode(bundle).is_ok_and(|bytes| crate::webhook::is_bundle(&bytes))
}

fn review_versions(versions: &[Value], before: &[Value], path: &Path) -> Errors {
    if versions.is_empty() {
        return vec![Error::required(path, "")];
    }
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().enumerate() {
        let (at, version) = (path.index(i), version.as_str().unwrap_or_default());
        if !seen.insert(version) {
            errors.push(Error::invalid(&at, version, "duplicate version"));
            continue;
        }
        errors.extend(names::dns1035_label(version).into_iter().map(|wrong| Error::invalid(&at, version, wrong)));
    }
    let is_spoken = |versions: &[Value]| versions.iter().any(|version| SPOKEN.iter().any(|spoken| version == spoken));
    if !is_spoken(versions) && (before.is_empty() || is_spoken(before)) {
        errors.push(Error::invalid(path, json!(versions), "must include at least one of v1, v1beta1"));
    }
    errors
}
