//! A claim's connection details, read from its implementation, and the objects in the claim's namespace that hold them.

use std::collections::BTreeMap;

use conductor_claims::lifecycle::{Connection, ROTATION, SYSTEM_NAMESPACE, binding_name, is_shared, ours};
use conductor_claims::template::{Expressions, render};
use conductor_claims::types::ResourceType;
use serde_json::{Map, Value, json};

use crate::api::Failure;
use crate::desk::Desk;

/// What was read for one claim.
#[derive(Default)]
pub(crate) struct Wiring {
    details: Option<Map<String, Value>>,
    /// Details that are no text, in Base64.
    binary: Map<String, Value>,
    provider: Option<String>,
    rotation: i64,
    /// Details that the class speaks of and that cannot be told, and why.
    missing: Vec<String>,
    objects: [Option<Value>; 4],
}

const OBJECTS: [(&str, &str); 4] =
    [("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "Service"), ("discovery.k8s.io/v1", "EndpointSlice")];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The decoded content of a Secret; what is no text is left out.
fn decoded(secret: &Value) -> Map<String, Value> {
    let data = secret["data"].as_object().into_iter().flatten();
    data.filter_map(|(key, value)| Some((key.clone(), json!(base64_text(text(value))?)))).collect()
}

/// What of a Secret is no text, as it stands there.
fn undecoded(secret: &Value) -> Map<String, Value> {
    let data = secret["data"].as_object().into_iter().flatten();
    data.filter(|(_, value)| base64_text(text(value)).is_none()).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn base64_text(encoded: &str) -> Option<String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok()
}

/// All implementations, by the names of their templates, where the connection speaks of them: `first`, which is read, and the others.
async fn others(desk: &Desk, resource: &Value, first: &Value) -> Result<Value, Failure> {
    let mut all = Map::new();
    let said = resource["spec"]["connection"].as_object().into_iter().flatten();
    if !said.into_iter().any(|(_, value)| text(value).contains("implementations")) {
        return Ok(Value::Object(all));
    }
    let templates = resource["spec"]["templates"].as_array().into_iter().flatten();
    let records = resource["status"]["implementations"].as_array().into_iter().flatten();
    for (i, (template, record)) in templates.zip(records).enumerate() {
        let of = |key: &str| text(&record[key]);
        let read = desk.cx.provisioner.get(of("apiVersion"), of("kind"), of("namespace"), of("name"));
        let live = match i {
            0 => Some(first.clone()),
            // what may not be read is said on the resource
            _ => read.await.or_else(|failure| if failure.code == 403 { Ok(None) } else { Err(failure) })?,
        };
        if let Some(mut live) = live.filter(|live| ours(live, resource)) {
            if (of("apiVersion"), of("kind")) == ("v1", "Secret") {
                live["stringData"] = Value::Object(decoded(&live));
            }
            all.insert(text(&template["name"]).to_owned(), live);
        }
    }
    Ok(Value::Object(all))
}

impl Wiring {
    pub(crate) async fn read(
        desk: &Desk,
        kind: &ResourceType,
        claim: &Value,
        resource: Option<&Value>,
    ) -> Result<Wiring, Failure> {
        let mut wiring = Wiring::default();
        let uid = text(&claim["metadata"]["uid"]);
        let deleting = !claim["metadata"]["deletionTimestamp"].is_null();
        let refers = |r: &Value| {
            let refs = r["spec"]["claimRefs"].as_array().into_iter().flatten();
            refs.into_iter().any(|r| text(&r["uid"]) == uid)
        };
        if let Some(resource) = resource.filter(|r| !deleting && refers(r)) {
            wiring.read_details(desk, kind, claim, resource).await?;
        }
        let written = !claim["status"]["binding"]["name"].is_null();
        if wiring.details.is_some() || written {
            let (namespace, name) = (text(&claim["metadata"]["namespace"]), binding_name(kind, claim));
            for (i, (api_version, object)) in OBJECTS.into_iter().enumerate() {
                wiring.objects[i] = desk.cx.api.get(api_version, object, namespace, &name).await?;
            }
        }
        Ok(wiring)
    }

    async fn read_details(
        &mut self,
        desk: &Desk,
        of: &ResourceType,
        claim: &Value,
        resource: &Value,
    ) -> Result<(), Failure> {
        let first = &resource["status"]["implementations"][0];
        let api = &desk.cx.api;
        let (api_version, kind) = (text(&first["apiVersion"]), text(&first["kind"]));
        if kind.is_empty() {
            return Ok(());
        }
        let (place, name) = (text(&first["namespace"]), text(&first["name"]));
        // an implementation that may not be read says so on its resource
        let live = match desk.cx.provisioner.get(api_version, kind, place, name).await {
            Err(failure) if failure.code == 403 => return Ok(()),
            read => read?,
        };
        // what a resource names need not be its own: it may have been refused, or be somebody else's meanwhile
        let Some(live) = live.filter(|live| ours(live, resource)) else { return Ok(()) };
        self.provider = Some(kind.to_owned());
        let uid = text(&claim["metadata"]["uid"]);
        let each = live["status"]["connections"].as_array();
        let own = each.into_iter().flatten().find(|c| text(&c["claimUid"]) == uid).map(|c| &c["secretRef"]);
        // what is one's own is never another's
        if own.is_none() && each.is_some() && is_shared(of, resource) {
            self.missing.push(format!("{kind} {name} makes a login for the claim"));
            return Ok(());
        }
        let reference = own.unwrap_or(&live["status"]["connectionSecretRef"]);
        let name = reference.as_str().unwrap_or_else(|| text(&reference["name"]));
        // whoever can report on an implementation gives away Secrets of the system's own namespace, and no others
        let namespace = SYSTEM_NAMESPACE;
        let elsewhere = reference["namespace"].as_str().is_some_and(|n| !n.is_empty() && n != namespace);
        let name = if elsewhere { "" } else { name };
        let mut details: Option<Map<String, Value>> = None;
        if !name.is_empty() {
            desk.note_secret(namespace, name, claim);
            if let Some(secret) = api.get("v1", "Secret", namespace, name).await? {
                self.rotation = text(&secret["metadata"]["annotations"][ROTATION]).parse().unwrap_or(0);
                details = Some(decoded(&secret));
                self.binary = undecoded(&secret);
            } else {
                self.missing.push("the Secret that what is behind it names".to_owned());
            }
        }
        let said = &resource["spec"]["connection"];
        if said.is_object() {
            let secret = Value::Object(details.clone().unwrap_or_default());
            let implementations = others(desk, resource, &live).await?;
            let scope = BTreeMap::from([
                ("implementation", &live),
                ("implementations", &implementations),
                ("resource", resource),
                ("claim", claim),
                ("secret", &secret),
            ]);
            let all = details.get_or_insert_with(Map::new);
            for (key, value) in said.as_object().into_iter().flatten() {
                // a text with ${…} is a template, any other is an expression
                let made = match value.as_str() {
                    Some(expression) if !expression.contains("${") => desk.cx.evaluator.evaluate(expression, &scope),
                    _ => render(value, &scope, &[], &desk.cx.evaluator).map_err(|e| e.to_string()),
                };
                match made {
                    Ok(Value::Null) => {}
                    Ok(made) => drop(all.insert(key.clone(), made)),
                    // what the implementation does not say yet, it will say in a later version
                    Err(error) => self.missing.push(format!("{key} ({error})")),
                }
            }
        }
        self.details = details.filter(|d| !d.is_empty() || !self.binary.is_empty());
        Ok(())
    }

    pub(crate) fn connection(&self) -> Connection<'_> {
        Connection {
            details: self.details.as_ref(),
            binary: Some(&self.binary),
            provider: self.provider.as_deref(),
            rotation: self.rotation,
            missing: &self.missing,
            secret: self.objects[0].as_ref(),
            config_map: self.objects[1].as_ref(),
            service: self.objects[2].as_ref(),
            endpoints: self.objects[3].as_ref(),
            refused: &[],
        }
    }
}
