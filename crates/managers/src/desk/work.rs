//! The workers of a desk.

use std::sync::Arc;
use std::time::Duration;

use conductor_claims::lifecycle::Presence;
use conductor_claims::views::{Offer, Phase};
use serde_json::{Value, json};

use super::ahead::SHOWN;
use super::{Desk, Item, Key};
use crate::api::Failure;
use crate::kind::Kind;
use crate::queue::{Cause, Next};
use crate::transport::Broken;

/// What came of looking at an item.
pub(crate) enum Outcome {
    /// Nothing more for now.
    Settled,
    /// To be looked at again after a while.
    Later(Duration),
    /// Not looked at: it is about to be shown otherwise.
    TooEarly,
}

/// Why looking at an item failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// A read.
    #[error(transparent)]
    Read(#[from] Failure),
    /// A write.
    #[error(transparent)]
    Write(#[from] Broken),
    /// What was read does not go with what was decided: someone was faster.
    #[error("something has changed meanwhile")]
    Outdated,
}

impl Trouble {
    /// Says it to who reads the log, unless someone was just faster.
    pub(crate) fn log(&self, item: &impl std::fmt::Debug) {
        if self.is_race() {
            tracing::debug!(?item, trouble = %self, "will look again");
        } else {
            tracing::warn!(?item, trouble = %self, "will try again");
        }
    }

    /// What it is to the queue. A kind that is missing stays so for a while: only conflicts are over soon.
    pub(crate) fn cause(&self) -> Cause {
        let conflict = match self {
            Trouble::Read(failure) => failure.code == 409,
            Trouble::Write(broken) => broken.failure.code == 409,
            Trouble::Outdated => true,
        };
        if conflict { Cause::Overtaken } else { Cause::Failed }
    }

    fn is_race(&self) -> bool {
        match self {
            Trouble::Read(failure) => failure.is_race(),
            Trouble::Write(broken) => broken.failure.is_race(),
            Trouble::Outdated => true,
        }
    }
}

/// Whether a claim is there, with what is known of it.
pub(crate) enum Found {
    Alive(Value),
    Gone,
}

impl Found {
    pub(crate) fn presence(&self) -> Presence<'_> {
        match self {
            Found::Alive(object) => Presence::Alive(object),
            Found::Gone => Presence::Gone,
        }
    }
}

impl Desk {
    /// Works for ever.
    pub(crate) async fn work(self: Arc<Self>) {
        self.until_synced().await;
        loop {
            let Next { key: item, failures, put_off } = self.queue.next().await;
            if !put_off && self.can_wait(&item) {
                self.queue.put_off(&item);
                continue;
            }
            match self.look_at(&item, failures > 0).await {
                Ok(Outcome::Settled) => self.queue.done(&item),
                Ok(Outcome::Later(pause)) => {
                    self.queue.done(&item);
                    self.queue.add_after(item, pause);
                }
                Ok(Outcome::TooEarly) => {
                    self.queue.done(&item);
                    self.queue.add_after(item.clone(), SHOWN);
                    // it was shown meanwhile, to nobody who waited yet
                    if !self.is_too_early(&item) {
                        self.queue.add(item);
                    }
                }
                Err(trouble) => {
                    trouble.log(&item);
                    self.queue.failed(&item, trouble.cause());
                }
            }
        }
    }

    /// Whether nobody waits for what is to be done about an item: of a bound pair only the volume does not say so yet.
    pub(super) fn can_wait(&self, item: &Item) -> bool {
        let Item::Resource(name) = item else { return false };
        let state = self.state.lock();
        let Some(offer) = state.index.get(name).filter(|offer| self.says_so_later(offer)) else { return false };
        if state.behind.contains_key(&offer.uid) {
            return false;
        }
        let is_bound = |uid: &Arc<str>| {
            let seen = state.claim_uids.get(uid).and_then(|key| state.claims.get(key));
            seen.is_some_and(|seen| seen.bound && seen.resource.as_ref() == Some(name))
        };
        !offer.refs.is_empty() && offer.refs.iter().all(|r| is_bound(&r.uid))
    }

    /// Whether a resource that has its claim may say so after its claim does.
    pub(super) fn says_so_later(&self, offer: &Offer) -> bool {
        let before = matches!(offer.phase, Phase::Pending | Phase::Available);
        matches!(self.kind, Kind::Volumes) && before && !offer.deleting
    }

    pub(super) async fn look_at(&self, item: &Item, fresh: bool) -> Result<Outcome, Trouble> {
        if !fresh && self.is_too_early(item) {
            return Ok(Outcome::TooEarly);
        }
        match item {
            Item::Claim(namespace, name) => {
                let key = (namespace.clone(), name.clone());
                // the lock is not held any more: what is below takes it, too
                let turn = self.state.lock().awaits_turn(&key);
                if let Some(pause) = turn {
                    self.offer_on(&key);
                    return Ok(Outcome::Later(pause));
                }
                let result = match &self.kind {
                    Kind::Volumes => self.volume_claim(&key, fresh).await,
                    Kind::Generated(kind) => self.generated_claim(&key, kind, fresh).await,
                };
                self.offer_on(&key);
                result
            }
            Item::Resource(name) => match &self.kind {
                Kind::Volumes => self.volume(name, fresh).await,
                Kind::Generated(kind) => self.generated_resource(name, kind, fresh).await,
            },
        }
    }

    /// The claim as the watch showed it or, if that is not at hand or was not good enough, as it is.
    pub(crate) async fn claim_object(&self, key: &Key, fresh: bool) -> Result<Option<Value>, Failure> {
        let pinned = self.state.lock().pinned.remove(&Item::Claim(key.0.clone(), key.1.clone()));
        if let Some(object) = pinned.filter(|_| !fresh) {
            return Ok(Some(object));
        }
        let (api_version, kind) = self.kind.claim();
        self.cx.api.get(&api_version, kind, &key.0, &key.1).await
    }

    /// The same for a resource.
    pub(crate) async fn resource_object(&self, name: &str, fresh: bool) -> Result<Option<Value>, Failure> {
        let pinned = self.state.lock().pinned.remove(&Item::Resource(name.into()));
        if let Some(object) = pinned.filter(|_| !fresh) {
            return Ok(Some(object));
        }
        let (api_version, kind) = self.kind.resource();
        self.cx.api.get(&api_version, kind, "", name).await
    }

    /// A resource for a claim: as the watch showed it while it was free or, if that is not at hand or was not good enough, as it is.
    pub(crate) async fn resource_for_claim(&self, name: &str, fresh: bool) -> Result<Option<Value>, Failure> {
        let shown = self.state.lock().free.remove(name).filter(|_| !fresh);
        if let Some(object) = shown.and_then(|json| serde_json::from_slice(&json).ok()) {
            return Ok(Some(object));
        }
        let (api_version, kind) = self.kind.resource();
        self.cx.api.get(&api_version, kind, "", name).await
    }

    /// Whether a claim is there: what the watch shows counts, that it shows nothing does not; then the server is asked.
    pub(crate) async fn find_claim(&self, uid: &str, namespace: &str, name: &str) -> Result<Found, Failure> {
        {
            let state = self.state.lock();
            if let Some((key, seen)) = state.claim_uids.get(uid).and_then(|key| Some((key, state.claims.get(key)?))) {
                let field = if matches!(self.kind, Kind::Volumes) { "volumeName" } else { "resourceName" };
                let mut object = json!({
                    "metadata": {"namespace": key.0.as_ref(), "name": key.1.as_ref(), "uid": uid},
                    "spec": {},
                });
                if let Some(resource) = &seen.resource {
                    object["spec"][field] = json!(resource.as_ref());
                }
                return Ok(Found::Alive(object));
            }
        }
        self.ask_for_claim(uid, namespace, name).await
    }

    /// The same, as the API server has it.
    pub(crate) async fn ask_for_claim(&self, uid: &str, namespace: &str, name: &str) -> Result<Found, Failure> {
        let (api_version, kind) = self.kind.claim();
        let live = self.cx.api.get(&api_version, kind, namespace, name).await?;
        Ok(live.filter(|o| o["metadata"]["uid"].as_str() == Some(uid)).map_or(Found::Gone, Found::Alive))
    }
}
