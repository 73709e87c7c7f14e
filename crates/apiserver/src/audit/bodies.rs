//! Bodies as the log has them: JSON, whatever they were sent as. Who chooses how to write chooses not what is seen of it.

use std::io::Read;

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use machinery::schema::Schema;
use machinery::schema::protobuf::{Envelope, from_protobuf};
use serde_json::Value;

use crate::body::Body;
use crate::media;
use crate::request::RequestInfo;

/// Bodies larger than this are not in the log, which then says so.
pub const MOST: usize = 3 * 1024 * 1024;

/// What was sent, until it is written: what it says takes many times its room.
pub struct Sent {
    kind: String,
    body: Bytes,
    /// What the server reads protobuf as, whatever that says of itself.
    takes: Option<Schema<'static>>,
}

impl Sent {
    pub fn new(info: &RequestInfo, headers: &HeaderMap, body: Bytes) -> Sent {
        let kind = media::content_type(headers).to_ascii_lowercase();
        let takes = if is_protobuf(&kind) { takes(info) } else { None };
        Sent { kind, body, takes }
    }

    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// What it says; `None` if it is too large or says nothing that can be shown. It is read as the server reads it, which unpacks
    /// nothing: what it says of its encoding hides nothing.
    pub fn read(&self) -> Option<Value> {
        if self.len() > MOST { None } else { decoded(&self.kind, &self.body, self.takes) }
    }
}

/// What an answer says, if it is whole.
pub fn answered(response: &Response<Body>) -> Option<Value> {
    read_answer(response.headers(), &response.body().bytes()?)
}

/// How many bytes of an answer are to be read; a packed one may have any number that is read.
pub fn weight(response: &Response<Body>) -> usize {
    let len = response.body().len().and_then(|len| usize::try_from(len).ok()).filter(|len| *len <= MOST);
    if is_packed(response.headers()) { len.map_or(0, |_| MOST) } else { len.unwrap_or_default() }
}

fn read_answer(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    if body.len() > MOST {
        return None;
    }
    let kind = media::content_type(headers).to_ascii_lowercase();
    if is_packed(headers) {
        let mut plain = Vec::new();
        let decoder = flate2::read::GzDecoder::new(body);
        decoder.take(MOST as u64 + 1).read_to_end(&mut plain).ok()?;
        return if plain.len() > MOST { None } else { decoded(&kind, &plain, None) };
    }
    decoded(&kind, body, None)
}

fn is_packed(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_some_and(|own| own == "gzip")
}

fn is_protobuf(kind: &str) -> bool {
    kind.contains("protobuf")
}

/// The type of the body that a request to a built-in resource has.
fn takes(info: &RequestInfo) -> Option<Schema<'static>> {
    let resource = kinds::find(&info.group, &info.version, &info.resource)?;
    if matches!(&*info.verb, "delete" | "deletecollection") {
        return kinds::schema_of("", "v1", "DeleteOptions");
    }
    match info.subresource.as_str() {
        "" => Some(resource.schema()),
        part => resource.subresource(part).and_then(|own| kinds::schema_of(own.group, own.version, own.kind)),
    }
}

fn decoded(kind: &str, body: &[u8], takes: Option<Schema<'static>>) -> Option<Value> {
    if is_protobuf(kind) {
        let said = Envelope::read(body).ok()?;
        let (group, version) = said.api_version.split_once('/').unwrap_or(("", said.api_version));
        return from_protobuf(body, takes.or_else(|| kinds::schema_of(group, version, said.kind))?).ok();
    }
    if kind.contains("yaml") {
        return crate::yaml::parse(body).ok().map(|(value, _)| value);
    }
    // what does not say is read as JSON
    machinery::json::parse(body).ok().map(|parsed| parsed.value)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http::HeaderValue;
    use machinery::schema::protobuf::to_protobuf;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_read_in_every_form() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let headers =
            |kind: &'static str| HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let json = map.to_string().into_bytes();
        let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n".to_vec();
        let protobuf = to_protobuf(&map, kinds::schema_of("", "v1", "ConfigMap").unwrap());
        for (kind, body) in [
            ("application/json", &json),
            ("application/merge-patch+json", &json),
            ("application/apply-patch+yaml", &yaml),
            ("application/yaml", &yaml),
            ("application/vnd.kubernetes.protobuf", &protobuf),
        ] {
            let read = read_answer(&headers(kind), body).unwrap_or_else(|| panic!("{kind}"));
            assert_eq!((&read["metadata"]["name"], &read["data"]), (&map["metadata"]["name"], &map["data"]), "{kind}");
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&json).unwrap();
        let mut both = headers("application/json");
        both.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(read_answer(&both, &packed.finish().unwrap()), Some(map));
        // a small body may be a large one
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        bomb.write_all(&vec![b' '; 2 * MOST]).unwrap();
        assert_eq!(read_answer(&both, &bomb.finish().unwrap()), None);
        assert_eq!(read_answer(&headers("application/json"), &vec![b' '; MOST + 1]), None);
    }
}
