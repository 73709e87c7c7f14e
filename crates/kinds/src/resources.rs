//! The resources of the built-in kinds, as discovery lists them, from the generated `data/resources.txt`.
use std::sync::LazyLock;

use conductor_machinery::schema::{Id, Schema};

use crate::table;

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| read(include_str!("../data/resources.txt")));

/// A resource in one version of its group.
#[derive(Debug)]
pub struct Resource {
    /// Its API group; empty for the core group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
    /// Its name for one object.
    pub singular: &'static str,
    /// What kubectl also calls it.
    pub short_names: Vec<&'static str>,
    /// The groups of resources it belongs to: `all`.
    pub categories: Vec<&'static str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it, sorted.
    pub verbs: Vec<&'static str>,
    /// What hangs below its objects.
    pub subresources: Vec<Subresource>,
    /// The type of its objects in [`table::types`].
    pub schema: Id,
    /// The group and version its objects are stored in. Another than its own means that it shows the objects of the
    /// resource with the same plural there.
    pub storage: (&'static str, &'static str),
}

/// A subresource.
#[derive(Debug)]
pub struct Subresource {
    /// Its name in paths.
    pub name: &'static str,
    /// The API group of its kind.
    pub group: &'static str,
    /// The version of its kind.
    pub version: &'static str,
    /// The kind it takes and gives.
    pub kind: &'static str,
    /// What can be done with it, sorted.
    pub verbs: Vec<&'static str>,
    /// The type of what it takes and gives.
    pub schema: Id,
}

impl Resource {
    /// A handle to the type of its objects.
    pub fn schema(&self) -> Schema<'static> {
        table::types().schema(self.schema)
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The kind of a list of its objects.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Whether it can be asked to do this.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// One of its subresources.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

/// All resources, in the order a real server's discovery lists them.
pub fn resources() -> &'static [Resource] {
    &RESOURCES
}

/// A resource by its path.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    resources().iter().find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// The resource whose objects are of this kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    resources().iter().find(|r| r.kind == kind && r.group == group && r.version == version)
}

fn read(text: &'static str) -> Vec<Resource> {
    let mut all: Vec<Resource> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(line) = line.strip_prefix(' ') {
            let words: Vec<&'static str> = line.split(' ').collect();
            let [name, group_version, kind, verbs] = *words else { panic!("malformed subresource: {line}") };
            let (group, version) = split(group_version);
            let schema = schema(group, version, kind);
            let sub = Subresource { name, group, version, kind, verbs: list(verbs), schema };
            all.last_mut().expect("a resource above its subresources").subresources.push(sub);
            continue;
        }
        let words: Vec<&'static str> = line.split(' ').collect();
        let [group_version, plural, kind, singular, scope, verbs, ref more @ ..] = *words else {
            panic!("malformed resource: {line}")
        };
        let (group, version) = split(group_version);
        let mut resource = Resource {
            group,
            version,
            kind,
            plural,
            singular,
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: scope == "Namespaced",
            verbs: list(verbs),
            subresources: Vec::new(),
            schema: schema(group, version, kind),
            storage: (group, version),
        };
        for word in more {
            match word.split_once('=') {
                Some(("s", names)) => resource.short_names = list(names),
                Some(("c", names)) => resource.categories = list(names),
                Some(("p", stored)) => resource.storage = split(stored),
                _ => panic!("unknown attribute {word}"),
            }
        }
        all.push(resource);
    }
    all
}

fn split(group_version: &'static str) -> (&'static str, &'static str) {
    let (group, version) = group_version.split_once('/').expect("a group and a version");
    (if group == "core" { "" } else { group }, version)
}

fn list(names: &'static str) -> Vec<&'static str> {
    names.split(',').collect()
}

fn schema(group: &str, version: &str, kind: &str) -> Id {
    table::schema_of(group, version, kind).unwrap_or_else(|| panic!("no type for {group}/{version} {kind}")).id()
}
