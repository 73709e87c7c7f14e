//! What is followed besides the types themselves: implementations, their Secrets, and connection objects.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use conductor_claims::lifecycle::{CLAIM_UID, RESOURCE_UID};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::api::{Names, Sink};
use crate::desk::{Context, Desk};
use crate::orphans::Owned;
use crate::runtime::Desks;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What helps when the provisioner may not do what a template asks for.
pub(crate) const NOT_ALLOWED: &str = "an administrator allows a kind in a ClusterRole labelled conductor.io/aggregate-to-provisioner: \"true\" \
     (get, list, watch, create, update, patch, delete); or correct the template";

/// Kinds of implementations that are wanted followed, each told once.
pub(crate) struct Following {
    known: Mutex<HashSet<(String, String)>>,
    wanted: mpsc::UnboundedSender<(String, String)>,
}

impl Following {
    pub(crate) fn new() -> (Arc<Following>, mpsc::UnboundedReceiver<(String, String)>) {
        let (wanted, receiver) = mpsc::unbounded_channel();
        (Arc::new(Following { known: Mutex::default(), wanted }), receiver)
    }

    pub(crate) fn follow(&self, api_version: &str, kind: &str) {
        let key = (api_version.to_owned(), kind.to_owned());
        if kind.is_empty() || self.known.lock().contains(&key) {
            return;
        }
        if self.known.lock().insert(key.clone()) {
            let _ = self.wanted.send(key);
        }
    }
}

/// How long an object may be ahead of its owner in what we see.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Takes in implementations and connection objects: their owners are looked at; those without are orphans.
pub(crate) struct OwnedSink {
    pub(crate) cx: Arc<Context>,
    pub(crate) desks: Arc<Desks>,
}

impl OwnedSink {
    fn touch(&self, object: &Value, gone: bool) {
        let (meta, labels) = (&object["metadata"], &object["metadata"]["labels"]);
        let desks = self.desks.all();
        let part = |v: &Value| text(v).to_owned();
        let owned = Owned {
            api_version: part(&object["apiVersion"]),
            kind: part(&object["kind"]),
            namespace: part(&meta["namespace"]),
            name: part(&meta["name"]),
        };
        let known = match (labels[RESOURCE_UID].as_str(), labels[CLAIM_UID].as_str()) {
            (Some(uid), _) => desks.iter().any(|desk| desk.touch_resource_uid(uid, &owned, gone)),
            (None, Some(uid)) => desks.iter().any(|desk| desk.touch_claim_uid(uid, &owned, gone)),
            (None, None) => true,
        };
        if !known && !gone {
            self.cx.orphans.add_after(owned, PATIENCE);
        }
    }
}

impl Sink for OwnedSink {
    fn apply(&self, object: Value) {
        self.touch(&object, false);
    }

    fn delete(&self, object: Value) {
        self.touch(&object, true);
    }

    fn synced(&self, _: &Names) {
        self.desks.all().iter().for_each(|desk| desk.touch_unfollowed());
    }
}

/// Takes in templates of volumes: what they make is followed from the start, so that what a claim left behind is found that was deleted
/// while nobody looked.
pub(crate) struct TemplateSink {
    pub(crate) following: Arc<Following>,
}

impl Sink for TemplateSink {
    fn apply(&self, object: Value) {
        let made = &object["spec"]["template"];
        self.following.follow(text(&made["apiVersion"]), text(&made["kind"]));
    }

    fn delete(&self, _: Value) {}

    fn synced(&self, _: &Names) {}
}

/// Takes in Secrets with connection details.
pub(crate) struct SecretSink {
    pub(crate) desks: Arc<Desks>,
}

impl SecretSink {
    fn touch(&self, object: &Value) {
        let meta = &object["metadata"];
        let touch = |desk: &Arc<Desk>| desk.touch_secret(text(&meta["namespace"]), text(&meta["name"]));
        self.desks.all().iter().for_each(touch);
    }
}

impl Sink for SecretSink {
    fn apply(&self, object: Value) {
        self.touch(&object);
    }

    fn delete(&self, object: Value) {
        self.touch(&object);
    }

    fn synced(&self, _: &Names) {}
}
