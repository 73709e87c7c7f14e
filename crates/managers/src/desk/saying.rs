//! When claims that wait say anew why: soon after the numbers change, and never at the cost of claims that could be bound.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{Desk, Item, Key};

/// How often every claim that waits is looked at, whatever happens.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Before claims say anew why they wait when the numbers have changed, and before the same claim does so again.
const SAY_AGAIN: Duration = Duration::from_millis(500);
/// As many are looked at in one go.
const HANDFUL: usize = 64;
/// Between two handfuls, while there is nothing else to do, and at most.
const BREATH: Duration = Duration::from_millis(10);
const LONG_BREATH: Duration = Duration::from_secs(1);

/// What a claim said about waiting.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    leading: String,
    at: Instant,
    /// Before as long has passed it does not say so again.
    pause: Duration,
}

impl Desk {
    /// Lets claims that wait say anew why; runs for ever.
    pub(crate) async fn refresh(&self) {
        let mut pause = SAY_AGAIN;
        let mut all_at = Instant::now() + SAY_EVERY;
        loop {
            let _ = timeout(all_at.saturating_duration_since(Instant::now()), self.counted.notified()).await;
            sleep(pause).await;
            let begun = Instant::now();
            let keys = if begun >= all_at {
                all_at = begun + SAY_EVERY;
                self.unbound()
            } else {
                self.state.lock().index.waiting_claims()
            };
            self.touch_gently(keys).await;
            // however many wait, most of the time is for others
            pause = (4 * begun.elapsed()).clamp(SAY_AGAIN, SAY_EVERY);
        }
    }

    /// Wants claims looked at, a handful at a time, each when nothing else is in line or has been for a while.
    async fn touch_gently(&self, keys: Vec<Key>) {
        for handful in keys.chunks(HANDFUL) {
            let latest = Instant::now() + LONG_BREATH;
            while !self.queue.is_quiet() && Instant::now() < latest {
                sleep(BREATH).await;
            }
            for (namespace, name) in handful {
                self.queue.add(Item::Claim(namespace.clone(), name.clone()));
            }
        }
    }

    /// Every claim that is not bound.
    pub(super) fn unbound(&self) -> Vec<Key> {
        let state = self.state.lock();
        state.claims.iter().filter(|(_, seen)| !seen.bound).map(|(key, _)| key.clone()).collect()
    }

    /// Whether a claim may say again why it waits. If not, after how long it may.
    pub(crate) fn may_say(&self, key: &Key, leading: &str) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let Some(seen) = state.claims.get_mut(key) else { return Ok(()) };
        Said::again(&mut seen.said, leading, Instant::now())
    }
}

impl Said {
    /// At once if the leading reason is another, else soon and then more and more seldom.
    fn again(said: &mut Option<Said>, leading: &str, now: Instant) -> Result<(), Duration> {
        let mut pause = Duration::ZERO;
        if let Some(said) = said.as_mut().filter(|said| said.leading == leading) {
            let since = now.saturating_duration_since(said.at);
            if since < said.pause {
                return Err(said.pause - since);
            }
            // one that had nothing new to say for a while begins anew
            pause = if since < 4 * said.pause { said.pause } else { Duration::ZERO };
        }
        let pause = (2 * pause).clamp(SAY_AGAIN, SAY_EVERY);
        *said = Some(Said { leading: leading.to_owned(), at: now, pause });
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::{Api, Sink};
    use crate::desk::{Context, DeskSink, Role};
    use crate::events::Events;
    use crate::kind::Kind;
    use crate::transport::Transport;

    /// A desk that nobody answers: what it wants looked at is all that counts here.
    pub fn desk() -> Arc<Desk> {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        let api = Api::new(kube::Client::new(nobody, "default"));
        let cx = Context {
            provisioner: api.clone(),
            transport: Transport::ordered(api.clone()),
            consumers: Arc::default(),
            events: Events::new(api.clone()).0,
            evaluator: crate::expressions::Evaluator::default(),
            gates: Arc::default(),
            orphans: Default::default(),
            follow: Box::new(|_, _| {}),
            api,
        };
        Desk::new(Arc::new(cx), Kind::Volumes)
    }

    pub fn claim(number: usize) -> Value {
        json!({
            "metadata": {"namespace": "default", "name": format!("c{number}"), "uid": format!("u{number}")},
            "spec": {"storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}},
        })
    }

    pub fn volume(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Available"},
        })
    }

    pub fn show(desk: &Arc<Desk>, role: Role, object: Value) {
        DeskSink { desk: desk.clone(), role }.apply(object);
    }

    /// Takes the next item, as the workers do; a claim is noted as waiting.
    pub async fn work_off(desk: &Desk) -> Item {
        let item = desk.queue.next().await.key;
        if let Item::Claim(_, name) = &item {
            let claim = claim(name[1..].parse().expect("a number"));
            let ask = desk.kind.ask(&claim, true, None).expect("an ask");
            desk.decide(&ask, &claim);
        }
        desk.queue.done(&item);
        item
    }

    #[tokio::test]
    async fn claims_are_looked_at_when_the_numbers_change() {
        let desk = desk();
        (0..3).for_each(|number| show(&desk, Role::Claim, claim(number)));
        while !desk.queue.is_quiet() {
            work_off(&desk).await;
        }
        let refreshing = desk.clone();
        let refreshing = tokio::spawn(async move { refreshing.refresh().await });
        let looked_at = async || {
            let mut claims = std::collections::BTreeSet::new();
            while claims.len() < 3 {
                // well before all of them are looked at anyway
                let item = timeout(SAY_EVERY / 2, work_off(&desk)).await.expect("one to be looked at");
                claims.extend(Some(item).filter(|item| matches!(item, Item::Claim(..))));
            }
        };
        show(&desk, Role::Resource, volume("v1"));
        looked_at().await;
        DeskSink { desk: desk.clone(), role: Role::Resource }.delete(volume("v1"));
        looked_at().await;
        refreshing.abort();
    }

    #[tokio::test]
    async fn a_resource_that_is_as_it_was_changes_no_numbers() {
        let desk = desk();
        let told = || futures::FutureExt::now_or_never(desk.counted.notified()).is_some();
        let mut shown = volume("v1");
        show(&desk, Role::Resource, shown.clone());
        assert!(told(), "it is new");
        shown["metadata"]["resourceVersion"] = json!("2");
        show(&desk, Role::Resource, shown.clone());
        assert!(!told(), "it is as it was");
        shown["spec"]["capacity"]["storage"] = json!("2Gi");
        show(&desk, Role::Resource, shown);
        assert!(told(), "it is larger");
    }

    #[tokio::test]
    async fn claims_that_wait_do_not_stand_in_the_way_of_others() {
        let desk = desk();
        let keys: Vec<Key> = (0..1000).map(|n| ("default".into(), format!("c{n}").into())).collect();
        let all = keys.len();
        let mut touching = std::pin::pin!(desk.touch_gently(keys));
        assert!(futures::poll!(touching.as_mut()).is_pending());
        assert_eq!(desk.queue.len(), HANDFUL, "whoever comes now waits for no more");
        let working = async {
            for _ in 0..all {
                work_off(&desk).await;
            }
        };
        tokio::join!(touching, working);
        assert_eq!(desk.queue.len(), 0);
    }

    #[test]
    fn a_claim_says_the_same_with_other_numbers_more_and_more_seldom() {
        let (mut said, mut now) = (None, Instant::now());
        assert_eq!(Said::again(&mut said, "too small", now), Ok(()));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let Err(pause) = Said::again(&mut said, "too small", now) else { panic!("too soon") };
            pauses.push(pause);
            now += pause;
            assert_eq!(Said::again(&mut said, "too small", now), Ok(()));
        }
        assert!(pauses.windows(2).all(|two| two[0] < two[1] || two[1] == SAY_EVERY), "{pauses:?}");
        assert_eq!(pauses.last(), Some(&SAY_EVERY));
        assert_eq!(Said::again(&mut said, "of another class", now), Ok(()), "another reason is said at once");
        now += Duration::from_secs(10);
        assert_eq!(Said::again(&mut said, "of another class", now), Ok(()));
        assert_eq!(Said::again(&mut said, "of another class", now), Err(SAY_AGAIN), "after a rest it begins anew");
    }
}
