//! What a provider says about one of its kinds, and what it is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conductor_claims::lifecycle::{
    AT_ONCE, CLAIMS, Condition, REPLACED, RESOURCE_UID, RETAINED, ROTATE, is_asked_of_another,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::files::Files;
use crate::home::Home;
use crate::lack::Lack;
use crate::promise::{Ledger, Stock};

/// A future that a trait object gives.
pub type BoxFuture<'a, T> = futures::future::BoxFuture<'a, T>;

/// An implementation, as the API server has it.
#[derive(Clone, Debug)]
pub struct Object(pub Value);

impl Object {
    fn meta(&self, key: &str) -> &str {
        self.0["metadata"][key].as_str().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.meta("name")
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.meta("namespace")
    }

    /// Its uid: the name of what is its own outside, for a name is given again.
    pub fn uid(&self) -> &str {
        self.meta("uid")
    }

    /// Whether it is on its way out.
    pub fn is_deleting(&self) -> bool {
        !self.0["metadata"]["deletionTimestamp"].is_null()
    }

    /// Its spec, as far as it can be read.
    pub fn spec<S: DeserializeOwned>(&self) -> Result<S, Trouble> {
        let spec = self.0.get("spec").cloned().unwrap_or_else(|| Value::Object(Map::new()));
        serde_json::from_value(spec)
            .map_err(|e| Trouble::new("Invalid", format!("spec cannot be read: {e}: correct it")))
    }

    /// A field of its status.
    pub fn status(&self, key: &str) -> &Value {
        &self.0["status"][key]
    }

    /// The scrub that is asked for and not yet answered; none where it was asked of what this is a copy of.
    pub fn scrub_wanted(&self) -> Option<i64> {
        if is_asked_of_another(&self.0) {
            return None;
        }
        let number = |v: &Value| v.as_i64().unwrap_or(0);
        let wanted = number(&self.0["spec"]["scrub"]);
        (wanted > number(&self.0["status"]["scrubbed"])).then_some(wanted)
    }

    /// The same, or the one that was answered with a failure: what was in its way may be gone by now.
    pub fn scrub_due(&self) -> Option<i64> {
        let conditions = self.status("conditions").as_array().into_iter().flatten();
        let failed = conditions.into_iter().any(|c| c["type"] == "Scrubbed" && c["status"] == "False");
        let asked = self.0["spec"]["scrub"].as_i64().filter(|number| *number > 0 && !is_asked_of_another(&self.0));
        let latest = self.0["status"]["scrubbed"].as_i64();
        self.scrub_wanted().or(asked.filter(|number| failed && Some(*number) >= latest))
    }

    /// The rotation of its credentials that is asked for: by its spec, or by its resource whose claim has gone.
    pub fn rotation_asked(&self) -> i64 {
        let by_resource = self.0["metadata"]["annotations"][ROTATE].as_str().and_then(|n| n.parse().ok()).unwrap_or(0);
        self.0["spec"]["rotate"].as_i64().unwrap_or(0).max(by_resource)
    }

    /// The uids of the claims that share it; `None`: it was always one claim's, or nobody's.
    pub fn claims(&self) -> Option<impl Iterator<Item = &str>> {
        self.0["metadata"]["annotations"][CLAIMS].as_str().map(str::split_whitespace)
    }

    /// Whether what was there before a rotation ends with it: nobody has a right to it any more.
    pub fn is_at_once(&self, rotation: i64) -> bool {
        let said = self.0["metadata"]["annotations"][AT_ONCE].as_str().and_then(|n| n.parse::<i64>().ok());
        said.is_some_and(|said| said >= rotation)
    }

    /// Whether everyone who uses it has the credentials of a rotation: its resource's manager has said so. Where it has none, its
    /// connection Secret is what is used.
    pub fn is_replaced(&self, rotation: i64) -> bool {
        let meta = &self.0["metadata"];
        let managed =
            meta["labels"][RESOURCE_UID].is_string() && meta["annotations"][RETAINED].as_str() != Some("true");
        let told = meta["annotations"][REPLACED].as_str().and_then(|number| number.parse::<i64>().ok());
        !managed || told.is_some_and(|told| told >= rotation)
    }

    /// Whether it was ever ready: from then on it may hold data.
    pub fn was_ready(&self) -> bool {
        !self.0["status"]["readySince"].is_null()
    }
}

const HELD: &str = "InUse";

/// Why an implementation is not as it should be. It is said in its condition Ready, and tried again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    /// One word.
    pub reason: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Trouble {
    /// Something is wrong.
    pub fn new(reason: &str, message: impl Into<String>) -> Trouble {
        Trouble { reason: reason.into(), message: message.into() }
    }

    /// It is to be removed, but somebody uses it.
    pub fn held(why: impl Into<String>) -> Trouble {
        Trouble::new(HELD, why)
    }

    /// Whether that is why it is not removed: until then it is kept like any other.
    pub fn is_held(&self) -> bool {
        self.reason == HELD
    }

    /// What was to be done when the operating system refused.
    pub fn io(what: &str) -> impl Fn(std::io::Error) -> Trouble + '_ {
        move |error| Trouble::new("SystemFailed", format!("cannot {what}: {error}"))
    }
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Trouble {
        Trouble::new("ApiFailed", format!("the API server refused: {error}"))
    }
}

impl From<Lack> for Trouble {
    fn from(lack: Lack) -> Trouble {
        Trouble::new("Unavailable", lack.to_string())
    }
}

/// What came of scrub number N.
#[derive(Clone, Debug)]
pub struct Scrubbed {
    /// N.
    pub number: i64,
    /// How it was verified, or why it could not be scrubbed.
    pub outcome: Result<String, String>,
}

/// How an implementation is now, for its status and its connection Secret.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Why it cannot be used at the moment; `None`: it can.
    pub not_ready: Option<Trouble>,
    /// What to say while it can be used; empty: "ready to be used".
    pub message: String,
    /// How often its process ended by itself and was started again.
    pub restarts: u32,
    /// What the resource offers.
    pub attributes: Map<String, Value>,
    /// How much it has.
    pub capacity: Map<String, Value>,
    /// How to use it, by the Service Binding Specification; `None` leaves the Secret as it is.
    pub connection: Option<BTreeMap<String, String>>,
    /// What each of the claims that share it uses, by the claim's uid; `None`: all use the same, or it cannot be told now.
    pub connections: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// The scrub that was done.
    pub scrubbed: Option<Scrubbed>,
    /// The rotation that the credentials are from, if there was any.
    pub rotated: Option<i64>,
    /// More conditions.
    pub conditions: Vec<Condition>,
    /// More fields of the status; null removes one.
    pub status: Map<String, Value>,
    /// When to look again although nothing was told; `None`: after a minute.
    pub again: Option<Duration>,
}

impl Report {
    /// Cannot be used at the moment.
    pub fn not_ready(reason: &str, message: impl Into<String>) -> Report {
        Report { not_ready: Some(Trouble::new(reason, message)), ..Report::default() }
    }

    /// To be looked at again after a while.
    pub fn again(mut self, after: Duration) -> Report {
        self.again = Some(after);
        self
    }
}

/// Something outside that the API does not know, or the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about: `process 4711`, `PostgresInstance a`.
    pub object: String,
    /// Which rule is broken, as a name: `no-leftover-process`.
    pub invariant: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// Wants the object with a uid looked at.
pub type Wake = Arc<dyn Fn(&str) + Send + Sync>;

/// What a kind is made with.
#[derive(Clone)]
pub struct Scene {
    /// The API, with the provider's rights.
    pub client: kube::Client,
    /// Where it keeps what it has.
    pub home: Home,
    /// Wants an object looked at.
    pub wake: Wake,
    /// Tells when files do not stay as they are.
    pub files: Files,
    /// What the objects of all its kinds were promised.
    pub ledger: Arc<Ledger>,
}

/// What is missing for those objects of a kind whose spec has a field of this value.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The field of the spec.
    pub field: &'static str,
    /// Its value; `None`: those that do not have the field.
    pub value: Option<&'static str>,
    /// What is missing for them.
    pub lack: Lack,
}

/// One kind of implementation.
pub trait Kind: Send + Sync + 'static {
    /// Group and version.
    fn api_version(&self) -> &'static str;

    /// Kind.
    fn kind(&self) -> &'static str;

    /// Its name in paths.
    fn plural(&self) -> &'static str;

    /// Whether this machine has all that is needed. Asked again and again.
    fn check(&self) -> BoxFuture<'_, Result<(), Lack>>;

    /// What this machine lacks for some objects of the kind only.
    fn lacks(&self) -> Vec<Partial> {
        Vec::new()
    }

    /// Brings the outside world in step with an object, and says how it is. Called for one object one at a time, again whenever
    /// something may have changed, and after any crash.
    fn reconcile<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>>;

    /// Called after the connection Secret and the status of a report have been written: what they replaced may go now.
    fn written<'a>(&'a self, _object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async { Ok(()) })
    }

    /// Takes everything of an object out of the world. Must succeed where nothing is left.
    fn remove<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>>;

    /// Compares the outside world with all the objects there are.
    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>>;

    /// What an object was promised before this process began, of what.
    fn promised(&self, _object: &Object) -> Vec<(Stock, u64)> {
        Vec::new()
    }

    /// Fields of a spec that ask for something, and how much of it this machine has: no object is given more.
    fn bounded(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Where the log of an object's process is, if it has any: goes into `status.logs`, where `conductor logs` finds it.
    fn logs(&self, _object: &Object) -> Option<PathBuf> {
        None
    }
}

#[cfg(test)]
mod tests {
    use conductor_claims::lifecycle::SCRUB_ASKED;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scrub_is_done_once_it_is_asked_for_and_again_where_it_failed() {
        let check = |asked: &str, scrub: i64, status: Value, wanted: bool, due: bool| {
            let object = Object(json!({
                "metadata": {"uid": "u", "annotations": {SCRUB_ASKED: asked}}, "spec": {"scrub": scrub}, "status": status,
            }));
            let number = |is: bool| is.then_some(scrub);
            let found = (object.scrub_wanted(), object.scrub_due());
            assert_eq!(found, (number(wanted), number(due)), "{}", object.0);
        };
        let answered = |scrubbed: i64, how: &str| json!({"scrubbed": scrubbed, "conditions": [{"type": "Scrubbed", "status": how}]});
        for asked in ["", "1 u"] {
            check(asked, 0, json!({}), false, false);
            check(asked, 1, json!({}), true, true);
            check(asked, 1, answered(1, "True"), false, false);
            check(asked, 1, answered(1, "False"), false, true);
            check(asked, 1, answered(1, "Unknown"), false, false);
            check(asked, 2, answered(1, "True"), true, true);
            // an older manifest was applied: none is asked for
            check(asked, 1, answered(2, "True"), false, false);
            check(asked, 1, answered(2, "False"), false, false);
            check(asked, 0, answered(1, "False"), false, false);
        }
        // it was asked of what this is a copy of
        for status in [json!({}), answered(0, "False"), answered(1, "False")] {
            check("1 before", 1, status, false, false);
        }
    }
}
