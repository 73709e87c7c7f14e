//! Events are kept for an hour, and never more of them than fit.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use machinery::time::Time;
use serde_json::{Value, json};
use store::{Entry, EventKind};

use super::follow::{Follow, News};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const TABLE: &str = "core/events";
/// How long an event is kept after it was last seen, in seconds.
const KEPT: i64 = 3600;
/// How much all events may take.
const BOUND: usize = 16 << 20;
/// What an event takes besides its bytes.
const CHARGE: usize = 256;
/// Removed together, so that others get their turn.
const BATCH: usize = 64;
const AT_ONCE: usize = 8;
/// New events are taken in together.
const PAUSE: Duration = Duration::from_millis(100);

/// After how many seconds a removal that failed is tried again.
const RETRY: i64 = 60;

/// Writes a warning about an object: its kind, where it is and which one it is.
pub async fn warn(server: &Server, local: &Local, who: &str, about: Value, reason: &str, message: String) {
    let namespace = about["namespace"].as_str().filter(|own| !own.is_empty()).unwrap_or("default").to_owned();
    let name = about["name"].as_str().unwrap_or_default();
    let (now, random) = (server.0.now(), || server.0.random_u32());
    let event = json!({
        "metadata": {"name": format!("{name}.{:08x}{:08x}", random(), random()), "namespace": namespace},
        "involvedObject": about, "type": "Warning", "reason": reason, "count": 1, "message": message,
        "source": {"component": who}, "firstTimestamp": now, "lastTimestamp": now,
    });
    if let Err(status) = local.create(&format!("/api/v1/namespaces/{namespace}/events"), &event).await {
        tracing::debug!(%status, "an event could not be written");
    }
}

/// Removes old events for as long as the server runs.
pub async fn run(server: Server) {
    let local = Local::new(&server, "kube-apiserver");
    let mut follow = Follow::tables(server.store(), &[TABLE]);
    let mut ages = Ages::default();
    loop {
        let now = server.0.now_seconds();
        follow.read_woken(&mut |_, news| ages.take_in(news, now));
        let due = ages.due(now - KEPT, BOUND, BATCH);
        if due.is_empty() {
            let wait = ages.oldest().map_or(KEPT, |oldest| (oldest + KEPT + 1 - now).clamp(1, KEPT));
            tokio::select! {
                () = follow.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(wait.unsigned_abs())) => {}
            }
        } else {
            let (server, local) = (&server, &local);
            let remove = |(key, revision): (Arc<str>, u64)| {
                async move { (remove(server, local, &key, revision).await, key) }.boxed()
            };
            let removals: Vec<BoxFuture<'_, _>> = due.into_iter().map(remove).collect();
            let mut removals = stream::iter(removals).buffer_unordered(AT_ONCE);
            while let Some((removed, key)) = removals.next().await {
                ages.settle(&key, (!removed).then_some(now - KEPT + RETRY));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Removes one version of an event; says whether that is done.
async fn remove(server: &Server, local: &Local, key: &str, revision: u64) -> bool {
    let Some(entry) = server.store().get(TABLE, key).filter(|entry| entry.revision == revision) else { return true };
    let Some((namespace, name)) = entry.key.split_once('/') else { return true };
    let options = json!({"preconditions": {"resourceVersion": revision.to_string()}});
    match local.delete(&format!("/api/v1/namespaces/{namespace}/events/{name}"), &options).await {
        Err(status) if !matches!(status.code, 404 | 409) => {
            tracing::debug!(%status, key, "an old event could not be removed");
            false
        }
        _ => true,
    }
}

/// All events by age, with what they take.
#[derive(Default)]
struct Ages {
    by_age: BTreeSet<(i64, Arc<str>)>,
    known: HashMap<Arc<str>, Known>,
    bytes: usize,
    /// The same for each namespace: who writes many pushes out their own.
    namespaces: HashMap<String, Share>,
}

#[derive(Default)]
struct Share {
    by_age: BTreeSet<(i64, Arc<str>)>,
    bytes: usize,
}

/// The namespace of an event's key.
fn namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[derive(Clone, Copy)]
struct Known {
    seen: i64,
    bytes: usize,
    revision: u64,
}

impl Ages {
    fn take_in(&mut self, news: News, now: i64) {
        match news {
            News::All { entries, .. } => {
                *self = Ages::default();
                entries.iter().for_each(|entry| self.add(entry, now));
            }
            News::Events(events) => {
                for event in events {
                    match event.kind {
                        EventKind::Put => self.add(&event.entry, now),
                        EventKind::Delete => self.forget(event.key()),
                    }
                }
            }
        }
    }

    fn add(&mut self, entry: &Entry, now: i64) {
        // What claims to come from the future would stay forever.
        let seen = parse_stored(entry).map_or(0, |event| last_seen(&event)).min(now);
        let bytes = entry.value.len() + entry.key.len() + CHARGE;
        self.put(entry.key.clone(), Known { seen, bytes, revision: entry.revision });
    }

    fn put(&mut self, key: Arc<str>, known: Known) {
        self.forget(&key);
        self.by_age.insert((known.seen, key.clone()));
        self.bytes += known.bytes;
        let share = self.namespaces.entry(namespace(&key).to_owned()).or_default();
        share.by_age.insert((known.seen, key.clone()));
        share.bytes += known.bytes;
        self.known.insert(key, known);
    }

    fn forget(&mut self, key: &Arc<str>) {
        if let Some(known) = self.known.remove(key) {
            let place = (known.seen, key.clone());
            self.by_age.remove(&place);
            self.bytes -= known.bytes;
            if let Some(share) = self.namespaces.get_mut(namespace(key)) {
                share.by_age.remove(&place);
                share.bytes -= known.bytes;
                if share.by_age.is_empty() {
                    self.namespaces.remove(namespace(key));
                }
            }
        }
    }

    /// Forgets an event, or takes it for newer than it is so that it comes up again later.
    fn settle(&mut self, key: &Arc<str>, later: Option<i64>) {
        match (later, self.known.get(key).copied()) {
            (Some(seen), Some(known)) => self.put(key.clone(), Known { seen, ..known }),
            _ => self.forget(key),
        }
    }

    fn oldest(&self) -> Option<i64> {
        self.by_age.first().map(|(seen, _)| *seen)
    }

    /// The events that were last seen before a time or, of the namespaces that have most, are too many: the oldest first, at most
    /// `limit`, with their revisions.
    fn due(&self, before: i64, bound: usize, limit: usize) -> Vec<(Arc<str>, u64)> {
        let mut due = Vec::new();
        for (_, key) in self.by_age.iter().take(limit).take_while(|(seen, _)| *seen < before) {
            due.extend(self.known.get(key).map(|known| (key.clone(), known.revision)));
        }
        if !due.is_empty() || self.bytes <= bound {
            return due;
        }
        let mut left = self.bytes;
        let mut shares: Vec<_> = self.namespaces.values().map(|share| (share.bytes, share.by_age.iter())).collect();
        while left > bound && due.len() < limit {
            let Some((bytes, ages)) = shares.iter_mut().max_by_key(|(bytes, _)| *bytes) else { break };
            let Some(known) = ages.next().and_then(|(_, key)| Some((key, self.known.get(key)?))) else { break };
            let (key, known) = known;
            left -= known.bytes;
            *bytes -= known.bytes;
            due.push((key.clone(), known.revision));
        }
        due
    }
}

/// When an event was last seen, in seconds since 1970. One that says nothing counts from its creation.
fn last_seen(event: &Value) -> i64 {
    let times = [
        &event["lastTimestamp"],
        &event["series"]["lastObservedTime"],
        &event["eventTime"],
        &event["firstTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.iter().filter_map(|time| Some(time.as_str()?.parse::<Time>().ok()?.seconds)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_by_age_and_by_bytes() {
        let mut ages = Ages::default();
        for (key, seen) in [("c", 30), ("a", 10), ("b", 20)] {
            ages.put(key.into(), Known { seen, bytes: 100, revision: 1 });
        }
        let due = |ages: &Ages, before, bound, limit| {
            ages.due(before, bound, limit).iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(due(&ages, 0, 300, 9), "");
        assert_eq!(due(&ages, 20, 300, 9), "a");
        assert_eq!(due(&ages, 0, 299, 9), "a");
        assert_eq!(due(&ages, 0, 100, 9), "a b");
        assert_eq!(due(&ages, 99, 300, 2), "a b");
        // Seen again: the same event, younger.
        ages.put("a".into(), Known { seen: 40, bytes: 150, revision: 2 });
        assert_eq!((ages.bytes, ages.oldest()), (350, Some(20)));
        ages.settle(&"b".into(), Some(50));
        assert_eq!(due(&ages, 99, 300, 9), "c a b");
        ages.settle(&"c".into(), None);
        assert_eq!((ages.bytes, ages.oldest()), (250, Some(40)));
    }

    #[test]
    fn who_writes_many_pushes_out_their_own() {
        let mut ages = Ages::default();
        for (key, seen, bytes) in [("b/old", 1, 50), ("a/one", 10, 300), ("a/two", 11, 300), ("b/new", 12, 50)] {
            ages.put(key.into(), Known { seen, bytes, revision: 1 });
        }
        let due = |ages: &Ages, bound| {
            ages.due(0, bound, 9).iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(due(&ages, 700), "");
        assert_eq!(due(&ages, 650), "a/one");
        assert_eq!(due(&ages, 399), "a/one a/two");
        assert_eq!(due(&ages, 60), "a/one a/two b/old");
        assert_eq!(due(&ages, 0), "a/one a/two b/old b/new");
        for key in ["a/one", "a/two", "b/old", "b/new"] {
            ages.settle(&key.into(), None);
        }
        assert!(ages.namespaces.is_empty() && ages.by_age.is_empty() && ages.bytes == 0);
    }

    #[test]
    fn the_latest_time_counts() {
        for (event, expected) in [
            (json!({}), 0),
            (json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:07Z"}, "lastTimestamp": null}), 7),
            (json!({"firstTimestamp": "1970-01-01T00:00:01Z", "lastTimestamp": "1970-01-01T00:00:09Z"}), 9),
            (
                json!({"eventTime": "1970-01-01T00:00:05.5Z", "series": {"lastObservedTime": "1970-01-01T00:01:00.000001Z"}}),
                60,
            ),
        ] {
            assert_eq!(last_seen(&event), expected, "{event}");
        }
    }
}
