//! Claims with expressions take turns: whoever writes expressions that take long makes the claims of their own namespace wait.
//!
//! A look at such a claim costs a bounded time; as much as it took, times [`SHARE`], its namespace has no other look. So the
//! expressions of one namespace take at most a tenth of a processor, however many claims there are, whatever changes.

use std::time::Duration;

use conductor_claims::views::Ask;
use serde_json::Value;
use tokio::time::Instant;

use super::{Key, State};

/// How many times as long as it took a namespace waits.
const SHARE: u32 = 9;
/// What a namespace may be ahead: a few claims with plain expressions wait for nothing.
const AHEAD: Duration = Duration::from_secs(1);
/// What a look is expected to take before there was any.
const EXPECTED: Duration = Duration::from_micros(100);
/// Namespaces that are remembered before those without debts are forgotten.
const KEPT: usize = 1024;

/// The turn of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// When it is, if it is in line.
    at: Option<Instant>,
    /// What its place in line has cost its namespace already.
    paid: Duration,
    /// What a look took.
    took: Duration,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { at: None, paid: Duration::ZERO, took: EXPECTED }
    }
}

impl Turn {
    /// Whether resources are judged by the expression of a claim: it has one and nothing else.
    pub(super) fn needed(claim: &Value, has_resource: bool) -> bool {
        let expression = claim["spec"]["expression"].as_str().is_some_and(|text| !text.is_empty());
        expression && !has_resource && claim["metadata"]["deletionTimestamp"].is_null()
    }
}

impl State {
    /// Whether it is not a claim's turn: after how long it is.
    pub(super) fn awaits_turn(&mut self, key: &Key) -> Option<Duration> {
        let turn = self.claims.get_mut(key)?.turn.as_mut()?;
        let now = Instant::now();
        if let Some(at) = turn.at {
            if at > now {
                return Some(at - now);
            }
            turn.at = None;
            return None;
        }
        let next = self.turns.get_mut(&key.0)?;
        if *next <= now + AHEAD {
            return None;
        }
        let at = *next - AHEAD;
        turn.paid = SHARE * turn.took;
        *next += turn.paid;
        turn.at = Some(at);
        Some(at - now)
    }

    /// Has the namespace of a claim pay for a look that took as long, for resources were judged by its expression.
    pub(super) fn charge(&mut self, ask: &Ask, took: Duration) {
        let key = (ask.namespace.clone(), ask.name.clone());
        let mut owed = SHARE * took;
        if let Some(turn) = self.claims.get_mut(&key).and_then(|seen| seen.turn.as_mut()) {
            owed = owed.saturating_sub(std::mem::take(&mut turn.paid));
            turn.took = took;
        }
        self.owe(key, owed);
    }

    fn owe(&mut self, (namespace, _): Key, owed: Duration) {
        let now = Instant::now();
        if self.turns.len() >= KEPT {
            self.turns.retain(|_, next| *next > now);
        }
        let next = self.turns.entry(namespace).or_insert(now);
        *next = (*next).max(now) + owed;
    }
}

/// Lets others have the thread's place meanwhile, where there are several.
pub(super) fn aside<R>(work: impl FnOnce() -> R) -> R {
    match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::desk::saying::tests::{desk, show};
    use crate::desk::{Desk, Item, Outcome, Role};

    fn claim(namespace: &str, number: usize, more: Value) -> Value {
        let mut claim = json!({
            "metadata": {"namespace": namespace, "name": format!("c{number}"), "uid": format!("{namespace}-{number}")},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            claim["spec"][key] = value.clone();
        }
        claim
    }

    fn key(namespace: &str, number: usize) -> Key {
        (namespace.into(), format!("c{number}").into())
    }

    fn look(desk: &Desk, namespace: &str, number: usize, takes: Duration) {
        let claim = claim(namespace, number, json!({}));
        let ask = desk.kind.ask(&claim, true, None).expect("an ask");
        desk.state.lock().charge(&ask, takes);
    }

    #[tokio::test]
    async fn a_namespace_pays_for_its_expressions_and_no_other_does() {
        let desk = desk();
        for number in 0..100 {
            show(&desk, Role::Claim, claim("mean", number, json!({"expression": "slow"})));
            show(&desk, Role::Claim, claim("kind", number, json!({"expression": "quick"})));
        }
        show(&desk, Role::Claim, claim("mean", 100, json!({})));
        let awaits = |namespace: &str, number: usize| desk.state.lock().awaits_turn(&key(namespace, number));
        assert_eq!(awaits("mean", 0), None, "nothing is owed yet");
        look(&desk, "mean", 0, Duration::from_millis(200));
        let mut pauses = Vec::new();
        for number in 0..100 {
            let Some(pause) = awaits("mean", number) else { panic!("{number} has its turn") };
            pauses.push(pause);
            assert!(awaits("mean", number).is_some_and(|again| again <= pause), "it is in line once");
            assert_eq!(awaits("kind", number), None);
        }
        assert!(pauses.is_sorted(), "one after the other: {pauses:?}");
        assert!(pauses[1] - pauses[0] > Duration::from_secs(1), "the first is known to take long: {pauses:?}");
        assert_eq!(awaits("mean", 100), None, "it has no expression");
    }

    /// A claim that is not its turn yet is put in line by whoever looks at it, and the desk goes on.
    #[test]
    fn a_look_at_a_claim_in_line_ends() {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let desk = desk();
                show(&desk, Role::Claim, claim("mean", 0, json!({"expression": "slow"})));
                look(&desk, "mean", 0, Duration::from_millis(200));
                let (namespace, name) = key("mean", 0);
                let looked = desk.look_at(&Item::Claim(namespace, name), false).await;
                let _ = tell.send(matches!(looked, Ok(Outcome::Later(_))));
            });
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true), "it has to wait, and the desk does not");
    }

    #[tokio::test]
    async fn whoever_has_a_resource_or_goes_waits_for_no_turn() {
        let expression = json!({"spec": {"expression": "true"}, "metadata": {}});
        assert!(Turn::needed(&expression, false));
        assert!(!Turn::needed(&expression, true));
        assert!(!Turn::needed(&json!({"spec": {"expression": ""}}), false));
        let mut going = expression.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!Turn::needed(&going, false));
    }

    #[tokio::test]
    async fn namespaces_without_debts_are_forgotten() {
        let desk = desk();
        let mut state = desk.state.lock();
        for number in 0..2 * KEPT {
            state.owe(key(&format!("n{number}"), 0), Duration::ZERO);
        }
        assert!(state.turns.len() <= KEPT + 1, "{}", state.turns.len());
    }
}
