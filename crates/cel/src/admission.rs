//! The types of admission variables.

use std::sync::Arc;

use crate::decl::{DeclType, Kind, ListSemantics};
use crate::types::Type;

fn string() -> Arc<DeclType> {
    Arc::new(DeclType::plain(Type::String))
}

fn object(name: &str, fields: Vec<(&str, Arc<DeclType>)>) -> Arc<DeclType> {
    Arc::new(DeclType::object(name, fields.into_iter().map(|(n, d)| (n.to_owned(), d, false))))
}

fn strings(name: &str, fields: &[&str]) -> Arc<DeclType> {
    object(name, fields.iter().map(|f| (*f, string())).collect())
}

fn list(element: Arc<DeclType>) -> Arc<DeclType> {
    Arc::new(DeclType::list(element, ListSemantics::Atomic, None))
}

fn map(value: Arc<DeclType>) -> Arc<DeclType> {
    Arc::new(DeclType::map(value, None))
}

/// The admission request, without its objects.
pub(crate) fn request() -> Arc<DeclType> {
    let kind = strings("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = strings("kubernetes.GroupVersionResource", &["group", "version", "resource"]);
    let user = object(
        "kubernetes.UserInfo",
        vec![("username", string()), ("uid", string()), ("groups", list(string())), ("extra", map(list(string())))],
    );
    let mut fields = vec![
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("requestKind", kind),
        ("requestResource", resource),
        ("userInfo", user),
        ("dryRun", Arc::new(DeclType::plain(Type::Bool))),
        ("options", Arc::new(DeclType::any())),
    ];
    for name in ["subResource", "requestSubResource", "name", "namespace", "operation"] {
        fields.push((name, string()));
    }
    let decl = object("kubernetes.AdmissionRequest", fields);
    with_plain_keywords(&decl)
}

/// `request.namespace` and its like can be written as they are, unlike in custom resources.
fn with_plain_keywords(decl: &Arc<DeclType>) -> Arc<DeclType> {
    let Kind::Object(fields) = decl.kind() else { return decl.clone() };
    let mut fields = fields.clone();
    if let Some(field) = fields.get("__namespace__").cloned() {
        fields.insert("namespace".to_owned(), field);
    }
    Arc::new(DeclType::new(decl.name(), Kind::Object(fields), 0, decl.min_serialized()))
}

/// The namespace of the request's object.
pub(crate) fn namespace() -> Arc<DeclType> {
    let timestamp = Arc::new(DeclType::new("timestamp", Kind::DateTime, 32, 21));
    let condition = object(
        "kubernetes.NamespaceCondition",
        vec![
            ("type", string()),
            ("status", string()),
            ("message", string()),
            ("reason", string()),
            ("lastTransitionTime", timestamp.clone()),
        ],
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        vec![
            ("name", string()),
            ("generateName", string()),
            ("namespace", string()),
            ("labels", map(string())),
            ("annotations", map(string())),
            ("UID", string()),
            ("creationTimestamp", timestamp.clone()),
            ("deletionGracePeriodSeconds", Arc::new(DeclType::plain(Type::Int))),
            ("deletionTimestamp", timestamp),
            ("generation", Arc::new(DeclType::plain(Type::Int))),
            ("resourceVersion", string()),
            ("finalizers", list(string())),
        ],
    );
    let spec = object("kubernetes.NamespaceSpec", vec![("finalizers", list(string()))]);
    let status = object("kubernetes.NamespaceStatus", vec![("conditions", list(condition)), ("phase", string())]);
    object(
        "kubernetes.Namespace",
        vec![("metadata", with_plain_keywords(&metadata)), ("spec", spec), ("status", status)],
    )
}
