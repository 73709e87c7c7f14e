//! Admission: webhooks and policies. Expressions are compiled elsewhere.

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, Report};
use super::common::{label_selector, subdomain};

pub(super) fn webhooks(errors: &mut Errors, object: &At<'_>) {
    let mut seen = Vec::new();
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
            seen.push(name);
        }
    }
}

fn client_config(errors: &mut Errors, config: &At<'_>) {
    if config.has("url") == config.has("service") {
        return errors.required(&config.path, "exactly one of url or service is required");
    }
    let url = config.text("url");
    if config.has("url") && !url.starts_with("https://") {
        let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        errors.invalid(&config.at("url"), scheme, detail);
    }
    let service = config.field("service");
    if service.exists() {
        errors.required_text(&service, "name");
        errors.required_text(&service, "namespace");
        if service.maybe_int("port").is_some_and(|port| !(1..=65535).contains(&port)) {
            let detail = format!("port is not valid: {}", names::range_error(1, 65535));
            errors.invalid(&service.at("port"), service.int("port"), detail);
        }
    }
}

fn match_conditions(errors: &mut Errors, holder: &At<'_>) {
    let count = holder.list("matchConditions").len();
    if count > 64 {
        errors.push(Error::too_many(&holder.at("matchConditions"), Some(count), 64));
    }
    let mut seen = Vec::new();
    for condition in holder.items("matchConditions") {
        let name = condition.text("name");
        errors.required_text(&condition, "expression");
        if name.is_empty() {
            errors.required(&condition.at("name"), "");
        } else {
            errors.each(&condition.at("name"), name, names::qualified_name(name));
        }
        if seen.contains(&name) {
            errors.duplicate(&condition.at("name"), name);
        }
        seen.push(name);
    }
}

fn review_versions(errors: &mut Errors, hook: &At<'_>) {
    let path = hook.at("admissionReviewVersions");
    let versions = hook.list("admissionReviewVersions");
    if versions.is_empty() {
        return errors.required(&path, "must specify one of v1, v1beta1");
    }
    let mut seen: Vec<&str> = Vec::new();
    for version in hook.items("admissionReviewVersions") {
        let text = version.value.as_str().unwrap_or("");
        if seen.contains(&text) {
            errors.invalid(&version.path, text, "duplicate version");
            continue;
        }
        seen.push(text);
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
    if rule.list("resources").is_empty() {
        errors.required(&rule.at("resources"), "");
    }
    for item in rule.items("apiVersions").chain(rule.items("resources")) {
        if item.value.as_str() == Some("") {
            errors.required(&item.path, "");
        }
    }
    if rule.list("resources").len() > 1 && rule.list("resources").iter().any(|item| item == "*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(&rule.at("resources"), rule.get("resources").clone(), detail);
    }
    errors.one_of(rule, "scope", &["*", "Cluster", "Namespaced"]);
}

fn match_resources(errors: &mut Errors, at: &At<'_>) {
    if !at.exists() {
        return;
    }
    errors.required_one_of(at, "matchPolicy", &["Equivalent", "Exact"]);
    for selector in ["namespaceSelector", "objectSelector"] {
        if !at.has(selector) {
            errors.required(&at.at(selector), "");
        }
        label_selector(errors, &at.field(selector));
    }
    for rules in ["resourceRules", "excludeResourceRules"] {
        for rule in at.items(rules) {
            rule_with_operations(errors, &rule);
        }
    }
}

pub(super) fn admission_policy(errors: &mut Errors, object: &At<'_>, mutating: bool) {
    let spec = object.field("spec");
    errors.required_one_of(&spec, "failurePolicy", &["Fail", "Ignore"]);
    let kind = spec.field("paramKind");
    if kind.exists() {
        errors.required_text(&kind, "apiVersion");
        errors.required_text(&kind, "kind");
    }
    let constraints = spec.field("matchConstraints");
    if !constraints.exists() {
        errors.required(&constraints.path, "");
    } else {
        match_resources(errors, &constraints);
        if constraints.list("resourceRules").is_empty() {
            errors.required(&constraints.at("resourceRules"), "");
        }
    }
    match_conditions(errors, &spec);
    let mut variables = Vec::new();
    for variable in spec.items("variables") {
        let name = variable.text("name");
        if name.is_empty() {
            errors.required(&variable.at("name"), "name is not specified");
        } else if !names::c_identifier(name).is_empty() {
            errors.invalid(&variable.at("name"), name, "must be a valid CEL identifier");
        }
        if variable.text("expression").trim().is_empty() {
            errors.required(&variable.at("expression"), "expression is not specified");
        }
        if variables.contains(&name) {
            errors.duplicate(&variable.at("name"), name);
        }
        variables.push(name);
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
        if message.contains('\n') {
            errors.invalid(&validation.at("message"), message, "must not contain line breaks");
        }
        if validation.text("reason") != "Unauthorized" {
            errors.one_of(&validation, "reason", &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
        }
    }
    let mut keys = Vec::new();
    for annotation in spec.items("auditAnnotations") {
        let key = annotation.text("key");
        if annotation.text("valueExpression").trim().is_empty() {
            errors.required(&annotation.at("valueExpression"), "valueExpression is not specified");
        }
        if keys.contains(&key) {
            errors.duplicate(&annotation.at("key"), key);
        }
        keys.push(key);
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
        let name = reference.text("name");
        errors.each(&reference.at("name"), name, names::path_segment_name(name));
        match (name.is_empty(), reference.has("selector")) {
            (false, true) => {
                for field in ["name", "selector"] {
                    errors.forbidden(&reference.at(field), "name and selector are mutually exclusive");
                }
            }
            (true, false) => errors.required(&reference.path, "one of name or selector must be specified"),
            _ => label_selector(errors, &reference.field("selector")),
        }
        errors.required_one_of(&reference, "parameterNotFoundAction", &["Deny", "Allow"]);
    }
    match_resources(errors, &spec.field("matchResources"));
    if mutating {
        return;
    }
    let actions = spec.list("validationActions");
    let path = spec.at("validationActions");
    if actions.is_empty() {
        errors.required(&path, "at least one validation action is required");
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, action) in actions.iter().filter_map(Value::as_str).enumerate() {
        if !matches!(action, "Deny" | "Warn" | "Audit") {
            errors.not_supported(&path.index(i), action, &["Audit", "Deny", "Warn"]);
        }
        if seen.contains(&action) {
            errors.duplicate(&path.index(i), action);
        }
        seen.push(action);
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        errors.invalid(&path, actions.to_vec(), "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}
