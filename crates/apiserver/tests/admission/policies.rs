//! ValidatingAdmissionPolicy, as the real server has it.

use serde_json::{Value, json};

use crate::access_support::{World, user};

pub const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A policy about ConfigMaps, with a binding.
pub async fn policy(world: &World, name: &str, spec: Value, binding: Value) {
    let mut own = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]},
    });
    merge(&mut own, spec);
    world.make(&format!("{GROUP}/validatingadmissionpolicies"), json!({"metadata": {"name": name}, "spec": own})).await;
    let mut bound = json!({"policyName": name, "validationActions": ["Deny"]});
    merge(&mut bound, binding);
    let binding = json!({"metadata": {"name": format!("{name}-binding")}, "spec": bound});
    world.make(&format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
}

fn merge(into: &mut Value, from: Value) {
    for (field, value) in from.as_object().into_iter().flatten() {
        into[field] = value.clone();
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

/// Creates a ConfigMap as jane, who may do everything here.
async fn create(world: &World, name: &str, data: Value) -> (u16, Value) {
    world.send(&user("jane", &["team", "system:masters"]), "POST", MAPS, &map(name, data)).await
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn expressions_decide_and_say_why() {
    let world = World::new().await;
    for (name, validation, code, reason, said) in [
        (
            "plain",
            json!({"expression": "object.data.a == 'x'"}),
            422,
            "Invalid",
            "failed expression: object.data.a == 'x'",
        ),
        ("worded", json!({"expression": "object.data.a == 'x'", "message": " only x "}), 422, "Invalid", "only x"),
        (
            "computed",
            json!({"expression": "object.data.a == 'x'", "messageExpression": "'a is ' + object.data.a", "reason": "Forbidden"}),
            403,
            "Forbidden",
            "a is y",
        ),
        (
            "bad-message",
            json!({"expression": "object.data.a == 'x'", "message": "plan b", "messageExpression": "'x' + object.data.nope"}),
            422,
            "Invalid",
            "plan b",
        ),
        (
            "fails",
            json!({"expression": "object.data.b == 'x'"}),
            422,
            "Invalid",
            "expression 'object.data.b == 'x'' resulted in error: no such key: b",
        ),
        (
            "big",
            json!({"expression": "object.data.a == 'x'", "reason": "RequestEntityTooLarge"}),
            413,
            "RequestEntityTooLarge",
            "failed expression: object.data.a == 'x'",
        ),
    ] {
        policy(&world, name, json!({"validations": [validation]}), json!({})).await;
        let (got, answer) = create(&world, "m", json!({"a": "y"})).await;
        let wanted = format!(
            "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}-binding' denied request: {said}"
        );
        assert_eq!((got, answer["reason"].as_str(), message(&answer)), (code, Some(reason), wanted.as_str()));
        assert_eq!(answer["details"]["causes"][0]["message"], wanted[wanted.find("Validating").unwrap()..]);
        // Gone with its binding, at once.
        let path = format!("{GROUP}/validatingadmissionpolicybindings/{name}-binding");
        assert_eq!(world.admin("DELETE", &path, &Value::Null).await.0, 200);
        assert_eq!(create(&world, "m", json!({"a": "y"})).await.0, 201);
        assert_eq!(world.admin("DELETE", &format!("{MAPS}/m"), &Value::Null).await.0, 200);
    }
}

#[tokio::test]
async fn everything_a_request_has_can_be_asked() {
    let world = World::new().await;
    world.admin("PATCH", "/api/v1/namespaces/default", &json!({"metadata": {"labels": {"team": "a"}}})).await;
    for (at, holds) in [
        "request.operation == 'CREATE' && request.name == 'm' && request.namespace == 'default'",
        "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && request.requestKind.version == 'v1'",
        "request.userInfo.username == 'jane' && 'team' in request.userInfo.groups && !request.dryRun",
        "request.options.kind == 'CreateOptions'",
        "oldObject == null && object.metadata.name == 'm'",
        "namespaceObject.metadata.labels.team == 'a'",
        "authorizer.group('').resource('configmaps').namespace('default').check('delete').allowed()",
        "authorizer.requestResource.check('create').allowed()",
        "!authorizer.serviceAccount('default', 'default').group('').resource('secrets').check('get').allowed()",
        "variables.two == variables.one + 1 && variables.keys.all(k, k.startsWith('a'))",
        "!has(object.data.zzz) || variables.broken == 1",
        "quantity('1Gi').isGreaterThan(quantity('1Mi')) && object.data.a.matches('^[xy]$')",
    ]
    .iter()
    .enumerate()
    {
        let spec = json!({
            "variables": [
                {"name": "one", "expression": "1"},
                {"name": "two", "expression": "variables.one + 1"},
                {"name": "keys", "expression": "object.data.map(k, k)"},
                {"name": "broken", "expression": "object.data.nope"},
            ],
            "validations": [{"expression": holds}],
        });
        policy(&world, &format!("p{at}"), spec, json!({})).await;
        let (code, answer) = create(&world, "m", json!({"a": "y"})).await;
        assert_eq!(code, 201, "{holds}: {answer}");
        assert_eq!(world.admin("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/p{at}-binding"), &Value::Null).await.0, 200);
        assert_eq!(world.admin("DELETE", &format!("{MAPS}/m"), &Value::Null).await.0, 200);
    }
    let spec = json!({
        "variables": [{"name": "a", "expression": "object.data.nope"}, {"name": "b", "expression": "variables.a"}],
        "validations": [{"expression": "variables.b == 'x'"}],
    });
    policy(&world, "broken", spec, json!({})).await;
    let (_, answer) = create(&world, "m", json!({"a": "y"})).await;
    let said = "resulted in error: composited variable \"b\" fails to evaluate: composited variable \"a\" fails to evaluate: no such key: nope";
    assert!(message(&answer).ends_with(said), "{answer}");
}

#[tokio::test]
async fn who_is_asked_is_told_by_rules_selectors_and_conditions() {
    let world = World::new().await;
    world.namespace("other").await;
    let never = json!([{"expression": "false", "message": "no"}]);
    let rules = |own: Value| {
        let mut rule =
            json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
        merge(&mut rule, own);
        json!({"resourceRules": [rule]})
    };
    let with = |mut constraints: Value, more: Value| {
        merge(&mut constraints, more);
        json!({"matchConstraints": constraints, "validations": never})
    };
    let labelled = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}});
    let elsewhere = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}});
    for (case, spec, binding, denied) in [
        ("all", with(rules(json!({})), json!({})), json!({}), true),
        ("operation", with(rules(json!({"operations": ["UPDATE", "DELETE"]})), json!({})), json!({}), false),
        ("group", with(rules(json!({"apiGroups": ["apps"]})), json!({})), json!({}), false),
        (
            "any",
            with(
                rules(json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]})),
                json!({}),
            ),
            json!({}),
            true,
        ),
        ("parts", with(rules(json!({"resources": ["configmaps/status"]})), json!({})), json!({}), false),
        ("scope", with(rules(json!({"scope": "Cluster"})), json!({})), json!({}), false),
        ("names", with(rules(json!({"resourceNames": ["other"]})), json!({})), json!({}), false),
        ("name", with(rules(json!({"resourceNames": ["m"]})), json!({})), json!({}), true),
        ("namespace", with(rules(json!({})), labelled.clone()), json!({}), true),
        ("elsewhere", with(rules(json!({})), elsewhere.clone()), json!({}), false),
        ("bound elsewhere", with(rules(json!({})), json!({})), json!({"matchResources": elsewhere}), false),
        ("bound here", with(rules(json!({})), json!({})), json!({"matchResources": labelled}), true),
        ("object", with(rules(json!({})), json!({"objectSelector": {"matchLabels": {"a": "b"}}})), json!({}), false),
        (
            "not object",
            with(
                rules(json!({})),
                json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}),
            ),
            json!({}),
            true,
        ),
        (
            "excluded",
            with(rules(json!({})), json!({"excludeResourceRules": rules(json!({}))["resourceRules"]})),
            json!({}),
            false,
        ),
    ] {
        let name = case.replace(' ', "-");
        policy(&world, &name, spec, binding).await;
        let (code, answer) = create(&world, "m", json!({})).await;
        assert_eq!(code, if denied { 422 } else { 201 }, "{case}: {answer}");
        world.admin("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/{name}-binding"), &Value::Null).await;
        world.admin("DELETE", &format!("{MAPS}/m"), &Value::Null).await;
    }
    for (case, conditions, fail, denied, said) in [
        ("holds", json!(["request.userInfo.username == 'jane'"]), "Fail", true, "no"),
        ("does not", json!(["request.userInfo.username == 'joe'"]), "Fail", false, ""),
        ("error", json!(["object.nope == 1"]), "Fail", true, "no such key: nope"),
        ("error ignored", json!(["object.nope == 1"]), "Ignore", false, ""),
        ("error and false", json!(["object.nope == 1", "false"]), "Fail", false, ""),
    ] {
        let name = case.replace(' ', "-");
        let list: Vec<Value> = conditions
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .map(|(i, own)| json!({"name": format!("c{i}"), "expression": own}))
            .collect();
        let spec = json!({"matchConditions": list, "failurePolicy": fail, "validations": never});
        policy(&world, &name, spec, json!({})).await;
        let (code, answer) = create(&world, "m", json!({})).await;
        assert_eq!(code, if denied { 422 } else { 201 }, "{case}: {answer}");
        assert!(message(&answer).contains(said), "{case}: {answer}");
        world.admin("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/{name}-binding"), &Value::Null).await;
        world.admin("DELETE", &format!("{MAPS}/m"), &Value::Null).await;
    }
}

#[tokio::test]
async fn parameters_come_from_any_kind() {
    let world = World::new().await;
    world.namespace("settings").await;
    let limits = |name: &str, namespace: &str, max: &str| {
        (
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            json!({"metadata": {"name": name, "labels": {"role": "limit"}}, "data": {"max": max}}),
        )
    };
    let spec = |kind: Value| {
        json!({"paramKind": kind, "matchConditions": [{"name": "plain", "expression": "!has(object.metadata.labels)"}],
        "validations": [{"expression": "params == null || size(object.data) <= int(params.data.max)", "messageExpression": "'at most ' + params.data.max"}]})
    };
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let refer = |own: Value| json!({"paramRef": own});
    let two = json!({"a": "1", "b": "2"});
    for (at, (own, code, said)) in [
        (json!({"name": "low", "namespace": "settings", "parameterNotFoundAction": "Deny"}), 422, "at most 1"),
        (json!({"name": "high", "namespace": "settings", "parameterNotFoundAction": "Deny"}), 201, ""),
        (json!({"selector": {"matchLabels": {"role": "limit"}}, "namespace": "settings", "parameterNotFoundAction": "Deny"}), 422, "at most 1"),
        (json!({"name": "gone", "namespace": "settings", "parameterNotFoundAction": "Deny"}), 422, "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"),
        (json!({"name": "gone", "namespace": "settings", "parameterNotFoundAction": "Allow"}), 201, ""),
        (json!({"name": "own", "parameterNotFoundAction": "Deny"}), 422, "at most 0"),
    ]
    .into_iter()
    .enumerate()
    {
        for (path, object) in [limits("low", "settings", "1"), limits("high", "settings", "9"), limits("own", "default", "0")] {
            world.admin("POST", &path, &object).await;
        }
        let name = format!("p{at}");
        policy(&world, &name, spec(config.clone()), refer(own)).await;
        let (got, answer) = create(&world, "m", two.clone()).await;
        assert!(got == code && message(&answer).ends_with(said), "{at}: {got} {answer}");
        world.admin("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/{name}-binding"), &Value::Null).await;
        world.admin("DELETE", &format!("{MAPS}/m"), &Value::Null).await;
    }
    // A custom kind, cluster-scoped, that comes after the policy.
    policy(
        &world,
        "custom",
        json!({"paramKind": {"apiVersion": "rules.example.com/v1", "kind": "Limit"}, "validations": [{"expression": "size(object.data) <= params.spec.max"}]}),
        refer(json!({"name": "l", "parameterNotFoundAction": "Deny"})),
    )
    .await;
    let (code, answer) = create(&world, "m", two.clone()).await;
    let said = "ValidatingAdmissionPolicy 'custom' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'rules.example.com/v1, Kind=Limit'";
    assert!(code == 422 && message(&answer).ends_with(said), "{answer}");
    world
        .make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json!({"metadata": {"name": "limits.rules.example.com"}, "spec": {
            "group": "rules.example.com", "names": {"plural": "limits", "kind": "Limit"}, "scope": "Cluster",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"max": {"type": "integer"}}}}}}}]}}))
        .await;
    let path = "/apis/rules.example.com/v1/limits";
    let limit =
        json!({"apiVersion": "rules.example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "spec": {"max": 1}});
    for _ in 0..200 {
        if world.admin("POST", path, &limit).await.0 == 201 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(create(&world, "m", two.clone()).await.0, 422);
    assert_eq!(world.admin("PATCH", &format!("{path}/l"), &json!({"spec": {"max": 2}})).await.0, 200);
    assert_eq!(create(&world, "m", two).await.0, 201);
}

#[tokio::test]
async fn what_happens_is_the_bindings_choice() {
    let world = World::new().await;
    policy(
        &world,
        "soft",
        json!({"validations": [{"expression": "false", "message": "careful"}]}),
        json!({"validationActions": ["Warn", "Audit"]}),
    )
    .await;
    let (code, warnings) = world.warned("POST", MAPS, &map("m", json!({}))).await;
    assert_eq!(code, 201);
    assert_eq!(
        warnings,
        ["299 - \"Validation failed for ValidatingAdmissionPolicy 'soft' with binding 'soft-binding': careful\""]
    );
    // Errors are refusals only where failures matter.
    for (fail, code) in [("Ignore", 200), ("Fail", 422)] {
        let name = fail.to_lowercase();
        policy(
            &world,
            &name,
            json!({"failurePolicy": fail, "validations": [{"expression": "object.nope"  .to_owned() + " == 1"}]}),
            json!({}),
        )
        .await;
        let (got, answer) = world.admin("PATCH", &format!("{MAPS}/m"), &json!({"data": {"a": fail}})).await;
        assert_eq!(got, code, "{answer}");
        world.admin("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/{name}-binding"), &Value::Null).await;
    }
    // Deletions are judged too, by what is deleted.
    policy(&world, "keep", json!({"validations": [{"expression": "request.operation != 'DELETE' || oldObject.data.a != 'Ignore'", "message": "keep it"}]}), json!({})).await;
    let (code, answer) = world.admin("DELETE", &format!("{MAPS}/m"), &Value::Null).await;
    assert!(code == 422 && message(&answer).ends_with("keep it"), "{answer}");
    let (code, _) = world.admin("DELETE", MAPS, &Value::Null).await;
    assert_eq!(code, 422);
    // No policy keeps anyone from repairing policies.
    policy(&world, "trap", json!({"matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]}, "validations": [{"expression": "false"}]}), json!({})).await;
    assert_eq!(world.admin("DELETE", MAPS, &Value::Null).await.0, 422);
    assert_eq!(world.admin("DELETE", &format!("{GROUP}/validatingadmissionpolicies/trap"), &Value::Null).await.0, 200);
}

#[tokio::test]
async fn expressions_are_checked_when_they_are_written() {
    let world = World::new().await;
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let object = |spec: Value| {
        let mut own = json!({"matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}]}, "validations": [{"expression": "true"}]});
        merge(&mut own, spec);
        json!({"metadata": {"name": "p"}, "spec": own})
    };
    for (spec, said) in [
        (
            json!({"validations": [{"expression": "object.x +"}]}),
            "spec.validations[0].expression: Invalid value: \"object.x +\": compilation failed: ERROR: <input>:1:11: Syntax error",
        ),
        (
            json!({"validations": [{"expression": "'x'"}]}),
            "spec.validations[0].expression: Invalid value: \"'x'\": must evaluate to bool but got string",
        ),
        (json!({"validations": [{"expression": "params.x == 1"}]}), "undeclared reference to 'params'"),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "1"}]}),
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "string(authorizer.path('/').check('get').allowed())"}]}),
            "undeclared reference to 'authorizer'",
        ),
        (
            json!({"variables": [{"name": "a", "expression": "nope"}]}),
            "spec.variables[0].expression: Invalid value: \"nope\": compilation failed",
        ),
        (json!({"validations": [{"expression": "variables.b == 1"}]}), "undeclared reference to 'variables'"),
        (
            json!({"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": "variables.b == 1"}]}),
            "undefined field 'b'",
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "variables.a == 1"}]}),
            "undeclared reference to 'variables'",
        ),
        (
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}),
            "must evaluate to one of [string null_type] but got int",
        ),
    ] {
        let (code, answer) = world.admin("POST", &path, &object(spec)).await;
        assert!(code == 422 && message(&answer).contains(said), "{code} {answer}");
    }
    let typed = object(
        json!({"validations": [{"expression": "object.spec.replicas > '1'"}, {"expression": "object.spec.foo == 1"}, {"expression": "object.spec.replicas >= 1"}]}),
    );
    world.make(&path, typed).await;
    let mut policy = Value::Null;
    for _ in 0..200 {
        policy = world.admin("GET", &format!("{path}/p"), &Value::Null).await.1;
        if policy["status"]["observedGeneration"] == policy["metadata"]["generation"] {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let warnings = policy["status"]["typeChecking"]["expressionWarnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{policy}");
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[0].expression");
    assert_eq!(
        warnings[0]["warning"],
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"
    );
    assert!(warnings[1]["warning"].as_str().unwrap().contains("undefined field 'foo'"), "{policy}");
}

#[tokio::test]
async fn connections_are_judged_before_they_are_refused_for_want_of_a_node() {
    let world = World::new().await;
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/attach"]}]);
    let expression = "request.kind.kind == 'PodAttachOptions' && object.container == 'a' && !has(object.tty)";
    let spec = json!({
        "matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression, "message": "not so"}],
    });
    policy(&world, "attach", spec, json!({})).await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "x"}]}});
    world.make("/api/v1/namespaces/default/pods", pod).await;
    let admin = user("jane", &["system:masters"]);
    for (path, code, said) in [
        ("p/attach?container=a&stdin=true", 501, "needs a node"),
        ("p/attach?container=a&tty=true", 422, "not so"),
        ("p/exec?container=b&command=ls", 400, "not valid"),
        ("q/attach?container=a", 404, "not found"),
    ] {
        let (got, answer) =
            world.send(&admin, "POST", &format!("/api/v1/namespaces/default/pods/{path}"), &Value::Null).await;
        assert_eq!((got, message(&answer).contains(said)), (code, true), "{path}: {answer}");
    }
}

#[tokio::test]
async fn what_is_created_as_a_part_is_judged_as_what_it_is() {
    let world = World::new().await;
    let resources = json!(["serviceaccounts/token", "pods/*", "bindings", "namespaces", "configmaps"]);
    let webhooks = json!({"apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "operations": ["*"],
        "resources": ["validatingwebhookconfigurations"]});
    let scales = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]});
    let plain = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": resources});
    let rules = json!([plain, webhooks, scales]);
    let said = "[request.operation, request.kind.group, request.kind.kind, request.resource.resource, \
        has(request.subResource) ? request.subResource : '', has(request.name) ? request.name : '-', \
        has(request.namespace) ? request.namespace : '-', object == null ? '-' : string(object.kind), \
        oldObject == null ? '-' : string(oldObject.kind)].join(' ')";
    let validation = json!({"expression": "request.userInfo.username != 'jane'", "messageExpression": said});
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [validation]});
    policy(&world, "all", spec, json!({})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "x"}]}});
    world.make("/api/v1/namespaces/default/pods", pod).await;
    world.make(MAPS, map("m", json!({}))).await;
    let labels = json!({"app": "d"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "x"}]}});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    world.make(deployments, deployment).await;
    let scale = format!("{deployments}/d/scale");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    for (method, path, body, said) in [
        (
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            json!({}),
            "CREATE authentication.k8s.io TokenRequest serviceaccounts token default default TokenRequest -",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/pods/p/eviction",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
            "CREATE policy Eviction pods eviction p default Eviction -",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/pods/p/binding",
            binding.clone(),
            "CREATE  Binding pods binding p default Binding -",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/bindings",
            binding.clone(),
            "CREATE  Binding bindings  p default Binding -",
        ),
        (
            "POST",
            "/api/v1/namespaces",
            json!({"metadata": {"name": "new"}}),
            "CREATE  Namespace namespaces  new new Namespace -",
        ),
        (
            "PATCH",
            scale.as_str(),
            json!({"spec": {"replicas": 3}}),
            "UPDATE autoscaling Scale deployments scale d default Scale Scale",
        ),
        // Who deletes a collection names no object, though each is judged.
        ("DELETE", MAPS, Value::Null, "DELETE  ConfigMap configmaps  - default - ConfigMap"),
        (
            "POST",
            hooks,
            json!({"metadata": {"name": "h"}}),
            "CREATE admissionregistration.k8s.io ValidatingWebhookConfiguration validatingwebhookconfigurations  h - ValidatingWebhookConfiguration -",
        ),
    ] {
        let (code, answer) = world.send(&user("jane", &["system:masters"]), method, path, &body).await;
        assert_eq!(code, 422, "{path}: {answer}");
        assert!(message(&answer).ends_with(said), "{path}: {answer}");
    }
    let (code, answer) = world.admin("PATCH", &scale, &json!({"spec": {"replicas": 3}})).await;
    assert!(code == 200 && answer["spec"]["replicas"] == 3, "{answer}");
    // Whoever is not refused has what was asked for.
    let (code, answer) =
        world.admin("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", &json!({})).await;
    assert!(code == 201 && answer["status"]["token"].is_string(), "{answer}");
    assert_eq!(world.admin("POST", "/api/v1/namespaces/default/pods/p/binding", &binding).await.0, 201);
}
