//! The `scale` subresource: an object's replicas as an object of its own, for those who know nothing else of it.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::Response;
use machinery::apply::{Filter, Path};
use machinery::apply::{OneVersion, ReplicaPaths, SCALE_VERSION, Tracker, parent_managers, scale_managers};
use machinery::schema::Schema;
use machinery::status::Status;
use serde_json::{Value, json};

use super::patch::Patch;
use super::subresources::{set_pointer, stored};
use crate::admission::Operation;
use crate::body::Body;
use crate::context::{Context, WriteOptions};
use crate::dispatch::{answer, content_type, object_renderer};
use crate::plan::View;
use crate::resource::{Nature, Resource};
use crate::write::{Change, Done, MODIFIED};

const SCALE: (&str, &str, &str) = ("autoscaling", "v1", "Scale");
/// Stands for replicas that are not set, as in Kubernetes: a client may not send it.
const UNSET: i64 = i32::MIN as i64;

const NO_BLANK_SCALE: &str = "failed to create manager for existing fields: failed to convert live object (/; \
    autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1";

/// `GET`.
pub async fn get(cx: &Context) -> Result<Response<Body>, Status> {
    let object = stored(cx).await?;
    let paths = Paths::of(cx);
    if cx.resource.is_custom() && object.pointer(&paths.spec).and_then(Value::as_i64).is_none() {
        let dotted = paths.spec.replace('/', ".");
        return Err(Status::internal(format!("the spec replicas field {dotted:?} does not exist")));
    }
    shown(cx, &scale_of(cx, &object, &paths))
}

/// `PUT` and `PATCH`: the Scale is changed, then the object by it.
pub async fn write(cx: &Context, body: Bytes) -> Result<Response<Body>, Status> {
    let put = cx.info.verb == "update";
    let mut options = cx.write_options(if put { "UpdateOptions" } else { "PatchOptions" })?;
    let wanted = match put {
        true => {
            let scale = cx.decode_as(&body, SCALE, &options)?;
            cx.check_name(&scale)?;
            Wanted::Whole(scale)
        }
        false => {
            let (patch, problems) = cx.read_patch(&body)?;
            Wanted::Patch(patch, problems)
        }
    };
    let paths = Paths::of(cx);
    // Admission has its say in the Scale, not in what it makes of the object.
    options.admitted = true;
    let (wanted, options, paths) = (&wanted, &options, &paths);
    let done = cx
        .run(move |view| async move {
            let current = cx.current(&view).await?;
            let change = changed(cx, &view, &current.object, wanted, options, paths).await?;
            cx.plan_replace(&view, options, &current, change).await
        })
        .await?;
    let object = match done {
        Done::Entry(_, entry) => cx.resource.open(crate::plan::parse_stored(&entry)?.into(), Some(&entry)).await?,
        Done::Object(_, object) => object.into(),
        Done::Status(status) => return Err(status),
    };
    shown(cx, &scale_of(cx, &object, paths))
}

/// Scales are shown like the objects of a resource of their own.
fn shown(cx: &Context, scale: &Value) -> Result<Response<Body>, Status> {
    static SHOWN: LazyLock<Option<Arc<Resource>>> = LazyLock::new(|| {
        let (group, version, kind) = SCALE;
        Some(Arc::new(Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: "ScaleList".into(),
            plural: "scales".into(),
            singular: "scale".into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
            subresources: Vec::new(),
            table: "".into(),
            nature: Nature::BuiltIn(kinds::schema_of(group, version, kind)?.id()),
        }))
    });
    let resource = SHOWN.as_ref().ok_or_else(|| Status::internal("Scale is not among the built-in kinds"))?;
    Ok(answer(200, object_renderer(cx, resource)?.value(scale), content_type(cx)))
}

enum Wanted {
    Whole(Value),
    /// With what strict validation objects to in its text.
    Patch(Patch, Vec<String>),
}

/// The object with the replicas that its changed Scale has, and the managers.
async fn changed(
    cx: &Context,
    view: &View<'_>,
    old: &Value,
    wanted: &Wanted,
    options: &WriteOptions,
    paths: &Paths,
) -> Result<Change, Status> {
    let schema = kinds::schema_of(SCALE.0, SCALE.1, SCALE.2)
        .ok_or_else(|| Status::internal("the kind Scale is not in the table of kinds"))?;
    let unreadable = |error| Status::internal(format!("the managers of the object cannot be read: {error}"));
    let recorded = old["metadata"].get("managedFields");
    let mut current = scale_of(cx, old, paths);
    if cx.resource.is_custom() && old.pointer(&paths.spec).and_then(Value::as_i64).is_none() {
        current["spec"]["replicas"] = UNSET.into();
    }
    if let Some(managers) = scale_managers(recorded, &paths.replicas).map_err(unreadable)? {
        current["metadata"]["managedFields"] = managers;
    }
    let scale = changed_scale(cx, &current, wanted, options, schema)?;
    let mut attributes = cx.attributes(view, Operation::Update, &cx.info.name, scale, &current, options.dry_run);
    cx.mutate(&mut attributes).await?;
    cx.judge(&mut attributes).await?;
    let scale = attributes.object;
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if cx.resource.is_custom() && replicas == UNSET {
        let dotted = paths.spec.replace('/', ".");
        return Err(Status::bad_request(format!("the spec replicas field {dotted:?} cannot be empty")));
    }
    if replicas < 0 && !cx.resource.is_custom() {
        let path = machinery::field::Path::root("spec").child("replicas");
        let detail = "must be greater than or equal to 0";
        let error = machinery::field::Error::invalid(&path, replicas, detail);
        return Err(Status::invalid("autoscaling", "Scale", &cx.info.name, &[error]));
    }
    let version = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && old["metadata"]["resourceVersion"] != version {
        return Err(cx.conflict(MODIFIED));
    }
    let mut object = old.clone();
    set_pointer(&mut object, &paths.spec, replicas.into());
    let api_version = cx.resource.api_version();
    let managers = parent_managers(recorded, scale["metadata"].get("managedFields"), &api_version, &paths.replicas)
        .map_err(unreadable)?;
    let meta = crate::write::meta_mut(&mut object);
    match managers {
        Some(managers) => meta.insert("managedFields".into(), managers),
        None => meta.remove("managedFields"),
    };
    Ok(Change { object, conditional: false, tracked: true, unsettled: Vec::new(), said: Vec::new() })
}

/// The Scale after the request, its managers included.
fn changed_scale(
    cx: &Context,
    current: &Value,
    wanted: &Wanted,
    options: &WriteOptions,
    schema: Schema<'_>,
) -> Result<Value, Status> {
    let tracker = Tracker {
        schema,
        api_version: SCALE_VERSION,
        kind: SCALE.2,
        subresource: "scale",
        reset: &Filter::Everything,
        converter: &OneVersion,
        custom: false,
        reset_elsewhere: &Filter::Everything,
    };
    let now = cx.server.now();
    let patched = match wanted {
        Wanted::Whole(scale) => scale.clone(),
        Wanted::Patch(Patch::Apply(applied), problems) => {
            if cx.resource.is_custom() && current["metadata"].get("managedFields").is_none() {
                // The real one cannot make an empty Scale of a custom resource to begin with.
                return Err(Status::new(500, "", NO_BLANK_SCALE));
            }
            let scale = tracker.apply(Some(current), applied, &options.manager, options.force, &now)?;
            cx.object_to_applied(problems.clone(), options)?;
            let replicas = |scale: &Value| scale["spec"]["replicas"].as_i64().unwrap_or(0);
            if cx.resource.is_custom() && replicas(&scale) != replicas(current) {
                // Nor can it make anything of a merged one: only who agrees with what is there may apply.
                let text = |name: &str| applied["metadata"][name].as_str().unwrap_or_default();
                let (namespace, name) = (text("namespace"), text("name"));
                let why = "request to convert CR to an invalid group/version: autoscaling/v1";
                let what = format!("({namespace}/{name}; autoscaling/v1, Kind=Scale) to proper version");
                return Err(Status::new(500, "", format!("failed to convert new object {what}: {why}")));
            }
            return Ok(scale);
        }
        Wanted::Patch(patch, problems) => {
            let patched = patch.change(current, schema)?;
            let decoded = crate::resource::decode_builtin(schema, SCALE.2, SCALE.1, patched).map_err(|status| {
                let what = "Scale in version \"v1\" cannot be handled as a Scale: ";
                let why = status.message.strip_prefix(what).unwrap_or(&status.message).to_owned();
                if status.code == 400 { patch.refused(current, schema, why) } else { status }
            })?;
            let problems = problems.iter().cloned().chain(decoded.strict).collect();
            cx.object_to(problems, options, |list| {
                patch.refused(current, schema, format!("strict decoding error: {list}"))
            })?;
            decoded.object
        }
    };
    let mut scale = plain(patched);
    if let Err(error) = tracker.update(Some(current), &mut scale, &options.manager, &now) {
        tracing::debug!(%error, request = cx.info.describe(), "the managers of a Scale could not be brought up to date");
    }
    Ok(scale)
}

/// A Scale as its Go type writes it: no zero replicas are asked for, but zero are counted.
fn plain(mut scale: Value) -> Value {
    if let Some(spec) = scale.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|name, value| name != "replicas" || value.as_i64() != Some(0));
    }
    if scale["spec"].is_null() {
        scale["spec"] = json!({});
    }
    if scale["status"]["replicas"].is_null() {
        scale["status"]["replicas"] = 0.into();
    }
    scale
}

/// The scale of an object, as an object of its own.
fn scale_of(cx: &Context, object: &Value, paths: &Paths) -> Value {
    let at = |path: &str| match path {
        "" => Value::Null,
        path => object.pointer(path).cloned().unwrap_or(Value::Null),
    };
    let meta = &object["metadata"];
    let mut own = json!({
        "name": meta["name"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
        "creationTimestamp": meta["creationTimestamp"],
    });
    if cx.resource.namespaced {
        own["namespace"] = meta["namespace"].clone();
    }
    let selector = match at(&paths.selector) {
        Value::String(text) => text,
        labels @ Value::Object(_)
            if labels.get("matchLabels").is_none() && labels.get("matchExpressions").is_none() =>
        {
            // ReplicationController: a plain map.
            let labels = labels.as_object().cloned().unwrap_or_default();
            machinery::selector::Selector::from_labels(&labels).to_string()
        }
        selector => machinery::selector::Selector::from_object(&selector).map(|s| s.to_string()).unwrap_or_default(),
    };
    let mut status = json!({"replicas": at(&paths.status).as_i64().unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    if let Some(replicas) = at(&paths.spec).as_i64().filter(|replicas| *replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": own, "spec": spec, "status": status})
}

/// Where an object has what its Scale shows, as JSON pointers, and its replicas in all of its versions.
struct Paths {
    spec: String,
    status: String,
    selector: String,
    replicas: ReplicaPaths,
}

impl Paths {
    fn of(cx: &Context) -> Paths {
        if let Nature::Custom(custom) = &cx.resource.nature {
            let field_path = |pointer: &str| Path::fields(&pointer.split('/').skip(1).collect::<Vec<_>>());
            let replicas = custom.scales().map(|(version, scale)| (version, scale.map(|s| field_path(&s.0))));
            if let Some((spec, status, selector)) = custom.scale() {
                return Paths { spec, status, selector, replicas: ReplicaPaths(replicas.collect()) };
            }
        }
        Paths {
            spec: "/spec/replicas".into(),
            status: "/status/replicas".into(),
            selector: "/spec/selector".into(),
            replicas: ReplicaPaths::standard(&cx.resource.api_version()),
        }
    }
}
