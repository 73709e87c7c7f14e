//! Who owns which field: the API server's side of managedFields and server-side apply.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use machinery::apply::{FieldSet, Filter, Match, OneVersion, Tracker};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;

use crate::context::{Context, WriteOptions};
use crate::resource::{Nature, Resource};

/// What writers of a (sub)resource cannot own, made once.
fn reset(resource: &Resource, subresource: &str) -> Arc<Filter> {
    if resource.is_custom() {
        return match subresource {
            "status" => CUSTOM_STATUS.clone(),
            _ if resource.has_status() => CUSTOM_MAIN.clone(),
            _ => Arc::default(),
        };
    }
    let key = (resource.group.to_string(), resource.kind.to_string(), subresource.to_owned());
    let mut known = FILTERS.lock();
    known.entry(key).or_insert_with(|| Arc::new(make_filter(&resource.group, &resource.kind, subresource))).clone()
}

static FILTERS: LazyLock<Mutex<HashMap<(String, String, String), Arc<Filter>>>> = LazyLock::new(Mutex::default);
static CUSTOM_MAIN: LazyLock<Arc<Filter>> =
    LazyLock::new(|| Arc::new(Filter::Exclude(FieldSet::of_fields(&[&["status"]]))));
static CUSTOM_STATUS: LazyLock<Arc<Filter>> = LazyLock::new(|| {
    // Further fields beside spec and status are put back, too, but owned by who tried, as in Kubernetes.
    Arc::new(Filter::Exclude(FieldSet::of_fields(&[&["metadata"], &["spec"]])))
});

fn make_filter(group: &str, kind: &str, subresource: &str) -> Filter {
    if (group, kind, subresource) == ("", "Pod", "resize") {
        let containers = |field| vec![Match::field("spec"), Match::field(field), Match::Any, Match::field("resources")];
        return Filter::Include(vec![containers("containers"), containers("initContainers")]);
    }
    let dotted = kinds::strategy::reset_fields(group, kind, subresource);
    if dotted.is_empty() {
        return Filter::Everything;
    }
    let paths: Vec<Vec<&str>> = dotted.iter().map(|path| path.split('.').collect()).collect();
    let slices: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    Filter::Exclude(FieldSet::of_fields(&slices))
}

fn with_tracker<R>(cx: &Context, work: impl FnOnce(Tracker<'_>) -> R) -> R {
    let api_version = cx.resource.api_version();
    let reset = reset(&cx.resource, &cx.info.subresource);
    let subresource = cx.info.subresource.as_str();
    work(Tracker {
        schema: cx.resource.schema(),
        api_version: &api_version,
        kind: &cx.resource.kind,
        subresource,
        reset: &reset,
        converter: match &cx.resource.nature {
            Nature::BuiltIn(_) => &OneVersion,
            Nature::Custom(custom) => custom.converter(),
        },
        custom: cx.resource.is_custom(),
        // As in Kubernetes: what the main resource resets, it does so in the version that was asked for only.
        reset_elsewhere: if subresource == "status" { &reset } else { &Filter::Everything },
    })
}

/// Records in `new` which fields `manager` has set, compared with `old`.
pub fn update(cx: &Context, old: Option<&Value>, new: &mut Value, manager: &str, now: &str) {
    let result = with_tracker(cx, |tracker| tracker.update(old, new, manager, now));
    if let Err(error) = result {
        // As in Kubernetes, a write is not refused for the record's sake; the record stays as it was.
        tracing::debug!(%error, request = cx.info.describe(), "managedFields could not be brought up to date");
    }
}

/// Server-side apply: the object that results, its record included.
pub fn apply(
    cx: &Context,
    old: Option<&Value>,
    applied: &Value,
    options: &WriteOptions,
    now: &str,
) -> Result<Value, Status> {
    let own = (cx.resource.api_version(), &*cx.resource.kind);
    let said = (applied["apiVersion"].as_str().unwrap_or_default(), applied["kind"].as_str().unwrap_or_default());
    if said.0.is_empty() || said.1.is_empty() {
        return Err(Status::bad_request(format!(
            "the applied object must say apiVersion ({}) and kind ({})",
            own.0, own.1
        )));
    }
    if said != (own.0.as_str(), own.1) {
        return Err(Status::bad_request(format!(
            "the applied object is {} {}, but the path takes {} {}",
            said.0, said.1, own.0, own.1
        )));
    }
    with_tracker(cx, |tracker| tracker.apply(old, applied, &options.manager, options.force, now)).map_err(Status::from)
}
