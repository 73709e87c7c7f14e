//! Volumes that a class of ours makes, under the faults of `faults`: at the end there is one for each claim, and one thing behind each.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::faulty::{Cuts, Faults, MANY, RDS, assert_faults, provider, seeds};
use common::{Cluster, PATIENCE, class_of_volumes, pv, pvc, volume_claim};
use conductor_managers::Options;

const CLAIM: &str = "PersistentVolumeClaim";

async fn making(options: &Options) -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::start(true).await);
    cluster.namespace("apps").await;
    let managers = cluster.managers(options.clone()).await;
    for object in class_of_volumes() {
        cluster.create(&object).await;
    }
    drop(managers);
    cluster
}

/// Waits until there are so many volumes and things behind them, and nothing else.
async fn left(cluster: &Cluster, count: usize, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let made = cluster.api.list(RDS, "RDSInstance", "").await.expect("a list");
        let volumes = cluster.api.list("v1", "PersistentVolume", "").await.expect("a list");
        if (made.len(), volumes.len()) == (count, count) && cluster.findings().await.is_empty() {
            return;
        }
        let found = cluster.findings().await;
        assert!(Instant::now() < deadline, "{what}: {found:?} {volumes:#?} {made:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn check_races(ordered: bool, seed: u64) {
    let options = Options { ordered, workers: 4, ..Options::default() };
    let cluster = making(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let (one, two) = (Faults::random(seed), Faults::random(seed + 1));
    let managers = (cluster.faulty(&one, options.clone()).await, cluster.faulty(&two, options.clone()).await);
    for i in 0..8 {
        cluster.create(&volume_claim("apps", &format!("c{i}"), "1Gi", "nfs")).await;
        if i % 2 == 1 {
            tokio::time::sleep(Duration::from_millis(one.draw() % 60)).await;
            let again = format!("c{}", one.draw() % i);
            if i % 4 == 3 {
                cluster.until(&pvc("apps", &again), "bound", common::phase_is("Bound")).await;
            }
            cluster.delete(&pvc("apps", &again)).await;
            cluster.until(&pvc("apps", &again), "gone", |o| o.is_none()).await;
            cluster.create(&volume_claim("apps", &again, "1Gi", "nfs")).await;
        }
    }
    assert_faults([&one, &two], &["persistentvolumes", "persistentvolumeclaims", "rdsinstances"]);
    drop(managers);
    let _managers = cluster.managers(options).await;
    let what = format!("raced, seed {seed}, ordered {ordered}");
    let claims = cluster.settled("v1", CLAIM, &what).await;
    left(&cluster, claims.len(), &what).await;
    for i in 0..8 {
        cluster.delete(&pvc("apps", &format!("c{i}"))).await;
    }
    left(&cluster, 0, &what).await;
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once_make_every_volume_once() {
    for seed in seeds([5, 55]) {
        check_races(true, seed).await;
        check_races(false, seed).await;
    }
}

async fn check_cuts(ordered: bool) {
    let options = Options { ordered, workers: 4, ..Options::default() };
    let cluster = making(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let [mut made, mut removed] = Cuts::of();
    for round in 0.. {
        let at = pvc("apps", "c");
        cluster.create(&volume_claim("apps", "c", "1Gi", "nfs")).await;
        let what = format!("round {round}, ordered {ordered}");
        let is_bound = async || cluster.get(&at).await.is_some_and(|claim| claim["status"]["phase"] == "Bound");
        made.run(&cluster, &options, is_bound).await;
        let managers = cluster.managers(options.clone()).await;
        let claims = cluster.settled("v1", CLAIM, &what).await;
        assert_eq!(claims.len(), 1, "{what}");
        left(&cluster, 1, &what).await;
        drop(managers);
        cluster.delete(&at).await;
        let volume = pv(claims[0]["spec"]["volumeName"].as_str().expect("a volume"));
        removed.run(&cluster, &options, async || cluster.get(&volume).await.is_none()).await;
        let managers = cluster.managers(options.clone()).await;
        cluster.until(&at, "gone", |o| o.is_none()).await;
        left(&cluster, 0, &what).await;
        drop(managers);
        if made.are_through() && removed.are_through() {
            break;
        }
        assert!(round < MANY, "ordered {ordered}: {:?} {:?}", made.missing(), removed.missing());
    }
    made.assert_at(if ordered { 5 } else { 3 }, &["persistentvolumes", "persistentvolumeclaims", "rdsinstances"]);
    removed.assert_at(3, &["persistentvolumes", "rdsinstances"]);
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn making_volumes_cut_off_between_any_two_writes() {
    check_cuts(false).await;
    check_cuts(true).await;
}

/// What is behind a volume goes, and no watch shows it: the volume goes all the same.
async fn check_unseen_end(ordered: bool) {
    let options = Options { ordered, workers: 4, ..Options::default() };
    let cluster = making(&options).await;
    let playing = tokio::spawn(provider(cluster.clone()));
    let healthy = cluster.managers(options.clone()).await;
    cluster.create(&volume_claim("apps", "c", "1Gi", "nfs")).await;
    cluster.settled("v1", CLAIM, "bound").await;
    drop(healthy);
    let faults = Faults::behind("/rdsinstances");
    let _managers = cluster.faulty(&faults, options).await;
    cluster.delete(&pvc("apps", "c")).await;
    left(&cluster, 0, &format!("unseen, ordered {ordered}")).await;
    playing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_unseen_holds_no_volume() {
    check_unseen_end(true).await;
    check_unseen_end(false).await;
}
