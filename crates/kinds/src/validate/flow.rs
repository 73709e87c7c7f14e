//! The kinds that say whose turn it is: FlowSchemas and PriorityLevelConfigurations.

use std::collections::HashSet;

use conductor_machinery::field::Errors;
use conductor_machinery::names;
use serde_json::json;

use super::at::{At, Report};
use super::common::subdomain;

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub(super) fn flow_schema(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    let precedence = spec.int("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&spec.at("matchingPrecedence"), precedence, "must be a positive value");
    }
    if precedence > 10_000 {
        errors.invalid(&spec.at("matchingPrecedence"), precedence, "must not be greater than 10000");
    }
    if precedence == 1 && object.text("metadata.name") != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&spec.at("matchingPrecedence"), precedence, detail);
    }
    let method = spec.field("distinguisherMethod");
    if method.exists() && !matches!(method.text("type"), "ByUser" | "ByNamespace") {
        // The whole method is shown, with Go's names.
        errors.not_supported(&method.at("type"), json!({"Type": method.text("type")}), &["ByNamespace", "ByUser"]);
    }
    let level = spec.field("priorityLevelConfiguration");
    match level.text("name") {
        "" => errors.required(&level.at("name"), "must reference a priority level"),
        name => subdomain(errors, &level.at("name"), name),
    }
    for rule in spec.items("rules") {
        if rule.list("subjects").is_empty() {
            errors.required(&rule.at("subjects"), "subjects must contain at least one value");
        }
        for subject in rule.items("subjects") {
            flow_subject(errors, &subject);
        }
        if rule.list("resourceRules").is_empty() && rule.list("nonResourceRules").is_empty() {
            errors.required(&rule.path, "at least one of resourceRules and nonResourceRules has to be non-empty");
        }
        for resources in rule.items("resourceRules") {
            resource_rule(errors, &resources);
        }
        for paths in rule.items("nonResourceRules") {
            path_rule(errors, &paths);
        }
    }
    conditions(errors, object);
}

fn flow_subject(errors: &mut Errors, subject: &At<'_>) {
    const KINDS: [(&str, &str); 3] = [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let kind = subject.text("kind");
    let Some((_, own)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return errors.not_supported(&subject.at("kind"), kind, &KINDS.map(|(name, _)| name));
    };
    let named = subject.field(own);
    if !named.exists() {
        errors.required(&named.path, &format!("{own} is required when subject kind is '{kind}'"));
    } else {
        match named.text("name") {
            "" => errors.required(&named.at("name"), ""),
            name if *own == "serviceAccount" && name != "*" => subdomain(errors, &named.at("name"), name),
            _ => {}
        }
        if *own == "serviceAccount" {
            match named.text("namespace") {
                "" => errors.required(&named.at("namespace"), "must specify namespace for service account"),
                namespace => super::common::label(errors, &named.at("namespace"), namespace),
            }
        }
    }
    for (name, field) in KINDS.iter().filter(|(name, field)| *name != kind && subject.has(field)) {
        errors.forbidden(&subject.at(field), &format!("{field} is forbidden when subject kind is not '{name}'"));
    }
}

/// A list that says `*` says nothing else. True if its items are still to be looked at.
fn all_or_some(errors: &mut Errors, rule: &At<'_>, field: &str, what: &str) -> bool {
    let items = rule.list(field);
    let all = items.iter().any(|item| item == "*");
    if all && items.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&rule.at(field), rule.get(field).clone(), detail);
    }
    !all
}

fn verbs(errors: &mut Errors, rule: &At<'_>) {
    if rule.list("verbs").is_empty() {
        errors.required(&rule.at("verbs"), "verbs must contain at least one value");
    } else if all_or_some(errors, rule, "verbs", "verbs") {
        let known = rule.list("verbs").iter().all(|verb| verb.as_str().is_some_and(|verb| VERBS.contains(&verb)));
        if !known {
            errors.not_supported(&rule.at("verbs"), rule.get("verbs").clone(), VERBS);
        }
    }
}

fn resource_rule(errors: &mut Errors, rule: &At<'_>) {
    verbs(errors, rule);
    for (field, one, many) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        if rule.list(field).is_empty() {
            errors.required(&rule.at(field), &format!("resource rules must supply at least one {one}"));
        } else {
            all_or_some(errors, rule, field, many);
        }
    }
    if rule.list("namespaces").is_empty() && !rule.flag("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&rule.at("namespaces"), detail);
    } else if all_or_some(errors, rule, "namespaces", "namespaces") {
        for namespace in rule.items("namespaces") {
            let name = namespace.value.as_str().unwrap_or_default();
            for message in names::dns1123_label(name) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {message}");
                errors.invalid(&namespace.path, name, detail);
            }
        }
    }
}

fn path_rule(errors: &mut Errors, rule: &At<'_>) {
    verbs(errors, rule);
    if rule.list("nonResourceURLs").is_empty() {
        errors.required(&rule.at("nonResourceURLs"), "nonResourceURLs must contain at least one value");
    } else if all_or_some(errors, rule, "nonResourceURLs", "non-resource URLs") {
        for url in rule.items("nonResourceURLs") {
            let path = url.value.as_str().unwrap_or_default();
            let stars = path.matches('*').count();
            let wrong = match path {
                "" => "must not be empty",
                "/" => continue,
                path if !path.starts_with('/') => "must start with slash",
                path if path.contains(' ') => "must not contain white-space",
                path if path.contains("//") => "must not contain double slash",
                path if stars > 1 || (stars == 1 && !path.ends_with("/*")) => "wildcard can only do suffix matching",
                _ => continue,
            };
            errors.invalid(&url.path, path, wrong);
        }
    }
}

pub(super) fn conditions(errors: &mut Errors, object: &At<'_>) {
    let mut seen = HashSet::new();
    for condition in object.items("status.conditions") {
        let kind = condition.text("type");
        if seen.contains(&kind) {
            errors.duplicate(&condition.at("type"), kind);
        }
        seen.insert(kind);
        errors.required_text(&condition, "type");
    }
}

pub(super) fn priority_level(errors: &mut Errors, object: &At<'_>) {
    const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    if crate::value::annotation(object.value, ZERO_SHARES).is_some() {
        errors.forbidden(&object.at("metadata.annotations"), &format!("annotation '{ZERO_SHARES}' is forbidden"));
    }
    let spec = object.field("spec");
    let (exempt, limited) = (spec.field("exempt"), spec.field("limited"));
    if (object.text("metadata.name") == "exempt") != (spec.text("type") == "Exempt") {
        errors.invalid(&spec.at("type"), spec.text("type"), "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match spec.text("type") {
        "Exempt" => {
            if limited.exists() {
                errors.forbidden(&limited.path, "must be nil if the type is not Limited");
            }
            shares(errors, &exempt);
        }
        "Limited" => {
            if exempt.exists() {
                errors.forbidden(&exempt.path, "must be nil if the type is Limited");
            }
            if limited.exists() {
                shares(errors, &limited);
                limit_response(errors, &limited.field("limitResponse"));
                if limited.int("borrowingLimitPercent") < 0 {
                    let detail = "if specified, must be a non-negative integer";
                    errors.invalid(&limited.at("borrowingLimitPercent"), limited.int("borrowingLimitPercent"), detail);
                }
            } else {
                errors.required(&limited.path, "must not be empty when type is Limited");
            }
        }
        _ => errors.required_one_of(&spec, "type", &["Exempt", "Limited"]),
    }
    conditions(errors, object);
}

fn shares(errors: &mut Errors, of: &At<'_>) {
    let shares = of.int("nominalConcurrencyShares");
    if shares < 0 {
        errors.invalid(&of.at("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    let lendable = of.int("lendablePercent");
    if !(0..=100).contains(&lendable) {
        errors.invalid(&of.at("lendablePercent"), lendable, "must be between 0 and 100, inclusive");
    }
}

fn limit_response(errors: &mut Errors, response: &At<'_>) {
    let queuing = response.field("queuing");
    match response.text("type") {
        "Reject" if queuing.exists() => {
            errors.forbidden(&queuing.path, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Reject" => {}
        "Queue" if !queuing.exists() => {
            errors.required(&queuing.path, "must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => queues(errors, &queuing),
        _ => errors.required_one_of(response, "type", &["Queue", "Reject"]),
    }
}

/// The bits of a hash that a hand of queues may use up.
const HASH_BITS: i64 = 60;

fn queues(errors: &mut Errors, queuing: &At<'_>) {
    let [length, queues, hand] = ["queueLengthLimit", "queues", "handSize"].map(|field| queuing.int(field));
    if length <= 0 {
        errors.invalid(&queuing.at("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&queuing.at("queues"), queues, "must be positive");
    } else if queues > 10_000_000 {
        errors.invalid(&queuing.at("queues"), queues, "must not be greater than 10000000");
    }
    let at = queuing.at("handSize");
    if hand <= 0 {
        errors.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&at, hand, format!("should not be greater than queues ({queues})"));
    } else if ((queues as f64).log2() * hand as f64).ceil() > HASH_BITS as f64 {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(&at, hand, detail);
    }
}
