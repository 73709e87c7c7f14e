//! What a claim for devices was given, who uses it, and what drivers say of its devices.

use std::collections::HashSet;

use conductor_machinery::field::{Error, Errors};
use conductor_machinery::names::ip::validate_interface_address;
use serde_json::{Value, json};

use super::at::{At, IMMUTABLE, Report};
use super::common::{conditions, csi_driver_name, label, node_selector};
use super::devices::{
    MOST_CONFIGS, at_most, configuration, raw_object, request_names, request_reference, request_references, text_of,
    unique,
};
use super::slices::{binding_conditions, pool_name};

/// What a claim was given, and who uses it.
pub(super) fn claim_status(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    let status = new.field("status");
    if at_most(errors, &status, "reservedFor", 256) {
        for consumer in status.items("reservedFor") {
            for field in ["resource", "name", "uid"] {
                errors.required_text(&consumer, field);
            }
        }
        unique(errors, status.items("reservedFor").map(|one| (one.path.clone(), one.text("uid"))));
    }
    let allocation = status.field("allocation");
    let reserved = status.list("reservedFor");
    if !reserved.is_empty() {
        let path = status.at("reservedFor");
        let before = old.list("status.reservedFor");
        if !allocation.exists() {
            errors.forbidden(&path, "may not be specified when `allocated` is not set");
        } else if new.has("metadata.deletionTimestamp") && reserved.iter().any(|one| !before.contains(one)) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(&path, detail);
        }
    }
    if allocation.exists() && old.has("status.allocation") {
        if allocation.value != old.get("status.allocation") {
            errors.invalid(&allocation.path, allocation.value.clone(), IMMUTABLE);
        }
    } else if allocation.exists() {
        allocation_result(errors, &allocation, &request_names(&new.field("spec.devices")));
    }
    let allocated: HashSet<_> = allocation.items("devices.results").map(|result| shared_id(&result)).collect();
    let mut seen = HashSet::new();
    for device in status.items("devices") {
        device_status(errors, &device);
        let id = shared_id(&device);
        if !allocated.contains(&id) {
            errors.invalid(&device.path, shown(id), "must be an allocated device in the claim");
        }
        if !seen.insert(id) {
            errors.duplicate(&device.path, shown(id));
        }
    }
}

fn device_status(errors: &mut Errors, device: &At<'_>) {
    csi_driver_name(errors, &device.at("driver"), device.text("driver"));
    pool_name(errors, device, "pool");
    label(errors, &device.at("device"), device.text("device"));
    share(errors, device);
    at_most(errors, device, "conditions", 8);
    conditions(errors, device);
    if device.has("data") {
        raw_object(errors, &device.field("data"));
    }
    let network = device.field("networkData");
    for (field, most) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if network.text(field).len() > most {
            errors.push(Error::too_long(&network.at(field), most));
        }
    }
    if at_most(errors, &network, "ips", 16) {
        for address in network.items("ips") {
            errors.extend(validate_interface_address(&address.path, text_of(&address)));
        }
        unique(errors, network.items("ips").map(|address| (address.path.clone(), text_of(&address))));
    }
}

/// Which share of a device it is, by a UUID.
fn share(errors: &mut Errors, device: &At<'_>) {
    let Some(id) = device.get("shareID").as_str() else { return };
    let path = device.at("shareID");
    if let Err(error) = uuid(id) {
        errors.invalid(&path, id, format!("error validating uid: {error}"));
    } else if id.len() != 36 || id != id.to_lowercase() {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        errors.invalid(&path, id, detail);
    }
}

/// A UUID in any of the forms that are in use.
fn uuid(text: &str) -> Result<(), String> {
    let malformed = || "invalid UUID format".to_owned();
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let plain = match text.len() {
        32 => return if is_hex(text) { Ok(()) } else { Err(malformed()) },
        36 => text,
        38 => text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'))
            .ok_or_else(|| "invalid bracketed UUID format".to_owned())?,
        45 => match text.split_at_checked(9) {
            Some((prefix, plain)) if prefix.eq_ignore_ascii_case("urn:uuid:") => plain,
            Some((prefix, _)) => return Err(format!("invalid urn prefix: {prefix:?}")),
            None => return Err(malformed()),
        },
        length => return Err(format!("invalid UUID length: {length}")),
    };
    let lengths = plain.split('-').map(str::len);
    if lengths.eq([8, 4, 4, 4, 12]) && plain.split('-').all(is_hex) { Ok(()) } else { Err(malformed()) }
}

fn shared_id<'a>(device: &At<'a>) -> [&'a str; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| device.text(field))
}

fn shown([driver, pool, device, share]: [&str; 4]) -> Value {
    json!({"Driver": driver, "Pool": pool, "Device": device, "ShareID": share})
}

fn allocation_result(errors: &mut Errors, allocation: &At<'_>, requests: &[String]) {
    let devices = allocation.field("devices");
    if at_most(errors, &devices, "results", 32) {
        for result in devices.items("results") {
            request_reference(errors, &result.at("request"), result.text("request"), requests);
            csi_driver_name(errors, &result.at("driver"), result.text("driver"));
            pool_name(errors, &result, "pool");
            label(errors, &result.at("device"), result.text("device"));
            binding_conditions(errors, &result);
            share(errors, &result);
        }
    }
    if at_most(errors, &devices, "config", 2 * MOST_CONFIGS) {
        for config in devices.items("config") {
            errors.required_one_of(&config, "source", &["FromClaim", "FromClass"]);
            request_references(errors, &config, requests);
            configuration(errors, &config);
        }
    }
    if allocation.has("nodeSelector") {
        node_selector(errors, &allocation.field("nodeSelector"));
    }
}
