//! Admission webhooks: other people's programs that change and judge writes.
//!
//! Nothing of the store is held while one is asked: the write is planned against what was seen before, and if that has changed by
//! the time it is committed, it is planned anew, webhooks included.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use machinery::patch::apply_json_patch;
use machinery::status::{Cause, Status};
use serde_json::{Value, json};
use store::Store;

use super::expressions::{Asker, Compiler, Input};
use super::matching::{self, Criteria};
use super::validating::Conditions;
use crate::admission::{Admission, Attributes, BoxFuture};
use crate::plugins::cached::Cached;
use crate::resource::Resource;
use crate::webhook::{ClientConfig, WebhookError};

/// A webhook, ready to be asked.
struct Webhook {
    /// Its name.
    name: String,
    /// The name of its configuration.
    configuration: String,
    /// Tells it from others: configurations may use a name twice.
    key: String,
    criteria: Criteria,
    conditions: Conditions,
    fail: bool,
    /// `reinvocationPolicy: IfNeeded`
    again: bool,
    /// Whether it may be asked about what will not be done.
    dry_run: bool,
    timeout: Duration,
    client: Result<ClientConfig, WebhookError>,
    /// `v1` or `v1beta1`; the first that both sides know.
    version: Option<&'static str>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn read(configurations: Vec<Value>) -> Vec<Webhook> {
    let compiler = Compiler::new(false, false);
    let mut all = Vec::new();
    for configuration in &configurations {
        let name = text(&configuration["metadata"]["name"]);
        for (i, hook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
            let known = |version: &Value| match version.as_str() {
                Some("v1") => Some("v1"),
                Some("v1beta1") => Some("v1beta1"),
                _ => None,
            };
            all.push(Webhook {
                name: text(&hook["name"]).to_owned(),
                configuration: name.to_owned(),
                key: format!("{name}/{}/{i}", text(&hook["name"])),
                criteria: Criteria::read(hook),
                conditions: Conditions::read(&hook["matchConditions"], &compiler),
                fail: hook["failurePolicy"] != "Ignore",
                again: hook["reinvocationPolicy"] == "IfNeeded",
                dry_run: matches!(text(&hook["sideEffects"]), "None" | "NoneOnDryRun"),
                timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)),
                client: ClientConfig::read(&hook["clientConfig"]),
                version: hook["admissionReviewVersions"].as_array().into_iter().flatten().find_map(known),
            });
        }
    }
    all
}

/// All webhooks, as one of those who have a say.
pub struct Webhooks {
    mutating: Cached<Vec<Webhook>>,
    validating: Cached<Vec<Webhook>>,
}

impl Webhooks {
    /// Those in a store.
    pub fn new(store: &Store) -> Webhooks {
        Webhooks {
            mutating: Cached::new(store, "admissionregistration.k8s.io/mutatingwebhookconfigurations", read),
            validating: Cached::new(store, "admissionregistration.k8s.io/validatingwebhookconfigurations", read),
        }
    }
}

impl Admission for Webhooks {
    fn name(&self) -> &'static str {
        "AdmissionWebhooks"
    }

    fn mutate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let hooks = self.mutating.get(attributes.view);
        if hooks.is_empty() || matching::exempt_from_webhooks(attributes.resource) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move { mutate(&hooks, attributes).await })
    }

    fn validate<'a>(&'a self, attributes: &'a mut Attributes<'_>) -> BoxFuture<'a, Result<(), Status>> {
        let hooks = self.validating.get(attributes.view);
        if hooks.is_empty() || matching::exempt_from_webhooks(attributes.resource) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move { validate(&hooks, attributes).await })
    }
}

/// How asking went wrong.
enum Failure {
    /// It could not be asked: its failure policy decides.
    Call(String),
    /// Its answer, or a rule of ours.
    Refusal(Status),
}

/// An answer.
struct Answer {
    patch: Option<Value>,
    warnings: Vec<String>,
}

impl Webhook {
    /// The resource in the version that it wants to see, if it is to be asked.
    async fn wants(&self, attributes: &Attributes<'_>) -> Result<Option<std::sync::Arc<Resource>>, Status> {
        let Some(matched) = self.criteria.matches(attributes, false)? else { return Ok(None) };
        let request = super::expressions::request(attributes, &matched);
        let object = matching::converted(&attributes.object, attributes.resource, &matched).await?;
        let old = matching::converted(attributes.old, attributes.resource, &matched).await?;
        let asker = Asker::new(attributes);
        let nothing = &Value::Null;
        let input =
            Input { object: &object, old: &old, request: &request, namespace: nothing, params: nothing, asker: &asker };
        match self.conditions.hold(&[], &input, self.fail) {
            Ok(holds) => Ok(holds.then_some(matched)),
            Err(error) => Err(crate::plugins::forbidden(attributes, error)),
        }
    }

    async fn ask(&self, attributes: &Attributes<'_>, matched: &Resource, mutating: bool) -> Result<Answer, Failure> {
        if attributes.dry_run && !self.dry_run {
            let why = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::Refusal(Status::bad_request(why)));
        }
        let failed = |why: String| Failure::Call(format!("failed calling webhook {:?}: {why}", self.name));
        let version = self.version.ok_or_else(|| {
            failed("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)".into())
        })?;
        let uid = attributes.cx.server.new_uid();
        let mut request = super::expressions::request(attributes, matched);
        request["uid"] = uid.as_str().into();
        for (name, object) in [("object", &attributes.object), ("oldObject", attributes.old)] {
            let converted = matching::converted(object, attributes.resource, matched).await;
            request[name] = converted.map_err(|status| failed(status.message))?;
        }
        let api_version = format!("admission.k8s.io/{version}");
        let review = json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": request});
        let client = self.client.as_ref().map_err(|error| failed(format!("could not get REST client: {error}")))?;
        // What the request has left is all there is.
        let left = attributes.cx.deadline.saturating_duration_since(tokio::time::Instant::now());
        let answer = attributes.cx.server.webhooks.call(client, &review, self.timeout.min(left)).await;
        let answer = answer.map_err(|error| failed(format!("failed to call webhook: {error}")))?;
        let invalid = |why: String| failed(format!("received invalid webhook response: {why}"));
        let response = &answer["response"];
        if !response.is_object() {
            return Err(invalid("webhook response was absent".into()));
        }
        let patched = response["patch"].as_str().is_some_and(|patch| !patch.is_empty());
        let typed = !response["patchType"].is_null();
        if version == "v1" {
            if text(&response["uid"]) != uid {
                return Err(invalid(format!("expected response.uid={uid:?}, got {:?}", text(&response["uid"]))));
            }
            if text(&answer["kind"]) != "AdmissionReview" || text(&answer["apiVersion"]) != api_version {
                let got = format!("{}, Kind={}", text(&answer["apiVersion"]), text(&answer["kind"]));
                return Err(invalid(format!(
                    "expected webhook response of {api_version}, Kind=AdmissionReview, got {got}"
                )));
            }
            match (mutating, patched, typed) {
                (false, true, _) => return Err(invalid("validating webhook may not return response.patch".into())),
                (false, _, true) => return Err(invalid("validating webhook may not return response.patchType".into())),
                (true, true, false) => {
                    return Err(invalid("webhook returned response.patch but not response.patchType".into()));
                }
                (true, false, true) => {
                    return Err(invalid("webhook returned response.patchType but not response.patch".into()));
                }
                _ => {}
            }
        }
        for (key, value) in response["auditAnnotations"].as_object().into_iter().flatten() {
            attributes.cx.annotate(format!("{}/{key}", self.name), text(value));
        }
        let warnings = response["warnings"].as_array().into_iter().flatten().map(|own| text(own).to_owned()).collect();
        if response["allowed"] != true {
            for warning in &warnings {
                attributes.cx.warn(warning);
            }
            return Err(Failure::Refusal(denial(&self.name, &response["status"])));
        }
        if !patched || !mutating {
            return Ok(Answer { patch: None, warnings });
        }
        if typed && response["patchType"] == "" {
            let why = "webhook returned invalid response.patchType of \"\"";
            return Err(failed(format!("received invalid webhook response: {why}")));
        }
        if typed && response["patchType"] != "JSONPatch" {
            return Err(failed(format!("unsupported patch type {:?}", text(&response["patchType"]))));
        }
        let undecodable = |why: String| failed(format!("received undecodable patch in webhook response: {why}"));
        let bytes = STANDARD.decode(text(&response["patch"])).map_err(|error| undecodable(error.to_string()))?;
        let patch = machinery::json::parse(&bytes).map_err(|error| undecodable(error.to_string()))?.value;
        Ok(Answer { patch: Some(patch), warnings })
    }

    /// What its failure means.
    fn failed(&self, failure: Failure, attributes: &Attributes<'_>, annotation: String) -> Result<(), Status> {
        match failure {
            Failure::Refusal(status) => Err(status),
            Failure::Call(error) if self.fail => Err(Status::internal(error)),
            Failure::Call(error) => {
                tracing::warn!(webhook = self.name, %error, "a webhook could not be asked; its failures are ignored");
                attributes.cx.annotate(annotation, self.name.as_str());
                Ok(())
            }
        }
    }
}

async fn mutate(hooks: &[Webhook], attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let again = attributes.reinvocation.again;
    if again && attributes.reinvocation.webhooks.last.as_ref() != Some(&attributes.object) {
        attributes.reinvocation.webhooks.require();
    }
    let round = usize::from(again);
    let mut asked = false;
    for (index, hook) in hooks.iter().enumerate() {
        let Some(matched) = hook.wants(attributes).await? else { continue };
        if again && !attributes.reinvocation.webhooks.is_due(&hook.key) {
            continue;
        }
        asked = true;
        let answer = match hook.ask(attributes, &matched, true).await {
            Ok(answer) => answer,
            Err(failure) => {
                let annotation = format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
                hook.failed(failure, attributes, annotation)?;
                continue;
            }
        };
        attributes.warnings.extend(answer.warnings);
        let mut changed = false;
        if let Some(patch) = answer.patch.filter(|patch| patch.as_array().is_none_or(|list| !list.is_empty())) {
            if attributes.object.is_null() {
                return Err(Status::internal(format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    hook.name
                )));
            }
            let object = matching::converted(&attributes.object, attributes.resource, &matched).await?;
            let patched = apply_json_patch(&object, &patch).map_err(Status::internal)?;
            let patched = super::settled(&matched, patched).map_err(|status| Status::internal(status.message))?;
            let mut patched = matching::converted(&patched, &matched, attributes.resource).await?;
            keep_managers(attributes, &mut patched);
            changed = patched != attributes.object;
            attributes.object = patched;
        }
        let said = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": changed});
        let key = format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
        attributes.cx.annotate(key, said.to_string());
        if changed {
            attributes.reinvocation.webhooks.require();
            attributes.reinvocation.wanted = true;
        }
        if hook.again {
            attributes.reinvocation.webhooks.invoked(hook.key.clone());
        }
    }
    if asked {
        attributes.reinvocation.webhooks.last = Some(attributes.object.clone());
    }
    Ok(())
}

async fn validate(hooks: &[Webhook], attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let mut wanted = Vec::new();
    for (index, hook) in hooks.iter().enumerate() {
        if let Some(matched) = hook.wants(attributes).await? {
            wanted.push((index, hook, matched));
        }
    }
    let asking = wanted.iter().map(|(index, hook, matched)| {
        let attributes = &*attributes;
        async move { (*index, *hook, hook.ask(attributes, matched, false).await) }
    });
    // All at once; the first refusal in their order is what the client is told.
    let answers = join_all(asking).await;
    let mut verdict = Ok(());
    for (index, hook, answer) in answers {
        let one = match answer {
            Ok(answer) => {
                attributes.warnings.extend(answer.warnings);
                Ok(())
            }
            Err(failure) => {
                let annotation = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                hook.failed(failure, attributes, annotation)
            }
        };
        verdict = verdict.and(one);
    }
    verdict
}

/// What a client is told of a webhook's refusal.
fn denial(name: &str, said: &Value) -> Status {
    let denied = format!("admission webhook {name:?} denied the request");
    let (message, reason) = (text(&said["message"]), text(&said["reason"]));
    let message = match (message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = said["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..1000).contains(code)).unwrap_or(400);
    let details = &said["details"];
    let mut status = Status::new(code, reason.to_owned(), message);
    if details.is_object() {
        status = status.about(text(&details["group"]), text(&details["kind"]), text(&details["name"]));
        status.uid = text(&details["uid"]).to_owned();
        let seconds = details["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0);
        status.retry_after = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        status.bare_details = true;
        for cause in details["causes"].as_array().into_iter().flatten().take(100) {
            let own = |field: &str| text(&cause[field]).to_owned();
            status.causes.push(Cause { reason: own("reason"), message: own("message"), field: own("field") });
        }
    }
    status
}

/// Who owns which field stays as it was where a webhook broke it.
fn keep_managers(attributes: &mut Attributes<'_>, patched: &mut Value) {
    let Err(error) = machinery::apply::check_managers(patched["metadata"].get("managedFields")) else { return };
    let meta = crate::write::meta_mut(patched);
    match attributes.object["metadata"].get("managedFields") {
        Some(before) => drop(meta.insert("managedFields".into(), before.clone())),
        None => drop(meta.remove("managedFields")),
    }
    attributes.warnings.push(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {error}"
    ));
}
