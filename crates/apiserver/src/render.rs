//! Objects as clients want to see them: whole, as table rows, as metadata; in JSON, YAML or protobuf.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use machinery::schema::protobuf::{to_protobuf, watch_frame};
use machinery::status::Status;
use serde_json::{Value, json};
use store::Entry;

use crate::body::Body;
use crate::media::{Accept, Encoding, Form};
use crate::resource::Resource;
use crate::server::Inner;
use crate::table;
use crate::verbs::list::Page;

/// Shows the objects of one resource in one agreed form.
pub struct Renderer {
    resource: Arc<Resource>,
    accept: Accept,
    server: Arc<Inner>,
    /// How tables show the object itself.
    include: table::Include,
    /// A watch sends the columns once.
    columns_sent: bool,
}

impl Renderer {
    /// For one request.
    pub fn new(resource: &Arc<Resource>, accept: Accept, server: Arc<Inner>) -> Renderer {
        Renderer { resource: resource.clone(), accept, server, include: table::Include::Metadata, columns_sent: false }
    }

    /// With the table option `includeObject`.
    #[must_use]
    pub fn include(mut self, include: table::Include) -> Renderer {
        self.include = include;
        self
    }

    fn plain(&self) -> bool {
        self.accept.form == Form::Object && self.accept.encoding == Encoding::Json && !self.accept.pretty
    }

    /// The stored bytes as this version of the resource shows them.
    fn shown<'a>(&self, entry: &'a Entry) -> Cow<'a, [u8]> {
        if self.resource.is_current(entry) {
            return Cow::Borrowed(&entry.value);
        }
        match self.resource.read(entry) {
            Ok(object) if self.resource.is_custom() => Cow::Owned(serde_json::to_vec(&object).unwrap_or_default()),
            Ok(object) => {
                let mut bytes = Vec::new();
                machinery::schema::encode(&object, self.resource.schema(), &mut bytes);
                Cow::Owned(bytes)
            }
            Err(_) => Cow::Borrowed(&entry.value),
        }
    }

    fn object(&self, entry: &Entry) -> Value {
        serde_json::from_slice(&self.shown(entry)).unwrap_or(Value::Null)
    }

    fn table(&self, objects: &[Value], meta: Option<Value>, columns: bool) -> Value {
        let (include, now) = (self.include, self.server.now_seconds());
        table::table(&self.resource, objects, meta, include, now, columns, self.accept.meta)
    }

    /// One object, as the body of an answer.
    pub fn one(&self, entry: &Entry) -> Body {
        if self.plain() {
            return Body::whole(match self.shown(entry) {
                Cow::Borrowed(_) => entry.value.clone(),
                Cow::Owned(bytes) => Bytes::from(bytes),
            });
        }
        self.value(&self.object(entry))
    }

    /// One object that is not stored as such.
    pub fn value(&self, object: &Value) -> Body {
        match self.accept.form {
            Form::Table => self.encode(&self.table(std::slice::from_ref(object), None, true)),
            Form::Metadata | Form::MetadataList => self.encode_partial(&self.partial(object)),
            Form::Object | Form::Discovery => self.encode_object(object),
        }
    }

    fn partial(&self, object: &Value) -> Value {
        let metadata = self.resource.metadata(object);
        json!({"kind": "PartialObjectMetadata", "apiVersion": self.accept.meta, "metadata": metadata})
    }

    /// Metadata of an object or a list, as [`Renderer::partial`] gives it.
    fn encode_partial(&self, partial: &Value) -> Body {
        match self.accept.encoding {
            Encoding::Protobuf => Body::whole(partial_protobuf(partial)),
            _ => self.encode(partial),
        }
    }

    fn encode_object(&self, object: &Value) -> Body {
        match self.accept.encoding {
            Encoding::Json if !self.accept.pretty => {
                if self.resource.is_custom() {
                    return Body::whole(serde_json::to_vec(object).unwrap_or_default());
                }
                let mut bytes = Vec::new();
                machinery::schema::encode(object, self.resource.schema(), &mut bytes);
                Body::whole(bytes)
            }
            Encoding::Protobuf if !self.resource.is_custom() => {
                Body::whole(to_protobuf(object, self.resource.schema()))
            }
            _ => self.encode(object),
        }
    }

    fn encode(&self, value: &Value) -> Body {
        Body::whole(encode(value, self.accept))
    }

    /// Whether a list is shown as it is stored, without being read.
    pub fn copies(&self, page: &Page) -> bool {
        self.plain() && page.entries.iter().all(|entry| self.resource.is_current(entry))
    }

    /// A list, or a page of one.
    pub fn list(&self, page: Page) -> Body {
        let mut meta = serde_json::Map::new();
        meta.insert("resourceVersion".into(), page.revision.to_string().into());
        // Lists of custom resources say also that nothing is left.
        if !page.continue_token.is_empty() || (self.resource.is_custom() && self.accept.form == Form::Object) {
            meta.insert("continue".into(), page.continue_token.clone().into());
        }
        if let Some(remaining) = page.remaining {
            meta.insert("remainingItemCount".into(), remaining.into());
        }
        let meta = Value::Object(meta);
        if self.copies(&page) {
            let head = if self.resource.is_custom() {
                format!("{{\"apiVersion\":{:?},\"items\":[", self.resource.api_version())
            } else {
                format!(
                    "{{\"kind\":{:?},\"apiVersion\":{:?},\"metadata\":{meta},\"items\":[",
                    self.resource.list_kind,
                    self.resource.api_version()
                )
            };
            let tail = if self.resource.is_custom() {
                format!("],\"kind\":{:?},\"metadata\":{meta}}}", self.resource.list_kind)
            } else {
                "]}".to_owned()
            };
            // Items of built-in lists do not repeat their kind: it stands in front of every stored object.
            let skip = if self.resource.is_custom() { 0 } else { self.kind_prefix() };
            return Body::list(head.into(), page.entries, tail.into(), skip);
        }
        let mut items: Vec<Value> = page.entries.iter().map(|entry| self.object(entry)).collect();
        if self.accept.form == Form::Table {
            return self.encode(&self.table(&items, Some(meta), true));
        }
        if matches!(self.accept.form, Form::Metadata | Form::MetadataList) {
            items = items.iter().map(|object| self.partial(object)).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": self.accept.meta, "metadata": meta, "items": items,
            });
            return self.encode_partial(&list);
        }
        let (kind, api_version) = (self.resource.list_kind.to_string(), self.resource.api_version());
        if self.accept.encoding == Encoding::Protobuf && !self.resource.is_custom() {
            let list = json!({"kind": kind, "apiVersion": api_version, "metadata": meta, "items": items});
            return match protobuf(&list) {
                Some(bytes) => Body::whole(bytes),
                None => self.encode(&list),
            };
        } else if !self.resource.is_custom() {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("kind");
                item.remove("apiVersion");
            }
        }
        self.encode(&json!({"kind": kind, "apiVersion": api_version, "metadata": meta, "items": items}))
    }

    /// How many bytes of a stored object say its kind: `{"kind":"ConfigMap","apiVersion":"v1",`.
    fn kind_prefix(&self) -> usize {
        format!("{{\"kind\":{:?},\"apiVersion\":{:?},", self.resource.kind, self.resource.api_version()).len()
    }

    /// Whether a watch event has an object as it is stored, between [`Renderer::begin`] and [`Renderer::END`].
    pub fn as_stored(&self, entry: &Entry) -> bool {
        self.plain() && self.resource.is_current(entry)
    }

    /// What stands before the object in a watch event, in JSON.
    pub fn begin(out: &mut BytesMut, kind: &str) {
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
    }

    /// What stands behind it.
    pub const END: &[u8] = b"}\n";

    /// A watch event about a stored object.
    pub fn event(&mut self, out: &mut BytesMut, kind: &str, entry: &Entry) {
        if self.plain() {
            let shown = self.shown(entry);
            out.reserve(shown.len() + 40);
            Self::begin(out, kind);
            out.put_slice(&shown);
            out.put_slice(Self::END);
            return;
        }
        let object = self.object(entry);
        self.event_of(out, kind, &object);
    }

    /// The event of an object that left the selection: old content, new revision.
    pub fn left(&mut self, out: &mut BytesMut, previous: &Entry, revision: u64) {
        let mut object = self.object(previous);
        crate::write::meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
        self.event_of(out, "DELETED", &object);
    }

    /// A bookmark.
    pub fn bookmark(&mut self, out: &mut BytesMut, revision: u64, initial_end: bool) {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": *self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": meta});
        self.event_of(out, "BOOKMARK", &object);
    }

    /// The event that ends a watch with an error.
    pub fn error(&mut self, out: &mut BytesMut, status: &Status) {
        let status = status.to_json();
        self.frame(
            out,
            "ERROR",
            status.to_string().into_bytes(),
            |object| protobuf(object).unwrap_or_default(),
            &status,
        );
    }

    fn event_of(&mut self, out: &mut BytesMut, kind: &str, object: &Value) {
        match self.accept.form {
            Form::Table => {
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                let table = self.table(std::slice::from_ref(object), None, columns);
                self.frame(out, kind, table.to_string().into_bytes(), |_| Vec::new(), &table);
            }
            Form::Metadata | Form::MetadataList => {
                let object = self.partial(object);
                self.frame(out, kind, object.to_string().into_bytes(), partial_protobuf, &object);
            }
            Form::Object | Form::Discovery => {
                let body = Renderer { accept: Accept::JSON, ..self.copy() };
                let json = body.encode_object(object).into_bytes().to_vec();
                let schema = self.resource.clone();
                self.frame(out, kind, json, |object| to_protobuf(object, schema.schema()), object);
            }
        }
    }

    fn copy(&self) -> Renderer {
        Renderer {
            resource: self.resource.clone(),
            accept: self.accept,
            server: self.server.clone(),
            include: self.include,
            columns_sent: self.columns_sent,
        }
    }

    fn frame(
        &self,
        out: &mut BytesMut,
        kind: &str,
        json: Vec<u8>,
        protobuf: impl Fn(&Value) -> Vec<u8>,
        object: &Value,
    ) {
        match self.accept.encoding {
            Encoding::Protobuf if self.accept.is_protobuf(self.resource.is_custom()) => {
                let mut frame = Vec::new();
                watch_frame(kind, &protobuf(object), &mut frame);
                out.put_slice(&frame);
            }
            Encoding::Yaml => {
                let event = json!({"type": kind, "object": object});
                out.put_slice(b"---\n");
                out.put_slice(&encode(&event, Accept { encoding: Encoding::Yaml, ..Accept::JSON }));
            }
            _ => {
                Self::begin(out, kind);
                out.put_slice(&json);
                out.put_slice(Self::END);
            }
        }
    }
}

/// Any value in the agreed encoding (protobuf clients get JSON: what has no protobuf form has no other).
pub fn encode(value: &Value, accept: Accept) -> Vec<u8> {
    match accept.encoding {
        Encoding::Yaml => serde_saphyr::to_string(value).unwrap_or_default().into_bytes(),
        _ if accept.pretty => {
            let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
            text.push(b'\n');
            text
        }
        _ => serde_json::to_vec(value).unwrap_or_default(),
    }
}

/// A built-in kind in its protobuf form, found by its own apiVersion and kind; `None` if it has none.
pub fn protobuf(value: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (value["apiVersion"].as_str()?, value["kind"].as_str()?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(to_protobuf(value, kinds::schema_of(group, version, kind)?))
}

/// Metadata in its protobuf form. It is field 1 of every object, and items are field 2 of every list: what writes a
/// ConfigMap writes any object's metadata.
fn partial_protobuf(partial: &Value) -> Vec<u8> {
    let like = if partial.get("items").is_some() { "ConfigMapList" } else { "ConfigMap" };
    kinds::schema_of("", "v1", like).map(|schema| to_protobuf(partial, schema)).unwrap_or_default()
}

/// Like [`encode`], with the fields of built-in kinds in their own order, kind and apiVersion first.
pub fn encode_ordered(value: &Value, accept: Accept) -> Vec<u8> {
    if accept.encoding == Encoding::Yaml || accept.pretty {
        return encode(value, accept);
    }
    let schema = value["kind"].as_str().and_then(|kind| {
        let api_version = value["apiVersion"].as_str().unwrap_or("v1");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        kinds::schema_of(group, version, kind)
    });
    let mut out = Vec::new();
    match schema {
        Some(schema) => machinery::schema::encode(value, schema, &mut out),
        None => out = encode(value, accept),
    }
    out
}
