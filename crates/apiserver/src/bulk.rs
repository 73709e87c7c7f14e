//! Long answers. A client that reads as fast as the server writes keeps a thread busy for as long as its list is. So while a
//! connection sends one it is driven by threads of their own, of lower priority: there is always one for everybody else.
//! While others ask for little, many long answers go at a pace: whoever reads them then leaves the processor in between, too.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How much lower their priority is.
const NICE: i32 = 10;

/// The threads for long answers.
pub struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

/// How many bytes of long answers go in a millisecond while short ones are asked for.
const BYTES: u32 = 128 * 1024;
/// How far ahead of that they may be: one list is nobody's trouble.
const AHEAD: Duration = Duration::from_millis(64);
/// How long after a short answer others are taken to be there.
const LATELY: Duration = Duration::from_millis(20);

/// How fast long answers go, all together.
pub struct Pace {
    began: Instant,
    /// When the last short answer was given, in microseconds since then.
    short: AtomicU64,
    /// Until when what was sent so far takes at that pace.
    due: Mutex<Instant>,
}

impl Default for Pace {
    fn default() -> Pace {
        let now = Instant::now();
        Pace { began: now, short: AtomicU64::new(0), due: Mutex::new(now) }
    }
}

impl Pace {
    /// A short answer was given.
    fn short(&self, now: Instant) {
        let since = now.saturating_duration_since(self.began).as_micros();
        self.short.store(since as u64, Ordering::Relaxed);
    }

    /// So many bytes of a long answer were sent; until when the next are to wait.
    fn sent(&self, bytes: usize, now: Instant) -> Option<Instant> {
        let last = self.began + Duration::from_micros(self.short.load(Ordering::Relaxed));
        if now.saturating_duration_since(last) > LATELY {
            return None;
        }
        let takes = Duration::from_micros(bytes as u64 * 1000 / u64::from(BYTES));
        let mut due = self.due.lock();
        *due = now.checked_sub(AHEAD).map_or(*due, |earliest| earliest.max(*due)) + takes;
        (*due > now).then_some(*due)
    }
}

/// What a connection is sending.
#[derive(Clone, Default)]
pub struct Sending {
    /// How many long answers.
    count: Arc<AtomicUsize>,
    pace: Arc<Pace>,
    close: Arc<Notify>,
}

/// One of them, until this is dropped.
pub struct Long(Sending);

impl Sending {
    /// At a pace that connections share.
    pub fn at(pace: Arc<Pace>) -> Sending {
        Sending { pace, ..Sending::default() }
    }

    /// One more.
    pub fn one(&self) -> Long {
        self.count.fetch_add(1, Ordering::Relaxed);
        Long(self.clone())
    }

    /// A short answer was given.
    pub fn short(&self) {
        self.pace.short(Instant::now());
    }

    /// Tells the connection to close.
    pub fn close(&self) -> &Arc<Notify> {
        &self.close
    }

    fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }
}

impl Long {
    /// So many bytes of it were sent; until when the next are to wait.
    pub fn sent(&self, bytes: usize) -> Option<Instant> {
        self.0.pace.sent(bytes, Instant::now())
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// One for each processor but the first.
    pub fn start() -> io::Result<Threads> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(processors.saturating_sub(1).max(1))
            .thread_name("long answers")
            .on_thread_start(|| {
                // Where it cannot be lowered it stays as it is.
                let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
            })
            .enable_all()
            .build()?;
        Ok(Threads { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// For [`drive`].
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Drives a connection to its end, here or, while it sends long answers, there.
pub async fn drive<T: Send + 'static>(
    mut connection: Pin<Box<dyn Future<Output = T> + Send>>,
    sending: Sending,
    there: Handle,
) -> Option<T> {
    loop {
        if let Some(ended) = drive_while(&mut connection, || !sending.any()).await {
            return Some(ended);
        }
        let sending = sending.clone();
        let aside = there.spawn(async move {
            let ended = drive_while(&mut connection, || sending.any()).await;
            (connection, ended)
        });
        match aside.await {
            Ok((_, Some(ended))) => return Some(ended),
            Ok((back, None)) => connection = back,
            Err(_) => return None,
        }
    }
}

/// Nothing if it did not end while `so` was true.
async fn drive_while<T>(connection: &mut Pin<Box<dyn Future<Output = T> + Send>>, so: impl Fn() -> bool) -> Option<T> {
    poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if so() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_long_answers_go_at_a_pace_while_others_ask_for_little() {
        let pace = Pace::default();
        let second = BYTES as usize * 1000;
        let now = Instant::now() + Duration::from_secs(10);
        for _ in 0..5 {
            assert_eq!(pace.sent(second, now), None, "nobody else is there");
        }
        pace.short(now);
        assert_eq!(pace.sent(second / 20, now), None, "one goes at once");
        assert_eq!(pace.sent(second / 2, now), Some(now + Duration::from_millis(550) - AHEAD));
        assert_eq!(pace.sent(second / 2, now), Some(now + Duration::from_millis(1050) - AHEAD), "together, not each");
        assert_eq!(pace.sent(second, now + LATELY * 2), None, "nobody else is there any more");
    }

    #[tokio::test]
    async fn only_while_it_sends_long_answers_a_connection_is_elsewhere() {
        let threads = Threads::start().unwrap();
        let sending = Sending::default();
        let own = sending.clone();
        let name = || std::thread::current().name().unwrap_or_default().to_owned();
        let connection = Box::pin(async move {
            let mut seen = vec![name()];
            let long = own.one();
            tokio::task::yield_now().await;
            seen.push(name());
            drop(long);
            tokio::task::yield_now().await;
            seen.push(name());
            seen
        });
        let seen = drive(connection, sending, threads.handle()).await.unwrap();
        assert_eq!(seen[1], "long answers");
        assert!(seen[0] == name() && seen[2] == name(), "{seen:?}");
    }
}
