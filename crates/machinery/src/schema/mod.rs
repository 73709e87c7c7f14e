//! The one schema model: of built-in kinds (from a generated table) and of custom resources (from their CRD).
//!
//! All types of a set live in one arena, [`Types`]; a [`Schema`] is a cheap handle to one of them. A type that contains
//! itself is therefore no problem, and a large CRD costs little more than its text.

mod decode;
mod defaults;
mod encode;
mod pattern;
pub mod protobuf;
mod structural;
mod text;

use serde_json::Value;

pub use decode::{DecodeError, Decoded, MAX_DEPTH, Said, decode, zero};
pub use defaults::apply_openapi_defaults;
pub use encode::{encode, encode_object};
pub use pattern::Pattern;
pub use structural::{
    Before, BeforeItems, Expressions, Keyed, Structural, StructuralOptions, field_path, unrecognized_formats,
};

/// The number of a type in its [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u32);

/// An arena of types.
#[derive(Debug, Default)]
pub struct Types {
    nodes: Vec<Node>,
}

/// One type.
#[derive(Clone, Debug)]
pub struct Node {
    /// Built-in kinds: its full name, `io.k8s.api.core.v1.PodSpec`.
    pub name: Option<Box<str>>,
    /// What values look like.
    pub shape: Shape,
    /// What is behind [`Shape::Any`].
    pub opaque: Opaque,
    /// Built-in kinds: protobuf wraps the list in a message of its own.
    pub wrapped: bool,
    /// Custom resources: an explicit null is a value of its own and is kept.
    pub nullable: bool,
    /// Custom resources: the shape says which rules apply to a value of that type, but a value may be of any type.
    pub untyped: bool,
    /// Fields that the schema does not know are kept, not pruned (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// A whole object with apiVersion, kind and metadata (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// Server-side apply treats the map, object or list as one value.
    pub atomic: bool,
    /// Custom resources: what else a value must satisfy. Built-in kinds have their enumerations here, for OpenAPI only.
    pub rules: Option<Box<Rules>>,
}

/// What the values of a type look like.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Any JSON.
    Any,
    /// A fixed set of fields, sorted by name (binary search); [`Field::order`] is the order they are written in.
    Object(Vec<Field>),
    /// Any keys, values of one type.
    Map(Id),
    /// A list.
    List {
        /// The type of its items.
        items: Id,
        /// How server-side apply and validation see its items.
        list: ListKind,
    },
    /// A string.
    String(Text),
    /// A whole number; 32 or 64 bits for built-in kinds.
    Integer {
        /// How many bits it has.
        bits: u8,
    },
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or a string.
    IntOrString,
}

/// What is behind [`Shape::Any`]: built-in kinds write some values in a way of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opaque {
    /// Any JSON.
    #[default]
    Plain,
    /// An object of another kind (`RawExtension`).
    Raw,
    /// JSON inside a CustomResourceDefinition.
    Json,
    /// The fields of one owner in managedFields.
    Fields,
    /// A JSON Schema or a boolean; the type of the schema.
    SchemaOrBool(Id),
    /// A JSON Schema or a list of them.
    SchemaOrList(Id),
    /// A JSON Schema or a list of strings.
    SchemaOrStrings(Id),
}

/// What a string holds. Built-in kinds are brought into their canonical form when they are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Anything.
    Plain,
    /// A quantity: `1024Mi` is written `1Gi`. A JSON number is accepted.
    Quantity,
    /// A time in whole seconds: `2026-01-02T03:04:05Z`.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A Go duration: `1h0m0s`.
    Duration,
    /// Bytes in standard base64.
    Bytes,
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Not at all: the list is one value.
    Atomic,
    /// By their value.
    Set,
    /// By the value of some of their fields.
    Map(Vec<Box<str>>),
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its JSON name.
    pub name: Box<str>,
    /// Its type.
    pub schema: Id,
    /// Where it is written among its siblings.
    pub order: u16,
    /// The schema says it must be given. Built-in kinds: informative (validation decides).
    pub required: bool,
    /// Built-in kinds: an empty value is left out when written (Go's `omitempty`).
    pub omit_empty: bool,
    /// Built-in kinds: a zero value is left out when written (Go's `omitzero`).
    pub omit_zero: bool,
    /// Built-in kinds: zero and absent differ (a Go pointer).
    pub pointer: bool,
    /// Its value when it is absent.
    pub default: Option<Value>,
    /// Strategic merge: what a patch does to it.
    pub merge: Merge,
    /// Its number in Kubernetes' protobuf encoding; 0 if it has none.
    pub proto: u32,
    /// The protobuf numbers of the messages around it that JSON writes in line, outermost first.
    pub inline: Box<[u32]>,
    /// The names of those messages in Go: `RuleWithOperations.Rule`.
    pub embedded: Option<Box<str>>,
}

impl Field {
    /// A field that may be absent and has nothing special about it.
    pub fn new(name: &str, schema: Id) -> Self {
        Field {
            name: name.into(),
            schema,
            order: 0,
            required: false,
            omit_empty: true,
            omit_zero: false,
            pointer: true,
            default: None,
            merge: Merge::default(),
            proto: 0,
            inline: Box::default(),
            embedded: None,
        }
    }
}

/// What a strategic merge patch does to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merge {
    /// Lists: merged item by item instead of replaced.
    pub merge: bool,
    /// Objects: replaced instead of merged field by field.
    pub replace: bool,
    /// Only the keys that the patch names are kept (`retainKeys`).
    pub retain_keys: bool,
    /// What tells items apart when merged; none for lists of scalars.
    pub key: Option<Box<str>>,
}

/// What a value of a custom resource must satisfy beyond its type. One for each type that says any of it.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names are JSON Schema's own")]
pub struct Rules {
    pub format: Option<Box<str>>,
    pub pattern: Option<Pattern>,
    pub title: Option<Box<str>>,
    pub enumeration: Option<Vec<Value>>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    /// What stands for a null among the items of a list or the values of a map.
    pub default: Option<Value>,
    /// The names of the fields that must be given, also of those that the type does not list.
    pub required: Vec<Box<str>>,
    /// Value validations: types of the same arena that say nothing on structure.
    pub all_of: Vec<Id>,
    pub any_of: Vec<Id>,
    pub one_of: Vec<Id>,
    pub not: Option<Id>,
    /// `x-kubernetes-validations`, as they are written.
    pub validations: Vec<Value>,
    pub description: Option<Box<str>>,
}

impl Types {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a type.
    pub fn add(&mut self, node: Node) -> Id {
        let id = Id(u32::try_from(self.nodes.len()).expect("fewer than 2^32 types"));
        self.nodes.push(node);
        id
    }

    /// Replaces a type, for types that contain themselves: add a placeholder, then fill it.
    pub fn replace(&mut self, id: Id, node: Node) {
        self.nodes[id.0 as usize] = node;
    }

    /// All types with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (Id(at as u32), node))
    }

    /// A handle to a type of this arena.
    pub fn schema(&self, id: Id) -> Schema<'_> {
        Schema { types: self, id }
    }

    /// How many types there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// About how many bytes they take.
    pub fn memory(&self) -> usize {
        let node = |node: &Node| {
            let fields = match &node.shape {
                Shape::Object(fields) => {
                    let names: usize = fields.iter().map(|field| field.name.len()).sum();
                    names + fields.capacity() * size_of::<Field>()
                }
                _ => 0,
            };
            let rules = node.rules.as_ref().map_or(0, |_| size_of::<Rules>());
            size_of::<Node>() + fields + rules
        };
        self.nodes.iter().map(node).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl Node {
    /// A type with this shape and nothing special about it.
    pub fn new(shape: Shape) -> Self {
        Node {
            name: None,
            shape,
            opaque: Opaque::Plain,
            wrapped: false,
            untyped: false,
            nullable: false,
            preserve_unknown: false,
            embedded: false,
            atomic: false,
            rules: None,
        }
    }
}

/// A handle to one type in its arena.
#[derive(Clone, Copy, Debug)]
pub struct Schema<'a> {
    types: &'a Types,
    id: Id,
}

impl<'a> Schema<'a> {
    /// The type's number.
    pub fn id(self) -> Id {
        self.id
    }

    /// The type itself.
    pub fn node(self) -> &'a Node {
        &self.types.nodes[self.id.0 as usize]
    }

    /// The full name of a type of a built-in kind: `io.k8s.api.core.v1.PodSpec`.
    pub fn name(self) -> Option<&'a str> {
        self.node().name.as_deref()
    }

    /// What its values look like.
    pub fn shape(self) -> &'a Shape {
        &self.node().shape
    }

    /// Another type of the same arena.
    pub fn at(self, id: Id) -> Schema<'a> {
        Schema { types: self.types, id }
    }

    /// A field of an object type.
    pub fn field(self, name: &str) -> Option<&'a Field> {
        match self.shape() {
            Shape::Object(fields) => {
                fields.binary_search_by(|field| (*field.name).cmp(name)).ok().map(|at| &fields[at])
            }
            _ => None,
        }
    }

    /// The type of a field of an object, or of the values of a map.
    pub fn child(self, name: &str) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::Map(values) => Some(self.at(*values)),
            _ => self.field(name).map(|field| self.at(field.schema)),
        }
    }

    /// Whether the decoder looks at a field, `spec.containers[0].name`: not if it is unknown, and not inside of anything
    /// that is unknown or has a reader of its own.
    pub fn reads(self, path: &str) -> bool {
        let (mut schema, mut rest) = (self, path);
        while !rest.is_empty() {
            let end = match schema.shape() {
                Shape::List { .. } => rest.find(']').map_or(rest.len(), |end| end + 1),
                _ => rest.find(['.', '[']).unwrap_or(rest.len()),
            };
            let next = match schema.shape() {
                Shape::Any => return false,
                Shape::List { .. } => schema.items(),
                _ => schema.child(&rest[..end]),
            };
            match next {
                // A key may have dots in it.
                Some(values) if values.is_scalar() && matches!(schema.shape(), Shape::Map(_)) => return true,
                Some(next) => schema = next,
                None => return false,
            }
            rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
        }
        true
    }

    fn is_scalar(self) -> bool {
        !matches!(self.shape(), Shape::Any | Shape::Object(_) | Shape::Map(_) | Shape::List { .. })
    }

    /// The type of a list's items.
    pub fn items(self) -> Option<Schema<'a>> {
        match self.shape() {
            Shape::List { items, .. } => Some(self.at(*items)),
            _ => None,
        }
    }
}
