//! Declared types: what a schema says of a value, beyond its CEL type.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::escape::RESERVED;
use crate::types::Type;

/// Largest request the API server takes, the bound of everything a schema leaves unbounded.
pub const MAX_REQUEST_SIZE: u64 = 3 * 1024 * 1024;

/// How two lists compare and add up (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListSemantics {
    /// Order matters.
    #[default]
    Atomic,
    /// Order does not matter; adding is union.
    Set,
    /// Items are identified by these properties; adding replaces items with equal keys.
    Map(Vec<String>),
}

/// A property of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name in JSON.
    pub property: String,
    /// Its type.
    pub decl: Arc<DeclType>,
    /// Whether the schema requires it.
    pub required: bool,
}

/// The shape of a declared type.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Anything.
    Dyn,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    /// A value of this CEL type that does not come from JSON or needs no schema.
    Plain(Type),
    /// `boolean`
    Bool,
    /// `integer`
    Int,
    /// `number`
    Double,
    /// `string`
    String,
    /// `string` with format `byte`: base64.
    Bytes,
    /// `string` with format `duration`.
    Duration,
    /// `string` with format `date`.
    Date,
    /// `string` with format `date-time`.
    DateTime,
    /// `array`
    List(Arc<DeclType>, ListSemantics),
    /// `object` with `additionalProperties`.
    Map(Arc<DeclType>),
    /// `object` with `properties`, by escaped name.
    Object(BTreeMap<String, Field>),
}

/// A CEL type with what a schema knows of it: bounds for the cost estimate, names in JSON.
#[derive(Clone, Debug)]
pub struct DeclType {
    name: String,
    kind: Kind,
    /// Bound of `size()`; zero where size means nothing.
    max_elements: u64,
    /// Fewest bytes a value takes in JSON.
    min_serialized: u64,
    nullable: bool,
}

/// The declared type that says nothing.
pub(crate) static DYN: LazyLock<DeclType> = LazyLock::new(DeclType::any);

impl DeclType {
    pub(crate) fn new(name: &str, kind: Kind, max_elements: u64, min_serialized: u64) -> Self {
        Self { name: name.to_owned(), kind, max_elements, min_serialized, nullable: false }
    }

    /// Anything at all.
    pub fn any() -> Self {
        Self::new("dyn", Kind::Dyn, MAX_REQUEST_SIZE, 1)
    }

    /// A value of a CEL type, unbounded.
    pub fn plain(t: Type) -> Self {
        match t {
            Type::Bool => Self::new("bool", Kind::Bool, 0, 4),
            Type::Int => Self::new("int", Kind::Int, 0, 1),
            Type::Double => Self::new("double", Kind::Double, 0, 1),
            Type::String => Self::new("string", Kind::String, MAX_REQUEST_SIZE - 2, 2),
            Type::Dyn => Self::any(),
            other => Self::new("value", Kind::Plain(other), MAX_REQUEST_SIZE, 1),
        }
    }

    /// A list.
    pub fn list(element: Arc<DeclType>, semantics: ListSemantics, max_items: Option<u64>) -> Self {
        let max = max_items.unwrap_or((MAX_REQUEST_SIZE - 2) / (element.min_serialized + 1));
        Self::new("list", Kind::List(element, semantics), max, 2)
    }

    /// A map from strings.
    pub fn map(value: Arc<DeclType>, max_properties: Option<u64>) -> Self {
        let max = max_properties.unwrap_or((MAX_REQUEST_SIZE - 2) / (value.min_serialized + 6));
        Self::new("map", Kind::Map(value), max, 2)
    }

    /// An object; `fields` are (name in JSON, type, required). Names are escaped here; a name
    /// that has no escape cannot be reached from CEL. Two objects of one name are one type.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, Arc<DeclType>, bool)>) -> Self {
        let fields = fields
            .into_iter()
            .filter_map(|(property, decl, required)| {
                let ident = crate::escape::escape(&property)?.into_owned();
                Some((ident, Field { property, decl, required }))
            })
            .collect();
        Self::new(name, Kind::Object(fields), 0, 2)
    }

    /// With this bound of `size()`.
    #[must_use]
    pub fn with_max_elements(mut self, max: u64) -> Self {
        self.max_elements = max;
        self
    }

    /// With this bound of the size in JSON.
    #[must_use]
    pub fn with_min_serialized(mut self, min: u64) -> Self {
        self.min_serialized = min;
        self
    }

    /// With or without null as a value.
    #[must_use]
    pub fn with_nullable(mut self, nullable: bool) -> Self {
        self.nullable = nullable;
        self
    }

    /// The type's name; for objects unique to the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Bound of `size()`.
    pub fn max_elements(&self) -> u64 {
        self.max_elements
    }

    /// Fewest bytes of JSON.
    pub fn min_serialized(&self) -> u64 {
        self.min_serialized
    }

    /// Whether null is a value of it.
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// How often a value of this type can occur in one request: the factor for rules under
    /// unbounded lists and maps.
    pub fn max_cardinality(&self) -> u64 {
        MAX_REQUEST_SIZE / (self.min_serialized + 1)
    }

    /// The field with this escaped name.
    pub fn field(&self, ident: &str) -> Option<&Field> {
        match &self.kind {
            // A field with a reserved name has that name, too, as it stands after a dot.
            Kind::Object(fields) => fields
                .get(ident)
                .or_else(|| RESERVED.contains(&ident).then(|| fields.get(&*format!("__{ident}__"))).flatten()),
            _ => None,
        }
    }

    /// The CEL type of a declared type.
    pub fn cel_type(self: &Arc<Self>) -> Type {
        match &self.kind {
            Kind::Dyn | Kind::IntOrString => Type::Dyn,
            Kind::Plain(t) => t.clone(),
            Kind::Bool => Type::Bool,
            Kind::Int => Type::Int,
            Kind::Double => Type::Double,
            Kind::String => Type::String,
            Kind::Bytes => Type::Bytes,
            Kind::Duration => Type::Duration,
            Kind::Date | Kind::DateTime => Type::Timestamp,
            Kind::List(e, _) => Type::list(e.cel_type()),
            Kind::Map(v) => Type::map(Type::String, v.cel_type()),
            Kind::Object(_) => Type::Object(self.clone()),
        }
    }
}
