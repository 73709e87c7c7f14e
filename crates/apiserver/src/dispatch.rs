//! From a request about a resource to the verb that answers it.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header};
use machinery::status::Status;

use crate::body::Body;
use crate::context::Context;
use crate::heavy::{LARGE, aside};
use crate::media::{Encoding, Form};
use crate::render::Renderer;
use crate::request::ListOptions;
use crate::resource::Resource;
use crate::table::Include;
use crate::write::Done;

/// Answers a request. Boxed: what all verbs need together is much, and copied on its way it would fill the stack.
pub fn run(cx: &Context, body: Bytes) -> BoxFuture<'_, Result<Response<Body>, Status>> {
    Box::pin(verb(cx, body))
}

async fn verb(cx: &Context, body: Bytes) -> Result<Response<Body>, Status> {
    let (resource, info) = (&cx.resource, &cx.info);
    if resource.namespaced {
        let collection = info.name.is_empty() || matches!(&*info.verb, "list" | "watch");
        if info.namespace.is_empty() && !(collection && matches!(&*info.verb, "list" | "watch")) {
            return Err(Status::no_such_path());
        }
    } else if info.within || !info.namespace.is_empty() && &*resource.plural != "namespaces" {
        // rights in a namespace are none on what is in none, other namespaces among it
        return Err(Status::no_such_path());
    }
    if !info.subresource.is_empty() {
        return crate::verbs::subresources::run(cx, body).await;
    }
    if !resource.has_verb(&info.verb) {
        return Err(no_verb(resource, &info.verb));
    }
    if let crate::resource::Nature::Custom(custom) = &resource.nature {
        if let Some(warning) = custom.deprecation() {
            cx.warn(warning);
        }
    }
    let collection_only = info.verb == "create" && !info.name.is_empty();
    let object_only = matches!(&*info.verb, "update" | "patch") && info.name.is_empty();
    let unread = info.verb == "patch" && !cx.is_patch();
    if !(resource.is_custom() || collection_only || object_only || unread) {
        if let Some(warning) = kinds::warnings::deprecated_api(&resource.group, &resource.version, &resource.kind) {
            cx.warn(warning);
        }
    }
    match &*info.verb {
        "get" => finish(cx, cx.get()?).await,
        "create" if &*resource.group == crate::transactions::GROUP => crate::transactions::run(cx, &body).await,
        "create" if resource.gk() == ("", "Binding") => crate::verbs::subresources::old_binding(cx, body).await,
        "create" if !resource.has_verb("get") => crate::reviews::run(cx, &body).await,
        "create" => {
            if !info.name.is_empty() {
                return Err(Status::method_not_allowed());
            }
            finish(cx, cx.create(body).await?).await
        }
        // Only objects have these methods, collections do not.
        "update" | "patch" if info.name.is_empty() => Err(Status::method_not_allowed()),
        "update" => finish(cx, cx.update(body).await?).await,
        "patch" => finish(cx, cx.patch(body).await?).await,
        "delete" => finish(cx, cx.delete(body).await?).await,
        "list" => {
            let page = cx.page(&ListOptions::from_query(&cx.query)?).await?;
            let renderer = list_renderer(cx)?;
            let large = page.entries.iter().map(|entry| entry.value.len()).sum::<usize>() > LARGE;
            let body = if large && !renderer.copies(&page) {
                let _turn = cx.server.heavy_turn(&cx.user).await?;
                aside(|| renderer.list(page))
            } else {
                renderer.list(page)
            };
            Ok(answer(200, body, content_type(cx)))
        }
        "watch" => {
            let pieces = cx.watch(&ListOptions::from_query(&cx.query)?).await?;
            let mut answer = answer(200, Body::stream(pieces), watch_type(cx));
            answer.extensions_mut().insert(crate::websocket::Watch);
            Ok(answer)
        }
        "deletecollection" => {
            let page = cx.delete_collection(body, &ListOptions::from_query(&cx.query)?).await?;
            Ok(answer(200, list_renderer(cx)?.list(page), content_type(cx)))
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// 405. Custom resources say what they lack.
fn no_verb(resource: &Resource, verb: &str) -> Status {
    if !resource.is_custom() {
        return Status::method_not_allowed();
    }
    let kind = machinery::status::qualified(&resource.group, &resource.plural);
    let why = format!("{verb} is not supported on resources of kind {kind:?}");
    Status::new(405, "MethodNotAllowed", why).about(&resource.group, &resource.plural, "")
}

/// Shows what a verb gave.
pub async fn finish(cx: &Context, done: Done) -> Result<Response<Body>, Status> {
    Ok(match done {
        Done::Entry(code, entry) => {
            let entry = cx.resource.show_one(entry).await?;
            answer(code, object_renderer(cx, &cx.resource)?.one(&entry), content_type(cx))
        }
        Done::Object(code, object) => answer(code, object_renderer(cx, &cx.resource)?.value(&object), content_type(cx)),
        Done::Status(status) => cx.server.plain_status(&status, cx.accept),
    })
}

/// What shows the objects of a request, in the agreed form.
pub fn renderer(cx: &Context, resource: &Arc<Resource>) -> Result<Renderer, Status> {
    let renderer = Renderer::new(resource, cx.accept, cx.server.clone());
    if cx.accept.form != Form::Table {
        return Ok(renderer);
    }
    let given = cx.query.get("includeObject");
    let include = Include::parse(given).ok_or_else(|| {
        let given = given.unwrap_or_default();
        Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {given:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))
    })?;
    Ok(renderer.include(include))
}

/// The same for one object, which is no list.
pub fn object_renderer(cx: &Context, resource: &Arc<Resource>) -> Result<Renderer, Status> {
    match cx.accept.form {
        Form::MetadataList => Err(misfit("PartialObjectMetadataList", "not a list", &go_type(resource, ""))),
        _ => renderer(cx, resource),
    }
}

/// The same for a list, which is no object.
fn list_renderer(cx: &Context) -> Result<Renderer, Status> {
    match cx.accept.form {
        Form::Metadata => Err(misfit("PartialObjectMetadata", "a list", &go_type(&cx.resource, "List"))),
        _ => renderer(cx, &cx.resource),
    }
}

fn misfit(asked: &str, is: &str, found: &str) -> Status {
    let why = format!("you requested {asked}, but the requested object is {is} ({found})");
    Status::new(406, "NotAcceptable", why)
}

/// What Kubernetes calls a resource's objects within itself, and shows in some messages.
fn go_type(resource: &Resource, list: &str) -> String {
    if resource.is_custom() {
        return format!("*unstructured.Unstructured{list}");
    }
    let package = match resource.internal_group().split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("*{package}.{}{list}", resource.kind)
}

/// An answer with a body.
pub fn answer(code: u16, body: Body, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The content type of an object or list.
pub fn content_type(cx: &Context) -> &'static str {
    match cx.accept.encoding {
        Encoding::Protobuf if !cx.accept.is_protobuf(cx.resource.is_custom()) => Encoding::Json.content_type(),
        encoding => encoding.content_type(),
    }
}

fn watch_type(cx: &Context) -> &'static str {
    match cx.accept.encoding {
        Encoding::Protobuf if cx.accept.is_protobuf(cx.resource.is_custom()) => {
            "application/vnd.kubernetes.protobuf;stream=watch"
        }
        Encoding::Yaml => "application/yaml;stream=watch",
        _ => "application/json",
    }
}
