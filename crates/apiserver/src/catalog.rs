//! Everything that can be asked for right now: built-in resources and those that CRDs add.

use std::collections::HashMap;
use std::sync::Arc;

use crate::resource::{Nature, Resource, Subresource};

/// The store's table of namespaces.
pub const NAMESPACES: &str = "core/namespaces";

/// The store's table of a resource.
pub fn table_name(group: &str, plural: &str) -> String {
    // Both kinds of Event are one.
    let group = match (group, plural) {
        ("", _) | ("events.k8s.io", "events") => "core",
        (group, _) => group,
    };
    format!("{group}/{plural}")
}

/// All resources, found by path and in the order discovery shows them.
#[derive(Debug, Default)]
pub struct Catalog {
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    order: Vec<Arc<Resource>>,
    by_table: HashMap<Arc<str>, Vec<Arc<Resource>>>,
}

impl Catalog {
    /// The built-in resources.
    pub fn builtin() -> Catalog {
        let mut catalog = Catalog::default();
        for resource in kinds::resources() {
            let strings = |list: &[&str]| list.iter().map(|text| (*text).into()).collect::<Vec<Box<str>>>();
            catalog.add(Arc::new(Resource {
                group: resource.group.into(),
                version: resource.version.into(),
                kind: resource.kind.into(),
                list_kind: format!("{}List", resource.kind).into(),
                plural: resource.plural.into(),
                singular: resource.singular.into(),
                short_names: strings(&resource.short_names),
                categories: strings(&resource.categories),
                namespaced: resource.namespaced,
                verbs: strings(&resource.verbs),
                subresources: resource
                    .subresources
                    .iter()
                    .map(|sub| Subresource {
                        name: sub.name.into(),
                        group: sub.group.into(),
                        version: sub.version.into(),
                        kind: sub.kind.into(),
                        verbs: strings(&sub.verbs),
                    })
                    .collect(),
                table: table_name(resource.group, resource.plural).into(),
                nature: Nature::BuiltIn(resource.schema),
            }));
        }
        catalog.add(crate::transactions::resource());
        catalog
    }

    /// Adds a resource, in place of one at the same path.
    pub fn add(&mut self, resource: Arc<Resource>) {
        let path = (resource.group.to_string(), resource.version.to_string(), resource.plural.to_string());
        let alike = self.by_table.entry(resource.table.clone()).or_default();
        if self.by_path.insert(path, resource.clone()).is_some() {
            let other = |own: &Arc<Resource>| {
                (&own.group, &own.version, &own.plural) != (&resource.group, &resource.version, &resource.plural)
            };
            self.order.retain(other);
            alike.retain(other);
        }
        alike.push(resource.clone());
        self.order.push(resource);
    }

    /// The resources of a table: all versions of one, in discovery's order.
    pub fn of_table(&self, table: &str) -> &[Arc<Resource>] {
        self.by_table.get(table).map_or(&[], Vec::as_slice)
    }

    /// The resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        // One allocation less would need a borrowed tuple key; requests are not bound by it.
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// A resource by its group and plural, in whichever version is served first.
    pub fn find_any(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.order.iter().find(|resource| &*resource.group == group && &*resource.plural == plural)
    }

    /// A resource by group, version and kind.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.order.iter().find(|own| &*own.group == group && &*own.version == version && &*own.kind == kind)
    }

    /// All resources, in discovery's order.
    pub fn all(&self) -> &[Arc<Resource>] {
        &self.order
    }

    /// One resource for each table of the store, in the version that is stored if that is served: it needs no conversion.
    pub fn by_table(&self) -> Vec<&Arc<Resource>> {
        let mut found: HashMap<&str, usize> = HashMap::new();
        let mut list: Vec<&Arc<Resource>> = Vec::new();
        for resource in &self.order {
            match found.get(&*resource.table) {
                Some(at) if resource.is_storage() && !list[*at].is_storage() => list[*at] = resource,
                Some(_) => {}
                None => {
                    found.insert(&resource.table, list.len());
                    list.push(resource);
                }
            }
        }
        list
    }

    /// Whether a group has a version.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.order.iter().any(|own| &*own.group == group && &*own.version == version)
    }

    /// Whether a group is built in: what is below it is Kubernetes' router's, also what does not exist.
    pub fn is_builtin(&self, group: &str) -> bool {
        self.order.iter().any(|own| &*own.group == group && !own.is_custom())
    }

    /// The groups with their versions, in order, the preferred version first.
    pub fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        self.groups_with(|_| true)
    }

    /// The groups with something that is wanted, and their versions that have it.
    pub fn groups_with(&self, wanted: impl Fn(&Resource) -> bool) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for resource in self.order.iter().filter(|own| wanted(own)) {
            let at = match groups.iter().position(|(group, _)| *group == &*resource.group) {
                Some(at) => at,
                None => {
                    groups.push((&resource.group, Vec::new()));
                    groups.len() - 1
                }
            };
            if !groups[at].1.contains(&&*resource.version) {
                groups[at].1.push(&resource.version);
            }
        }
        groups
    }
}
