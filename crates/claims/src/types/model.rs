//! Reading and checking a ResourceType.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::errors::{FieldError, Path};
use crate::rules::{Attribute, Capacity, Kind, Match, Rules};
use crate::views::Reclaim;

/// Names an attribute may not have: the engine's own fields in a resource, a claim or a class.
pub const RESERVED: [&str; 34] = [
    "accessModes",
    "apiVersion",
    "bindingMode",
    "capabilities",
    "capacity",
    "claimRefs",
    "class",
    "conditions",
    "connection",
    "expression",
    "hold",
    "implementationRef",
    "kind",
    "labels",
    "maxClaims",
    "message",
    "metadata",
    "name",
    "offers",
    "parameters",
    "phase",
    "readyWhen",
    "reason",
    "reclaimPolicy",
    "replaceable",
    "requests",
    "resourceName",
    "resources",
    "scrub",
    "selector",
    "spec",
    "status",
    "template",
    "templates",
];

/// Also reserved; apart only because the list above is sorted for reading.
const ALSO_RESERVED: [&str; 3] = ["topology", "namespace", "uid"];

/// Short names of the three kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortNames {
    /// Of the resource.
    pub resource: Option<String>,
    /// Of the claim.
    pub claim: Option<String>,
    /// Of the class.
    pub class: Option<String>,
}

/// The API group of an apiVersion; empty: the core's.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The names of the three kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The resource's kind.
    pub resource: String,
    /// The claim's kind.
    pub claim: String,
    /// The class's kind.
    pub class: String,
    /// Their short names.
    pub short: ShortNames,
}

impl Names {
    /// The plural under which a kind is served.
    pub fn plural(kind: &str) -> String {
        let lower = kind.to_ascii_lowercase();
        let ends = |suffixes: &[&str]| suffixes.iter().any(|s| lower.ends_with(s));
        match lower.strip_suffix('y') {
            Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
            _ if ends(&["s", "x", "ch", "sh"]) => format!("{lower}es"),
            _ => format!("{lower}s"),
        }
    }
}

/// A ResourceType, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceType {
    /// The API group of the three kinds.
    pub group: String,
    /// Their version.
    pub version: String,
    /// Their names.
    pub names: Names,
    /// What a resource offers and a claim may ask for.
    pub attributes: Vec<Attribute>,
    /// Amounts, in the order of tightness.
    pub capacities: Vec<Capacity>,
    /// Whether resources and claims have access modes.
    pub access_modes: Vec<String>,
    /// Claims per resource, where the resource does not say.
    pub max_claims: u32,
    /// What may become of a released resource.
    pub reclaim_policies: Vec<Reclaim>,
    /// What attributes and capacities are, for people: `attributes.engine`.
    pub descriptions: BTreeMap<String, String>,
}

impl ResourceType {
    /// The name its object must have.
    pub fn name(&self) -> String {
        format!("{}.{}", Names::plural(&self.names.resource), self.group)
    }

    /// The apiVersion of the three kinds.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// What matching needs to know.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::new(Rules {
            claim: self.names.claim.as_str().into(),
            resource: self.names.resource.as_str().into(),
            attributes: self.attributes.clone(),
            capacities: self.capacities.clone(),
            max_claims: self.max_claims,
            volumes: false,
        })
    }

    /// Reads a ResourceType object; every field that is wrong is said.
    pub fn parse(object: &Value) -> Result<ResourceType, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut reader = Reader { errors: &mut errors };
        let read = reader.read(object);
        match read {
            Some(read) if errors.is_empty() => Ok(read),
            _ => Err(errors),
        }
    }
}

fn descriptions(spec: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for section in ["attributes", "capacities"] {
        for (name, field) in spec.get(section).and_then(Value::as_object).into_iter().flatten() {
            if let Some(description) = field["description"].as_str().filter(|d| !d.is_empty()) {
                all.insert(format!("{section}.{name}"), description.to_owned());
            }
        }
    }
    all
}

struct Reader<'e> {
    errors: &'e mut Vec<FieldError>,
}

impl Reader<'_> {
    fn say(&mut self, path: &Path, message: impl Into<String>) {
        self.errors.push(path.error(message));
    }

    fn known(&mut self, map: &Map<String, Value>, path: &Path, fields: &[&str]) {
        for key in map.keys().filter(|k| !fields.contains(&k.as_str())) {
            self.say(&path.field(key), format!("is not a field here; there are {}", fields.join(", ")));
        }
    }

    fn text<'v>(&mut self, map: &'v Map<String, Value>, path: &Path, key: &str) -> Option<&'v str> {
        match map.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            None | Some(Value::Null) => {
                self.say(&path.field(key), "is required");
                None
            }
            Some(_) => {
                self.say(&path.field(key), "must be a string that is not empty");
                None
            }
        }
    }

    fn object<'v>(&mut self, value: &'v Value, path: &Path) -> Option<&'v Map<String, Value>> {
        let map = value.as_object();
        if map.is_none() {
            self.say(path, "must be an object");
        }
        map
    }

    fn read(&mut self, object: &Value) -> Option<ResourceType> {
        let root = Path::root();
        let path = root.field("spec");
        let spec = self.object(&object["spec"], &path)?;
        let fields =
            ["group", "version", "names", "attributes", "capacities", "accessModes", "sharing", "reclaimPolicies"];
        self.known(spec, &path, &fields);
        let group = self.text(spec, &path, "group").map(str::to_owned);
        if let Some(group) = group.as_deref().filter(|g| !subdomain(g) || !g.contains('.')) {
            self.say(
                &path.field("group"),
                format!("{group:?} must be a DNS name with a dot, such as storage.example.com"),
            );
        }
        if let Some(group) = group.as_deref().filter(|g| built_in(g)) {
            self.say(&path.field("group"), format!("{group} belongs to the server: choose a group of your own"));
        }
        let version = self.text(spec, &path, "version").map(str::to_owned);
        if let Some(version) = version.as_deref().filter(|v| !v.starts_with('v') || !label(v)) {
            self.say(&path.field("version"), format!("{version:?} must be like v1alpha1, v1beta2 or v1"));
        }
        let names = self.names(spec.get("names").unwrap_or(&Value::Null), &path.field("names"));
        let attributes = self.attributes(spec.get("attributes"), &path.field("attributes"));
        let capacities = self.capacities(spec.get("capacities"), &path.field("capacities"));
        let access_modes = self.strings(spec.get("accessModes"), &path.field("accessModes"));
        let max_claims = self.sharing(spec.get("sharing"), &path.field("sharing"));
        let reclaim_policies = self.policies(spec.get("reclaimPolicies"), &path.field("reclaimPolicies"));
        let read = ResourceType {
            group: group?,
            version: version?,
            names: names?,
            attributes,
            capacities,
            access_modes,
            max_claims,
            reclaim_policies,
            descriptions: descriptions(spec),
        };
        if let Some(name) = object["metadata"]["name"].as_str().filter(|n| *n != read.name()) {
            self.say(&root.field("metadata").field("name"), format!("{name:?} must be {:?}", read.name()));
        }
        Some(read)
    }

    fn names(&mut self, value: &Value, path: &Path) -> Option<Names> {
        let map = self.object(value, path)?;
        self.known(map, path, &["resource", "claim", "class", "shortNames"]);
        let mut kind = |key: &str, fallback: Option<String>| -> Option<String> {
            let name = match (map.get(key), fallback) {
                (None, Some(fallback)) => fallback,
                _ => self.text(map, path, key)?.to_owned(),
            };
            let fine = name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.bytes().all(|b| b.is_ascii_alphanumeric())
                && name.len() <= 50;
            if !fine {
                self.say(
                    &path.field(key),
                    format!("{name:?} must be a kind in CamelCase of at most 50 letters and digits"),
                );
            }
            fine.then_some(name)
        };
        let resource = kind("resource", None)?;
        let claim = kind("claim", Some(format!("{resource}Claim")));
        let class = kind("class", Some(format!("{resource}Class")));
        let (claim, class) = (claim?, class?);
        if resource == claim || resource == class || claim == class {
            self.say(path, "the three kinds must differ");
        }
        let mut short = ShortNames::default();
        if let Some(map) = map.get("shortNames").filter(|v| !v.is_null()) {
            let path = path.field("shortNames");
            let map = self.object(map, &path)?;
            self.known(map, &path, &["resource", "claim", "class"]);
            for (key, slot) in
                [("resource", &mut short.resource), ("claim", &mut short.claim), ("class", &mut short.class)]
            {
                if !map.contains_key(key) {
                    continue;
                }
                let name = self.text(map, &path, key)?;
                if !label(name) {
                    self.say(&path.field(key), "must be lower case letters and digits");
                }
                *slot = Some(name.to_owned());
            }
        }
        Some(Names { resource, claim, class, short })
    }

    fn attributes(&mut self, value: Option<&Value>, path: &Path) -> Vec<Attribute> {
        let Some(value) = value.filter(|v| !v.is_null()) else { return Vec::new() };
        let Some(map) = self.object(value, path) else { return Vec::new() };
        if map.len() > 32 {
            self.say(path, "has more than 32 attributes");
        }
        let mut all: Vec<Attribute> = Vec::new();
        for (name, value) in map.iter().take(32) {
            let path = path.field(name);
            self.attribute_name(name, &path);
            if let Some(attribute) = self.attribute(name, value, &path) {
                all.push(attribute);
            }
        }
        let names: Vec<&str> = all.iter().flat_map(|a| [Some(a.name.as_ref()), a.alias.as_deref()]).flatten().collect();
        for (i, attribute) in all.iter().enumerate() {
            if let Some(alias) = &attribute.alias {
                let path = path.field(&attribute.name).field("alias");
                if names.iter().filter(|n| **n == alias.as_ref()).count() > 1 {
                    self.errors.push(path.error(format!("{alias:?} is already the name of another attribute")));
                }
                debug_assert!(i < all.len());
            }
        }
        all
    }

    fn attribute_name(&mut self, name: &str, path: &Path) {
        if RESERVED.contains(&name) || ALSO_RESERVED.contains(&name) {
            self.say(path, format!("{name:?} is a field of the engine; choose another name"));
        }
        let fine = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && name.len() <= 63;
        if !fine {
            self.say(path, "must begin with a letter and have at most 63 letters, digits, - and _");
        }
    }

    fn attribute(&mut self, name: &str, value: &Value, path: &Path) -> Option<Attribute> {
        let map = self.object(value, path)?;
        self.known(map, path, &["type", "match", "alias", "required", "values", "description"]);
        let matching = match map.get("match").map(Value::as_str) {
            None => Match::Equal,
            Some(text) => match Match::ALL.iter().find(|(n, _)| Some(*n) == text) {
                Some((_, matching)) => *matching,
                None => {
                    let names = Match::ALL.map(|(n, _)| n).join(", ");
                    self.say(&path.field("match"), format!("must be one of {names}"));
                    return None;
                }
            },
        };
        let kind = match map.get("type").map(Value::as_str) {
            None if matching == Match::VersionRange => Kind::Version,
            None => Kind::Text,
            Some(_) if matching == Match::VersionRange => {
                self.say(
                    &path.field("type"),
                    "a version has no type: remove it (5.6 unquoted is a number, \"5.6\" a string)",
                );
                return None;
            }
            Some(Some("string")) => Kind::Text,
            Some(Some("boolean")) => Kind::Flag,
            Some(Some("integer")) => Kind::Integer,
            Some(Some("number")) => Kind::Number,
            Some(Some("quantity")) => Kind::Quantity,
            Some(_) => {
                self.say(&path.field("type"), "must be one of string, boolean, integer, number, quantity");
                return None;
            }
        };
        let values: Vec<Arc<str>> =
            self.strings(map.get("values"), &path.field("values")).into_iter().map(Arc::from).collect();
        if !values.is_empty() && kind != Kind::Text {
            self.say(&path.field("values"), "only a string lists its values");
        }
        if matches!(matching, Match::In | Match::Contains) && kind != Kind::Text {
            self.say(&path.field("match"), format!("{} compares strings", matching.name()));
        }
        if matches!(matching, Match::AtLeast | Match::AtMost) && kind == Kind::Text && values.is_empty() {
            self.say(&path.field("values"), "is required to order strings, the least first");
        }
        let alias = match map.get("alias") {
            None | Some(Value::Null) => None,
            Some(Value::String(alias)) => {
                self.attribute_name(alias, &path.field("alias"));
                Some(Arc::from(alias.as_str()))
            }
            Some(_) => {
                self.say(&path.field("alias"), "must be a string");
                None
            }
        };
        let required = match map.get("required") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(required)) => *required,
            Some(_) => {
                self.say(&path.field("required"), "must be true or false");
                false
            }
        };
        Some(Attribute { name: name.into(), alias, kind, matching, values, required })
    }

    /// A map keeps no order in JSON, so the order of tightness is `order`, then the name.
    fn capacities(&mut self, value: Option<&Value>, path: &Path) -> Vec<Capacity> {
        let Some(value) = value.filter(|v| !v.is_null()) else { return Vec::new() };
        let Some(map) = self.object(value, path) else { return Vec::new() };
        if map.len() > 16 {
            self.say(path, "has more than 16 capacities");
        }
        let mut all: Vec<(i64, Capacity)> = Vec::new();
        for (name, value) in map.iter().take(16) {
            let path = path.field(name);
            let fine = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b)) && name.len() <= 63;
            if !fine || name.is_empty() {
                self.say(&path, "must be letters, digits, -, _, . and / of at most 63");
            }
            let Some(map) = self.object(value, &path) else { continue };
            self.known(map, &path, &["match", "order", "description"]);
            let exact = match map.get("match").map(Value::as_str) {
                None | Some(Some("AtLeast")) => false,
                Some(Some("Equal")) => true,
                Some(_) => {
                    self.say(&path.field("match"), "must be AtLeast or Equal");
                    false
                }
            };
            let order = match map.get("order") {
                None | Some(Value::Null) => i64::MAX,
                Some(order) => order.as_i64().unwrap_or_else(|| {
                    self.say(&path.field("order"), "must be a whole number");
                    0
                }),
            };
            all.push((order, Capacity { name: name.as_str().into(), exact }));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.name.cmp(&b.1.name)));
        all.into_iter().map(|(_, capacity)| capacity).collect()
    }

    fn sharing(&mut self, value: Option<&Value>, path: &Path) -> u32 {
        let Some(value) = value.filter(|v| !v.is_null()) else { return 1 };
        let Some(map) = self.object(value, path) else { return 1 };
        self.known(map, path, &["maxClaims"]);
        match map.get("maxClaims") {
            None | Some(Value::Null) => 1,
            Some(number) => match number.as_u64() {
                Some(number @ 1..=256) => number as u32,
                _ => {
                    self.say(&path.field("maxClaims"), "must be between 1 and 256");
                    1
                }
            },
        }
    }

    fn policies(&mut self, value: Option<&Value>, path: &Path) -> Vec<Reclaim> {
        let texts = self.strings(value, path);
        if texts.is_empty() {
            return vec![Reclaim::Delete, Reclaim::Retain];
        }
        let mut all = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match Reclaim::parse(text) {
                Some(policy) if !all.contains(&policy) => all.push(policy),
                Some(_) => self.say(&path.index(index), "is there twice"),
                None => self.say(&path.index(index), "must be one of Delete, Retain, Recycle"),
            }
        }
        all
    }

    fn strings(&mut self, value: Option<&Value>, path: &Path) -> Vec<String> {
        let list = match value {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.say(path, "must be a list of strings");
                return Vec::new();
            }
        };
        let mut all = Vec::new();
        for (index, item) in list.iter().enumerate().take(64) {
            match item.as_str() {
                Some(text) if !text.is_empty() && !all.iter().any(|x| x == text) => all.push(text.to_owned()),
                _ => self.say(&path.index(index), "must be a string, once"),
            }
        }
        all
    }
}

fn label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(label)
}

/// Whether a group is one that servers have without any definition: roles for its kinds would give rights on what is there.
fn built_in(group: &str) -> bool {
    let of = |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    of("k8s.io") || of("kubernetes.io") || group == "conductor.io" || group == "transactions.conductor.io"
}
