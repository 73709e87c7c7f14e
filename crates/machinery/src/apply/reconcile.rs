//! Field sets that were recorded under another schema: lists and maps that have become one value since.

use super::path::PathElement;
use super::set::{Entry, FieldSet};
use super::types::{Handler, Type};
use crate::schema::{ListKind, Schema};

/// The set under the schema of today, or nothing if it already fits.
///
/// Who owned parts of what is one value now owns the whole. The other way, from one value to parts, nothing is done: the
/// owner keeps owning the field itself.
pub(crate) fn reconcile(set: &FieldSet, schema: Schema<'_>) -> Option<FieldSet> {
    let mut out = FieldSet::new();
    level(set, Type::root(schema), &mut out).then_some(out)
}

/// What becomes of one entry.
enum Outcome {
    /// It stays.
    Same,
    /// It stays, with other children.
    Below(FieldSet),
    /// It is one value: owned itself, nothing below.
    Whole,
}

fn level(set: &FieldSet, ty: Type<'_>, out: &mut FieldSet) -> bool {
    let mut changed = false;
    for entry in &set.entries {
        let child = match (&entry.element, ty.handler(None)) {
            (PathElement::Field(name), Handler::Map(map)) => map.child(name).0,
            (_, Handler::Map(map)) => map.element(),
            (_, Handler::List(list)) => list.items,
            _ => Type::Nothing,
        };
        let entry = match node(entry, child) {
            Outcome::Same => entry.clone(),
            Outcome::Below(children) => {
                changed = true;
                Entry { element: entry.element.clone(), member: entry.member, children }
            }
            Outcome::Whole => {
                changed = true;
                Entry { element: entry.element.clone(), member: true, children: FieldSet::new() }
            }
        };
        out.entries.push(entry);
    }
    changed
}

fn node(entry: &Entry, ty: Type<'_>) -> Outcome {
    let whole = entry.member && entry.children.is_empty();
    let atomic = match ty.handler(None) {
        Handler::Map(map) if map.undeclared() => return Outcome::Same,
        Handler::Map(map) => map.atomic && !entry.children.is_empty(),
        Handler::List(list) => *list.kind == ListKind::Atomic,
        Handler::Scalar(_) | Handler::None => return Outcome::Same,
    };
    if !whole && atomic {
        return Outcome::Whole;
    }
    if entry.children.is_empty() {
        return Outcome::Same;
    }
    let mut below = FieldSet::new();
    if level(&entry.children, ty, &mut below) { Outcome::Below(below) } else { Outcome::Same }
}
