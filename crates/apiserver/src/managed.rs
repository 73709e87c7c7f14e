//! Who owns which field: the API server's side of managedFields and server-side apply.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use machinery::apply::{ConvertError, Converter, FieldSet, Filter, OneVersion, Tracker};
use machinery::schema::{Said, Schema};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;

use crate::context::{Context, WriteOptions};
use crate::custom::Definition;
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
    let dotted = kinds::strategy::reset_fields(group, kind, subresource);
    if dotted.is_empty() {
        return Filter::Everything;
    }
    let paths: Vec<Vec<&str>> = dotted.iter().map(|path| path.split('.').collect()).collect();
    let slices: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    Filter::Exclude(FieldSet::of_fields(&slices))
}

/// Does work that may have to convert objects to other versions. Where that takes a webhook, the work stops at the first
/// conversion that is missing, waits for it and is done anew with its answer: it is pure, so nothing is lost.
async fn tracked<R>(cx: &Context, work: impl Fn(Tracker<'_>) -> R) -> Result<R, String> {
    let custom = match &cx.resource.nature {
        Nature::BuiltIn(_) => return Ok(with_tracker(cx, builtin(&cx.resource), &work)),
        Nature::Custom(custom) => custom,
    };
    let Some(webhook) = custom.webhook() else { return Ok(with_tracker(cx, custom.definition(), &work)) };
    let mut known = Answers { definition: custom.definition(), known: Vec::new(), missing: Default::default() };
    for _ in 0..CONVERSIONS {
        let result = with_tracker(cx, &known, &work);
        let Some((object, api_version)) = known.missing.take() else { return Ok(result) };
        let converted = webhook.convert_one(object.clone(), &api_version).await;
        known.known.push((object, api_version, converted));
    }
    Err(format!("more than {CONVERSIONS} conversions would be needed"))
}

/// How many conversions one write's record may take: each manager's version, to and fro.
const CONVERSIONS: usize = 64;

/// The answers of a webhook so far.
struct Answers<'a> {
    definition: &'a Definition,
    known: Vec<(Value, String, Result<Value, String>)>,
    missing: Cell<Option<(Value, String)>>,
}

impl Converter for Answers<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConvertError> {
        if object["apiVersion"] == api_version || self.definition.schema(api_version).is_none() {
            return self.definition.convert(object, api_version);
        }
        let known = self.known.iter().find(|(own, version, _)| version == api_version && own == object);
        match known {
            Some((_, _, answer)) => answer.clone().map_err(ConvertError::Failed),
            None => {
                // The first one that is missing: what comes after it may depend on it.
                let first = self.missing.take().unwrap_or_else(|| (object.clone(), api_version.to_owned()));
                self.missing.set(Some(first));
                Err(ConvertError::Failed("a conversion is still missing".into()))
            }
        }
    }

    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        Converter::schema(self.definition, api_version)
    }
}

/// To the other version of a built-in kind, if it has one.
fn builtin(resource: &Resource) -> &'static dyn Converter {
    match kinds::twins::pair(&resource.group, &resource.kind) {
        Some(pair) => pair,
        None => &OneVersion,
    }
}

fn with_tracker<R>(cx: &Context, converter: &dyn Converter, work: impl FnOnce(Tracker<'_>) -> R) -> R {
    let api_version = cx.resource.api_version();
    let reset = reset(&cx.resource, &cx.info.subresource);
    let subresource = cx.info.subresource.as_str();
    let pair = if cx.resource.is_custom() { None } else { kinds::twins::pair(&cx.resource.group, &cx.resource.kind) };
    work(Tracker {
        schema: cx.resource.schema(),
        api_version: &api_version,
        kind: &cx.resource.kind,
        subresource,
        reset: &reset,
        converter,
        custom: cx.resource.is_custom(),
        // As in Kubernetes: what the main resource resets, it does so in the version that was asked for only.
        reset_elsewhere: if subresource == "status" || pair.is_some() { &reset } else { &Filter::Everything },
    })
}

/// Records in `new` which fields `manager` has set, compared with `old`: as Kubernetes does, with what was `said`, although it
/// is stored in another form.
pub async fn update(cx: &Context, old: Option<&Value>, new: &mut Value, said: &[Said], manager: &str, now: &str) {
    let mut before = Vec::new();
    for Said { place, value, within } in said {
        if place == "/metadata/managedFields" {
            // A wish to forget them, which the way through another version may have dropped.
            put(new, place, Some(value.clone()));
            continue;
        }
        // Outside of lists that are compared as a whole, an empty list is only seen where none is written, too.
        if *within || new.pointer(place) == Some(&Value::Null) {
            before.push((place, put(new, place, Some(value.clone()))));
        }
    }
    record(cx, old, new, manager, now).await;
    for (place, value) in before.into_iter().rev() {
        put(new, place, value);
    }
}

/// Puts a field in its place, or takes it away, and gives what was there.
fn put(object: &mut Value, place: &str, value: Option<Value>) -> Option<Value> {
    let (parent, name) = place.rsplit_once('/')?;
    let fields = object.pointer_mut(parent)?.as_object_mut()?;
    let name = name.replace("~1", "/").replace("~0", "~");
    match value {
        Some(value) => fields.insert(name, value),
        None => fields.remove(&name),
    }
}

async fn record(cx: &Context, old: Option<&Value>, new: &mut Value, manager: &str, now: &str) {
    let result = if cx.resource.needs_webhook() {
        let given = &*new;
        let updated = tracked(cx, |tracker| {
            let mut copy = given.clone();
            let result = tracker.update(old, &mut copy, manager, now).map_err(|error| error.to_string());
            (copy, result)
        });
        updated.await.and_then(|(updated, result)| {
            *new = updated;
            result
        })
    } else {
        let converter: &dyn Converter = match &cx.resource.nature {
            Nature::BuiltIn(_) => builtin(&cx.resource),
            Nature::Custom(custom) => custom.definition(),
        };
        with_tracker(cx, converter, |tracker| tracker.update(old, new, manager, now)).map_err(|error| error.to_string())
    };
    if let Err(error) = result {
        // As in Kubernetes, a write is not refused for the record's sake; the record is gone.
        tracing::debug!(%error, request = cx.info.describe(), "managedFields could not be brought up to date");
    }
}

/// Server-side apply: the object that results, its record included.
pub async fn apply(
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
    let applied = tracked(cx, |tracker| tracker.apply(old, applied, &options.manager, options.force, now)).await;
    applied.map_err(Status::internal)?.map_err(|error| match cx.resource.is_secret() {
        true => error.without_values().into(),
        false => error.into(),
    })
}
