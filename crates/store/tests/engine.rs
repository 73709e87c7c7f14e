//! An engine of our own under the store: what is shown, and when.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use conductor_store::engine::{AppendError, Checkpoint, Engine, EngineStats, Recovered};
use conductor_store::{CommitError, Expect, Op, OpenError, Options, Store, Transaction};

/// Says when a batch arrives, and waits to be told what becomes of it.
struct Gate {
    arrived: Sender<(u64, u64)>,
    verdict: Receiver<bool>,
}

impl Engine for Gate {
    fn recover(&mut self, _: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>) -> Result<(), OpenError> {
        Ok(())
    }

    fn append(&mut self, first: u64, last: u64, _: &[u8]) -> Result<(), AppendError> {
        self.arrived.send((first, last)).expect("the test listens");
        match self.verdict.recv() {
            Ok(true) => Ok(()),
            _ => Err(AppendError { error: io::ErrorKind::Other.into(), unknown: false }),
        }
    }

    fn wants_checkpoint(&self, _: u64) -> bool {
        false
    }

    fn begin_checkpoint(&mut self) -> io::Result<Box<dyn Checkpoint>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn end_checkpoint(&mut self, _: bool) {}

    fn stats(&self) -> EngineStats {
        EngineStats::default()
    }
}

fn gate() -> (Store, Receiver<(u64, u64)>, Sender<bool>) {
    let ((arrived, arrivals), (tell, verdict)) = (channel(), channel());
    let store = Store::with_engine(Box::new(Gate { arrived, verdict }), Options::default()).expect("opens");
    (store, arrivals, tell)
}

fn create(key: &str) -> Transaction {
    Op::put("t", key, b"v".to_vec(), Expect::Absent).into()
}

#[tokio::test]
async fn nothing_is_visible_before_it_is_durable() {
    let (store, arrivals, tell) = gate();
    let mut watch = store.watch("t", "", 0).expect("watches");
    let commit = store.commit(create("a"));
    assert_eq!(arrivals.recv(), Ok((1, 1)));
    assert!(store.get("t", "a").is_none());
    assert_eq!((store.revision(), store.count("t")), (0, 0));
    assert!(watch.try_next().expect("goes on").is_none());
    assert_eq!(watch.progress(), Some(0));
    tell.send(true).expect("the engine waits");
    assert_eq!(commit.await.expect("commits").revision, 1);
    assert_eq!(watch.next().await.expect("goes on").len(), 1);
}

#[tokio::test]
async fn one_sync_serves_all_that_wait() {
    let (store, arrivals, tell) = gate();
    let first = store.commit(create("a"));
    assert_eq!(arrivals.recv(), Ok((1, 1)));
    let waiting: Vec<_> = ["b", "c", "d"].into_iter().map(|key| store.commit(create(key))).collect();
    tell.send(true).expect("the engine waits");
    first.await.expect("commits");
    assert_eq!(arrivals.recv(), Ok((2, 4)));
    tell.send(true).expect("the engine waits");
    for commit in waiting {
        commit.await.expect("commits");
    }
}

#[tokio::test]
async fn a_precondition_that_failed_on_a_write_that_never_happened_is_no_answer() {
    let (store, arrivals, tell) = gate();
    let first = store.commit(create("a"));
    assert_eq!(arrivals.recv(), Ok((1, 1)));
    // The second fails only because of the first, and both are in one batch.
    let commits = [store.commit(create("b")), store.commit(create("b"))];
    tell.send(true).expect("the engine waits");
    first.await.expect("commits");
    assert_eq!(arrivals.recv(), Ok((2, 2)));
    tell.send(false).expect("the engine waits");
    for commit in commits {
        assert!(matches!(commit.await, Err(CommitError::Io { .. })));
    }
    let again = store.commit(create("b"));
    assert_eq!(arrivals.recv(), Ok((2, 2)), "its revision was never given out");
    tell.send(true).expect("the engine waits");
    assert_eq!(again.await.expect("commits").revision, 2);
}
