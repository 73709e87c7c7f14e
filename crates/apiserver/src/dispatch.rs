//! From a request about a resource to the verb that answers it.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use machinery::status::Status;

use crate::body::Body;
use crate::context::Context;
use crate::heavy::{LARGE, aside};
use crate::media::Encoding;
use crate::render::Renderer;
use crate::request::ListOptions;
use crate::table::Include;
use crate::write::Done;

/// Answers a request.
pub async fn run(cx: &Context, body: Bytes) -> Result<Response<Body>, Status> {
    let (resource, info) = (&cx.resource, &cx.info);
    if resource.namespaced {
        let collection = info.name.is_empty() || matches!(&*info.verb, "list" | "watch");
        if info.namespace.is_empty() && !(collection && matches!(&*info.verb, "list" | "watch")) {
            return Err(Status::no_such_path());
        }
    } else if !info.namespace.is_empty() && &*resource.plural != "namespaces" {
        return Err(Status::no_such_path());
    }
    if !info.subresource.is_empty() {
        return crate::verbs::subresources::run(cx, body).await;
    }
    if !resource.has_verb(&info.verb) {
        return Err(Status::method_not_allowed());
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
    if let ("create", true) = (&*info.verb, resource.is_terminating()) {
        let mut status = Status::method_not_allowed();
        status.message = "create not allowed while custom resource definition is terminating".into();
        return Err(status);
    }
    match &*info.verb {
        "get" => finish(cx, cx.get()?).await,
        "create" if &*resource.group == crate::transactions::GROUP => crate::transactions::run(cx, &body).await,
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
            let renderer = renderer(cx)?;
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
            Ok(answer(200, Body::stream(pieces), watch_type(cx)))
        }
        "deletecollection" => {
            let page = cx.delete_collection(body, &ListOptions::from_query(&cx.query)?).await?;
            Ok(answer(200, renderer(cx)?.list(page), content_type(cx)))
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// Shows what a verb gave.
pub async fn finish(cx: &Context, done: Done) -> Result<Response<Body>, Status> {
    Ok(match done {
        Done::Entry(code, entry) => {
            let entry = cx.resource.show_one(entry).await?;
            answer(code, renderer(cx)?.one(&entry), content_type(cx))
        }
        Done::Object(code, object) => answer(code, renderer(cx)?.value(&object), content_type(cx)),
        Done::Status(status) => cx.server.plain_status(&status, cx.accept),
    })
}

fn renderer(cx: &Context) -> Result<Renderer, Status> {
    let include = Include::parse(cx.query.get("includeObject"))
        .ok_or_else(|| {
            let given = cx.query.get("includeObject").unwrap_or_default();
            Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {given:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))
        })?;
    Ok(Renderer::new(&cx.resource, cx.accept, cx.server.clone()).include(include))
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
