//! Types as OpenAPI v3 writes them: the named ones of built-in kinds refer to each other, those of custom resources stand
//! where they are used.

use std::borrow::Cow;
use std::collections::BTreeMap;

use machinery::schema::{Field, ListKind, Opaque, Schema, Shape, Text};
use serde_json::{Map, Value, json};

use super::Site;
use super::descriptions::Descriptions;
use super::marks;
use crate::resource::{Nature, Resource};

/// Where components are in a document.
pub const COMPONENTS: &str = "#/components/schemas/";
/// Which fields of a custom resource field selectors may name.
pub const SELECTABLE: &str = "x-kubernetes-selectable-fields";

pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// A named type of a document.
#[derive(Clone, Copy)]
pub enum Component<'a> {
    /// An object of a built-in kind.
    Type(Schema<'a>),
    /// A type that Kubernetes writes in a way of its own.
    Special(Special),
    /// A custom resource.
    Custom(&'a Resource),
    /// A list of custom resources.
    CustomList(&'a Resource),
}

/// Types that are no plain objects and still have a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Special {
    Quantity,
    Time,
    MicroTime,
    Duration,
    IntOrString,
    Raw,
    Json,
    Fields,
    SchemaOrBool,
    SchemaOrList,
    SchemaOrStrings,
    Patch,
}

impl Special {
    fn of(schema: Schema<'_>) -> Option<Special> {
        Some(match (schema.shape(), schema.node().opaque) {
            (Shape::String(Text::Quantity), _) => Special::Quantity,
            (Shape::String(Text::Time), _) => Special::Time,
            (Shape::String(Text::MicroTime), _) => Special::MicroTime,
            (Shape::String(Text::Duration), _) => Special::Duration,
            (Shape::IntOrString, _) => Special::IntOrString,
            (_, Opaque::Raw) => Special::Raw,
            (_, Opaque::Json) => Special::Json,
            (_, Opaque::Fields) => Special::Fields,
            (_, Opaque::SchemaOrBool(_)) => Special::SchemaOrBool,
            (_, Opaque::SchemaOrList(_)) => Special::SchemaOrList,
            (_, Opaque::SchemaOrStrings(_)) => Special::SchemaOrStrings,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Special::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
            Special::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            Special::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            Special::Duration => "io.k8s.apimachinery.pkg.apis.meta.v1.Duration",
            Special::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            Special::Raw => "io.k8s.apimachinery.pkg.runtime.RawExtension",
            Special::Json => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
            Special::Fields => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
            Special::SchemaOrBool => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
            Special::SchemaOrList => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
            Special::SchemaOrStrings => {
                "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
            }
            Special::Patch => PATCH,
        }
    }

    fn schema(self) -> Value {
        match self {
            Special::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            Special::Time | Special::MicroTime => json!({"type": "string", "format": "date-time"}),
            Special::Duration => json!({"type": "string"}),
            Special::IntOrString => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            Special::Raw | Special::Fields | Special::Patch => json!({"type": "object"}),
            Special::Json | Special::SchemaOrBool | Special::SchemaOrList | Special::SchemaOrStrings => json!({}),
        }
    }
}

/// All named types that some types need, themselves included.
#[derive(Default)]
pub struct Components<'a>(BTreeMap<String, Component<'a>>);

impl<'a> Components<'a> {
    /// Adds a built-in kind.
    pub fn add_kind(&mut self, group: &str, version: &str, kind: &str) {
        if let Some(schema) = kinds::schema_of(group, version, kind) {
            self.walk(schema);
        }
    }

    /// Adds a type by name.
    pub fn add_named(&mut self, name: &str) {
        if name == PATCH {
            self.0.insert(PATCH.into(), Component::Special(Special::Patch));
        } else if let Some(schema) = kinds::type_named(name) {
            self.walk(schema);
        }
    }

    /// Adds what a resource and its subresources take and give.
    pub fn add_resource(&mut self, resource: &'a Resource) {
        match &resource.nature {
            Nature::BuiltIn(_) => {
                self.walk(resource.schema());
                self.add_kind(&resource.group, &resource.version, &resource.list_kind);
            }
            Nature::Custom(_) => {
                self.0.insert(component_name(resource), Component::Custom(resource));
                self.0.insert(list_name(resource), Component::CustomList(resource));
                [OBJECT_META, LIST_META].iter().for_each(|name| self.add_named(name));
            }
        }
        for sub in &resource.subresources {
            // Options of connections are query parameters.
            if !sub.kind.ends_with("Options") && *sub.kind != *resource.kind {
                self.add_kind(&sub.group, &sub.version, &sub.kind);
            }
        }
    }

    fn walk(&mut self, schema: Schema<'a>) {
        // Types refer to each other in circles; a name that is there was walked before.
        let mut waiting = vec![schema];
        while let Some(schema) = waiting.pop() {
            if let Some(special) = Special::of(schema) {
                self.0.insert(special.name().to_owned(), Component::Special(special));
                if let Opaque::SchemaOrBool(id) | Opaque::SchemaOrList(id) | Opaque::SchemaOrStrings(id) =
                    schema.node().opaque
                {
                    waiting.push(schema.at(id));
                }
                continue;
            }
            match schema.shape() {
                Shape::Object(fields) => {
                    if let Some(name) = schema.name()
                        && self.0.insert(name.to_owned(), Component::Type(schema)).is_some()
                    {
                        continue;
                    }
                    waiting.extend(fields.iter().map(|field| schema.at(field.schema)));
                }
                Shape::Map(of) | Shape::List { items: of, .. } => waiting.push(schema.at(*of)),
                _ => {}
            }
        }
    }

    /// The types by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Component<'a>)> {
        self.0.iter().map(|(name, component)| (name.as_str(), *component))
    }

    /// Takes all of another set.
    pub fn extend(&mut self, other: Components<'a>) {
        self.0.extend(other.0);
    }
}

/// The name of a resource's type: of custom resources the group read backwards, the version and the kind.
pub fn component_name(resource: &Resource) -> String {
    match &resource.nature {
        Nature::BuiltIn(_) => resource.schema().name().unwrap_or_default().to_owned(),
        Nature::Custom(_) => custom_name(resource, &resource.kind),
    }
}

/// The name of the type of a resource's lists.
pub fn list_name(resource: &Resource) -> String {
    match &resource.nature {
        Nature::BuiltIn(_) => kinds::schema_of(&resource.group, &resource.version, &resource.list_kind)
            .and_then(|schema| schema.name())
            .unwrap_or_default()
            .to_owned(),
        Nature::Custom(_) => custom_name(resource, &resource.list_kind),
    }
}

fn custom_name(resource: &Resource, kind: &str) -> String {
    let mut labels: Vec<&str> = resource.group.rsplit('.').collect();
    labels.extend([&*resource.version, kind]);
    labels.join(".")
}

/// Which kinds a type is known as: `[(group, version, kind)]`, by the type's name. Made once for each document.
pub struct Kinds(BTreeMap<&'static str, Vec<Value>>);

impl Kinds {
    /// With these group versions, which have all the options of requests, too.
    pub fn new(versions: &[(&str, &str)]) -> Kinds {
        let mut all: BTreeMap<&'static str, Vec<Value>> = BTreeMap::new();
        // What is in every group is listed under the core group.
        for (group, version, kind, id) in kinds::kinds().filter(|(group, ..)| *group != "meta.k8s.io") {
            let Some(name) = kinds::type_name(id) else { continue };
            let entries = all.entry(name).or_default();
            entries.push(json!({"group": group, "version": version, "kind": kind}));
            if matches!(kind, "DeleteOptions" | "WatchEvent") {
                let others = versions.iter().filter(|other| **other != (group, version));
                entries
                    .extend(others.map(|(group, version)| json!({"group": group, "version": version, "kind": kind})));
            }
        }
        Kinds(all)
    }
}

/// Writes types.
pub struct Writer<'a> {
    pub kinds: &'a Kinds,
    pub descriptions: &'a Descriptions,
    pub site: &'a Site<'a>,
}

impl Writer<'_> {
    /// A named type.
    pub fn component(&self, name: &str, component: Component<'_>) -> Value {
        let mut schema = match component {
            Component::Type(schema) => self.object(name, schema),
            Component::Special(special) => special.schema(),
            Component::Custom(resource) => return self.custom(resource),
            Component::CustomList(resource) => return self.custom_list(resource),
        };
        if let Some(fields) = schema.as_object_mut() {
            if let Some(text) = self.descriptions.of_type(name) {
                fields.insert("description".into(), text.into());
            } else if let Some((_, kind)) = name.rsplit_once('.')
                && let Some(kind) = kind.strip_suffix("List")
            {
                fields.insert("description".into(), format!("A list of objects of kind {kind}.").into());
            }
            if let Some(kinds) = self.kinds.0.get(name) {
                fields.insert("x-kubernetes-group-version-kind".into(), kinds.clone().into());
            }
        }
        schema
    }

    fn object(&self, name: &str, schema: Schema<'_>) -> Value {
        let Shape::Object(fields) = schema.shape() else { return json!({"type": "object"}) };
        let mut ordered: Vec<&Field> = fields.iter().collect();
        ordered.sort_by_key(|field| field.order);
        let required: Vec<&str> = ordered.iter().filter(|field| field.required).map(|field| &*field.name).collect();
        let mut properties = Map::new();
        for field in fields {
            properties.insert(field.name.to_string(), self.field(name, schema, field));
        }
        let mut object = json!({"type": "object"});
        if !properties.is_empty() {
            object["properties"] = properties.into();
        }
        if !required.is_empty() {
            object["required"] = json!(required);
        }
        // Where it is used, it may be seen as parts.
        if schema.node().atomic || kinds::type_named(name).is_some_and(|own| own.node().atomic) {
            object["x-kubernetes-map-type"] = "atomic".into();
        }
        if let Some(unions) = marks::unions(name) {
            object["x-kubernetes-unions"] = unions;
        }
        object
    }

    fn field(&self, owner: &str, object: Schema<'_>, field: &Field) -> Value {
        let schema = object.at(field.schema);
        let mut beside = Map::new();
        if let Some(text) = self.describe(owner, &field.name) {
            let values = schema.node().rules.as_ref().and_then(|rules| rules.enumeration.as_deref());
            beside.insert("description".into(), format!("{text}{}", possible(values.unwrap_or_default())).into());
        }
        if let Some(default) = field.default.clone().or_else(|| zero(schema, field.omit_empty, field.pointer)) {
            beside.insert("default".into(), default);
        }
        let merge = &field.merge;
        let strategy = match (merge.merge, merge.retain_keys) {
            (true, true) => "merge,retainKeys",
            (true, false) => "merge",
            (false, true) => "retainKeys",
            (false, false) => "",
        };
        if !strategy.is_empty() {
            beside.insert("x-kubernetes-patch-strategy".into(), strategy.into());
        }
        if let Some(key) = &merge.key {
            beside.insert("x-kubernetes-patch-merge-key".into(), (&**key).into());
        }
        marks::of_field(owner, &field.name, schema, &mut beside);
        self.used(schema, beside)
    }

    /// A field's description; the fields that all kinds and all lists share have the same everywhere.
    fn describe(&self, owner: &str, field: &str) -> Option<Cow<'_, str>> {
        let said = |owner: &str| self.descriptions.of_field(owner, field).map(Cow::Borrowed);
        said(owner).or_else(|| match (field, owner.strip_suffix("List")) {
            ("apiVersion" | "kind", _) => said("io.k8s.api.core.v1.ConfigMap"),
            ("items", Some(item)) => {
                let kind = marks::last(item);
                let resource = kinds::resources().iter().find(|own| own.kind == kind);
                Some(format!("List of {}", resource.map_or("objects", |own| own.plural)).into())
            }
            ("metadata", Some(_)) => Some("About the list.".into()),
            _ => None,
        })
    }

    /// A type where it is used, with what is said about that use.
    fn used(&self, schema: Schema<'_>, mut beside: Map<String, Value>) -> Value {
        let name = match Special::of(schema) {
            Some(special) => Some(special.name()),
            None => schema.name().filter(|_| matches!(schema.shape(), Shape::Object(_))),
        };
        if let Some(name) = name {
            // A use may see as parts what the type itself says is one value.
            if kinds::type_named(name).is_some_and(|own| own.node().atomic && !schema.node().atomic) {
                beside.insert("x-kubernetes-map-type".into(), "granular".into());
            }
            let reference = json!({"$ref": format!("{COMPONENTS}{name}")});
            if beside.is_empty() {
                return reference;
            }
            // What stands beside a reference is not read.
            beside.insert("allOf".into(), json!([reference]));
            return beside.into();
        }
        let mut put = |key: &str, value: Value| beside.insert(key.into(), value);
        let of_item = |schema: Schema<'_>| {
            let default = zero(schema, false, false).map(|zero| ("default".to_owned(), zero));
            self.used(schema, default.into_iter().collect())
        };
        match schema.shape() {
            Shape::Object(_) => {
                put("type", "object".into());
            }
            Shape::Map(values) => {
                put("type", "object".into());
                put("additionalProperties", of_item(schema.at(*values)));
                if schema.node().atomic {
                    put("x-kubernetes-map-type", "atomic".into());
                }
            }
            Shape::List { items, list } => {
                put("type", "array".into());
                put("items", of_item(schema.at(*items)));
                list_kind(list, &mut put);
            }
            other => scalar(other, &mut put),
        }
        if let Some(values) = schema.node().rules.as_ref().and_then(|rules| rules.enumeration.clone()) {
            put("enum", values.into());
        }
        beside.into()
    }

    fn custom(&self, resource: &Resource) -> Value {
        let mut schema = (self.site.custom)(resource);
        if !schema.is_object() {
            schema = json!({});
        }
        super::custom::embed(&mut schema, 0);
        schema["type"] = "object".into();
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        self.type_meta(&mut schema["properties"]);
        let mut metadata = json!({"allOf": [{"$ref": format!("{COMPONENTS}{OBJECT_META}")}]});
        if let Some(text) = self.describe("io.k8s.api.core.v1.ConfigMap", "metadata") {
            metadata["description"] = text.into_owned().into();
        }
        schema["properties"]["metadata"] = metadata;
        schema["x-kubernetes-group-version-kind"] = gvks(resource, &resource.kind);
        selectable(resource, &mut schema);
        schema
    }

    fn custom_list(&self, resource: &Resource) -> Value {
        let mut properties = json!({
            "items": {
                "description": format!("List of {}", resource.plural),
                "type": "array",
                "items": {"$ref": format!("{COMPONENTS}{}", component_name(resource))},
            },
            "metadata": {"allOf": [{"$ref": format!("{COMPONENTS}{LIST_META}")}], "description": "About the list."},
        });
        self.type_meta(&mut properties);
        let mut list = json!({
            "description": format!("A list of {}.", resource.kind),
            "type": "object",
            "required": ["items"],
            "properties": properties,
            "x-kubernetes-group-version-kind": gvks(resource, &resource.list_kind),
        });
        selectable(resource, &mut list);
        list
    }

    /// apiVersion and kind, described as those of built-in kinds are.
    fn type_meta(&self, properties: &mut Value) {
        for field in ["apiVersion", "kind"] {
            properties[field] = json!({"type": "string"});
            if let Some(text) = self.describe("", field) {
                properties[field]["description"] = text.into();
            }
        }
    }
}

/// The values a field can have, for people.
fn possible(values: &[Value]) -> String {
    let values: String = values.iter().map(|value| format!("\n - `{value}`")).collect();
    if values.is_empty() { values } else { format!("\n\nPossible enum values:{values}") }
}

fn gvks(resource: &Resource, kind: &str) -> Value {
    json!([{"group": &*resource.group, "version": &*resource.version, "kind": kind}])
}

/// The default that follows from the type: what Go has when nothing is given.
fn zero(schema: Schema<'_>, omit_empty: bool, pointer: bool) -> Option<Value> {
    if pointer || Special::of(schema).is_some() {
        return None;
    }
    match schema.shape() {
        Shape::Object(_) => Some(json!({})),
        _ if omit_empty => None,
        Shape::String(Text::Plain) => Some("".into()),
        Shape::Integer { .. } | Shape::Number => Some(0.into()),
        Shape::Boolean => Some(false.into()),
        _ => None,
    }
}

/// Says which fields of a custom resource field selectors may name.
fn selectable(resource: &Resource, schema: &mut Value) {
    let Nature::Custom(custom) = &resource.nature else { return };
    let fields: Vec<Value> = custom.selectable().map(|field| json!({"fieldPath": field})).collect();
    if !fields.is_empty() {
        schema[SELECTABLE] = fields.into();
    }
}

pub(super) fn list_kind(list: &ListKind, put: &mut impl FnMut(&str, Value) -> Option<Value>) {
    match list {
        ListKind::Atomic => {}
        ListKind::Set => {
            put("x-kubernetes-list-type", "set".into());
        }
        ListKind::Map(keys) => {
            put("x-kubernetes-list-type", "map".into());
            put("x-kubernetes-list-map-keys", keys.iter().map(|key| Value::from(&**key)).collect());
        }
    }
}

fn scalar(shape: &Shape, put: &mut impl FnMut(&str, Value) -> Option<Value>) {
    let (kind, format) = match shape {
        Shape::String(Text::Bytes) => ("string", "byte"),
        Shape::String(_) => ("string", ""),
        Shape::Integer { bits: 32 } => ("integer", "int32"),
        Shape::Integer { .. } => ("integer", "int64"),
        Shape::Number => ("number", "double"),
        Shape::Boolean => ("boolean", ""),
        _ => return,
    };
    put("type", kind.into());
    if !format.is_empty() {
        put("format", format.into());
    }
}
