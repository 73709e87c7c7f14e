//! How many requests run at once, and who is next: users take turns, so that one who floods waits for himself only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use machinery::status::Status;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// How long a request waits for its turn.
const PATIENCE: Duration = Duration::from_secs(15);
/// How many requests of one user wait.
const WAITING_OF_ONE: usize = 400;
/// How many requests wait in all.
const WAITING: usize = 10_000;

/// Lets a number of requests in at a time. One user has at most three quarters of the places: whose requests hang, in a webhook
/// that does not answer, keeps out nobody else.
///
/// Invariant: nobody waits while there is room, but for those who have their share.
#[derive(Clone)]
pub struct Gate(Arc<Mutex<State>>);

struct State {
    room: usize,
    /// How many places one user may have.
    share: usize,
    /// Who has how many.
    held: HashMap<Arc<str>, usize>,
    waiting: usize,
    queues: HashMap<Arc<str>, VecDeque<oneshot::Sender<Pass>>>,
    /// Those who wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

/// A place inside; given to the next who waits when dropped.
pub struct Pass(Option<(Gate, Arc<str>)>);

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some((gate, user)) = self.0.take() {
            gate.leave(&user);
        }
    }
}

impl State {
    fn may_enter(&self, user: &str) -> bool {
        self.room > 0 && self.held.get(user).is_none_or(|held| *held < self.share)
    }

    fn take(&mut self, user: Arc<str>) {
        self.room -= 1;
        *self.held.entry(user).or_default() += 1;
    }

    fn give_back(&mut self, user: &str) {
        self.room += 1;
        if let Some(held) = self.held.get_mut(user) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(user);
            }
        }
    }

    /// The next request that may enter, and whose it is.
    fn next(&mut self) -> Option<(oneshot::Sender<Pass>, Arc<str>)> {
        for _ in 0..self.turns.len() {
            let user = self.turns.pop_front()?;
            if !self.may_enter(&user) {
                self.turns.push_back(user);
                continue;
            }
            let Some(queue) = self.queues.get_mut(&user) else { continue };
            let next = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&user);
            } else {
                self.turns.push_back(user.clone());
            }
            if let Some(next) = next {
                self.waiting -= 1;
                self.take(user.clone());
                return Some((next, user));
            }
        }
        None
    }
}

impl Gate {
    /// Room for so many.
    pub fn new(room: usize) -> Gate {
        Gate(Arc::new(Mutex::new(State {
            room,
            share: (room * 3 / 4).max(1),
            held: HashMap::new(),
            waiting: 0,
            queues: HashMap::new(),
            turns: VecDeque::new(),
        })))
    }

    /// Waits for a place; 429 for who comes with too many, or waits too long.
    pub async fn enter(&self, user: &str) -> Result<Pass, Status> {
        let turn = match self.ask(user) {
            Ok(pass) => return Ok(pass),
            Err(None) => return Err(busy()),
            Err(Some(turn)) => turn,
        };
        match tokio::time::timeout(PATIENCE, turn).await {
            Ok(Ok(pass)) => Ok(pass),
            _ => Err(busy()),
        }
    }

    fn ask(&self, user: &str) -> Result<Pass, Option<oneshot::Receiver<Pass>>> {
        let mut state = self.0.lock();
        if state.may_enter(user) {
            let user: Arc<str> = state.held.get_key_value(user).map_or_else(|| user.into(), |(known, _)| known.clone());
            state.take(user.clone());
            return Ok(Pass(Some((self.clone(), user))));
        }
        let queued = state.queues.get(user).map_or(0, VecDeque::len);
        if state.waiting >= WAITING || queued >= WAITING_OF_ONE {
            return Err(None);
        }
        let (give, turn) = oneshot::channel();
        state.waiting += 1;
        match state.queues.get_mut(user) {
            Some(queue) => queue.push_back(give),
            None => {
                let user: Arc<str> = user.into();
                state.queues.insert(user.clone(), VecDeque::from([give]));
                state.turns.push_back(user);
            }
        }
        Err(Some(turn))
    }

    /// Takes a place back and gives it to the next, or leaves it free.
    fn leave(&self, user: &Arc<str>) {
        let mut state = self.0.lock();
        state.give_back(user);
        while let Some((next, user)) = state.next() {
            drop(state);
            match next.send(Pass(Some((self.clone(), user.clone())))) {
                Ok(()) => return,
                // Who has given up in the meantime hands the place back at once.
                Err(mut pass) => drop(pass.0.take()),
            }
            state = self.0.lock();
            state.give_back(&user);
        }
    }
}

fn busy() -> Status {
    Status::too_many_requests("too many requests, please try again later.", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn users_take_turns() {
        let gate = Gate::new(1);
        let first = gate.enter("flood").await.ok().unwrap();
        let mut floods: Vec<_> = (0..3).map(|_| Box::pin(gate.enter("flood"))).collect();
        floods.iter_mut().for_each(|own| assert!(own.as_mut().now_or_never().is_none()));
        let mut quiet = Box::pin(gate.enter("quiet"));
        assert!(quiet.as_mut().now_or_never().is_none());
        drop(first);
        // One of the flood came before; then it is the other's turn.
        let own = floods.remove(0).now_or_never().unwrap().ok().unwrap();
        assert!(quiet.as_mut().now_or_never().is_none());
        drop(own);
        let pass = quiet.now_or_never().unwrap().ok().unwrap();
        // Those who give up are passed over, and no place is lost.
        drop(floods);
        drop(pass);
        assert!(gate.enter("anybody").now_or_never().unwrap().is_ok());
        assert_eq!(gate.0.lock().room, 1);
        assert!(gate.0.lock().queues.is_empty() && gate.0.lock().waiting == 0);
    }

    #[tokio::test]
    async fn one_user_leaves_room_for_others() {
        let gate = Gate::new(4);
        let mut hanging: Vec<Pass> = Vec::new();
        for _ in 0..3 {
            hanging.push(gate.enter("flood").now_or_never().unwrap().ok().unwrap());
        }
        let mut fourth = Box::pin(gate.enter("flood"));
        assert!(fourth.as_mut().now_or_never().is_none(), "it has its share");
        let quiet = gate.enter("quiet").now_or_never().unwrap().ok().unwrap();
        assert!(gate.enter("quiet").now_or_never().is_none(), "there is no room");
        drop(quiet);
        assert!(fourth.as_mut().now_or_never().is_none(), "a place, but not for who has its share");
        drop(hanging.pop());
        assert!(fourth.now_or_never().unwrap().is_ok());
        drop(hanging);
        assert_eq!(gate.0.lock().room, 4);
        assert!(gate.0.lock().held.is_empty() && gate.0.lock().queues.is_empty());
    }

    #[tokio::test]
    async fn who_brings_too_many_is_told_so() {
        let gate = Gate::new(1);
        let _pass = gate.enter("flood").await.ok().unwrap();
        let mut waiting: Vec<_> = (0..WAITING_OF_ONE).map(|_| Box::pin(gate.enter("flood"))).collect();
        waiting.iter_mut().for_each(|own| assert!(own.as_mut().now_or_never().is_none()));
        let status = gate.enter("flood").await.err().unwrap();
        assert_eq!((status.code, status.retry_after), (429, Some(1)));
        assert!(gate.enter("quiet").now_or_never().is_none());
    }
}
