//! The managers' scenarios on a real `conductor up`, over TLS and with its admission: the same files, a server each.

mod common;
#[path = "../../managers/tests/common/mod.rs"]
mod managers;

use common::{Conductor, block_on};
use futures::StreamExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use managers::Cluster;
use managers::scenario::Scenario;

async fn run(scenario: Scenario) {
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let conductor = Conductor::start(&data, &[]);
    let kubeconfig = Kubeconfig::read_from(data.join("kubeconfig")).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.expect("a config")).expect("a client");
    scenario.run(Cluster::of(client)).await;
    drop(conductor);
}

#[test]
fn scenarios_on_a_real_server() {
    block_on(async {
        let mut count = 0;
        let mut running = Vec::new();
        for scenario in Scenario::all() {
            if scenario.admission() == Some(false) {
                println!("left out: {} (it needs a bare server)", scenario.name);
                continue;
            }
            count += 1;
            running.push(run(scenario));
        }
        futures::stream::iter(running).buffer_unordered(2).collect::<Vec<()>>().await;
        println!("{count} scenarios are green");
    });
}
