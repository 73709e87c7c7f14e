//! `conductor explain` on a live system: to whom it says what, and that what it advises helps.

mod common;

use common::people::{DATABASES, people};
use common::{Cluster, phase_is, target, volume, volume_claim};
use conductor_claims::lifecycle::Target;
use conductor_machinery::patch::apply_merge_patch;
use conductor_managers::{Api, Options, inspect};
use http::Method;
use serde_json::{Value, json};

const STORAGE: &str = "storage.conductor.io/v1alpha1";

fn database(name: &str, spec: Value) -> Value {
    json!({"apiVersion": STORAGE, "kind": "RelationalDatabase", "metadata": {"name": name, "labels": {"tier": "a"}}, "spec": spec})
}

fn claim(namespace: &str, name: &str, spec: Value) -> Value {
    let meta = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": STORAGE, "kind": "RelationalDatabaseClaim", "metadata": meta, "spec": spec})
}

async fn explained(api: &Api, claim: &Value) -> inspect::Explanation {
    let meta = |key: &str| claim["metadata"][key].as_str().unwrap_or_default();
    let word = format!("{}/{}", claim["kind"].as_str().unwrap_or_default(), meta("name"));
    inspect::explain(api, &word, meta("namespace")).await.expect("an explanation")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_gets_numbers_and_an_admin_names() {
    let (cluster, [jane, claus, ..]) = people().await;
    cluster.create(&database("secret-name", json!({"engine": "mysql", "capacity": {"storage": "5Gi"}}))).await;
    let wish = claim("shop", "db", json!({"engine": "mysql", "resources": {"requests": {"storage": "9Gi"}}}));
    let (code, answer) =
        jane.send(Method::POST, &format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims"), &wish).await;
    assert_eq!(code, 201, "{answer}");
    let waits =
        |o: Option<&Value>| o.is_some_and(|o| o["status"]["message"].as_str().is_some_and(|m| m.contains("5Gi")));
    cluster.until(&Target::of(&wish), "waits", waits).await;
    let user = explained(&Api::new(jane.0.clone()), &wish).await;
    assert!(user.text.contains("RelationalDatabaseClaim db: Pending"), "{}", user.text);
    assert!(user.text.contains("0/1 match: 1 too small (largest 5Gi, asked 9Gi)"), "{}", user.text);
    assert!(!user.text.contains("secret-name") && !user.json.to_string().contains("secret-name"), "{}", user.json);
    let admin = explained(&Api::new(claus.0.clone()), &wish).await;
    assert!(admin.text.contains("secret-name"), "{}", admin.text);
    assert_eq!(admin.json["remedy"]["patch"], json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_its_maker_may_not_use_is_said() {
    let (cluster, [jane, claus, ..]) = people().await;
    gold(&cluster).await;
    let wish = claim("shop", "db", json!({"resourceName": "nugget"}));
    let (code, answer) =
        jane.send(Method::POST, &format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims"), &wish).await;
    assert_eq!(code, 201, "{answer}");
    let said = |o: Option<&Value>| o.is_some_and(|o| o["status"]["reason"] == "NotAllowed");
    cluster.until(&Target::of(&wish), "may not", said).await;
    // who may ask the authorizer, who may see everything but not ask it, and who may do neither
    for api in [cluster.api.clone(), Api::new(claus.0.clone()), Api::new(jane.0.clone())] {
        let answer = explained(&api, &wish).await;
        let said = ["may not use class gold", "class gold is for those who have the verb use on it"];
        assert!(said.iter().any(|said| answer.text.contains(said)), "{}", answer.text);
    }
    cluster
        .create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "gold"}, "rules": [
            {"apiGroups": ["storage.conductor.io"], "resources": ["relationaldatabaseclasses"], "resourceNames": ["gold"], "verbs": ["use"]}]}))
        .await;
    cluster
        .create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "gold"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gold"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}))
        .await;
    let answer = explained(&cluster.api, &wish).await;
    assert!(answer.text.contains("binds to RelationalDatabase nugget"), "{}", answer.text);
}

/// A class that is only for some, and one resource of it, the only one there is.
async fn gold(cluster: &Cluster) {
    cluster
        .create(&json!({"apiVersion": STORAGE, "kind": "RelationalDatabaseClass", "reclaimPolicy": "Retain",
            "metadata": {"name": "gold", "labels": {"conductor.io/use": "required"}}}))
        .await;
    cluster.create(&database("nugget", json!({"engine": "mysql", "class": "gold"}))).await;
    cluster.until(&target(STORAGE, "RelationalDatabase", "", "nugget"), "free", phase_is("Available")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_a_right_is_passed_over_for_a_claim_without_a_class() {
    let (cluster, [jane, claus, ..]) = people().await;
    gold(&cluster).await;
    let wish = claim("shop", "db", json!({"engine": "mysql"}));
    let (code, answer) =
        jane.send(Method::POST, &format!("{DATABASES}/namespaces/shop/relationaldatabaseclaims"), &wish).await;
    assert_eq!(code, 201, "{answer}");
    cluster.until(&Target::of(&wish), "waits", |o| o.is_some_and(|o| o["status"]["message"].is_string())).await;
    let said = explained(&cluster.api, &wish).await;
    assert!(said.text.contains("waits: ") && !said.text.contains("binds to"), "{}", said.text);
    assert_eq!(said.json["candidates"][0]["fits"], false, "{}", said.json);
    // who may see it, and may not ask what others may
    let said = explained(&Api::new(claus.0.clone()), &wish).await;
    assert!(said.text.contains("tightest fit, if who made the claim may use class gold"), "{}", said.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_knows_who_may_use_a_class() {
    let (cluster, [jane, ..]) = people().await;
    gold(&cluster).await;
    // she may make claims and see everything
    let looks = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"}, "rules": [
        {"apiGroups": ["storage.conductor.io"], "resources": ["*"], "verbs": ["get", "list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    for object in [&looks, &binding] {
        cluster.create(object).await;
    }
    let named = claim("shop", "named", json!({"resourceName": "nugget"}));
    let any = claim("shop", "any", json!({"engine": "mysql"}));
    for (wish, told) in [(&named, "may not use class gold"), (&any, "waits: ")] {
        let planned =
            inspect::plan(&Api::new(jane.0.clone()), std::slice::from_ref(wish), "shop").await.expect("a plan");
        assert!(planned[0].trouble && planned[0].text.contains(told), "{}", planned[0].text);
        let planned = inspect::plan(&cluster.api, std::slice::from_ref(wish), "shop").await.expect("a plan");
        assert!(planned[0].text.starts_with("binds to RelationalDatabase nugget"), "{}", planned[0].text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_may_not_see_is_said_and_the_rest_shown() {
    let (cluster, [jane, ..]) = people().await;
    cluster
        .create(
            &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "volume.conductor.io",
            "metadata": {"name": "std", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
        )
        .await;
    cluster.create(&database("db", json!({"engine": "mysql", "class": "c"}))).await;
    cluster.until(&target(STORAGE, "RelationalDatabase", "", "db"), "free", phase_is("Available")).await;
    cluster
        .create(&json!({"apiVersion": STORAGE, "kind": "RelationalDatabaseClass", "metadata": {"name": "c"}, "reclaimPolicy": "Retain"}))
        .await;
    cluster.create(&volume("pv", "5Gi", "")).await;
    let wish = volume_claim("shop", "files", "5Gi", "");
    cluster.create(&wish).await;
    cluster.until(&Target::of(&wish), "bound", phase_is("Bound")).await;
    cluster
        .create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "shop"}, "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "files"}}]}}))
        .await;
    let api = Api::new(jane.0.clone());
    let tree = inspect::tree(&api, "pvc/files", "shop").await.expect("a tree").text();
    assert!(tree.contains("used by Pod shop/app") && tree.contains("PersistentVolume pv  not yours to see"), "{tree}");
    let tree = inspect::tree(&api, "pod/app", "shop").await.expect("a tree").text();
    assert!(tree.starts_with("Pod shop/app") && tree.contains("PersistentVolumeClaim shop/files  Bound"), "{tree}");
    assert!(tree.contains("PersistentVolume pv  not yours to see"), "{tree}");
    let refused = inspect::tree(&api, "pv/pv", "shop").await.err().expect("no tree").to_string();
    assert!(refused.starts_with("PersistentVolume pv is not yours to see"), "{refused}");
    let begun = std::time::Instant::now();
    loop {
        let rows = inspect::classes(&api).await.expect("classes");
        let row = |class: &str| rows.iter().find(|row| row.class == class).expect("a row");
        assert!(row("std").default && row("std").makes && row("std").policy == Some("Delete"));
        // how many there are is known from the manager, how large they are from nobody
        if row("c").count == Some((1, 1)) {
            assert_eq!((row("c").policy, row("c").largest), (Some("Retain"), None));
            break;
        }
        assert!(begun.elapsed() < common::PATIENCE, "{:?}", row("c").count);
        // managers count now and then, and when something happens to them
        let touch = json!({"metadata": {"annotations": {"test": format!("{:?}", begun.elapsed())}}});
        cluster.patch(&target("conductor.io/v1alpha1", "Manager", "", "relationaldatabases"), touch).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let planned = inspect::plan(&api, &[volume_claim("shop", "more", "5Gi", "")], "shop").await.expect("a plan");
    assert!(planned[0].text.contains("not yours to see"), "{}", planned[0].text);
}

/// A claim waits, does what `explain` advises, and is bound to what it named.
async fn check_advice(cluster: &Cluster, resource: Value, wish: Value) {
    cluster.create(&resource).await;
    cluster.until(&Target::of(&resource), "free", phase_is("Available")).await;
    cluster.create(&wish).await;
    let at = Target::of(&wish);
    cluster.until(&at, "waits", phase_is("Pending")).await;
    let advice = explained(&cluster.api, &wish).await;
    let remedy = &advice.json["remedy"];
    assert_eq!(remedy["target"], resource["metadata"]["name"], "{}", advice.text);
    let again = remedy["changes"].as_array().expect("changes").iter().any(|change| change["recreate"] == true);
    if again {
        cluster.delete(&at).await;
        cluster.until(&at, "gone", |o| o.is_none()).await;
        cluster.create(&apply_merge_patch(&wish, &remedy["patch"]).expect("a claim")).await;
    } else {
        cluster.patch(&at, remedy["patch"].clone()).await;
    }
    let bound = cluster.until(&at, &advice.text, phase_is("Bound")).await.expect("a claim");
    let named = [&bound["spec"]["resourceName"], &bound["spec"]["volumeName"]];
    assert!(named.contains(&&resource["metadata"]["name"]), "{bound}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_smallest_change_really_binds() {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let _managers = cluster.managers(Options::default()).await;
    let has = json!({"engine": "mysql", "version": "5.7", "class": "c", "capacity": {"storage": "20Gi"}});
    let wishes = [
        json!({"class": "c", "resources": {"requests": {"storage": "25Gi"}}}),
        json!({"class": "c", "resources": {"limits": {"storage": "10Gi"}}}),
        json!({"class": "c", "engine": "postgres"}),
        json!({"class": "c", "engine": "mysql", "version": ">= 8"}),
        json!({"class": "c", "highly-available": true}),
        json!({"class": "c", "requests": ["replication", "backups"]}),
        json!({"class": "c", "selector": {"matchLabels": {"tier": "b"}}}),
        json!({"class": "c", "expression": "false"}),
        json!({"class": "other", "engine": "mysql"}),
        json!({"class": "", "engine": "mysql"}),
        json!({"class": "c", "resourceName": "nowhere"}),
        json!({"class": "other", "engine": "postgres", "version": "8.x", "resources": {"requests": {"storage": "1Ti"}, "limits": {"storage": "2Ti"}}}),
    ];
    for (i, wish) in wishes.into_iter().enumerate() {
        check_advice(&cluster, database(&format!("db-{i}"), has.clone()), claim("apps", &format!("c-{i}"), wish)).await;
    }
    let changes = [
        json!({"spec": {"resources": {"requests": {"storage": "25Gi"}}}}),
        json!({"spec": {"storageClassName": "other"}}),
        json!({"spec": {"selector": {"matchLabels": {"tier": "b"}}}}),
        json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}}),
        json!({"spec": {"volumeName": "nowhere"}}),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let wish = volume_claim("apps", &format!("v-{i}"), "5Gi", "");
        let wish = apply_merge_patch(&wish, &change).expect("a claim");
        check_advice(&cluster, volume(&format!("pv-{i}"), "20Gi", ""), wish).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_what_happens_whatever_is_there_already() {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let _managers = cluster.managers(Options::default()).await;
    let resource = database("stat", json!({"engine": "mysql", "capacity": {"storage": "3Gi"}, "class": "pl"}));
    let first = claim("apps", "first", json!({"class": "pl", "engine": "mysql"}));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "apps"}, "spec": {
        "containers": [{"name": "c", "image": "i"}]}});
    let plan = async |objects: &[Value]| {
        let planned = inspect::plan(&cluster.api, objects, "apps").await.expect("a plan");
        planned.into_iter().map(|outlook| outlook.text).collect::<Vec<String>>()
    };
    // a claim may come before what it is bound to
    let said = plan(&[first.clone(), resource.clone(), pod.clone()]).await;
    assert!(said[0].starts_with("binds to RelationalDatabase stat"), "{said:?}");
    assert_eq!(said[1], "becomes Available");
    for object in [&resource, &first, &pod] {
        cluster.create(object).await;
    }
    cluster.until(&Target::of(&first), "bound", phase_is("Bound")).await;
    // all of it again, and one that comes too late
    let second = claim("apps", "second", json!({"class": "pl", "engine": "mysql"}));
    let said = plan(&[resource, first, second, pod]).await;
    assert_eq!(said[..2], ["exists and is Bound", "exists and is Bound"]);
    assert!(said[2].starts_with("waits: "), "{said:?}");
    assert_eq!(said[3], "is none of the engine's: applied as it is");
    // a kind that nobody defines; one that the same file does; a manager of the same file
    let of = |version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let said = plan(&[of("storage.conductor.io/v1alpha1", "RelationalDatabseClaim", "typo", json!({}))]).await;
    assert!(said[0].contains("is refused: no RelationalDatabseClaim is served"), "{said:?}");
    let own = json!({"group": "lab.example.com", "version": "v1", "names": {"resource": "Cache"}});
    let late = json!({"bindingMode": "WaitForFirstConsumer"});
    let manager = json!({"type": "caches.lab.example.com", "default": true, "defaultClass": "lazy", "classes": [{"name": "lazy"}]});
    let said = plan(&[
        of("conductor.io/v1alpha1", "ResourceType", "caches.lab.example.com", own),
        of("lab.example.com/v1", "Cache", "there", json!({})),
        of("lab.example.com/v1", "CacheClass", "lazy", late),
        of("lab.example.com/v1", "CacheClass", "other", json!({})),
        of("conductor.io/v1alpha1", "Manager", "m", manager),
        of("lab.example.com/v1", "CacheClaim", "waits", json!({})),
        of("lab.example.com/v1", "CacheClaim", "unserved", json!({"class": "other"})),
    ])
    .await;
    assert!(said[4].contains("serves lazy of caches.lab.example.com"), "{said:?}");
    assert!(said[5].contains("lazy") && said[5].contains("wait"), "{said:?}");
    assert!(said[6].contains("no manager serves"), "{said:?}");
    // a namespace that is neither there nor planned
    let (lonely, space) = (
        claim("new", "lonely", json!({"engine": "oracle"})),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}),
    );
    let said = plan(std::slice::from_ref(&lonely)).await;
    assert!(said[0].starts_with("is refused: ") && said[0].contains("\"new\" not found"), "{said:?}");
    let said = plan(&[lonely, space]).await;
    assert!(said[0].starts_with("waits: "), "{said:?}");
}

/// What a file has where an object is expected is for the server to refuse, or for nobody yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_made_of_whatever_a_file_has() {
    let cluster = Cluster::start(true).await;
    let own = json!({"group": "lab.example.com", "version": "v1", "names": {"resource": "Cache"}});
    let kind = json!({"apiVersion": "conductor.io/v1alpha1", "kind": "ResourceType", "metadata": {"name": "caches.lab.example.com"}, "spec": own});
    for odd in [json!("text"), json!(["list"]), json!(7), Value::Null] {
        let of = |kind: &str, object: Value| {
            let named = json!({"apiVersion": "lab.example.com/v1", "kind": kind, "metadata": {"name": "a"}});
            apply_merge_patch(&named, &object).expect("an object")
        };
        let mut objects = vec![kind.clone()];
        for kind in ["CacheClaim", "Cache", "CacheClass"] {
            for place in [json!({"metadata": odd}), json!({"spec": odd}), json!({"status": odd})] {
                objects.push(of(kind, place));
            }
            objects.push(of(kind, json!({"metadata": {"annotations": odd}})));
        }
        // of kinds that are served
        objects.push(json!({"apiVersion": "conductor.io/v1alpha1", "kind": "Manager", "metadata": odd, "spec": odd}));
        objects.push(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": odd, "spec": odd}));
        let planned = inspect::plan(&cluster.api, &objects, "apps").await.expect("a plan");
        assert_eq!(planned.len(), objects.len(), "{odd}");
        let refused = planned.iter().filter(|outlook| outlook.text.starts_with("is refused: "));
        assert_eq!(refused.count(), 2, "{odd}: what is served is the server's to refuse");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_knows_what_a_class_cannot_make_and_who_uses_what() {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let _managers = cluster.managers(Options::default()).await;
    let template =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": "${claim.spec.resources.requests.storage}"}});
    let of = |name: &str, spec: Value| json!({"apiVersion": STORAGE, "kind": "RelationalDatabaseClass", "metadata": {"name": name}, "spec": spec});
    let sized = of("sized", json!({"offers": {"engine": ["mysql"]}, "template": template, "readyWhen": "true"}));
    let late = of(
        "late",
        json!({"offers": {"engine": ["mysql"]}, "template": template, "bindingMode": "WaitForFirstConsumer"}),
    );
    let amount = json!({"requests": {"storage": "1Gi"}});
    let whole = claim("apps", "whole", json!({"class": "sized", "engine": "mysql", "resources": amount}));
    let open = claim("apps", "open", json!({"class": "sized", "engine": "mysql"}));
    let used = claim("apps", "used", json!({"class": "late", "engine": "mysql", "resources": amount}));
    let unused = claim("apps", "unused", json!({"class": "late", "engine": "mysql", "resources": amount}));
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "app", "namespace": "apps", "annotations": {"conductor.io/claims": "relationaldatabaseclaim/used"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let objects = [sized.clone(), late, whole, open.clone(), used, unused, pod];
    let planned = inspect::plan(&cluster.api, &objects, "apps").await.expect("a plan");
    let said = |at: usize| (planned[at].text.as_str(), planned[at].trouble);
    assert!(said(2).0.contains("class sized makes") && !said(2).1, "{:?}", said(2));
    assert!(said(3).0.contains("cannot make it") && said(3).0.contains("no such key") && said(3).1, "{:?}", said(3));
    assert!(said(4).0.contains("class late makes") && !said(4).1, "{:?}", said(4));
    assert!(said(5).0.contains("binds when a consumer needs") && said(5).1, "{:?}", said(5));
    // and so it is
    for object in [&sized, &open] {
        cluster.create(object).await;
    }
    let failed = |o: Option<&Value>| {
        o.and_then(|o| o["status"]["message"].as_str()).is_some_and(|message| message.contains("no such key"))
    };
    cluster.until(&Target::of(&open), "said", failed).await;
    let said = explained(&cluster.api, &open).await;
    assert!(!said.text.contains("class sized makes"), "{}", said.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explanation_knows_where_the_consumer_is() {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"zone": "a"}}});
    cluster.create(&node).await;
    let mut far = volume("far", "20Gi", "");
    far["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["b"]}]}]}});
    cluster.create(&far).await;
    let _managers = cluster.managers(Options::default()).await;
    let mut wish = volume_claim("apps", "data", "5Gi", "");
    wish["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n1"});
    cluster.create(&wish).await;
    let said = explained(&cluster.api, &wish).await;
    assert!(said.text.contains("waits: ") && !said.text.contains("binds to"), "{}", said.text);
    assert_eq!(said.json["candidates"][0]["fits"], false, "{}", said.json);
}
