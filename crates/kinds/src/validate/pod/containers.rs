//! Containers of a Pod: names, images, ports, probes.

use std::collections::{BTreeSet, HashSet};

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names;
use serde_json::{Value, json};

use super::claims::claim_names;
use super::environment::environment;
use super::mounts::{devices, mounts};
use super::volumes::Volumes;
use super::{resource_requirements, security};
use crate::validate::at::{At, Report};
use crate::validate::common::{PROTOCOLS, label, port_number_or_name};

const NO_POLICY: &str = "must specify restartPolicy when restart rules are used";

const EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

/// What containers that are there for a look have none of.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "restartPolicy",
    "restartPolicyRules",
];

/// Checks the containers of all three kinds.
pub(super) fn containers(errors: &mut Errors, spec: &At<'_>, volumes: &Volumes<'_>) {
    if spec.list("containers").is_empty() {
        errors.required(&spec.at("containers"), "");
    }
    let claims = claim_names(spec);
    let mut names: HashSet<&str> = HashSet::new();
    for container in spec.items("containers") {
        common(errors, spec, &container, volumes, &claims);
        unique(errors, &mut names, &container);
        lifecycle_and_probes(errors, spec, &container);
        restart_policy(errors, &container);
    }
    host_ports(errors, spec.items("containers"));
    for container in spec.items("initContainers") {
        common(errors, spec, &container, volumes, &claims);
        restart_policy_before_others(errors, &container);
        if !container.text("name").is_empty() {
            unique(errors, &mut names, &container);
        }
        host_ports(errors, std::iter::once(container.clone()));
        init_container(errors, spec, &container);
    }
    let targets = names.clone();
    for container in spec.items("ephemeralContainers") {
        common(errors, spec, &container, volumes, &claims);
        unique(errors, &mut names, &container);
        ephemeral_container(errors, &container, &targets);
    }
}

fn unique<'a>(errors: &mut Errors, names: &mut HashSet<&'a str>, container: &At<'a>) {
    let name = container.text("name");
    if names.contains(&name) {
        errors.duplicate(&container.at("name"), name);
    } else {
        names.insert(name);
    }
}

fn init_container(errors: &mut Errors, spec: &At<'_>, container: &At<'_>) {
    if container.text("restartPolicy") == "Always" {
        return lifecycle_and_probes(errors, spec, container);
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if container.has(field) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&container.at(field), detail);
        }
    }
    for policy in container.items("resizePolicy").filter(|policy| policy.text("restartPolicy") == "RestartContainer") {
        let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
        errors.invalid(&policy.at("restartPolicy"), "RestartContainer", detail);
    }
}

fn ephemeral_container(errors: &mut Errors, container: &At<'_>, targets: &HashSet<&str>) {
    let image = container.text("image");
    if image.trim() != image {
        errors.invalid(&container.at("image"), image, "must not have leading or trailing whitespace");
    }
    let target = container.text("targetContainerName");
    if !target.is_empty() && !targets.contains(&target) {
        errors.push(Error::not_found(&container.at("targetContainerName"), target));
    }
    for field in NOT_EPHEMERAL.iter().filter(|field| is_set(container, field)) {
        errors.forbidden(&container.at(field), EPHEMERAL);
    }
    for mount in container.items("volumeMounts") {
        for field in ["subPath", "subPathExpr"] {
            if !mount.text(field).is_empty() {
                errors.forbidden(&mount.at(field), EPHEMERAL);
            }
        }
    }
}

fn is_set(container: &At<'_>, field: &str) -> bool {
    let value = container.get(field);
    let empty = value.as_array().is_some_and(Vec::is_empty) || (field == "resources" && *value == json!({}));
    container.has(field) && !empty
}

/// An empty list was sent, of which nothing is left.
pub(super) fn empty(errors: &mut Errors, container: &At<'_>, field: &str) {
    if NOT_EPHEMERAL.contains(&field) && !is_set(container, field) {
        errors.forbidden(&container.at(field), EPHEMERAL);
    }
}

fn common(errors: &mut Errors, spec: &At<'_>, container: &At<'_>, volumes: &Volumes<'_>, claims: &BTreeSet<&str>) {
    match container.text("name") {
        "" => errors.required(&container.at("name"), ""),
        name => label(errors, &container.at("name"), name),
    }
    errors.required_text(container, "image");
    errors.required_one_of(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"]);
    ports(errors, container);
    environment(errors, container);
    mounts(errors, container, volumes);
    devices(errors, container, volumes);
    errors.required_one_of(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"]);
    resource_requirements(errors, &container.field("resources"), false, claims);
    resize_policy(errors, spec, container);
    security::security_context(errors, spec, &container.field("securityContext"));
}

fn ports(errors: &mut Errors, container: &At<'_>) {
    let mut seen = HashSet::new();
    for port in container.items("ports") {
        let name = port.text("name");
        if !name.is_empty() {
            let messages = names::port_name(name);
            if !messages.is_empty() {
                errors.each(&port.at("name"), name, messages);
            } else if seen.contains(&name) {
                errors.duplicate(&port.at("name"), name);
            } else {
                seen.insert(name);
            }
        }
        if port.int("containerPort") == 0 {
            errors.required(&port.at("containerPort"), "");
        } else {
            crate::validate::common::port_number(errors, &port, "containerPort");
        }
        if port.int("hostPort") != 0 {
            crate::validate::common::port_number(errors, &port, "hostPort");
        }
        errors.required_one_of(&port, "protocol", PROTOCOLS);
    }
}

fn host_ports<'a>(errors: &mut Errors, containers: impl Iterator<Item = At<'a>>) {
    let mut seen = HashSet::new();
    for container in containers {
        for port in container.items("ports").filter(|port| port.int("hostPort") != 0) {
            let key = format!("{}/{}/{}", port.text("protocol"), port.text("hostIP"), port.int("hostPort"));
            if seen.contains(&key) {
                errors.duplicate(&port.at("hostPort"), key);
            } else {
                seen.insert(key);
            }
        }
    }
}

fn resize_policy(errors: &mut Errors, spec: &At<'_>, container: &At<'_>) {
    let path = container.at("resizePolicy");
    let mut seen = HashSet::new();
    for policy in container.items("resizePolicy") {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if seen.contains(&resource) {
            errors.duplicate(&policy.path, resource);
        }
        seen.insert(resource);
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(&path, ""),
            other => errors.not_supported(&path, other, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(&path, ""),
            other => errors.not_supported(&path, other, &["NotRequired", "RestartContainer"]),
        }
        if spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            errors.invalid(&path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// Without a policy nobody looks at the rules of what runs before the others.
fn restart_policy_before_others(errors: &mut Errors, container: &At<'_>) {
    if container.has("restartPolicy") {
        restart_policy(errors, container);
    } else if !container.list("restartPolicyRules").is_empty() {
        errors.required(&container.at("restartPolicy"), NO_POLICY);
    }
}

fn restart_policy(errors: &mut Errors, container: &At<'_>) {
    let rules = container.list("restartPolicyRules").len();
    if !container.has("restartPolicy") {
        if rules > 0 {
            errors.required(&container.at("restartPolicy"), NO_POLICY);
        }
    } else {
        errors.one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"]);
    }
    if rules > 20 {
        errors.push(Error::too_many(&container.at("restartPolicyRules"), Some(rules), 20));
    }
    for rule in container.items("restartPolicyRules") {
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&rule.text("action")) {
            errors.not_supported(&rule.at("action"), rule.text("action"), &actions);
        }
        let codes = rule.field("exitCodes");
        if !codes.exists() {
            errors.required(&codes.path, "must be specified");
            continue;
        }
        if !matches!(codes.text("operator"), "In" | "NotIn") {
            errors.not_supported(&codes.at("operator"), codes.text("operator"), &["In", "NotIn"]);
        }
        if codes.list("values").len() > 255 {
            errors.push(Error::too_many(&codes.at("values"), Some(codes.list("values").len()), 255));
        }
    }
}

fn lifecycle_and_probes(errors: &mut Errors, spec: &At<'_>, container: &At<'_>) {
    let grace = spec.maybe_int("terminationGracePeriodSeconds");
    let lifecycle = container.field("lifecycle");
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.field(hook);
        if hook.exists() {
            handler(errors, &hook, grace, &["exec", "httpGet", "tcpSocket", "sleep"]);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.field(name);
        if !probe.exists() {
            continue;
        }
        handler(errors, &probe, grace, &["exec", "httpGet", "tcpSocket", "grpc"]);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.not_negative(&probe, field);
        }
        let period = probe.maybe_int("terminationGracePeriodSeconds");
        if let Some(period) = period.filter(|period| *period <= 0) {
            errors.invalid(&probe.at("terminationGracePeriodSeconds"), period, "must be greater than 0");
        }
        if name == "readinessProbe" {
            if let Some(period) = period {
                let detail = "must not be set for readinessProbes";
                errors.invalid(&probe.at("terminationGracePeriodSeconds"), period, detail);
            }
        } else if probe.int("successThreshold") != 1 {
            errors.invalid(&probe.at("successThreshold"), probe.int("successThreshold"), "must be 1");
        }
    }
}

fn handler(errors: &mut Errors, at: &At<'_>, grace: Option<i64>, kinds: &[&str]) {
    let mut count = 0;
    for kind in kinds {
        let action = at.field(kind);
        if !action.exists() {
            continue;
        }
        count += 1;
        if count > 1 {
            errors.forbidden(&action.path, "may not specify more than 1 handler type");
            continue;
        }
        match *kind {
            "exec" => {
                if action.list("command").is_empty() {
                    errors.required(&action.at("command"), "");
                }
            }
            "httpGet" => http_get(errors, &action),
            "sleep" => {
                let seconds = action.int("seconds");
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&action.path, seconds, detail);
                }
            }
            _ => port_number_or_name(errors, &action.at("port"), action.get("port")),
        }
    }
    if count == 0 {
        errors.required(&at.path, "must specify a handler type");
    }
}

fn http_get(errors: &mut Errors, action: &At<'_>) {
    errors.required_text(action, "path");
    port_number_or_name(errors, &action.at("port"), action.get("port"));
    if !matches!(action.text("scheme"), "HTTP" | "HTTPS") {
        errors.not_supported(&action.at("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
    }
    for header in action.list("httpHeaders") {
        let name = header.get("name").and_then(Value::as_str).unwrap_or("");
        errors.each(&action.at("httpHeaders"), name, names::http_header_name(name));
    }
}
