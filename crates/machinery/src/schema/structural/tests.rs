use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(schema: &Value) -> Structural {
    Structural::from_crd_schema(schema, &Path::root("s"), StructuralOptions::default()).unwrap()
}

/// An object schema with one property `a`.
fn of(a: Value) -> Value {
    json!({"type": "object", "properties": {"a": a}})
}

fn texts(errors: field::Errors) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    let check = |schema: Value, expect: &[&str]| {
        let errors = Structural::from_crd_schema(&schema, &Path::root("s"), StructuralOptions::default());
        assert_eq!(errors.err().map(texts).unwrap_or_default(), expect, "{schema}");
    };
    check(of(json!({"type": "string"})), &[]);
    check(json!({"type": "string"}), &["s.type: Invalid value: \"string\": must be object at the root"]);
    check(of(json!({})), &["s.properties[a].type: Required value: must not be empty for specified object fields"]);
    check(of(json!({"type": "array"})), &["s.properties[a].items: Required value: must be specified"]);
    check(
        json!({"type": "object", "anyOf": [{"properties": {"b": {"type": "string"}}}]}),
        &[
            "s.anyOf[0].properties[b].type: Forbidden: must be empty to be structural",
            "s.properties[b]: Required value: because it is defined in s.anyOf[0].properties[b]",
        ],
    );
    let int_or_string = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    check(of(int_or_string), &[]);
    check(
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        &[
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
    check(of(json!({"$ref": "x"})), &["s.properties[a].$ref: Forbidden: $ref is not supported"]);
    check(
        of(json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})),
        &["s.properties[a].items.properties[k].default: Required value: this property is in \
           x-kubernetes-list-map-keys, so it must have a default or be a required property"],
    );
    check(
        of(
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        ),
        &["s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    );
    check(
        of(json!({"type": "integer", "default": "x"})),
        &["s.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\""],
    );
    check(
        of(json!({"type": "string", "x-kubernetes-int-or-string": true, "default": true})),
        &["s.properties[a].default: Invalid value: \"boolean\":  in body must be of type string: \"boolean\""],
    );
    check(
        of(json!({"type": "strange", "default": 1})),
        &[
            "s.properties[a].default: Invalid value: \"integer\":  in body must be of type strange: \"integer\"",
            "s.properties[a].type: Unsupported value: \"strange\": supported values: \"array\", \"boolean\", \
             \"integer\", \"number\", \"object\", \"string\"",
        ],
    );
    check(
        of(json!({"type": "object", "default": {"b": 1}})),
        &["s.properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields"],
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "x", "fieldPath": ".a"}, {"rule": "x", "fieldPath": "a"}]}),
        &["s.x-kubernetes-validations[1].fieldPath: Invalid value: \"a\": must be a valid path"],
    );
}

/// A type of metadata.
fn metadata() -> Structural {
    let text = json!({"type": "string"});
    read(&json!({"type": "object", "properties": {
        "name": text, "labels": {"type": "object", "additionalProperties": text}}}))
}

/// A schema with an embedded object and defaults for its fields.
fn embedded(properties: Value) -> Value {
    of(json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": properties}))
}

#[test]
fn defaults_of_metadata_are_judged_with_the_object_around_them() {
    let metadata = metadata();
    let options = StructuralOptions { metadata: Some(metadata.schema()), ..StructuralOptions::default() };
    let check = |schema: Value, expect: &[&str]| {
        let errors = Structural::from_crd_schema(&schema, &Path::empty(), options);
        let texts = errors.err().map(texts).unwrap_or_default();
        let begins = |(text, start): (&String, &&str)| text.starts_with(start);
        assert!(texts.len() == expect.len() && texts.iter().zip(expect).all(begins), "{schema} {texts:?}");
    };
    check(embedded(json!({"metadata": {"type": "object", "default": {"name": "x", "unknown": 1}}})), &[]);
    check(embedded(json!({"apiVersion": {"type": "string", "default": "a/b"}})), &[]);
    check(
        embedded(json!({"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "%"}}}})),
        &["properties[a].properties[metadata].properties[name].default: Invalid value: \"%\": must result in valid \
           metadata: metadata.name: Invalid value: \"%\": may not contain '%'"],
    );
    check(
        embedded(json!({"kind": {"type": "string", "default": 42}})),
        &["properties[a].properties[kind].default: Invalid value: 42: must result in valid metadata: kind: Invalid \
           value: 42: must be a string"],
    );
    check(
        embedded(json!({"metadata": {"type": "object", "properties": {"labels": {"type": "object", "default": 42}}}})),
        &["properties[a].properties[metadata].properties[labels].default: Invalid value: 42: must result in valid \
           metadata: metadata: Invalid value: {\"labels\":42}: "],
    );
    check(
        json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}}}),
        &["default.apiVersion: Required value", "default.kind: Required value"],
    );
}

#[test]
fn defaults_of_metadata_have_only_fields_that_are_known() {
    let metadata = metadata();
    let check = |schema: Value, expect: Value| {
        let mut object = json!({"a": {"metadata": {}}});
        let built = Structural::trusted(&schema, Some(metadata.schema()));
        built.default(&mut object);
        assert_eq!(object["a"]["metadata"], expect);
        let mut object = json!({"a": {}});
        built.default(&mut object);
        object
    };
    let each = json!({"name": {"type": "string", "default": "x"}, "unknown": {"type": "string", "default": "y"}});
    check(embedded(json!({"metadata": {"type": "object", "properties": each}})), json!({"name": "x"}));
    let whole = embedded(json!({"metadata": {"type": "object", "default": {"name": "x", "unknown": "y"}}}));
    assert_eq!(check(whole, json!({})), json!({"a": {"metadata": {"name": "x"}}}));
}

#[test]
fn values_are_validated_in_kubernetes_words() {
    let check = |a: Value, value: Value, expect: &[&str]| {
        assert_eq!(texts(read(&of(a.clone())).validate(&json!({"a": value}), None)), expect, "{a} {value}");
    };
    check(
        json!({"type": "integer"}),
        json!("x"),
        &["a: Invalid value: \"string\": a in body must be of type integer: \"string\""],
    );
    check(
        json!({"type": "integer", "maximum": 10}),
        json!(11),
        &["a: Invalid value: 11: a in body should be less than or equal to 10"],
    );
    check(
        json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
        json!(10),
        &["a: Invalid value: 10: a in body should be less than 10"],
    );
    check(
        json!({"type": "string", "enum": ["x", "b"]}),
        json!("z"),
        &["a: Unsupported value: \"z\": supported values: \"x\", \"b\""],
    );
    check(json!({"type": "string", "maxLength": 2}), json!("abc"), &["a: Too long: may not be more than 2 bytes"]);
    check(
        json!({"type": "string", "pattern": "^b"}),
        json!("a"),
        &["a: Invalid value: \"a\": a in body should match '^b'"],
    );
    check(
        json!({"type": "string", "format": "date"}),
        json!("x"),
        &["a: Invalid value: \"x\": a in body must be of type date: \"x\""],
    );
    check(json!({"type": "string", "format": "unheard"}), json!("x"), &[]);
    check(json!({"type": "number", "format": "float"}), json!(3.402_823_5e38), &[]);
    check(
        json!({"type": "number", "format": "float"}),
        json!(3.41e38),
        &["<nil>: Invalid value: \"\": Checked value must be of type number with format float in a"],
    );
    check(json!({"type": "object", "required": ["b"]}), json!({}), &["a.b: Required value"]);
    check(
        json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
        json!(["x", "y"]),
        &["a: Too many: 2: must have at most 1 item"],
    );
    check(
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        json!(["x", "x"]),
        &["a[1]: Duplicate value: \"x\""],
    );
    check(
        json!({"x-kubernetes-int-or-string": true}),
        json!(1.5),
        &["a: Invalid value: \"number\": a in body must be of type integer,string: \"number\""],
    );
    check(json!({"type": "string", "nullable": true}), json!(null), &[]);
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"k": 1}),
        &["a.k: Invalid value: \"integer\": a.k in body must be of type string: \"integer\""],
    );
    check(
        json!({"type": "string", "oneOf": [{"minLength": 1}, {"maxLength": 5}]}),
        json!("abc"),
        &[
            "<nil>: Invalid value: \"\": \"a\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ],
    );
    check(
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        json!({"apiVersion": "v1"}),
        &["a.kind: Required value"],
    );
}

#[test]
fn what_did_not_change_is_let_pass() {
    let schema = read(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
        "atomic": {"type": "array", "items": {"type": "integer", "maximum": 1}}}}));
    let old = json!({"a": "long", "l": [{"k": "x", "v": 5}], "atomic": [5]});
    let check = |new: Value, expect: usize| assert_eq!(schema.validate(&new, Some(&old)).len(), expect, "{new}");
    check(json!({"a": "long"}), 0);
    check(json!({"a": "longer"}), 1);
    check(json!({"l": [{"k": "w", "v": 1}, {"k": "x", "v": 5}]}), 0);
    check(json!({"l": [{"k": "x", "v": 6}]}), 1);
    check(json!({"l": [{"k": "y", "v": 5}]}), 1);
    check(json!({"atomic": [5]}), 0);
    check(json!({"atomic": [5, 0]}), 1);
    assert_eq!(schema.validate(&old, None).len(), 3);
    let kind = json!({"type": "string", "enum": ["A"]});
    let schema = read(
        &json!({"type": "object", "properties": {"kind": kind, "a": {"type": "object", "properties": {"kind": kind}}}}),
    );
    let check =
        |object: Value, expect: usize| assert_eq!(schema.validate(&object, Some(&object)).len(), expect, "{object}");
    check(json!({"a": {"kind": "B"}}), 0);
    // What changed of an object's own is not seen.
    check(json!({"kind": "B", "x": 1}), 1);
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let check = |a: Value, value: Value, expect: Value, unknown: &[&str]| {
        let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "a": value});
        let named = read(&of(a)).prune(&mut object);
        assert_eq!(object["a"], expect);
        assert_eq!(object["metadata"], json!({"x": 1}));
        assert_eq!(named, unknown);
    };
    let inner = json!({"type": "object", "properties": {"b": {"type": "string"}}});
    check(inner.clone(), json!({"b": "x", "c": 1}), json!({"b": "x"}), &["unknown field \"a.c\""]);
    let list = json!({"type": "array", "items": inner});
    check(list, json!([{"b": "x"}, {"z": {"y": 1}}]), json!([{"b": "x"}, {}]), &["unknown field \"a[1].z\""]);
    let keeps = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"b": {"type": "object"}}});
    check(keeps, json!({"z": 1, "b": {"y": 1}}), json!({"z": 1, "b": {}}), &["unknown field \"a.b.y\""]);
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"k": "v"}),
        json!({"k": "v"}),
        &[],
    );
    check(
        json!({"type": "object", "additionalProperties": true}),
        json!({"k": {"y": 1}}),
        json!({"k": {}}),
        &["unknown field \"a.k.y\""],
    );
}

#[test]
fn nulls_are_dropped_defaulted_or_kept() {
    let check = |a: Value, value: Value, expect: Value| {
        let mut object = value.clone();
        read(&of(a)).default(&mut object);
        assert_eq!(object, expect, "{value}");
    };
    check(json!({"type": "string"}), json!({"a": null}), json!({}));
    check(json!({"type": "string", "nullable": true}), json!({"a": null}), json!({"a": null}));
    check(json!({"type": "string", "default": "d"}), json!({"a": null}), json!({"a": "d"}));
    check(json!({"type": "string", "nullable": true, "default": "d"}), json!({"a": null}), json!({"a": null}));
    check(json!({"type": "string", "default": "d"}), json!({}), json!({"a": "d"}));
    let nested = json!({"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}});
    check(nested, json!({}), json!({"a": {"b": 3}}));
}

/// A schema that uses most of what there is.
fn rich() -> Value {
    json!({"type": "object", "properties": {
        "s": {"type": "string", "default": "x", "enum": ["x", "y"]},
        "n": {"type": "string", "nullable": true},
        "o": {"type": "object", "default": {}, "properties": {"i": {"type": "integer", "default": 1, "maximum": 9}}},
        "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"i": {"type": "integer", "default": 2}}}},
        "l": {"type": "array", "items": {"type": "object", "required": ["k"], "properties": {
            "k": {"type": "string"}, "v": {"x-kubernetes-int-or-string": true}}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        "any": {"x-kubernetes-preserve-unknown-fields": true}}})
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..15).prop_map(Value::from),
        prop_oneof![Just("x"), Just("y"), Just("")].prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let names = prop::sample::select(vec!["s", "n", "o", "m", "l", "any", "i", "k", "v", "z"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names.prop_map(String::from), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_twice_is_doing_it_once(object in anything(), old in anything()) {
        let schema = read(&rich());
        let mut once = object.clone();
        schema.default(&mut once);
        schema.prune(&mut once);
        let mut twice = once.clone();
        schema.default(&mut twice);
        prop_assert_eq!(&twice, &once);
        prop_assert!(schema.prune(&mut twice).is_empty());
        prop_assert_eq!(&twice, &once);
        // What is valid needs no mercy; an update never finds more than a create.
        let fresh = schema.validate(&once, None).len();
        prop_assert!(schema.validate(&once, Some(&old)).len() <= fresh);
    }
}
