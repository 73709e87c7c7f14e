//! Every kind with every field set, as Kubernetes itself writes it in JSON and protobuf: the files in the module k8s.io/api under
//! `testdata/HEAD`. They are not part of this repository; name their directory in CONDUCTOR_KUBERNETES_TESTDATA.
use std::path::PathBuf;
use std::{env, fs};

use conductor_kinds::{kinds, types};
use conductor_machinery::schema::{decode, encode, protobuf};
use serde_json::Value;

/// All kinds there is data for, with their JSON and their protobuf.
fn each(mut check: impl FnMut(&str, Value, Vec<u8>, conductor_machinery::schema::Schema<'static>)) {
    let dir = PathBuf::from(env::var_os("CONDUCTOR_KUBERNETES_TESTDATA").expect("CONDUCTOR_KUBERNETES_TESTDATA"));
    let mut seen = 0;
    for (group, version, kind, id) in kinds() {
        let group = if group.is_empty() { "core" } else { group };
        let file = dir.join(format!("{group}.{version}.{kind}.json"));
        let Ok(json) = fs::read_to_string(&file) else { continue };
        let pb = fs::read(file.with_extension("pb")).unwrap();
        check(&json, serde_json::from_str(&json).unwrap(), pb, types().schema(id));
        seen += 1;
    }
    assert!(seen > 60, "only {seen} kinds");
}

#[test]
#[ignore = "needs CONDUCTOR_KUBERNETES_TESTDATA"]
fn json_is_written_as_kubernetes_writes_it() {
    each(|json, value, _, schema| {
        let decoded = decode(value.clone(), schema).unwrap();
        assert_eq!(decoded.value, value);
        assert_eq!(decoded.unknown, Vec::<String>::new());
        let mut out = Vec::new();
        encode(&decoded.value, schema, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), compact(json));
    });
}

#[test]
#[ignore = "needs CONDUCTOR_KUBERNETES_TESTDATA"]
fn protobuf_is_read_and_written_as_kubernetes_does() {
    let mut different = Vec::new();
    each(|_, value, pb, schema| {
        let read = protobuf::from_protobuf(&pb, schema).unwrap();
        let name = schema.name().unwrap_or("");
        assert_eq!(read, value, "{name}");
        let written = protobuf::to_protobuf(&value, schema);
        assert_eq!(protobuf::from_protobuf(&written, schema).as_ref(), Ok(&value), "{name}");
        if written != pb {
            different.push(name);
        }
    });
    assert_eq!(different, Vec::<&str>::new());
}

/// The text without the spaces between its tokens.
fn compact(text: &str) -> String {
    let (mut out, mut quoted, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        if quoted || !c.is_whitespace() {
            out.push(c);
        }
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = c == '\\' && !escaped;
    }
    out
}
