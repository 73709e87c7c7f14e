//! Watches that run: how many each user has, and what was made for those whose readers are slow. Both are bounded: who does not
//! read costs the server no more than a piece or two of what it was to be sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use machinery::status::Status;
use parking_lot::Mutex;

use crate::user::{MASTERS, User};

/// How many watches one user may have at once; the service accounts of a namespace count as one.
const EACH: usize = 1_000;
/// How many the system's own may have: administrators, controllers, nodes.
const EACH_OF_SYSTEM: usize = 10_000;
/// How many bytes of events that were made for one watch each wait to be sent.
const WAITING: usize = 64 * 1024 * 1024;

/// What all watches share.
#[derive(Clone, Default)]
pub struct Watches(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    all: usize,
    by_user: HashMap<Arc<str>, usize>,
    /// What waits, that which was asked for longest ago first.
    waiting: BTreeMap<u64, Bytes>,
    bytes: usize,
    last: u64,
}

/// One running watch, until this is dropped.
pub struct Running {
    watches: Watches,
    user: Arc<str>,
}

/// An event of which only a part was sent. It is kept until this is dropped, or until too much waits.
pub struct Waiting {
    watches: Watches,
    number: u64,
}

/// Whom a user's watches are counted for, and how many there may be.
fn share(user: &User) -> (&str, usize) {
    let party = user.party();
    // whoever counts under a name of the system's is of the system; the service accounts of other namespaces count under their group
    let system = party == user.name && party.starts_with("system:") && !user.is_anonymous();
    (party, if system || user.in_group(MASTERS) { EACH_OF_SYSTEM } else { EACH })
}

impl Watches {
    /// Counts one more; 429 if its user has too many.
    pub fn begin(&self, user: &User) -> Result<Running, Status> {
        let (whose, most) = share(user);
        let mut state = self.0.lock();
        let held = state.by_user.get(whose).copied().unwrap_or_default();
        if held >= most {
            let text =
                format!("{whose} has {held} watches, and may have no more at once: end some of them, or try later");
            return Err(Status::too_many_requests(text, 10));
        }
        let known = state.by_user.get_key_value(whose).map(|(known, _)| known.clone());
        let user: Arc<str> = known.unwrap_or_else(|| whose.into());
        state.by_user.insert(user.clone(), held + 1);
        state.all += 1;
        Ok(Running { watches: self.clone(), user })
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.0.lock().all
    }

    /// Keeps what was made for one watch until it is sent. If too much waits, what was asked for longest ago is given up.
    pub fn keep(&self, bytes: Bytes) -> Waiting {
        let mut state = self.0.lock();
        state.bytes += bytes.len();
        while state.bytes > WAITING
            && let Some((_, slowest)) = state.waiting.pop_first()
        {
            state.bytes -= slowest.len();
        }
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, bytes);
        Waiting { watches: self.clone(), number }
    }
}

impl Waiting {
    /// The piece that begins at a byte, and whether it is the last; nothing if it was given up.
    pub fn piece(&mut self, from: usize, size: usize) -> Option<(Bytes, bool)> {
        let mut state = self.watches.0.lock();
        let bytes = state.waiting.remove(&self.number)?;
        let end = bytes.len().min(from + size);
        // A copy: a slice would keep all of it for as long as the piece waits.
        let piece = Bytes::copy_from_slice(&bytes[from.min(end)..end]);
        let is_last = end == bytes.len();
        state.last += 1;
        self.number = state.last;
        state.waiting.insert(self.number, bytes);
        Some((piece, is_last))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.watches.0.lock();
        if let Some(bytes) = state.waiting.remove(&self.number) {
            state.bytes -= bytes.len();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.watches.0.lock();
        state.all -= 1;
        if let Some(held) = state.by_user.get_mut(&self.user) {
            *held -= 1;
            if *held == 0 {
                state.by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_watches_and_no_more() {
        let watches = Watches::default();
        let jane = User::new("jane", ["people"]);
        let mut held: Vec<_> = (0..EACH).map(|_| watches.begin(&jane).unwrap()).collect();
        let refused = watches.begin(&jane).err().unwrap();
        assert!(refused.code == 429 && refused.message.contains("jane has 1000 watches"), "{refused}");
        held.push(watches.begin(&User::new("joe", ["people"])).unwrap());
        held.remove(0);
        held.push(watches.begin(&jane).unwrap());
        drop(held);
        let state = watches.0.lock();
        assert!(state.all == 0 && state.by_user.is_empty());
    }

    #[test]
    fn service_accounts_of_a_namespace_count_together_and_the_systems_own_have_more() {
        let watches = Watches::default();
        let account = |number: usize| User::service_account("shop", &format!("a{}", number % 7));
        let _held: Vec<_> = (0..EACH).map(|number| watches.begin(&account(number)).unwrap()).collect();
        assert_eq!(watches.begin(&account(1)).err().unwrap().code, 429);
        for own in [
            User::service_account("conductor-system", "managers"),
            User::new("admin", [MASTERS]),
            User::new("system:kube-controller-manager", ["x"]),
        ] {
            assert_eq!(share(&own).1, EACH_OF_SYSTEM, "{}", own.name);
        }
        assert_eq!(share(&User::anonymous()).1, EACH);
    }

    #[test]
    fn what_waits_longest_is_given_up_when_too_much_waits() {
        let watches = Watches::default();
        let large = Bytes::from(vec![7; WAITING / 4]);
        let mut kept: Vec<_> = (0..4).map(|_| watches.keep(large.clone())).collect();
        assert_eq!(kept[0].piece(0, 3), Some((Bytes::from_static(&[7, 7, 7]), false)), "its reader is there");
        let mut more = watches.keep(Bytes::from_static(b"abcd"));
        assert_eq!(kept[1].piece(0, 3), None);
        assert!(kept[0].piece(3, 3).is_some() && kept[2].piece(0, 3).is_some());
        assert_eq!(more.piece(2, 9), Some((Bytes::from_static(b"cd"), true)));
        drop((kept, more));
        let state = watches.0.lock();
        assert!(state.bytes == 0 && state.waiting.is_empty());
    }
}
