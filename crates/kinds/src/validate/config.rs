//! Namespaces, ConfigMaps, Secrets.

use conductor_machinery::field::{Error, Errors, Path};
use conductor_machinery::names;
use serde_json::Value;

use super::at::{At, Report, same_field};
use super::common::qualified;

/// What a ConfigMap or Secret may hold.
const SIZE_MAX: usize = 1024 * 1024;

pub(super) fn namespace(errors: &mut Errors, object: &At<'_>) {
    for finalizer in object.items("spec.finalizers") {
        finalizer_name(errors, &object.at("spec.finalizers"), finalizer.value);
    }
}

pub(super) fn namespace_status_update(errors: &mut Errors, new: &At<'_>) {
    let phase = new.text("status.phase");
    let path = Path::root("status").child("Phase");
    if !new.has("metadata.deletionTimestamp") {
        if phase != "Active" {
            errors.invalid(&path, phase, "may only be 'Active' if `deletionTimestamp` is empty");
        }
    } else if phase != "Terminating" {
        errors.invalid(&path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
    }
}

pub(super) fn namespace_finalize_update(errors: &mut Errors, new: &At<'_>) {
    for finalizer in new.items("spec.finalizers") {
        finalizer_name(errors, &finalizer.path, finalizer.value);
    }
}

fn finalizer_name(errors: &mut Errors, path: &Path, value: &Value) {
    let name = value.as_str().unwrap_or("");
    qualified(errors, path, name);
    standard_finalizer(errors, path, name);
}

pub(super) fn standard_finalizer(errors: &mut Errors, path: &Path, name: &str) {
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        errors.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

pub(super) fn config_map(errors: &mut Errors, object: &At<'_>) {
    let mut size = 0;
    let binary = object.get("binaryData");
    for (key, value) in object.entries("data") {
        errors.each(&value.path, key, names::config_map_key(key));
        if binary.get(key).is_some() {
            errors.invalid(&value.path, key, "duplicate of key present in binaryData");
        }
        size += value.value.as_str().map_or(0, str::len);
    }
    for (key, value) in object.entries("binaryData") {
        errors.each(&value.path, key, names::config_map_key(key));
        size += decoded_length(value.value.as_str().unwrap_or(""));
    }
    if size > SIZE_MAX {
        errors.push(Error::too_long(&Path::empty(), SIZE_MAX));
    }
}

/// How many bytes a text in base64 stands for.
fn decoded_length(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// Once `immutable`, always immutable.
pub(super) fn immutable_update(errors: &mut Errors, new: &At<'_>, old: &At<'_>, fields: &[&str]) {
    if !old.flag("immutable") {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !new.flag("immutable") {
        errors.forbidden(&new.at("immutable"), detail);
    }
    for field in fields {
        if !same_field(field, new.get(field), old.get(field)) {
            errors.forbidden(&new.at(field), detail);
        }
    }
}

pub(super) fn secret(errors: &mut Errors, object: &At<'_>) {
    let mut size = 0;
    for (key, value) in object.entries("data") {
        errors.each(&value.path, key, names::config_map_key(key));
        size += decoded_length(value.value.as_str().unwrap_or(""));
    }
    let data = object.field("data");
    if size > SIZE_MAX {
        errors.push(Error::too_long(&data.path, SIZE_MAX));
    }
    let holds = |key: &str| data.value.get(key).and_then(Value::as_str);
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if crate::value::annotation(object.value, key).is_none_or(str::is_empty) {
                errors.required(&object.at("metadata.annotations").key(key), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(errors, &data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_config(errors, &data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if holds("username").is_none() && holds("password").is_none() => {
            errors.required(&data.path.key("username"), "");
            errors.required(&data.path.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if holds("ssh-privatekey").is_none_or(str::is_empty) => {
            errors.required(&data.path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if holds(key).is_none() {
                    errors.required(&data.path.key(key), "");
                }
            }
        }
        _ => {}
    }
}

fn docker_config(errors: &mut Errors, data: &At<'_>, key: &str) {
    let path = data.path.key(key);
    let Some(text) = data.value.get(key).and_then(Value::as_str) else {
        return errors.required(&path, "");
    };
    let parsed = decode_base64(text).map(|bytes| serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes));
    match parsed {
        Some(Ok(_)) => {}
        // of a wrong type the error would say the value
        Some(Err(error)) if error.is_data() => errors.invalid(&path, "<secret contents redacted>", "is not a map"),
        Some(Err(error)) => errors.invalid(&path, "<secret contents redacted>", error.to_string()),
        None => errors.invalid(&path, "<secret contents redacted>", "is not base64"),
    }
}

/// Standard base64 with padding, as JSON carries bytes.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for symbol in text.trim_end_matches('=').bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}
