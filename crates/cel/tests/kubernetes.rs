//! Rules as they are written for Kubernetes, and what kube-apiserver 1.36 makes of them. The
//! verdicts, messages and costs here were read off the real libraries.

use std::sync::Arc;

use conductor_cel::{
    Activation, Attributes, Authorizer, Budget, Decision, DeclType, Env, EvalError, Fidelity, LazyFields, Type, Value,
    limits,
};
use serde_json::{Value as Json, json};

fn schema() -> Json {
    json!({"type": "object", "properties": {
        "i": {"type": "integer"},
        "d": {"type": "number"},
        "s": {"type": "string", "maxLength": 10},
        "e": {"type": "string", "enum": ["a", "bcd"]},
        "any": {"x-kubernetes-int-or-string": true},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "long": {"type": "string", "format": "duration"},
        "raw": {"type": "string", "format": "byte"},
        "maybe": {"type": "string", "nullable": true},
        "namespace": {"type": "string"},
        "with-dash": {"type": "integer"},
        "hidden": {"x-kubernetes-preserve-unknown-fields": true},
        "li": {"type": "array", "items": {"type": "integer"}, "maxItems": 5},
        "unbounded": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}
    }})
}

fn object() -> Json {
    json!({
        "i": 3, "d": 2, "s": "abc", "e": "a", "any": "50%", "when": "2024-02-29T12:30:00.5Z", "day": "2024-02-29",
        "long": "1h30m", "raw": "aGk=", "maybe": null, "namespace": "ns", "with-dash": 7, "hidden": {"x": 1},
        "li": [1, 2, 3], "unbounded": ["a"], "set": ["a", "b"],
        "map": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
        "labels": {"app": "web"},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    })
}

fn decl() -> Arc<DeclType> {
    DeclType::from_structural(&schema(), "self", true).unwrap()
}

fn evaluate(source: &str) -> Result<Json, String> {
    let decl = decl();
    let env = Env::kubernetes_crd().declare_schema("self", decl.clone()).declare_schema("oldSelf", decl.clone());
    let program = env.compile(source).map_err(|e| e.to_string())?;
    let (new, mut old) = (object(), object());
    old["set"] = json!(["b", "a"]);
    old["map"] = json!([{"name": "https", "port": 443}, {"name": "http", "port": 80}]);
    old["unbounded"] = json!(["a", "b"]);
    let activation = Activation::new()
        .with("self", Value::typed(&new, &decl).unwrap())
        .with("oldSelf", Value::typed(&old, &decl).unwrap());
    let value = program.evaluate(&activation, &mut Budget::kubernetes()).map_err(|e| e.to_string())?;
    value.to_json().map_err(|e| e.to_string())
}

#[test]
fn rules_hold() {
    for source in [
        // JSON numbers are what the schema says.
        "type(self.i) == int && type(self.d) == double && self.d == 2.0 && self.i < 3.5",
        "type(self.any) == string && self.any.endsWith('%')",
        "self.when.getFullYear() == 2024 && self.when > timestamp('2024-01-01T00:00:00Z')",
        "self.day == timestamp('2024-02-29T00:00:00Z') && self.long == duration('90m') && self.raw == b'hi'",
        // Null is the same as absent.
        "!has(self.maybe) && !self.?maybe.hasValue() && !has(self.metadata)",
        // Escaped names.
        "self.__namespace__ == 'ns' && self.with__dash__dash == 7",
        // Lists compare by their type.
        "self.set == oldSelf.set && self.map == oldSelf.map && self.unbounded != oldSelf.unbounded",
        "self.set + ['b', 'c'] == ['c', 'b', 'a']",
        "(self.map + [self.map[0]]).size() == 2",
        "self.map.exists_one(m, m.name == 'http' && m.port == 80)",
        "'app' in self.labels && self.labels.app == 'web' && self.labels.all(k, k.matches('^[a-z]+$'))",
        "self.labels.exists(k, v, k == 'app' && v == 'web')",
        "self.template.kind == 'Pod' && self.template.metadata.name == 'p'",
        "self == self && self.template == oldSelf.template",
        "self.li.map(x, x * 2).filter(x, x > 2) == [4, 6] && self.li.sum() == 6 && self.li.isSorted()",
        "quantity('1.5Gi').isGreaterThan(quantity('1500Mi')) && quantity('1k') == quantity('1000')",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.0.0.1')",
        "url('https://example.com:443/a?b=c').getPort() == '443' && isURL('/a')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('v1', true)",
        "!format.dns1123Label().validate('abc').hasValue()",
        "'%s-%d %.1f'.format(['a', 1, 1234.5]) == 'a-1 1,234.5'",
        "[1, 2].transformMapEntry(i, v, {string(v): i}) == {'1': 0, '2': 1}",
        "['c', 'a'].sort() == ['a', 'c'] && [3, 1].sortBy(x, -x) == [3, 1] && lists.range(2) == [0, 1]",
    ] {
        assert_eq!(evaluate(source), Ok(json!(true)), "{source}");
    }
}

#[test]
fn rules_fail_as_kubernetes_says() {
    for (source, message) in [
        ("self.labels['nope'] == ''", "no such key: nope"),
        ("dyn(null).metadata.name == ''", "no such key: metadata"),
        ("dyn(1).x == ''", "no such key: x"),
        ("self.li[5] > 0", "index out of bounds: 5"),
        ("self.i / 0 > 0", "division by zero"),
        ("self.i + 9223372036854775807 > 0", "integer overflow"),
        ("optional.none().value()", "optional.none() dereference"),
        (
            "quantity('10Mo').isInteger()",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ] {
        assert_eq!(evaluate(source), Err(message.to_owned()), "{source}");
    }
}

#[test]
fn compile_errors_read_as_cel_go_words_them() {
    for (source, expected) in [
        ("nope", "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^"),
        (
            "self.i + self.s",
            "ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(int, string)'\n | self.i + self.s\n | .......^",
        ),
        (
            "self.s.matches(1)",
            "ERROR: <input>:1:15: found no matching overload for 'matches' applied to 'string.(int)'\n | self.s.matches(1)\n | ..............^",
        ),
        (
            "self.i == self.d",
            "ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, double)'\n | self.i == self.d\n | .......^",
        ),
        ("self.nope", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope\n | ....^"),
        ("self.hidden", "ERROR: <input>:1:5: undefined field 'hidden'\n | self.hidden\n | ....^"),
        ("self.s.a", "ERROR: <input>:1:7: type 'string' does not support field selection\n | self.s.a\n | ......^"),
        (
            "self.i.all(x, true)",
            "ERROR: <input>:1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | self.i.all(x, true)\n | ....^",
        ),
        (
            "self.li.all(x, x)",
            "ERROR: <input>:1:16: expected type 'bool' but found 'int'\n | self.li.all(x, x)\n | ...............^",
        ),
        ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^"),
        ("'a'.matches('[')", "ERROR: <input>:1:13: invalid matches argument\n | 'a'.matches('[')\n | ............^"),
        ("duration('x')", "ERROR: <input>:1:10: invalid duration argument\n | duration('x')\n | .........^"),
        ("true &&\n  nope", "ERROR: <input>:2:3: undeclared reference to 'nope' (in container '')\n |   nope\n | ..^"),
        (
            "cel.bind(x, 1, x)",
            "ERROR: <input>:1:9: undeclared reference to 'bind' (in container '')\n | cel.bind(x, 1, x)\n | ........^",
        ),
    ] {
        let found = evaluate(source).unwrap_err();
        assert!(found.contains(expected), "{source}:\n{found}\n{expected}");
    }
    for absent in ["math.greatest(1, 2)", "base64.encode(b'a')", "'a'.reverse()", "has(self)", "if"] {
        assert!(evaluate(absent).unwrap_err().contains("ERROR"), "{absent}");
    }
    assert!(evaluate("self.namespace == self.__namespace__").is_ok());
}

#[test]
fn estimates_are_those_of_kubernetes() {
    // Bounds of this schema: `li` 5 items, `s` 10 code points (40 bytes).
    for (source, min, max) in [
        ("self.i == 3", 2, 2),
        ("self.s == 'abc'", 3, 3),
        ("self.li.all(x, x > 0)", 3, 28),
        ("self.s.matches('^[a-z]+$')", 4, 12),
        ("self.s.contains('b')", 2, 6),
        ("self.li.map(x, x + 1).size() > 0", 15, 85),
        ("self.li.all(x, self.li.all(y, x == y))", 3, 158),
    ] {
        let program = Env::kubernetes_crd().declare_schema("self", decl()).compile(source).unwrap();
        let estimate = program.estimate(Fidelity::Kubernetes);
        assert_eq!((estimate.min, estimate.max), (min, max), "{source}");
    }
    let refused = "self.unbounded.all(x, self.unbounded.exists_one(y, x == y))";
    let program = Env::kubernetes_crd().declare_schema("self", decl()).compile(refused).unwrap();
    assert!(program.estimate(Fidelity::Kubernetes).max > limits::ESTIMATE_PER_RULE);
}

#[derive(Debug)]
struct OnlyPods;

impl Authorizer for OnlyPods {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        let allowed = attributes.resource == "pods" && attributes.verb == "create";
        Decision { allowed, reason: format!("{}/{}", attributes.namespace, attributes.name), error: None }
    }
}

#[derive(Debug)]
struct Lengths;

impl LazyFields for Lengths {
    fn get<'s>(&'s self, field: &str, _: &mut Budget) -> Option<Result<Value<'s>, EvalError>> {
        (field != "absent").then_some(Ok(Value::Int(field.len() as i64)))
    }
}

#[test]
fn admission_sees_requests_and_asks_the_authorizer() {
    let env = Env::admission().declare("variables", Type::map(Type::String, Type::Int));
    let decl = DeclType::any();
    let new = json!({"metadata": {"name": "x"}, "spec": {"replicas": 3}});
    let request = json!({"namespace": "ns", "operation": "CREATE", "userInfo": {"username": "u", "groups": ["g"]}});
    let authorizer = OnlyPods;
    let lengths = Lengths;
    for (source, expected) in [
        ("object.spec.replicas <= 3 && oldObject == null", true),
        ("request.namespace == 'ns' && 'g' in request.userInfo.groups", true),
        ("authorizer.group('').resource('pods').namespace('ns').name('x').check('create').reason() == 'ns/x'", true),
        ("authorizer.group('').resource('nodes').check('create').allowed()", false),
        ("authorizer.requestResource.check('create').allowed()", true),
        ("variables.abc + variables.x == 4", true),
    ] {
        let program = env.compile(source).unwrap_or_else(|e| panic!("{e}"));
        let at = Attributes { resource: "pods".into(), ..Attributes::default() };
        let activation = Activation::new()
            .with("object", Value::typed(&new, &decl).unwrap())
            .with("oldObject", Value::Null)
            .with("request", Value::from_json(&request))
            .with("authorizer", Value::authorizer(&authorizer))
            .with("authorizer.requestResource", Value::resource_check(&authorizer, at))
            .with("variables", Value::Map(conductor_cel::Map::Lazy(&lengths)));
        let mut budget = Budget::kubernetes();
        assert_eq!(program.evaluate_bool(&activation, &mut budget), Ok(expected), "{source}");
    }
    // Two checks are what one expression can afford.
    let three = ["authorizer.path('/x').check('get').allowed()"; 3].join(" || ");
    let program = env.compile(&three).unwrap();
    let activation = Activation::new().with("authorizer", Value::authorizer(&authorizer));
    assert_eq!(program.evaluate_bool(&activation, &mut Budget::kubernetes()), Err(EvalError::CostLimit));
}

#[test]
fn programs_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<conductor_cel::Program>();
    shared::<Env>();
}

#[test]
fn mutations_are_made_of_objects_and_patches() {
    use conductor_cel::mutation;
    let env = Env::mutation();
    let object = json!({"metadata": {"name": "x", "labels": {"a": "b"}}});
    for (source, made) in [
        ("Object{}", json!({})),
        (
            "Object{metadata: Object.metadata{labels: {'n': object.metadata.name}}}",
            json!({"metadata": {"labels": {"n": "x"}}}),
        ),
        (
            "Object{spec: Object.spec{list: [Object.spec.list{name: 'a', ?no: optional.none(), ?yes: optional.of(1)}]}}",
            json!({"spec": {"list": [{"name": "a", "yes": 1}]}}),
        ),
        ("true ? Object{a: 1} : Object{}", json!({"a": 1})),
    ] {
        let program = env.compile(source).unwrap_or_else(|e| panic!("{e}"));
        assert!(program.output_type().same(&mutation::configuration()), "{source}");
        let activation = Activation::new().with("object", Value::from_json(&object));
        let value = program.evaluate(&activation, &mut Budget::kubernetes()).unwrap();
        assert_eq!((mutation::check_names(&value), value.to_json().unwrap()), (Ok(()), made), "{source}");
    }
    let source =
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: Object.x{y: 1}}]";
    let program = env.compile(source).unwrap();
    assert!(program.output_type().same(&mutation::patch()));
    let value = program.evaluate(&Activation::new(), &mut Budget::kubernetes()).unwrap();
    assert_eq!(value.to_json().unwrap(), json!([{"op": "add", "path": "/metadata/labels/a~1b~0c", "value": {"y": 1}}]));
    let program = env.compile("Object{metadata: Object.wrong{}}").unwrap();
    let value = program.evaluate(&Activation::new(), &mut Budget::kubernetes()).unwrap();
    assert_eq!(
        mutation::check_names(&value).unwrap_err(),
        "unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches field name path from root Object type"
    );
    for (source, said) in [
        ("Other{}", "undeclared reference to 'Other'"),
        ("[JSONPatch{op: 1}]", "expected type of field 'op' is 'string' but provided type is 'int'"),
        ("[JSONPatch{oops: 1}]", "undefined field 'oops'"),
    ] {
        let error = env.compile(source).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(Env::admission().compile("Object{}").is_err());
}
