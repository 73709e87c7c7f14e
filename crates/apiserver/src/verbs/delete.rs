//! `delete` and `deletecollection`: with preconditions, grace periods, finalizers and a say for dependents.

use bytes::Bytes;
use machinery::field::{self, Path};
use machinery::status::Status;
use serde_json::{Value, json};
use store::Op;

use crate::admission::Operation;
use crate::context::Context;
use crate::plan::{Answer, Current, Plan, View};
use crate::request::ListOptions;
use crate::verbs::list::Page;
use crate::write::{Done, is_finished, meta_mut};

/// What a deletion asks for.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    grace: Option<i64>,
    policy: Option<String>,
    orphan: Option<bool>,
    uid: Option<String>,
    version: Option<String>,
    dry_run: bool,
    /// Whether admission has had its say already, about what led to this.
    admitted: bool,
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

impl Context {
    /// Reads the options from the body, or from the query if there is no body.
    fn delete_options(&self, body: &Bytes) -> Result<DeleteOptions, Status> {
        let object = if body.is_empty() {
            let mut object = json!({});
            if let Some(seconds) = self.query.number("gracePeriodSeconds")? {
                object["gracePeriodSeconds"] = seconds.into();
            }
            if let Some(policy) = self.query.get("propagationPolicy") {
                object["propagationPolicy"] = policy.into();
            }
            if self.query.get("orphanDependents").is_some() {
                object["orphanDependents"] = self.query.flag("orphanDependents").into();
            }
            let dry: Vec<&str> = self.query.all("dryRun").collect();
            if !dry.is_empty() {
                object["dryRun"] = dry.into();
            }
            object
        } else {
            let (value, _) = self.parse(body, kinds::schema_of("", "v1", "DeleteOptions"))?;
            if !(value.is_object() || value.is_null()) {
                return Err(Status::bad_request(
                    "couldn't get version/kind; json parse error: the body must be an object",
                ));
            }
            let kind = value["kind"].as_str().unwrap_or("DeleteOptions");
            if kind != "DeleteOptions" {
                return Err(Status::bad_request(format!("the body of a deletion must be DeleteOptions, not {kind}")));
            }
            value
        };
        self.delete_options_of(&object)
    }

    fn delete_options_of(&self, object: &Value) -> Result<DeleteOptions, Status> {
        let mut errors = Vec::new();
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let mut options = DeleteOptions {
            grace: object["gracePeriodSeconds"].as_i64(),
            policy: text(&object["propagationPolicy"]),
            orphan: object["orphanDependents"].as_bool(),
            uid: text(&object["preconditions"]["uid"]),
            version: text(&object["preconditions"]["resourceVersion"]),
            dry_run: false,
            admitted: false,
        };
        let body: Vec<&str> = object["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let query: Vec<&str> = self.query.all("dryRun").filter(|value| !value.is_empty()).collect();
        for dry in [body, query] {
            options.dry_run |= dry.contains(&"All");
            if dry.iter().any(|value| *value != "All") {
                errors.push(field::Error::not_supported(&Path::root("dryRun"), dry, &["All"]));
                break;
            }
        }
        let path = Path::root("propagationPolicy");
        if options.policy.is_some() && options.orphan.is_some() {
            errors.push(field::Error::invalid(
                &path,
                options.policy.clone().unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(policy) = options.policy.as_deref() {
            if !["Foreground", "Background", "Orphan"].contains(&policy) {
                let detail = r#"supported values: "Foreground", "Background", "Orphan", "nil""#;
                errors.push(field::Error::new(field::Kind::NotSupported, &path, Some(policy.into()), detail));
            }
        }
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        if self.resource.gk() == ("batch", "Job") && options.policy.is_none() && options.orphan.is_none() {
            self.warn("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning");
        }
        Ok(options)
    }

    /// `DELETE` of one object.
    pub async fn delete(&self, body: Bytes) -> Result<Done, Status> {
        let options = self.delete_options(&body)?;
        let options = &options;
        self.run(
            move |view| async move { self.plan_delete(&view, &self.info.namespace, &self.info.name, options).await },
        )
        .await
    }

    /// Plans a `DELETE`.
    pub async fn plan_of_delete(&self, view: &View<'_>, body: &Bytes) -> Result<Plan, Status> {
        let options = self.delete_options(body)?;
        self.plan_delete(view, &self.info.namespace, &self.info.name, &options).await
    }

    /// Deletes the object in question, which admission has agreed to.
    pub async fn delete_with(&self, options: &Value) -> Result<Done, Status> {
        let options = &DeleteOptions { admitted: true, ..self.delete_options_of(options)? };
        self.run(
            move |view| async move { self.plan_delete(&view, &self.info.namespace, &self.info.name, options).await },
        )
        .await
    }

    async fn plan_delete(
        &self,
        view: &View<'_>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Plan, Status> {
        let resource = &self.resource;
        let key = resource.key(namespace, name);
        let Some(current) = view.get(resource, &key).await? else {
            return Err(Status::not_found(&resource.group, &resource.plural, name));
        };
        self.check_preconditions(&current, name, options)?;
        let mut attributes =
            self.attributes(view, Operation::Delete, name, Value::Null, &current.object, options.dry_run);
        attributes.namespace = if resource.namespaced { namespace } else { "" };
        if !options.admitted {
            self.mutate(&mut attributes).await?;
            self.judge(&mut attributes).await?;
        }

        let mut object = Value::clone(&current.object);
        self.mark(&mut object, options);
        let table = resource.table.clone();
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let gone = is_finished(resource.gk(), &object) || object["metadata"].get("deletionTimestamp").is_none();
        if !gone {
            if options.dry_run {
                return Ok(Plan::nothing(Answer::Object { code: 200, object }));
            }
            if object == *current.object {
                return Ok(Plan::nothing(match current.entry {
                    Some(entry) => Answer::Unchanged(entry),
                    None => Answer::Object { code: 200, object },
                }));
            }
            let code = if options.orphan == Some(false) { 202 } else { 200 };
            let mut ops = vec![Op::put(table, key, resource.to_store(&object).await?, current.expect)];
            self.server.side_writes(self, view, &current.object, &object, &mut ops)?;
            return Ok(Plan { ops, main: 0, object: Some(object), answer: Answer::Stored { code }, retry: true });
        }
        let returns_object = returns_deleted_object(resource.gk());
        let status = Status::deleted(&resource.group, &resource.plural, name, &uid);
        if options.dry_run {
            let answer = if returns_object { Answer::Object { code: 200, object } } else { Answer::Status(status) };
            return Ok(Plan::nothing(answer));
        }
        // The event that says so has the revision of the deletion, so that watches go on after it.
        let final_value = Some(resource.to_store(&object).await?);
        let mut ops = vec![Op::Delete { table, key: key.into(), expect: current.expect, final_value }];
        self.server.side_writes(self, view, &current.object, &Value::Null, &mut ops)?;
        let answer = if returns_object { Answer::Object { code: 200, object } } else { Answer::Status(status) };
        Ok(Plan { ops, main: 0, object: None, answer, retry: true })
    }

    fn check_preconditions(&self, current: &Current, name: &str, options: &DeleteOptions) -> Result<(), Status> {
        let meta = &current.object["metadata"];
        let own = self.has_own_deletion();
        let what = if own { &self.resource.plural } else { &self.resource.kind };
        let conflict = |why: String| Status::conflict(self.resource.internal_group(), what, name, why);
        if let Some(uid) = &options.uid {
            let actual = meta["uid"].as_str().unwrap_or_default();
            if uid != actual && own {
                return Err(conflict(format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
                )));
            }
            if uid != actual {
                return Err(conflict(format!(
                    "the UID in the precondition ({uid}) does not match the UID in record ({actual}). The object might have been deleted and then recreated"
                )));
            }
        }
        if let Some(version) = &options.version {
            let actual = meta["resourceVersion"].as_str().unwrap_or_default();
            if version != actual && own {
                return Err(conflict(format!(
                    "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {actual}"
                )));
            }
            if version != actual {
                return Err(conflict(format!(
                    "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({actual}). The object might have been modified"
                )));
            }
        }
        Ok(())
    }

    /// The two kinds that are emptied before they go have a deletion of their own: no grace, no new generation.
    fn has_own_deletion(&self) -> bool {
        self.resource.gk() == ("", "Namespace") || self.resource.gk() == crate::resource::CRD
    }

    /// Puts the marks of a deletion on an object that cannot go at once; one that can stays unmarked.
    fn mark(&self, object: &mut Value, options: &DeleteOptions) {
        let (group, kind) = self.resource.gk();
        let finalizers_before: Vec<String> = strings(&object["metadata"]["finalizers"]);
        let mut finalizers = finalizers_before.clone();
        let policy = match (options.policy.as_deref(), options.orphan) {
            (Some(policy), _) => Some(policy.to_owned()),
            (None, Some(true)) => Some("Orphan".into()),
            (None, Some(false)) => Some("Background".into()),
            (None, None) => {
                // What the object already says stands; a few old kinds orphan by default.
                let said = finalizers.iter().any(|f| f == ORPHAN || f == FOREGROUND);
                (!said && !self.resource.is_custom() && kinds::strategy::orphans_dependents(group, kind))
                    .then(|| "Orphan".into())
            }
        };
        if let Some(policy) = policy {
            finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
            match policy.as_str() {
                "Orphan" => finalizers.push(ORPHAN.into()),
                "Foreground" => finalizers.push(FOREGROUND.into()),
                _ => {}
            }
        }
        if self.resource.gk() == crate::resource::CRD {
            use crate::controllers::crds::FINALIZER;
            if !finalizers.iter().any(|own| own == FINALIZER) && object["metadata"].get("deletionTimestamp").is_none() {
                finalizers.push(FINALIZER.into());
            }
        }
        let period = match self.resource.is_custom() {
            true => None,
            false => kinds::strategy::grace_period(group, kind, object, options.grace),
        };
        // What may take time is marked even if it goes at once.
        let (graceful, grace) = (period.is_some(), period.unwrap_or(0));
        let own_deletion = self.has_own_deletion();
        let namespace_finalizers =
            (group, kind) == ("", "Namespace") && !strings(&object["spec"]["finalizers"]).is_empty();
        let stays = !finalizers.is_empty() || grace > 0 || namespace_finalizers;
        let meta = meta_mut(object);
        if finalizers != finalizers_before {
            if finalizers.is_empty() {
                meta.remove("finalizers");
            } else {
                meta.insert("finalizers".into(), finalizers.into());
            }
        }
        let marked = meta.get("deletionTimestamp").is_some_and(|time| !time.is_null());
        if marked {
            // A shorter grace period than the one running takes its place.
            let running = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
            if grace < running && options.grace.is_some() || (grace == 0 && running > 0) {
                meta.insert("deletionTimestamp".into(), self.server.time_in(grace).into());
                meta.insert("deletionGracePeriodSeconds".into(), grace.into());
            }
            return;
        }
        if !stays && !graceful {
            return;
        }
        meta.insert("deletionTimestamp".into(), self.server.time_in(grace).into());
        if own_deletion {
            if self.resource.gk() == crate::resource::CRD {
                crate::controllers::crds::terminating(object, &self.server.now());
            }
            if namespace_finalizers {
                object["status"]["phase"] = "Terminating".into();
            }
            return;
        }
        meta.insert("deletionGracePeriodSeconds".into(), grace.into());
        if let Some(generation) = meta.get("generation").and_then(Value::as_i64).filter(|generation| *generation > 0) {
            meta.insert("generation".into(), (generation + 1).into());
        }
    }

    /// `DELETE` of all objects that a request selects; gives those it deleted.
    pub async fn delete_collection(&self, body: Bytes, list: &ListOptions) -> Result<Page, Status> {
        let options = &self.delete_options(&body)?;
        let page = self.page(list).await?;
        for entry in &page.entries {
            let (namespace, name) = match entry.key.split_once('/') {
                Some((namespace, name)) if self.resource.namespaced => (namespace, name),
                _ => ("", &*entry.key),
            };
            let deleted =
                self.run(move |view| async move { self.plan_delete(&view, namespace, name, options).await }).await;
            match deleted {
                // Somebody else was faster: it is gone all the same.
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
                Ok(_) => {}
            }
        }
        Ok(page)
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Kinds whose deletion answers with the object instead of a status.
fn returns_deleted_object(gk: (&str, &str)) -> bool {
    matches!(
        gk,
        (
            "",
            "Namespace"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "Pod"
                | "PodTemplate"
                | "ResourceQuota"
                | "Service"
                | "ServiceAccount"
        ) | ("storage.k8s.io", "StorageClass" | "VolumeAttachment" | "CSINode" | "CSIDriver" | "VolumeAttributesClass")
            | ("resource.k8s.io", _)
    )
}
