//! Which resources there are, from aggregated discovery.
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::read;

/// The head of resources.txt.
const HEAD: &str = "\
# Written by `cargo xtask generate`. Resources: group/version plural kind singular scope verbs and
# s=short names, c=categories, p=stored as another group/version. Below each its subresources: name, group/version of
# its kind, kind, verbs. The core group is written as `core`.
";

/// A resource that is stored as another group's: both are views of the same objects.
const STORED_AS: &[(&str, &str, &str)] =
    &[("events.k8s.io/v1", "events", "core/v1"), ("autoscaling/v1", "horizontalpodautoscalers", "autoscaling/v2")];

/// The text of resources.txt, and the group versions it has.
pub fn resources(recorded: &Path) -> Result<(String, BTreeSet<String>)> {
    let mut text = HEAD.to_owned();
    let mut versions = BTreeSet::new();
    for document in ["discovery-api.json", "discovery-apis.json"] {
        for group in list(&read(&recorded.join(document))?, "items") {
            let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
            for version in list(group, "versions") {
                let version_name = string(version, "version")?;
                versions.insert(format!("{name}/{version_name}"));
                let gv = group_version(name, version_name);
                for resource in list(version, "resources") {
                    write_resource(&mut text, &gv, resource)?;
                }
            }
        }
    }
    Ok((text, versions))
}

fn write_resource(text: &mut String, gv: &str, resource: &Value) -> Result<()> {
    let plural = string(resource, "resource")?;
    let scope = string(resource, "scope")?;
    let kind = resource.pointer("/responseKind/kind").and_then(Value::as_str).context("a resource without a kind")?;
    write!(
        text,
        "{gv} {plural} {kind} {} {scope} {}",
        string(resource, "singularResource")?,
        names(resource, "verbs")
    )?;
    for (letter, key) in [("s", "shortNames"), ("c", "categories")] {
        let names = names(resource, key);
        if !names.is_empty() {
            write!(text, " {letter}={names}")?;
        }
    }
    if let Some((_, _, stored)) = STORED_AS.iter().find(|(version, name, _)| *version == gv && *name == plural) {
        write!(text, " p={stored}")?;
    }
    text.push('\n');
    for sub in list(resource, "subresources") {
        let of = |key: &str| sub.pointer(&format!("/responseKind/{key}")).and_then(Value::as_str).unwrap_or("");
        let kind_gv = if of("version").is_empty() { gv.to_owned() } else { group_version(of("group"), of("version")) };
        writeln!(text, " {} {kind_gv} {} {}", string(sub, "subresource")?, of("kind"), names(sub, "verbs"))?;
    }
    Ok(())
}

fn group_version(group: &str, version: &str) -> String {
    format!("{}/{version}", if group.is_empty() { "core" } else { group })
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("no {key} in the discovery document"))
}

fn names(value: &Value, key: &str) -> String {
    list(value, key).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}
