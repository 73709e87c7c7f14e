//! Parts of objects with a life of their own: status, scale, tokens, bindings, evictions, finalizers.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use machinery::status::Status;
use serde_json::{Value, json};

use crate::admission::Operation;
use crate::auth::authz::Decision;
use crate::auth::tokens::Request as TokenRequest;
use crate::body::Body;
use crate::context::{Context, WriteOptions};
use crate::dispatch::{answer, finish};
use crate::plan::View;
use crate::render::encode_ordered;
use crate::request::RequestInfo;
use crate::write::Change;

/// Answers a request about a part of an object.
pub async fn run(cx: &Context, body: Bytes) -> Result<Response<Body>, Status> {
    let (resource, info) = (&cx.resource, &cx.info);
    if info.name.is_empty() || (info.deeper && info.subresource != "proxy") {
        return Err(Status::no_such_path());
    }
    let Some(sub) = resource.subresource(&info.subresource) else {
        return Err(Status::no_such_path());
    };
    if !sub.verbs.iter().any(|verb| **verb == *info.verb) {
        return Err(Status::method_not_allowed());
    }
    if matches!((&*info.subresource, &*info.verb), ("token" | "binding" | "eviction", "create")) {
        cx.namespace_check(&View::new(&cx.server.store), &info.namespace, &info.name)?;
    }
    match (&*info.subresource, &*info.verb) {
        ("scale", "get") => super::scale::get(cx).await,
        ("scale", _) => super::scale::write(cx, body).await,
        ("token", "create") => token(cx, &body).await,
        ("binding", "create") => binding(cx, &body).await,
        ("eviction", "create") => super::eviction::create(cx, body).await,
        ("exec" | "attach" | "portforward" | "proxy", _) => connect(cx, &sub.kind).await,
        ("log", _) => log(cx).await,
        (_, "get") => finish(cx, cx.get()?).await,
        (_, "update") => finish(cx, cx.update(body).await?).await,
        (_, "patch") => finish(cx, cx.patch(body).await?).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// The refusal for want of a node. The Pod must exist for it, and be on one.
async fn no_node(cx: &Context, container: Option<&str>) -> Result<Status, Status> {
    let object = stored(cx).await?;
    let name = &cx.info.name;
    if cx.resource.gk() == ("", "Pod") {
        if let Some(container) = container {
            choose_container(&object, container)?;
        }
        if cx.info.subresource == "proxy" {
            check_address(&object)?;
        } else if object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
            return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
        }
    }
    Ok(needs_node(cx))
}

/// Refuses a Pod that has no address yet, or one that would lead to a machine's own affairs.
fn check_address(pod: &Value) -> Result<(), Status> {
    let status = &pod["status"];
    // Where both are said, Kubernetes believes the old field.
    let said = status["podIP"].as_str().filter(|own| !own.is_empty()).or_else(|| status["podIPs"][0]["ip"].as_str());
    let address = said.and_then(|own| own.parse::<IpAddr>().ok());
    let is_allowed = address.is_some_and(|own| is_global_unicast(own.to_canonical()));
    if is_allowed { Ok(()) } else { Err(Status::bad_request("address not allowed")) }
}

/// As Go means it: private networks count as well.
fn is_global_unicast(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(own) => own.is_broadcast() || own.is_link_local(),
        IpAddr::V6(own) => own.is_unicast_link_local(),
    };
    !(is_local || address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

fn needs_node(cx: &Context) -> Status {
    let part = format!("{}/{}", cx.resource.plural, cx.info.subresource);
    Status::new(501, "NotImplemented", format!("{part} needs a node that runs the Pod; this server has none"))
}

/// Refuses a container that a Pod has not, or none where there are several.
fn choose_container(pod: &Value, wanted: &str) -> Result<(), Status> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |list: &str| {
        let list = pod["spec"][list].as_array().cloned().unwrap_or_default();
        list.into_iter().filter_map(|own| own["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let own = names("containers");
    let all = [names("initContainers"), own.clone(), names("ephemeralContainers")].concat();
    match wanted {
        "" if own.len() > 1 => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
        "" => Ok(()),
        wanted if all.iter().any(|own| own == wanted) => Ok(()),
        wanted => Err(Status::bad_request(format!("container {wanted} is not valid for pod {name}"))),
    }
}

/// `pods/log`: a Pod on no node has said nothing yet.
async fn log(cx: &Context) -> Result<Response<Body>, Status> {
    super::connect::check_log_options(&cx.query, &cx.info.name)?;
    let pod = stored(cx).await?;
    choose_container(&pod, cx.query.get("container").unwrap_or_default())?;
    match pod["spec"]["nodeName"].as_str().unwrap_or_default() {
        "" => {
            let mut nothing = Response::new(Body::whole(Vec::new()));
            *nothing.status_mut() = http::StatusCode::NO_CONTENT;
            Ok(nothing)
        }
        _ => Err(no_node(cx, None).await?),
    }
}

/// Who may have a say in a connection is asked; who would serve it does not exist.
async fn connect(cx: &Context, kind: &str) -> Result<Response<Body>, Status> {
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if cx.query.flag(flag) {
            options[flag] = true.into();
        }
    }
    for text in ["container", "path"] {
        if let Some(value) = cx.query.get(text).filter(|value| !value.is_empty()) {
            options[text] = value.into();
        }
    }
    let command: Vec<&str> = cx.query.all("command").collect();
    if !command.is_empty() {
        options["command"] = command.into();
    }
    let ports: Vec<u16> =
        cx.query.all("ports").flat_map(|ports| ports.split(',')).filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        options["ports"] = ports.into();
    }
    let view = View::new(&cx.server.store);
    let mut attributes = cx.attributes(&view, Operation::Connect, &cx.info.name, options, &Value::Null, false);
    cx.mutate(&mut attributes).await?;
    cx.judge(&mut attributes).await?;
    if cx.resource.gk() == ("", "Service") {
        super::connect::check_service(cx)?;
        return Err(needs_node(cx));
    }
    if cx.info.subresource == "proxy" {
        return Err(no_node(cx, None).await?);
    }
    // A browser connects by GET, and does no less than others by POST.
    if cx.info.verb != "create" {
        let info = RequestInfo { verb: "create".into(), ..cx.info.clone() };
        if let Decision::NoOpinion(reason) = cx.server.authorizer.authorize(&cx.user, &info) {
            return Err(Status::forbidden(&cx.resource.group, &cx.resource.plural, &cx.info.name, reason));
        }
    }
    let container = (cx.info.subresource != "portforward").then(|| cx.query.get("container").unwrap_or_default());
    Err(no_node(cx, container).await?)
}

/// Lets admission have its say in what is created as a part of an object.
pub(super) async fn admit(cx: &Context, object: Value, dry_run: bool) -> Result<Value, Status> {
    let view = View::new(&cx.server.store);
    let name = object["metadata"]["name"].as_str().unwrap_or(&cx.info.name).to_owned();
    let mut attributes = cx.attributes(&view, Operation::Create, &name, object, &Value::Null, dry_run);
    cx.mutate(&mut attributes).await?;
    cx.judge(&mut attributes).await?;
    Ok(attributes.object)
}

pub(super) async fn stored(cx: &Context) -> Result<Value, Status> {
    cx.current(&View::new(&cx.server.store)).await.map(|current| Arc::unwrap_or_clone(current.object))
}

fn shown(cx: &Context, code: u16, value: &Value, schema: (&str, &str, &str)) -> Response<Body> {
    use crate::media::Encoding;
    if cx.accept.encoding == Encoding::Protobuf {
        if let Some(schema) = kinds::schema_of(schema.0, schema.1, schema.2) {
            let bytes = machinery::schema::protobuf::to_protobuf(value, schema);
            return answer(code, Body::whole(bytes), Encoding::Protobuf.content_type());
        }
    }
    answer(code, Body::whole(encode_ordered(value, cx.accept)), cx.accept.encoding.content_type())
}

/// Sets a value deep in an object, making the maps on the way.
pub fn set_pointer(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    let names: Vec<&str> = pointer.split('/').skip(1).collect();
    let Some((last, way)) = names.split_last() else { return };
    for name in way {
        if !at[*name].is_object() {
            at[*name] = json!({});
        }
        at = &mut at[*name];
    }
    at[*last] = value;
}

const TOKEN_REQUEST: (&str, &str, &str) = ("authentication.k8s.io", "v1", "TokenRequest");

/// `serviceaccounts/token`: a token for the account.
async fn token(cx: &Context, body: &Bytes) -> Result<Response<Body>, Status> {
    let options = cx.write_options("CreateOptions")?;
    let mut request = cx.decode_as(body, TOKEN_REQUEST, &options)?;
    crate::plugins::node_tokens::may_have(cx, &request)?;
    cx.check_namespace(&request)?;
    let account = stored(cx).await?;
    let (said, own) = (&request["metadata"]["uid"], &account["metadata"]["uid"]);
    if let Some(said) = said.as_str().filter(|said| !said.is_empty() && own != said) {
        let own = own.as_str().unwrap_or_default();
        let why =
            format!("the UID in the token request ({said}) does not match the UID of the service account ({own})");
        return Err(Status::conflict("authentication.k8s.io", "TokenRequest", &cx.info.name, why));
    }
    if request["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        request["spec"]["audiences"] = json!([cx.server.tokens.issuer()]);
    }
    for (field, own) in [("name", &cx.info.name), ("namespace", &cx.info.namespace)] {
        if request["metadata"][field].as_str().unwrap_or_default().is_empty() {
            request["metadata"][field] = own.as_str().into();
        }
    }
    let mut request = admit(cx, request, options.dry_run).await?;
    let spec = &request["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(3600);
    let path = machinery::field::Path::root("spec").child("expirationSeconds");
    let mut errors = Vec::new();
    let said = request["metadata"]["name"].as_str().unwrap_or_default();
    if said != cx.info.name {
        let path = machinery::field::Path::root("metadata").child("name");
        let error = machinery::field::Error::invalid(&path, said, "must match the service account name if specified");
        return Err(Status::invalid("authentication.k8s.io", "TokenRequest", &cx.info.name, &[error]));
    }
    if seconds < 600 {
        errors.push(machinery::field::Error::invalid(
            &path,
            seconds,
            "may not specify a duration less than 10 minutes",
        ));
    }
    if seconds > 1 << 32 {
        errors.push(machinery::field::Error::invalid(
            &path,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    if !errors.is_empty() {
        return Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &errors));
    }
    let audiences: Vec<String> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let reference = &spec["boundObjectRef"];
    let mut node = None;
    let bound = if reference.is_object() {
        let (kind, name) = (text(&reference["kind"]), text(&reference["name"]));
        let (group, version) = group_version(reference["apiVersion"].as_str().unwrap_or_default());
        let table = match (group, kind.as_str()) {
            ("", "Pod") => "core/pods",
            ("", "Secret") => "core/secrets",
            ("", "Node") => "core/nodes",
            _ => {
                let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(Status::bad_request(message));
            }
        };
        let key = if kind == "Node" { name.clone() } else { format!("{}/{name}", cx.info.namespace) };
        let plural = format!("{}s", kind.to_lowercase());
        let entry = cx.server.store.get(table, &key).ok_or_else(|| Status::not_found("", &plural, &name))?;
        let object = crate::plan::parse_stored(&entry)?;
        if kind == "Pod" && object["spec"]["serviceAccountName"] != *cx.info.name {
            let message = format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                cx.info.name
            );
            return Err(Status::bad_request(message));
        }
        let uid = text(&object["metadata"]["uid"]);
        if kind == "Pod" && object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            let name = text(&object["spec"]["nodeName"]);
            let live =
                cx.server.store.get("core/nodes", &name).and_then(|entry| crate::plan::parse_stored(&entry).ok());
            node = Some((name, live.map(|live| text(&live["metadata"]["uid"])).unwrap_or_default()));
        }
        let asked = text(&reference["uid"]);
        if !asked.is_empty() && asked != uid {
            let why = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            // Kubernetes puts the kind where the resource belongs.
            return Err(Status::conflict("", &kind, &name, why));
        }
        Some((kind, name, uid))
    } else {
        None
    };
    let uid = text(&account["metadata"]["uid"]);
    let now = cx.server.now_seconds();
    // Clients from the time before tokens ended read theirs only once: what kubelets ask for them lasts longer than it says.
    let own = audiences.iter().all(|audience| audience == cx.server.tokens.issuer());
    let extended = seconds == FOR_PODS && own && bound.as_ref().is_some_and(|(kind, _, _)| kind == "Pod");
    let signed = cx.server.tokens.sign(&TokenRequest {
        account: (&cx.info.namespace, &cx.info.name, &uid),
        audiences: &audiences,
        bound: bound.as_ref().map(|(kind, name, uid)| (kind.as_str(), name.as_str(), uid.as_str())),
        node: node.as_ref().map(|(name, uid): &(String, String)| (name.as_str(), uid.as_str())),
        warn_after: extended.then_some(now + seconds),
        now,
        lifetime: if extended { EXTENDED } else { seconds },
        id: cx.server.new_uid(),
    });
    let token = signed.ok_or_else(|| Status::internal("the token could not be signed"))?;
    request["metadata"] = json!({
        "name": cx.info.name, "namespace": cx.info.namespace, "uid": uid, "creationTimestamp": cx.server.now(),
    });
    request["spec"]["expirationSeconds"] = seconds.into();
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({"token": token, "expirationTimestamp": cx.server.time_in(seconds)});
    Ok(shown(cx, 201, &request, TOKEN_REQUEST))
}

/// Group and version of an apiVersion; of one that is none Kubernetes takes neither.
fn group_version(said: &str) -> (&str, &str) {
    match said.split_once('/') {
        None => ("", said),
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(both) => both,
    }
}

/// How many seconds kubelets ask for in the name of Pods, by which it is known that it is them.
const FOR_PODS: i64 = 3607;
/// How long such a token lasts.
const EXTENDED: i64 = 365 * 24 * 3600;

/// `pods/binding`: puts a Pod on a node.
async fn binding(cx: &Context, body: &Bytes) -> Result<Response<Body>, Status> {
    let options = cx.write_options("CreateOptions")?;
    let binding = cx.decode_as(body, ("", "v1", "Binding"), &options)?;
    let binding = admit(cx, binding, options.dry_run).await?;
    bind(cx, &binding, options).await
}

async fn bind(cx: &Context, binding: &Value, mut options: WriteOptions) -> Result<Response<Body>, Status> {
    options.admitted = true;
    cx.check_namespace(binding)?;
    if binding["metadata"]["name"] != *cx.info.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let target = &binding["target"];
    let path = machinery::field::Path::root("target");
    let kind = target["kind"].as_str().unwrap_or_default();
    let node = target["name"].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !kind.is_empty() && kind != "Node" {
        errors.push(machinery::field::Error::not_supported(&path.child("kind"), kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        errors.push(machinery::field::Error::required(&path.child("name"), ""));
    }
    if !errors.is_empty() {
        return Err(Status::invalid("", "Binding", &cx.info.name, &errors));
    }
    let options = &options;
    let change = |old: &Value| {
        let mut object = old.clone();
        for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let (wanted, there) = (&binding["metadata"][field], &old["metadata"][field]);
            if let Some(wanted) = wanted.as_str().filter(|wanted| !wanted.is_empty() && there != wanted) {
                let there = there.as_str().unwrap_or_default();
                let why = format!("{what} in precondition: {wanted}, {what} in object meta: {there}");
                return Err(cx.conflict(format!("Precondition failed: {why}")));
            }
        }
        let conflict = |why: String| Status::conflict("", "pods/binding", &cx.info.name, why);
        let current = old["spec"]["nodeName"].as_str().unwrap_or_default();
        if old["metadata"].get("deletionTimestamp").is_some() {
            return Err(conflict(format!("pod {} is being deleted, cannot be assigned to a host", cx.info.name)));
        }
        if !current.is_empty() {
            return Err(conflict(format!("pod {} is already assigned to node {current:?}", cx.info.name)));
        }
        if old["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return Err(conflict(format!("pod {} has non-empty .spec.schedulingGates", cx.info.name)));
        }
        object["spec"]["nodeName"] = node.into();
        for part in ["annotations", "labels"] {
            for (key, value) in binding["metadata"][part].as_object().into_iter().flatten() {
                object["metadata"][part][key] = value.clone();
            }
        }
        // Where it was to go no longer matters.
        if let Some(status) = object["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        let now = cx.server.now();
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        });
        let conditions = &mut object["status"]["conditions"];
        match conditions.as_array_mut() {
            Some(list) => {
                list.retain(|condition| condition["type"] != "PodScheduled");
                list.push(scheduled);
            }
            None => *conditions = json!([scheduled]),
        }
        crate::write::meta_mut(&mut object).remove("resourceVersion");
        // Nobody owns where a Pod was put.
        Ok(Change { object, conditional: false, tracked: true, unsettled: Vec::new(), said: Vec::new() })
    };
    let change = &change;
    cx.run(move |view| async move { cx.plan_update(&view, options, change).await }).await?;
    Ok(cx.server.plain_status(&Status::new(201, "", ""), cx.accept))
}

/// `bindings`: the same, by the path that was there first.
pub async fn old_binding(cx: &Context, body: Bytes) -> Result<Response<Body>, Status> {
    let options = cx.write_options("CreateOptions")?;
    let named = cx.decode_as(&body, ("", "v1", "Binding"), &options)?;
    let name = named["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Status::bad_request("Name parameter required."))?.to_owned();
    let named = admit(cx, named, options.dry_run).await?;
    let pods = cx.server.catalog().find("", "v1", "pods").cloned();
    let cx = Context {
        server: cx.server.clone(),
        deadline: cx.deadline,
        info: RequestInfo { resource: "pods".into(), subresource: "binding".into(), name, ..cx.info.clone() },
        query: cx.query.clone(),
        headers: cx.headers.clone(),
        user: cx.user.clone(),
        resource: pods.ok_or_else(|| Status::internal("there are no Pods"))?,
        accept: cx.accept,
        warnings: Default::default(),
        annotations: Default::default(),
        operations: Default::default(),
    };
    cx.namespace_check(&View::new(&cx.server.store), &cx.info.namespace, &cx.info.name)?;
    bind(&cx, &named, options).await
}
