//! A CustomResourceDefinition, read once for all requests about its objects.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use machinery::jsonpath::JsonPath;
use machinery::schema::Structural;
use machinery::version::by_preference;
use serde_json::{Value, json};

use super::Custom;
use super::charge::Charge;
use super::columns::Column;
use super::conversion::Webhook;
use super::rules::Rules;
use crate::catalog::table_name;
use crate::resource::{Nature, Resource, Subresource};

/// All versions of a custom resource.
#[derive(Debug)]
pub struct Definition {
    /// The name of the CustomResourceDefinition.
    pub name: String,
    /// The API group.
    pub group: String,
    /// The kind of its objects.
    pub kind: String,
    /// Objects written after this revision were written under these schemas.
    pub since: AtomicU64,
    /// All versions, served or not.
    pub versions: Vec<Version>,
    /// What its objects are charged by, besides their number.
    pub charge: Option<Charge>,
    /// Who converts its objects between versions, if it is not only their apiVersion that changes.
    pub webhook: Option<Webhook>,
    /// Whether it is being deleted, with all its objects.
    pub terminating: bool,
    /// Told when another definition takes its place, or none.
    pub superseded: Arc<tokio::sync::watch::Sender<bool>>,
    /// Whether discovery shows it: once its status says that it is served, after which nothing writes to it any more.
    pub announced: AtomicBool,
    /// The resources to serve, before their natures are known.
    names: Names,
    /// The CustomResourceDefinition as it is stored: what its schemas are read from when they are needed.
    stored: Bytes,
}

#[derive(Debug)]
struct Names {
    plural: String,
    singular: String,
    list_kind: String,
    short: Vec<Box<str>>,
    categories: Vec<Box<str>>,
    namespaced: bool,
}

/// One version.
#[derive(Debug)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Whether clients can use it.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// Whether the status is written on its own.
    pub status: bool,
    /// Replicas wanted, replicas counted, the selector: JSON pointers.
    pub scale: Option<(String, String, String)>,
    /// Table columns besides the name.
    pub columns: Vec<Column>,
    /// Fields that selectors may name.
    pub selectable: Vec<FieldPath>,
    /// The warning that using it gives.
    pub deprecation: Option<String>,
    /// The schema, once it was needed: most definitions of most servers have no objects in most of their versions.
    compiled: OnceLock<Compiled>,
}

/// A schema, ready for use.
#[derive(Debug)]
struct Compiled {
    structural: Structural,
    rules: Option<Rules>,
}

/// A field that selectors may name.
#[derive(Debug)]
pub struct FieldPath {
    /// As selectors write it: `spec.color`.
    pub name: String,
    path: Option<JsonPath>,
}

impl FieldPath {
    /// The field's value in an object, as text.
    pub fn text(&self, object: &Value) -> String {
        match self.path.as_ref().and_then(|path| path.first(object)).as_deref() {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        }
    }
}

fn strings(list: &Value) -> Vec<Box<str>> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}

/// `.spec.replicas` as `/spec/replicas`.
fn pointer(path: &Value) -> String {
    path.as_str().unwrap_or_default().replace('.', "/")
}

/// The version to use instead of a deprecated one: the preferred one of those that are served and not deprecated, if it is
/// preferred to it.
fn successor<'a>(versions: &'a Value, deprecated: &str) -> Option<&'a str> {
    let good = |version: &&Value| version["served"] == true && version["deprecated"] != true;
    let names = versions.as_array().into_iter().flatten().filter(good).filter_map(|version| version["name"].as_str());
    names.filter(|name| by_preference(name, deprecated).is_lt()).min_by(|a, b| by_preference(a, b))
}

impl Definition {
    /// Reads a CustomResourceDefinition that is stored like that. `since`: the revision from which on objects are written
    /// under it.
    pub fn read(crd: &Value, stored: Bytes, since: u64) -> Definition {
        let spec = &crd["spec"];
        let names = &spec["names"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, kind) = (text(&spec["group"]), text(&names["kind"]));
        let versions = spec["versions"].as_array().into_iter().flatten().map(|version| {
            let name = text(&version["name"]);
            let deprecation = version["deprecated"].as_bool().unwrap_or(false).then(|| {
                let own = version["deprecationWarning"].as_str().map(str::to_owned);
                own.unwrap_or_else(|| match successor(&spec["versions"], &name) {
                    Some(newer) => format!("{group}/{name} {kind} is deprecated; use {group}/{newer} {kind}"),
                    None => format!("{group}/{name} {kind} is deprecated"),
                })
            });
            let scale = &version["subresources"]["scale"];
            Version {
                served: version["served"].as_bool().unwrap_or(false),
                storage: version["storage"].as_bool().unwrap_or(false),
                status: version["subresources"].get("status").is_some_and(|status| !status.is_null()),
                scale: scale.is_object().then(|| {
                    (
                        pointer(&scale["specReplicasPath"]),
                        pointer(&scale["statusReplicasPath"]),
                        pointer(&scale["labelSelectorPath"]),
                    )
                }),
                columns: Column::read(&version["additionalPrinterColumns"]),
                selectable: version["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|field| {
                        let path = text(&field["jsonPath"]);
                        let name = path.trim_start_matches('.').to_owned();
                        FieldPath { name, path: JsonPath::parse(&path).ok() }
                    })
                    .collect(),
                deprecation,
                name,
                compiled: OnceLock::new(),
            }
        });
        Definition {
            name: text(&crd["metadata"]["name"]),
            charge: Charge::read(crd),
            webhook: None,
            terminating: crd["metadata"].get("deletionTimestamp").is_some(),
            superseded: Arc::new(tokio::sync::watch::channel(false).0),
            announced: super::check::is_established(crd).into(),
            since: since.into(),
            versions: versions.collect(),
            names: Names {
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                list_kind: text(&names["listKind"]),
                short: strings(&names["shortNames"]),
                categories: strings(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
            },
            group,
            kind,
            stored,
        }
    }

    /// The schema of a version, by its place.
    pub fn structural(&self, at: usize) -> &Structural {
        &self.compiled(at).structural
    }

    /// The CEL rules of a version, if its schema has any.
    pub fn rules(&self, at: usize) -> Option<&Rules> {
        self.compiled(at).rules.as_ref()
    }

    fn compiled(&self, at: usize) -> &Compiled {
        self.versions[at].compiled.get_or_init(|| {
            let crd: Value = serde_json::from_slice(&self.stored).unwrap_or_default();
            let empty = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let schema = crd["spec"]["versions"][at]["schema"].get("openAPIV3Schema").unwrap_or(&empty);
            Compiled {
                structural: Structural::trusted(schema, Some(crate::resource::object_meta())),
                rules: Rules::trusted(schema),
            }
        })
    }

    /// With the webhook that converts its objects, if it names one.
    #[must_use]
    pub fn converted_by(mut self, webhook: Option<Webhook>) -> Definition {
        self.webhook = webhook;
        self
    }

    /// `group/version` of a version, by its place.
    pub fn api_version(&self, at: usize) -> String {
        format!("{}/{}", self.group, self.versions[at].name)
    }

    /// The place of the version that objects are stored in.
    pub fn storage(&self) -> usize {
        self.versions.iter().position(|version| version.storage).unwrap_or(0)
    }

    /// The store's table of its objects.
    pub fn table(&self) -> String {
        table_name(&self.group, &self.names.plural)
    }

    /// The resources that it adds, one for each served version.
    pub fn resources(self: Arc<Self>) -> Vec<Arc<Resource>> {
        let served = (0..self.versions.len()).filter(|at| self.versions[*at].served);
        served.map(|at| Arc::new(self.resource(at))).collect()
    }

    /// The resource of one version, by its place.
    pub fn resource(self: &Arc<Self>, at: usize) -> Resource {
        let version = &self.versions[at];
        let verbs = |list: &[&str]| list.iter().map(|verb| (*verb).into()).collect::<Vec<Box<str>>>();
        let mut subresources = Vec::new();
        let own = |name: &str, group: &str, version: &str, kind: &str| Subresource {
            name: name.into(),
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            verbs: verbs(&["get", "patch", "update"]),
        };
        if version.status {
            subresources.push(own("status", &self.group, &version.name, &self.kind));
        }
        if version.scale.is_some() {
            subresources.push(own("scale", "autoscaling", "v1", "Scale"));
        }
        Resource {
            group: self.group.as_str().into(),
            version: version.name.as_str().into(),
            kind: self.kind.as_str().into(),
            list_kind: self.names.list_kind.as_str().into(),
            plural: self.names.plural.as_str().into(),
            singular: self.names.singular.as_str().into(),
            short_names: self.names.short.clone(),
            categories: self.names.categories.clone(),
            namespaced: self.names.namespaced,
            verbs: verbs(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
            subresources,
            table: self.table().into(),
            nature: Nature::Custom(Arc::new(Custom::new(self.clone(), at))),
        }
    }
}
