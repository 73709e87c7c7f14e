//! The scenario suite on a server in this process, with both transports. It has no admission of ours: the scenarios that need it run in
//! `conductor/tests/scenarios.rs`, on a real `conductor up`.

mod common;

use common::Cluster;
use common::scenario::Scenario;
use conductor_managers::Options;
use futures::StreamExt;

async fn run(scenario: Scenario, ordered: bool) {
    let types = scenario.types();
    let cluster = Cluster::start(types).await;
    let _managers = cluster.managers(Options { types, ordered, workers: 4, ..Options::default() }).await;
    scenario.run(cluster).await;
}

async fn run_all(ordered: bool) {
    let all = Scenario::all().into_iter().filter(|scenario| scenario.admission() != Some(true));
    let all = all.map(|scenario| run(scenario, ordered));
    futures::stream::iter(all).buffer_unordered(3).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_in_transactions() {
    run_all(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_in_ordered_writes() {
    run_all(true).await;
}
