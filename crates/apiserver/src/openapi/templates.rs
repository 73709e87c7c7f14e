//! The paths of custom resources. With thousands of definitions they are nearly all of a document, and those of one shape
//! differ in their names alone: they are made once, with marks instead of names, and named anew for each.

use std::collections::HashMap;

use serde_json::Value;

use super::operations::{GroupVersion, Paths};
use super::schemas::{component_name, list_name};
use crate::resource::{Nature, Resource, Subresource};

/// What stands for a name. No text of a document has it.
const MARK: char = '§';

/// Paths with marks for names, each with its JSON, by what a resource can do.
#[derive(Default)]
pub struct Templates(HashMap<String, Vec<(String, String)>>);

impl Templates {
    /// All paths of a resource, and what is said of each, as `write` has it.
    pub fn paths(&mut self, resource: &Resource, write: impl Fn(Value) -> Value) -> Vec<(String, String)> {
        let text = |(path, item): (String, Value)| (path, write(item).to_string());
        let Nature::Custom(_) = &resource.nature else { return Paths::of(resource).into_iter().map(text).collect() };
        let nameless = nameless(resource);
        let shape = format!("{:?}", (nameless.namespaced, &nameless.verbs, &nameless.subresources));
        let template = self.0.entry(shape).or_insert_with(|| Paths::of(&nameless).into_iter().map(text).collect());
        let names = Names::of(resource);
        template.iter().map(|(path, text)| (names.put(path), names.put(text))).collect()
    }
}

/// The same resource with marks for its names.
fn nameless(resource: &Resource) -> Resource {
    let of = |own: &str, name: &str, mark: &str| if own == name { mark.into() } else { own.into() };
    let subresources = resource.subresources.iter().map(|sub| Subresource {
        kind: of(&sub.kind, &resource.kind, "§k"),
        group: of(&sub.group, &resource.group, "§g"),
        version: of(&sub.version, &resource.version, "§v"),
        ..sub.clone()
    });
    Resource {
        group: "§g".into(),
        version: "§v".into(),
        kind: "§k".into(),
        list_kind: "§l".into(),
        plural: "§p".into(),
        singular: "".into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: resource.namespaced,
        verbs: resource.verbs.clone(),
        subresources: subresources.collect(),
        table: resource.table.clone(),
        nature: match &resource.nature {
            Nature::BuiltIn(id) => Nature::BuiltIn(*id),
            Nature::Custom(custom) => Nature::Custom(custom.clone()),
        },
    }
}

/// What the marks mean, those that are made of others first.
struct Names([(&'static str, String); 9]);

impl Names {
    fn of(resource: &Resource) -> Names {
        let names = GroupVersion::new(&resource.group, &resource.version);
        Names([
            ("§g.§v.§k", component_name(resource)),
            ("§g.§v.§l", list_name(resource)),
            ("§g§v", names.title),
            ("§g_§v", names.tag),
            ("§g", resource.group.to_string()),
            ("§v", resource.version.to_string()),
            ("§k", resource.kind.to_string()),
            ("§l", resource.list_kind.to_string()),
            ("§p", resource.plural.to_string()),
        ])
    }

    fn put(&self, template: &str) -> String {
        let mut out = String::with_capacity(template.len() + template.len() / 4);
        let mut left = template;
        while let Some(at) = left.find(MARK) {
            out.push_str(&left[..at]);
            left = &left[at..];
            let (mark, name) = self
                .0
                .iter()
                .find(|(mark, _)| left.starts_with(mark))
                .map_or(("§", "§"), |(mark, name)| (mark, name));
            out.push_str(name);
            left = &left[mark.len()..];
        }
        out.push_str(left);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn named_anew_they_are_as_if_made_for_the_resource() {
        let catalog = Catalog::builtin();
        let mut templates = Templates::default();
        let custom = catalog.all().iter().find(|own| own.is_custom()).expect("one is built in");
        let status = |kind: &str| Subresource { kind: kind.into(), ..custom_status(&catalog) };
        for (group, version, kind, plural, namespaced) in [
            ("example.com", "v1", "Thing", "things", true),
            ("a.b-c.k8s.io", "v2beta1", "Other", "others", false),
            ("x.io", "v1", "Plain", "plains", true),
        ] {
            let resource = Resource {
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
                list_kind: format!("{kind}List").into(),
                plural: plural.into(),
                namespaced,
                verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
                    .map(Into::into)
                    .into(),
                subresources: if kind == "Plain" { Vec::new() } else { vec![status(kind)] },
                ..nameless(custom)
            };
            let direct: Vec<(String, String)> =
                Paths::of(&resource).into_iter().map(|(path, item)| (path, item.to_string())).collect();
            assert!(direct.len() > 4);
            assert_eq!(templates.paths(&resource, |item| item), direct, "{kind}");
        }
    }

    /// That of a built-in kind; only its kind is another's.
    fn custom_status(catalog: &Catalog) -> Subresource {
        let all = catalog.all();
        let mut subs = all.iter().flat_map(|own| &own.subresources).filter(|sub| &*sub.name == "status");
        subs.find(|sub| sub.group.is_empty()).expect("many have one").clone()
    }
}
