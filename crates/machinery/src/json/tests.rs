use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn numbers_are_whole_where_they_are_written_whole() {
    for (text, expected) in [
        ("0", json!(0)),
        ("-0", json!(0)),
        ("-1", json!(-1)),
        ("9223372036854775807", json!(i64::MAX)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_f64)),
        ("-9223372036854775809", json!(-9_223_372_036_854_775_809_f64)),
        ("1.0", json!(1.0)),
        ("1e3", json!(1000.0)),
        ("0.5", json!(0.5)),
    ] {
        let value = parse(text.as_bytes()).unwrap().value;
        assert_eq!(value, expected, "{text}");
        assert_eq!(value.is_i64(), expected.is_i64(), "{text}");
    }
    let mut value = json!([1.0, 1.5, {"a": 1e3}, 1e30]);
    canonical_numbers(&mut value);
    assert_eq!(value, json!([1, 1.5, {"a": 1000}, 1e30]));
}

#[test]
fn what_stands_twice_is_noticed() {
    for (text, value, duplicates) in [
        (r#"{"a":1,"a":2}"#, json!({"a": 2}), vec!["a"]),
        (r#"{"a":{"b":[0,{"c":1,"c":2}]}}"#, json!({"a": {"b": [0, {"c": 2}]}}), vec!["a.b[1].c"]),
        (r#"{"a":1,"a":2,"a":3}"#, json!({"a": 3}), vec!["a"]),
        (r#"[[{"a":1,"a":1}]]"#, json!([[{"a": 1}]]), vec!["[0][0].a"]),
        (r#"{"a":1,"b":1}"#, json!({"a": 1, "b": 1}), vec![]),
    ] {
        let parsed = parse(text.as_bytes()).unwrap();
        assert_eq!(
            (parsed.value, parsed.duplicates),
            (value, duplicates.into_iter().map(str::to_owned).collect()),
            "{text}"
        );
    }
    let many: String = (0..300).map(|n| format!(r#""{n}":0,"{n}":0,"#)).collect();
    let parsed = parse(format!(r#"{{{many}"x":0}}"#).as_bytes()).unwrap();
    assert_eq!(parsed.duplicates.len(), MAX_DUPLICATES);
}

#[test]
fn bad_texts_are_refused() {
    for text in ["", "  ", "{", "{}}", "{} {}", "nul", "[1,]", "{'a':1}", "1e999", "01", "{\"a\"}"] {
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
    assert_eq!(parse(b"\"a\xff\"").unwrap().value, json!("a\u{fffd}"));
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    let error = parse(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("exceeded max depth"), "{error}");
    assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
}

#[test]
fn envelopes() {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"deep": [[{}]]},
        "metadata": {
            "name": "we\"b", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3,
            "labels": {"a": "b", "c": null}, "annotations": {"x": "y"}, "finalizers": ["f"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
    })
    .to_string();
    let envelope = Envelope::scan(object.as_bytes()).unwrap();
    let meta = &envelope.metadata;
    assert_eq!((&*envelope.kind, &*meta.name, &*meta.namespace), ("Pod", "we\"b", "ns"));
    assert_eq!(meta.labels().collect::<Vec<_>>(), [("a", "b"), ("c", "")]);
    assert_eq!((meta.generation, meta.is_deleting(), meta.finalizers.len()), (Some(3), true, 1));
    assert!(matches!(meta.namespace.0, std::borrow::Cow::Borrowed(_)));

    for text in ["{}", r#"{"metadata":null}"#, r#"{"metadata":{"labels":null,"name":null,"finalizers":null}}"#] {
        assert_eq!(Envelope::scan(text.as_bytes()).unwrap(), Envelope::default(), "{text}");
    }
    for text in ["", "[]x", r#"{"metadata":[]}x"#, r#"{"metadata":{"labels":[]}}"#, r#"{"metadata":{"name":1}}"#] {
        assert!(Envelope::scan(text.as_bytes()).is_err(), "{text}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite, not -0", |float| float.is_normal()).prop_map(Value::from),
        "\\PC{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn reads_what_is_written(value in any_json()) {
        let parsed = parse(value.to_string().as_bytes()).unwrap();
        prop_assert_eq!(&parsed.value, &value);
        prop_assert!(parsed.duplicates.is_empty());
        prop_assert_eq!(from_deserializer(&value).unwrap().value, value);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = parse(&bytes);
        let _ = Envelope::scan(&bytes);
    }
}

#[test]
fn problems_are_told_in_the_order_of_the_text() {
    let text = br#"{"b": 1, "x": {"q": 1}, "b": 2, "x": {"q": 2}, "l": [{"z": 1}]}"#;
    let problems = [
        r#"unknown field "x""#,
        r#"duplicate field "b""#,
        r#"unknown field "x.q""#,
        r#"duplicate field "x""#,
        r#"unknown field "l[0].z""#,
    ];
    let expected = [
        r#"unknown field "x""#,
        r#"unknown field "x.q""#,
        r#"duplicate field "b""#,
        r#"duplicate field "x""#,
        r#"unknown field "l[0].z""#,
    ];
    let mut sorted = problems.map(str::to_owned);
    super::sort_by_place(text, &mut sorted);
    assert_eq!(sorted, expected);
    sorted.reverse();
    super::sort_by_place(text, &mut sorted);
    assert_eq!(sorted, expected);
}
