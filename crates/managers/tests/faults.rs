//! Crashes and races, with both transports: managers are cut off at every write, two run at once, claims are deleted and made
//! anew while they are bound, the server refuses at random, a watch is far behind. At the end, with a healthy manager, every invariant holds.
//! CONDUCTOR_SEEDS=N runs the random ones with N seeds more, from CONDUCTOR_FIRST_SEED on. How volumes are made: `faults_volumes`.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::faulty::{Cuts, Faults, MANY, RDS, assert_faults, provider, seeds};
use common::{Cluster, PATIENCE, pvc, target, volume, volume_claim};
use conductor_claims::lifecycle::Target;
use conductor_managers::consumers::{CLAIMS, INGRESS_CLAIM};
use conductor_managers::{Managers, Options, inspect};
use serde_json::{Value, json};

async fn check_cuts(ordered: bool) {
    let cluster = Cluster::start(false).await;
    cluster.namespace("apps").await;
    let options = Options { types: false, ordered, workers: 4, ..Options::default() };
    let mut cuts = Cuts::default();
    for round in 0.. {
        cluster.create(&volume(&format!("v{round}"), "10Gi", "")).await;
        let claim = cluster.create(&volume_claim("apps", &format!("c{round}"), "5Gi", "")).await;
        cuts.run(&cluster, &options, async || is_bound(&cluster, &claim).await).await;
        let managers = cluster.managers(options.clone()).await;
        let claims = cluster.settled("v1", "PersistentVolumeClaim", &format!("round {round}, ordered {ordered}")).await;
        assert_eq!(claims.len(), round + 1);
        drop(managers);
        if cuts.are_through() {
            break;
        }
        assert!(round < MANY, "ordered {ordered}: {:?}", cuts.missing());
    }
    cuts.assert_at(if ordered { 4 } else { 2 }, &["persistentvolumes", "persistentvolumeclaims"]);
}

async fn is_bound(cluster: &Cluster, claim: &Value) -> bool {
    cluster.get(&Target::of(claim)).await.is_some_and(|claim| claim["status"]["phase"] == "Bound")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_between_any_two_writes() {
    check_cuts(true).await;
    check_cuts(false).await;
}

async fn check_races(ordered: bool, seed: u64) {
    let cluster = Cluster::start(false).await;
    cluster.namespace("apps").await;
    let options = Options { types: false, ordered, workers: 4, ..Options::default() };
    let (one, two) = (Faults::random(seed), Faults::random(seed + 1));
    let managers = (cluster.faulty(&one, options.clone()).await, cluster.faulty(&two, options.clone()).await);
    for i in 0..12 {
        cluster.create(&volume(&format!("v{i}"), &format!("{}Gi", 10 + i), "")).await;
        cluster.create(&volume_claim("apps", &format!("c{i}"), "5Gi", "")).await;
        if i % 3 == 2 {
            // another claim of the same name
            let name = format!("c{}", i - 1);
            cluster.delete(&pvc("apps", &name)).await;
            cluster.until(&pvc("apps", &name), "gone", |o| o.is_none()).await;
            cluster.create(&volume(&format!("w{i}"), "20Gi", "")).await;
            cluster.create(&volume_claim("apps", &name, "5Gi", "")).await;
        }
    }
    // late enough for both to have had their share
    cluster.until(&pvc("apps", "c11"), "bound", common::phase_is("Bound")).await;
    assert_faults([&one, &two], &["persistentvolumes", "persistentvolumeclaims"]);
    drop(managers);
    let _managers = cluster.managers(options).await;
    cluster.settled("v1", "PersistentVolumeClaim", &format!("raced, seed {seed}, ordered {ordered}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once_on_a_bad_connection() {
    for seed in seeds([1, 42]) {
        check_races(true, seed).await;
        check_races(false, seed).await;
    }
}

/// A manager whose watch of volumes shows nothing new decides on volumes that others have long bound: it gets nowhere with them, and
/// harms nothing; when the watch catches up, all is as if it had never been behind.
async fn check_behind(ordered: bool, watch: &'static str, resource: fn(&str) -> Value, claim: fn(&str) -> Value) {
    let types = watch != "/persistentvolumes";
    let cluster = Cluster::start(types).await;
    cluster.namespace("apps").await;
    let options = Options { types, volumes: !types, ordered, workers: 4, ..Options::default() };
    let healthy = cluster.managers(options.clone()).await;
    for i in 0..6 {
        cluster.create(&resource(&format!("v{i}"))).await;
    }
    for i in 0..6 {
        cluster.until(&Target::of(&resource(&format!("v{i}"))), "free", common::phase_is("Available")).await;
    }
    let faults = Faults::behind(watch);
    let late = cluster.faulty(&faults, options.clone()).await;
    let (own, what) = (Target::of(&claim("")), format!("{watch} is behind, ordered {ordered}"));
    let settled = async || drop(cluster.settled(&own.api_version, &own.kind, &what).await);
    for i in 0..6 {
        cluster.create(&claim(&format!("c{i}"))).await;
    }
    settled().await;
    // released and bound to others, while the late one still believes that they are free
    for i in 0..3 {
        let claim = claim(&format!("c{i}"));
        cluster.delete(&Target::of(&claim)).await;
        cluster.until(&Target::of(&claim), "gone", |o| o.is_none()).await;
        cluster.create(&resource(&format!("w{i}"))).await;
        cluster.create(&claim).await;
    }
    settled().await;
    // now alone, with what it believes; the watch lets it see
    drop(healthy);
    cluster.create(&resource("x")).await;
    cluster.create(&claim("last")).await;
    faults.released.send_replace(true);
    settled().await;
    drop(late);
}

fn database(name: &str) -> Value {
    json!({"apiVersion": API, "kind": "RelationalDatabase", "metadata": {"name": name},
        "spec": {"engine": "mysql", "capacity": {"storage": "10Gi"}, "reclaimPolicy": "Retain"}})
}

/// A database that two claims may share: each takes more than a third of it.
fn shared_database(name: &str) -> Value {
    let mut shared = database(name);
    shared["spec"]["maxClaims"] = json!(5);
    shared
}

fn unmade_claim(name: &str) -> Value {
    json!({"apiVersion": API, "kind": "RelationalDatabaseClaim", "metadata": {"name": name, "namespace": "apps"},
        "spec": {"engine": "mysql", "class": "", "resources": {"requests": {"storage": "4Gi"}}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_far_behind_does_no_harm() {
    let (volume, claim) = (|name: &str| volume(name, "10Gi", ""), |name: &str| volume_claim("apps", name, "5Gi", ""));
    for ordered in [true, false] {
        check_behind(ordered, "/persistentvolumes", volume, claim).await;
        check_behind(ordered, "/relationaldatabases", database, unmade_claim).await;
        check_behind(ordered, "/relationaldatabases", shared_database, unmade_claim).await;
    }
}

const API: &str = "storage.conductor.io/v1alpha1";
const NETWORK: &str = "network.conductor.io/v1alpha1";

/// A consumer that the managers' watch has not shown holds its claim all the same.
async fn check_unseen(ordered: bool, watch: &'static str, resource: Value, claim: Value, consumer: Value) {
    let cluster = Cluster::start(true).await;
    cluster.namespace("apps").await;
    let faults = Faults::behind(watch);
    let _managers =
        cluster.faulty(&faults, Options { volumes: false, ordered, workers: 4, ..Options::default() }).await;
    cluster.create(&resource).await;
    cluster.create(&claim).await;
    let (claim, consumer_at) = (Target::of(&claim), Target::of(&consumer));
    cluster.until(&claim, "bound", common::phase_is("Bound")).await;
    cluster.create(&consumer).await;
    cluster.delete(&claim).await;
    let said = |o: &Value| o["status"]["message"].as_str().is_some_and(|m| m.starts_with("used by"));
    let held =
        cluster.until(&claim, "looked at", |o| o.is_none_or(said)).await.expect("it is held by what was not seen");
    assert_eq!(held["status"]["phase"], "Bound");
    assert!(cluster.get(&Target::of(&resource)).await.expect("a resource")["spec"]["claimRefs"][0].is_object());
    faults.released.send_replace(true);
    cluster.delete(&consumer_at).await;
    cluster.until(&claim, "gone with its consumer", |o| o.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_was_not_seen_holds_its_claim() {
    let meta = |name: &str| json!({"name": name, "namespace": "apps"});
    for ordered in [true, false] {
        check_unseen(
            ordered,
            "/pods",
            json!({"apiVersion": API, "kind": "RelationalDatabase", "metadata": {"name": "one"},
                "spec": {"engine": "mysql", "capacity": {"storage": "5Gi"}}}),
            json!({"apiVersion": API, "kind": "RelationalDatabaseClaim", "metadata": meta("db"), "spec": {"engine": "mysql"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]},
                "metadata": {"name": "web", "namespace": "apps", "annotations": {CLAIMS: "RelationalDatabaseClaim/db"}}}),
        )
        .await;
        check_unseen(
            ordered,
            "/services",
            json!({"apiVersion": NETWORK, "kind": "LoadBalancer", "metadata": {"name": "one"}, "spec": {}}),
            json!({"apiVersion": NETWORK, "kind": "IngressClaim", "metadata": meta("front"), "spec": {}}),
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]},
                "metadata": {"name": "web", "namespace": "apps", "annotations": {INGRESS_CLAIM: "front"}}}),
        )
        .await;
    }
}

fn database_claim(name: &str) -> Value {
    json!({
        "apiVersion": API, "kind": "RelationalDatabaseClaim", "metadata": {"name": name, "namespace": "apps"},
        "spec": {"engine": "mysql", "class": "slow", "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A class that makes databases, on a cluster whose definitions are made.
async fn provisioning(options: &Options) -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::start(true).await);
    cluster.namespace("apps").await;
    let managers = cluster.managers(options.clone()).await;
    cluster
        .create(&json!({
            "apiVersion": API, "kind": "RelationalDatabaseClass", "metadata": {"name": "slow"}, "reclaimPolicy": "Delete",
            "template": {"apiVersion": RDS, "kind": "RDSInstance", "spec": {"class": "${claim.metadata.name}"}},
        }))
        .await;
    while !managers.types_are_served() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(managers);
    cluster
}

/// Waits until both serve every type.
async fn serving(managers: [&Managers; 2]) {
    let deadline = Instant::now() + PATIENCE;
    while !managers.iter().all(|managers| managers.types_are_served()) {
        assert!(Instant::now() < deadline, "they do not come to serve what there is");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Two managers at once on bad connections make databases, while claims are deleted and made anew under the same name.
async fn check_provisioning_races(ordered: bool, seed: u64) {
    let options = Options { volumes: false, ordered, workers: 4, ..Options::default() };
    let cluster = provisioning(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let (one, two) = (Faults::random(seed), Faults::random(seed + 1));
    let managers = (cluster.faulty(&one, options.clone()).await, cluster.faulty(&two, options.clone()).await);
    serving([&managers.0, &managers.1]).await;
    let at = |i: usize| target(API, "RelationalDatabaseClaim", "apps", &format!("c{i}"));
    for i in 0..8 {
        cluster.create(&database_claim(&format!("c{i}"))).await;
        // what must hold after every single write holds here and now
        let broken = inspect::check(&cluster.api, false).await.expect("an answer").findings;
        assert!(broken.is_empty(), "seed {seed}: {}", broken[0].message);
        if i % 2 == 1 {
            // while it is made, or when it is bound
            if i % 4 == 3 {
                cluster.until(&at(i - 1), "bound", common::phase_is("Bound")).await;
            }
            tokio::time::sleep(Duration::from_millis(one.draw() % 40)).await;
            cluster.delete(&at(i - 1)).await;
            cluster.until(&at(i - 1), "gone", |o| o.is_none()).await;
            cluster.create(&database_claim(&format!("c{}", i - 1))).await;
        }
    }
    assert_faults([&one, &two], &["relationaldatabases", "relationaldatabaseclaims", "rdsinstances"]);
    drop(managers);
    let _managers = cluster.managers(options).await;
    let what = format!("raced, seed {seed}, ordered {ordered}");
    let claims = cluster.settled(API, "RelationalDatabaseClaim", &what).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let made = cluster.api.list(RDS, "RDSInstance", "").await.expect("a list");
        let resources = cluster.api.list(API, "RelationalDatabase", "").await.expect("a list");
        if (made.len(), resources.len()) == (claims.len(), claims.len()) {
            break;
        }
        let brief = |o: &Value| {
            let meta = &o["metadata"];
            format!("{} {} {} {}\n", meta["name"], meta["deletionTimestamp"], o["spec"]["claimRefs"], o["status"])
        };
        let shown: String = resources.iter().chain(&made).map(brief).collect();
        assert!(Instant::now() < deadline, "{what}: {} claims, but\n{shown}", claims.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once_make_everything_once() {
    for seed in seeds([7, 99]) {
        check_provisioning_races(true, seed).await;
        check_provisioning_races(false, seed).await;
    }
}

async fn check_provisioning_cuts(ordered: bool) {
    let options = Options { volumes: false, ordered, workers: 4, ..Options::default() };
    let cluster = provisioning(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let mut cuts = Cuts::default();
    let mut count = 0;
    while !cuts.are_through() {
        let claim = cluster.create(&database_claim(&format!("c{count}"))).await;
        count += 1;
        cuts.run(&cluster, &options, async || is_bound(&cluster, &claim).await).await;
        let managers = cluster.managers(options.clone()).await;
        let what = format!("round {count}, ordered {ordered}");
        let claims = cluster.settled(API, "RelationalDatabaseClaim", &what).await;
        let made = cluster.api.list(RDS, "RDSInstance", "").await.expect("a list");
        assert_eq!((claims.len(), made.len()), (count, count), "{what}");
        drop(managers);
        assert!(count < MANY, "ordered {ordered}: {:?}", cuts.missing());
    }
    let written = ["relationaldatabases", "relationaldatabaseclaims", "rdsinstances"];
    cuts.assert_at(if ordered { 8 } else { 4 }, &written);
    // released again, nothing is left
    let managers = cluster.managers(options).await;
    for i in 0..count {
        cluster.delete(&target(API, "RelationalDatabaseClaim", "apps", &format!("c{i}"))).await;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let made = cluster.api.list(RDS, "RDSInstance", "").await.expect("a list");
        let resources = cluster.api.list(API, "RelationalDatabase", "").await.expect("a list");
        if made.is_empty() && resources.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "left over: {resources:#?} {made:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(managers);
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provisioning_cut_off_between_any_two_writes() {
    check_provisioning_cuts(false).await;
    check_provisioning_cuts(true).await;
}

/// Two managers at once on bad connections bind claims to databases that two may share and that go with the last, while claims are deleted and
/// made anew under the same name.
async fn check_sharing_races(ordered: bool, seed: u64) {
    let options = Options { volumes: false, ordered, workers: 4, ..Options::default() };
    let cluster = provisioning(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let (one, two) = (Faults::random(seed), Faults::random(seed + 1));
    let managers = (cluster.faulty(&one, options.clone()).await, cluster.faulty(&two, options.clone()).await);
    serving([&managers.0, &managers.1]).await;
    let made = |i: usize| {
        let mut database = shared_database(&format!("d{i}"));
        database["spec"]["reclaimPolicy"] = json!("Delete");
        database["spec"]["template"] = json!({"apiVersion": RDS, "kind": "RDSInstance", "spec": {"class": "shared"}});
        database
    };
    let claim = |i: usize| unmade_claim(&format!("c{i}"));
    for i in 0..8 {
        cluster.create(&made(i)).await;
        cluster.create(&claim(i)).await;
        let broken = inspect::check(&cluster.api, false).await.expect("an answer").findings;
        assert!(broken.is_empty(), "seed {seed}: {}", broken[0].message);
        if i % 2 == 1 {
            tokio::time::sleep(Duration::from_millis(one.draw() % 60)).await;
            let again = claim(one.draw() as usize % i);
            if i % 4 == 3 {
                cluster.until(&Target::of(&again), "bound", common::phase_is("Bound")).await;
            }
            cluster.delete(&Target::of(&again)).await;
            cluster.until(&Target::of(&again), "gone", |o| o.is_none()).await;
            cluster.create(&again).await;
        }
    }
    assert_faults([&one, &two], &["relationaldatabases", "relationaldatabaseclaims", "rdsinstances"]);
    drop(managers);
    let managers = cluster.managers(options).await;
    let what = format!("shared, seed {seed}, ordered {ordered}");
    let claims = cluster.settled(API, "RelationalDatabaseClaim", &what).await;
    for claim in &claims {
        cluster.delete(&Target::of(claim)).await;
    }
    // what was used is gone with its last claim, and what is behind it; the rest is as it was
    let deadline = Instant::now() + PATIENCE;
    loop {
        let resources = cluster.api.list(API, "RelationalDatabase", "").await.expect("a list");
        let behind = cluster.api.list(RDS, "RDSInstance", "").await.expect("a list");
        let claims = cluster.api.list(API, "RelationalDatabaseClaim", "").await.expect("a list");
        let free = resources.iter().all(|r| r["status"]["phase"] == "Available");
        if free && claims.is_empty() && behind.len() == resources.len() {
            break;
        }
        assert!(Instant::now() < deadline, "{what}: {claims:#?} {resources:#?} {behind:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let broken = cluster.findings().await;
    assert!(broken.is_empty(), "{what}: {broken:?}");
    drop(managers);
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once_share_no_more_than_there_is() {
    for seed in seeds([3, 77]) {
        check_sharing_races(true, seed).await;
        check_sharing_races(false, seed).await;
    }
}

/// A shared database is bound to two claims and released by one after the other, each time by managers that are cut off in the midst of it.
async fn check_sharing_cuts(ordered: bool) {
    let options = Options { volumes: false, ordered, workers: 4, ..Options::default() };
    let cluster = provisioning(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let [mut first, mut second, mut one_goes, mut last_goes] = Cuts::of();
    for round in 0.. {
        let what = format!("round {round}, ordered {ordered}");
        let mut database = shared_database(&format!("d{round}"));
        database["spec"]["reclaimPolicy"] = json!("Delete");
        database["spec"]["template"] = json!({"apiVersion": RDS, "kind": "RDSInstance", "spec": {"class": "shared"}});
        let at = Target::of(&database);
        let claims = [unmade_claim(&format!("a{round}")), unmade_claim(&format!("b{round}"))];
        let gone = async |target: &Target| cluster.get(target).await.is_none();
        cluster.create(&database).await;
        for (claim, cuts) in claims.iter().zip([&mut first, &mut second]) {
            cluster.create(claim).await;
            cuts.run(&cluster, &options, async || is_bound(&cluster, claim).await).await;
            let managers = cluster.managers(options.clone()).await;
            cluster.settled(API, "RelationalDatabaseClaim", &what).await;
            drop(managers);
        }
        let referred = |o: &Value| o["spec"]["claimRefs"].as_array().map_or(0, Vec::len);
        assert_eq!(cluster.get(&at).await.as_ref().map(referred), Some(2), "{what}");
        cluster.delete(&Target::of(&claims[0])).await;
        one_goes.run(&cluster, &options, async || gone(&Target::of(&claims[0])).await).await;
        let managers = cluster.managers(options.clone()).await;
        cluster.until(&Target::of(&claims[0]), "gone", |o| o.is_none()).await;
        cluster.settled(API, "RelationalDatabaseClaim", &what).await;
        drop(managers);
        let left = cluster.get(&at).await.expect("it stays for the other");
        assert_eq!((referred(&left), &left["status"]["phase"]), (1, &json!("Bound")), "{what}");
        cluster.delete(&Target::of(&claims[1])).await;
        last_goes.run(&cluster, &options, async || gone(&at).await).await;
        let managers = cluster.managers(options.clone()).await;
        cluster.until(&at, "gone with its last claim", |o| o.is_none()).await;
        let behind = target(RDS, "RDSInstance", "conductor-system", &at.name);
        cluster.until(&behind, "gone with it", |o| o.is_none()).await;
        cluster.until(&Target::of(&claims[1]), "gone", |o| o.is_none()).await;
        assert!(cluster.findings().await.is_empty(), "{what}: {:?}", cluster.findings().await);
        drop(managers);
        let all = [&first, &second, &one_goes, &last_goes];
        if all.iter().all(|cuts| cuts.are_through()) {
            break;
        }
        assert!(round < MANY, "ordered {ordered}: {:?}", all.map(Cuts::missing));
    }
    let (resources, claims, behind) = ("relationaldatabases", "relationaldatabaseclaims", "rdsinstances");
    first.assert_at(if ordered { 6 } else { 3 }, &[resources, claims, behind]);
    second.assert_at(if ordered { 3 } else { 1 }, &[resources, claims]);
    one_goes.assert_at(if ordered { 3 } else { 1 }, &[resources, claims]);
    last_goes.assert_at(if ordered { 5 } else { 2 }, &[resources, claims, behind]);
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing_and_releasing_cut_off_between_any_two_writes() {
    check_sharing_cuts(true).await;
    check_sharing_cuts(false).await;
}

/// What is behind a resource goes, and no watch shows it: the resource goes all the same.
async fn check_unseen_end(ordered: bool) {
    let options = Options { volumes: false, ordered, workers: 4, ..Options::default() };
    let cluster = provisioning(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let healthy = cluster.managers(options.clone()).await;
    let claim = cluster.create(&database_claim("c")).await;
    cluster.until(&Target::of(&claim), "bound", common::phase_is("Bound")).await;
    drop(healthy);
    let faults = Faults::behind("/rdsinstances");
    let _managers = cluster.faulty(&faults, options).await;
    let bound = cluster.get(&Target::of(&claim)).await.expect("a claim");
    let name = bound["spec"]["resourceName"].as_str().expect("a name").to_owned();
    cluster.delete(&Target::of(&claim)).await;
    cluster.until(&target(RDS, "RDSInstance", "conductor-system", &name), "gone", |o| o.is_none()).await;
    cluster.until(&target(API, "RelationalDatabase", "", &name), "gone", |o| o.is_none()).await;
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_unseen_holds_nothing() {
    check_unseen_end(true).await;
    check_unseen_end(false).await;
}
