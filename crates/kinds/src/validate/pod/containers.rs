//! Containers of a Pod: names, images, ports, environment, mounts, probes.

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names;
use serde_json::Value;

use super::volumes::Volumes;
use super::{resource_requirements, security};
use crate::validate::at::{At, Report};
use crate::validate::common::{
    PROTOCOLS, descending_path, label, no_backsteps, port_number_or_name, qualified, subdomain,
};

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks the containers of all three kinds.
pub(super) fn containers(errors: &mut Errors, spec: &At<'_>, volumes: &Volumes<'_>) {
    if spec.list("containers").is_empty() {
        errors.required(&spec.at("containers"), "");
    }
    let claims: Vec<&str> = spec.list("resourceClaims").iter().map(|claim| crate::value::text(claim, "name")).collect();
    let mut names: Vec<&str> = Vec::new();
    for container in spec.items("containers") {
        common(errors, spec, &container, volumes, &claims);
        unique(errors, &mut names, &container);
        lifecycle_and_probes(errors, spec, &container);
        restart_policy(errors, &container);
    }
    host_ports(errors, spec.items("containers"));
    for container in spec.items("initContainers") {
        common(errors, spec, &container, volumes, &claims);
        restart_policy(errors, &container);
        unique(errors, &mut names, &container);
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

fn unique<'a>(errors: &mut Errors, names: &mut Vec<&'a str>, container: &At<'a>) {
    let name = container.text("name");
    if names.contains(&name) {
        errors.duplicate(&container.at("name"), name);
    } else if !name.is_empty() {
        names.push(name);
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

fn ephemeral_container(errors: &mut Errors, container: &At<'_>, targets: &[&str]) {
    let image = container.text("image");
    if image.trim() != image {
        errors.invalid(&container.at("image"), image, "must not have leading or trailing whitespace");
    }
    let target = container.text("targetContainerName");
    if !target.is_empty() && !targets.contains(&target) {
        errors.push(Error::not_found(&container.at("targetContainerName"), target));
    }
    let detail = "cannot be set for an Ephemeral Container";
    for field in ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "restartPolicy"]
    {
        let value = container.get(field);
        let empty = value.as_object().is_some_and(|map| map.is_empty()) || value.as_array().is_some_and(Vec::is_empty);
        if container.has(field) && !empty {
            errors.forbidden(&container.at(field), detail);
        }
    }
    for mount in container.items("volumeMounts") {
        for field in ["subPath", "subPathExpr"] {
            if !mount.text(field).is_empty() {
                errors.forbidden(&mount.at(field), detail);
            }
        }
    }
}

fn common(errors: &mut Errors, spec: &At<'_>, container: &At<'_>, volumes: &Volumes<'_>, claims: &[&str]) {
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
    let mut seen = Vec::new();
    for port in container.items("ports") {
        let name = port.text("name");
        if !name.is_empty() {
            let messages = names::port_name(name);
            if !messages.is_empty() {
                errors.each(&port.at("name"), name, messages);
            } else if seen.contains(&name) {
                errors.duplicate(&port.at("name"), name);
            } else {
                seen.push(name);
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
    let mut seen = Vec::new();
    for container in containers {
        for port in container.items("ports").filter(|port| port.int("hostPort") != 0) {
            let key = format!("{}/{}/{}", port.text("protocol"), port.text("hostIP"), port.int("hostPort"));
            if seen.contains(&key) {
                errors.duplicate(&port.at("hostPort"), key);
            } else {
                seen.push(key);
            }
        }
    }
}

fn environment(errors: &mut Errors, container: &At<'_>) {
    for variable in container.items("env") {
        match variable.text("name") {
            "" => errors.required(&variable.at("name"), ""),
            name => errors.each(&variable.at("name"), name, names::relaxed_env_var_name(name)),
        }
        let from = variable.field("valueFrom");
        if from.exists() {
            value_from(errors, &variable, &from);
        }
    }
    let path = container.at("envFrom");
    for source in container.items("envFrom") {
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.each(&source.at("prefix"), prefix, names::relaxed_env_var_name(prefix));
        }
        let kinds = ["configMapRef", "secretRef"];
        for kind in kinds.into_iter().filter(|kind| source.has(kind)) {
            let reference = source.field(kind);
            match reference.text("name") {
                "" => errors.required(&reference.at("name"), ""),
                name => errors.each(&reference.at("name"), name, names::name_is_subdomain(name, true)),
            }
        }
        match kinds.iter().filter(|kind| source.has(kind)).count() {
            0 => errors.invalid(&path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(&path, "", "may not have more than one field specified at a time"),
        }
    }
}

fn value_from(errors: &mut Errors, variable: &At<'_>, from: &At<'_>) {
    let mut sources = 0;
    for kind in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let at = from.field(kind);
        if !at.exists() {
            continue;
        }
        sources += 1;
        match kind {
            "fieldRef" => object_field(errors, &at, ENV_FIELDS),
            "resourceFieldRef" => resource_field(errors, &at, false),
            "fileKeyRef" => {
                match at.text("key") {
                    "" => errors.required(&at.at("key"), ""),
                    key => errors.each(&at.at("key"), key, names::relaxed_env_var_name(key)),
                }
                match at.text("volumeName") {
                    "" => errors.required(&at.at("volumeName"), ""),
                    name => label(errors, &at.at("volumeName"), name),
                }
                match at.text("path") {
                    "" => errors.required(&at.at("path"), ""),
                    path => no_backsteps(errors, &at.at("path"), path),
                }
            }
            _ => {
                subdomain(errors, &at.at("name"), at.text("name"));
                match at.text("key") {
                    "" => errors.required(&at.at("key"), ""),
                    key => errors.each(&at.at("key"), key, names::config_map_key(key)),
                }
            }
        }
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(&from.path, "", detail);
    } else if !variable.text("value").is_empty() {
        errors.invalid(&from.path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(&from.path, "", "may not have more than one field specified at a time");
    }
}

/// A field of the Pod that its containers may know.
pub(super) fn object_field(errors: &mut Errors, at: &At<'_>, supported: &[&str]) {
    let path = at.text("fieldPath");
    if at.text("apiVersion").is_empty() {
        return errors.required(&at.at("apiVersion"), "");
    }
    if path.is_empty() {
        return errors.required(&at.at("fieldPath"), "");
    }
    let subscripted = path.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let known = matches!(path, "metadata.labels" | "metadata.annotations") || ENV_FIELDS.contains(&path);
    if subscripted.is_none_or(|(field, _)| !matches!(field, "metadata.annotations" | "metadata.labels")) && !known {
        if let Some((field, _)) = subscripted.filter(|(field, _)| ENV_FIELDS.contains(field)) {
            return errors.invalid(&at.path, field, "does not support subscript");
        }
        let detail = format!("error converting fieldPath: field label not supported: {path}");
        return errors.invalid(&at.at("fieldPath"), path, detail);
    }
    match subscripted {
        Some(("metadata.annotations", key)) => qualified(errors, &at.path, &key.to_lowercase()),
        Some(("metadata.labels", key)) => qualified(errors, &at.path, key),
        _ => {
            if !supported.contains(&path) {
                errors.not_supported(&at.at("fieldPath"), path, supported);
            }
        }
    }
}

/// A resource of a container that containers may know.
pub(super) fn resource_field(errors: &mut Errors, at: &At<'_>, in_volume: bool) {
    let name = at.text("resource");
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if in_volume && at.text("containerName").is_empty() {
        errors.required(&at.at("containerName"), "");
    } else if name.is_empty() {
        errors.required(&at.at("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&name) && !huge {
        errors.not_supported(&at.at("resource"), name, RESOURCE_FIELDS);
    }
    let divisor = crate::validate::common::quantity(at.get("divisor"));
    if divisor.is_zero() {
        return;
    }
    let divisor = divisor.to_string();
    let (fine, what) = match name.split_once('.') {
        Some((_, "cpu")) => (matches!(divisor.as_str(), "1m" | "1"), "cpu"),
        Some((_, "memory")) => (is_size_unit(&divisor), "memory"),
        Some((_, "ephemeral-storage")) => (is_size_unit(&divisor), "local ephemeral storage"),
        _ if huge => (is_size_unit(&divisor), "hugepages"),
        _ => return,
    };
    if !fine {
        let values = if what == "cpu" { "1m and 1" } else { "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei" };
        let detail = format!("only divisor's values {values} are supported with the {what} resource");
        errors.invalid(&at.at("divisor"), name, detail);
    }
}

fn is_size_unit(divisor: &str) -> bool {
    divisor.strip_prefix('1').is_some_and(|unit| {
        matches!(unit, "" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei")
    })
}

fn mounts(errors: &mut Errors, container: &At<'_>, volumes: &Volumes<'_>) {
    let path = container.at("volumeMounts");
    let devices = container.list("volumeDevices");
    let mut points = Vec::new();
    for mount in container.items("volumeMounts") {
        let (name, point) = (mount.text("name"), mount.text("mountPath"));
        errors.required_text(&mount, "name");
        if !volumes.iter().any(|(known, _)| *known == name) {
            errors.push(Error::not_found(&mount.at("name"), name));
        }
        errors.required_text(&mount, "mountPath");
        if points.contains(&point) {
            errors.invalid(&mount.at("mountPath"), point, "must be unique");
        }
        points.push(point);
        if devices.iter().any(|device| crate::value::text(device, "name") == name) {
            errors.invalid(&mount.at("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| crate::value::text(device, "devicePath") == point) {
            errors.invalid(&mount.at("mountPath"), point, "must not already exist as a path in volumeDevices");
        }
        if !mount.text("subPath").is_empty() {
            descending_path(errors, &path.child("subPath"), mount.text("subPath"));
        }
        let expression = mount.text("subPathExpr");
        if !expression.is_empty() {
            if !mount.text("subPath").is_empty() {
                errors.invalid(&mount.at("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive");
            }
            descending_path(errors, &path.child("subPathExpr"), expression);
        }
        propagation(errors, container, &mount);
    }
}

fn propagation(errors: &mut Errors, container: &At<'_>, mount: &At<'_>) {
    let path = container.at("volumeMounts");
    if let Some(mode) = mount.get("mountPropagation").as_str() {
        let modes = ["Bidirectional", "HostToContainer", "None"];
        if !modes.contains(&mode) {
            errors.not_supported(&path.child("mountPropagation"), mode, &modes);
        }
        if mode == "Bidirectional" && !container.flag("securityContext.privileged") {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(&path.child("mountPropagation"), detail);
        }
    }
    let path = path.child("recursiveReadOnly");
    match mount.get("recursiveReadOnly").as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.flag("readOnly") {
                errors.forbidden(&path, "may only be specified when readOnly is true");
            }
            if !matches!(mount.get("mountPropagation").as_str(), None | Some("None")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(&path, detail);
            }
        }
        Some(other) => errors.not_supported(&path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(errors: &mut Errors, container: &At<'_>, volumes: &Volumes<'_>) {
    let mounts = container.list("volumeMounts");
    let (mut names, mut paths) = (Vec::new(), Vec::new());
    for device in container.items("volumeDevices") {
        let (name, path) = (device.text("name"), device.text("devicePath"));
        errors.required_text(&device, "name");
        if names.contains(&name) {
            errors.invalid(&device.at("name"), name, "must be unique");
        }
        match volumes.iter().find(|(known, _)| *known == name) {
            None => errors.push(Error::not_found(&device.at("name"), name)),
            Some((_, volume)) => {
                let block = ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| crate::value::has(volume, kind));
                if !block {
                    let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.invalid(&device.at("name"), name, detail);
                }
            }
        }
        errors.required_text(&device, "devicePath");
        if paths.contains(&path) {
            errors.invalid(&device.at("devicePath"), path, "must be unique");
        }
        if path.split('/').any(|step| step == "..") {
            errors.invalid(&device.at("devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths.push(path);
        }
        if mounts.iter().any(|mount| crate::value::text(mount, "name") == name) {
            errors.invalid(&device.at("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| crate::value::text(mount, "mountPath") == path) {
            errors.invalid(&device.at("devicePath"), path, "must not already exist as a path in volumeMounts");
        }
        names.push(name);
    }
}

fn resize_policy(errors: &mut Errors, spec: &At<'_>, container: &At<'_>) {
    let path = container.at("resizePolicy");
    let mut seen = Vec::new();
    for policy in container.items("resizePolicy") {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if seen.contains(&resource) {
            errors.duplicate(&policy.path, resource);
        }
        seen.push(resource);
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

fn restart_policy(errors: &mut Errors, container: &At<'_>) {
    let rules = container.list("restartPolicyRules").len();
    if !container.has("restartPolicy") {
        if rules > 0 {
            errors.required(&container.at("restartPolicy"), "must specify restartPolicy when restart rules are used");
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
