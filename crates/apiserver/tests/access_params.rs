//! Who may have policies take parameters: those who may read them.

mod access_support;

use access_support::{World, user};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// A world in which somebody may write policies, and read one Secret of two.
async fn world() -> World {
    let world = World::new().await;
    for name in ["one", "two"] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"password": "hunter2"}});
        world.make("/api/v1/namespaces/default/secrets", secret).await;
    }
    for (name, rules) in [
        ("policies", json!([{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}])),
        ("all", json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])),
    ] {
        world.make(&format!("{RBAC}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules})).await;
    }
    let one = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]}]);
    let roles = format!("{RBAC}/namespaces/default/roles");
    world.make(&roles, json!({"metadata": {"name": "one"}, "rules": one})).await;
    let to = |name: &str| json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]);
    let binding = |name: &str, kind: &str, who: &str| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        json!({"metadata": {"name": format!("{name}-{who}")}, "roleRef": role, "subjects": to(who)})
    };
    for who in ["reader", "writer"] {
        world.make(&format!("{RBAC}/clusterrolebindings"), binding("policies", "ClusterRole", who)).await;
    }
    world.make(&format!("{RBAC}/clusterrolebindings"), binding("all", "ClusterRole", "reader")).await;
    world.make(&format!("{RBAC}/namespaces/default/rolebindings"), binding("one", "Role", "writer")).await;
    world
}

fn policy(kind: &str, name: &str, of: &str) -> Value {
    let mut spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": of}, "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
    });
    if kind == "validating" {
        spec["validations"] = json!([{"expression": "false", "messageExpression": "string(params.data.password)"}]);
    } else {
        spec["reinvocationPolicy"] = json!("Never");
        let patch = "[JSONPatch{op: 'add', path: '/data', value: {'p': string(params.data.password)}}]";
        spec["mutations"] = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn binding(kind: &str, policy: &str, params: Value) -> Value {
    let mut params = params;
    params["parameterNotFoundAction"] = json!("Deny");
    let mut spec = json!({"policyName": policy, "paramRef": params});
    if kind == "validating" {
        spec["validationActions"] = json!(["Deny"]);
    }
    json!({"metadata": {"generateName": "b-"}, "spec": spec})
}

#[tokio::test]
async fn who_has_a_policy_take_parameters_may_read_them() {
    let world = world().await;
    let groups = "[system:authenticated]";
    for kind in ["validating", "mutating"] {
        let (policies, bindings) =
            (format!("{POLICIES}/{kind}admissionpolicies"), format!("{POLICIES}/{kind}admissionpolicybindings"));
        let (writer, reader) = (user("writer", &[]), user("reader", &[]));
        let (code, answer) = world.send(&writer, "POST", &policies, &policy(kind, "p", "Secret")).await;
        let said = format!(
            "spec.paramKind: Forbidden: user &{{writer  {groups} map[]}} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"
        );
        assert!(code == 422 && answer["message"].as_str().is_some_and(|m| m.ends_with(&said)), "{code} {answer}");
        let (code, answer) = world.send(&reader, "POST", &policies, &policy(kind, "p", "Secret")).await;
        assert_eq!(code, 201, "{answer}");
        // what it takes is changed by those only who may read that, anything else by anybody
        let path = format!("{policies}/p");
        let (code, _) = world.send(&writer, "PATCH", &path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
        assert_eq!(code, 200);
        let other = json!({"spec": {"paramKind": {"kind": "ConfigMap"}}});
        let (code, _) = world.send(&writer, "PATCH", &path, &other).await;
        assert_eq!(code, 422);
        let quoted = |verb: &str, who: &str| match kind {
            "validating" => format!("user &{{{who}  {groups} map[]}} does not have \"{verb}\" permission"),
            _ => format!("user {verb} does not have \"&{{{who}  {groups} map[]}}\" permission"),
        };
        for (who, params, verb) in [
            (&writer, json!({"name": "one", "namespace": "default"}), None),
            (&writer, json!({"name": "two", "namespace": "default"}), Some("get")),
            (&writer, json!({"name": "one"}), Some("get")),
            (&writer, json!({"selector": {}, "namespace": "default"}), Some("list")),
            (&reader, json!({"name": "two"}), None),
            (&reader, json!({"selector": {}}), Some("list")),
        ] {
            let (code, answer) = world.send(who, "POST", &bindings, &binding(kind, "p", params.clone())).await;
            let Some(verb) = verb else {
                assert_eq!(code, 201, "{kind} {params}: {answer}");
                continue;
            };
            let said =
                format!("spec.paramRef: Forbidden: {} on the object referenced by paramRef", quoted(verb, &who.name));
            assert!(code == 422 && answer["message"].as_str().is_some_and(|m| m.ends_with(&said)), "{code} {answer}");
        }
        let (code, answer) =
            world.send(&writer, "POST", &bindings, &binding(kind, "none", json!({"name": "one"}))).await;
        let said = format!(
            "unable to get policy none to determine minimum required permissions and user &{{writer  {groups} map[]}} does not have \"get\" permission for all groups, versions and resources"
        );
        assert!(code == 422 && answer["message"].as_str().is_some_and(|m| m.ends_with(&said)), "{code} {answer}");
        // an administrator of everything is not asked
        let (code, answer) = world.admin("POST", &bindings, &binding(kind, "none", json!({"selector": {}}))).await;
        assert_eq!(code, 201, "{answer}");
    }
}
