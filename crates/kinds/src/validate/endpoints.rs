//! Endpoints and EndpointSlices.

use std::collections::HashSet;

use std::net::IpAddr;

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use conductor_machinery::names::ip::{Strictness, parse, validate_ip};

use super::at::{At, Report, same_field};
use super::common::{PROTOCOLS, ip, label, port_number, qualified, subdomain};

/// An address traffic can be sent to: nobody's own, none of this link.
pub(super) fn endpoint_ip(errors: &mut Errors, path: &Path, text: &str) {
    let Some(address) = parse(text) else {
        return errors.invalid(path, text, "must be a valid IP address");
    };
    if address.is_unspecified() {
        errors.invalid(path, text, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (unicast, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), matches!(v4.octets(), [224, 0, 0, _])),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if unicast {
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        errors.invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

pub(super) fn endpoints(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    // What was accepted once stays acceptable as long as it is not touched.
    if old.is_some_and(|old| same_field("subsets", object.get("subsets"), old.get("subsets"))) {
        return;
    }
    for subset in object.items("subsets") {
        if subset.list("addresses").is_empty() && subset.list("notReadyAddresses").is_empty() {
            errors.required(&subset.path, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in subset.items("addresses").chain(subset.items("notReadyAddresses")) {
            ip(errors, &address.at("ip"), address.text("ip"), &[]);
            if !address.text("hostname").is_empty() {
                label(errors, &address.at("hostname"), address.text("hostname"));
            }
            if address.has("nodeName") {
                subdomain(errors, &address.at("nodeName"), address.text("nodeName"));
            }
            endpoint_ip(errors, &address.at("ip"), address.text("ip"));
        }
        let name_required = subset.list("ports").len() > 1;
        for port in subset.items("ports") {
            match port.text("name") {
                "" if name_required => errors.required(&port.at("name"), ""),
                "" => {}
                name => label(errors, &port.at("name"), name),
            }
            port_number(errors, &port, "port");
            errors.required_one_of(&port, "protocol", PROTOCOLS);
            app_protocol(errors, &port);
        }
    }
}

fn app_protocol(errors: &mut Errors, port: &At<'_>) {
    if port.has("appProtocol") {
        qualified(errors, &port.at("appProtocol"), port.text("appProtocol"));
    }
}

pub(super) fn endpoint_slice(errors: &mut Errors, object: &At<'_>, old: Option<&At<'_>>) {
    errors.required_one_of(object, "addressType", &["FQDN", "IPv4", "IPv6"]);
    slice_ports(errors, object);
    if !old.is_some_and(|old| same_field("endpoints", object.get("endpoints"), old.get("endpoints"))) {
        slice_endpoints(errors, object);
    }
    if let Some(old) = old {
        errors.immutable(object, old, "addressType");
    }
}

fn slice_ports(errors: &mut Errors, object: &At<'_>) {
    let count = object.list("ports").len();
    if count > 20000 {
        return errors.push(Error::too_many(&object.at("ports"), Some(count), 20000));
    }
    let mut seen = HashSet::new();
    for port in object.items("ports") {
        let name = port.text("name");
        if !name.is_empty() {
            label(errors, &port.at("name"), name);
        }
        if seen.contains(&name) {
            errors.duplicate(&port.at("name"), name);
        } else {
            seen.insert(name);
        }
        if port.has("protocol") {
            errors.one_of(&port, "protocol", PROTOCOLS);
        } else {
            errors.required(&port.at("protocol"), "");
        }
        app_protocol(errors, &port);
    }
}

fn slice_endpoints(errors: &mut Errors, object: &At<'_>) {
    let count = object.list("endpoints").len();
    if count > 1000 {
        return errors.push(Error::too_many(&object.at("endpoints"), Some(count), 1000));
    }
    let kind = object.text("addressType");
    for endpoint in object.items("endpoints") {
        let addresses = endpoint.list("addresses").len();
        let path = endpoint.at("addresses");
        if addresses == 0 {
            errors.required(&path, "must contain at least 1 address");
        } else if addresses > 100 {
            errors.push(Error::too_many(&path, Some(addresses), 100));
        }
        for address in endpoint.items("addresses") {
            slice_address(errors, &path, &address, kind);
        }
        if endpoint.has("nodeName") {
            subdomain(errors, &endpoint.at("nodeName"), endpoint.text("nodeName"));
        }
        if endpoint.has("hostname") {
            label(errors, &endpoint.at("hostname"), endpoint.text("hostname"));
        }
        let hints = endpoint.field("hints");
        if slice_hints(errors, &hints, "forZones", names::label_value) {
            slice_hints(errors, &hints, "forNodes", names::dns1123_subdomain);
        }
    }
}

fn slice_address(errors: &mut Errors, list: &Path, address: &At<'_>, kind: &str) {
    let text = address.value.as_str().unwrap_or("");
    let found = match kind {
        "IPv4" => validate_ip(&address.path, text, Strictness::Strict),
        "IPv6" => validate_ip(&address.path, text, Strictness::Canonical),
        "FQDN" => return errors.extend(names::fully_qualified_domain_name(&address.path, text)),
        _ => return,
    };
    if !found.is_empty() {
        return errors.extend(found);
    }
    if parse(text).is_some_and(|address| address.is_ipv6() != (kind == "IPv6")) {
        errors.invalid(list, text, format!("must be an {kind} address"));
    }
    endpoint_ip(errors, &address.path, text);
}

fn slice_hints(errors: &mut Errors, hints: &At<'_>, field: &str, rule: fn(&str) -> Vec<String>) -> bool {
    let count = hints.list(field).len();
    if count > 8 {
        errors.push(Error::too_many(&hints.at(field), Some(count), 8));
        return false;
    }
    let mut seen = HashSet::new();
    for hint in hints.items(field) {
        let name = hint.text("name");
        if seen.contains(&name) {
            errors.duplicate(&hint.at("name"), name);
        } else {
            seen.insert(name);
        }
        errors.each(&hint.at("name"), name, rule(name));
    }
    true
}
