//! Transactions: several writes, all or nothing, each authorized, admitted and validated as if it were sent alone.
//!
//! A `Transaction` is created and never stored. Its operations are planned in order, each seeing what the ones before it would
//! do; the plans are committed as one. Several operations on one object make one version of it.

mod sent;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{CommitError, Entry, Op, Transaction};

use crate::auth::authz::{Decision, refusal};
use crate::body::Body;
use crate::context::{Context, WriteOptions};
use crate::custom::Definition;
use crate::dispatch::answer;
use crate::media::{self, Accept, Encoding, Form};
use crate::plan::{Plan, View, commit_status};
use crate::render::encode;
use crate::request::Query;
use crate::resource::Resource;
use sent::{Preconditions, Verb, Write, read};

/// The API group.
pub const GROUP: &str = "transactions.conductor.io";
/// How many operations one transaction may have.
const MOST: usize = 256;
const ATTEMPTS: usize = 64;

/// The resource that discovery shows.
pub fn resource() -> Arc<Resource> {
    static DEFINITION: LazyLock<Arc<Definition>> = LazyLock::new(|| {
        let any = json!({"x-kubernetes-preserve-unknown-fields": true});
        let text = json!({"type": "string"});
        let operation = json!({
            "type": "object",
            "required": ["verb", "version", "resource"],
            "properties": {
                "verb": {"type": "string", "enum": ["create", "update", "patch", "delete", "check"]},
                "group": text, "version": text, "resource": text, "subresource": text, "namespace": text, "name": text,
                "object": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "patchType": {"type": "string", "enum": ["Merge", "JSON", "Strategic", "Apply"]},
                "patch": any,
                "fieldManager": text,
                "force": {"type": "boolean"},
                "preconditions": {"type": "object", "properties": {
                    "uid": text, "resourceVersion": text, "absent": {"type": "boolean"},
                }},
                "propagationPolicy": text,
            },
        });
        let schema = json!({
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {"type": "object", "required": ["operations"], "properties": {
                    "operations": {"type": "array", "minItems": 1, "maxItems": MOST, "items": operation},
                }},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        });
        let definition = json!({
            "metadata": {"name": format!("transactions.{GROUP}")},
            "spec": {
                "group": GROUP, "scope": "Cluster",
                "names": {"plural": "transactions", "singular": "transaction", "kind": "Transaction", "listKind": "TransactionList"},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        });
        Arc::new(Definition::read(&definition, definition.to_string().into(), 0))
    });
    let mut resource = DEFINITION.resource(0);
    resource.verbs = vec!["create".into()];
    Arc::new(resource)
}

/// One operation, ready to be planned.
struct Operation {
    cx: Context,
    verb: Verb,
    name: String,
    body: Bytes,
    check: Option<Preconditions>,
}

/// Runs a transaction.
pub async fn run(cx: &Context, body: &Bytes) -> Result<Response<Body>, Status> {
    let options = cx.write_options("CreateOptions")?;
    let is_json = media::body_encoding(&cx.headers)? == media::Encoding::Json;
    let checked;
    let (body, (spec, writes)) = match is_json.then(|| read(&cx.resource, body)).flatten() {
        Some(found) => (body, found),
        None => {
            checked = decoded(cx, body, &options)?;
            let found = read(&cx.resource, &checked);
            (&checked, found.ok_or_else(|| Status::bad_request("the body must be a Transaction"))?)
        }
    };
    if cx.server.audit.is_some() {
        // all of them before anything is done: what is refused was tried
        let audited = |write: &Write<'_>| crate::audit::Operation::new(write.asked(), write.sent(body).0);
        *cx.operations.lock() = writes.iter().map(audited).collect();
    }
    let mut operations = Vec::with_capacity(writes.len());
    for (index, write) in writes.into_iter().enumerate() {
        let (verb, resource, name) = (write.verb, write.resource.clone(), write.name.clone());
        let prepared = prepare(cx, body, index, write);
        operations.push(prepared.map_err(|status| named(status, index, verb, &resource, &name))?);
    }
    let results = commit(cx, &operations, options.dry_run).await;
    for (audited, operation) in cx.operations.lock().iter_mut().zip(&operations) {
        audited.annotations.append(&mut operation.cx.annotations.lock());
    }
    let results = results?;
    for operation in &operations {
        operation.cx.warnings.lock().drain(..).for_each(|warning| cx.warn(warning));
    }
    let accept = Accept {
        form: Form::Object,
        encoding: match cx.accept.encoding {
            Encoding::Yaml => Encoding::Yaml,
            _ => Encoding::Json,
        },
        ..cx.accept
    };
    let head = format!(
        r#"{{"apiVersion":"{}","kind":"{}","metadata":{{}},"spec":"#,
        cx.resource.api_version(),
        cx.resource.kind
    );
    let results = serde_json::to_vec(&results).unwrap_or_default();
    let mut text = [head.as_bytes(), spec.as_bytes(), br#","status":"#, &results, b"}"].concat();
    if accept.encoding == Encoding::Yaml || accept.pretty {
        text = encode(&serde_json::from_slice(&text).unwrap_or_default(), accept);
    }
    Ok(answer(201, Body::whole(text), accept.encoding.content_type()))
}

/// A transaction in another form, or with something wrong about it, as it would be sent plainly.
fn decoded(cx: &Context, body: &Bytes, options: &WriteOptions) -> Result<Bytes, Status> {
    let mut transaction = cx.decode(body, options)?;
    let errors = validate(cx, &mut transaction);
    if !errors.is_empty() {
        return Err(cx.invalid("", &errors));
    }
    let spec = &transaction["spec"];
    Ok(json!({"apiVersion": transaction["apiVersion"], "kind": transaction["kind"], "spec": spec}).to_string().into())
}

/// Transactions have no name; the rules of metadata want one.
fn validate(cx: &Context, transaction: &mut Value) -> Vec<machinery::field::Error> {
    let own = crate::write::meta_mut(transaction).insert("name".into(), "transaction".into());
    let errors = cx.resource.validate_create(transaction);
    let meta = crate::write::meta_mut(transaction);
    match own {
        Some(own) => drop(meta.insert("name".into(), own)),
        None => drop(meta.remove("name")),
    }
    errors
}

/// Says which operation failed.
fn named(mut status: Status, index: usize, verb: Verb, resource: &str, name: &str) -> Status {
    status.message = format!("operation {index} ({} {resource} {name:?}): {}", verb.name(), status.message);
    status.cause(
        "FailedOperation",
        &format!("spec.operations[{index}]"),
        format!("operation {index} failed, nothing was written"),
    )
}

/// Turns an operation into the request it stands for, and checks that its sender may send it.
fn prepare(cx: &Context, whole: &Bytes, index: usize, write: Write<'_>) -> Result<Operation, Status> {
    let verb = write.verb;
    let info = write.asked();
    let catalog = cx.server.catalog();
    let resource =
        catalog.find(&info.group, &info.version, &info.resource).cloned().ok_or_else(Status::no_such_path)?;
    if verb != Verb::Create && info.name.is_empty() {
        return Err(Status::bad_request("name is missing"));
    }
    if resource.group.is_empty() && &*resource.plural == "namespaces" {
        // A namespace is in itself, as in its path: rights in another are none on it.
        if info.namespace != info.name {
            return Err(Status::bad_request("namespace must be empty: the resource is cluster-scoped"));
        }
    } else if resource.namespaced == info.namespace.is_empty() {
        return Err(Status::bad_request(if resource.namespaced {
            "namespace is missing: the resource is namespaced"
        } else {
            "namespace must be empty: the resource is cluster-scoped"
        }));
    }
    let offered = match info.subresource.as_str() {
        "" => resource.has_verb(&info.verb) && resource.has_verb("get"),
        sub => {
            matches!(sub, "status" | "finalize" | "approval")
                && resource.subresource(sub).is_some()
                && matches!(verb, Verb::Update | Verb::Patch)
        }
    };
    if !offered {
        return Err(Status::bad_request(format!("{} is not possible in a transaction", verb.name())));
    }
    let decision = cx.server.authorizer.authorize(&cx.user, &info);
    if let Some(audited) = cx.operations.lock().get_mut(index) {
        audited.decided(&decision);
    }
    if let Decision::NoOpinion(reason) = decision {
        return Err(refusal(&cx.user, &info, &reason));
    }
    let mut query: Vec<(&str, &str)> = Vec::new();
    for name in ["dryRun", "fieldValidation"] {
        query.extend(cx.query.all(name).map(|value| (name, value)));
    }
    if !write.field_manager.is_empty() {
        query.push(("fieldManager", &write.field_manager));
    } else if let Some(manager) = cx.query.get("fieldManager") {
        query.push(("fieldManager", manager));
    }
    if write.force {
        query.push(("force", "true"));
    }
    let raw = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    let mut headers = HeaderMap::new();
    if let Some(agent) = cx.headers.get(header::USER_AGENT) {
        headers.insert(header::USER_AGENT, agent.clone());
    }
    let (body, kind) = write.sent(whole);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let cx = Context {
        server: cx.server.clone(),
        deadline: cx.deadline,
        info,
        query: Query::parse(&raw),
        headers,
        user: cx.user.clone(),
        resource,
        accept: Accept::JSON,
        warnings: Mutex::default(),
        annotations: Mutex::default(),
        operations: Mutex::default(),
    };
    Ok(Operation { cx, verb, name: write.name.into_owned(), body, check: write.preconditions })
}

/// What must hold of the object before the operation.
fn precondition(operation: &Operation, view: &View<'_>) -> Result<Vec<Op>, Status> {
    let cx = &operation.cx;
    if cx.info.name.is_empty() || (operation.check.is_none() && operation.verb != Verb::Check) {
        return Ok(Vec::new());
    }
    let nothing = Preconditions::default();
    let check = operation.check.as_ref().unwrap_or(&nothing);
    let key = cx.resource.key(&cx.info.namespace, &cx.info.name);
    // Only metadata is looked at: it is the same in all versions.
    let current = view.identity(&cx.resource, &key)?;
    if check.absent {
        if current.is_some() {
            return Err(Status::already_exists(&cx.resource.group, &cx.resource.plural, &cx.info.name));
        }
        return Ok(vec![Op::check(cx.resource.table.clone(), key, store::Expect::Absent)]);
    }
    let Some(current) = current else { return Err(cx.not_found()) };
    for (field, wanted, actual) in
        [("uid", &check.uid, &current.uid), ("resourceVersion", &check.resource_version, &current.version)]
    {
        if !wanted.is_empty() && actual != wanted {
            return Err(cx.conflict(format!(
                "Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {actual}"
            )));
        }
    }
    // What was looked at must still be so when the transaction is committed.
    Ok(vec![Op::check(cx.resource.table.clone(), key, current.expect)])
}

async fn plan(operation: &Operation, view: &View<'_>) -> Result<Plan, Status> {
    let cx = &operation.cx;
    match operation.verb {
        Verb::Create => cx.plan_of_create(view, &operation.body).await,
        Verb::Update => cx.plan_of_update(view, &operation.body).await,
        Verb::Patch => cx.plan_of_patch(view, &operation.body).await,
        Verb::Delete => cx.plan_of_delete(view, &operation.body).await,
        Verb::Check => Ok(Plan::nothing(crate::plan::Answer::Status(Status::new(200, "", "")))),
    }
}

async fn commit(cx: &Context, operations: &[Operation], dry_run: bool) -> Result<Value, Status> {
    let named = |status, index: usize| {
        let operation = &operations[index];
        named(status, index, operation.verb, &operation.cx.info.resource, &operation.name)
    };
    for _ in 0..ATTEMPTS {
        let mut view = View::of_several(&cx.server.store);
        // Which operation each step comes from, and whether being overtaken there is final.
        let mut owners: Vec<(usize, bool)> = Vec::new();
        let mut ops: Vec<Op> = Vec::new();
        let mut keys = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            let name = |status| named(status, index);
            for check in precondition(operation, &view).map_err(name)? {
                if view.absorb(&operation.cx.resource, check, None, &mut ops) {
                    owners.push((index, false));
                }
            }
            let mut plan = plan(operation, &view).await.map_err(name)?;
            let main = plan.main;
            let mut key = None;
            let identity =
                plan.object.as_ref().map(|object| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
            for (at, op) in plan.ops.into_iter().enumerate() {
                if at == main {
                    key = crate::plan::key_of(&op);
                }
                let object = plan.object.take_if(|_| at == main && operation.cx.resource.stores_as_shown());
                if view.absorb(&operation.cx.resource, op, object, &mut ops) {
                    owners.push((index, at == main && !plan.retry));
                }
            }
            keys.push((key, identity.unwrap_or_default()));
        }
        if dry_run || ops.is_empty() {
            return Ok(json!({"results": operations.iter().map(|_| json!({})).collect::<Vec<_>>()}));
        }
        ops.iter_mut().for_each(|op| view.write_down(op));
        let places: Vec<_> = ops.iter().map(crate::plan::key_of).collect();
        match cx.server.store.commit(Transaction { ops }).await {
            Ok(committed) => {
                // The same key may be in several tables.
                let written = |key: &Option<_>| {
                    let mut last = places.iter().zip(&committed.entries).rev();
                    last.find_map(|(place, entry)| entry.as_ref().filter(|_| place == key))
                };
                let mut results: Vec<Value> = Vec::with_capacity(operations.len());
                for (index, (operation, (key, uid))) in operations.iter().zip(&keys).enumerate() {
                    let entry = written(key);
                    results.push(result(operation, entry, uid));
                    if let Some(audited) = cx.operations.lock().get_mut(index) {
                        audited.written = entry.map(|entry| (operation.cx.resource.clone(), entry.clone()));
                    }
                }
                return Ok(json!({"revision": committed.revision.to_string(), "results": results}));
            }
            Err(CommitError::Precondition { op, .. }) => {
                if let Some((index, true)) = owners.get(op).copied() {
                    let status = operations[index].cx.conflict(crate::write::MODIFIED);
                    return Err(named(status, index));
                }
            }
            Err(error) => return Err(commit_status(error)),
        }
    }
    Err(Status::conflict(GROUP, "transactions", "", "other writers were always faster; try again"))
}

/// Name, uid and version of what an operation wrote.
fn result(operation: &Operation, entry: Option<&Arc<Entry>>, uid: &str) -> Value {
    let Some(entry) = entry else { return json!({}) };
    let mut own = json!({"uid": uid, "resourceVersion": entry.revision.to_string()});
    match entry.key.split_once('/') {
        Some((namespace, name)) if operation.cx.resource.namespaced => {
            own["namespace"] = namespace.into();
            own["name"] = name.into();
        }
        _ => own["name"] = entry.key.as_ref().into(),
    }
    if uid.is_empty() {
        // of what is gone now
        own["uid"] = crate::plan::parse_stored(entry).unwrap_or_default()["metadata"]["uid"].take();
    }
    own
}
