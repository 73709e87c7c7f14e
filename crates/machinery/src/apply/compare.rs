//! What differs between two versions of an object.

use serde_json::{Map, Value};

use super::error::TypeError;
use super::items::{Index, ItemKey, keys};
use super::path::{Path, PathElement, same};
use super::set::{Entry, FieldSet};
use super::types::{Handler, ListType, MapType, Type};
use crate::schema::{ListKind, Schema};

/// What differs. No path is in more than one of the three.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only in the new one.
    pub added: FieldSet,
    /// In both, but different.
    pub modified: FieldSet,
    /// Only in the old one.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether nothing differs.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

/// Compares two versions of an object.
///
/// Equal parts cost one comparison of the JSON and build nothing.
pub fn compare(old: &Value, new: &Value, schema: Schema<'_>) -> Result<Comparison, TypeError> {
    let mut comparer = Comparer { out: Comparison::default(), skip_managed: false };
    comparer.node(Some(old), Some(new), Type::root(schema), None)?;
    Ok(comparer.out)
}

/// Like [`compare`], blind for `metadata.managedFields`, which nobody ever owns.
pub(crate) fn compare_unmanaged(old: &Value, new: &Value, schema: Schema<'_>) -> Result<Comparison, TypeError> {
    let mut comparer = Comparer { out: Comparison::default(), skip_managed: true };
    comparer.node(Some(old), Some(new), Type::root(schema), None)?;
    Ok(comparer.out)
}

/// The way to the value at hand: links on the stack, so that nothing is allocated before a difference is found.
#[derive(Clone, Copy)]
struct Link<'p> {
    parent: Option<&'p Link<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Field(&'p str),
    Item(&'p ItemKey<'p>),
}

impl Link<'_> {
    fn elements(&self) -> Vec<PathElement> {
        let mut elements = self.parent.map(Link::elements).unwrap_or_default();
        elements.push(match self.step {
            Step::Field(name) => PathElement::field(name),
            Step::Item(key) => key.element(),
        });
        elements
    }
}

type At<'p> = Option<&'p Link<'p>>;

fn insert(set: &mut FieldSet, at: At<'_>) {
    if let Some(link) = at {
        set.insert_elements(link.elements());
    }
}

fn located(at: At<'_>, index: usize, error: impl ToString) -> TypeError {
    let path = at.map(|link| Path(link.elements()).to_string()).unwrap_or_default();
    TypeError::new(path, format!("element {index}: {}", error.to_string()))
}

struct Comparer {
    out: Comparison,
    skip_managed: bool,
}

impl Comparer {
    fn node(&mut self, old: Option<&Value>, new: Option<&Value>, ty: Type<'_>, at: At<'_>) -> Result<(), TypeError> {
        if let (Some(old), Some(new)) = (old, new)
            && old == new
        {
            return Ok(());
        }
        match (old, new) {
            (None, None) => Ok(()),
            (Some(old), None) => graft(&mut self.out.removed, at, everything(old, ty, at)?),
            (None, Some(new)) => graft(&mut self.out.added, at, everything(new, ty, at)?),
            (Some(left), Some(right)) => {
                // Where several forms are allowed the form may have changed: then each side is handled as what it is.
                if ty.open() && std::mem::discriminant(left) != std::mem::discriminant(right) {
                    self.handle(ty.handler(old), left, right, at)?;
                }
                self.handle(ty.handler(new), left, right, at)
            }
        }
    }

    fn leaf(&mut self, old: &Value, new: &Value, at: At<'_>) {
        if !same(old, new) {
            insert(&mut self.out.modified, at);
        }
    }

    fn handle(&mut self, handler: Handler<'_>, old: &Value, new: &Value, at: At<'_>) -> Result<(), TypeError> {
        match handler {
            Handler::Map(map) => {
                let (left, right) = (old.as_object(), new.as_object());
                // Empty and null differ only as leaves.
                let empty = left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty);
                if map.atomic || empty {
                    self.leaf(old, new, at);
                    return Ok(());
                }
                self.map(&map, left, right, at)
            }
            Handler::List(list) => {
                let left = old.as_array().map_or(&[][..], Vec::as_slice);
                let right = new.as_array().map_or(&[][..], Vec::as_slice);
                if *list.kind == ListKind::Atomic || left.is_empty() && right.is_empty() {
                    self.leaf(old, new, at);
                    return Ok(());
                }
                self.list(&list, left, right, at)
            }
            Handler::Scalar(_) => {
                self.leaf(old, new, at);
                Ok(())
            }
            Handler::None => Err(undeclared(at)),
        }
    }

    fn map(
        &mut self,
        map: &MapType<'_>,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        at: At<'_>,
    ) -> Result<(), TypeError> {
        let mut left = old.into_iter().flatten().peekable();
        let mut right = new.into_iter().flatten().peekable();
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((l, _)), Some((r, _))) => l.cmp(r),
            };
            let l = if order.is_le() { left.next() } else { None };
            let r = if order.is_ge() { right.next() } else { None };
            let Some((name, _)) = l.or(r) else { return Ok(()) };
            let (l, r) = (l.map(|(_, value)| value), r.map(|(_, value)| value));
            if self.skip_managed && name == "managedFields" && is_metadata(at) {
                continue;
            }
            let link = Link { parent: at, step: Step::Field(name) };
            self.node(l, r, map.child(name).0, Some(&link))?;
        }
    }

    fn list<'v>(
        &mut self,
        list: &ListType<'v>,
        old: &'v [Value],
        new: &'v [Value],
        at: At<'_>,
    ) -> Result<(), TypeError> {
        let lefts = keys(list, old).map_err(|(index, error)| located(at, index, error))?;
        let rights = keys(list, new).map_err(|(index, error)| located(at, index, error))?;
        if lefts == rights && lefts.len() <= 64 && lefts.iter().enumerate().all(|(i, key)| !lefts[..i].contains(key)) {
            for ((key, l), r) in lefts.iter().zip(old).zip(new) {
                let link = Link { parent: at, step: Step::Item(key) };
                self.node(Some(l), Some(r), list.items, Some(&link))?;
            }
            return Ok(());
        }
        let (left_index, right_index) = (Index::new(&lefts), Index::new(&rights));
        let fresh = rights.iter().filter(|key| left_index.positions(key).is_empty());
        // Duplicates are looked at once, at their first position.
        for (at_first, key) in lefts.iter().enumerate().map(|(i, k)| (Some(i), k)).chain(fresh.map(|k| (None, k))) {
            let (l, r) = (left_index.positions(key), right_index.positions(key));
            if at_first.is_some_and(|i| l.first().is_some_and(|first| *first as usize != i)) {
                continue;
            }
            let link = Link { parent: at, step: Step::Item(key) };
            let first = |positions: &[u32], items: &'v [Value]| positions.first().map(|at| &items[*at as usize]);
            match (l.len(), r.len()) {
                (0 | 1, 0 | 1) => self.node(first(l, old), first(r, new), list.items, Some(&link))?,
                (2.., 2..) => {
                    let equal =
                        l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same(&old[*l as usize], &new[*r as usize]));
                    if !equal {
                        insert(&mut self.out.modified, Some(&link));
                    }
                }
                // No duplicate any more: what is left is new, what stood for the duplicates is gone.
                (2.., _) => {
                    if !r.is_empty() {
                        self.node(None, first(r, new), list.items, Some(&link))?;
                    }
                    insert(&mut self.out.removed, Some(&link));
                }
                // Duplicates from now on: they are one thing.
                (_, 2..) => {
                    if !l.is_empty() {
                        self.node(first(l, old), None, list.items, Some(&link))?;
                    }
                    insert(&mut self.out.added, Some(&link));
                }
            }
        }
        Ok(())
    }
}

fn undeclared(at: At<'_>) -> TypeError {
    let path = at.map(|link| Path(link.elements()).to_string()).unwrap_or_default();
    TypeError::new(path, "field not declared in schema")
}

/// Adds a path and all that is below it.
fn graft(set: &mut FieldSet, at: At<'_>, below: FieldSet) -> Result<(), TypeError> {
    let mut elements = at.map(Link::elements).unwrap_or_default().into_iter();
    let Some(mut element) = elements.next() else { return Ok(()) };
    let mut set = set;
    for next in elements {
        set = &mut set.entry(std::mem::replace(&mut element, next)).children;
    }
    let entry = set.entry(element);
    entry.member = true;
    entry.children = if entry.children.is_empty() { below } else { entry.children.union(&below) };
    Ok(())
}

/// All that is below a value that is there on one side only, down to what is one value.
fn everything(value: &Value, ty: Type<'_>, at: At<'_>) -> Result<FieldSet, TypeError> {
    let mut set = FieldSet::new();
    match (ty.handler(Some(value)), value) {
        (Handler::Map(map), Value::Object(fields)) if !map.atomic => {
            set.entries.reserve_exact(fields.len());
            for (name, value) in fields {
                let link = Link { parent: at, step: Step::Field(name) };
                let children = everything(value, map.child(name).0, Some(&link))?;
                set.entries.push(Entry { element: PathElement::field(name), member: true, children });
            }
        }
        (Handler::List(list), Value::Array(items)) if *list.kind != ListKind::Atomic => {
            let keys = keys(&list, items).map_err(|(index, error)| located(at, index, error))?;
            let index = Index::new(&keys);
            for (i, (key, item)) in keys.iter().zip(items).enumerate() {
                // Duplicates are one thing.
                let children = match index.positions(key) {
                    [_] => {
                        let link = Link { parent: at, step: Step::Item(key) };
                        everything(item, list.items, Some(&link))?
                    }
                    [first, ..] if *first as usize == i => FieldSet::new(),
                    _ => continue,
                };
                let entry = set.entry(key.element());
                entry.member = true;
                entry.children = children;
            }
        }
        (Handler::None, _) => return Err(undeclared(at)),
        _ => {}
    }
    Ok(set)
}

fn is_metadata(at: At<'_>) -> bool {
    at.is_some_and(|link| link.parent.is_none() && matches!(link.step, Step::Field("metadata")))
}
