//! Sets of fields, and their algebra.

use std::cmp::Ordering;

use super::path::{Path, PathElement};
use super::types::Type;

/// A set of paths, kept as a tree: what FieldsV1 writes.
///
/// Membership of a parent and of its children are independent: `{.spec.a}` does not contain `.spec`. The root is never
/// a member.
///
/// Invariant: entries are sorted by element, and each is a member or has children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) entries: Vec<Entry>,
}

/// One element of a level of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) element: PathElement,
    pub(super) member: bool,
    pub(super) children: FieldSet,
}

impl Entry {
    fn leaf(element: PathElement) -> Self {
        Entry { element, member: true, children: FieldSet::new() }
    }

    fn keep(self) -> Option<Self> {
        (self.member || !self.children.is_empty()).then_some(self)
    }
}

impl FieldSet {
    /// The empty set.
    pub const fn new() -> Self {
        FieldSet { entries: Vec::new() }
    }

    /// A set of paths made of field names only.
    ///
    /// ```
    /// use conductor_machinery::apply::FieldSet;
    /// let reset = FieldSet::of_fields(&[&["status"], &["metadata", "deletionTimestamp"]]);
    /// assert_eq!(reset.len(), 2);
    /// ```
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            set.insert(&Path::fields(path));
        }
        set
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many paths are in it.
    pub fn len(&self) -> usize {
        self.entries.iter().map(|entry| usize::from(entry.member) + entry.children.len()).sum()
    }

    pub(super) fn find(&self, element: &PathElement) -> Option<&Entry> {
        self.entries.binary_search_by(|entry| entry.element.cmp(element)).ok().map(|at| &self.entries[at])
    }

    /// The entry of an element, made if there is none. The caller must leave it a member or with children.
    pub(super) fn entry(&mut self, element: PathElement) -> &mut Entry {
        let at = match self.entries.binary_search_by(|entry| entry.element.cmp(&element)) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, Entry { element, member: false, children: FieldSet::new() });
                at
            }
        };
        &mut self.entries[at]
    }

    /// Adds a path, not its parents. The empty path is ignored.
    pub fn insert(&mut self, path: &Path) {
        self.insert_elements(path.0.iter().cloned());
    }

    pub(super) fn insert_elements(&mut self, path: impl IntoIterator<Item = PathElement>) {
        let mut path = path.into_iter();
        let Some(mut element) = path.next() else { return };
        let mut set = self;
        for next in path {
            set = &mut set.entry(std::mem::replace(&mut element, next)).children;
        }
        set.entry(element).member = true;
    }

    /// Whether a path is in it.
    pub fn has(&self, path: &Path) -> bool {
        let Some((last, parents)) = path.0.split_last() else { return false };
        let mut set = self;
        for element in parents {
            match set.find(element) {
                Some(entry) => set = &entry.children,
                None => return false,
            }
        }
        set.find(last).is_some_and(|entry| entry.member)
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        let mut entries = Vec::with_capacity(self.entries.len().max(other.entries.len()));
        zip(self, other, |left, right| match (left, right) {
            (Some(l), Some(r)) => entries.push(Entry {
                element: l.element.clone(),
                member: l.member || r.member,
                children: l.children.union(&r.children),
            }),
            (Some(one), None) | (None, Some(one)) => entries.push(one.clone()),
            (None, None) => {}
        });
        FieldSet { entries }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut entries = Vec::new();
        zip(self, other, |left, right| {
            if let (Some(l), Some(r)) = (left, right) {
                let both = Entry {
                    element: l.element.clone(),
                    member: l.member && r.member,
                    children: l.children.intersection(&r.children),
                };
                entries.extend(both.keep());
            }
        });
        FieldSet { entries }
    }

    /// What is in this set and not in the other; a parent in the other does not remove its children.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        let mut entries = Vec::with_capacity(self.entries.len());
        zip(self, other, |left, right| match (left, right) {
            (Some(l), Some(r)) => {
                let rest = Entry {
                    element: l.element.clone(),
                    member: l.member && !r.member,
                    children: l.children.difference(&r.children),
                };
                entries.extend(rest.keep());
            }
            (Some(l), None) => entries.push(l.clone()),
            _ => {}
        });
        FieldSet { entries }
    }

    /// What is in this set, without the members of the other and everything below them.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut entries = Vec::with_capacity(self.entries.len());
        zip(self, other, |left, right| match (left, right) {
            (Some(_), Some(r)) if r.member => {}
            (Some(l), Some(r)) => {
                let rest = Entry {
                    element: l.element.clone(),
                    member: l.member,
                    children: l.children.recursive_difference(&r.children),
                };
                entries.extend(rest.keep());
            }
            (Some(l), None) => entries.push(l.clone()),
            _ => {}
        });
        FieldSet { entries }
    }

    /// Whether the two share a path.
    pub fn intersects(&self, other: &Self) -> bool {
        let mut found = false;
        zip(self, other, |left, right| {
            if let (Some(l), Some(r)) = (left, right) {
                found = found || l.member && r.member || l.children.intersects(&r.children);
            }
        });
        found
    }

    /// The members that have no members below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let leaf = |entry: &Entry| match entry.children.is_empty() {
            true => Entry::leaf(entry.element.clone()),
            false => Entry { element: entry.element.clone(), member: false, children: entry.children.leaves() },
        };
        FieldSet { entries: self.entries.iter().map(leaf).collect() }
    }

    /// Adds the declared fields on the way to each member: `.spec.replicas` brings `.spec`, while `.data.a` brings
    /// `.data` but an entry of a map brings nothing.
    #[must_use]
    pub(crate) fn with_named_fields(&self, ty: Type<'_>) -> Self {
        let map = ty.map();
        let list = ty.list();
        let entries = self.entries.iter().map(|entry| {
            let (child, named) = match (&entry.element, &map, &list) {
                (PathElement::Field(name), Some(map), _) => map.child(name),
                (PathElement::Key(_), _, Some(list)) => (list.items, false),
                _ => (Type::Nothing, false),
            };
            Entry {
                element: entry.element.clone(),
                member: entry.member || named,
                children: entry.children.with_named_fields(child),
            }
        });
        FieldSet { entries: entries.collect() }
    }

    /// All paths: the members of a level before what is below any of them.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Path>) {
        for entry in self.entries.iter().filter(|entry| entry.member) {
            let mut path = prefix.clone();
            path.push(entry.element.clone());
            paths.push(Path(path));
        }
        for entry in &self.entries {
            prefix.push(entry.element.clone());
            entry.children.collect_paths(prefix, paths);
            prefix.pop();
        }
    }
}

/// Walks two levels side by side in order.
fn zip<'s>(left: &'s FieldSet, right: &'s FieldSet, mut visit: impl FnMut(Option<&'s Entry>, Option<&'s Entry>)) {
    let (mut l, mut r) = (left.entries.iter().peekable(), right.entries.iter().peekable());
    loop {
        let order = match (l.peek(), r.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.element.cmp(&b.element),
        };
        let a = if order.is_le() { l.next() } else { None };
        let b = if order.is_ge() { r.next() } else { None };
        visit(a, b);
    }
}

impl FromIterator<Path> for FieldSet {
    fn from_iter<I: IntoIterator<Item = Path>>(paths: I) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            set.insert_elements(path.0);
        }
        set
    }
}
