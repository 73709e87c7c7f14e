//! The smaller groups: policy, scheduling, node, certificates, autoscaling, flow control, admission.

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, Report, same_field};
use super::common::{
    at_most_all, container_resource_name, int_or_percent, label, label_selector, labels, resource_amount, subdomain,
};

pub(super) fn pod_disruption_budget(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        errors.invalid(&spec.path, spec.value.clone(), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        int_or_percent(errors, &spec, field);
        at_most_all(errors, &spec, field);
    }
    label_selector(errors, &spec.field("selector"));
    errors.one_of(&spec, "unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]);
}

pub(super) fn pod_disruption_budget_status_update(errors: &mut Errors, new: &At<'_>) {
    let status = new.field("status");
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.not_negative(&status, field);
    }
}

const SYSTEM_PRIORITIES: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

pub(super) fn priority_class(errors: &mut Errors, object: &At<'_>) {
    let (name, value) = (object.text("metadata.name"), object.int("value"));
    if name.starts_with("system-") {
        let reserved = "priority class names with 'system-' prefix are reserved for system use only. error: ";
        let wrong = match SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, expected)) if value != *expected => {
                Some(format!("value of {name} PriorityClass must be {expected}"))
            }
            Some(_) if object.flag("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            errors.forbidden(&object.at("metadata.name"), &format!("{reserved}{wrong}"));
        }
    } else if value > 1_000_000_000 {
        errors.forbidden(&object.at("value"), "maximum allowed value of a user defined priority is 1000000000");
    }
    if object.has("preemptionPolicy") {
        errors.required_one_of(object, "preemptionPolicy", &["PreemptLowerPriority", "Never"]);
    }
}

pub(super) fn priority_class_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    if new.int("value") != old.int("value") {
        errors.forbidden(&new.at("value"), "may not be changed in an update.");
    }
    errors.immutable(new, old, "preemptionPolicy");
}

pub(super) fn runtime_class(errors: &mut Errors, object: &At<'_>) {
    match object.text("handler") {
        "" => errors.required(&object.at("handler"), ""),
        handler => label(errors, &object.at("handler"), handler),
    }
    for (name, amount) in object.entries("overhead.podFixed") {
        container_resource_name(errors, &amount.path, name);
        resource_amount(errors, &amount.path, name, amount.value);
    }
    labels(errors, &object.field("scheduling.nodeSelector"));
}

pub(super) fn runtime_class_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    runtime_class(errors, new);
    errors.immutable(new, old, "handler");
}

pub(super) fn certificate_signing_request(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    errors.required_text(&spec, "request");
    if spec.list("usages").is_empty() {
        errors.required(&spec.at("usages"), "usages is required");
    }
    let signer = spec.text("signerName");
    if signer.is_empty() {
        errors.required(&spec.at("signerName"), "");
    } else if signer == "kubernetes.io/legacy-unknown" {
        errors.invalid(&spec.at("signerName"), signer, "the legacy signerName is not allowed via this API version");
    } else {
        errors.extend(names::domain_prefixed_path(&spec.at("signerName"), signer));
    }
    if spec.maybe_int("expirationSeconds").is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&spec.at("expirationSeconds"), spec.int("expirationSeconds"), detail);
    }
}

/// A decision stays: requests are approved or denied, once.
pub(super) fn certificate_conditions(errors: &mut Errors, new: &At<'_>) {
    let mut seen = Vec::new();
    for condition in new.items("status.conditions") {
        let kind = condition.text("type");
        errors.required_text(&condition, "type");
        if matches!(kind, "Approved" | "Denied" | "Failed") && condition.text("status") != "True" {
            errors.not_supported(&condition.at("status"), condition.text("status"), &["True"]);
        }
        if seen.contains(&kind) {
            errors.duplicate(&condition.at("type"), kind);
        }
        seen.push(kind);
    }
    if seen.contains(&"Approved") && seen.contains(&"Denied") {
        let conditions = new.get("status.conditions").clone();
        errors.invalid(
            &new.at("status.conditions"),
            conditions,
            "Approved and Denied conditions are mutually exclusive",
        );
    }
}

pub(super) fn horizontal_pod_autoscaler(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    let lowest = spec.maybe_int("minReplicas").unwrap_or(1);
    if lowest < 1 {
        errors.invalid(&spec.at("minReplicas"), lowest, "must be greater than or equal to 1");
    }
    let outside = spec.list("metrics").iter().any(|m| matches!(crate::value::text(m, "type"), "Object" | "External"));
    if lowest == 0 && !outside {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&spec.at("metrics"), detail);
    }
    let highest = spec.int("maxReplicas");
    if highest == 0 {
        errors.required(&spec.at("maxReplicas"), "must be set and greater than 0");
    } else if highest < 0 {
        errors.invalid(&spec.at("maxReplicas"), highest, "must be greater than 0");
    }
    if highest < lowest {
        errors.invalid(&spec.at("maxReplicas"), highest, "must be greater than or equal to `minReplicas`");
    }
    for field in ["kind", "name"] {
        let target = spec.field("scaleTargetRef");
        match target.text(field) {
            "" => errors.required(&target.at(field), ""),
            text => errors.each(&target.at(field), text, names::path_segment_name(text)),
        }
    }
    for metric in spec.items("metrics") {
        errors.required_one_of(&metric, "type", &["ContainerResource", "External", "Object", "Pods", "Resource"]);
    }
}

pub(super) fn flow_schema(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    let precedence = spec.int("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&spec.at("matchingPrecedence"), precedence, "must be a positive value");
    }
    if precedence > 10_000 {
        errors.invalid(&spec.at("matchingPrecedence"), precedence, "must not be greater than 10000");
    }
    let level = spec.field("priorityLevelConfiguration");
    match level.text("name") {
        "" => errors.required(&level.at("name"), "must reference a priority level"),
        name => subdomain(errors, &level.at("name"), name),
    }
    if spec.has("distinguisherMethod") {
        let method = spec.field("distinguisherMethod");
        if !matches!(method.text("type"), "ByUser" | "ByNamespace") {
            errors.not_supported(&method.path, method.text("type"), &["ByNamespace", "ByUser"]);
        }
    }
    for rule in spec.items("rules") {
        if rule.list("subjects").is_empty() {
            errors.required(&rule.at("subjects"), "subjects must contain at least one value");
        }
        if rule.list("resourceRules").is_empty() && rule.list("nonResourceRules").is_empty() {
            errors.required(&rule.path, "at least one of resourceRules and nonResourceRules has to be non-empty");
        }
    }
}

pub(super) fn priority_level(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    match spec.text("type") {
        "Exempt" => {
            if spec.has("limited") {
                errors.forbidden(&spec.at("limited"), "must be nil if the type is not Limited");
            }
        }
        "Limited" => {
            if spec.has("exempt") {
                errors.forbidden(&spec.at("exempt"), "must be nil if the type is Limited");
            }
            if !spec.has("limited") {
                errors.required(&spec.at("limited"), "must not be empty when type is Limited");
            }
            let response = spec.field("limited.limitResponse");
            match response.text("type") {
                "Reject" if response.has("queuing") => {
                    errors
                        .forbidden(&response.at("queuing"), "must be nil if limited.limitResponse.type is not Limited");
                }
                "Queue" if !response.has("queuing") => {
                    let detail = "must not be empty if limited.limitResponse.type is Limited";
                    errors.required(&response.at("queuing"), detail);
                }
                "Reject" | "Queue" => {}
                other => errors.not_supported(&response.at("type"), other, &["Queue", "Reject"]),
            }
        }
        other => errors.not_supported(&spec.at("type"), other, &["Exempt", "Limited"]),
    }
}

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
        errors.invalid(&config.at("url"), url, detail);
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
        if name.is_empty() || !names::c_identifier(name).is_empty() {
            errors.required(&variable.at("name"), "name is not specified");
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
            errors.invalid(&validation.at("message"), message, "message must not contain line breaks");
        }
        let reasons = ["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"];
        errors.one_of(&validation, "reason", &reasons);
    }
    let mut keys = Vec::new();
    for annotation in spec.items("auditAnnotations") {
        let key = annotation.text("key");
        errors.required_text(&annotation, "valueExpression");
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

/// A revision of a workload's history: its data never changes.
pub(super) fn controller_revision(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    errors.not_negative(object, "revision");
    match old {
        Some(old) if !same_field("data", object.get("data"), old.get("data")) => {
            errors.invalid(&object.at("data"), object.get("data").clone(), super::at::IMMUTABLE);
        }
        None if !object.has("data") => errors.required(&object.at("data"), "data is mandatory"),
        _ => {}
    }
}
