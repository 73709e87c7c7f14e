//! What the load consists of.
use super::load::Request;

/// Where the load goes.
pub const NAMESPACE: &str = "conductor-bench";
/// The group of the custom resource.
pub const GROUP: &str = "bench.conductor.io";

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// A kind that is written and read.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A built-in one.
    ConfigMap,
    /// A custom one, with a schema.
    Gadget,
}

/// A KiB of text that no two objects share.
fn kibibyte(seed: usize) -> String {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    (0..1024)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + ((state >> 33) % 26) as u8)
        })
        .collect()
}

impl Kind {
    /// The path of all objects in the namespace.
    pub fn path(self) -> String {
        match self {
            Kind::ConfigMap => format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
            Kind::Gadget => format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/gadgets"),
        }
    }

    /// An object of 1 KiB.
    pub fn object(self, name: &str, seed: usize) -> String {
        let text = kibibyte(seed);
        match self {
            Kind::ConfigMap => format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#
            ),
            Kind::Gadget => format!(
                r#"{{"apiVersion":"{GROUP}/v1","kind":"Gadget","metadata":{{"name":"{name}"}},"spec":{{"text":"{text}","size":{}}}}}"#,
                seed % 100
            ),
        }
    }

    /// Creates object `index` of a series.
    pub fn create(self, series: &str, index: usize) -> Request {
        let body = self.object(&format!("{series}-{index}"), index);
        Request { method: "POST", path: self.path(), body: Some((JSON, body)) }
    }

    /// Gets it.
    pub fn get(self, series: &str, index: usize) -> Request {
        Request { method: "GET", path: format!("{}/{series}-{index}", self.path()), body: None }
    }

    /// Changes a field of it.
    pub fn patch(self, series: &str, index: usize) -> Request {
        let body = match self {
            Kind::ConfigMap => format!(r#"{{"data":{{"changed":"{index}"}}}}"#),
            Kind::Gadget => r#"{"spec":{"size":101}}"#.to_owned(),
        };
        Request { method: "PATCH", path: format!("{}/{series}-{index}", self.path()), body: Some((MERGE, body)) }
    }

    /// Applies it, with a field that changes from round to round.
    pub fn apply(self, series: &str, index: usize, round: usize) -> Request {
        let name = format!("{series}-{index}");
        let body = match self {
            Kind::ConfigMap => format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"round":"{round}","text":"{}"}}}}"#,
                kibibyte(index)
            ),
            Kind::Gadget => self.object(&name, index + round),
        };
        let path = format!("{}/{name}?fieldManager=bench&force=true", self.path());
        Request { method: "PATCH", path, body: Some((APPLY, body)) }
    }

    /// Deletes it.
    pub fn delete(self, series: &str, index: usize) -> Request {
        Request { method: "DELETE", path: format!("{}/{series}-{index}", self.path()), body: None }
    }
}

/// A ConfigMap with a label and the time it was sent at, for watchers to subtract.
pub fn stamped(name: &str, label: usize, nanoseconds: u128) -> Request {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"watcher":"w{label}"}}}},"data":{{"sent":"{nanoseconds:020}"}}}}"#
    );
    Request { method: "POST", path: Kind::ConfigMap.path(), body: Some((JSON, body)) }
}

/// When the object of an event was sent, if it is one of [`stamped`].
pub fn stamp(event: &[u8]) -> Option<u128> {
    const FIELD: &[u8] = b"\"sent\":\"";
    // From the end: data comes before metadata in what servers write, but names of fields in managedFields come between.
    let at = event.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    std::str::from_utf8(event.get(at..at + 20)?).ok()?.parse().ok()
}

/// Creates two ConfigMaps or none.
pub fn pair(series: &str, index: usize) -> Request {
    let operation = |half: &str| {
        let object = Kind::ConfigMap.object(&format!("{series}-{index}-{half}"), index);
        format!(
            r#"{{"verb":"create","version":"v1","resource":"configmaps","namespace":"{NAMESPACE}","object":{object}}}"#
        )
    };
    let body = format!(
        r#"{{"apiVersion":"transactions.conductor.io/v1alpha1","kind":"Transaction","spec":{{"operations":[{},{}]}}}}"#,
        operation("a"),
        operation("b")
    );
    let path = "/apis/transactions.conductor.io/v1alpha1/transactions".to_owned();
    Request { method: "POST", path, body: Some((JSON, body)) }
}

/// The namespace of the load.
pub fn namespace() -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{NAMESPACE}"}}}}"#)
}

/// The definition of the custom resource.
pub fn definition() -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"gadgets.{GROUP}"}},
        "spec":{{"group":"{GROUP}","scope":"Namespaced","names":{{"plural":"gadgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{
        "spec":{{"type":"object","required":["text"],"properties":{{"text":{{"type":"string","maxLength":4096}},
        "size":{{"type":"integer","minimum":0,"maximum":1000,"default":1}}}}}}}}}}}}}}]}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_and_stamps_are_found() {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("is JSON");
        assert_eq!(json(&Kind::ConfigMap.object("a", 1))["data"]["text"].as_str().map(str::len), Some(1024));
        assert_ne!(Kind::Gadget.object("a", 1), Kind::Gadget.object("a", 2));
        assert_eq!(json(&definition())["spec"]["group"], GROUP);
        assert_eq!(json(&namespace())["kind"], "Namespace");
        let (_, body) = pair("p", 1).body.expect("has a body");
        assert_eq!(json(&body)["spec"]["operations"][1]["object"]["metadata"]["name"], "p-1-b");
        let (_, body) = stamped("s", 7, 12_345).body.expect("has a body");
        assert_eq!(stamp(body.as_bytes()), Some(12_345));
        assert_eq!(stamp(b"{\"type\":\"BOOKMARK\"}"), None);
    }
}
