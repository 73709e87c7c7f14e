//! Requests that are large: what they hold and how long they take the processor is bounded, for each user and for all.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::status::Status;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::user::{MASTERS, User};

/// Requests and answers from this size on are worked on aside, a few at a time.
pub const LARGE: usize = 128 * 1024;

/// Runs what takes long where it keeps no other request waiting.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// The same for work that also waits.
pub async fn wait_aside<T>(work: impl Future<Output = T>) -> T {
    match Handle::try_current().map(|handle| (handle.runtime_flavor(), handle)) {
        Ok((RuntimeFlavor::MultiThread, handle)) => tokio::task::block_in_place(|| handle.block_on(work)),
        _ => work.await,
    }
}

/// Bytes of request bodies that are being received or worked on.
#[derive(Clone)]
pub struct Bodies(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    all: usize,
    by_user: HashMap<Arc<str>, usize>,
}

/// How many bytes all users may have here.
const ALL: usize = 512 * 1024 * 1024;
/// How many one user.
const EACH: usize = 64 * 1024 * 1024;

/// Bytes that count until this is dropped.
pub struct Bytes {
    bodies: Bodies,
    user: Arc<str>,
    /// Whether others' do not count for it: administrators get in when nobody else does.
    exempt: bool,
    count: usize,
}

impl Bodies {
    /// Nothing yet.
    pub fn new() -> Bodies {
        Bodies(Arc::default())
    }

    /// An account for one body.
    pub fn account(&self, user: &User) -> Bytes {
        Bytes { bodies: self.clone(), user: user.party().into(), exempt: user.in_group(MASTERS), count: 0 }
    }
}

impl Bytes {
    /// The body has grown to so many bytes; 429 if its user, or all together, have too many. Small ones do not count.
    pub fn grown(&mut self, to: usize) -> Result<(), Status> {
        if to <= LARGE || to <= self.count {
            return Ok(());
        }
        let more = to - self.count;
        let mut held = self.bodies.0.lock();
        let own = held.by_user.get(&self.user).copied().unwrap_or_default();
        if own + more > EACH || held.all + more > ALL && !self.exempt {
            return Err(Status::too_many_requests("too many large requests at once, please try again later.", 1));
        }
        held.all += more;
        held.by_user.insert(self.user.clone(), own + more);
        self.count = to;
        Ok(())
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut held = self.bodies.0.lock();
        held.all -= self.count;
        if let Some(own) = held.by_user.get_mut(&self.user) {
            *own -= self.count;
            if *own == 0 {
                held.by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_count_until_they_are_gone() {
        let bodies = Bodies::new();
        let user = |name: &str| User::new(name, Vec::<String>::new());
        let (a, b) = (user("a"), user("b"));
        let mut small = bodies.account(&a);
        small.grown(LARGE).unwrap();
        assert_eq!(bodies.0.lock().all, 0);
        let mut kept = Vec::new();
        for _ in 0..EACH / (1 << 20) {
            let mut body = bodies.account(&a);
            body.grown(1 << 19).unwrap();
            body.grown(1 << 20).unwrap();
            kept.push(body);
        }
        assert_eq!(bodies.account(&a).grown(1 << 20).unwrap_err().code, 429);
        assert!(bodies.account(&b).grown(1 << 20).is_ok(), "one user's are not another's");
        kept.pop();
        assert!(bodies.account(&a).grown(1 << 20).is_ok());
        // the service accounts of a namespace are one, and administrators get in whoever is there
        for n in 0..20 {
            let robot = User::service_account("shop", &format!("r{n}"));
            kept.extend((0..EACH >> 20).map_while(|_| {
                let mut body = bodies.account(&robot);
                body.grown(1 << 20).ok().map(|()| body)
            }));
        }
        assert!(bodies.account(&b).grown(1 << 20).is_ok(), "one namespace's are not all");
        let users: Vec<_> = (0..20).map(|n| user(&format!("u{n}"))).collect();
        for user in &users {
            kept.extend((0..EACH >> 20).map_while(|_| {
                let mut body = bodies.account(user);
                body.grown(1 << 20).ok().map(|()| body)
            }));
        }
        assert_eq!(bodies.account(&b).grown(1 << 20).unwrap_err().code, 429);
        assert!(bodies.account(&User::new("admin", [MASTERS])).grown(1 << 20).is_ok());
        drop(kept);
        let held = bodies.0.lock();
        assert!(held.all == 0 && held.by_user.is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_takes_long_keeps_nobody_waiting() {
        // With one thread, this ends only if the other is run meanwhile.
        let (tell, told) = std::sync::mpsc::channel();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            tell.send(()).unwrap();
        });
        tokio::spawn(async move { aside(|| told.recv().unwrap()) }).await.unwrap();
        assert_eq!(
            tokio::spawn(wait_aside(async {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                7
            }))
            .await
            .unwrap(),
            7
        );
    }

    #[tokio::test]
    async fn with_one_thread_there_is_no_aside() {
        assert_eq!(aside(|| 1) + wait_aside(async { 2 }).await, 3);
    }
}
