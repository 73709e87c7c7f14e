//! Writes: what is to be sent to the API, with its precondition.

use serde_json::{Value, json};

/// What to do with the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Create; that it exists already is for the next look to judge.
    Create,
    /// JSON merge patch.
    Patch,
    /// Server-side apply under our field manager, by force.
    Apply,
    /// Delete in the background.
    Delete,
}

/// One object, or its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty if it has none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Whether the status subresource is meant.
    pub status: bool,
}

impl Target {
    /// The target that is this object.
    pub fn of(object: &Value) -> Target {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Target {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
            status: false,
        }
    }

    /// Its status.
    pub fn status(mut self) -> Target {
        self.status = true;
        self
    }
}

/// Which version of the object a write is meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// Whatever there is.
    Any,
    /// This resourceVersion.
    Exactly(String),
    /// The one that the write with this number in the same list yields.
    After(usize),
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What to do.
    pub verb: Verb,
    /// With which object.
    pub target: Target,
    /// The object, the patch, or null.
    pub body: Value,
    /// The uid the object must have; empty: any.
    pub uid: String,
    /// The version it must have.
    pub version: Version,
    /// Why, for logs and plans.
    pub purpose: &'static str,
    /// Whether it is about an implementation. What stands in a template is somebody else's wish: it is written with the
    /// provisioner's rights, never with the managers' own.
    pub implementation: bool,
    /// Whether nobody waits for it: where lists are sent in order, it may be left to the next look at its target, which plans it again.
    pub can_wait: bool,
}

/// Something a person would want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub about: Target,
    /// That object's uid.
    pub uid: String,
    /// Whether something is wrong.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order; the first that fails ends it.
    pub writes: Vec<Write>,
    /// To be recorded after the writes.
    pub events: Vec<Event>,
}

impl Plan {
    /// Whether it removes an implementation.
    pub fn removes_implementation(&self) -> bool {
        self.writes.iter().any(|write| write.verb == Verb::Delete && write.implementation)
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The version of an object a further write follows: what an earlier write of this plan yields, or what was seen.
    fn version(&self, object: &Value) -> Version {
        let target = Target::of(object);
        let same = |w: &Write| Target { status: false, ..w.target.clone() } == target;
        match self.writes.iter().rposition(same) {
            Some(earlier) => {
                debug_assert!(!self.writes[earlier].can_wait, "what is left for later yields no version");
                Version::After(earlier)
            }
            None => match object["metadata"]["resourceVersion"].as_str() {
                Some(version) => Version::Exactly(version.to_owned()),
                None => Version::Any,
            },
        }
    }

    fn push(&mut self, verb: Verb, target: Target, object: &Value, body: Value, purpose: &'static str) {
        let version = self.version(object);
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.writes.push(Write { verb, target, body, uid, version, purpose, implementation: false, can_wait: false });
    }

    /// Patches an object.
    pub(crate) fn patch(&mut self, object: &Value, patch: Value, purpose: &'static str) {
        self.push(Verb::Patch, Target::of(object), object, patch, purpose);
    }

    /// Patches an object's status.
    pub(crate) fn patch_status(&mut self, object: &Value, status: Value, purpose: &'static str) {
        self.push(Verb::Patch, Target::of(object).status(), object, json!({"status": status}), purpose);
    }

    /// Deletes exactly this object in exactly this version.
    pub(crate) fn delete(&mut self, object: &Value, purpose: &'static str) {
        self.push(Verb::Delete, Target::of(object), object, Value::Null, purpose);
    }

    /// Creates an object.
    pub(crate) fn create(&mut self, object: Value, purpose: &'static str) {
        let target = Target::of(&object);
        self.writes.push(Write {
            verb: Verb::Create,
            target,
            body: object,
            uid: String::new(),
            version: Version::Any,
            purpose,
            implementation: false,
            can_wait: false,
        });
    }

    /// Says of the last write that it is about an implementation.
    pub(crate) fn of_implementation(&mut self) {
        if let Some(last) = self.writes.last_mut() {
            last.implementation = true;
        }
    }

    /// Says of the last write that nobody waits for it.
    pub(crate) fn for_later(&mut self) {
        if let Some(last) = self.writes.last_mut() {
            last.can_wait = true;
        }
    }

    /// Applies our fields to an object that exists.
    pub(crate) fn apply(&mut self, live: &Value, object: Value, purpose: &'static str) {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let target = Target::of(&object);
        self.writes.push(Write {
            verb: Verb::Apply,
            target,
            body: object,
            uid,
            version: Version::Any,
            purpose,
            implementation: false,
            can_wait: false,
        });
    }

    pub(crate) fn event(&mut self, object: &Value, warning: bool, reason: &'static str, message: impl Into<String>) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.events.push(Event { about: Target::of(object), uid, warning, reason, message: message.into() });
    }
}

/// A merge patch that adds or removes a finalizer; `None` if it is so already.
pub(crate) fn finalizer(object: &Value, name: &str, present: bool) -> Option<Value> {
    let list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if list.iter().any(|f| f.as_str() == Some(name)) == present {
        return None;
    }
    let mut list: Vec<Value> = list.into_iter().filter(|f| f.as_str() != Some(name)).collect();
    if present {
        list.push(name.into());
    }
    Some(json!(list))
}
