//! OpenAPI documents, made from the same schemas that requests are checked against.
//!
//! A document is made when it is first asked for and kept, compressed, until the catalog changes. Before that it costs
//! nothing; its hash, which the index has, is that of what it is made from.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use serde_json::Value;

use crate::body::Body;
use crate::catalog::Catalog;
use crate::dispatch::answer;
use crate::heavy::aside;
use crate::resource::{Nature, Resource};
use crate::server::Inner;

mod custom;
mod descriptions;
mod documents;
mod hash;
mod marks;
mod operations;
mod parameters;
mod protobuf;
mod schemas;
mod templates;
#[cfg(test)]
mod tests;
mod v2;

use descriptions::Descriptions;
use documents::Document;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// How clients ask for it; no media type may have an `@`.
const PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The same of newer documents, which are JSON all the same.
const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const PROTOBUF_V3_ASKED: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// Documents already made.
#[derive(Default)]
pub struct Cache {
    generation: usize,
    documents: HashMap<String, Made>,
}

/// A document, or at least its hash.
#[derive(Clone)]
struct Made {
    hash: Arc<str>,
    compressed: Option<Bytes>,
}

/// What documents are made from.
struct Site<'a> {
    catalog: &'a Catalog,
    /// The schema of a custom resource, as its definition has it.
    custom: &'a dyn Fn(&Resource) -> Value,
}

/// What a request asks for.
enum Asked {
    Index,
    V3(Document),
    V2,
    V2Protobuf,
}

impl Asked {
    fn parse(catalog: &Catalog, path: &str, headers: &HeaderMap) -> Option<Asked> {
        if path == "/openapi/v2" {
            return Some(if wants_protobuf(headers) { Asked::V2Protobuf } else { Asked::V2 });
        }
        match path.strip_prefix("/openapi/v3")?.trim_matches('/') {
            "" => Some(Asked::Index),
            name => Document::find(catalog, name).map(Asked::V3),
        }
    }

    fn name(&self) -> String {
        match self {
            Asked::Index => "v3".to_owned(),
            Asked::V3(document) => format!("v3/{}", document.name()),
            Asked::V2 => "v2".to_owned(),
            Asked::V2Protobuf => "v2.protobuf".to_owned(),
        }
    }

    fn hash(&self, site: &Site<'_>) -> String {
        match self {
            Asked::V3(document) => hash::of_document(document, site),
            other => hash::of_all(&other.name(), site),
        }
    }

    fn write(&self, site: &Site<'_>, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Asked::Index => serde_json::to_writer(out, &hash::index(site)).map_err(io::Error::from),
            Asked::V3(document) => document.write(site, &Descriptions::load(), out),
            Asked::V2 => v2::write(site, &Descriptions::load(), false, out),
            Asked::V2Protobuf => v2::write(site, &Descriptions::load(), true, out),
        }
    }
}

/// A custom resource's schema as it was written, with its descriptions: requests are checked without them, so only the
/// stored definition has them.
fn defined(server: &Inner, resource: &Resource) -> Option<Value> {
    let Nature::Custom(custom) = &resource.nature else { return None };
    let entry = server.store.get(crate::controllers::crds::TABLE, &custom.definition().name)?;
    let mut definition: Value = serde_json::from_slice(&entry.value).ok()?;
    let versions = definition["spec"]["versions"].as_array_mut()?;
    let version = versions.iter_mut().find(|version| version["name"] == *resource.version)?;
    Some(version["schema"]["openAPIV3Schema"].take()).filter(Value::is_object)
}

fn wants_protobuf(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accept.flat_map(|list| list.split(',')).map(|of| of.split(';').next().unwrap_or_default().trim());
    let known = [JSON, "*/*", "application/*", PROTOBUF, PROTOBUF_ASKED];
    types.find(|of| known.contains(of)).is_some_and(|of| of == PROTOBUF || of == PROTOBUF_ASKED)
}

/// Serves `/openapi/v2`, `/openapi/v3` and what is below. `hash` is the parameter of this name: the document's hash as the
/// client found it in the index. A document with its hash in the address never changes, so clients keep it for good.
pub fn serve(server: &Arc<Inner>, path: &str, hash: Option<&str>, headers: &HeaderMap) -> Response<Body> {
    let generation = server.generation.load(Ordering::Acquire);
    let catalog = server.catalog();
    let Some(asked) = Asked::parse(&catalog, path, headers) else {
        return bare(404);
    };
    if !accepted(&asked, headers) {
        let mut response = bare(406);
        put(&mut response, header::VARY, "Accept");
        return response;
    }
    let custom = |resource: &Resource| defined(server, resource).unwrap_or_else(|| custom::tree(resource.schema(), 0));
    let site = Site { catalog: &catalog, custom: &custom };
    if let (Asked::Index, others @ [_, ..]) = (&asked, &*server.remotes.documents()) {
        // What others have changes when they say so: nothing is kept.
        let mut index = aside(|| hash::index(&site));
        others.iter().for_each(|(name, document)| index["paths"][name] = document.clone());
        return answer(200, Body::whole(index.to_string()), JSON);
    }
    let name = asked.name();
    let kept = server.documents.lock().get(generation, &name);
    // With thousands of definitions this takes a while, which nobody else is to wait for.
    let mut made = kept.unwrap_or_else(|| aside(|| Made { hash: asked.hash(&site).into(), compressed: None }));
    if matches!(asked, Asked::V3(_)) && hash.is_some_and(|hash| hash != &*made.hash) {
        let mut response = answer(301, Body::empty(), JSON);
        put(&mut response, header::LOCATION, &format!("{path}?hash={}", made.hash));
        put(&mut response, header::ETAG, &format!("\"{}\"", made.hash));
        put(&mut response, header::VARY, "Accept");
        return response;
    }
    let kind = if matches!(asked, Asked::V2Protobuf) { PROTOBUF } else { JSON };
    let etag = format!("\"{}\"", made.hash);
    let mut response = if is_known(headers, &etag) {
        bare(304)
    } else {
        // Made without the lock: another request may make it, too, which costs less than to hold up the rest.
        let compressed =
            match made.compressed.take().map_or_else(|| aside(|| compress(|out| asked.write(&site, out))), Ok) {
                Ok(compressed) => compressed,
                Err(error) => return answer(500, Body::whole(format!("{error}\n")), TEXT),
            };
        made.compressed = Some(compressed.clone());
        aside(|| body(headers, &compressed, kind))
    };
    server.documents.lock().keep(generation, name, made);
    let caching = if hash.is_some() { "public, immutable, max-age=31536000" } else { "no-cache, private" };
    put(&mut response, header::CACHE_CONTROL, caching);
    put(&mut response, header::ETAG, &etag);
    put(&mut response, header::VARY, "Accept, Accept-Encoding");
    response
}

/// An answer that is only its code.
fn bare(code: u16) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response
}

/// Whether the client takes a document in a form that it has. Of the old one and of the index it need not say.
fn accepted(asked: &Asked, headers: &HeaderMap) -> bool {
    let Asked::V3(_) = asked else { return true };
    [JSON, PROTOBUF_V3, PROTOBUF_V3_ASKED].iter().any(|media| crate::media::accepts(headers, media))
}

impl Cache {
    fn get(&mut self, generation: usize, name: &str) -> Option<Made> {
        self.turn(generation);
        self.documents.get(name).cloned()
    }

    fn keep(&mut self, generation: usize, name: String, made: Made) {
        self.turn(generation);
        let known = self.documents.get(&name).is_some_and(|known| known.compressed.is_some());
        if self.generation == generation && !known {
            self.documents.insert(name, made);
        }
    }

    /// Forgets what an older catalog made.
    fn turn(&mut self, generation: usize) {
        if self.generation < generation {
            *self = Cache { generation, ..Cache::default() };
        }
    }
}

fn put(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|list| list.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag
    })
}

fn compress(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Bytes> {
    // Types and paths are written in small pieces.
    let mut out = io::BufWriter::with_capacity(32 * 1024, GzEncoder::new(Vec::new(), Compression::default()));
    write(&mut out)?;
    let encoder = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    let mut compressed = encoder.finish()?;
    compressed.shrink_to_fit();
    Ok(compressed.into())
}

fn body(headers: &HeaderMap, compressed: &Bytes, kind: &'static str) -> Response<Body> {
    let accept = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let is_refused = |of: &str| of.split_once("q=").is_some_and(|(_, quality)| quality.trim().parse() == Ok(0.0));
    if accept.flat_map(|list| list.split(',')).any(|of| of.trim().starts_with("gzip") && !is_refused(of)) {
        let mut response = answer(200, Body::whole(compressed.clone()), kind);
        put(&mut response, header::CONTENT_ENCODING, "gzip");
        return response;
    }
    let mut plain = Vec::with_capacity(compressed.len() * 10);
    match GzDecoder::new(&**compressed).read_to_end(&mut plain) {
        Ok(_) => answer(200, Body::whole(plain), kind),
        Err(error) => answer(500, Body::whole(format!("{error}\n")), TEXT),
    }
}
