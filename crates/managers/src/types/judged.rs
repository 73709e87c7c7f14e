//! Whether what a class says of what it makes can be, by the definitions of those kinds. At admission a kind may not be there yet, and
//! definitions change: so classes are judged as they stand, too, and again when a definition comes or changes.

use std::collections::HashMap;
use std::sync::Arc;

use conductor_claims::errors::FieldError;
use conductor_claims::lifecycle::{Event, Target};
use conductor_claims::review::{Operation, Request, Snapshot, Verdict as Reviewed, review};
use conductor_claims::types::group_of;
use serde_json::{Value, json};

use super::Types;
use crate::api::Failure;
use crate::kind::Kind;

/// How much of what is wrong with a class is said.
const SAID: usize = 3;

/// What was found of classes, by their uid.
pub(super) type Judged = HashMap<String, Verdict>;

pub(super) struct Verdict {
    /// The versions of everything it follows from.
    from: Vec<String>,
    /// What is wrong.
    found: Option<String>,
    /// Whether it was asked for since it was last looked through.
    asked: bool,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Types {
    /// What a template's kind lacks to be made: it is not served here.
    pub(super) async fn unserved(&self, template: &Value) -> Result<Option<String>, Failure> {
        let (api_version, kind) = (text(&template["apiVersion"]), text(&template["kind"]));
        let group = group_of(api_version);
        // before anything is read: what comes from now on is told
        self.known.lock().groups.insert(group.to_owned());
        let served = match self.cx.api.served(api_version, kind).await {
            Err(failure) if failure.code == 404 => None,
            other => Some(other?),
        };
        let mut known = self.known.lock();
        match served {
            Some(served) if !known.undefined.contains(&format!("{}.{group}", served.plural)) => return Ok(None),
            Some(_) => {
                self.cx.api.look_again_at_group(group);
                known.awaited = true;
            }
            None => {
                let of_group = |name: &String| name.split_once('.').is_some_and(|(_, own)| own == group);
                let defined = known.definitions.keys().any(of_group);
                known.awaited |= defined;
            }
        }
        Ok(Some(format!("kind {kind} of {api_version} is not served here: install its provider")))
    }

    /// What is wrong with what makes resources or volumes: a class, or a template of volumes.
    pub(super) async fn faults(
        &self,
        kind: &Kind,
        maker: &Arc<Value>,
        templates: &[Value],
    ) -> Result<Option<String>, Failure> {
        let (meta, mut from) = (&maker["metadata"], Vec::new());
        from.push(text(&meta["resourceVersion"]).to_owned());
        from.push(
            self.known
                .lock()
                .types
                .get(&kind.name())
                .map_or_else(String::new, |of| of["metadata"]["generation"].to_string()),
        );
        let mut definitions = Vec::new();
        for template in templates {
            let definition = self.definition_of(template).await?;
            from.extend(definition.clone().map(|(name, version)| format!("{name} {version}")));
            definitions.push(definition.map(|(name, _)| name));
        }
        let uid = text(&meta["uid"]);
        if let Some(verdict) = self.judged.lock().get_mut(uid).filter(|verdict| verdict.from == from) {
            verdict.asked = true;
            return Ok(verdict.found.clone());
        }
        let mut documents = Vec::new();
        for (template, definition) in templates.iter().zip(definitions) {
            documents.extend(self.document(template, definition.as_deref()).await?);
        }
        let types = match kind {
            Kind::Generated(of) => std::slice::from_ref(of.as_ref()),
            Kind::Volumes => &[],
        };
        let snapshot = Snapshot { types, openapi: &documents, ..Snapshot::default() };
        let request = Request { operation: Operation::Create, object: maker, old: &Value::Null };
        let found = match review(&request, &snapshot) {
            Reviewed::Allow(_) => None,
            Reviewed::Refuse(errors) => Some(said(&errors, text(&maker["kind"]))),
        };
        if let Some(message) = found.clone() {
            let event =
                Event { about: Target::of(maker), uid: uid.to_owned(), warning: true, reason: "Invalid", message };
            self.cx.events.tell(vec![event]);
        }
        self.judged.lock().insert(uid.to_owned(), Verdict { from, found: found.clone(), asked: true });
        Ok(found)
    }

    /// The definition of a template's kind, if it has one, and its version.
    async fn definition_of(&self, template: &Value) -> Result<Option<(String, String)>, Failure> {
        let api_version = text(&template["apiVersion"]);
        let served = self.cx.api.served(api_version, text(&template["kind"])).await?;
        let name = format!("{}.{}", served.plural, group_of(api_version));
        Ok(self.known.lock().definitions.get(&name).map(|version| (name.clone(), version.clone())))
    }

    /// The schema of a template's kind, as an OpenAPI document: that of its definition, for the server's own document comes after it.
    async fn document(&self, template: &Value, definition: Option<&str>) -> Result<Option<Value>, Failure> {
        let api_version = text(&template["apiVersion"]);
        let Some(name) = definition else {
            let root = if api_version.contains('/') { "apis" } else { "api" };
            // what it does not say now, it says when the objects are made
            return Ok(self.cx.api.read(&format!("/openapi/v3/{root}/{api_version}")).await.ok().flatten());
        };
        let crd = self.cx.api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name).await?;
        Ok(crd.and_then(|crd| schema_of(&crd, api_version)))
    }

    /// Forgets what nobody asks for any more.
    pub(super) fn forget_unasked(&self) {
        self.judged.lock().retain(|_, verdict| std::mem::take(&mut verdict.asked));
    }
}

/// The schema that a definition has for a version, as an OpenAPI document.
fn schema_of(crd: &Value, api_version: &str) -> Option<Value> {
    let group = group_of(api_version);
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let mut schema = versions.into_iter().find(|v| v["name"] == version)?["schema"]["openAPIV3Schema"].clone();
    if !schema.is_object() || crd["spec"]["preserveUnknownFields"] == true {
        return None;
    }
    let kind = &crd["spec"]["names"]["kind"];
    schema["x-kubernetes-group-version-kind"] = json!([{"group": group, "version": version, "kind": kind}]);
    Some(json!({"components": {"schemas": {"own": schema}}}))
}

fn said(errors: &[FieldError], kind: &str) -> String {
    let some: Vec<String> = errors.iter().take(SAID).map(ToString::to_string).collect();
    let more = match errors.len().saturating_sub(SAID) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}: correct the {kind}", some.join("; "))
}
