//! The write path: how an object becomes a new version of itself, whatever the verb.

use std::collections::HashSet;
use std::sync::Arc;

use machinery::field::{self, Path};
use machinery::schema::Said;
use machinery::status::Status;
use serde_json::{Map, Value};
use store::{CommitError, Entry, Expect, Op, Transaction};

use crate::admission::Operation;
use crate::auth::authz::{Decision, refusal};
use crate::context::{Context, WriteOptions};
use crate::managed;
use crate::plan::{Answer, Current, Plan, View, commit_status};
use crate::request::RequestInfo;
use crate::resource::Decoded;

/// How often a plan is made anew when others write the same object all the time.
const ATTEMPTS: usize = 64;

/// What a finished write gives.
pub enum Done {
    /// An object, as stored.
    Entry(u16, Arc<Entry>),
    /// An object that is not stored as such.
    Object(u16, Value),
    /// A status.
    Status(Status),
}

impl Context {
    /// Makes a plan, commits it, and makes it anew if somebody else was faster.
    pub async fn run<'a, F, Fut>(&'a self, mut make: F) -> Result<Done, Status>
    where
        F: FnMut(View<'a>) -> Fut,
        Fut: Future<Output = Result<Plan, Status>>,
    {
        let mut attempts = 0;
        let mut turn = None;
        loop {
            let plan = make(View::new(&self.server.store)).await?;
            if plan.ops.is_empty() {
                return Ok(match plan.answer {
                    Answer::Object { code, object } => Done::Object(code, object),
                    Answer::Unchanged(entry) => Done::Entry(200, entry),
                    Answer::Status(status) => Done::Status(status),
                    Answer::Stored { .. } => Done::Status(Status::internal("a plan stores nothing and says it does")),
                });
            }
            let main = plan.main;
            match self.server.store.commit(Transaction { ops: plan.ops }).await {
                Ok(committed) => {
                    return Ok(match plan.answer {
                        Answer::Stored { code } => match committed.entries.get(main).cloned().flatten() {
                            Some(entry) => Done::Entry(code, entry),
                            None => Done::Status(Status::internal("a commit gave no entry")),
                        },
                        Answer::Object { code, object } => Done::Object(code, object),
                        Answer::Unchanged(entry) => Done::Entry(200, entry),
                        Answer::Status(status) => Done::Status(status),
                    });
                }
                Err(CommitError::Precondition { op, .. }) => {
                    attempts += 1;
                    if (op == main && !plan.retry) || attempts >= ATTEMPTS {
                        return Err(self.conflict(MODIFIED));
                    }
                    if op != main && turn.is_none() {
                        turn = self.server.turns.take(&self.info.namespace).await;
                    }
                }
                Err(error) => return Err(commit_status(error)),
            }
        }
    }

    /// Plans the creation of an object that has been decoded. `tracked` says that its managedFields are as they should be.
    pub async fn plan_create(
        &self,
        view: &View<'_>,
        sent: Decoded,
        tracked: bool,
        options: &WriteOptions,
    ) -> Result<Plan, Status> {
        let resource = &self.resource;
        let Decoded { mut object, said, .. } = sent;
        if self.info.verb != "create" {
            // `PUT` and apply may make new objects for those who may make them.
            let info = RequestInfo { verb: "create".into(), ..self.info.clone() };
            if let Decision::NoOpinion(reason) = self.server.authorizer.authorize(&self.user, &info) {
                return Err(refusal(&self.user, &info, &reason));
            }
        }
        let namespace = self.place(&mut object)?;
        self.once_each_owner(&mut object);
        let meta = meta_mut(&mut object);
        let given = text(meta, "resourceVersion").unwrap_or_default();
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            meta.remove(field);
        }
        if text(meta, "name").unwrap_or_default().is_empty() {
            if let Some(base) = text(meta, "generateName").filter(|base| !base.is_empty()) {
                let name = self.free_name(view, &namespace, &base);
                meta.insert("name".into(), name.into());
            } else if resource.gk() == ("", "LimitRange") {
                meta.insert("name".into(), self.server.new_uid().into());
            }
        }
        let name = text(meta, "name").unwrap_or_default();
        if resource.is_terminating() {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource.group, &resource.plural, &name, why));
        }
        meta.insert("uid".into(), self.server.new_uid().into());
        let now = self.server.now();
        meta.insert("creationTimestamp".into(), now.clone().into());
        resource.date(&mut object, &now);
        if tracked {
            resource.fill(&mut object);
        } else {
            resource.default(&mut object);
            managed::update(self, None, &mut object, &said, &options.manager, &now).await;
        }

        let nothing = Value::Null;
        let renamed;
        let mut attributes = self.attributes(view, Operation::Create, &name, object, &nothing, options.dry_run);
        let mut checks = self.namespace_check(view, &namespace, &name)?;
        // What the server gives comes after mutation, as in Kubernetes: what has no uid is being made.
        let meta = meta_mut(&mut attributes.object);
        let system = ["uid", "creationTimestamp"].map(|field| (field, meta.remove(field)));
        self.mutate(&mut attributes).await?;
        let changed = attributes.reinvocation.wanted;
        if changed {
            resource.date(&mut attributes.object, &now);
            // What the server gives is not for others to change; a name is.
            self.place(&mut attributes.object)?;
        }
        let meta = meta_mut(&mut attributes.object);
        for (field, value) in system {
            meta.extend(value.map(|value| (field.to_owned(), value)));
        }
        if changed {
            for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                meta.remove(field);
            }
            renamed = text(meta, "name").unwrap_or_default();
            attributes.name = &renamed;
        }
        attributes.shown = Default::default();
        let name = attributes.name.to_owned();
        for warning in kinds::warnings::unprepared(&resource.group, &resource.kind, &attributes.object) {
            self.warn(warning);
        }
        resource.prepare_create(&mut attributes.object);
        crate::plugins::complete(self, view, &mut attributes.object, &nothing, options.dry_run)?;
        let mut errors = resource.validate_create(&attributes.object);
        errors.extend(resource.validate_empty("", &attributes.object, &said));
        if errors.is_empty() {
            errors.extend(crate::plugins::unreadable(self, view, &attributes.object, &nothing));
        }
        if !errors.is_empty() {
            return Err(self.invalid(&name, &errors));
        }
        self.judge(&mut attributes).await?;
        let mut object = attributes.object;
        if tracked || resource.is_custom() || resource.gk() == ("batch", "Job") {
            // What may not be null and was let pass is gone when it is read again; what was taken away and has a default,
            // such as a status, is there again. Jobs get their labels by being read.
            resource.default(&mut object);
        }
        if resource.is_custom() {
            crate::custom::finalizer_warnings(&object, &Value::Null).for_each(|warning| self.warn(warning));
            crate::custom::whole_numbers(&mut object);
        } else {
            for warning in kinds::warnings::create(&resource.group, &resource.kind, &object) {
                self.warn(warning);
            }
        }
        if !options.dry_run && given.parse::<u64>().is_ok_and(|version| version > 0) {
            // Kubernetes' storage says so, too late for a better code.
            return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let key = resource.key(&namespace, &name);
        if let Some(existing) = view.stored(resource, &key)? {
            let mut status = Status::already_exists(&resource.group, &resource.plural, &name);
            if existing.object["metadata"].get("deletionTimestamp").is_some() {
                status.message.insert_str(0, "object is being deleted: ");
            }
            return Err(status);
        }
        if options.dry_run {
            self.server.side_writes(self, view, &Value::Null, &object, &mut Vec::new())?;
            // What is not stored keeps what was said.
            match given.as_str() {
                "" => meta_mut(&mut object).remove("resourceVersion"),
                given => meta_mut(&mut object).insert("resourceVersion".into(), given.into()),
            };
            let object = resource.as_read_back(object).await?;
            return Ok(Plan::nothing(Answer::Object { code: 201, object }));
        }
        let mut ops = vec![Op::put(resource.table.clone(), key, resource.to_store(&object).await?, Expect::Absent)];
        ops.append(&mut checks);
        self.server.side_writes(self, view, &Value::Null, &object, &mut ops)?;
        Ok(Plan { ops, main: 0, object: Some(object), answer: Answer::Stored { code: 201 }, retry: true })
    }

    /// Plans a change of the object in question. `change` makes the new object from the old one.
    pub async fn plan_update(
        &self,
        view: &View<'_>,
        options: &WriteOptions,
        change: &(dyn Fn(&Value) -> Result<Change, Status> + Send + Sync),
    ) -> Result<Plan, Status> {
        let current = self.current(view).await?;
        let change = change(&current.object)?;
        self.plan_replace(view, options, &current, change).await
    }

    /// The object in question.
    pub async fn current(&self, view: &View<'_>) -> Result<Current, Status> {
        let key = self.resource.key(&self.info.namespace, &self.info.name);
        view.get(&self.resource, &key).await?.ok_or_else(|| self.not_found())
    }

    /// Plans to put a new object in the place of the one in question.
    pub async fn plan_replace(
        &self,
        view: &View<'_>,
        options: &WriteOptions,
        current: &Current,
        change: Change,
    ) -> Result<Plan, Status> {
        let resource = &self.resource;
        let key = resource.key(&self.info.namespace, &self.info.name);
        let old = &current.object;
        let Change { object: mut new, conditional, tracked, unsettled, said } = change;
        self.place(&mut new)?;
        self.once_each_owner(&mut new);
        let name = &self.info.name;
        let meta = meta_mut(&mut new);
        if text(meta, "name").unwrap_or_default() != *name {
            if text(meta, "name").unwrap_or_default().is_empty() {
                return Err(Status::bad_request("name must be provided"));
            }
            let given = text(meta, "name").unwrap_or_default();
            return Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        let old_meta = &old["metadata"];
        if let Some(uid) = text(meta, "uid").filter(|uid| !uid.is_empty()) {
            let current = old_meta["uid"].as_str().unwrap_or_default();
            if uid != current && self.info.verb == "patch" {
                let path = Path::root("metadata").child("uid");
                return Err(self.invalid(name, &[field::Error::invalid(&path, uid, "field is immutable")]));
            }
            if uid != current {
                return Err(self.conflict(format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {current}"
                )));
            }
        }
        let version = text(meta, "resourceVersion").unwrap_or_default();
        let conditional = conditional && !version.is_empty() && version != "0";
        if conditional {
            if version.parse::<u64>().is_err() {
                let error = field::Error::invalid(
                    &Path::root("metadata").child("resourceVersion"),
                    version.as_str(),
                    "must be the whole number that the server gave, as a string",
                );
                return Err(self.invalid(name, &[error]));
            }
            if Some(version.as_str()) != old_meta["resourceVersion"].as_str() {
                return Err(self.conflict(MODIFIED));
            }
        } else if version.is_empty() && !self.allows_unconditional() {
            let error = field::Error::invalid(
                &Path::root("metadata").child("resourceVersion"),
                Value::from(0),
                "must be specified for an update",
            );
            return Err(Status::invalid(&resource.group, &resource.plural, name, &[error]));
        }
        for field in ["uid", "creationTimestamp", "generation", "selfLink", "resourceVersion"] {
            match old_meta.get(field) {
                Some(value) => meta.insert(field.into(), value.clone()),
                None => meta.remove(field),
            };
        }
        // That something goes is not taken back, and whoever says otherwise is not heard; but to say when, or to begin it
        // here, is a mistake that validation finds.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            let said = meta.remove(field).filter(|said| !said.is_null());
            let before = old_meta.get(field).cloned();
            let kept = if field == "deletionTimestamp" { before.or(said) } else { said.or(before) };
            meta.extend(kept.map(|value| (field.to_owned(), value)));
        }
        let now = self.server.now();
        resource.date(&mut new, &now);
        if tracked {
            resource.fill(&mut new);
        } else {
            resource.default(&mut new);
            managed::update(self, Some(old), &mut new, &said, &options.manager, &now).await;
        }
        let mut attributes = self.attributes(view, Operation::Update, name, new, old, options.dry_run);
        // As in Kubernetes, what admission and the kind's own rules change belongs to nobody, and who tried to change what
        // is put back owns it nevertheless, unless the kind says otherwise.
        if !options.admitted {
            self.mutate(&mut attributes).await?;
            resource.date(&mut attributes.object, &now);
        }
        resource.prepare_update(&self.info.subresource, &mut attributes.object, old, &now);
        resource.count_empty(&self.info.subresource, &said, &mut attributes.object, old);
        let unsettled = resource.count_unsettled(&self.info.subresource, &unsettled, &mut attributes.object, old);
        crate::plugins::complete(self, view, &mut attributes.object, old, options.dry_run)?;
        let mut warnings = Vec::new();
        let mut errors = crate::plugins::missing_rights(self, view, &attributes.object, old);
        errors.extend(resource.validate_update(&self.info.subresource, &attributes.object, old, &mut warnings));
        errors.extend(resource.validate_empty(&self.info.subresource, &attributes.object, &said));
        if errors.is_empty() {
            errors.extend(crate::plugins::unreadable(self, view, &attributes.object, old));
        }
        warnings.into_iter().for_each(|warning| self.warn(warning));
        if !errors.is_empty() {
            return Err(self.invalid(name, &errors));
        }
        if !options.admitted {
            self.judge(&mut attributes).await?;
        }
        let mut new = attributes.object;
        if tracked || resource.is_custom() {
            resource.default_part(&self.info.subresource, &mut new);
        }
        if resource.is_custom() {
            crate::custom::finalizer_warnings(&new, old).for_each(|warning| self.warn(warning));
            crate::custom::whole_numbers(&mut new);
        } else {
            let (group, kind) = resource.gk();
            let warnings = match self.info.subresource.as_str() {
                "status" => kinds::warnings::status_update(group, kind, &new),
                _ => kinds::warnings::update(group, kind, &new, old),
            };
            warnings.into_iter().for_each(|warning| self.warn(warning));
        }
        let unchanged = !unsettled && machinery::apply::keep_times_if_unchanged(old, &mut new);
        if options.dry_run {
            let object = resource.as_read_back(new).await?;
            return Ok(Plan::nothing(Answer::Object { code: 200, object }));
        }
        match &current.entry {
            None if unchanged => return Ok(Plan::nothing(Answer::Object { code: 200, object: new })),
            // What is applied and changes nothing is not even converted.
            Some(entry)
                if unchanged && (tracked && !resource.is_custom() || resource.is_stored(entry, &new).await?) =>
            {
                return Ok(Plan::nothing(Answer::Unchanged(entry.clone())));
            }
            _ => {}
        }
        let mut ops = Vec::with_capacity(1);
        let table = resource.table.clone();
        if is_finished(resource.gk(), &new) {
            // Watchers see it go as it was stored; who let it go sees what came of it.
            let final_value = Some(resource.to_store(old).await?);
            ops.push(Op::Delete { table, key: key.into(), expect: current.expect, final_value });
            self.server.side_writes(self, view, old, &Value::Null, &mut ops)?;
            let answer = Answer::Object { code: 200, object: new };
            return Ok(Plan { ops, main: 0, object: None, answer, retry: !conditional });
        }
        let value = view.stored_form(resource, &new, &self.info.subresource, current.entry.as_deref()).await?;
        ops.push(Op::put(table, key, value, current.expect));
        self.server.side_writes(self, view, old, &new, &mut ops)?;
        Ok(Plan { ops, main: 0, object: Some(new), answer: Answer::Stored { code: 200 }, retry: !conditional })
    }

    /// A random name that nobody has yet. Should somebody take it before the commit, the plan is made anew.
    fn free_name(&self, view: &View<'_>, namespace: &str, base: &str) -> String {
        let mut name = String::new();
        for _ in 0..8 {
            name = machinery::names::generate_name(base, || u64::from(self.server.random_u32()));
            if view.entry(&self.resource.table, &self.resource.key(namespace, &name)).is_none() {
                break;
            }
        }
        name
    }

    fn allows_unconditional(&self) -> bool {
        !self.resource.is_custom()
            && kinds::strategy::allows_unconditional_update(&self.resource.group, &self.resource.kind)
    }

    /// An owner that stands twice in the same words is taken once, and the client told.
    fn once_each_owner(&self, object: &mut Value) {
        let Some(Value::Array(owners)) = meta_mut(object).get_mut("ownerReferences") else { return };
        if owners.len() < 2 {
            return;
        }
        let (mut seen, mut twice): (HashSet<String>, Vec<String>) = (HashSet::new(), Vec::new());
        owners.retain(|owner| {
            let new = seen.insert(owner.to_string());
            if !new {
                twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
            }
            new
        });
        if !twice.is_empty() {
            // Kubernetes looks at what a patch makes of them only then.
            let when = if self.info.verb == "patch" { " after mutating admission happens" } else { "" };
            self.warn(format!(
                ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
                twice.join(", ")
            ));
        }
    }

    /// Puts an object into the request's namespace, or refuses it if it says another.
    fn place(&self, object: &mut Value) -> Result<String, Status> {
        if !self.resource.namespaced {
            meta_mut(object).remove("namespace");
            return Ok(String::new());
        }
        self.check_namespace(object)?;
        meta_mut(object).insert("namespace".into(), self.info.namespace.as_str().into());
        Ok(self.info.namespace.clone())
    }

    /// Refuses an object that says another namespace than the request.
    pub fn check_namespace(&self, object: &Value) -> Result<(), Status> {
        let given = object["metadata"]["namespace"].as_str().unwrap_or_default();
        if !given.is_empty() && given != self.info.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }

    /// A namespaced object needs its namespace, and one that stays: the commit checks that it is as it was seen here.
    pub fn namespace_check(&self, view: &View<'_>, namespace: &str, name: &str) -> Result<Vec<Op>, Status> {
        if !self.resource.namespaced || self.server.namespaces_optional(&self.resource) {
            return Ok(Vec::new());
        }
        if view.is_pending(crate::catalog::NAMESPACES, namespace) {
            return Ok(Vec::new());
        }
        let Some(entry) = view.entry(crate::catalog::NAMESPACES, namespace) else {
            return Err(Status::not_found("", "namespaces", namespace));
        };
        if self.server.is_terminating(&entry) {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let status = Status::forbidden(&self.resource.group, &self.resource.plural, name, why);
            return Err(status.cause(
                "NamespaceTerminating",
                "metadata.namespace",
                format!("namespace {namespace} is being terminated"),
            ));
        }
        Ok(vec![Op::check(crate::catalog::NAMESPACES, namespace, Expect::Revision(entry.revision))])
    }
}

/// What an update wants.
pub struct Change {
    /// The new object.
    pub object: Value,
    /// Whether its resourceVersion, if any, is a precondition.
    pub conditional: bool,
    /// Whether its managedFields are already as they should be.
    pub tracked: bool,
    /// Top-level fields with something in them that reading drops: they count as changed, as in Kubernetes.
    pub unsettled: Vec<String>,
    /// What was sent in other words than the object has it in.
    pub said: Vec<Said>,
}

/// Why an update that came too late is refused.
pub const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Whether an object that is being deleted has nothing left to wait for.
pub fn is_finished((group, kind): (&str, &str), object: &Value) -> bool {
    let meta = &object["metadata"];
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    meta.get("deletionTimestamp").is_some_and(|time| !time.is_null())
        && meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && empty(&meta["finalizers"])
        && ((group, kind) != ("", "Namespace") || empty(&object["spec"]["finalizers"]))
}

/// The metadata of an object, made if missing.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let meta =
        object.as_object_mut().map(|fields| fields.entry("metadata").or_insert_with(|| Value::Object(Map::new())));
    match meta {
        Some(meta) => {
            if !meta.is_object() {
                *meta = Value::Object(Map::new());
            }
            match meta {
                Value::Object(map) => map,
                _ => unreachable!("made an object above"),
            }
        }
        None => unreachable!("made an object above"),
    }
}

fn text(meta: &Map<String, Value>, field: &str) -> Option<String> {
    meta.get(field).and_then(Value::as_str).map(str::to_owned)
}
