//! Questions that are asked by creating an object, and never stored: who am I, may I?

use bytes::Bytes;
use http::Response;
use machinery::selector::escape;
use machinery::status::Status;
use serde_json::{Value, json};

use crate::auth::authz::Decision;
use crate::body::Body;
use crate::context::Context;
use crate::dispatch::{answer, content_type};
use crate::render::Renderer;
use crate::request::RequestInfo;
use crate::user::User;

/// Answers a review.
pub async fn run(cx: &Context, body: &Bytes) -> Result<Response<Body>, Status> {
    let options = cx.write_options("CreateOptions")?;
    let mut review = cx.decode(body, &options)?;
    if cx.resource.namespaced {
        let namespace = || Value::from(cx.info.namespace.as_str());
        crate::write::meta_mut(&mut review).entry("namespace").or_insert_with(namespace);
    }
    let errors = kinds::validate::create(&cx.resource.group, &cx.resource.kind, &review);
    if !errors.is_empty() {
        // Kubernetes forgets the kind here.
        return Err(Status::invalid(&cx.resource.group, "", "", &errors));
    }
    crate::managed::update(cx, None, &mut review, &[], &options.manager, &cx.server.now()).await;
    match (&*cx.resource.group, &*cx.resource.plural) {
        ("authentication.k8s.io", "selfsubjectreviews") => {
            // Nothing of what was sent is looked at.
            review["metadata"] = json!({"creationTimestamp": cx.server.now()});
            review["status"] = json!({"userInfo": cx.user.to_json()});
        }
        ("authentication.k8s.io", "tokenreviews") => token_review(cx, &mut review).await?,
        ("authorization.k8s.io", "selfsubjectaccessreviews") => {
            review["status"] = access(cx, &cx.user.clone(), &review["spec"]);
        }
        ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => {
            let spec = &review["spec"];
            if cx.resource.namespaced && review["metadata"]["namespace"] != *cx.info.namespace {
                return Err(Status::bad_request(format!(
                    "spec.resourceAttributes.namespace must match namespace: {}",
                    cx.info.namespace
                )));
            }
            let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
            let groups: Vec<String> =
                spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
            let extra = serde_json::from_value(spec["extra"].clone()).unwrap_or_default();
            let user = User { name: text("user"), uid: text("uid"), groups, extra };
            review["status"] = access(cx, &user, spec);
        }
        ("authorization.k8s.io", "selfsubjectrulesreviews") => {
            let namespace = review["spec"]["namespace"].as_str().unwrap_or_default().to_owned();
            if namespace.is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            review["metadata"] = json!({});
            review["spec"] = json!({});
            review["status"] = cx.server.authorizer.rules(&cx.user, &namespace);
        }
        _ => return Err(Status::method_not_allowed()),
    }
    let renderer = Renderer::new(&cx.resource, cx.accept, cx.server.clone());
    Ok(answer(201, renderer.value(&review), content_type(cx)))
}

async fn token_review(cx: &Context, review: &mut Value) -> Result<(), Status> {
    let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences: Vec<String> = review["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let shown = cx.server.shown(&token, &audiences);
    if let Some(held) = &shown.held {
        // whose it is, is told neither to who asks about it nor of them
        held.mark(&cx.server, std::time::Duration::from_secs(30)).await;
    }
    review["status"] = match shown.owner {
        Some((user, audiences)) => {
            let mut status = json!({"authenticated": true, "user": user.to_json()});
            let audiences = if audiences.is_empty() { vec![cx.server.tokens.issuer().to_owned()] } else { audiences };
            status["audiences"] = audiences.into();
            status
        }
        None => json!({"user": {}, "error": "invalid bearer token"}),
    };
    Ok(())
}

/// The field selector that a question is about, as requests have it. What it cannot be is left out: that selects more.
fn selected(selector: &Value) -> String {
    if let Some(raw) = selector["rawSelector"].as_str() {
        return raw.to_owned();
    }
    let requirement = |one: &Value| match (one["key"].as_str()?, one["operator"].as_str()?, one["values"].as_array()?) {
        (key, "In", values) if values.len() == 1 => Some(format!("{key}={}", escape(values[0].as_str()?))),
        _ => None,
    };
    let requirements = selector["requirements"].as_array().into_iter().flatten();
    requirements.filter_map(requirement).collect::<Vec<_>>().join(",")
}

fn access(cx: &Context, user: &User, spec: &Value) -> Value {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let info = match resource.is_object() {
        true => RequestInfo {
            is_resource: true,
            verb: text(resource, "verb").into(),
            group: text(resource, "group"),
            version: text(resource, "version"),
            namespace: text(resource, "namespace"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            name: text(resource, "name"),
            field_selector: selected(&resource["fieldSelector"]),
            ..RequestInfo::default()
        },
        false => RequestInfo { path: text(path, "path"), verb: text(path, "verb").into(), ..RequestInfo::default() },
    };
    match cx.server.authorizer.authorize(user, &info) {
        Decision::Allow(reason) if reason.is_empty() => json!({"allowed": true}),
        Decision::Allow(reason) => json!({"allowed": true, "reason": reason}),
        Decision::NoOpinion(reason) if reason.is_empty() => json!({"allowed": false}),
        Decision::NoOpinion(reason) => json!({"allowed": false, "reason": reason}),
    }
}
