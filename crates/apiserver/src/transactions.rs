//! Transactions: several writes, all or nothing, each authorized, admitted and validated as if it were sent alone.
//!
//! A `Transaction` is created and never stored. Its operations are planned in order, each seeing what the ones before it would
//! do; the plans are committed as one. Several operations on one object make one version of it.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{CommitError, Op, Transaction};

use crate::auth::authz::{Decision, refusal};
use crate::body::Body;
use crate::context::Context;
use crate::custom::Definition;
use crate::dispatch::answer;
use crate::media::{Accept, Encoding, Form};
use crate::plan::{Plan, View, commit_status};
use crate::render::encode;
use crate::request::{Query, RequestInfo};
use crate::resource::Resource;

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
    body: Bytes,
    check: Value,
}

/// Runs a transaction.
pub async fn run(cx: &Context, body: &Bytes) -> Result<Response<Body>, Status> {
    let options = cx.write_options("CreateOptions")?;
    let mut transaction = cx.decode(body, &options)?;
    let errors = validate(cx, &mut transaction);
    if !errors.is_empty() {
        return Err(cx.invalid("", &errors));
    }
    let list = match transaction["spec"]["operations"].take() {
        Value::Array(list) => list,
        _ => Vec::new(),
    };
    let mut operations = Vec::with_capacity(list.len());
    for (index, operation) in list.iter().enumerate() {
        operations.push(prepare(cx, operation).map_err(|status| named(status, index, operation))?);
    }
    let results = commit(cx, &list, &operations, options.dry_run).await?;
    for operation in &operations {
        operation.cx.warnings.lock().drain(..).for_each(|warning| cx.warn(warning));
    }
    transaction["spec"]["operations"] = list.into();
    transaction["status"] = results;
    let accept = Accept {
        form: Form::Object,
        encoding: match cx.accept.encoding {
            Encoding::Yaml => Encoding::Yaml,
            _ => Encoding::Json,
        },
        ..cx.accept
    };
    Ok(answer(201, Body::whole(encode(&transaction, accept)), accept.encoding.content_type()))
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
fn named(mut status: Status, index: usize, operation: &Value) -> Status {
    let text = |name: &str| operation[name].as_str().unwrap_or_default();
    status.message =
        format!("operation {index} ({} {} {:?}): {}", text("verb"), text("resource"), text("name"), status.message);
    status.cause(
        "FailedOperation",
        &format!("spec.operations[{index}]"),
        format!("operation {index} failed, nothing was written"),
    )
}

/// Turns an operation into the request it stands for, and checks that its sender may send it.
fn prepare(cx: &Context, operation: &Value) -> Result<Operation, Status> {
    let text = |name: &str| operation[name].as_str().unwrap_or_default().to_owned();
    let verb = text("verb");
    let mut info = RequestInfo {
        is_resource: true,
        path: String::new(),
        verb: if verb == "check" { "get".into() } else { verb.clone().into() },
        group: text("group"),
        version: text("version"),
        namespace: text("namespace"),
        resource: text("resource"),
        subresource: text("subresource"),
        name: text("name"),
    };
    let catalog = cx.server.catalog();
    let resource =
        catalog.find(&info.group, &info.version, &info.resource).cloned().ok_or_else(Status::no_such_path)?;
    // Names of new objects are their own: nobody is asked about another's.
    if verb == "create" {
        info.name.clear();
    } else if info.name.is_empty() {
        return Err(Status::bad_request("name is missing"));
    }
    if resource.group.is_empty() && &*resource.plural == "namespaces" {
        // A namespace is in itself, as in its path: rights in another are none on it.
        if !info.namespace.is_empty() && info.namespace != info.name {
            return Err(Status::bad_request("namespace must be empty: the resource is cluster-scoped"));
        }
        info.namespace = info.name.clone();
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
                && matches!(verb.as_str(), "update" | "patch")
        }
    };
    if !offered {
        return Err(Status::bad_request(format!("{verb} is not possible in a transaction")));
    }
    if let Decision::NoOpinion(reason) = cx.server.authorizer.authorize(&cx.user, &info) {
        return Err(refusal(&cx.user, &info, &reason));
    }
    let mut query: Vec<(&str, String)> = Vec::new();
    for name in ["dryRun", "fieldValidation"] {
        query.extend(cx.query.all(name).map(|value| (name, value.to_owned())));
    }
    if !text("fieldManager").is_empty() {
        query.push(("fieldManager", text("fieldManager")));
    } else if let Some(manager) = cx.query.get("fieldManager") {
        query.push(("fieldManager", manager.to_owned()));
    }
    if operation["force"] == true {
        query.push(("force", "true".into()));
    }
    let raw = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    let mut headers = HeaderMap::new();
    if let Some(agent) = cx.headers.get(header::USER_AGENT) {
        headers.insert(header::USER_AGENT, agent.clone());
    }
    let (body, kind) = match verb.as_str() {
        "create" | "update" => (operation["object"].to_string(), "application/json"),
        "patch" => (
            operation["patch"].to_string(),
            match operation["patchType"].as_str() {
                Some("JSON") => "application/json-patch+json",
                Some("Strategic") => "application/strategic-merge-patch+json",
                Some("Apply") => "application/apply-patch+yaml",
                _ => "application/merge-patch+json",
            },
        ),
        "delete" => {
            let mut options = json!({});
            if let Some(policy) = operation["propagationPolicy"].as_str() {
                options["propagationPolicy"] = policy.into();
            }
            (options.to_string(), "application/json")
        }
        _ => (String::new(), "application/json"),
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let cx = Context {
        server: cx.server.clone(),
        info,
        query: Query::parse(&raw),
        headers,
        user: cx.user.clone(),
        resource,
        accept: Accept { encoding: Encoding::Json, form: Form::Object, pretty: false },
        warnings: Mutex::default(),
        annotations: Mutex::default(),
    };
    Ok(Operation { cx, body: body.into(), check: operation["preconditions"].clone() })
}

/// What must hold of the object before the operation.
fn precondition(operation: &Operation, view: &View<'_>) -> Result<Vec<Op>, Status> {
    let cx = &operation.cx;
    let check = &operation.check;
    if cx.info.name.is_empty() || (check.is_null() && cx.info.verb != "get") {
        return Ok(Vec::new());
    }
    let key = cx.resource.key(&cx.info.namespace, &cx.info.name);
    // Only metadata is looked at: it is the same in all versions.
    let current = view.identity(&cx.resource, &key)?;
    if check["absent"] == true {
        if current.is_some() {
            return Err(Status::already_exists(&cx.resource.group, &cx.resource.plural, &cx.info.name));
        }
        return Ok(vec![Op::check(cx.resource.table.clone(), key, store::Expect::Absent)]);
    }
    let Some(current) = current else { return Err(cx.not_found()) };
    for (field, actual) in [("uid", &current.uid), ("resourceVersion", &current.version)] {
        if let Some(wanted) = check[field].as_str().filter(|wanted| !wanted.is_empty()) {
            if actual != wanted {
                return Err(cx.conflict(format!(
                    "Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {actual}"
                )));
            }
        }
    }
    // What was looked at must still be so when the transaction is committed.
    Ok(vec![Op::check(cx.resource.table.clone(), key, current.expect)])
}

async fn plan(operation: &Operation, view: &View<'_>) -> Result<Plan, Status> {
    let cx = &operation.cx;
    match &*cx.info.verb {
        "create" => cx.plan_of_create(view, &operation.body).await,
        "update" => cx.plan_of_update(view, &operation.body).await,
        "patch" => cx.plan_of_patch(view, &operation.body).await,
        "delete" => cx.plan_of_delete(view, &operation.body).await,
        _ => Ok(Plan::nothing(crate::plan::Answer::Status(Status::new(200, "", "")))),
    }
}

async fn commit(cx: &Context, list: &[Value], operations: &[Operation], dry_run: bool) -> Result<Value, Status> {
    for _ in 0..ATTEMPTS {
        let mut view = View::new(&cx.server.store);
        // Which operation each step comes from, and whether being overtaken there is final.
        let mut owners: Vec<(usize, bool)> = Vec::new();
        let mut ops: Vec<Op> = Vec::new();
        let mut keys = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            let name = |status| named(status, index, &list[index]);
            for check in precondition(operation, &view).map_err(name)? {
                if view.absorb(&operation.cx.resource, check, None, &mut ops) {
                    owners.push((index, false));
                }
            }
            let mut plan = plan(operation, &view).await.map_err(name)?;
            let main = plan.main;
            let mut key = None;
            for (at, op) in plan.ops.into_iter().enumerate() {
                if at == main {
                    key = crate::plan::key_of(&op);
                }
                let object = plan.object.take_if(|_| at == main && operation.cx.resource.stores_as_shown());
                if view.absorb(&operation.cx.resource, op, object, &mut ops) {
                    owners.push((index, at == main && !plan.retry));
                }
            }
            keys.push((key, plan.answer));
        }
        if dry_run || ops.is_empty() {
            return Ok(json!({"results": operations.iter().map(|_| json!({})).collect::<Vec<_>>()}));
        }
        match cx.server.store.commit(Transaction { ops }).await {
            Ok(committed) => {
                let results: Vec<Value> = keys.iter().map(|(key, _)| result(key.as_ref(), &committed)).collect();
                return Ok(json!({"revision": committed.revision.to_string(), "results": results}));
            }
            Err(CommitError::Precondition { op, .. }) => {
                if let Some((index, true)) = owners.get(op).copied() {
                    let status = operations[index].cx.conflict(crate::write::MODIFIED);
                    return Err(named(status, index, &list[index]));
                }
            }
            Err(error) => return Err(commit_status(error)),
        }
    }
    Err(Status::conflict(GROUP, "transactions", "", "other writers were always faster; try again"))
}

/// Name, uid and version of what an operation wrote.
fn result(key: Option<&(Arc<str>, Arc<str>)>, committed: &store::Committed) -> Value {
    let Some((_, key)) = key else { return json!({}) };
    let entry = committed.entries.iter().flatten().rev().find(|entry| entry.key == *key);
    let Some(meta) = entry.and_then(|entry| crate::plan::Meta::of(entry).ok()) else { return json!({}) };
    let mut own = json!({"name": meta.name, "uid": meta.uid, "resourceVersion": meta.version});
    if let Some(namespace) = meta.namespace {
        own["namespace"] = namespace.into();
    }
    own
}
