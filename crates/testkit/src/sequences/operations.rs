//! What one manager does next to an object: a request, from a seed and what the server last showed.

use serde_json::{Map, Value, json};

use super::random::{Random, mutate, value};
use super::subjects::Subject;
use crate::Request;

const MANAGERS: [&str; 4] = ["a", "b", "c", "kubectl"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// An object that a sequence is about.
#[derive(Clone, Debug)]
pub struct Target<'s> {
    /// Its kind.
    pub subject: &'s Subject,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A request, and whether it says more about the object itself than its answer does.
pub struct Operation {
    /// What is sent.
    pub request: Request,
    /// Whether the answer is the object as it is now.
    pub shows: bool,
}

impl Target<'_> {
    fn path(&self, version: usize) -> String {
        format!("{}/{}", self.subject.path(version, &self.namespace), self.name)
    }

    /// Reads the object.
    pub fn get(&self, version: usize) -> Request {
        Request::new("GET", self.path(version))
    }

    /// The next operation. The same seed gives the same request on any server, as far as what it showed is the same.
    pub fn next(&self, seed: u64, last: Option<&Value>) -> Operation {
        let random = &mut Random::new(seed);
        let version = if self.subject.versions.len() > 1 && random.chance(35) { 1 } else { 0 };
        let Some(last) = last else { return self.create(version, random) };
        let subresource = match random.below(10) {
            0 | 1 if self.subject.status => "status",
            2 if self.subject.scale => "scale",
            3 if !self.subject.others.is_empty() => random.pick(&self.subject.others).0,
            _ => "",
        };
        let operation = match (subresource, random.below(24)) {
            // What controllers hold on to is not gone at once.
            ("", 0) if !self.subject.watched && random.chance(30) => return self.plain("DELETE", version),
            ("", 1) => return self.plain("GET", version),
            ("", 2..=4) => self.create_or_apply(version, random),
            ("scale", _) => self.scaled(version, last, random),
            (other, _) if self.other(other).is_some() => self.elsewhere(version, other, last, random),
            (_, 0..=4) => self.put(version, subresource, last, random),
            (_, 5..=7) => self.merge(version, subresource, last, random),
            (_, 8..=10) => self.json(version, subresource, last, random),
            (_, 11 | 12) if !self.subject.custom => self.strategic(version, subresource, random),
            _ => self.apply(version, subresource, random),
        };
        self.sent(operation, subresource, random)
    }

    fn plain(&self, method: &str, version: usize) -> Operation {
        Operation { request: Request::new(method, self.path(version)), shows: method == "GET" }
    }

    /// With a manager, perhaps dry.
    fn sent(&self, mut request: Request, subresource: &str, random: &mut Random) -> Operation {
        let mut add = |text: &str| {
            request.path.push(if request.path.contains('?') { '&' } else { '?' });
            request.path.push_str(text);
        };
        let applied = request.headers.iter().any(|(_, value)| value == APPLY);
        if applied || random.chance(90) {
            let last = if applied || random.chance(20) { 4 } else { 3 };
            add(&format!("fieldManager={}", MANAGERS[random.below(last)]));
        }
        if applied && random.chance(30) {
            add("force=true");
        }
        let dry = random.chance(8);
        if dry {
            add("dryRun=All");
        }
        Operation { request, shows: !dry && subresource != "scale" }
    }

    fn create(&self, version: usize, random: &mut Random) -> Operation {
        let request = self.create_or_apply(version, random);
        self.sent(request, "", random)
    }

    fn create_or_apply(&self, version: usize, random: &mut Random) -> Request {
        let mut body = self.body(version, random);
        merge(&mut body, &self.subject.base);
        if random.chance(50) {
            let mut last = body.clone();
            if let Some(metadata) = last["metadata"].as_object_mut() {
                metadata.remove("annotations");
            }
            if random.chance(30) {
                body["metadata"]["annotations"][LAST_APPLIED] = last.to_string().into();
            }
            return Request::json("POST", self.subject.path(version, &self.namespace), &body);
        }
        Request::json("PATCH", self.path(version), &body).header("Content-Type", APPLY)
    }

    /// An object with some fields.
    fn body(&self, version: usize, random: &mut Random) -> Value {
        let schema = &self.subject.versions[version].1;
        let mut body = loop {
            let value = value(schema, random);
            if value.is_object() {
                break value;
            }
        };
        body["apiVersion"] = self.subject.api_version(version).into();
        body["kind"] = self.subject.kind.into();
        body["metadata"] = self.metadata(random);
        body
    }

    fn metadata(&self, random: &mut Random) -> Value {
        let mut metadata = json!({"name": self.name});
        if self.subject.namespaced {
            metadata["namespace"] = self.namespace.as_str().into();
        }
        let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
        if random.chance(35) {
            metadata["labels"] = value(&texts, random);
        }
        if random.chance(25) {
            metadata["annotations"] = value(&texts, random);
        }
        if random.chance(5) {
            metadata["finalizers"] = json!([*random.pick(&["example.com/a", "example.com/b"])]);
        }
        if random.chance(6) {
            let uid = format!("00000000-0000-0000-0000-00000000000{}", random.below(3));
            metadata["ownerReferences"] =
                json!([{"apiVersion": "nowhere.example.com/v1", "kind": "Nobody", "name": "n", "uid": uid}]);
        }
        metadata
    }

    fn put(&self, version: usize, subresource: &str, last: &Value, random: &mut Random) -> Request {
        let mut body = last.clone();
        body["apiVersion"] = self.subject.api_version(version).into();
        self.change(&mut body, version, subresource, random);
        let custom = self.subject.custom;
        let metadata = body["metadata"].as_object_mut();
        if let Some(metadata) = metadata {
            if !custom {
                // A controller may have been there in between.
                metadata.remove("resourceVersion");
            }
            match random.below(12) {
                0..=3 => {
                    metadata.remove("managedFields");
                }
                4 if random.chance(40) => {
                    metadata.insert("managedFields".into(), random.pick(&[json!([]), json!([{}])]).clone());
                }
                5 if random.chance(40) => {
                    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
                        // Not that of a real cluster's controller: the other cluster has none.
                        let ours = |entry: &Value| entry["manager"] != "kube-controller-manager";
                        entries.iter().rposition(ours).map(|last| entries.remove(last));
                    }
                }
                _ => {}
            }
        }
        Request::json("PUT", self.at(version, subresource), &body)
    }

    fn at(&self, version: usize, subresource: &str) -> String {
        match subresource {
            "" => self.path(version),
            subresource => format!("{}/{subresource}", self.path(version)),
        }
    }

    /// Changes a part of an object.
    fn change(&self, body: &mut Value, version: usize, subresource: &str, random: &mut Random) {
        let schema = &self.subject.versions[version].1;
        for _ in 0..=random.below(2) {
            if random.chance(15) {
                let fresh = self.metadata(random);
                for name in ["labels", "annotations", "finalizers"] {
                    if let Some(value) = fresh.get(name) {
                        body["metadata"][name] = value.clone();
                    }
                }
                continue;
            }
            let properties: Vec<(&String, &Value)> = schema["properties"].as_object().into_iter().flatten().collect();
            let (name, property) = match (subresource, properties.len()) {
                ("status", 1..) => ("status", &schema["properties"]["status"]),
                (_, 0) => ("b", &Value::Null),
                _ => {
                    let (name, property) = *random.pick(&properties);
                    (name.as_str(), property)
                }
            };
            let changed = match &body[name] {
                Value::Null => value(property, random),
                old => mutate(old, property, random),
            };
            match changed {
                Value::Null if random.chance(70) => {
                    body.as_object_mut().map(|fields| fields.remove(name));
                }
                changed => body[name] = changed,
            }
        }
    }

    fn merge(&self, version: usize, subresource: &str, last: &Value, random: &mut Random) -> Request {
        let patch = if random.chance(50) {
            // What leads from the old object to a changed one.
            let mut new = last.clone();
            self.change(&mut new, version, subresource, random);
            difference(last, &new).unwrap_or_else(|| json!({}))
        } else {
            let mut patch = self.partial(version, subresource, random);
            if random.chance(30) {
                let name = random.pick(&["spec", "data", "metadata"]);
                if let Some(fields) = patch.get_mut(*name).and_then(Value::as_object_mut) {
                    let names: Vec<String> = fields.keys().cloned().collect();
                    if let Some(name) = names.first().filter(|name| *name != "name" && *name != "namespace") {
                        fields.insert(name.clone(), Value::Null);
                    }
                }
            }
            patch
        };
        Request::json("PATCH", self.at(version, subresource), &patch)
            .header("Content-Type", "application/merge-patch+json")
    }

    fn partial(&self, version: usize, subresource: &str, random: &mut Random) -> Value {
        let mut body = self.body(version, random);
        if subresource == "status" {
            body["status"] = value(&self.subject.versions[version].1["properties"]["status"], random);
        }
        if let Some(fields) = body.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        body
    }

    fn strategic(&self, version: usize, subresource: &str, random: &mut Random) -> Request {
        let mut body = self.partial(version, subresource, random);
        if random.chance(40) {
            direct(&mut body, random);
        }
        Request::json("PATCH", self.at(version, subresource), &body).header("Content-Type", STRATEGIC)
    }

    fn other(&self, subresource: &str) -> Option<&Value> {
        self.subject.others.iter().find(|(name, _)| *name == subresource).map(|(_, schema)| schema)
    }

    /// A subresource that takes a part of the object.
    fn elsewhere(&self, version: usize, subresource: &str, last: &Value, random: &mut Random) -> Request {
        let mut body = value(self.other(subresource).unwrap_or(&Value::Null), random);
        if body.is_null() {
            // Why that is no merge patch is said in other words.
            body = json!({});
        }
        let path = self.at(version, subresource);
        match random.below(6) {
            0 => {
                merge(&mut body, last);
                if let Some(metadata) = body["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
                Request::json("PUT", path, &body)
            }
            1 => Request::json("PATCH", path, &body).header("Content-Type", "application/merge-patch+json"),
            2 | 3 => Request::json("PATCH", path, &body).header("Content-Type", STRATEGIC),
            _ => {
                body["apiVersion"] = self.subject.api_version(version).into();
                body["kind"] = self.subject.kind.into();
                body["metadata"] = json!({"name": self.name});
                Request::json("PATCH", path, &body).header("Content-Type", APPLY)
            }
        }
    }

    fn json(&self, version: usize, subresource: &str, last: &Value, random: &mut Random) -> Request {
        let mut new = last.clone();
        self.change(&mut new, version, subresource, random);
        let mut operations: Vec<Value> = Vec::new();
        steps(last, &new, "", &mut operations, random);
        if random.chance(15) {
            operations.push(json!({"op": "add", "path": "/metadata/labels/c", "value": "z"}));
        }
        if random.chance(8) {
            operations.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": [{}]}));
        }
        // What a patch says of the version would be a condition.
        for operation in &mut operations {
            if operation["path"] == "/metadata"
                && let Some(metadata) = operation["value"].as_object_mut()
            {
                metadata.remove("resourceVersion");
            }
        }
        Request::json("PATCH", self.at(version, subresource), &Value::Array(operations))
            .header("Content-Type", "application/json-patch+json")
    }

    fn apply(&self, version: usize, subresource: &str, random: &mut Random) -> Request {
        let mut body = self.body(version, random);
        if subresource == "status" {
            body["status"] = value(&self.subject.versions[version].1["properties"]["status"], random);
        }
        if random.chance(3) {
            body["zz"] = json!({"unknown": 1});
        }
        if random.chance(10) {
            merge(&mut body, &self.subject.base);
        }
        Request::json("PATCH", self.at(version, subresource), &body).header("Content-Type", APPLY)
    }

    fn scaled(&self, version: usize, last: &Value, random: &mut Random) -> Request {
        let replicas = random.below(3);
        let path = self.at(version, "scale");
        let mut body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": self.name},
            "spec": {"replicas": replicas}});
        if self.subject.namespaced {
            body["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        match random.below(4) {
            0 => {
                if self.subject.custom {
                    body["metadata"]["resourceVersion"] = last["metadata"]["resourceVersion"].clone();
                }
                Request::json("PUT", path, &body)
            }
            1 => {
                if random.chance(10) {
                    body["spec"] = json!({});
                }
                Request::json("PATCH", path, &body).header("Content-Type", APPLY)
            }
            2 => {
                let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]);
                Request::json("PATCH", path, &patch).header("Content-Type", "application/json-patch+json")
            }
            _ => Request::json("PATCH", path, &json!({"spec": {"replicas": replicas}}))
                .header("Content-Type", "application/merge-patch+json"),
        }
    }
}

/// Puts what `base` has into `body`, where it has nothing.
fn merge(body: &mut Value, base: &Value) {
    if body.is_null() {
        *body = base.clone();
    }
    let (Value::Object(fields), Value::Object(base)) = (body, base) else { return };
    for (name, value) in base {
        merge(fields.entry(name.clone()).or_insert(Value::Null), value);
    }
}

/// The operations of a JSON patch from one object to another: some change a field deep inside, some a whole value.
fn steps(old: &Value, new: &Value, path: &str, operations: &mut Vec<Value>, random: &mut Random) {
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(a), Value::Object(b)) if path.is_empty() || random.chance(60) => {
            let at = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
            for (name, value) in b {
                match a.get(name) {
                    Some(before) => steps(before, value, &at(name), operations, random),
                    None => operations.push(json!({"op": "add", "path": at(name), "value": value})),
                }
            }
            for name in a.keys().filter(|name| !b.contains_key(*name)) {
                operations.push(json!({"op": "remove", "path": at(name)}));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() && random.chance(60) => {
            for (index, (before, value)) in a.iter().zip(b).enumerate() {
                steps(before, value, &format!("{path}/{index}"), operations, random);
            }
        }
        // Adding puts one more into a list.
        _ => operations.push(json!({"op": "replace", "path": path, "value": new})),
    }
}

/// Puts one of a strategic merge patch's directives somewhere into it.
fn direct(patch: &mut Value, random: &mut Random) {
    match patch {
        Value::Object(fields) => {
            let names: Vec<String> =
                fields.iter().filter(|(_, v)| v.is_object() || v.is_array()).map(|(k, _)| k.clone()).collect();
            let names: Vec<&String> = names.iter().filter(|name| *name != "metadata").collect();
            if !names.is_empty() && random.chance(80) {
                let name = random.pick(&names).as_str();
                direct(&mut fields[name], random);
            } else if !fields.contains_key("metadata") {
                fields.insert("$patch".into(), "replace".into());
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let at = random.below(items.len());
            match (random.below(3), &mut items[at]) {
                (0, Value::Object(fields)) => {
                    fields.insert("$patch".into(), "delete".into());
                }
                (1, _) => items.push(json!({"$patch": "replace"})),
                (_, item) => direct(item, random),
            }
        }
        _ => {}
    }
}

/// The merge patch from one value to another.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let mut patch = Map::new();
            for (name, value) in b {
                if let Some(value) = difference(a.get(name).unwrap_or(&Value::Null), value) {
                    patch.insert(name.clone(), value);
                }
            }
            for name in a.keys().filter(|name| !b.contains_key(*name)) {
                patch.insert(name.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (old, new) => (old != new).then(|| new.clone()),
    }
}
