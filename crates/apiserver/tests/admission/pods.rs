//! What the plug-ins of kube-apiserver say about Pods that are made, resized and debugged.

use serde_json::{Value, json};

use super::access_support::World;

const BASE: &str = "/api/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn sized(requests: Value, limits: Value) -> Value {
    json!([{"name": "c", "image": "x", "resources": {"requests": requests, "limits": limits}}])
}

async fn resize(world: &World, name: &str, containers: Value) -> (u16, Value) {
    let patch = json!({"spec": {"containers": containers}});
    world.admin("PATCH", &format!("{PODS}/{name}/resize"), &patch).await
}

#[tokio::test]
async fn a_resize_stays_within_the_limits_of_the_namespace() {
    let world = World::new().await;
    // From before there were limits.
    let old = json!({"metadata": {"name": "old"}, "spec": {"containers": sized(json!({"cpu": "100m"}), json!({}))}});
    world.make(PODS, old).await;
    let limits = json!([{"type": "Container", "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}, "default": {"cpu": "500m"}}]);
    world.make(&format!("{BASE}/limitranges"), json!({"metadata": {"name": "l"}, "spec": {"limits": limits}})).await;
    let cpu = |amount: &str| json!({"cpu": amount});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": sized(cpu("500m"), cpu("500m"))}});
    world.make(PODS, pod).await;

    let (code, answer) = resize(&world, "p", sized(cpu("8"), cpu("64"))).await;
    assert_eq!(code, 403, "{answer}");
    assert_eq!(
        answer["message"],
        "pods \"p\" is forbidden: [maximum cpu usage per Container is 1, but limit is 64, \
         cpu max limit to request ratio per Container is 2, but provided ratio is 8.000000]"
    );
    let (code, answer) = resize(&world, "p", sized(cpu("1"), cpu("1"))).await;
    assert_eq!((code, &answer["spec"]["containers"][0]["resources"]["limits"]["cpu"]), (200, &json!("1")), "{answer}");

    // What is not said gets its default here too, though no note of it.
    let (code, answer) = resize(&world, "old", sized(cpu("400m"), json!({}))).await;
    assert_eq!(
        (code, &answer["spec"]["containers"][0]["resources"]["limits"]["cpu"]),
        (200, &json!("500m")),
        "{answer}"
    );
    assert!(answer["metadata"].get("annotations").is_none(), "{answer}");

    // Other parts of a Pod, and a Pod that is going, are not looked at.
    let label = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/held"]}});
    assert_eq!(world.admin("PATCH", &format!("{PODS}/p"), &label).await.0, 200);
    assert_eq!(world.admin("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), &Value::Null).await.0, 200);
    let (code, answer) = resize(&world, "p", sized(cpu("2"), cpu("2"))).await;
    assert_eq!(code, 200, "{answer}");
}

/// A Pod of an account that may use the Secret `ok`, with something else in its spec and its container.
fn careful(account: &str, spec: Value, container: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": account}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod["spec"]["containers"] = json!([{"name": "c", "image": "x"}]);
    let list = if container["name"] == "i" { "initContainers" } else { "containers" };
    pod["spec"][list] = json!([container]);
    pod
}

async fn accounts(world: &World) {
    for (name, value) in [("strict", "true"), ("short", "T"), ("lax", "false"), ("odd", "yes")] {
        let annotations = json!({"kubernetes.io/enforce-mountable-secrets": value});
        let account = json!({
            "metadata": {"name": name, "annotations": annotations},
            "secrets": [{"name": "ok"}], "imagePullSecrets": [{"name": "pull"}],
        });
        world.make(&format!("{BASE}/serviceaccounts"), account).await;
    }
}

fn variable(name: &str, secret: &str) -> Value {
    json!([{"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}])
}

fn all_of(secret: &str) -> Value {
    json!([{"configMapRef": {"name": "m"}}, {"secretRef": {"name": secret}}])
}

#[tokio::test]
async fn a_careful_account_mounts_its_own_secrets_only() {
    let world = World::new().await;
    accounts(&world).await;
    let volume = |secret: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]});
    let pull = |secret: &str| json!({"imagePullSecrets": [{"name": "pull"}, {"name": secret}]});
    let container = |name: &str| json!({"name": name, "image": "x"});
    let with = |name: &str, field: &str, value: Value| {
        let mut made = container(name);
        made[field] = value;
        made
    };
    let cases = [
        (
            volume("other"),
            container("c"),
            "volume with secret.secretName=\"other\" is not allowed because service account strict does not reference that secret",
        ),
        (
            json!({}),
            with("i", "env", variable("E", "other")),
            "init container i with envVar E referencing secret.secretName=\"other\" is not allowed because service account strict does not reference that secret",
        ),
        (
            json!({}),
            with("i", "envFrom", all_of("other")),
            "init container i with envFrom referencing secret.secretName=\"other\" is not allowed because service account strict does not reference that secret",
        ),
        (
            json!({}),
            with("c", "env", variable("E", "other")),
            "container c with envVar E referencing secret.secretName=\"other\" is not allowed because service account strict does not reference that secret",
        ),
        (
            json!({}),
            with("c", "envFrom", all_of("other")),
            "container c with envFrom referencing secret.secretName=\"other\" is not allowed because service account strict does not reference that secret",
        ),
        // What may be mounted may not be pulled with.
        (
            pull("ok"),
            container("c"),
            "imagePullSecrets[1].name=\"ok\" is not allowed because service account strict does not reference that imagePullSecret",
        ),
    ];
    let dry = format!("{PODS}?dryRun=All");
    for (spec, container, expected) in cases {
        let pod = |account: &str| careful(account, spec.clone(), container.clone());
        let (code, answer) = world.admin("POST", &dry, &pod("strict")).await;
        assert_eq!(
            (code, answer["message"].as_str().unwrap()),
            (403, &*format!("pods \"p\" is forbidden: {expected}"))
        );
        for (account, expected) in [("short", 403), ("lax", 201), ("odd", 201)] {
            let (code, answer) = world.admin("POST", &dry, &pod(account)).await;
            assert_eq!(code, expected, "{account}: {answer}");
        }
    }
    let mut own = with("c", "env", variable("E", "ok"));
    own["envFrom"] = all_of("ok");
    // The token that every Pod gets, and the account's own pull Secrets, are never in the way.
    let made = world.make(PODS, careful("strict", volume("ok"), own)).await;
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
}

#[tokio::test]
async fn a_careful_account_is_debugged_with_its_own_secrets_only() {
    let world = World::new().await;
    accounts(&world).await;
    for account in ["strict", "lax"] {
        let mut pod = careful(account, json!({}), json!({"name": "c", "image": "x"}));
        pod["metadata"]["name"] = account.into();
        world.make(PODS, pod).await;
    }
    let debug = async |pod: &str, field: &str, value: Value| {
        let mut container = json!({"name": "e", "image": "x"});
        container[field] = value;
        let patch = json!({"spec": {"ephemeralContainers": [container]}});
        let path = format!("{PODS}/{pod}/ephemeralcontainers?dryRun=All");
        let (code, answer) = world.admin("PATCH", &path, &patch).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let end = "referencing secret.secretName=\"other\" is not allowed because service account strict does not reference that secret";
    // kube-apiserver's plug-in forgets to say that this is forbidden.
    let refused = |how: &str| (500, format!("ephemeral container e with {how} {end}"));
    assert_eq!(debug("strict", "env", variable("E", "other")).await, refused("envVar E"));
    assert_eq!(debug("strict", "envFrom", all_of("other")).await, refused("envFrom"));
    assert_eq!(debug("strict", "envFrom", all_of("ok")).await.0, 200);
    assert_eq!(debug("lax", "envFrom", all_of("other")).await.0, 200);

    let gone = format!("{BASE}/serviceaccounts/lax");
    assert_eq!(world.admin("DELETE", &gone, &Value::Null).await.0, 200);
    let why =
        "pods \"lax\" is forbidden: error looking up service account default/lax: serviceaccount \"lax\" not found";
    assert_eq!(debug("lax", "envFrom", all_of("ok")).await, (403, why.to_owned()));
}
