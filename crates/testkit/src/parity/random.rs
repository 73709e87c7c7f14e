//! Random custom resource definitions and random objects of them, from a seed.

use serde_json::{Map, Value, json};

use super::{Scenario, Step};
use crate::Request;

/// How deep a schema goes below `spec`.
const DEPTH: usize = 3;
const NAMES: [&str; 6] = ["a", "b", "c", "d-e", "f.g", "h_i"];
const WORDS: [&str; 8] = ["", "a", "bb", "abc", "2020-02-29", "2020-01-01T00:00:00Z", "10.0.0.1", "toolongforanything"];
const FORMATS: [&str; 10] =
    ["date", "date-time", "ipv4", "ipv6", "uuid", "byte", "email", "hostname", "duration", "of-no-meaning"];

/// A sequence that depends on its seed alone.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Whether it happens, that many times of a hundred.
    pub fn percent(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    /// One of them.
    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// Definitions with something wrong in most of them, sent without being stored.
pub fn definitions(seed: u64, count: usize) -> Vec<Scenario> {
    let scenario = |index: usize| {
        let mut random = Random::new(seed ^ ((index as u64) << 32) ^ 0xdef);
        let steps = (0..20).map(|_| {
            let mut schema = root(&mut random);
            for _ in 0..random.below(3) {
                break_schema(&mut schema, &mut random);
            }
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
            Step::new(Request::json("POST", path, &definition(&schema)))
        });
        Scenario { name: format!("random definitions {index}"), steps: steps.collect(), ..Scenario::default() }
    };
    (0..count.div_ceil(20)).map(scenario).collect()
}

/// Definitions as they should be, each with objects, most of them wrong in places.
pub fn objects(seed: u64, count: usize) -> Vec<Scenario> {
    (0..count).map(|index| life(&mut Random::new(seed ^ ((index as u64) << 32)), index)).collect()
}

const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/{{run}}.example.com/v1/namespaces/{{ns}}/things";

/// Makes a definition and waits until it is served.
pub(super) fn served(schema: &Value) -> Vec<Step> {
    let quietly = |path: &str, until: (&str, &str)| Step {
        until: Some((until.0.into(), until.1.into())),
        compared: false,
        ..Step::new(Request::new("GET", path))
    };
    vec![
        Step::new(Request::json("POST", ALL, &definition(schema))),
        quietly(&format!("{ALL}/things.{{{{run}}}}.example.com"), ("/status/conditions/1/type", "Established")),
        quietly(THINGS, ("/kind", "ThingList")),
    ]
}

/// Changes the definition's schema and waits until that is in force.
fn changed(schema: &Value) -> Vec<Step> {
    // The schema has one field more, with a default: where it shows, the schema is in force.
    let mut schema = schema.clone();
    schema["properties"]["seen"] = json!({"type": "string", "default": "yes"});
    let patch = json!([{"op": "replace", "path": "/spec/versions", "value": definition(&schema)["spec"]["versions"]}]);
    let request = Request::json("PATCH", format!("{ALL}/things.{{{{run}}}}.example.com?fieldManager=changer"), &patch);
    let until = Some(("/items/0/seen".to_owned(), "yes".to_owned()));
    vec![
        Step { compared: false, ..Step::new(request.header("content-type", "application/json-patch+json")) },
        Step { compared: false, until, ..Step::new(Request::new("GET", THINGS)) },
    ]
}

fn life(random: &mut Random, index: usize) -> Scenario {
    let schema = root(random);
    let (all, things) = (ALL, THINGS);
    let mut steps = served(&schema);
    for number in 0..8 {
        let name = format!("o{number}");
        let validation = random.of(&["", "&fieldValidation=Strict", "&fieldValidation=Ignore"]);
        let object = object(&schema, &name, random);
        let one = format!("{things}/{name}");
        if random.percent(70) {
            steps.push(Step::new(Request::json("POST", format!("{things}?fieldManager=maker{validation}"), &object)));
        } else {
            let request = Request::json("PATCH", format!("{one}?fieldManager=applier{validation}"), &object);
            steps.push(Step::new(request.header("content-type", "application/apply-patch+yaml")));
        }
        // What is wrong and there stays; what is new and wrong is refused.
        for _ in 0..random.below(3) {
            let path = format!("{one}?fieldManager=changer{validation}");
            let mut patch = json!({"spec": value(&schema["properties"]["spec"], random, 0)});
            if random.percent(30) {
                patch["metadata"] = json!({"labels": {"l": random.of(&["x", "y"])}});
            }
            let request = Request::json("PATCH", path, &patch);
            steps.push(Step::new(request.header("content-type", "application/merge-patch+json")));
        }
        if random.percent(30) {
            let path = format!("{one}?fieldManager=applier&force={}", random.percent(50));
            let request = Request::json("PATCH", path, &self::object(&schema, &name, random));
            steps.push(Step::new(request.header("content-type", "application/apply-patch+yaml")));
        }
        steps.push(Step::new(Request::new("GET", &one)));
    }
    steps.push(Step::new(Request::new("GET", things)));
    // The schema becomes stricter: what is wrong by now stays as long as nobody changes it.
    let mut stricter = schema.clone();
    (0..2 + random.below(4)).for_each(|_| tighten(&mut stricter, random));
    steps.extend(changed(&stricter));
    for number in 0..8 {
        let one = format!("{things}/o{number}");
        let labels = json!({"metadata": {"labels": {"l": random.of(&["x", "y"])}}});
        let mut patches = vec![labels];
        patches
            .extend((0..1 + random.below(3)).map(|_| json!({"spec": partial(&schema["properties"]["spec"], random)})));
        for patch in patches {
            let request = Request::json("PATCH", format!("{one}?fieldManager=changer"), &patch);
            steps.push(Step::new(request.header("content-type", "application/merge-patch+json")));
        }
        if random.percent(40) {
            let path = format!("{one}?fieldManager=applier&force=true");
            let request = Request::json("PATCH", path, &object(&schema, &format!("o{number}"), random));
            steps.push(Step::new(request.header("content-type", "application/apply-patch+yaml")));
        }
    }
    let gone = Step::new(Request::new("DELETE", format!("{all}/things.{{{{run}}}}.example.com")));
    steps.push(Step { compared: false, ..gone });
    Scenario { name: format!("random objects {index}"), steps, ..Scenario::default() }
}

/// Some of the fields that a schema has.
fn partial(schema: &Value, random: &mut Random) -> Value {
    let mut whole = value(schema, random, 2);
    if let Some(fields) = whole.as_object_mut() {
        fields.retain(|_, _| random.percent(40));
    }
    whole
}

/// A bound, a condition or a rule more, somewhere.
fn tighten(schema: &mut Value, random: &mut Random) {
    let mut here = schema.pointer_mut("/properties/spec").expect("every schema has it");
    for _ in 0..random.below(4) {
        let below: Vec<String> = below(here);
        if below.is_empty() {
            break;
        }
        let path = random.of(&below);
        here = here.pointer_mut(&path).expect("it was just seen");
    }
    if here["x-kubernetes-embedded-resource"] == true || here["x-kubernetes-int-or-string"] == true {
        return;
    }
    let rule = |text: &str| json!([{"rule": text, "message": "no"}]);
    let optional = |text: &str| json!([{"rule": text, "message": "no", "optionalOldSelf": true}]);
    let (field, bound) = match here["type"].as_str() {
        Some("string") => random.of(&[
            ("maxLength", json!(1)),
            ("minLength", json!(2)),
            ("pattern", json!("^a")),
            ("format", json!("date")),
            ("not", json!({"enum": ["a", "abc"]})),
            ("anyOf", json!([{"minLength": 3}, {"pattern": "^$"}])),
            ("x-kubernetes-validations", rule("self != 'a'")),
            ("x-kubernetes-validations", rule("self == oldSelf")),
            ("x-kubernetes-validations", optional("oldSelf.hasValue() || self != 'bb'")),
        ]),
        Some("integer" | "number") => random.of(&[
            ("minimum", json!(1)),
            ("maximum", json!(1)),
            ("multipleOf", json!(2)),
            ("oneOf", json!([{"minimum": 2}, {"maximum": 4}])),
            ("not", json!({"minimum": 2})),
            ("x-kubernetes-validations", rule("self >= oldSelf")),
        ]),
        Some("boolean") => random.of(&[("enum", json!([true])), ("x-kubernetes-validations", rule("self"))]),
        Some("array") => random.of(&[
            ("maxItems", json!(1)),
            ("minItems", json!(1)),
            ("not", json!({"minItems": 2})),
            ("allOf", json!([{"minItems": 1}, {"maxItems": 2}])),
        ]),
        Some("object") => random.of(&[
            ("maxProperties", json!(1)),
            ("minProperties", json!(2)),
            ("required", json!(["a", "b"])),
            ("anyOf", json!([{"required": ["a"]}, {"required": ["c"]}])),
            ("oneOf", json!([{"required": ["a"]}, {"required": ["b"]}])),
            ("not", json!({"required": ["b"]})),
            ("x-kubernetes-validations", rule("false")),
        ]),
        _ => return,
    };
    if let Some(fields) = here.as_object_mut() {
        fields.remove("default");
        fields.insert(field.into(), bound);
    }
}

fn definition(schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.{{run}}.example.com"},
        "spec": {
            "group": "{{run}}.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn root(random: &mut Random) -> Value {
    let mut root = json!({"type": "object", "properties": {"spec": structure(random, DEPTH)}});
    if random.percent(30) {
        root["required"] = json!(["spec"]);
    }
    root
}

fn structure(random: &mut Random, depth: usize) -> Value {
    let mut properties = Map::new();
    for _ in 0..1 + random.below(4) {
        properties.insert(random.of(&NAMES).into(), schema(random, depth - 1));
    }
    let required: Vec<String> = properties.keys().filter(|_| random.percent(25)).cloned().collect();
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if random.percent(10) {
        object["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    if random.percent(10) {
        object["x-kubernetes-map-type"] = json!("atomic");
    }
    if random.percent(10) {
        object["maxProperties"] = json!(2);
    }
    object
}

fn schema(random: &mut Random, depth: usize) -> Value {
    let mut schema = match random.below(if depth == 0 { 6 } else { 9 }) {
        0 | 1 => text(random),
        2 | 3 => number(random),
        4 => json!({"type": "boolean"}),
        5 => json!({"x-kubernetes-int-or-string": true}),
        6 => structure(random, depth),
        7 => {
            let mut object = json!({"type": "object"});
            match random.below(4) {
                0 => object["x-kubernetes-preserve-unknown-fields"] = json!(true),
                1 if random.percent(40) => {
                    object["x-kubernetes-embedded-resource"] = json!(true);
                    object["x-kubernetes-preserve-unknown-fields"] = json!(true);
                }
                _ => object["additionalProperties"] = self::schema(random, depth - 1),
            }
            object
        }
        _ => list(random, depth),
    };
    if random.percent(15) {
        schema["nullable"] = json!(true);
    }
    if random.percent(10) {
        combine(&mut schema, random);
    }
    if schema["x-kubernetes-embedded-resource"].is_null() && random.percent(15) {
        let default = plain(&schema, random);
        if fits(&schema, &default) {
            schema["default"] = default;
        }
    }
    schema
}

/// A condition of several parts.
fn combine(schema: &mut Value, random: &mut Random) {
    let parts = match schema["type"].as_str() {
        Some("string") => [json!({"minLength": 2}), json!({"pattern": "^a"}), json!({"enum": ["a", "abc"]})],
        Some("integer" | "number") => [json!({"minimum": 2}), json!({"maximum": 4}), json!({"multipleOf": 2})],
        Some("array") => [json!({"minItems": 1}), json!({"maxItems": 2}), json!({"maxItems": 0})],
        Some("object") => [json!({"minProperties": 1}), json!({"required": ["a"]}), json!({"maxProperties": 1})],
        None if schema["x-kubernetes-int-or-string"] == true => {
            if random.percent(30) {
                schema["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
            } else {
                schema["allOf"] = json!([{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "%$"}]);
            }
            return;
        }
        _ => return,
    };
    let combined = match random.of(&["allOf", "anyOf", "oneOf", "not"]) {
        "not" => ("not", random.of(&parts)),
        all => (all, json!([random.of(&parts), random.of(&parts)])),
    };
    schema[combined.0] = combined.1;
}

fn text(random: &mut Random) -> Value {
    let mut text = json!({"type": "string"});
    match random.below(8) {
        0 => text["enum"] = json!(["a", "bb"]),
        1 => text["maxLength"] = json!(3),
        2 => text["minLength"] = json!(1),
        3 => text["pattern"] = json!("^[a-c]+$"),
        4 | 5 => text["format"] = json!(random.of(&FORMATS)),
        _ => {}
    }
    text
}

fn number(random: &mut Random) -> Value {
    let mut number = json!({"type": random.of(&["integer", "number"])});
    match random.below(6) {
        0 => number["minimum"] = json!(0),
        1 => {
            number["maximum"] = json!(10);
            number["exclusiveMaximum"] = json!(random.percent(50));
        }
        2 => number["multipleOf"] = json!(2),
        3 if number["type"] == "integer" => number["format"] = json!(random.of(&["int32", "int64"])),
        4 => number["enum"] = json!([1, 2]),
        _ => {}
    }
    number
}

fn list(random: &mut Random, depth: usize) -> Value {
    let mut list = match random.below(4) {
        0 => json!({"x-kubernetes-list-type": "set", "items": text(random)}),
        1 => {
            let mut item = structure(random, depth.max(1));
            item["properties"]["key"] =
                if random.percent(70) { json!({"type": "string"}) } else { json!({"type": "integer"}) };
            item["required"] = json!(["key"]);
            json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"], "items": item})
        }
        2 => json!({"x-kubernetes-list-type": "atomic", "items": schema(random, depth - 1)}),
        _ => json!({"items": schema(random, depth - 1)}),
    };
    list["type"] = json!("array");
    if random.percent(25) {
        list["maxItems"] = json!(2);
    }
    list
}

/// An object that is mostly as the schema says.
fn object(schema: &Value, name: &str, random: &mut Random) -> Value {
    let mut object = json!({"apiVersion": "{{run}}.example.com/v1", "kind": "Thing", "metadata": {"name": name, "namespace": "{{ns}}"}});
    if random.percent(95) {
        object["spec"] = value(&schema["properties"]["spec"], random, 8);
    }
    object
}

/// A value for a schema, with a mistake in so many of a hundred places.
fn value(schema: &Value, random: &mut Random, wrong: usize) -> Value {
    if random.percent(wrong) {
        return random.of(&[
            json!(null),
            json!(1),
            json!(-3),
            json!(1.5),
            json!("x"),
            json!(true),
            json!([]),
            json!({}),
            json!([{}]),
        ]);
    }
    match schema["type"].as_str() {
        Some("object") if schema["x-kubernetes-embedded-resource"] == true => {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": random.of(&["ok", "Not ok"])}, "data": {"k": 1}})
        }
        Some("object") => {
            let mut object = Map::new();
            if let Some(properties) = schema["properties"].as_object() {
                let required =
                    |name: &String| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
                for (name, schema) in properties {
                    if random.percent(if required(name) { 95 } else { 60 }) {
                        object.insert(name.clone(), value(schema, random, wrong));
                    }
                }
            }
            if schema["additionalProperties"].is_object() || schema["properties"].is_null() || random.percent(wrong) {
                for _ in 0..random.below(3) {
                    let below = &schema["additionalProperties"];
                    object.insert(
                        random.of(&NAMES).into(),
                        if below.is_object() { value(below, random, wrong) } else { json!({"deep": [1, null, "x"]}) },
                    );
                }
            }
            Value::Object(object)
        }
        Some("array") => (0..random.below(4)).map(|_| value(&schema["items"], random, wrong)).collect(),
        Some("boolean") => json!(random.percent(50)),
        Some("integer") => json!(random.of(&[0, 1, 2, 4, 10, -2])),
        Some("number") => random.of(&[json!(0), json!(1), json!(2.0), json!(2.5), json!(10), json!(1e3)]),
        Some("string") => match schema["enum"].as_array() {
            Some(values) if random.percent(80) => random.of(values),
            _ => json!(random.of(&WORDS)),
        },
        _ => random.of(&[json!(1), json!("25%"), json!("")]),
    }
}

/// A value that is likely right: of the scalars, one that the schema names.
fn plain(schema: &Value, random: &mut Random) -> Value {
    value(schema, random, 0)
}

/// Whether a default is plainly right: only scalars without bounds, and empty structures, are.
fn fits(schema: &Value, default: &Value) -> bool {
    let bounds = [
        "enum",
        "maxLength",
        "minLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "multipleOf",
        "required",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ];
    match default {
        Value::Array(items) if !items.is_empty() => false,
        Value::Object(fields) if !fields.is_empty() => false,
        _ => bounds.iter().all(|bound| schema[bound].is_null()),
    }
}

/// Pointers to the schemas right below one.
fn below(schema: &Value) -> Vec<String> {
    let escaped = |key: &String| format!("/properties/{}", key.replace('~', "~0").replace('/', "~1"));
    let properties = schema["properties"].as_object().into_iter().flat_map(|all| all.keys().map(escaped));
    let others = ["items", "additionalProperties"].into_iter().filter(|name| schema[*name].is_object());
    properties.chain(others.map(|name| format!("/{name}"))).collect()
}

/// Makes one mistake somewhere in a schema.
fn break_schema(schema: &mut Value, random: &mut Random) {
    let mut here = schema;
    let mut whole = true;
    // Walks down a random path.
    for _ in 0..random.below(6) {
        let below = below(here);
        if below.is_empty() {
            break;
        }
        whole = false;
        let path = random.of(&below);
        here = here.pointer_mut(&path).expect("it was just seen");
    }
    let mistakes: [(&str, Value); 26] = [
        ("type", json!(null)),
        ("type", json!("strange")),
        ("type", json!("object")),
        ("type", json!("array")),
        ("type", json!("string")),
        ("default", json!(null)),
        ("default", json!("x")),
        ("default", json!({"a": 1, "unknown": 2})),
        ("default", json!([1, 1])),
        ("pattern", json!("[")),
        ("uniqueItems", json!(true)),
        ("nullable", json!(true)),
        ("format", json!("int32")),
        ("x-kubernetes-list-type", json!("map")),
        ("x-kubernetes-list-type", json!("set")),
        ("x-kubernetes-list-type", json!("bag")),
        ("x-kubernetes-list-map-keys", json!(["a", "key"])),
        ("x-kubernetes-map-type", json!("granular")),
        ("x-kubernetes-int-or-string", json!(true)),
        ("x-kubernetes-embedded-resource", json!(true)),
        ("x-kubernetes-preserve-unknown-fields", json!(false)),
        ("additionalProperties", json!(true)),
        ("additionalProperties", json!({"type": "string"})),
        ("anyOf", json!([{"required": ["a"]}, {"type": "integer"}])),
        ("required", json!(["zz"])),
        (
            "properties",
            json!({"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}}),
        ),
    ];
    let (field, mistake) = random.of(&mistakes);
    // Defaults of what is int-or-string, and of the whole object, are checked a little differently: see the document.
    let default = |here: &Value| here.get("default").is_some() && here["x-kubernetes-int-or-string"] == true;
    if field == "default" && whole {
        return;
    }
    let before = here.clone();
    if let Some(fields) = here.as_object_mut() {
        if mistake.is_null() && field == "type" {
            fields.remove(field);
        } else {
            fields.insert(field.into(), mistake);
        }
    }
    if default(here) {
        *here = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_scenarios_every_time() {
        let text = |seed| format!("{:?}", objects(seed, 2));
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
        assert_eq!(definitions(1, 40).len(), 2);
    }
}
