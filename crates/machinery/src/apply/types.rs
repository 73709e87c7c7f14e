//! How server-side apply sees a type: as a map, a list, a scalar, or several of these where the schema leaves it open.

use std::sync::LazyLock;

use serde_json::Value;

use crate::schema::{ListKind, Opaque, Schema, Shape, Text};

static EMPTY: Value = Value::String(String::new());
static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type<'a> {
    /// There is none: an undeclared field of an object that allows no others.
    Nothing,
    /// Unknown content: maps are merged by key, lists and scalars replaced.
    Deduced,
    /// Unknown content that is one value.
    Opaque,
    /// A part of the standard metadata.
    Standard(Standard),
    /// A type of the schema.
    Known {
        /// The type.
        schema: Schema<'a>,
        /// A parent keeps unknown fields, so this one does too.
        preserve: bool,
        /// The root of an object, with apiVersion, kind and metadata.
        root: bool,
    },
}

/// The standard metadata of all objects, of which custom resources declare little or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standard {
    Metadata,
    Texts,
    Text,
    Time,
    Number,
    Finalizers,
    Owners,
    Owner,
    Managed,
}

impl Standard {
    fn field(self, name: &str) -> Option<Standard> {
        Some(match (self, name) {
            (Standard::Owner, "apiVersion" | "kind" | "name" | "uid") => Standard::Text,
            (Standard::Owner, "blockOwnerDeletion" | "controller") => Standard::Time,
            (Standard::Metadata, "annotations" | "labels") => Standard::Texts,
            (Standard::Metadata, "creationTimestamp" | "deletionTimestamp") => Standard::Time,
            (Standard::Metadata, "generation" | "deletionGracePeriodSeconds") => Standard::Number,
            (Standard::Metadata, "finalizers") => Standard::Finalizers,
            (Standard::Metadata, "ownerReferences") => Standard::Owners,
            (Standard::Metadata, "managedFields") => Standard::Managed,
            (Standard::Metadata, "generateName" | "name" | "namespace" | "resourceVersion" | "selfLink" | "uid") => {
                Standard::Text
            }
            _ => return None,
        })
    }
}

/// What scalars a type takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

/// A type as a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapType<'a> {
    fields: Declared<'a>,
    element: Type<'a>,
    preserve: bool,
    root: bool,
    pub(crate) atomic: bool,
}

#[derive(Clone, Copy, Debug)]
enum Declared<'a> {
    No,
    Known(Schema<'a>),
    Standard(Standard),
}

/// A type as a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListType<'a> {
    pub(crate) items: Type<'a>,
    pub(crate) kind: &'a ListKind,
}

/// How one value of a type is to be handled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handler<'a> {
    Map(MapType<'a>),
    List(ListType<'a>),
    Scalar(Scalar),
    None,
}

static ATOMIC: ListKind = ListKind::Atomic;
static SET: ListKind = ListKind::Set;
static BY_UID: LazyLock<ListKind> = LazyLock::new(|| ListKind::Map(vec!["uid".into()]));

impl<'a> Type<'a> {
    /// The type of a whole object.
    pub(crate) fn root(schema: Schema<'a>) -> Self {
        Type::Known { schema, preserve: false, root: true }
    }

    /// The type seen as a map, if it can be one.
    pub(crate) fn map(self) -> Option<MapType<'a>> {
        let of = |fields, element, atomic| Some(MapType { fields, element, preserve: false, root: false, atomic });
        let (schema, inherited, root) = match self {
            Type::Nothing => return None,
            Type::Deduced => return of(Declared::No, Type::Deduced, false),
            Type::Opaque => return of(Declared::No, Type::Opaque, true),
            Type::Standard(Standard::Texts) => return of(Declared::No, Type::Standard(Standard::Text), false),
            Type::Standard(standard @ (Standard::Metadata | Standard::Owner)) => {
                return of(Declared::Standard(standard), Type::Nothing, standard == Standard::Owner);
            }
            Type::Standard(_) => return None,
            Type::Known { schema, preserve, root } => (schema, preserve, root),
        };
        let node = schema.node();
        let preserve = inherited || node.preserve_unknown;
        let (fields, element) = match &node.shape {
            Shape::Any if node.atomic || node.opaque == Opaque::Raw => return of(Declared::No, Type::Opaque, true),
            Shape::Any => (Declared::No, Type::Deduced),
            Shape::Object(fields) if preserve || fields.is_empty() => (Declared::Known(schema), Type::Deduced),
            Shape::Object(_) => (Declared::Known(schema), Type::Nothing),
            Shape::Map(values) => (Declared::No, Type::Known { schema: schema.at(*values), preserve, root: false }),
            _ => return None,
        };
        Some(MapType { fields, element, preserve, root: root || node.embedded, atomic: node.atomic })
    }

    /// The type seen as a list, if it can be one.
    pub(crate) fn list(self) -> Option<ListType<'a>> {
        let (schema, inherited) = match self {
            Type::Deduced | Type::Opaque | Type::Standard(Standard::Managed) => {
                return Some(ListType { items: Type::Opaque, kind: &ATOMIC });
            }
            Type::Standard(Standard::Finalizers) => {
                return Some(ListType { items: Type::Standard(Standard::Text), kind: &SET });
            }
            Type::Standard(Standard::Owners) => {
                return Some(ListType { items: Type::Standard(Standard::Owner), kind: &BY_UID });
            }
            Type::Nothing | Type::Standard(_) => return None,
            Type::Known { schema, preserve, .. } => (schema, preserve),
        };
        let node = schema.node();
        match &node.shape {
            Shape::Any => Some(ListType { items: Type::Opaque, kind: &ATOMIC }),
            Shape::List { items, list } => Some(ListType {
                items: Type::Known {
                    schema: schema.at(*items),
                    preserve: inherited || node.preserve_unknown,
                    root: false,
                },
                kind: if node.atomic { &ATOMIC } else { list },
            }),
            _ => None,
        }
    }

    /// The type seen as a scalar, if it can be one.
    pub(crate) fn scalar(self) -> Option<Scalar> {
        let node = match self {
            Type::Nothing => return None,
            Type::Deduced | Type::Opaque => return Some(Scalar::Untyped),
            Type::Standard(standard) => {
                return match standard {
                    Standard::Text => Some(Scalar::String),
                    Standard::Time => Some(Scalar::Untyped),
                    Standard::Number => Some(Scalar::Numeric),
                    _ => None,
                };
            }
            Type::Known { schema, .. } => schema.node(),
        };
        match node.shape {
            Shape::Any | Shape::IntOrString => Some(Scalar::Untyped),
            Shape::String(Text::Plain | Text::Bytes | Text::Duration) => {
                let format = node.rules.as_ref().and_then(|rules| rules.format.as_deref()).unwrap_or("");
                Some(if matches!(format, "" | "byte") { Scalar::String } else { Scalar::Untyped })
            }
            Shape::String(_) => Some(Scalar::Untyped),
            Shape::Integer { .. } | Shape::Number => Some(Scalar::Numeric),
            Shape::Boolean => Some(Scalar::Boolean),
            Shape::Object(_) | Shape::Map(_) | Shape::List { .. } => None,
        }
    }

    /// How a value is handled: by what it is if the type allows that, else by the first the type allows.
    pub(crate) fn handler(self, value: Option<&Value>) -> Handler<'a> {
        let fitting = match value {
            Some(Value::Object(_)) => self.map().map(Handler::Map),
            Some(Value::Array(_)) => self.list().map(Handler::List),
            Some(Value::String(_) | Value::Number(_) | Value::Bool(_)) => self.scalar().map(Handler::Scalar),
            Some(Value::Null) | None => None,
        };
        fitting
            .or_else(|| self.map().map(Handler::Map))
            .or_else(|| self.scalar().map(Handler::Scalar))
            .or_else(|| self.list().map(Handler::List))
            .unwrap_or(Handler::None)
    }

    /// Whether values of several forms are allowed.
    pub(crate) fn open(self) -> bool {
        match self {
            Type::Deduced | Type::Opaque => true,
            Type::Known { schema, .. } => matches!(schema.shape(), Shape::Any),
            _ => false,
        }
    }
}

impl<'a> MapType<'a> {
    /// The type of a key's value, and whether the key is a declared field.
    pub(crate) fn child(&self, name: &str) -> (Type<'a>, bool) {
        if self.root {
            match name {
                "apiVersion" | "kind" => return (Type::Standard(Standard::Text), true),
                "metadata" => return (self.metadata(), true),
                _ => {}
            }
        }
        let declared = match self.fields {
            Declared::No => None,
            Declared::Known(schema) => schema.field(name).map(|field| Type::Known {
                schema: schema.at(field.schema),
                preserve: self.preserve,
                root: false,
            }),
            Declared::Standard(standard) => standard.field(name).map(Type::Standard),
        };
        declared.map_or((self.element, false), |ty| (ty, true))
    }

    /// The type of undeclared keys' values.
    pub(crate) fn element(&self) -> Type<'a> {
        self.element
    }

    /// What stands for a declared field that is absent, as the key of a list's item.
    pub(crate) fn default(&self, name: &str) -> Option<&'a Value> {
        match self.fields {
            Declared::Known(schema) => {
                let field = schema.field(name)?;
                field.default.as_ref().or_else(|| match schema.at(field.schema).shape() {
                    // What a built-in kind requires, and no pointer tells from zero, is zero.
                    Shape::String(_) if field.required && !field.pointer => Some(&EMPTY),
                    Shape::Integer { .. } if field.required && !field.pointer => Some(&ZERO),
                    _ => None,
                })
            }
            _ => None,
        }
    }

    /// Whether nothing is declared and anything allowed.
    pub(crate) fn undeclared(&self) -> bool {
        let declared = match self.fields {
            Declared::No => false,
            Declared::Known(schema) => !matches!(schema.shape(), Shape::Object(fields) if fields.is_empty()),
            Declared::Standard(_) => true,
        };
        matches!(self.element, Type::Deduced) && !declared && !self.root
    }

    /// Custom resources declare little or nothing of their metadata: it has the standard type all the same.
    fn metadata(&self) -> Type<'a> {
        let declared = match self.fields {
            Declared::Known(schema) => schema.child("metadata"),
            _ => None,
        };
        match declared.filter(|metadata| metadata.field("ownerReferences").is_some()) {
            Some(schema) => Type::Known { schema, preserve: false, root: false },
            None => Type::Standard(Standard::Metadata),
        }
    }
}
