//! `conductor audit`: whether everything is as it must be.

use conductor_managers::inspect;

use crate::manager::Cluster;

/// Check a live system: no claim with two resources, no resource with too many claims, nothing made twice or orphaned.
///
/// Ends with 1 if something is wrong. What managers are working on at the moment may show: look twice.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: Cluster,
}

/// Prints it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (api, _) = args.cluster.api().await?;
    let findings = inspect::audit(&api).await?;
    for finding in &findings {
        println!("{}: {} ({})", finding.object, finding.message, finding.invariant);
    }
    anyhow::ensure!(findings.is_empty(), "{} invariants are broken", findings.len());
    println!("everything is as it must be");
    Ok(())
}
