//! `conductor audit`: whether everything is as it must be.

use std::time::{Duration, Instant};

use conductor_managers::inspect::{self, Finding};
use conductor_managers::{Api, Failure};
use http::Method;
use serde_json::{Value, json};

use crate::manager::Cluster;
use crate::out::say;

/// Check a live system: no claim with two resources, no resource with too many claims, nothing made twice or orphaned; and, by the
/// providers, that what runs and lies outside is what the API says: no process, port, directory, role or database is left over.
///
/// Ends with 1 if something is wrong. What managers are working on at the moment may show: look twice. What another data directory
/// left on this machine when it was removed is said too, and is no fault of this system; so are claims that are Lost and resources that
/// Failed, which say so themselves.
#[derive(clap::Args)]
pub struct Args {
    /// How long providers have to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
    #[command(flatten)]
    cluster: Cluster,
}

/// Prints it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (api, _) = args.cluster.api().await?;
    let mut findings = inspect::audit(&api).await?;
    findings.extend(outside(&api, Duration::from_secs(args.patience)).await?);
    for finding in &findings {
        say(&format!("{}: {} ({})", finding.object, finding.message, finding.invariant))?;
    }
    let troubled = inspect::troubled(&api).await?;
    for trouble in &troubled {
        say(trouble)?;
    }
    let (_, findings): (Vec<_>, Vec<_>) =
        findings.iter().partition(|f| conductor_local::stray::is_elsewhere(&f.invariant));
    anyhow::ensure!(findings.is_empty(), "{} invariants are broken", findings.len());
    say(match troubled.as_slice() {
        [] => "everything is as it must be",
        _ => "the books are right; what is Lost or Failed waits for somebody",
    })?;
    Ok(())
}

const PROVIDERS: &str = "/apis/conductor.io/v1alpha1/providers";

/// Asks every provider to compare the outside world with the API.
async fn outside(api: &Api, patience: Duration) -> Result<Vec<Finding>, Failure> {
    let providers = match api.list("conductor.io/v1alpha1", "Provider", "").await {
        Ok(providers) => providers,
        Err(failure) if failure.code == 404 => return Ok(Vec::new()),
        Err(failure) => return Err(failure),
    };
    let mut asked = Vec::new();
    for provider in &providers {
        let name = provider["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let number = |v: &Value| v.as_i64().unwrap_or(0);
        let wanted = number(&provider["spec"]["audit"]).max(number(&provider["status"]["audited"])) + 1;
        let body = json!({"spec": {"audit": wanted}}).to_string().into_bytes();
        api.call(Method::PATCH, &format!("{PROVIDERS}/{name}"), "application/merge-patch+json", body).await?;
        asked.push((name, wanted));
    }
    let begun = Instant::now();
    let mut findings = Vec::new();
    for (name, wanted) in asked {
        let answer = loop {
            let live = api.read(&format!("{PROVIDERS}/{name}")).await?.unwrap_or_default();
            if live["status"]["audited"].as_i64().is_some_and(|done| done >= wanted) {
                break Some(live);
            }
            if begun.elapsed() > patience {
                break None;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let Some(answer) = answer else {
            findings.push(Finding {
                invariant: "provider-answers".into(),
                object: format!("Provider {name}"),
                message: "does not answer: see that it runs".into(),
            });
            continue;
        };
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let found = answer["status"]["findings"].as_array().into_iter().flatten();
        findings.extend(found.map(|f| Finding {
            invariant: text(&f["invariant"]),
            object: text(&f["object"]),
            message: text(&f["message"]),
        }));
    }
    Ok(findings)
}
