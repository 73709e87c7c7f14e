//! The views of volumes.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::amount::Amount;
use crate::errors::{FieldError, Path};
use crate::extract::{name, revision, seconds, text};
use crate::rules::{Attribute, Capacity, Kind, Match, Rules, Value, Want, texts};
use crate::selector::{Labels, Selector, Topology, labels_of};
use crate::views::{Ask, By, ClaimRef, ClassAsk, Offer, Phase, Profile, Reclaim, Shape, Source, Wish};
use crate::volumes::{BETA_CLASS, BOUND_BY_CONTROLLER, DEFAULT_CLASS, PROVISIONER, RECLAIM, SELECTED_NODE};

/// The rules of volumes: mode and attributes' class equal, the size at least, access modes all there, the fewest extra modes first.
pub fn rules() -> Arc<Rules> {
    let equal = |name: &str| Attribute {
        name: name.into(),
        alias: None,
        kind: Kind::Text,
        matching: Match::Equal,
        values: Vec::new(),
        required: false,
    };
    Arc::new(Rules {
        claim: "PersistentVolumeClaim".into(),
        resource: "PersistentVolume".into(),
        attributes: vec![equal("volumeMode"), equal(ATTRIBUTES)],
        capacities: vec![Capacity { name: "storage".into(), exact: false }],
        max_claims: 1,
        volumes: true,
    })
}

const ATTRIBUTES: &str = "volumeAttributesClassName";

/// What must be equal: the mode, and the class of the attributes, where none is one, too.
fn attributes(spec: &Json) -> [Value; 2] {
    let mode = name(&spec["volumeMode"]).unwrap_or_else(|| "Filesystem".into());
    [Value::Text(mode), Value::Text(text(&spec[ATTRIBUTES]))]
}

/// The class a volume or claim writes: the field, or the annotation that was there before it.
fn class(object: &Json) -> Option<Arc<str>> {
    let field = object["spec"]["storageClassName"].as_str();
    object["metadata"]["annotations"][BETA_CLASS].as_str().or(field).map(Arc::from)
}

/// A PersistentVolume as matching sees it.
pub fn offer(object: &Json) -> Offer {
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    let terms = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let storage = Amount::from_json(&spec["capacity"]["storage"]).unwrap_or_default();
    let claim = &spec["claimRef"];
    let by = if meta["annotations"][BOUND_BY_CONTROLLER].is_string() { By::Manager } else { By::Admin };
    let refs: Vec<ClaimRef> = claim
        .is_object()
        .then(|| ClaimRef {
            uid: text(&claim["uid"]),
            namespace: text(&claim["namespace"]),
            name: text(&claim["name"]),
            amounts: Box::new([storage]),
            by,
        })
        .into_iter()
        .collect();
    Offer {
        name: text(&meta["name"]),
        uid: text(&meta["uid"]),
        revision: revision(object),
        shape: Arc::new(Shape {
            class: class(object).filter(|c| !c.is_empty()),
            attributes: Box::new(attributes(spec).map(Some)),
            capabilities: Arc::from([]),
            modes: texts(&spec["accessModes"]).unwrap_or_default(),
            topology: Topology::from_terms(terms, &Path::root()).ok().map(Arc::new),
        }),
        capacity: Box::new([storage]),
        labels: labels_of(meta.get("labels")),
        phase: Phase::parse(object["status"]["phase"].as_str().unwrap_or_default()),
        deleting: !meta["deletionTimestamp"].is_null(),
        refs: refs.into(),
        max_claims: 1,
    }
}

/// A PersistentVolumeClaim as matching sees it. `scheduled`: whether a Pod with a node names it; `node`: that node's labels, if known.
pub fn ask(object: &Json, scheduled: bool, node: Option<Labels>) -> Result<Ask, Vec<FieldError>> {
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    let path = Path::root().field("spec");
    let mut errors = Vec::new();
    let request = &spec["resources"]["requests"]["storage"];
    let storage = match request {
        Json::Null => Amount::ZERO,
        value => Amount::from_json(value).unwrap_or_else(|e| {
            errors.push(path.field("resources.requests.storage").error(e.to_string()));
            Amount::ZERO
        }),
    };
    // who lost its volume has it again as it was, though it had asked for more
    let had = Amount::from_json(&object["status"]["capacity"]["storage"]).ok();
    let lost = object["status"]["phase"].as_str() == Some("Lost");
    let storage = had.filter(|_| lost).map_or(storage, |had| had.min(storage));
    let selector = match &spec["selector"] {
        Json::Null => None,
        value => Selector::from_json(value, &path.field("selector")).map_or_else(
            |e| {
                errors.push(e);
                None
            },
            |s| Some(Arc::new(s)).filter(|s| !s.is_empty()),
        ),
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Ask {
        uid: text(&meta["uid"]),
        namespace: text(&meta["namespace"]),
        name: text(&meta["name"]),
        since: seconds(meta["creationTimestamp"].as_str().unwrap_or_default()),
        wish: Arc::new(Wish {
            class: match class(object) {
                None => ClassAsk::Unset,
                Some(class) if class.is_empty() => ClassAsk::Without,
                Some(class) => ClassAsk::Named(class),
            },
            attributes: Box::new(attributes(spec).map(|value| Some(Want::Value(value)))),
            capabilities: Arc::from([]),
            modes: texts(&spec["accessModes"]).unwrap_or_default(),
            selector,
            expression: None,
            node,
            content: ["dataSource", "dataSourceRef"].iter().any(|from| spec[*from].is_object()),
        }),
        lower: Box::new([storage]),
        upper: Box::new([None]),
        resource_name: name(&spec["volumeName"]),
        needed: scheduled || meta["annotations"][SELECTED_NODE].is_string(),
        barred: Box::default(),
        bound: matches!(object["status"]["phase"].as_str(), Some("Bound" | "Lost")),
    })
}

/// A StorageClass as matching sees it; ours make volumes, others' are left to their provisioners.
pub fn profile(object: &Json, served: bool) -> Profile {
    let ours = object["provisioner"].as_str() == Some(PROVISIONER);
    Profile {
        name: text(&object["metadata"]["name"]),
        // what is behind ours knows nothing of classes of attributes
        attributes: Box::new([None, Some(Source::OneOf(vec![Value::Text("".into())]))]),
        capacity: Box::new([None]),
        capabilities: None,
        modes: None,
        provisions: ours,
        late: object["volumeBindingMode"].as_str() == Some("WaitForFirstConsumer"),
        reclaim: if ours && object["metadata"]["annotations"][RECLAIM] == "Recycle" {
            Some(Reclaim::Recycle)
        } else {
            object["reclaimPolicy"].as_str().and_then(Reclaim::parse).or(Some(Reclaim::Delete))
        },
        deleting: !object["metadata"]["deletionTimestamp"].is_null(),
        served,
    }
}

/// The class that stands in for claims that name none: of several defaults the newest, then the first by name.
pub fn default_class<'c>(classes: impl IntoIterator<Item = &'c Json>) -> Option<Arc<str>> {
    let beta = "storageclass.beta.kubernetes.io/is-default-class";
    let is_default =
        |c: &&Json| [DEFAULT_CLASS, beta].iter().any(|a| c["metadata"]["annotations"][a].as_str() == Some("true"));
    let age = |c: &&Json| {
        let made = seconds(c["metadata"]["creationTimestamp"].as_str().unwrap_or_default());
        (std::cmp::Reverse(made), text(&c["metadata"]["name"]))
    };
    classes.into_iter().filter(is_default).min_by_key(age).map(|c| text(&c["metadata"]["name"]))
}
