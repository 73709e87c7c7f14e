//! Long answers. A client that reads as fast as the server writes keeps a thread busy for as long as its list is. So while a
//! connection sends one it is driven by threads of their own, of lower priority: there is always one for everybody else.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tokio::runtime::{Builder, Handle, Runtime};

/// How much lower their priority is.
const NICE: i32 = 10;

/// The threads for long answers.
pub struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

/// How many long answers a connection is sending.
#[derive(Clone, Default)]
pub struct Sending(Arc<AtomicUsize>);

/// One of them, until this is dropped.
pub struct Long(Sending);

impl Sending {
    /// One more.
    pub fn one(&self) -> Long {
        self.0.fetch_add(1, Ordering::Relaxed);
        Long(self.clone())
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
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
