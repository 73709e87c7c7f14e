//! Who depends on whom: ids and places, no objects. The objects themselves are in the store, a lookup away.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Bound;
use std::sync::Arc;

use super::meta::{Meta, Reference};

/// A uid; the usual ones take 16 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uid {
    /// One in the usual form.
    Usual([u8; 16]),
    /// Anything else: a reference may name whatever it likes.
    Other(Box<str>),
}

impl Uid {
    /// Reads a uid.
    pub fn new(text: &str) -> Uid {
        Uid::usual(text).map_or_else(|| Uid::Other(text.into()), Uid::Usual)
    }

    /// `01234567-89ab-cdef-0123-456789abcdef`, lower case only so that it can be written again as it was.
    fn usual(text: &str) -> Option<[u8; 16]> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let (mut bytes, mut digits) = ([0u8; 16], 0);
        for (at, byte) in text.iter().enumerate() {
            let value = match byte {
                b'-' if matches!(at, 8 | 13 | 18 | 23) => continue,
                b'0'..=b'9' if !matches!(at, 8 | 13 | 18 | 23) => byte - b'0',
                b'a'..=b'f' if !matches!(at, 8 | 13 | 18 | 23) => byte - b'a' + 10,
                _ => return None,
            };
            bytes[digits / 2] |= if digits % 2 == 0 { value << 4 } else { value };
            digits += 1;
        }
        Some(bytes)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Other(text) => f.write_str(text),
            Uid::Usual(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    if matches!(at, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

/// Where an object is. Both parts are shared with the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The table.
    pub table: Arc<str>,
    /// The key.
    pub key: Arc<str>,
}

/// An object that should be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which one.
    pub uid: Uid,
    /// Where it was.
    pub at: At,
    /// Whether its references are new, so that mistakes in them are worth a word.
    pub fresh: bool,
}

struct Owned {
    at: At,
    owners: Box<[Owner]>,
}

#[derive(PartialEq)]
struct Owner {
    uid: Uid,
    blocks: bool,
    /// Of the rest of the reference, to notice changes.
    mark: u32,
}

/// All objects that have owners, and all that wait for their dependents.
#[derive(Default)]
pub struct Graph {
    owned: HashMap<Uid, Owned>,
    /// Owner and dependent.
    edges: BTreeSet<(Uid, Uid)>,
    /// Owners that are being deleted and wait for their dependents to go (true) or to be orphaned (false).
    holding: HashMap<Uid, (At, bool)>,
    /// Owners that are gone while dependents still name them. No uid ever comes back.
    gone: HashSet<Uid>,
}

impl Graph {
    /// Takes in an object as it is now; adds what should be looked at because of it.
    pub fn observe(&mut self, at: &At, meta: &Meta<'_>, due: &mut Vec<Due>) {
        let uid = Uid::new(&meta.uid);
        self.observe_owners(&uid, at, &meta.owner_references, due);
        let waits = if meta.waits_for_orphans() {
            Some(false)
        } else if meta.waits_for_dependents() {
            Some(true)
        } else {
            None
        };
        let Some(foreground) = waits else {
            self.holding.remove(&uid);
            return;
        };
        let before = self.holding.insert(uid.clone(), (at.clone(), foreground));
        if before.is_none_or(|(_, before)| before != foreground) {
            if foreground {
                due.extend(self.dependents(&uid));
            }
            due.push(Due { uid, at: at.clone(), fresh: false });
        }
    }

    fn observe_owners(&mut self, uid: &Uid, at: &At, references: &[Reference<'_>], due: &mut Vec<Due>) {
        let mut owners: Vec<Owner> = Vec::with_capacity(references.len());
        let mut places: HashMap<Uid, usize> = HashMap::new();
        for reference in references {
            let owner = Uid::new(&reference.uid);
            let blocks = reference.block_owner_deletion == Some(true);
            let mark = BuildHasherDefault::<DefaultHasher>::default().hash_one((
                &*reference.api_version,
                &*reference.kind,
                &*reference.name,
            )) as u32;
            let place = *places.entry(owner.clone()).or_insert(owners.len());
            match owners.get_mut(place) {
                // The same owner twice blocks if either does.
                Some(own) => (own.blocks, own.mark) = (own.blocks || blocks, own.mark ^ mark),
                None => owners.push(Owner { uid: owner, blocks, mark }),
            }
        }
        let before = match self.owned.entry(uid.clone()) {
            Slot::Vacant(_) if owners.is_empty() => return,
            Slot::Occupied(mut slot) if *slot.get().owners == *owners => {
                slot.get_mut().at = at.clone();
                return;
            }
            Slot::Vacant(slot) => {
                slot.insert(Owned { at: at.clone(), owners: Box::default() });
                Box::default()
            }
            Slot::Occupied(mut slot) => std::mem::take(&mut slot.get_mut().owners),
        };
        for owner in &owners {
            self.edges.insert((owner.uid.clone(), uid.clone()));
        }
        for owner in &before {
            let now = owners.iter().find(|own| own.uid == owner.uid);
            if owner.blocks && now.is_none_or(|own| !own.blocks) {
                self.look_at_holder(&owner.uid, due);
            }
            if now.is_none() {
                self.unlink(&owner.uid, uid);
            }
        }
        if owners.is_empty() {
            self.owned.remove(uid);
        } else {
            due.push(Due { uid: uid.clone(), at: at.clone(), fresh: true });
            self.owned.insert(uid.clone(), Owned { at: at.clone(), owners: owners.into() });
        }
    }

    fn unlink(&mut self, owner: &Uid, dependent: &Uid) {
        self.edges.remove(&(owner.clone(), dependent.clone()));
        if !self.gone.is_empty() && self.dependents(owner).next().is_none() {
            self.gone.remove(owner);
        }
    }

    fn look_at_holder(&self, owner: &Uid, due: &mut Vec<Due>) {
        if let Some((at, _)) = self.holding.get(owner) {
            due.push(Due { uid: owner.clone(), at: at.clone(), fresh: false });
        }
    }

    /// Takes in that an object is gone.
    pub fn forget(&mut self, uid: &Uid, due: &mut Vec<Due>) {
        self.holding.remove(uid);
        if let Some(owned) = self.owned.remove(uid) {
            for owner in &owned.owners {
                self.unlink(&owner.uid, uid);
                self.look_at_holder(&owner.uid, due);
            }
        }
        let before = due.len();
        due.extend(self.dependents(uid));
        if due.len() > before {
            self.gone.insert(uid.clone());
        }
    }

    /// Takes in that of a table only these objects are there.
    pub fn forget_others(&mut self, table: &str, there: &HashSet<Uid>, due: &mut Vec<Due>) {
        let owned = self.owned.iter().filter(|(_, owned)| &*owned.at.table == table).map(|(uid, _)| uid);
        let holding = self.holding.iter().filter(|(_, (at, _))| &*at.table == table).map(|(uid, _)| uid);
        let missing: Vec<Uid> = owned.chain(holding).filter(|uid| !there.contains(uid)).cloned().collect();
        for uid in missing {
            self.forget(&uid, due);
        }
    }

    /// All that have owners.
    pub fn all_owned(&self) -> impl Iterator<Item = Due> {
        self.owned.iter().map(|(uid, own)| Due { uid: uid.clone(), at: own.at.clone(), fresh: false })
    }

    /// Those that name an owner.
    pub fn dependents<'a>(&'a self, owner: &'a Uid) -> impl Iterator<Item = Due> + 'a {
        self.edges_of(owner)
            .filter_map(|uid| Some(Due { uid: uid.clone(), at: self.owned.get(uid)?.at.clone(), fresh: false }))
    }

    fn edges_of<'a>(&'a self, owner: &'a Uid) -> impl Iterator<Item = &'a Uid> + 'a {
        // The smallest uid there is.
        let first = (owner.clone(), Uid::Usual([0; 16]));
        self.edges
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(move |(own, _)| own == owner)
            .map(|(_, dependent)| dependent)
    }

    /// Those for whom the foreground deletion of an owner waits.
    pub fn blocking<'a>(&'a self, owner: &'a Uid) -> impl Iterator<Item = Due> + 'a {
        self.dependents(owner).filter(move |due| {
            self.owned.get(&due.uid).is_some_and(|own| own.owners.iter().any(|own| own.blocks && own.uid == *owner))
        })
    }

    /// Whether an object waits for its own dependents to go.
    pub fn waits_for_dependents(&self, uid: &Uid) -> bool {
        self.holding.get(uid).is_some_and(|(_, foreground)| *foreground)
    }

    /// Whether an object is known to be gone.
    pub fn is_gone(&self, uid: &Uid) -> bool {
        self.gone.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> At {
        At { table: "t".into(), key: name.into() }
    }

    fn object(uid: &str, owners: &[(&str, bool)], finalizers: &[&str]) -> String {
        let owners: Vec<_> =
            owners.iter().map(|(uid, block)| serde_json::json!({"uid": uid, "blockOwnerDeletion": block})).collect();
        let deleted = if finalizers.is_empty() { "" } else { "2026-01-01T00:00:00Z" };
        serde_json::json!({"metadata": {
            "uid": uid, "ownerReferences": owners, "finalizers": finalizers, "deletionTimestamp": deleted,
        }})
        .to_string()
    }

    fn observe(graph: &mut Graph, uid: &str, owners: &[(&str, bool)], finalizers: &[&str]) -> String {
        let mut due = Vec::new();
        graph.observe(&at(uid), &Meta::scan(object(uid, owners, finalizers).as_bytes()).unwrap(), &mut due);
        names(due)
    }

    fn forget(graph: &mut Graph, uid: &str) -> String {
        let mut due = Vec::new();
        graph.forget(&Uid::new(uid), &mut due);
        names(due)
    }

    fn names(due: Vec<Due>) -> String {
        due.iter().map(|due| due.uid.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn uids_are_written_as_they_were() {
        for text in ["", "x", "01234567-89ab-cdef-0123-456789abcdef", "01234567-89AB-cdef-0123-456789abcdef"] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
        assert!(matches!(Uid::new("01234567-89ab-cdef-0123-456789abcdef"), Uid::Usual(_)));
        for text in ["0123456789ab-cdef-0123-456789abcdef-", "01234567-89ab-cdef-0123-456789abcdeg"] {
            assert!(matches!(Uid::new(text), Uid::Other(_)), "{text}");
        }
    }

    #[test]
    fn changes_make_the_right_objects_due_and_nothing_is_left_behind() {
        let mut graph = Graph::default();
        // Unowned objects are not even kept.
        assert_eq!(observe(&mut graph, "top", &[], &[]), "");
        assert!(graph.owned.is_empty());
        assert_eq!(observe(&mut graph, "a", &[("top", true)], &[]), "a");
        assert_eq!(observe(&mut graph, "b", &[("top", false), ("a", false)], &[]), "b");
        // Nothing new, nothing due.
        assert_eq!(observe(&mut graph, "a", &[("top", true)], &[]), "");
        // An owner begins to wait: it and all its dependents, once.
        assert_eq!(observe(&mut graph, "top", &[], &["foregroundDeletion"]), "a b top");
        assert_eq!(observe(&mut graph, "top", &[], &["foregroundDeletion"]), "");
        assert_eq!(names(graph.blocking(&Uid::new("top")).collect()), "a");
        // A dependent blocks no longer: its owner and itself.
        assert_eq!(observe(&mut graph, "a", &[("top", false)], &[]), "top a");
        assert_eq!(graph.blocking(&Uid::new("top")).count(), 0);
        assert_eq!(forget(&mut graph, "a"), "top b");
        assert!(graph.is_gone(&Uid::new("a")));
        assert_eq!(forget(&mut graph, "top"), "b");
        assert_eq!(observe(&mut graph, "b", &[], &[]), "");
        assert!(graph.owned.is_empty() && graph.edges.is_empty() && graph.holding.is_empty() && graph.gone.is_empty());
    }

    #[test]
    fn a_table_that_was_read_anew_loses_what_is_not_there() {
        let mut graph = Graph::default();
        observe(&mut graph, "a", &[("top", true)], &[]);
        observe(&mut graph, "b", &[("a", true)], &["orphan"]);
        let mut due = Vec::new();
        graph.forget_others("t", &HashSet::from([Uid::new("b")]), &mut due);
        assert_eq!(names(due), "b");
        graph.forget_others("t", &HashSet::new(), &mut Vec::new());
        assert!(graph.owned.is_empty() && graph.edges.is_empty() && graph.holding.is_empty() && graph.gone.is_empty());
    }
}
