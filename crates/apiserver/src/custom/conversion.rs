//! Conversion between the versions of a custom resource by its author's webhook.
//!
//! A webhook is somebody else's program: calls have a time limit, only so many run at once, and none runs while a lock is held.
//! It may change labels and annotations and everything outside metadata; the rest of metadata stays as it was.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use machinery::field::{self, Error, Path};
use machinery::meta::validate_annotations;
use machinery::selector::validate_labels;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use store::Entry;
use tokio::sync::Semaphore;

use crate::webhook::{ClientConfig, WebhookClient, WebhookError};

/// How long a webhook has for one review.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many reviews of one definition run at once.
const AT_ONCE: usize = 16;
/// How much goes into one review.
const REVIEW_OBJECTS: usize = 500;
const REVIEW_BYTES: usize = 4 * 1024 * 1024;
/// How many bytes of converted objects are kept for those who watch.
const KEPT: usize = 16 * 1024 * 1024;

/// `spec.conversion` with the strategy `Webhook`.
pub struct Webhook {
    client: Arc<WebhookClient>,
    config: Result<ClientConfig, WebhookError>,
    /// The version of reviews that it understands.
    review: Option<&'static str>,
    kind: String,
    turns: Semaphore,
    kept: Mutex<Kept>,
}

/// What watchers were shown last, by key and version, so that a hundred of them are one conversion and not a hundred.
#[derive(Default)]
struct Kept {
    entries: HashMap<(Arc<str>, usize), Arc<Entry>>,
    bytes: usize,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("config", &self.config).field("review", &self.review).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Reads `spec.conversion`; none if it names no webhook.
    pub fn read(crd: &Value, client: &Arc<WebhookClient>) -> Option<Webhook> {
        let conversion = &crd["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let known = |version: &Value| ["v1", "v1beta1"].into_iter().find(|known| version == known);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(Webhook {
            client: client.clone(),
            config: ClientConfig::read(&webhook["clientConfig"]),
            review: webhook["conversionReviewVersions"].as_array().into_iter().flatten().find_map(known),
            kind: text(&crd["spec"]["names"]["kind"]),
            turns: Semaphore::new(AT_ONCE),
            kept: Mutex::default(),
        })
    }

    /// Objects of any versions in one version, in their order.
    pub async fn convert(&self, objects: Vec<Value>, api_version: &str) -> Result<Vec<Value>, String> {
        let mut done = Vec::with_capacity(objects.len());
        let mut batch = Vec::new();
        let mut size = 0;
        for object in objects {
            let length = length(&object);
            if !batch.is_empty() && (batch.len() >= REVIEW_OBJECTS || size + length > REVIEW_BYTES) {
                done.extend(self.review(std::mem::take(&mut batch), api_version).await?);
                size = 0;
            }
            size += length;
            batch.push(object);
        }
        if !batch.is_empty() {
            done.extend(self.review(batch, api_version).await?);
        }
        Ok(done)
    }

    /// One object in another version.
    pub async fn convert_one(&self, object: Value, api_version: &str) -> Result<Value, String> {
        let mut converted = self.convert(vec![object], api_version).await?;
        converted.pop().ok_or_else(|| "a conversion gave nothing".to_owned())
    }

    async fn review(&self, objects: Vec<Value>, api_version: &str) -> Result<Vec<Value>, String> {
        let from = objects[0]["apiVersion"].as_str().unwrap_or_default();
        let who = format!("conversion webhook for {from}, Kind={}", self.kind);
        let failed = |why: String| format!("{who} failed: {why}");
        let Some(version) = self.review else { return Err("no supported conversion review versions".into()) };
        let config = self.config.as_ref().map_err(|error| failed(error.to_string()))?;
        let uid = crate::server::random_uid();
        let own = format!("apiextensions.k8s.io/{version}");
        let question = json!({
            "kind": "ConversionReview", "apiVersion": own,
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects},
        });
        let turn = tokio::time::timeout(TIMEOUT, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(failed(format!("{AT_ONCE} other conversions did not end within {} s", TIMEOUT.as_secs())));
        };
        let mut answer =
            self.client.call(config, &question, TIMEOUT).await.map_err(|error| failed(error.to_string()))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, api) = (text(&answer["kind"]), text(&answer["apiVersion"]));
        if version == "v1" && (kind != "ConversionReview" || api != own) {
            return Err(failed(format!(
                "expected webhook response of {own}, Kind=ConversionReview, got {api}, Kind={kind}"
            )));
        }
        let mut response = answer["response"].take();
        if !response.is_object() {
            return Err(failed("no response provided".into()));
        }
        if version == "v1" && response["uid"] != uid.as_str() {
            return Err(failed(format!("expected response.uid={uid:?}, got {:?}", text(&response["uid"]))));
        }
        let result = &response["result"];
        if result["status"] != "Success" {
            return Err(failed(match text(&result["message"]) {
                empty if empty.is_empty() => {
                    format!("response.result.status was '{}', not 'Success'", text(&result["status"]))
                }
                said => said,
            }));
        }
        let converted = match response["convertedObjects"].take() {
            Value::Array(list) => list,
            _ => Vec::new(),
        };
        if converted.len() != objects.len() {
            return Err(format!("{who} returned {} objects, expected {}", converted.len(), objects.len()));
        }
        let pairs = objects.iter().zip(converted).enumerate();
        pairs.map(|(at, (old, new))| self.accept(&who, at, old, new, api_version)).collect()
    }

    /// Checks a converted object and gives it the metadata that it had.
    fn accept(&self, who: &str, at: usize, old: &Value, mut new: Value, wanted: &str) -> Result<Value, String> {
        let invalid = |why: String| format!("{who} returned invalid object{why}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if !new.is_object() {
            return Err(invalid(format!(" at index {at}: it is no object")));
        }
        if new["apiVersion"] != wanted {
            let got = text(&new["apiVersion"]);
            return Err(invalid(format!(" at index {at}: invalid groupVersion (expected {wanted}, received {got})")));
        }
        if new["kind"] != old["kind"] {
            let (expected, got) = (text(&old["kind"]), text(&new["kind"]));
            return Err(invalid(format!(" at index {at}: invalid kind (expected {expected}, received {got})")));
        }
        for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
            let (own, got) = (text(&old["metadata"][field]), text(&new["metadata"][field]));
            if own != got {
                return Err(invalid(format!(": must have the same {name}: {own} != {got}")));
            }
        }
        let meta = restored(&old["metadata"], new.get_mut("metadata").map(Value::take));
        new["metadata"] = meta.map_err(|why| format!("{who} returned invalid metadata: {why}"))?;
        Ok(new)
    }

    /// What watchers were shown of an entry in a version.
    pub fn kept(&self, entry: &Entry, at: usize) -> Option<Arc<Entry>> {
        let kept = self.kept.lock();
        let found = kept.entries.get(&(entry.key.clone(), at))?;
        (found.revision == entry.revision).then(|| found.clone())
    }

    /// Keeps what watchers are shown; what was kept before goes when there is too much of it.
    pub fn keep(&self, entry: &Arc<Entry>, at: usize) {
        let mut kept = self.kept.lock();
        if kept.bytes + entry.value.len() > KEPT {
            *kept = Kept::default();
        }
        kept.bytes += entry.value.len();
        if let Some(old) = kept.entries.insert((entry.key.clone(), at), entry.clone()) {
            kept.bytes = kept.bytes.saturating_sub(old.value.len());
        }
    }
}

/// The metadata that a converted object gets: the original's, with the converted one's labels and annotations.
fn restored(original: &Value, converted: Option<Value>) -> Result<Value, String> {
    let mut said = match converted {
        None => return Err("missing metadata in converted object".into()),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(format!("invalid metadata of type {} in converted object", go_type(&other))),
    };
    let mut meta = original.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let new = match said.remove(field) {
            None | Some(Value::Null) => {
                meta.remove(field);
                continue;
            }
            Some(Value::Object(new)) => new,
            Some(other) => {
                return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(&other)));
            }
        };
        if let Some((key, value)) = new.iter().find(|(_, value)| !value.is_string()) {
            let what = go_type(value);
            return Err(format!("metadata.{field}[{key}] must be a string, but is {what} in converted object"));
        }
        if meta.get(field).and_then(Value::as_object) != Some(&new) {
            let errors = check(field, &new);
            if !errors.is_empty() {
                return Err(field::aggregate(&errors));
            }
        }
        meta.insert(field.into(), new.into());
    }
    Ok(meta.into())
}

fn check(field: &str, values: &Map<String, Value>) -> Vec<Error> {
    let path = Path::root("metadata");
    if field == "labels" {
        return validate_labels(values, &path.child("labels"));
    }
    let pairs = values.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    // As Kubernetes names the path here.
    validate_annotations(pairs, &path.child("annotation"))
}

/// What Go calls a JSON value's type.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// About how long a value is as JSON.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(|item| length(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + length(value) + 4).sum::<usize>() + 2,
        _ => 6,
    }
}
