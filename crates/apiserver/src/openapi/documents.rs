//! Whole documents, written piece by piece: no more than one path or type is in memory unwritten.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Site;
use super::descriptions::Descriptions;
use super::operations::{GroupVersion, Paths, plain};
use super::schemas::{Components, Kinds, Writer};
use crate::catalog::Catalog;
use crate::resource::Resource;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// A document of OpenAPI v3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// `api`, `apis`, `apis/apps`, `version`: one path that says what there is.
    Plain {
        /// Its name, which is its path.
        name: String,
    },
    /// A group and a version.
    Version {
        /// Empty for core.
        group: String,
        /// `v1`.
        version: String,
    },
}

impl Document {
    /// All documents there are, sorted by name.
    pub fn all(catalog: &Catalog) -> Vec<Document> {
        let plain = |name: &str| Document::Plain { name: name.to_owned() };
        let mut all = vec![plain("api"), plain("apis"), plain("version")];
        all.extend([plain(".well-known/openid-configuration"), plain("openid/v1/jwks")]);
        for (group, versions) in catalog.groups() {
            if !group.is_empty() {
                all.push(plain(&format!("apis/{group}")));
            }
            let of = |version: &&str| Document::Version { group: group.to_owned(), version: (*version).to_owned() };
            all.extend(versions.iter().map(of));
        }
        all.sort_by_key(Document::name);
        all
    }

    /// A document by its name.
    pub fn find(catalog: &Catalog, name: &str) -> Option<Document> {
        Self::all(catalog).into_iter().find(|document| document.name() == name)
    }

    /// `api/v1`, `apis/apps/v1`.
    pub fn name(&self) -> String {
        match self {
            Document::Plain { name } => name.clone(),
            Document::Version { group, version } if group.is_empty() => format!("api/{version}"),
            Document::Version { group, version } => format!("apis/{group}/{version}"),
        }
    }

    /// The group and version, for documents of one.
    fn version(&self) -> Option<(&str, &str)> {
        match self {
            Document::Plain { .. } => None,
            Document::Version { group, version } => Some((group, version)),
        }
    }

    /// The resources in it.
    pub fn resources<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = &'a Resource> {
        let version = self.version();
        catalog
            .all()
            .iter()
            .map(|resource| &**resource)
            .filter(move |own| version == Some((&*own.group, &*own.version)))
    }

    /// The path about the document itself: discovery.
    pub fn own_path(&self) -> (String, Value) {
        let path = format!("/{}/", self.name());
        let entry = match self {
            Document::Version { group, version } => {
                let names = GroupVersion::new(group, version);
                let id = format!("get{}APIResources", names.title);
                plain(&id, "get the available resources", &names.tag, Some(&format!("{META}APIResourceList")))
            }
            Document::Plain { name } => match &**name {
                "api" => plain(
                    "getCoreAPIVersions",
                    "get the versions of the core group",
                    "core",
                    Some(&format!("{META}APIVersions")),
                ),
                "apis" => plain("getAPIVersions", "get the groups", "apis", Some(&format!("{META}APIGroupList"))),
                "version" => plain("getCodeVersion", "get the version of the server", "version", None),
                ".well-known/openid-configuration" => plain(
                    "getServiceAccountIssuerOpenIDConfiguration",
                    "get what is needed to check service account tokens",
                    "WellKnown",
                    None,
                ),
                "openid/v1/jwks" => plain(
                    "getServiceAccountIssuerOpenIDKeyset",
                    "get the keys that sign service account tokens",
                    "openid",
                    None,
                ),
                other => {
                    let group = other.strip_prefix("apis/").unwrap_or(other);
                    let (title, tag) = (GroupVersion::group_title(group), GroupVersion::group_tag(group));
                    plain(&format!("get{title}APIGroup"), "get the group", &tag, Some(&format!("{META}APIGroup")))
                }
            },
        };
        (path, entry)
    }

    /// All paths in it, sorted.
    pub fn paths(&self, catalog: &Catalog) -> Vec<(String, Value)> {
        let mut paths = vec![self.own_path()];
        paths.extend(self.resources(catalog).flat_map(Paths::of));
        paths.sort_by(|(a, _), (b, _)| a.cmp(b));
        paths
    }

    /// All types in it.
    pub fn components<'a>(&'a self, catalog: &'a Catalog) -> Components<'a> {
        let mut components = Components::default();
        match self {
            Document::Plain { name } => match &**name {
                "api" => components.add_named(&format!("{META}APIVersions")),
                "apis" => components.add_named(&format!("{META}APIGroupList")),
                name if name.starts_with("apis/") => components.add_named(&format!("{META}APIGroup")),
                _ => {}
            },
            Document::Version { .. } => {
                components.add_named(&format!("{META}APIResourceList"));
                let needs =
                    [("delete", "DeleteOptions"), ("delete", "Status"), ("watch", "WatchEvent"), ("patch", "Patch")];
                for (verb, name) in needs {
                    if self.resources(catalog).any(|resource| resource.has_verb(verb)) {
                        components.add_named(&format!("{META}{name}"));
                    }
                }
                self.resources(catalog).for_each(|resource| components.add_resource(resource));
            }
        }
        components
    }

    /// Writes the document.
    pub fn write(&self, site: &Site<'_>, descriptions: &Descriptions, out: &mut dyn Write) -> io::Result<()> {
        let catalog = site.catalog;
        let versions: Vec<(&str, &str)> = self.version().into_iter().collect();
        let kinds = Kinds::new(&versions);
        let writer = Writer { kinds: &kinds, descriptions, site };
        write!(out, r#"{{"openapi":"3.0.0","info":{},"paths":"#, info())?;
        entries(out, self.paths(catalog).into_iter())?;
        out.write_all(br#","components":{"schemas":"#)?;
        let components = self.components(catalog);
        entries(out, components.iter().map(|(name, component)| (name.to_owned(), writer.component(name, component))))?;
        let security = json!({"BearerToken": {
            "type": "apiKey", "in": "header", "name": "authorization", "description": "a bearer token",
        }});
        write!(out, r#","securitySchemes":{security}}}}}"#)
    }
}

/// What a document is about.
pub fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.36"})
}

/// Writes an object whose values are made one by one.
pub fn entries(out: &mut dyn Write, all: impl Iterator<Item = (String, Value)>) -> io::Result<()> {
    out.write_all(b"{")?;
    for (at, (name, value)) in all.enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        serde_json::to_writer(&mut *out, &name)?;
        out.write_all(b":")?;
        serde_json::to_writer(&mut *out, &value)?;
    }
    out.write_all(b"}")
}
