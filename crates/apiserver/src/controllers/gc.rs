//! Garbage collection: what has lost its owners goes, what waits for its dependents is let go.
//!
//! A graph of ids follows all tables; what may be affected by a change is queued and then looked at in the store as it is.
//! Nothing is kept over a restart: the graph is built again, and everything that has owners is looked at once.

mod graph;
mod meta;
mod queue;
mod work;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use store::EventKind;

use self::graph::{At, Due, Graph, Uid};
use self::meta::Meta;
use self::queue::Queue;
use self::work::{Outcome, Worker};
use super::follow::{Follow, News};
use crate::server::Server;

/// How many objects are looked at before the graph is brought up to date.
const BATCH: usize = 256;
/// How many of them at the same time, so that their writes share syncs of the disk.
const AT_ONCE: usize = 32;
/// While changes come in that need nothing done, they are taken in together.
const PAUSE: Duration = Duration::from_millis(2);

/// Collects garbage for as long as the server runs.
pub async fn run(server: Server) {
    let mut follow = Follow::new(server.store());
    let mut worker = Worker::new(&server);
    let mut graph = Graph::default();
    let mut queue = Queue::default();
    let mut generation = None;
    loop {
        let current = server.0.generation.load(Ordering::Acquire);
        if generation != Some(current) {
            generation = Some(current);
            let tables: HashSet<Arc<str>> = worker.serve(server.0.catalog()).into_iter().collect();
            let mut due = Vec::new();
            // The last that is heard of a kind is that its objects go.
            follow.read_all(&mut |table, news| take_in(&mut graph, table, news, &mut due));
            for table in follow.retain(|table| tables.contains(table)) {
                graph.forget_others(&table, &HashSet::new(), &mut due);
            }
            tables.into_iter().for_each(|table| follow.add(table));
            due.into_iter().for_each(|due| queue.add(due));
            // Owners may be of a kind that is served only now.
            queue.retry_all();
        }
        let mut due = Vec::new();
        follow.read_woken(&mut |table, news| take_in(&mut graph, table, news, &mut due));
        due.drain(..).for_each(|due| queue.add(due));
        let taken = queue.take(BATCH);
        if taken.is_empty() {
            let next = queue.next();
            let wait = async move {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = follow.changed() => tokio::time::sleep(PAUSE).await,
                () = wait => {}
            }
            continue;
        }
        // An owner may be let go only when all its dependents up to then are known.
        let known = server.store().revision();
        follow.read_all(&mut |table, news| take_in(&mut graph, table, news, &mut due));
        due.into_iter().for_each(|due| queue.add(due));
        let (worker, graph) = (&worker, &graph);
        let look = |due: Due| async move { (worker.attend(graph, known, &due).await, due.uid) }.boxed();
        let looks: Vec<BoxFuture<'_, _>> = taken.into_iter().map(look).collect();
        let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
        while let Some((outcome, uid)) = looks.next().await {
            if let Outcome::More(more) = &outcome {
                more.iter().for_each(|due| queue.add(due.clone()));
            }
            queue.done(&uid, !matches!(outcome, Outcome::Later));
        }
    }
}

fn take_in(graph: &mut Graph, table: &Arc<str>, news: News, due: &mut Vec<Due>) {
    let at = |key: &Arc<str>| At { table: table.clone(), key: key.clone() };
    match news {
        News::All { entries, again } => {
            let mut there = HashSet::with_capacity(entries.len());
            for entry in &entries {
                if let Some(meta) = Meta::scan(&entry.value) {
                    there.insert(Uid::new(&meta.uid));
                    graph.observe(&at(&entry.key), &meta, due);
                }
            }
            if again {
                graph.forget_others(table, &there, due);
                // Owners without owners are not in the graph, so whoever may have lost one is looked at.
                due.extend(graph.all_owned());
            }
        }
        News::Events(events) => {
            for event in &events {
                let Some(meta) = Meta::scan(&event.entry.value) else { continue };
                match event.kind {
                    EventKind::Put => graph.observe(&at(event.key()), &meta, due),
                    EventKind::Delete => graph.forget(&Uid::new(&meta.uid), due),
                }
            }
        }
    }
}
