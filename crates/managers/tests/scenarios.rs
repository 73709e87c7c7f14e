//! The scenario suite on a server in this process, with both transports. It has no admission of ours: the scenarios that need it run in
//! `conductor/tests/scenarios.rs`, on a real `conductor up`.

mod common;

use common::Cluster;
use common::scenario::Scenario;
use conductor_managers::Options;
use futures::StreamExt;

async fn run(scenario: Scenario, options: Options) {
    let types = scenario.types();
    let cluster = Cluster::start(types).await;
    let _managers = cluster.managers(Options { types, workers: 4, ..options }).await;
    scenario.run(cluster).await;
}

async fn run_all(options: impl Fn() -> Options) {
    let volumes = options().volumes;
    let all = Scenario::all().into_iter().filter(|scenario| scenario.admission() != Some(true));
    let all = all.filter(|scenario| volumes || !scenario.volumes()).map(|scenario| run(scenario, options()));
    futures::stream::iter(all).buffer_unordered(3).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_in_transactions() {
    run_all(Options::default).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_in_ordered_writes() {
    run_all(|| Options { ordered: true, ..Options::default() }).await;
}

/// As on a cluster that somebody has, with a binder of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_where_somebody_else_binds_volumes() {
    run_all(|| Options { ordered: true, volumes: false, ..Options::default() }).await;
}
