//! Admission: webhooks and policies. Expressions are compiled elsewhere.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, Report};
use super::common::{label_selector, subdomain};

pub(super) fn webhooks(errors: &mut Errors, object: &At<'_>) {
    let mut seen = HashSet::new();
    for hook in object.items("webhooks") {
        let name = hook.text("name");
        errors.extend(names::fully_qualified_name(&hook.at("name"), name));
        for rule in hook.items("rules") {
            rule_with_operations(errors, &rule);
        }
        errors.one_of(&hook, "failurePolicy", &["Fail", "Ignore"]);
        errors.one_of(&hook, "matchPolicy", &["Equivalent", "Exact"]);
        if !hook.has("sideEffects") {
            errors.required(&hook.at("sideEffects"), "must specify one of None, NoneOnDryRun");
        }
        errors.one_of(&hook, "sideEffects", &["None", "NoneOnDryRun"]);
        if hook.maybe_int("timeoutSeconds").is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.invalid(&hook.at("timeoutSeconds"), hook.int("timeoutSeconds"), detail);
        }
        label_selector(errors, &hook.field("namespaceSelector"));
        label_selector(errors, &hook.field("objectSelector"));
        errors.one_of(&hook, "reinvocationPolicy", &["IfNeeded", "Never"]);
        client_config(errors, &hook.field("clientConfig"));
        match_conditions(errors, &hook);
        review_versions(errors, &hook);
        if !name.is_empty() {
            if seen.contains(&name) {
                errors.duplicate(&hook.at("name"), name);
            }
            seen.insert(name);
        }
    }
}

/// How a webhook of another kind is reached.
pub fn webhook_client(errors: &mut Errors, path: &Path, config: &Value) {
    client_config(errors, &At::new(config, path.clone()));
}

fn client_config(errors: &mut Errors, config: &At<'_>) {
    if config.has("url") == config.has("service") {
        return errors.required(&config.path, "exactly one of url or service is required");
    }
    if config.has("url") {
        webhook_url(errors, &config.at("url"), config.text("url"));
    } else {
        // Kubernetes names the one when the other is missing.
        let service = config.field("service");
        if service.text("namespace").is_empty() {
            errors.required(&service.at("name"), "");
        }
        if service.text("name").is_empty() {
            errors.required(&service.at("namespace"), "");
        }
        webhook_service(errors, &service);
    }
}

/// The address of a webhook outside the cluster.
pub fn webhook_url(errors: &mut Errors, path: &Path, url: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let begins = rest.starts_with(|first: char| first.is_ascii_alphabetic());
    let scheme = rest.split_once(':').map_or("", |(scheme, _)| scheme);
    let valid = scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let scheme = if begins && valid { scheme } else { "" };
    let rest = if scheme.is_empty() { rest } else { &rest[scheme.len() + 1..] };
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if !scheme.eq_ignore_ascii_case("https") {
        errors.invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid(path, "", format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

/// Port and path of a webhook's Service.
pub(crate) fn webhook_service(errors: &mut Errors, service: &At<'_>) {
    let wrong = names::port_number(service.int("port"));
    if !wrong.is_empty() {
        errors.invalid(&service.at("port"), service.int("port"), format!("port is not valid: {}", wrong.join(", ")));
    }
    let (at, path) = (service.at("path"), service.text("path"));
    match path {
        "" | "/" => return,
        "//" => return errors.invalid(&at, path, "segment[0] may not be empty"),
        path if !path.starts_with('/') => errors.invalid(&at, path, "must start with a '/'"),
        _ => {}
    }
    // The first character is taken for the slash, whatever it is.
    let steps: String = path.chars().skip(1).collect();
    for (i, step) in steps.strip_suffix('/').unwrap_or(&steps).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&at, path, format!("segment[{i}] may not be empty"));
            continue;
        }
        for message in names::dns1123_subdomain(step) {
            errors.invalid(&at, path, format!("segment[{i}]: {message}"));
        }
    }
}

fn match_conditions(errors: &mut Errors, holder: &At<'_>) {
    let count = holder.list("matchConditions").len();
    if count > 64 {
        errors.push(Error::too_many(&holder.at("matchConditions"), Some(count), 64));
    }
    let mut seen = HashSet::new();
    for condition in holder.items("matchConditions") {
        let name = condition.text("name");
        if condition.text("expression").trim().is_empty() {
            errors.required(&condition.at("expression"), "");
        }
        if name.is_empty() {
            errors.required(&condition.at("name"), "");
            continue;
        }
        errors.each(&condition.at("name"), name, names::qualified_name(name));
        if seen.contains(&name) {
            errors.duplicate(&condition.at("name"), name);
        }
        seen.insert(name);
    }
}

fn review_versions(errors: &mut Errors, hook: &At<'_>) {
    let path = hook.at("admissionReviewVersions");
    let versions = hook.list("admissionReviewVersions");
    if versions.is_empty() {
        return errors.required(&path, "must specify one of v1, v1beta1");
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for version in hook.items("admissionReviewVersions") {
        let text = version.value.as_str().unwrap_or("");
        if seen.contains(&text) {
            errors.invalid(&version.path, text, "duplicate version");
            continue;
        }
        seen.insert(text);
        errors.each(&version.path, text, names::dns1035_label(text));
    }
    if !seen.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        errors.invalid(&path, versions.to_vec(), "must include at least one of v1, v1beta1");
    }
}

/// Which requests a webhook or policy is asked about.
fn rule_with_operations(errors: &mut Errors, rule: &At<'_>) {
    let wildcard = |field: &str| rule.list(field).iter().any(|item| item == "*");
    let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    if rule.list("operations").is_empty() {
        errors.required(&rule.at("operations"), "");
    }
    if rule.list("operations").len() > 1 && wildcard("operations") {
        let detail = "if '*' is present, must not specify other operations";
        errors.invalid(&rule.at("operations"), rule.get("operations").clone(), detail);
    }
    for operation in rule.items("operations") {
        if !operations.contains(&operation.value.as_str().unwrap_or("")) {
            errors.not_supported(&operation.path, operation.value.clone(), &operations);
        }
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        if rule.list(field).is_empty() {
            errors.required(&rule.at(field), "");
        }
        if rule.list(field).len() > 1 && wildcard(field) {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.invalid(&rule.at(field), rule.get(field).clone(), detail);
        }
    }
    for version in rule.items("apiVersions").filter(|version| version.value == "") {
        errors.required(&version.path, "");
    }
    rule_resources(errors, rule);
    errors.one_of(rule, "scope", &["*", "Cluster", "Namespaced"]);
}

/// Resources with their subresources: what a wildcard covers is not said twice.
fn rule_resources(errors: &mut Errors, rule: &At<'_>) {
    let path = rule.at("resources");
    let all = rule.list("resources");
    if all.is_empty() {
        errors.required(&path, "");
    }
    let (mut below, mut above) = (Vec::new(), Vec::new());
    let mut plain = false;
    for item in rule.items("resources") {
        let text = item.value.as_str().unwrap_or_default();
        if text.is_empty() {
            errors.required(&item.path, "");
            continue;
        }
        let Some((resource, part)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if below.contains(&resource) {
            errors.invalid(&item.path, text, format!("if '{resource}/*' is present, must not specify {text}"));
        }
        if above.contains(&part) {
            errors.invalid(&item.path, text, format!("if '*/{part}' is present, must not specify {text}"));
        }
        if part == "*" {
            below.push(resource);
        }
        if resource == "*" {
            above.push(part);
        }
    }
    if all.len() > 1 && all.iter().any(|item| item == "*/*") {
        errors.invalid(&path, all.to_vec(), "if '*/*' is present, must not specify other resources");
    }
    if plain && all.iter().any(|item| item == "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(&path, all.to_vec(), detail);
    }
}

/// A rule about objects of certain names.
fn named_rule(errors: &mut Errors, rule: &At<'_>) {
    let mut seen = HashSet::new();
    for name in rule.items("resourceNames") {
        let text = name.value.as_str().unwrap_or_default();
        errors.each(&name.path, text, names::path_segment_name(text));
        if seen.contains(&text) {
            errors.duplicate(&name.path, text);
        }
        seen.insert(text);
    }
    rule_with_operations(errors, rule);
}

/// Only what is written can be changed on the way.
fn mutable_operations(errors: &mut Errors, matched: &At<'_>) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
    for rule in matched.items("resourceRules") {
        for operation in rule.list("operations").iter().filter_map(Value::as_str) {
            if !OPERATIONS.contains(&operation) {
                errors.not_supported(&matched.at("resourceRules").child("operations"), operation, OPERATIONS);
            }
        }
    }
}

/// The kind of a policy's parameters.
fn param_kind(errors: &mut Errors, kind: &At<'_>) {
    if !kind.exists() {
        return;
    }
    let (at, text) = (kind.at("apiVersion"), kind.text("apiVersion"));
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    if text.is_empty() {
        errors.required(&at, "");
    } else if version.contains('/') {
        errors.invalid(&at, text, format!("unexpected GroupVersion string: {text}"));
    } else {
        let wrong = if group.is_empty() { Vec::new() } else { names::dns1123_subdomain(group) };
        if !wrong.is_empty() {
            errors.invalid(&at, group, wrong.join(","));
        }
        let wrong = names::dns1035_label(version);
        if version.is_empty() {
            errors.invalid(&at, text, "version must be specified");
        } else if !wrong.is_empty() {
            errors.invalid(&at, version, wrong.join(","));
        }
    }
    let name = kind.text("kind");
    let wrong = names::dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(&kind.at("kind"), "");
    } else if !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.invalid(&kind.at("kind"), name, detail);
    }
}

/// A choice that must be made; an empty one is none of those there are.
fn required_choice(errors: &mut Errors, at: &At<'_>, name: &str, choices: &[&str]) {
    if at.has(name) {
        errors.one_of(at, name, choices);
    } else {
        errors.required(&at.at(name), "");
    }
}

fn match_resources(errors: &mut Errors, at: &At<'_>) {
    if !at.exists() {
        return;
    }
    required_choice(errors, at, "matchPolicy", &["Equivalent", "Exact"]);
    for selector in ["namespaceSelector", "objectSelector"] {
        if !at.has(selector) {
            errors.required(&at.at(selector), "");
        }
        label_selector(errors, &at.field(selector));
    }
    for rules in ["resourceRules", "excludeResourceRules"] {
        for rule in at.items(rules) {
            named_rule(errors, &rule);
        }
    }
}

pub(super) fn admission_policy(errors: &mut Errors, object: &At<'_>, mutating: bool) {
    let spec = object.field("spec");
    required_choice(errors, &spec, "failurePolicy", &["Fail", "Ignore"]);
    param_kind(errors, &spec.field("paramKind"));
    let constraints = spec.field("matchConstraints");
    if !constraints.exists() {
        errors.required(&constraints.path, "");
    } else {
        match_resources(errors, &constraints);
        if constraints.list("resourceRules").is_empty() {
            errors.required(&constraints.at("resourceRules"), "");
        }
    }
    if mutating {
        mutable_operations(errors, &constraints);
    }
    match_conditions(errors, &spec);
    for variable in spec.items("variables") {
        let name = variable.text("name");
        if name.trim().is_empty() {
            errors.required(&variable.at("name"), "name is not specified");
        } else if !names::c_identifier(name).is_empty() || conductor_cel::RESERVED.contains(&name) {
            errors.invalid(&variable.at("name"), name, "must be a valid CEL identifier");
        }
        if variable.text("expression").trim().is_empty() {
            errors.required(&variable.at("expression"), "expression is not specified");
        }
    }
    if mutating {
        if spec.list("mutations").is_empty() {
            errors.required(&spec.at("mutations"), "mutations must contain at least one item");
        }
        errors.required_one_of(&spec, "reinvocationPolicy", &["Never", "IfNeeded"]);
        return;
    }
    if spec.list("validations").is_empty() && spec.list("auditAnnotations").is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(&spec.at("validations"), detail);
        errors.required(&spec.at("auditAnnotations"), detail);
    }
    for validation in spec.items("validations") {
        if validation.text("expression").trim().is_empty() {
            errors.required(&validation.at("expression"), "expression is not specified");
        }
        let message = validation.text("message");
        if !message.is_empty() && message.trim().is_empty() {
            errors.invalid(&validation.at("message"), message, "must be non-empty if specified");
        } else if message.trim().contains(['\n', '\r']) {
            errors.invalid(&validation.at("message"), message, "must not contain line breaks");
        }
        errors.one_of(&validation, "reason", &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
    }
    let mut keys = HashSet::new();
    if spec.list("auditAnnotations").len() > 20 {
        let detail = "must not have more than 20 auditAnnotations";
        errors.invalid(&spec.at("auditAnnotations"), spec.get("auditAnnotations").clone(), detail);
    }
    for annotation in spec.items("auditAnnotations") {
        let key = annotation.text("key");
        if annotation.text("valueExpression").trim().is_empty() {
            errors.required(&annotation.at("valueExpression"), "valueExpression is not specified");
        }
        if keys.contains(&key) {
            errors.duplicate(&annotation.at("key"), key);
        }
        keys.insert(key);
    }
}

pub(super) fn admission_policy_binding(errors: &mut Errors, object: &At<'_>, mutating: bool) {
    let spec = object.field("spec");
    match spec.text("policyName") {
        "" => errors.required(&spec.at("policyName"), ""),
        name => subdomain(errors, &spec.at("policyName"), name),
    }
    let reference = spec.field("paramRef");
    if reference.exists() {
        let (name, selector) = (reference.text("name"), reference.field("selector"));
        if !name.is_empty() {
            errors.each(&reference.at("name"), name, names::path_segment_name(name));
        }
        label_selector(errors, &selector);
        match (name.is_empty(), selector.exists()) {
            (false, true) => {
                for field in ["name", "selector"] {
                    errors.forbidden(&reference.at(field), "name and selector are mutually exclusive");
                }
            }
            (true, false) => errors.required(&reference.path, "one of name or selector must be specified"),
            _ => {}
        }
        errors.required_one_of(&reference, "parameterNotFoundAction", &["Deny", "Allow"]);
    }
    match_resources(errors, &spec.field("matchResources"));
    if mutating {
        return mutable_operations(errors, &spec.field("matchResources"));
    }
    let actions = spec.list("validationActions");
    let path = spec.at("validationActions");
    if actions.is_empty() {
        errors.required(&path, "at least one validation action is required");
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, action) in actions.iter().filter_map(Value::as_str).enumerate() {
        if !matches!(action, "Deny" | "Warn" | "Audit") {
            errors.not_supported(&path.index(i), action, &["Audit", "Deny", "Warn"]);
        }
        if seen.contains(&action) {
            errors.duplicate(&path.index(i), action);
        }
        seen.insert(action);
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        errors.invalid(&path, actions.to_vec(), "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}
