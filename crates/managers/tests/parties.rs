//! The three parties with certificates of their own, over TLS: what each may do, and what the shipped policies say.

mod common;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use common::Cluster;
use common::people::{DATABASES, database, message, people, said};
use conductor_managers::{Managers, Options};
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

const POLICY: &str = "admissionregistration.k8s.io/v1";

#[tokio::test(flavor = "multi_thread")]
async fn each_party_may_do_its_part_and_no_more() {
    let (cluster, people) = people().await;
    cluster
        .create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "conductor-system"}, "stringData": {"k": "hidden"}}))
        .await;
    cluster
        .create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "other"}, "stringData": {"k": "hidden"}}))
        .await;
    let claims = |namespace: &str| format!("{DATABASES}/namespaces/{namespace}/relationaldatabaseclaims");
    let dry = "?dryRun=All";
    let class = json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClass", "metadata": {"name": "x"}, "reclaimPolicy": "Retain"});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    // One column per person: user, cluster admin, infrastructure admin, stranger; `+` may, `-` may not.
    let table: Vec<(Method, String, Value, &str)> = vec![
        (Method::GET, claims("shop"), Value::Null, "++--"),
        (Method::GET, claims("other"), Value::Null, "-+--"),
        (Method::GET, format!("{DATABASES}/relationaldatabaseclaims"), Value::Null, "-+--"),
        (Method::POST, claims("shop") + dry, database("c", json!({"engine": "x"})), "+---"),
        (Method::POST, claims("other") + dry, database("c", json!({"engine": "x"})), "----"),
        (Method::GET, format!("{DATABASES}/relationaldatabaseclasses"), Value::Null, "++++"),
        (Method::POST, format!("{DATABASES}/relationaldatabaseclasses{dry}"), class, "-+--"),
        (Method::GET, format!("{DATABASES}/relationaldatabases"), Value::Null, "-+--"),
        (Method::GET, "/apis/conductor.io/v1alpha1/managers".into(), Value::Null, "++++"),
        (Method::DELETE, "/apis/conductor.io/v1alpha1/managers/none".into(), Value::Null, "-+--"),
        (Method::GET, "/apis/conductor.io/v1alpha1/resourcetypes".into(), Value::Null, "++++"),
        (Method::DELETE, "/apis/conductor.io/v1alpha1/resourcetypes/none".into(), Value::Null, "-+--"),
        (Method::GET, "/api/v1/namespaces/conductor-system/secrets/key".into(), Value::Null, "--+-"),
        (Method::GET, "/api/v1/namespaces/conductor-system/secrets".into(), Value::Null, "--+-"),
        (Method::GET, "/api/v1/namespaces/other/secrets/key".into(), Value::Null, "----"),
        (Method::GET, "/api/v1/namespaces/shop/secrets".into(), Value::Null, "+---"),
        (Method::GET, "/api/v1/secrets".into(), Value::Null, "----"),
        (Method::GET, "/api/v1/secrets?watch=1&timeoutSeconds=1".into(), Value::Null, "----"),
        (Method::GET, "/api/v1/ns/conductor-system/secrets/key".into(), Value::Null, "--+-"),
        (Method::GET, "/api/v1/namespaces/conductor-system/secrets/key/".into(), Value::Null, "--+-"),
        (Method::GET, "/api/v1/namespaces/shop/..%2Fconductor-system/secrets/key".into(), Value::Null, "----"),
        (Method::GET, "/api/v1/namespaces/shop/%2e%2e/conductor-system/secrets/key".into(), Value::Null, "----"),
        (Method::GET, "/api/v1/namespaces//conductor-system/secrets/key".into(), Value::Null, "----"),
        (
            Method::GET,
            "/apis/database.aws.conductor.io/v1alpha1/namespaces/conductor-system/rdsinstances".into(),
            Value::Null,
            "--+-",
        ),
        (Method::GET, "/api/v1/persistentvolumes".into(), Value::Null, "-++-"),
        (Method::POST, format!("/api/v1/namespaces{dry}"), json!({"metadata": {"name": "n"}}), "-+--"),
        // Nobody gives away what they do not have.
        (Method::POST, format!("{rbac}/namespaces/shop/roles{dry}"), role, "----"),
        (Method::GET, format!("{rbac}/clusterroles"), Value::Null, "----"),
        (
            Method::DELETE,
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/pods-name-no-infrastructure?dryRun=All"
                .into(),
            Value::Null,
            "----",
        ),
    ];
    let mut wrong = Vec::new();
    for (method, path, body, expected) in &table {
        for (person, may) in people.iter().zip(expected.chars()) {
            let (code, answer) = person.send(method.clone(), path, body).await;
            let allowed = !matches!(code, 400 | 401 | 403);
            // A deletion of what does not exist is allowed, and finds nothing.
            if allowed != (may == '+') {
                wrong.push(format!("{method} {path}: {code} {}, expected {expected}", message(&answer)));
            }
            assert!(!answer.to_string().contains("aGlkZGVu") || may == '+', "{path} shows a secret: {answer}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_can_be_for_some_only() {
    let (cluster, [jane, claus, ..]) = people().await;
    let claims = format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims");
    for (name, labels) in [("gold", json!({"conductor.io/use": "required"})), ("silver", json!({}))] {
        let class = json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClass", "metadata": {"name": name, "labels": labels}, "reclaimPolicy": "Retain"});
        let (code, answer) = claus.send(Method::POST, &format!("{DATABASES}/relationaldatabaseclasses"), &class).await;
        assert_eq!(code, 201, "{answer}");
    }
    let (code, answer) = jane.send(Method::POST, &claims, &database("a", json!({"class": "gold"}))).await;
    assert_eq!(code, 403, "{answer}");
    assert_eq!(
        message(&answer),
        "relationaldatabaseclaims.storage.conductor.io \"a\" is forbidden: ValidatingAdmissionPolicy 'use.relationaldatabases.storage.conductor.io' with binding \
         'use.relationaldatabases.storage.conductor.io' denied request: class gold is for those who have the verb use on it \
         (kubectl auth can-i use relationaldatabaseclasses.storage.conductor.io/gold): ask an administrator, or choose another class"
    );
    // Nor by naming a resource of it; any other may be named.
    for class in ["gold", "silver"] {
        let resource = json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": class}, "spec": {"engine": "x", "class": class}});
        assert_eq!(claus.send(Method::POST, &format!("{DATABASES}/relationaldatabases"), &resource).await.0, 201);
        let named = database(&format!("by-{class}"), json!({"resourceName": class}));
        let (code, answer) = jane.send(Method::POST, &claims, &named).await;
        assert_eq!(code, 201, "{answer}");
        let at =
            common::target("storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", "shop", &format!("by-{class}"));
        if class == "silver" {
            cluster.until(&at, "bound", common::phase_is("Bound")).await;
        } else {
            assert!(said(&cluster, &at, "NotAllowed").await.contains("the verb use"));
        }
    }
    // What all of it hangs on is not deleted by mistake.
    for (path, expected) in [
        ("/api/v1/namespaces/conductor-system", "what is behind every claim is in conductor-system"),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/relationaldatabaseclaims.storage.conductor.io",
            "this is of ResourceType relationaldatabases.storage.conductor.io, and all its objects would go with it",
        ),
        (
            "/apis/storage.conductor.io/v1alpha1/relationaldatabaseclasses/gold",
            "what there is of this class would be for everybody",
        ),
    ] {
        let (code, answer) = cluster
            .api
            .call(Method::DELETE, path, "application/json", Vec::new())
            .await
            .map_or_else(|failure| (failure.code, failure.message), |answer| (200, answer.to_string()));
        assert!(code == 403 && answer.contains(expected), "{code} {answer}");
    }
    // Nobody asks for less than nothing, in whatever form: a quota would count it.
    for amount in [json!(-5), json!("-5"), json!(-5.5)] {
        let less = database("less", json!({"resources": {"requests": {"storage": amount}}}));
        let (code, answer) = jane.send(Method::POST, &claims, &less).await;
        assert!(code == 422 && message(&answer).contains("spec.resources.requests.storage"), "{amount}: {answer}");
    }
    // Who names none gets what everybody may have, whatever else would fit better, and hears nothing of the rest.
    let spare = json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": "spare"}, "spec": {"engine": "x", "class": "silver"}});
    assert_eq!(claus.send(Method::POST, &format!("{DATABASES}/relationaldatabases"), &spare).await.0, 201);
    let any = common::target("storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", "shop", "any");
    assert_eq!(jane.send(Method::POST, &claims, &database("any", json!({}))).await.0, 201);
    let bound = cluster.until(&any, "bound", common::phase_is("Bound")).await.expect("is there");
    assert_eq!(bound["spec"]["resourceName"], "spare");
    for (name, guess) in [("right", "g"), ("wrong", "z")] {
        let guess = json!({"expression": format!("resource.metadata.name.startsWith('{guess}')")});
        assert_eq!(jane.send(Method::POST, &claims, &database(name, guess)).await.0, 201);
        let at = common::target("storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", "shop", name);
        let text = said(&cluster, &at, "NoMatch").await;
        assert!(text.contains("1 of a class that its maker may not use"), "{text}");
    }
    // Nor later.
    let (code, made) = jane.send(Method::POST, &claims, &database("a", json!({"class": "silver"}))).await;
    assert_eq!(code, 201, "{made}");
    let gold = json!({"spec": {"class": "gold"}});
    assert_eq!(jane.send(Method::PATCH, &format!("{claims}/a"), &gold).await.0, 403);
    // The verb is enough.
    cluster
        .create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "gold"}, "rules": [
            {"apiGroups": ["storage.conductor.io"], "resources": ["relationaldatabaseclasses"], "resourceNames": ["gold"], "verbs": ["use"]}]}))
        .await;
    cluster
        .create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "gold"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gold"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}))
        .await;
    let (code, answer) = jane.send(Method::POST, &claims, &database("b", json!({"class": "gold"}))).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_made_a_claim_is_on_it_and_cannot_be_forged() {
    let (_cluster, [jane, claus, ..]) = people().await;
    let (by, groups) = ("conductor.io/created-by", "conductor.io/created-by-groups");
    for (path, mut object) in [
        (format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims"), database("a", json!({"engine": "x"}))),
        ("/api/v1/namespaces/shop/persistentvolumeclaims".to_owned(), common::volume_claim("shop", "a", "1Gi", "")),
    ] {
        object["metadata"]["annotations"] = json!({by: "root", groups: "system:masters"});
        let (code, made) = jane.send(Method::POST, &path, &object).await;
        assert_eq!(code, 201, "{made}");
        let said = |object: &Value| {
            (object["metadata"]["annotations"][by].clone(), object["metadata"]["annotations"][groups].clone())
        };
        let truth = (json!("jane"), json!("devs%2Csystem:masters,system:authenticated"));
        assert_eq!(said(&made), truth, "{path}");
        for forged in [json!({by: "root"}), json!({by: null, groups: null}), json!({groups: "system:masters"})] {
            let (code, changed) =
                jane.send(Method::PATCH, &format!("{path}/a"), &json!({"metadata": {"annotations": forged}})).await;
            assert_eq!((code, said(&changed)), (200, truth.clone()), "{changed}");
        }
        let (code, _) = claus.send(Method::GET, &format!("{path}/a"), &Value::Null).await;
        assert_eq!(code, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_users_name_no_infrastructure() {
    let (cluster, [jane, ..]) = people().await;
    let pods = "/api/v1/namespaces/shop/pods";
    let pod = |volumes: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": volumes}});
    for (volumes, refused) in [
        (json!([{"name": "a", "hostPath": {"path": "/"}}]), "volumes a name infrastructure in-line"),
        (
            json!([{"name": "a", "emptyDir": {}}, {"name": "b", "nfs": {"server": "s", "path": "/"}}, {"name": "c", "csi": {"driver": "d"}}]),
            "volumes b, c name infrastructure in-line",
        ),
        (
            json!([{"name": "a", "iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2026-01.x:y", "lun": 0}}]),
            "volumes a name",
        ),
        (
            json!([{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "b", "configMap": {"name": "m"}}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "d", "downwardAPI": {}}]),
            "",
        ),
        (json!([]), ""),
    ] {
        let (code, answer) = jane.send(Method::POST, &format!("{pods}?dryRun=All"), &pod(volumes.clone())).await;
        if refused.is_empty() {
            assert_eq!(code, 201, "{volumes}: {answer}");
        } else {
            assert!(code == 403 && message(&answer).contains(refused), "{volumes}: {code} {answer}");
        }
    }
    // A cluster admin lets a namespace off.
    let label = json!({"metadata": {"labels": {"conductor.io/infrastructure": "allowed"}}});
    assert_eq!(jane.send(Method::PATCH, "/api/v1/namespaces/shop", &label).await.0, 403);
    cluster.patch(&common::target("v1", "Namespace", "", "shop"), label).await;
    let path = json!([{"name": "a", "hostPath": {"path": "/"}}]);
    assert_eq!(jane.send(Method::POST, &format!("{pods}?dryRun=All"), &pod(path)).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_gives_nobody_the_managers_rights() {
    let (cluster, [jane, claus, ..]) = people().await;
    let rbac = "rbac.authorization.k8s.io/v1";
    let objects = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "kube-system"}, "stringData": {"a": "b"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}}),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"labels": {"conductor.io/aggregate-to-cluster-admin": "true"}},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
            "validations": [{"expression": "false"}]}}),
    ];
    let databases = format!("{DATABASES}/relationaldatabases");
    for (i, template) in objects.iter().enumerate() {
        let name = format!("evil{i}");
        let resource = json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": name},
            "spec": {"engine": "x", "templates": [{"name": "a", "template": template}]}});
        let (code, answer) = claus.send(Method::POST, &databases, &resource).await;
        assert_eq!(code, 201, "{answer}");
        let at = common::target("storage.conductor.io/v1alpha1", "RelationalDatabase", "", &name);
        let text = said(&cluster, &at, if i == 0 { "TemplateFailed" } else { "NotAllowed" }).await;
        let advice =
            if i == 0 { "implementations live in conductor-system" } else { "conductor.io/aggregate-to-provisioner" };
        assert!(text.contains(advice), "{text}");
        let kind = template["kind"].as_str().expect("a kind");
        let all =
            cluster.api.list(template["apiVersion"].as_str().expect("a version"), kind, "").await.expect("a list");
        let named = |o: &&Value| o["metadata"]["name"].as_str().is_some_and(|n| n.starts_with("evil"));
        assert!(!all.iter().any(|o| named(&o)), "{kind} was made");
    }
    // Nor is anything read, taken over or deleted for her: an existing Secret adopted and shown to her claim.
    cluster.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "conductor-system"}, "stringData": {"k": "hidden"}})).await;
    let resource = json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": "thief"},
        "spec": {"engine": "x", "readyWhen": "true", "reclaimPolicy": "Delete", "connection": {"password": "implementation.data.k"},
            "implementationRef": {"apiVersion": "v1", "kind": "Secret", "name": "key"}}});
    let (code, answer) = claus.send(Method::POST, &databases, &resource).await;
    assert_eq!(code, 201, "{answer}");
    said(&cluster, &common::target("storage.conductor.io/v1alpha1", "RelationalDatabase", "", "thief"), "NotAllowed")
        .await;
    let key = cluster.get(&common::target("v1", "Secret", "conductor-system", "key")).await.expect("is there");
    assert!(key["metadata"]["labels"].is_null(), "{key}");

    // Where Secrets are made for resources, too: who may write it has not said that it is to be adopted.
    cluster.create(&json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "secrets", "labels": {"conductor.io/aggregate-to-provisioner": "true"}},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]})).await;
    let thief = common::target("storage.conductor.io/v1alpha1", "RelationalDatabase", "", "thief");
    said(&cluster, &thief, "conductor.io/adoptable").await;
    let key = cluster.get(&common::target("v1", "Secret", "conductor-system", "key")).await.expect("is there");
    assert!(key["metadata"]["labels"].is_null(), "{key}");
    assert!(cluster.get(&thief).await.expect("there")["status"]["implementations"].is_null());

    // Nor what she named once and was refused: a Secret, and what another resource has behind it.
    let (storage, rds) = ("storage.conductor.io/v1alpha1", "database.aws.conductor.io/v1alpha1");
    let template = json!({"apiVersion": rds, "kind": "RDSInstance", "spec": {"class": "db.t2.small"}});
    cluster.create(&json!({"apiVersion": storage, "kind": "RelationalDatabase", "metadata": {"name": "victim"}, "spec": {"engine": "y", "template": template}})).await;
    let victim = common::target(rds, "RDSInstance", "conductor-system", "victim");
    cluster.until(&victim, "made", |o| o.is_some()).await;
    cluster.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "conductor-system"}, "stringData": {"password": "hidden"}})).await;
    let ready = json!({"connectionSecretRef": {"name": "login"}, "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]});
    cluster.patch(&victim.status(), json!({"status": ready})).await;
    cluster
        .until(&common::target(storage, "RelationalDatabase", "", "victim"), "Available", common::phase_is("Available"))
        .await;
    for (name, behind, why) in [
        ("secretive", json!({"apiVersion": "v1", "kind": "Secret", "name": "key"}), "conductor.io/adoptable"),
        ("greedy", json!({"apiVersion": rds, "kind": "RDSInstance", "name": "victim"}), "is the implementation of"),
    ] {
        let mut resource = json!({"apiVersion": storage, "kind": "RelationalDatabase", "metadata": {"name": name},
            "spec": {"engine": "x", "readyWhen": "true", "implementationRef": behind}});
        if name == "secretive" {
            resource["spec"]["connection"] = json!({"password": "implementation.data.k"});
        }
        let (code, answer) = claus.send(Method::POST, &databases, &resource).await;
        assert_eq!(code, 201, "{answer}");
        let at = common::target(storage, "RelationalDatabase", "", name);
        said(&cluster, &at, why).await;
        let patch = json!({"spec": {"implementationRef": null}});
        let (code, answer) = claus.send(Method::PATCH, &format!("{databases}/{name}"), &patch).await;
        assert_eq!(code, 200, "{answer}");
        cluster.until(&at, "free", common::phase_is("Available")).await;
        let claim = database(name, json!({"engine": "x", "resourceName": name}));
        let claims = format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims");
        let (code, answer) = jane.send(Method::POST, &claims, &claim).await;
        assert_eq!(code, 201, "{answer}");
        let claim = common::target(storage, "RelationalDatabaseClaim", "shop", name);
        cluster.until(&claim, "bound", common::phase_is("Bound")).await;
    }
    // Nor what stands there as hers and is not: this one cannot be forgotten.
    let hoard = json!({"apiVersion": storage, "kind": "RelationalDatabase", "metadata": {"name": "hoard"},
        "spec": {"engine": "x", "connection": {"password": "implementation.data.k"}}});
    cluster.create(&hoard).await;
    let at = common::target(storage, "RelationalDatabase", "", "hoard");
    cluster.until(&at, "free", common::phase_is("Available")).await;
    let admission = "admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": ["storage.conductor.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["relationaldatabases/status"]});
    let kept = "object.metadata.name != 'hoard' || has(object.status.implementations)";
    cluster
        .create(&json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "kept"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": kept}]}}))
        .await;
    cluster
        .create(
            &json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "kept"},
            "spec": {"policyName": "kept", "validationActions": ["Deny"]}}),
        )
        .await;
    let path = cluster.api.path(&at.clone().status()).await.expect("a path");
    let api = &cluster.api;
    let send = |path: String, patch: Value| async move {
        api.call_bytes(Method::PATCH, &path, "application/merge-patch+json", patch.to_string().into_bytes()).await
    };
    while send(format!("{path}?dryRun=All"), json!({"status": {"message": "x"}})).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let record = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "conductor-system", "name": "key"});
    send(path, json!({"status": {"implementations": [record], "implementationRef": "key"}})).await.expect("is taken");
    let claims = format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims");
    let claim = database("hoard", json!({"engine": "x", "resourceName": "hoard"}));
    let (code, answer) = jane.send(Method::POST, &claims, &claim).await;
    assert_eq!(code, 201, "{answer}");
    let claim = common::target(storage, "RelationalDatabaseClaim", "shop", "hoard");
    cluster.until(&claim, "bound", common::phase_is("Bound")).await;
    assert!(cluster.get(&at).await.expect("is there")["status"]["implementations"].is_array());

    // What an administrator allows is made.
    cluster.create(&json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "maps", "labels": {"conductor.io/aggregate-to-provisioner": "true"}},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]})).await;
    let resource = json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": "map"},
        "spec": {"engine": "x", "readyWhen": "true", "connection": {"a": "implementation.data.a"},
            "template": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}}});
    let (code, answer) = claus.send(Method::POST, &databases, &resource).await;
    assert_eq!(code, 201, "{answer}");
    let at = common::target("storage.conductor.io/v1alpha1", "RelationalDatabase", "", "map");
    cluster.until(&at, "Available", common::phase_is("Available")).await;
    let claim = database("map", json!({"engine": "x", "resourceName": "map"}));
    let (code, answer) = jane.send(Method::POST, &claims, &claim).await;
    assert_eq!(code, 201, "{answer}");
    let details = |name: &str| common::target("v1", "Secret", "shop", &format!("{name}-relationaldatabase"));
    cluster.until(&details("map"), "told", |o| o.is_some_and(|o| o["data"]["a"] == "Yg==")).await;
    // By now everybody who came before would have been told.
    for name in ["secretive", "greedy", "hoard"] {
        assert!(cluster.get(&details(name)).await.is_none(), "{name} is told what is not its own");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_of_a_volume_names_no_directory_of_the_machine() {
    let (cluster, [jane, claus, ..]) = people().await;
    let group = "volume.local.conductor.io";
    cluster.create(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("directoryvolumes.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": "DirectoryVolume", "listKind": "DirectoryVolumeList", "plural": "directoryvolumes", "singular": "directoryvolume"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})).await;
    let (code, answer) = claus.send(Method::POST, "/apis/storage.k8s.io/v1/storageclasses", &json!({"metadata": {"name": "etc"}, "provisioner": "volume.conductor.io", "parameters": {"template": "etc"}})).await;
    assert_eq!(code, 201, "{answer}");
    let template = json!({"apiVersion": format!("{group}/v1alpha1"), "kind": "DirectoryVolume", "spec": {"path": "/etc", "size": "1Gi"}});
    let object = json!({"apiVersion": "conductor.io/v1alpha1", "kind": "VolumeTemplate", "metadata": {"name": "etc"}, "spec": {"template": template}});
    let (code, answer) = claus.send(Method::POST, "/apis/conductor.io/v1alpha1/volumetemplates", &object).await;
    assert_eq!(code, 201, "{answer}");
    let claims = "/api/v1/namespaces/shop/persistentvolumeclaims";
    let (code, answer) = jane.send(Method::POST, claims, &common::volume_claim("shop", "a", "1Gi", "etc")).await;
    assert_eq!(code, 201, "{answer}");
    // Its kind is allowed to nobody yet, then to the provisioner as its provider does; the path still is not.
    said(&cluster, &common::pvc("shop", "a"), "NotAllowed").await;
    cluster.create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "directories", "labels": {"conductor.io/aggregate-to-provisioner": "true"}},
        "rules": [{"apiGroups": [group], "resources": ["directoryvolumes"], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]})).await;
    said(&cluster, &common::pvc("shop", "a"), "spec.path names a directory of a machine").await;
    let made = cluster.api.list(&format!("{group}/v1alpha1"), "DirectoryVolume", "").await.expect("a list");
    assert!(made.is_empty(), "{made:?}");
    // An administrator of infrastructure declares one.
    let mut own = template;
    own["metadata"] = json!({"name": "own", "namespace": "conductor-system"});
    cluster.create(&own).await;
}

/// A claim that gets its class after it was made is judged by who made it, and charged.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_asks_for_no_token_of_the_system() {
    let (cluster, [_, _, ina, _]) = people().await;
    let secrets = "/api/v1/namespaces/conductor-system/secrets";
    let secret = |kind: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"generateName": "s-", "annotations": {"kubernetes.io/service-account.name": "managers"}}})
    };
    let token = secret("kubernetes.io/service-account-token");
    let (code, answer) = ina.send(Method::POST, secrets, &token).await;
    assert!(code == 403 && message(&answer).contains("serviceaccounts/token"), "{code} {answer}");
    let (code, answer) = ina.send(Method::POST, secrets, &secret("Opaque")).await;
    assert_eq!(code, 201, "{answer}");
    let rbac = "rbac.authorization.k8s.io/v1";
    let meta = json!({"name": "tokens", "namespace": "conductor-system"});
    cluster
        .create(&json!({"apiVersion": rbac, "kind": "Role", "metadata": meta, "rules": [
            {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["managers"], "verbs": ["create"]}]}))
        .await;
    cluster
        .create(&json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tokens"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ina"}]}))
        .await;
    let (code, answer) = ina.send(Method::POST, secrets, &token).await;
    assert_eq!(code, 201, "{answer}");
    let name = answer["metadata"]["name"].as_str().expect("a name");
    let at = common::target("v1", "Secret", "conductor-system", name);
    cluster.until(&at, "given its token", |own| own.is_some_and(|own| own["data"]["token"].is_string())).await;
    // The account of another is not to be had by renaming.
    let renamed = json!({"metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}}, "data": {"token": null}});
    let (code, answer) = ina.send(Method::PATCH, &format!("{secrets}/{name}"), &renamed).await;
    assert!(code == 403 && message(&answer).contains("serviceaccounts/token"), "{code} {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_takes_over_no_kinds_that_are_there() {
    let (cluster, [_, claus, ..]) = people().await;
    let types = "/apis/conductor.io/v1alpha1/resourcetypes";
    let kind = |group: &str, names: [&str; 3]| {
        json!({"apiVersion": "conductor.io/v1alpha1", "kind": "ResourceType",
        "metadata": {"name": format!("{}s.{group}", names[0].to_ascii_lowercase())},
        "spec": {"group": group, "version": "v1alpha1", "names": {"resource": names[0], "claim": names[1], "class": names[2]}}})
    };
    for (group, names, reason) in [
        ("rbac.authorization.k8s.io", ["ClusterRole", "ClusterRoleClaim", "ClusterRoleKind"], "belongs to the server"),
        ("database.aws.conductor.io", ["RDSInstance", "RDSClaim", "RDSKind"], "is defined already"),
        ("database.aws.conductor.io", ["Thing", "RDSInstance", "ThingKind"], "is defined already"),
    ] {
        let object = kind(group, names);
        let (code, answer) = claus.send(Method::POST, types, &object).await;
        assert_eq!(code, 201, "{answer}");
        let name = object["metadata"]["name"].as_str().expect("a name");
        let at = common::target("conductor.io/v1alpha1", "ResourceType", "", name);
        assert!(said(&cluster, &at, reason).await.contains(reason));
        let role = format!("conductor:{name}:administer");
        assert!(cluster.get(&common::target("rbac.authorization.k8s.io/v1", "ClusterRole", "", &role)).await.is_none());
        cluster.delete(&at).await;
    }
    let crd = common::target(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        "rdsinstances.database.aws.conductor.io",
    );
    cluster.until(&crd, "stays", |crd| crd.is_some_and(|crd| crd["metadata"]["deletionTimestamp"].is_null())).await;
}

/// Whoever asks for no amount and gets what is there is charged that: asking for nothing is no way past a quota.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_being_bound_stays() {
    let cluster = Cluster::start(true).await;
    let claim = |uid: Value| json!({"spec": {"claimRef": {"namespace": "default", "name": "c", "uid": uid}}});
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    let delete = async |name: &str| {
        let path = format!("/api/v1/persistentvolumes/{name}");
        cluster.api.call(Method::DELETE, &path, "application/json", Vec::new()).await.map(drop).map_err(|e| e.message)
    };
    for name in ["free", "reserved", "left", "bound", "released", "binding"] {
        cluster.create(&common::volume(name, "1Gi", "")).await;
        let at = common::pv(name);
        cluster.patch(&at.clone().status(), phase("Available")).await;
        match name {
            "free" => {}
            "reserved" => drop(cluster.patch(&at, claim(Value::Null)).await),
            _ => drop(cluster.patch(&at, claim(json!("u"))).await),
        }
        let said = match name {
            "bound" => "Bound",
            "released" => "Released",
            _ => "Available",
        };
        cluster.patch(&at.status(), phase(said)).await;
    }
    let refused = delete("left").await.expect_err("its claim may say Bound already");
    assert!(refused.contains("it is being bound to claim default/c: delete that first"), "{refused}");
    // where nobody will ever say Bound
    cluster.patch(&common::pv("left"), claim(Value::Null)).await;
    for name in ["free", "reserved", "left", "bound", "released"] {
        assert_eq!(delete(name).await, Ok(()), "{name}");
    }
    assert!(delete("binding").await.is_err());
}

/// A server that does not take policies of a type, nor what is said of it once, until it is told to.
#[derive(Clone)]
struct Refusing {
    inner: conductor_apiserver::Service,
    refuses: Arc<AtomicBool>,
    deaf: Arc<AtomicUsize>,
}

impl tower::Service<Request<Body>> for Refusing {
    type Response = Response<conductor_apiserver::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut inner = self.inner.clone();
        let path = request.uri().path();
        let of_type = path.ends_with("gpus.lab.example.com") && path.contains("/validatingadmissionpolicies/");
        let says = *request.method() == Method::PATCH && path.ends_with("/resourcetypes/gpus.lab.example.com/status");
        let once = |left: usize| left.checked_sub(1);
        let code = match () {
            () if of_type && self.refuses.load(Ordering::Acquire) => Some(403),
            () if says && self.deaf.fetch_update(Ordering::AcqRel, Ordering::Acquire, once).is_ok() => Some(500),
            () => None,
        };
        Box::pin(async move {
            let Some(code) = code else { return tower::Service::call(&mut inner, request).await };
            let status = json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": "not taken here"});
            let mut response = Response::new(conductor_apiserver::body::Body::whole(status.to_string()));
            *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
            Ok(response)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_guards_a_type_and_is_refused_is_said_and_tried_again() {
    let cluster = Cluster::start(true).await;
    let (refuses, deaf) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(1)));
    let inner = cluster.server().service(common::admin());
    let client = kube::Client::new(Refusing { inner, refuses: refuses.clone(), deaf: deaf.clone() }, "default");
    let _managers = Managers::start(client, Options::default()).await.expect("managers");
    let gpus = json!({
        "apiVersion": "conductor.io/v1alpha1", "kind": "ResourceType", "metadata": {"name": "gpus.lab.example.com"},
        "spec": {"group": "lab.example.com", "version": "v1", "names": {"resource": "GPU", "claim": "GPUClaim", "class": "GPUClass"}},
    });
    cluster.create(&gpus).await;
    let at = common::target("conductor.io/v1alpha1", "ResourceType", "", "gpus.lab.example.com");
    let guarded = |says: &'static str| {
        move |object: Option<&Value>| {
            let all = object.and_then(|object| object["status"]["conditions"].as_array());
            all.into_iter().flatten().any(|c| c["type"] == "Guarded" && c["status"] == says)
        }
    };
    let said = cluster.until(&at, "said to be unguarded", guarded("False")).await.expect("is there");
    assert_eq!(deaf.load(Ordering::Acquire), 0, "that it could not be said was not forgotten");
    let text = said["status"]["conditions"].to_string();
    assert!(text.contains("not taken here") && text.contains("what it guards is unguarded"), "{text}");
    let policy = common::target(POLICY, "ValidatingAdmissionPolicy", "", "use.gpus.lab.example.com");
    let binding = common::target(POLICY, "ValidatingAdmissionPolicyBinding", "", "use.gpus.lab.example.com");
    assert!(cluster.get(&policy).await.is_none() && cluster.get(&binding).await.is_none());
    // every minute, and whenever somebody touches the type; what depends on it comes with it
    refuses.store(false, Ordering::Release);
    cluster.patch(&at, json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    cluster.until(&at, "said to be guarded", guarded("True")).await;
    assert!(cluster.get(&policy).await.is_some() && cluster.get(&binding).await.is_some());
}
