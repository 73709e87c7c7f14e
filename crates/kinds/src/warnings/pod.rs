//! Warnings about Pods and Pod templates.

use std::collections::{BTreeMap, HashSet};

use conductor_machinery::field::Path;
use conductor_machinery::names;
use conductor_machinery::names::ip::ip_warning;
use serde_json::Value;

use super::{claim_spec, deprecated_keys, deprecated_label, fractional_bytes};
use crate::strategy::{APP_ARMOR, SECCOMP as SECCOMP_OF, app_armor_profile};
use crate::validate::at::At;

const CONTAINERS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

/// Warnings about what has `metadata` and `spec` of a Pod.
pub(super) fn pod(warnings: &mut Vec<String>, at: &At<'_>, is_template: bool) {
    let spec = at.field("spec");
    placement(warnings, &spec);
    let notes = at.field("metadata.annotations");
    for (key, note) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
        ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ] {
        if notes.value.get(key).is_some() {
            warnings.push(format!("{}: {note}", notes.path.key(key)));
        }
    }
    volumes(warnings, &spec);
    let mut addresses = HashSet::new();
    for alias in spec.items("hostAliases") {
        let address = alias.text("ip");
        if !addresses.insert(address) {
            warnings.push(format!("{}: duplicate ip {address:?}", alias.at("ip")));
        }
    }
    let mut secrets = HashSet::new();
    for secret in spec.items("imagePullSecrets") {
        let name = secret.text("name");
        if !secrets.insert(name) {
            warnings.push(format!("{}: duplicate name {name:?}", secret.at("name")));
        }
    }
    for secret in spec.items("imagePullSecrets").filter(|secret| secret.text("name").is_empty()) {
        warnings.push(format!("{}: invalid empty name \"\"", secret.at("name")));
    }
    for resource in ["memory", "ephemeral-storage"] {
        fractional_bytes(warnings, &spec.at("overhead").key(resource), &spec.get("overhead")[resource]);
    }
    let pod_seccomp = "seccomp.security.alpha.kubernetes.io/pod";
    if !spec.has("securityContext.seccompProfile") && notes.value.get(pod_seccomp).is_some() {
        warnings.push(format!("{}: {SECCOMP}", notes.path.key(pod_seccomp)));
    }
    for container in all_containers(&spec) {
        self::container(warnings, &container, &notes);
    }
    if is_template {
        armor(warnings, &spec, &notes);
    }
    ports(warnings, &spec);
    if spec.int("terminationGracePeriodSeconds") < 0 {
        let path = spec.at("terminationGracePeriodSeconds");
        warnings.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.field("affinity").field(kind);
        for term in affinity.items(REQUIRED).filter(|term| !term.has("labelSelector")) {
            warnings.push(format!("{}: a null labelSelector results in matching no pod", term.at("labelSelector")));
        }
        for term in affinity.items(PREFERRED).filter(|term| !term.has("podAffinityTerm.labelSelector")) {
            let path = term.at("podAffinityTerm.labelSelector");
            warnings.push(format!("{path}: a null labelSelector results in matching no pod"));
        }
    }
    for server in spec.items("dnsConfig.nameservers") {
        warnings.extend(ip_warning(&server.path, server.value.as_str().unwrap_or("")));
    }
    for alias in spec.items("hostAliases") {
        warnings.extend(ip_warning(&alias.at("ip"), alias.text("ip")));
    }
}

fn all_containers<'a>(spec: &At<'a>) -> Vec<At<'a>> {
    CONTAINERS.iter().flat_map(|list| spec.items(list)).collect()
}

fn placement(warnings: &mut Vec<String>, spec: &At<'_>) {
    for (key, _) in spec.entries("nodeSelector") {
        if let Some(note) = deprecated_label(key) {
            warnings.push(format!("{}: {note}", spec.at("nodeSelector").key(key)));
        }
    }
    let nodes = spec.field("affinity.nodeAffinity");
    for term in nodes.field(REQUIRED).items("nodeSelectorTerms") {
        deprecated_keys(warnings, term.items("matchExpressions"));
    }
    for term in nodes.items(PREFERRED) {
        let preference = term.field("preference");
        deprecated_keys(warnings, preference.items("matchExpressions"));
        for requirement in preference.items("matchExpressions") {
            for value in requirement.items("values") {
                let text = value.value.as_str().unwrap_or("");
                for message in names::label_value(text) {
                    warnings.push(format!("{}: {text} is invalid, {message}", value.path));
                }
            }
        }
    }
    for constraint in spec.items("topologySpreadConstraints") {
        let key = constraint.text("topologyKey");
        if let Some(note) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {note}", constraint.at("topologyKey")));
        }
        if !constraint.has("labelSelector") {
            let path = constraint.at("labelSelector");
            warnings.push(format!("{path}: a null labelSelector results in matching no pod"));
        }
    }
}

fn volumes(warnings: &mut Vec<String>, spec: &At<'_>) {
    for volume in spec.items("volumes") {
        for (source, called, since) in [
            ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
            ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
            ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
            ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
            ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
            ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
            ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ] {
            if volume.has(source) {
                warnings.push(format!("{}: {since}", volume.at(called)));
            }
        }
        if volume.has("ephemeral.volumeClaimTemplate") {
            claim_spec(warnings, &volume.field("ephemeral.volumeClaimTemplate.spec"));
        }
        for source in ["cephfs", "rbd"] {
            if volume.has(source) {
                warnings.push(format!("{}: deprecated in v1.28, non-functional in v1.31+", volume.at(source)));
            }
        }
    }
    for volume in spec.items("volumes") {
        overlapping_paths(warnings, &volume);
    }
}

/// As many warnings about files at the same place are given: of n files there can be n² pairs.
const MOST: usize = 64;
/// Nobody limits the names of what a volume is made of, nor its paths: no more of a name is shown, and no longer path is looked at.
const LONGEST: usize = 256;

/// A name of something else, as it is shown.
fn quoted(name: &str) -> String {
    format!("{:?}", name.chars().take(LONGEST).collect::<String>())
}

/// Two files of one volume at the same place.
fn overlapping_paths(warnings: &mut Vec<String>, volume: &At<'_>) {
    let name = quoted(volume.text("name"));
    let (map, secret) = (volume.field("configMap"), volume.field("secret"));
    for (what, source) in [
        (format!("ConfigMap {}", quoted(map.text("name"))), map),
        (format!("Secret {}", quoted(secret.text("secretName"))), secret),
        ("DownwardAPI".to_owned(), volume.field("downwardAPI")),
    ] {
        let mut files = Files::of(format!("volume {name} ({what})"));
        files.add(warnings, String::new(), paths(&source));
    }
    let mut files = Files::of(format!("volume {name} (Projected)"));
    let mut empty = false;
    for source in volume.field("projected").items("sources") {
        if !empty && source.value.as_object().is_none_or(|source| source.values().all(Value::is_null)) {
            empty = true;
            warnings.push(format!("{} has no sources provided", files.whose));
        }
        for (kind, field) in [("ConfigMap", "configMap"), ("Secret", "secret")] {
            let at = source.field(field);
            files.add(warnings, format!(" ({kind} {})", quoted(at.text("name"))), paths(&at));
        }
        files.add(warnings, " (DownwardAPI)".to_owned(), paths(&source.field("downwardAPI")));
        let token = source.has("serviceAccountToken").then(|| source.text("serviceAccountToken.path"));
        files.add(warnings, " (ServiceAccountToken)".to_owned(), token.into_iter());
    }
}

/// Where a source puts its files.
fn paths<'a>(source: &At<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    source.items("items").map(|item| item.text("path"))
}

/// Files of one volume.
struct Files<'a> {
    whose: String,
    sources: Vec<String>,
    /// Each with the number of its source.
    seen: Vec<(&'a str, usize)>,
    by_path: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Files<'a> {
    fn of(whose: String) -> Self {
        Files { whose, sources: Vec::new(), seen: Vec::new(), by_path: BTreeMap::new() }
    }

    fn add(&mut self, warnings: &mut Vec<String>, source: String, paths: impl Iterator<Item = &'a str>) {
        self.sources.push(source);
        let paths = paths.map(|path| path.trim_end_matches('/'));
        for path in paths.filter(|path| !path.is_empty() && path.len() <= LONGEST) {
            let file = (path, self.sources.len() - 1);
            let show = |(path, source): (&str, usize)| format!("{path:?}{}", self.sources[source]);
            if warnings.len() >= MOST {
                return;
            }
            for other in overlapping(&self.by_path, path).into_iter().take(MOST) {
                let pair = format!("{} with {}", show(file), show(self.seen[other]));
                warnings.push(format!("{}: overlapping paths: {pair}", self.whose));
            }
            self.by_path.entry(path).or_default().push(self.seen.len());
            self.seen.push(file);
        }
    }
}

/// Which of the files are at a path, above it or below it, as they came.
fn overlapping(by_path: &BTreeMap<&str, Vec<usize>>, path: &str) -> Vec<usize> {
    let above = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]);
    let mut found: Vec<usize> = above.filter_map(|above| by_path.get(above)).flatten().copied().collect();
    let inside = format!("{path}/");
    let below = by_path.range(&*inside..).take_while(|(below, _)| below.starts_with(&inside));
    found.extend(below.flat_map(|(_, at)| at));
    found.sort_unstable();
    found
}

/// Annotations that say of AppArmor what no field does.
pub(super) fn armor(warnings: &mut Vec<String>, spec: &At<'_>, notes: &At<'_>) {
    let shared = spec.get("securityContext.appArmorProfile");
    let own = |container: &At<'_>| container.has("securityContext.appArmorProfile");
    for container in all_containers(spec).into_iter().filter(|container| !own(container)) {
        let key = format!("{APP_ARMOR}{}", container.text("name"));
        let Some(said) = notes.value.get(&key).and_then(Value::as_str) else { continue };
        if app_armor_profile(said).as_ref() != Some(shared) {
            let path = notes.path.key(&key);
            warnings.push(format!("{path}: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
        }
    }
}

fn container(warnings: &mut Vec<String>, container: &At<'_>, notes: &At<'_>) {
    let name = container.text("name");
    let seccomp = format!("{SECCOMP_OF}{name}");
    if !container.has("securityContext.seccompProfile") && notes.value.get(&seccomp).is_some() {
        warnings.push(format!("{}: {SECCOMP}", notes.path.key(&seccomp)));
    }
    for resource in ["memory", "ephemeral-storage"] {
        for field in ["limits", "requests"] {
            let path = container.at("resources").child(field).key(resource);
            fractional_bytes(
                warnings,
                &path,
                container.get("resources").get(field).map_or(&Value::Null, |f| &f[resource]),
            );
        }
    }
    let mut seen = HashSet::new();
    for variable in container.items("env") {
        let name = variable.text("name");
        if !seen.contains(&name) {
            seen.insert(name);
            continue;
        }
        // A definition that refers to the earlier one builds upon it.
        let reference = format!("$({name})");
        let value = variable.text("value");
        if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
            let path = &variable.path;
            warnings
                .push(format!("{path}: hides previous definition of {name:?}, which may be dropped when using apply"));
        }
    }
}

/// Ports of one number and protocol, by where on the node they are.
#[derive(Default)]
struct Ports<'a> {
    all: Vec<At<'a>>,
    by_number: BTreeMap<i64, Vec<usize>>,
    by_place: BTreeMap<(i64, &'a str), Vec<usize>>,
}

impl<'a> Ports<'a> {
    /// Those that one at this place is mistaken for, as they came.
    fn like(&self, number: i64, address: &str) -> Vec<&At<'a>> {
        let of_number = |number| self.by_number.get(&number).into_iter().flatten();
        let at = |address| self.by_place.get(&(number, address)).into_iter().flatten();
        let mut found: Vec<usize> = match (number, address) {
            (0, _) => (0..self.all.len()).collect(),
            (_, "") => of_number(0).chain(of_number(number)).copied().collect(),
            _ => of_number(0).chain(at("")).chain(at(address)).copied().collect(),
        };
        found.sort_unstable();
        found.into_iter().map(|at| &self.all[at]).collect()
    }

    fn add(&mut self, number: i64, address: &'a str, port: At<'a>) {
        self.by_number.entry(number).or_default().push(self.all.len());
        self.by_place.entry((number, address)).or_default().push(self.all.len());
        self.all.push(port);
    }
}

fn ports(warnings: &mut Vec<String>, spec: &At<'_>) {
    let mut known: BTreeMap<(i64, &str), Ports<'_>> = BTreeMap::new();
    let containers = all_containers(spec);
    for port in containers.iter().flat_map(|container| container.items("ports")) {
        let (address, number) = (port.text("hostIP"), port.int("hostPort"));
        if !address.is_empty() && number == 0 {
            let shown = format!(
                "{{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{address}}}",
                port.text("name"),
                port.int("containerPort"),
                port.text("protocol")
            );
            warnings.push(format!("{}: hostIP set without hostPort: {shown}", port.path));
        }
        let others = known.entry((port.int("containerPort"), port.text("protocol"))).or_default();
        // of n ports there can be n² pairs, each of which is warned of
        if warnings.len() < MOST {
            for other in others.like(number, address).into_iter().take(MOST) {
                let what = if address == other.text("hostIP") && number == other.int("hostPort") {
                    "duplicate"
                } else if number == 0 || other.int("hostPort") == 0 {
                    "overlapping"
                } else {
                    "dangerously ambiguous"
                };
                warnings.push(format!("{}: {what} port definition with {}", port.path, other.path));
            }
        }
        others.add(number, address, port);
    }
    let mut names: BTreeMap<&str, Path> = BTreeMap::new();
    for port in containers.iter().flat_map(|container| container.items("ports")) {
        let name = port.text("name");
        if name.is_empty() {
            continue;
        }
        match names.get(name) {
            Some(other) => warnings.push(format!(
                "{}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}",
                port.path
            )),
            None => {
                names.insert(name, port.path);
            }
        }
    }
}
