//! Where a Pod may run: affinity, tolerations, spreading.

use std::collections::{HashMap, HashSet};

use conductor_machinery::field::Errors;
use conductor_machinery::names;
use serde_json::Value;

use crate::validate::at::{At, Report};
use crate::validate::common::{label, label_selector, node_selector, node_selector_term, qualified};
use crate::validate::node::TAINT_EFFECTS;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(errors: &mut Errors, at: &At<'_>) {
    let nodes = at.field("nodeAffinity");
    if nodes.has(REQUIRED) {
        node_selector(errors, &nodes.field(REQUIRED));
    }
    for term in nodes.items(PREFERRED) {
        weight(errors, &term);
        node_selector_term(errors, &term.field("preference"), false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = at.field(kind);
        for term in pods.items(REQUIRED) {
            pod_term(errors, &term);
        }
        for term in pods.items(PREFERRED) {
            weight(errors, &term);
            pod_term(errors, &term.field("podAffinityTerm"));
        }
    }
}

fn weight(errors: &mut Errors, term: &At<'_>) {
    if !(1..=100).contains(&term.int("weight")) {
        errors.invalid(&term.at("weight"), term.int("weight"), "must be in the range 1-100");
    }
}

fn pod_term(errors: &mut Errors, term: &At<'_>) {
    label_selector(errors, &term.field("labelSelector"));
    label_selector(errors, &term.field("namespaceSelector"));
    for name in term.list("namespaces").iter().filter_map(Value::as_str) {
        label(errors, &term.at("namespace"), name);
    }
    label_keys(errors, term, &["matchLabelKeys", "mismatchLabelKeys"]);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(&term.at("topologyKey"), "can not be empty");
    }
    qualified(errors, &term.at("topologyKey"), key);
}

/// Keys of labels whose values are taken from the Pod itself.
fn label_keys(errors: &mut Errors, term: &At<'_>, fields: &[&str]) {
    for field in fields.iter().filter(|field| !term.list(field).is_empty()) {
        if !term.has("labelSelector") {
            errors.forbidden(&term.at(field), "must not be specified when labelSelector is not set");
            continue;
        }
        for key in term.items(field) {
            qualified(errors, &key.path, key.value.as_str().unwrap_or(""));
        }
    }
    // by now a new Pod's own labels were added to the selector: a key that is there twice was somebody's wish as well
    let selector = term.field("labelSelector");
    let keys = term.list("matchLabelKeys").iter().enumerate();
    let keys: HashMap<&str, usize> = keys.filter_map(|(at, key)| Some((key.as_str()?, at))).collect();
    let mut seen: HashSet<&str> = selector.entries("matchLabels").map(|(key, _)| key).collect();
    for expression in selector.list("matchExpressions") {
        let key = crate::value::text(expression, "key");
        if let Some(at) = keys.get(key).copied().filter(|_| seen.contains(&key)) {
            errors.invalid(&term.path.index(at), key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
    for key in term.items("matchLabelKeys") {
        if term.list("mismatchLabelKeys").contains(key.value) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&key.path, key.value.clone(), detail);
        }
    }
}

pub(in super::super) fn tolerations(errors: &mut Errors, spec: &At<'_>) {
    for toleration in spec.items("tolerations") {
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        if !key.is_empty() {
            qualified(errors, &toleration.at("key"), key);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&toleration.at("operator"), operator, detail);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&toleration.at("effect"), effect, detail);
        }
        match operator {
            "" | "Equal" => {
                let messages = names::label_value(value);
                if !messages.is_empty() {
                    errors.invalid(&toleration.at("operator"), value, messages.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(&toleration.at("operator"), value, detail);
                }
            }
            "Lt" | "Gt" => {
                errors.not_supported(&toleration.at("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
            }
            other => errors.not_supported(&toleration.at("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(&toleration, "effect", TAINT_EFFECTS);
        }
    }
}

pub(super) fn topology_spread(errors: &mut Errors, spec: &At<'_>) {
    let pair = |constraint: &'_ At<'_>| -> (String, String) {
        (constraint.text("topologyKey").to_owned(), constraint.text("whenUnsatisfiable").to_owned())
    };
    // how many of a pair are still to come
    let mut left: HashMap<(String, String), usize> = HashMap::new();
    for constraint in spec.items("topologySpreadConstraints") {
        *left.entry(pair(&constraint)).or_default() += 1;
    }
    for constraint in spec.items("topologySpreadConstraints") {
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if constraint.int("maxSkew") <= 0 {
            errors.invalid(&constraint.at("maxSkew"), constraint.int("maxSkew"), "must be greater than zero");
        }
        if key.is_empty() {
            errors.required(&constraint.at("topologyKey"), "can not be empty");
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            errors.not_supported(&constraint.at("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let again = left.entry(pair(&constraint)).or_default();
        *again = again.saturating_sub(1);
        if *again > 0 {
            errors.duplicate(&constraint.at("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.maybe_int("minDomains") {
            if domains <= 0 {
                errors.invalid(&constraint.at("minDomains"), domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&constraint.at("minDomains"), domains, detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.one_of(&constraint, policy, &["Honor", "Ignore"]);
        }
        label_keys(errors, &constraint, &["matchLabelKeys"]);
        label_selector(errors, &constraint.field("labelSelector"));
    }
}
