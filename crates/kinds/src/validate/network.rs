//! Ingresses, IngressClasses, NetworkPolicies.

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use conductor_machinery::names::ip::{masked, parse, parse_cidr};
use serde_json::{Value, json};

use super::at::{At, IMMUTABLE, Report};
use super::common::{cidr, label, label_selector, subdomain};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(super) fn ingress_create(errors: &mut Errors, object: &At<'_>) {
    ingress(errors, object);
    let annotation = crate::value::annotation(object.value, CLASS_ANNOTATION);
    let class = object.get("spec.ingressClassName").as_str();
    if let (Some(annotation), Some(class)) = (annotation, class)
        && annotation != class
    {
        let path = Path::root("annotations").child(CLASS_ANNOTATION);
        errors.invalid(&path, annotation, "must match `ingressClassName` when both are specified");
    }
}

pub(super) fn ingress(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    if spec.list("rules").is_empty() && !spec.has("defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(&spec.path, spec.get("rules").clone(), detail);
    }
    if spec.has("defaultBackend") {
        backend(errors, &spec.field("defaultBackend"));
    }
    for rule in spec.items("rules") {
        let host = rule.text("host");
        if !host.is_empty() {
            if parse(host).is_some() {
                errors.invalid(&rule.at("host"), host, "must be a DNS name, not an IP address");
            }
            host_name(errors, &rule.at("host"), host);
        }
        let http = rule.field("http");
        if http.exists() && http.list("paths").is_empty() {
            errors.required(&http.at("paths"), "");
        }
        for path in http.items("paths") {
            http_path(errors, &path);
        }
    }
    for tls in spec.items("tls") {
        for host in tls.items("hosts") {
            host_name(errors, &host.path, host.value.as_str().unwrap_or(""));
        }
        if !tls.text("secretName").is_empty() {
            subdomain(errors, &tls.at("secretName"), tls.text("secretName"));
        }
    }
    if spec.has("ingressClassName") {
        subdomain(errors, &spec.at("ingressClassName"), spec.text("ingressClassName"));
    }
}

fn host_name(errors: &mut Errors, path: &Path, host: &str) {
    let rule = if host.contains('*') { names::wildcard_dns1123_subdomain } else { names::dns1123_subdomain };
    errors.each(path, host, rule(host));
}

fn http_path(errors: &mut Errors, path: &At<'_>) {
    if !path.has("pathType") {
        return errors.required(&path.at("pathType"), "pathType must be specified");
    }
    let text = path.text("path");
    match path.text("pathType") {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errors.invalid(&path.at("path"), text, "must be an absolute path");
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(sequence) {
                    errors.invalid(&path.at("path"), text, format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if text.ends_with(suffix) {
                    errors.invalid(&path.at("path"), text, format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.invalid(&path.at("path"), text, "must be an absolute path");
            }
        }
        other => errors.not_supported(&path.at("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(errors, &path.field("backend"));
}

fn backend(errors: &mut Errors, at: &At<'_>) {
    match (at.has("resource"), at.has("service")) {
        (true, true) => errors.invalid(&at.path, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid(&at.path, "", "resource or service backend is required"),
        (true, false) => reference(errors, &at.field("resource")),
        (false, true) => {
            let service = at.field("service");
            match service.text("name") {
                "" => errors.required(&service.at("name"), ""),
                name => label(errors, &service.at("name"), name),
            }
            let port = service.field("port");
            match (port.text("name"), port.int("number")) {
                ("", 0) => errors.required(&at.path, "port name or number is required"),
                ("", number) => {
                    for message in names::port_number(number) {
                        errors.invalid(&port.at("number"), number, message);
                    }
                }
                (name, 0) => errors.each(&port.at("name"), name, names::port_name(name)),
                _ => errors.invalid(&at.path, "", "cannot set both port name & port number"),
            }
        }
    }
}

fn reference(errors: &mut Errors, at: &At<'_>) {
    if at.has("apiGroup") {
        subdomain(errors, &at.at("apiGroup"), at.text("apiGroup"));
    }
    for field in ["kind", "name"] {
        match at.text(field) {
            "" => errors.required(&at.at(field), ""),
            text => errors.each(&at.at(field), text, names::path_segment_name(text)),
        }
    }
}

pub(super) fn ingress_class(errors: &mut Errors, object: &At<'_>) {
    let controller = object.text("spec.controller");
    if controller.len() > 250 {
        errors.push(Error::too_long(&object.at("spec.controller"), 250));
    }
    errors.extend(names::domain_prefixed_path(&object.at("spec.controller"), controller));
    let parameters = object.field("spec.parameters");
    if !parameters.exists() {
        return;
    }
    reference(errors, &parameters);
    match parameters.get("scope").as_str() {
        None => errors.required(&parameters.at("scope"), ""),
        Some("Namespace") => {
            if parameters.has("namespace") {
                label(errors, &parameters.at("namespace"), parameters.text("namespace"));
            } else {
                errors.required(&parameters.at("namespace"), "`parameters.scope` is set to 'Namespace'");
            }
        }
        Some("Cluster") => {
            if parameters.has("namespace") {
                errors.forbidden(&parameters.at("namespace"), "`parameters.scope` is set to 'Cluster'");
            }
        }
        Some(other) => errors.not_supported(&parameters.at("scope"), other, &["Cluster", "Namespace"]),
    }
}

pub(super) fn ingress_class_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    if new.text("spec.controller") != old.text("spec.controller") {
        errors.invalid(&new.at("spec.controller"), new.text("spec.controller"), IMMUTABLE);
    }
    ingress_class(errors, new);
}

pub(super) fn network_policy(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    let before = old.map(blocks).unwrap_or_default();
    let spec = object.field("spec");
    label_selector(errors, &spec.field("podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.items(direction) {
            for port in rule.items("ports") {
                policy_port(errors, &port);
            }
            for peer in rule.items(peers) {
                policy_peer(errors, &peer, &before);
            }
        }
    }
    let types = spec.list("policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        return errors.invalid(&spec.at("policyTypes"), types.to_vec(), detail);
    }
    for kind in spec.items("policyTypes") {
        if !matches!(kind.value.as_str(), Some("Ingress" | "Egress")) {
            errors.not_supported(&kind.path, kind.value.clone(), &["Ingress", "Egress"]);
        }
    }
}

fn blocks<'a>(policy: &At<'a>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (direction, peers) in [("spec.ingress", "from"), ("spec.egress", "to")] {
        for rule in policy.list(direction) {
            for peer in crate::value::list(rule, peers) {
                found.push(crate::value::text(peer, "ipBlock.cidr"));
                found.extend(crate::value::list(peer, "ipBlock.except").iter().filter_map(Value::as_str));
            }
        }
    }
    found
}

fn policy_port(errors: &mut Errors, port: &At<'_>) {
    errors.one_of(port, "protocol", &["TCP", "UDP", "SCTP"]);
    let end = port.maybe_int("endPort");
    match port.get("port") {
        Value::Null => {
            if let Some(end) = end {
                errors.invalid(&port.at("endPort"), end, "may not be specified when `port` is not specified");
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.invalid(&port.at("endPort"), end, "may not be specified when `port` is non-numeric");
            }
            errors.each(&port.at("port"), name, names::port_name(name));
        }
        _ => {
            let start = port.int("port");
            for message in names::port_number(start) {
                errors.invalid(&port.at("port"), start, message);
            }
            if let Some(end) = end {
                if end < start {
                    errors.invalid(&port.at("endPort"), start, "must be greater than or equal to `port`");
                }
                for message in names::port_number(end) {
                    errors.invalid(&port.at("endPort"), end, message);
                }
            }
        }
    }
}

fn policy_peer(errors: &mut Errors, peer: &At<'_>, before: &[&str]) {
    let selectors = ["podSelector", "namespaceSelector"];
    for selector in selectors {
        label_selector(errors, &peer.field(selector));
    }
    let selected = selectors.iter().any(|selector| peer.has(selector));
    let block = peer.field("ipBlock");
    if block.exists() {
        ip_block(errors, &block, before);
    }
    if !selected && !block.exists() {
        errors.required(&peer.path, "must specify a peer");
    } else if selected && block.exists() {
        errors.forbidden(&peer.path, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(errors: &mut Errors, block: &At<'_>, before: &[&str]) {
    let text = block.text("cidr");
    if text.is_empty() {
        return errors.required(&block.at("cidr"), "");
    }
    cidr(errors, &block.at("cidr"), text, before);
    let Some((network, bits)) = parse_cidr(text) else { return };
    for except in block.items("except") {
        let text = except.value.as_str().unwrap_or("");
        cidr(errors, &except.path, text, before);
        let Some((inner, inner_bits)) = parse_cidr(text) else { continue };
        let inside = inner.is_ipv4() == network.is_ipv4() && masked(inner, bits) == masked(network, bits);
        if !inside || bits >= inner_bits {
            errors.invalid(&except.path, text, "must be a strict subset of `cidr`");
        }
    }
}

/// What an IPAddress is called is the address.
pub(super) fn ip_address_name(name: &str, _: bool) -> Vec<String> {
    let errors = names::ip::validate_ip(&Path::empty(), name, names::ip::Strictness::Canonical);
    errors.into_iter().map(|error| error.detail).collect()
}

pub(super) fn ip_address(errors: &mut Errors, object: &At<'_>) {
    let parent = object.field("spec.parentRef");
    if !parent.exists() {
        return errors.required(&parent.path, "");
    }
    if !parent.text("group").is_empty() {
        subdomain(errors, &parent.at("group"), parent.text("group"));
    }
    for (field, required) in [("resource", true), ("name", true), ("namespace", false)] {
        match parent.text(field) {
            "" if required => errors.required(&parent.at(field), ""),
            "" => {}
            text => errors.each(&parent.at(field), text, names::path_segment_name(text)),
        }
    }
}

pub(super) fn service_cidr(errors: &mut Errors, object: &At<'_>) {
    let spec = object.field("spec");
    let cidrs: Vec<&str> = spec.list("cidrs").iter().filter_map(Value::as_str).collect();
    if cidrs.is_empty() {
        return errors.required(&spec.at("cidrs"), "at least one CIDR required");
    }
    if cidrs.len() > 2 {
        return errors.invalid(&spec.at("cidrs"), json!({"CIDRs": cidrs}), "may only hold up to 2 values");
    }
    for network in spec.items("cidrs") {
        cidr(errors, &network.path, network.value.as_str().unwrap_or_default(), &[]);
    }
    let family = |text: &str| {
        let mut wrong = Errors::new();
        cidr(&mut wrong, &Path::empty(), text, &[]);
        wrong.is_empty().then(|| text.contains(':'))
    };
    if let [one, other] = cidrs.as_slice()
        && family(one).is_some()
        && family(one) == family(other)
    {
        let detail =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64".to_owned();
        errors.invalid(&spec.at("cidrs"), spec.get("cidrs").clone(), detail);
    }
}

/// Its networks stay; a second, of the other family, may come.
pub(super) fn service_cidr_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let (now, before) = (new.list("spec.cidrs"), old.list("spec.cidrs"));
    let networks = new.at("spec.cidrs");
    if now.len() == before.len() || (before.len(), now.len()) == (1, 2) {
        for (index, (now, _)) in now.iter().zip(before).enumerate().filter(|(_, (now, before))| now != before) {
            errors.invalid(&networks.index(index), now.clone(), IMMUTABLE);
        }
        if now.len() != before.len() {
            service_cidr(errors, new);
        }
    } else {
        errors.invalid(&networks, new.get("spec.cidrs").clone(), IMMUTABLE);
    }
}
