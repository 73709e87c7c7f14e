//! Paths and what can be done there, in the form of OpenAPI v3.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::parameters::{self, Parameter};
use super::schemas::{COMPONENTS, PATCH, component_name, list_name};
use crate::resource::{Resource, Subresource};

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Kinds whose deletion answers with the object.
const GIVES_OBJECT_WHEN_DELETED: &[(&str, &str)] = &[
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "PodTemplate"),
    ("", "ResourceQuota"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceClaim"),
    ("resource.k8s.io", "ResourceClaimTemplate"),
    ("resource.k8s.io", "ResourceSlice"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];

/// One path with its operations by method.
struct Item {
    parameters: Vec<Parameter>,
    operations: BTreeMap<&'static str, Operation>,
}

struct Operation {
    parameters: Vec<Parameter>,
    json: Value,
}

impl Item {
    fn new(parameters: impl IntoIterator<Item = Parameter>) -> Item {
        Item { parameters: parameters.into_iter().collect(), operations: BTreeMap::new() }
    }

    fn add(&mut self, method: &'static str, parameters: Vec<Parameter>, json: Value) {
        self.operations.insert(method, Operation { parameters, json });
    }

    /// What all operations have in common is said once, at the path.
    fn json(mut self) -> Option<Value> {
        let first = self.operations.values().next()?.parameters.clone();
        let common: Vec<Parameter> = first
            .into_iter()
            .filter(|one| self.operations.values().all(|operation| operation.parameters.contains(one)))
            .collect();
        let write = |mut all: Vec<Parameter>| -> Option<Value> {
            all.sort();
            (!all.is_empty()).then(|| all.iter().map(Parameter::json).collect())
        };
        let mut item = Map::new();
        for (method, mut operation) in self.operations {
            operation.parameters.retain(|one| !common.contains(one));
            if let Some(parameters) = write(operation.parameters) {
                operation.json["parameters"] = parameters;
            }
            item.insert(method.into(), operation.json);
        }
        self.parameters.extend(common);
        if let Some(parameters) = write(self.parameters) {
            item.insert("parameters".into(), parameters);
        }
        Some(item.into())
    }
}

/// What an answer or a request body holds.
#[derive(Clone, Copy)]
enum Content<'a> {
    Type(&'a str),
    Text,
}

/// The names of a group and version in operations: `CoreV1` and `core_v1`.
pub struct GroupVersion {
    pub title: String,
    pub tag: String,
}

impl GroupVersion {
    pub fn new(group: &str, version: &str) -> GroupVersion {
        let title = format!("{}{}", Self::group_title(group), capitalized(version));
        GroupVersion { tag: format!("{}_{version}", Self::group_tag(group)), title }
    }

    /// `RbacAuthorization`.
    pub fn group_title(group: &str) -> String {
        let short = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
        short.split(['.', '-']).map(capitalized).collect()
    }

    /// `rbacAuthorization`.
    pub fn group_tag(group: &str) -> String {
        uncapitalized(&Self::group_title(group))
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn uncapitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A document's only path: discovery and the like.
pub fn plain(id: &str, description: &str, tag: &str, content: Option<&str>) -> Value {
    let types: &[&str] = match content {
        Some(_) => &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"],
        None => &["application/json"],
    };
    let content = content.map_or(Content::Text, Content::Type);
    json!({"get": {
        "operationId": id, "description": description, "tags": [tag],
        "responses": {"200": response(content, types), "401": {"description": "Unauthorized"}},
    }})
}

fn schema(content: Content<'_>) -> Value {
    match content {
        Content::Type(name) => json!({"$ref": format!("{COMPONENTS}{name}")}),
        Content::Text => json!({"type": "string"}),
    }
}

fn response(content: Content<'_>, types: &[&str]) -> Value {
    let types: Map<String, Value> = types.iter().map(|of| ((*of).into(), json!({"schema": schema(content)}))).collect();
    json!({"description": "OK", "content": types})
}

/// Everything at one resource.
pub struct Paths<'a> {
    resource: &'a Resource,
    base: String,
    names: GroupVersion,
    own: String,
    list: String,
    found: Vec<(String, Value)>,
}

impl<'a> Paths<'a> {
    /// All paths of a resource, its subresources included.
    pub fn of(resource: &'a Resource) -> Vec<(String, Value)> {
        let mut paths = Paths {
            resource,
            base: match &*resource.group {
                "" => format!("/api/{}", resource.version),
                group => format!("/apis/{group}/{}", resource.version),
            },
            names: GroupVersion::new(&resource.group, &resource.version),
            own: component_name(resource),
            list: list_name(resource),
            found: Vec::new(),
        };
        paths.collections();
        paths.item();
        for sub in &resource.subresources {
            paths.subresource(sub);
        }
        if resource.has_verb("watch") {
            paths.watches();
        }
        paths.found
    }

    fn put(&mut self, path: String, item: Item) {
        if let Some(json) = item.json() {
            self.found.push((format!("{}{path}", self.base), json));
        }
    }

    /// `/namespaces/{namespace}` where there is one.
    fn place(&self) -> &'static str {
        if self.resource.namespaced { "/namespaces/{namespace}" } else { "" }
    }

    fn place_parameters(&self) -> Vec<Parameter> {
        if self.resource.namespaced { vec![parameters::namespace()] } else { Vec::new() }
    }

    /// `NamespacedPod`.
    fn title(&self) -> String {
        let scope = if self.resource.namespaced { "Namespaced" } else { "" };
        format!("{scope}{}", self.resource.kind)
    }

    /// The content types of answers.
    fn types(&self, stream: bool) -> &'static [&'static str] {
        match (self.resource.is_custom(), stream) {
            (true, _) => &["application/json", "application/yaml"],
            (false, false) => &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"],
            (false, true) => &[
                "application/json",
                "application/json;stream=watch",
                "application/vnd.kubernetes.protobuf",
                "application/vnd.kubernetes.protobuf;stream=watch",
                "application/yaml",
            ],
        }
    }

    fn operation(&self, id: String, action: &str, what: &str) -> Value {
        json!({
            "operationId": id,
            "description": what,
            "tags": [self.names.tag],
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": &*self.resource.group, "version": &*self.resource.version, "kind": &*self.resource.kind,
            },
            "responses": {"401": {"description": "Unauthorized"}},
        })
    }

    fn answers(&self, operation: &mut Value, codes: &[&str], content: Content<'_>, stream: bool) {
        for code in codes {
            operation["responses"][*code] = response(content, self.types(stream));
        }
    }

    fn takes(operation: &mut Value, name: &str, required: bool) {
        operation["requestBody"] = json!({"content": {"*/*": {"schema": schema(Content::Type(name))}}});
        if required {
            operation["requestBody"]["required"] = true.into();
        }
    }

    fn collections(&mut self) {
        let (resource, kind) = (self.resource, &self.resource.kind);
        let (title, gv) = (self.title(), self.names.title.clone());
        let mut item = Item::new(self.place_parameters().into_iter().chain([parameters::pretty()]));
        if resource.has_verb("list") {
            let mut operation =
                self.operation(format!("list{gv}{title}"), "list", &format!("list or watch objects of kind {kind}"));
            self.answers(&mut operation, &["200"], Content::Type(&self.list), true);
            item.add("get", parameters::list(), operation.clone());
            if resource.namespaced {
                operation["operationId"] = format!("list{gv}{kind}ForAllNamespaces").into();
                let mut everywhere = Item::new([parameters::pretty()]);
                everywhere.add("get", parameters::list(), operation);
                self.put(format!("/{}", resource.plural), everywhere);
            }
        }
        if resource.has_verb("create") {
            let mut operation = self.operation(format!("create{gv}{title}"), "post", &format!("create a {kind}"));
            Self::takes(&mut operation, &self.own, true);
            self.answers(&mut operation, &["200", "201", "202"], Content::Type(&self.own), false);
            item.add("post", parameters::write(), operation);
        }
        if resource.has_verb("deletecollection") {
            let id = format!("delete{gv}Collection{title}");
            let mut operation = self.operation(id, "deletecollection", &format!("delete many objects of kind {kind}"));
            Self::takes(&mut operation, DELETE_OPTIONS, false);
            self.answers(&mut operation, &["200"], Content::Type(STATUS), false);
            item.add("delete", parameters::delete_collection(), operation);
        }
        self.put(format!("{}/{}", self.place(), resource.plural), item);
    }

    fn item(&mut self) {
        let kind = &self.resource.kind;
        let mut item = self.item_at();
        let own = self.own.clone();
        self.reads_and_writes(&mut item, &self.resource.verbs, "", &own);
        if self.resource.has_verb("delete") {
            let id = format!("delete{}{}", self.names.title, self.title());
            let mut operation = self.operation(id, "delete", &format!("delete a {kind}"));
            Self::takes(&mut operation, DELETE_OPTIONS, false);
            let gives = match GIVES_OBJECT_WHEN_DELETED.contains(&self.resource.gk()) {
                true => &own,
                false => STATUS,
            };
            self.answers(&mut operation, &["200", "202"], Content::Type(gives), false);
            item.add("delete", parameters::delete(), operation);
        }
        self.put(format!("{}/{}/{{name}}", self.place(), self.resource.plural), item);
    }

    fn item_at(&self) -> Item {
        let mut item = Item::new(self.place_parameters());
        item.parameters.extend([parameters::name(&self.resource.kind), parameters::pretty()]);
        item
    }

    /// Reading, replacing and patching an object or a part of it.
    fn reads_and_writes(&self, item: &mut Item, verbs: &[Box<str>], part: &str, content: &str) {
        let (kind, gv) = (&self.resource.kind, &self.names.title);
        let has = |verb: &str| verbs.iter().any(|own| **own == *verb);
        let title = format!("{}{}", self.title(), capitalized(part));
        let what = if part.is_empty() { format!("a {kind}") } else { format!("{part} of a {kind}") };
        if has("get") {
            let mut operation = self.operation(format!("read{gv}{title}"), "get", &format!("read {what}"));
            self.answers(&mut operation, &["200"], Content::Type(content), false);
            item.add("get", Vec::new(), operation);
        }
        if has("update") {
            let mut operation = self.operation(format!("replace{gv}{title}"), "put", &format!("replace {what}"));
            Self::takes(&mut operation, content, true);
            self.answers(&mut operation, &["200", "201"], Content::Type(content), false);
            item.add("put", parameters::write(), operation);
        }
        if has("patch") {
            let mut operation = self.operation(format!("patch{gv}{title}"), "patch", &format!("change {what}"));
            let mut types = vec!["application/apply-patch+yaml", "application/json-patch+json"];
            types.push("application/merge-patch+json");
            if !self.resource.is_custom() {
                types.push("application/strategic-merge-patch+json");
            }
            let mut body = response(Content::Type(PATCH), &types);
            body["required"] = true.into();
            if let Some(body) = body.as_object_mut() {
                body.remove("description");
            }
            operation["requestBody"] = body;
            self.answers(&mut operation, &["200", "201"], Content::Type(content), false);
            item.add("patch", parameters::patch(), operation);
        }
    }

    fn subresource(&mut self, sub: &Subresource) {
        if sub.kind.ends_with("Options") {
            return self.connection(sub);
        }
        let (group, version) = if sub.group.is_empty() && sub.version.is_empty() {
            (&self.resource.group, &self.resource.version)
        } else {
            (&sub.group, &sub.version)
        };
        let content = match *sub.kind == *self.resource.kind && group == &self.resource.group {
            true => self.own.clone(),
            false => kinds::schema_of(group, version, &sub.kind)
                .and_then(|schema| schema.name())
                .unwrap_or(&self.own)
                .to_owned(),
        };
        let mut item = self.item_at();
        if &*sub.name == "log" {
            item.parameters.extend(parameters::of_options("", "v1", "PodLogOptions"));
        }
        self.reads_and_writes(&mut item, &sub.verbs, &sub.name, &content);
        if sub.verbs.iter().any(|verb| &**verb == "create") {
            let id = format!("create{}{}{}", self.names.title, self.title(), capitalized(&sub.name));
            let what = format!("create {} of a {}", sub.name, self.resource.kind);
            let mut operation = self.operation(id, "post", &what);
            Self::takes(&mut operation, &content, true);
            self.answers(&mut operation, &["200", "201", "202"], Content::Type(&content), false);
            item.add("post", parameters::write(), operation);
        }
        for operation in item.operations.values_mut() {
            operation.json["x-kubernetes-group-version-kind"] =
                json!({"group": &**group, "version": &**version, "kind": &*sub.kind});
            if &*sub.name == "log" {
                let types =
                    ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "text/plain"];
                operation.json["responses"]["200"] = response(Content::Text, &types);
            }
        }
        self.put(format!("{}/{}/{{name}}/{}", self.place(), self.resource.plural, sub.name), item);
    }

    /// A part that is connected to, with any method.
    fn connection(&mut self, sub: &Subresource) {
        const METHODS: [(&str, &str); 7] = [
            ("get", "get"),
            ("put", "update"),
            ("post", "create"),
            ("delete", "delete"),
            ("patch", "patch"),
            // A proxy passes all methods on.
            ("head", "delete"),
            ("options", "delete"),
        ];
        let options = parameters::of_options(&sub.group, &sub.version, &sub.kind);
        let path = format!("{}/{}/{{name}}/{}", self.place(), self.resource.plural, sub.name);
        let with_path = &*sub.name == "proxy";
        for (suffix, end) in [("", ""), ("WithPath", "/{path}")].into_iter().take(1 + usize::from(with_path)) {
            let mut item = self.item_at();
            item.parameters.retain(|one| one.name != "pretty");
            item.parameters.extend(options.iter().cloned());
            if !suffix.is_empty() {
                item.parameters.push(parameters::rest_of_path());
            }
            for (method, verb) in METHODS {
                if !sub.verbs.iter().any(|own| **own == *verb) {
                    continue;
                }
                let part = capitalized(&sub.name);
                let id = format!("connect{}{}{}{part}{suffix}", self.names.title, capitalized(method), self.title());
                let what = format!("connect to {} of a {}", sub.name, self.resource.kind);
                let mut operation = self.operation(id, "connect", &what);
                operation["x-kubernetes-group-version-kind"] =
                    json!({"group": &*sub.group, "version": &*sub.version, "kind": &*sub.kind});
                operation["responses"]["200"] = response(Content::Text, &["*/*"]);
                item.add(method, Vec::new(), operation);
            }
            self.put(format!("{path}{end}"), item);
        }
    }

    /// The old paths of watches.
    fn watches(&mut self) {
        let (resource, kind, gv) = (self.resource, &self.resource.kind, self.names.title.clone());
        let (place, plural) = (self.place(), &resource.plural);
        let title = self.title();
        let mut all = vec![
            (format!("/watch{place}/{plural}"), format!("watch{gv}{title}List"), "watchlist", self.place_parameters()),
            (format!("/watch{place}/{plural}/{{name}}"), format!("watch{gv}{title}"), "watch", {
                let mut all = self.place_parameters();
                all.push(parameters::name(kind));
                all
            }),
        ];
        if resource.namespaced {
            let id = format!("watch{gv}{kind}ListForAllNamespaces");
            all.push((format!("/watch/{plural}"), id, "watchlist", Vec::new()));
        }
        for (path, id, action, more) in all {
            let mut item = Item::new(more.into_iter().chain([parameters::pretty()]));
            let what = format!("old form of the watch of {plural}: use the parameter watch with a list");
            let mut operation = self.operation(id, action, &what);
            self.answers(&mut operation, &["200"], Content::Type(WATCH_EVENT), true);
            item.add("get", parameters::list(), operation);
            self.put(path, item);
        }
    }
}
