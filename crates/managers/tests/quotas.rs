//! What a class makes and a claim takes counts against quotas, whenever it is known.

mod common;

use common::people::{DATABASES, database, message, people, said};
use http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_comes_later_is_judged_and_charged() {
    let (cluster, [jane, claus, ..]) = people().await;
    let claims = format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims");
    let at = |name: &str| common::target("storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", "shop", name);
    let class = |name: &str, labels: Value| json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClass", "metadata": {"name": name, "labels": labels}, "reclaimPolicy": "Retain"});
    let resource = |name: &str, class: &str| json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": name}, "spec": {"engine": "x", "class": class}});
    // Before its class is there, nobody refuses it.
    let (code, answer) = jane.send(Method::POST, &claims, &database("early", json!({"class": "gold"}))).await;
    assert_eq!(code, 201, "{answer}");
    cluster.create(&class("gold", json!({"conductor.io/use": "required"}))).await;
    cluster.create(&resource("nugget", "gold")).await;
    said(&cluster, &at("early"), "NotAllowed").await;
    // One that is the default is judged at creation, too.
    let managers = "/apis/conductor.io/v1alpha1/managers";
    let manager = |class: &str| {
        json!({"apiVersion": "conductor.io/v1alpha1", "kind": "Manager", "metadata": {"name": class},
        "spec": {"type": "relationaldatabases.storage.conductor.io", "default": true, "defaultClass": class, "classes": [{"name": class}]}})
    };
    let (code, answer) = claus.send(Method::POST, managers, &manager("gold")).await;
    assert_eq!(code, 201, "{answer}");
    let gold = common::target("conductor.io/v1alpha1", "Manager", "", "gold");
    let is_default = |manager: Option<&Value>| manager.is_some_and(|manager| manager["status"]["default"] == true);
    cluster.until(&gold, "the default", is_default).await;
    let (code, answer) = jane.send(Method::POST, &claims, &database("now", json!({}))).await;
    assert!(
        code == 403 && message(&answer).contains("class gold is for those who have the verb use"),
        "{code} {answer}"
    );
    // Without a default, claims that name none wait.
    cluster.delete(&gold).await;
    cluster.until(&gold, "gone", |manager| manager.is_none()).await;
    for i in 0..3 {
        let (code, answer) = jane.send(Method::POST, &claims, &database(&format!("none{i}"), json!({}))).await;
        assert_eq!((code, &answer["spec"]["class"]), (201, &Value::Null), "{answer}");
        let text = said(&cluster, &at(&format!("none{i}")), "NoMatch").await;
        assert!(text.contains("1 of a class that its maker may not use"), "{text}");
    }
    let nugget = cluster
        .get(&common::target("storage.conductor.io/v1alpha1", "RelationalDatabase", "", "nugget"))
        .await
        .expect("is there");
    assert!(nugget["spec"]["claimRefs"].is_null(), "{nugget}");
    // A class for everybody as the default: its quota counts the claims that waited, and those that come.
    cluster.create(&class("open", json!({}))).await;
    let per = "open.relationaldatabaseclass.storage.conductor.io/relationaldatabaseclaims";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "shop"}, "spec": {"hard": {per: "2"}}});
    cluster.create(&quota).await;
    cluster.create(&manager("open")).await;
    cluster.until(&common::target("conductor.io/v1alpha1", "Manager", "", "open"), "the default", is_default).await;
    for i in 0..3 {
        cluster.create(&resource(&format!("open{i}"), "open")).await;
    }
    let mut over = Vec::new();
    for i in 0..3 {
        let name = format!("none{i}");
        let settled = |claim: Option<&Value>| {
            claim.is_some_and(|c| c["status"]["phase"] == "Bound" || c["status"].to_string().contains("exceeded quota"))
        };
        let claim = cluster.until(&at(&name), "bound or over the quota", settled).await.expect("is there");
        if claim["status"]["phase"] != "Bound" {
            over.push(name);
        }
    }
    assert_eq!(over.len(), 1, "{over:?}");
    let (code, answer) = jane.send(Method::POST, &claims, &database("c", json!({}))).await;
    assert!(code == 403 && message(&answer).contains("exceeded quota"), "{code} {answer}");
    cluster.delete(&at(&over[0])).await;
    let bound = (0..3).map(|i| format!("none{i}")).find(|name| *name != over[0]).expect("two are bound");
    cluster.delete(&at(&bound)).await;
    cluster.until(&at(&bound), "gone", |claim| claim.is_none()).await;
    let (code, answer) = jane.send(Method::POST, &claims, &database("c", json!({}))).await;
    assert_eq!((code, &answer["spec"]["class"]), (201, &json!("open")), "{answer}");
    cluster.until(&at("c"), "bound", common::phase_is("Bound")).await;
    // The annotation that once named the class of a volume is no way round.
    cluster.create(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gold", "labels": {"conductor.io/use": "required"}}, "provisioner": "x.example.com"})).await;
    let mut volume = common::volume_claim("shop", "old", "1Gi", "");
    volume["spec"].as_object_mut().map(|spec| spec.remove("storageClassName"));
    volume["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "gold"});
    let (code, answer) = jane.send(Method::POST, "/api/v1/namespaces/shop/persistentvolumeclaims", &volume).await;
    assert!(code == 403 && message(&answer).contains("the verb use"), "{code} {answer}");
}

/// A class makes no less than its minimum: whoever asks for next to nothing is charged what it gets.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_class_makes_is_charged_though_less_was_asked_for() {
    let (cluster, [jane, ..]) = people().await;
    let claims = format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims");
    let at = |name: &str| common::target("storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", "shop", name);
    let template = json!({"apiVersion": "database.aws.conductor.io/v1alpha1", "kind": "RDSInstance", "spec": {"class": "db.t2.small"}});
    let per = "made.relationaldatabaseclass.storage.conductor.io/requests.storage";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "shop"}, "spec": {"hard": {per: "2050Mi"}}});
    cluster.create(&quota).await;
    for (i, asked) in
        [json!({}), json!({"requests": {"storage": "1"}}), json!({"requests": {"storage": "1"}})].iter().enumerate()
    {
        let spec = json!({"class": "made", "engine": "x", "resources": asked});
        let (code, answer) = jane.send(Method::POST, &claims, &database(&format!("c{i}"), spec)).await;
        assert_eq!(code, 201, "{answer}");
    }
    // all of them are there before the class is
    let offers = json!({"engine": ["x"], "capacity": {"storage": {"min": "1Gi", "max": "10Gi"}}});
    cluster.create(&json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClass", "metadata": {"name": "made"}, "reclaimPolicy": "Delete", "offers": offers, "template": template})).await;
    let mut over = Vec::new();
    for i in 0..3 {
        let name = format!("c{i}");
        let settled = |claim: Option<&Value>| {
            claim.is_some_and(|c| {
                c["status"]["granted"]["storage"] == "1Gi" || c["status"].to_string().contains("exceeded quota")
            })
        };
        let claim = cluster.until(&at(&name), "being made or over the quota", settled).await.expect("is there");
        if claim["status"]["granted"].is_null() {
            over.push(name);
        }
    }
    assert_eq!(over.len(), 1, "{over:?}");
    let databases = cluster.api.list("storage.conductor.io/v1alpha1", "RelationalDatabase", "").await.expect("lists");
    assert_eq!(databases.len(), 2, "nothing was made for the third");
    let used = cluster.get(&common::target("v1", "ResourceQuota", "shop", "q")).await.expect("is there");
    let used = used["status"]["used"][per].as_str().unwrap_or_default().to_owned();
    assert!(["2147483648", "2147483649"].contains(&used.as_str()), "{used}");
    // when one goes, the one that waits is made
    let first = (0..3).map(|i| format!("c{i}")).find(|name| *name != over[0]).expect("two are being made");
    cluster.delete(&at(&first)).await;
    cluster.until(&at(&over[0]), "being made", |c| c.is_some_and(|c| c["status"]["granted"]["storage"] == "1Gi")).await;
}

/// Whoever asks for more than the quota leaves is told so, and keeps what it has, with the details that lead to it.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_have_more_keeps_what_it_has_in_order() {
    let (cluster, [jane, ..]) = people().await;
    let (storage, rds) = ("storage.conductor.io/v1alpha1", "database.aws.conductor.io/v1alpha1");
    let per = "steps.relationaldatabaseclass.storage.conductor.io/requests.storage";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "shop"}, "spec": {"hard": {per: "5Gi"}}});
    cluster.create(&quota).await;
    let class = json!({"apiVersion": storage, "kind": "RelationalDatabaseClass", "metadata": {"name": "steps"}, "reclaimPolicy": "Delete", "allowExpansion": true,
        "offers": {"engine": ["x"], "capacity": {"storage": ["1Gi", "10Gi"]}},
        "template": {"apiVersion": rds, "kind": "RDSInstance", "spec": {"class": "db.t2.small"}}});
    cluster.create(&class).await;
    let claims = format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims");
    let asks = |size: &str| json!({"resources": {"requests": {"storage": size}}});
    let mut spec = asks("1Gi");
    (spec["class"], spec["engine"]) = (json!("steps"), json!("x"));
    let (code, answer) = jane.send(Method::POST, &claims, &database("db", spec)).await;
    assert_eq!(code, 201, "{answer}");
    let uid = answer["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let behind = common::target(rds, "RDSInstance", "conductor-system", &format!("relationaldatabase-{uid}"));
    cluster.until(&behind, "made", |o| o.is_some()).await;
    let login = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "conductor-system"}, "stringData": {"password": "one"}});
    cluster.create(&login).await;
    let ready = json!({"connectionSecretRef": {"name": "login"}, "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}]});
    cluster.patch(&behind.status(), json!({"status": ready})).await;
    let db = common::target(storage, "RelationalDatabaseClaim", "shop", "db");
    cluster.until(&db, "bound", common::phase_is("Bound")).await;
    let details = common::target("v1", "Secret", "shop", "db-relationaldatabase");
    cluster.until(&details, "told", |o| o.is_some_and(|o| o["data"]["password"] == "b25l")).await;

    let path = format!("{claims}/db");
    let (code, answer) = jane.send(Method::PATCH, &path, &json!({"spec": asks("2Gi")})).await;
    assert_eq!(code, 200, "{answer}");
    let told = said(&cluster, &db, "ResizeRefused").await;
    assert!(told.contains("exceeded quota") && told.contains("\"phase\":\"Bound\""), "{told}");
    // what is rotated, and what somebody deletes
    let rotated = json!({"stringData": {"password": "two"}});
    cluster.patch(&common::target("v1", "Secret", "conductor-system", "login"), rotated).await;
    cluster.until(&details, "told again", |o| o.is_some_and(|o| o["data"]["password"] == "dHdv")).await;
    cluster.delete(&details).await;
    cluster.until(&details, "there again", |o| o.is_some_and(|o| o["metadata"]["deletionTimestamp"].is_null())).await;
    // and it grows when it may
    let raised = json!({"spec": {"hard": {per: "10Gi"}}});
    cluster.patch(&common::target("v1", "ResourceQuota", "shop", "q"), raised).await;
    let grows = |o: Option<&Value>| o.is_some_and(|o| o["status"]["granted"]["storage"] == "10Gi");
    cluster.until(&db, "growing", grows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_charged_to_who_asks_for_no_amount() {
    let (cluster, [jane, ..]) = people().await;
    let claims = format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims");
    let at = |name: &str| common::target("storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", "shop", name);
    let per = "told.relationaldatabaseclass.storage.conductor.io/requests.storage";
    let quota = |hard: &str| json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "shop"}, "spec": {"hard": {per: hard}}});
    cluster.create(&quota("2Gi")).await;
    cluster.create(&json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClass", "metadata": {"name": "told"}})).await;
    for name in ["small", "large"] {
        let storage = if name == "small" { "1Gi" } else { "5Gi" };
        cluster.create(&json!({"apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": name}, "spec": {"engine": "x", "class": "told", "capacity": {"storage": storage}}})).await;
    }
    let asks = json!({"class": "told", "engine": "x", "resources": {"requests": {"storage": "500Mi"}}});
    assert_eq!(jane.send(Method::POST, &claims, &database("asks", asks)).await.0, 201);
    let bound = cluster.until(&at("asks"), "bound", common::phase_is("Bound")).await.expect("is there");
    assert_eq!((&bound["spec"]["resourceName"], &bound["status"]["granted"]), (&json!("small"), &Value::Null));
    assert_eq!(
        jane.send(Method::POST, &claims, &database("takes", json!({"class": "told", "engine": "x"}))).await.0,
        201
    );
    let over = |claim: Option<&Value>| claim.is_some_and(|c| c["status"].to_string().contains("exceeded quota"));
    cluster.until(&at("takes"), "over the quota", over).await;
    let large = common::target("storage.conductor.io/v1alpha1", "RelationalDatabase", "", "large");
    let free = cluster.get(&large).await.expect("is there");
    assert!(free["spec"]["claimRefs"].as_array().is_none_or(Vec::is_empty), "{free}");
    let path = "/api/v1/namespaces/shop/resourcequotas/q";
    let raised = cluster.api.call(
        Method::PATCH,
        path,
        "application/merge-patch+json",
        json!({"spec": {"hard": {per: "6Gi"}}}).to_string().into_bytes(),
    );
    raised.await.expect("is raised");
    let bound = cluster.until(&at("takes"), "bound", common::phase_is("Bound")).await.expect("is there");
    assert_eq!(bound["status"]["granted"]["storage"], "5Gi", "{bound}");
    let used = cluster.get(&common::target("v1", "ResourceQuota", "shop", "q")).await.expect("is there");
    assert_eq!(used["status"]["used"][per], "5620Mi", "{used}");
}
