//! Bodies as the log has them: JSON, whatever they were sent as. Who chooses how to write chooses not what is seen of it.

use std::io::Read;

use http::{HeaderMap, header};
use machinery::schema::protobuf::{Envelope, from_protobuf};
use serde_json::Value;

use crate::media;

/// Bodies larger than this are not in the log, which then says so.
pub const MOST: usize = 3 * 1024 * 1024;

/// What a body says; `None` if it is too large or says nothing that can be shown.
pub fn read(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    if body.len() > MOST {
        return None;
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|own| own == "gzip") {
        let mut plain = Vec::new();
        let decoder = flate2::read::GzDecoder::new(body);
        decoder.take(MOST as u64 + 1).read_to_end(&mut plain).ok()?;
        return if plain.len() > MOST { None } else { decoded(headers, &plain) };
    }
    decoded(headers, body)
}

fn decoded(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let kind = media::content_type(headers).to_ascii_lowercase();
    if kind.contains("protobuf") {
        let said = Envelope::read(body).ok()?;
        let (group, version) = said.api_version.split_once('/').unwrap_or(("", said.api_version));
        return from_protobuf(body, kinds::schema_of(group, version, said.kind)?).ok();
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
            let read = read(&headers(kind), body).unwrap_or_else(|| panic!("{kind}"));
            assert_eq!((&read["metadata"]["name"], &read["data"]), (&map["metadata"]["name"], &map["data"]), "{kind}");
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&json).unwrap();
        let mut both = headers("application/json");
        both.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(read(&both, &packed.finish().unwrap()), Some(map));
        // a small body may be a large one
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        bomb.write_all(&vec![b' '; 2 * MOST]).unwrap();
        assert_eq!(read(&both, &bomb.finish().unwrap()), None);
        assert_eq!(read(&headers("application/json"), &vec![b' '; MOST + 1]), None);
    }
}
