use serde_json::{Value, json};

use super::*;

fn ruled(kind: &str, rule: &str) -> Value {
    json!({"type": kind, "x-kubernetes-validations": [{"rule": rule}]})
}

fn wrong(schema: &Value) -> Vec<String> {
    let errors = check(&Compiled::default(), schema, &Path::root("schema"), &[], false);
    errors.into_iter().map(|error| error.path.to_string()).collect()
}

#[test]
fn schemas_whose_paths_read_alike_have_rules_of_their_own() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"b": ruled("string", "true")}},
        "a].properties[b": ruled("string", "nonsense("),
    }});
    assert_eq!(wrong(&schema), ["schema.properties[a].properties[b].x-kubernetes-validations[0].rule"]);
}

#[test]
fn the_dearest_are_named_and_no_others() {
    let dear = |most: u64| {
        let item =
            json!({"type": "string", "maxLength": 1000, "x-kubernetes-validations": [{"rule": "self.contains('a')"}]});
        json!({"type": "array", "maxItems": most, "items": item})
    };
    let schema = json!({"type": "object", "properties": {
        "a": dear(90_000), "b": dear(1), "c": dear(92_000), "d": dear(91_000), "e": dear(90_000), "f": dear(89_000),
        "g": dear(94_000),
    }});
    let mut compiling = Compiling { asked: true, ..Compiling::default() };
    build(&schema, &Place::root(&Path::root("schema")), &mut compiling);
    let named: Vec<&str> = compiling.dearest.iter().map(|(_, path)| path.as_str()).collect();
    let at = |name: &str| format!("schema.properties[{name}].items.x-kubernetes-validations[0].rule");
    assert_eq!(named, ["g", "c", "d", "a"].map(at));
    let known = compiling.dearest.iter().map(|(cost, _)| cost).sum::<u64>();
    assert!(compiling.total > known, "{} > {known}", compiling.total);
}

#[test]
fn what_a_default_does_not_hold_is_not_built_for_it() {
    let schema = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": ruled("string", "self != ''")},
        "map": {"type": "object", "additionalProperties": ruled("string", "self != ''")},
    }});
    let built = |default: Value| {
        let rules = of_default(&Compiled::default(), &schema, false, &default);
        rules.map(|rules| rules.properties.into_keys().collect::<Vec<_>>()).unwrap_or_default()
    };
    assert!(built(json!({"list": [], "map": {}})).is_empty());
    assert_eq!(built(json!({"list": ["a"], "map": {}})), ["list"]);
    assert_eq!(built(json!({"list": [], "map": {"a": "b"}})), ["map"]);
}
