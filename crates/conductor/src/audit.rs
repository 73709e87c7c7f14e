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
/// Failed, which say so themselves. What is not yours to see is named and not checked; the rest is.
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
    let (api, namespace) = args.cluster.api().await?;
    let inspect::Audited { mut findings, mut unseen, types } = inspect::audit(&api).await?;
    let outside = outside(&api, Duration::from_secs(args.patience)).await?;
    if outside.is_none() {
        unseen.insert("what is outside (to ask providers takes the verb patch on providers.conductor.io)".into());
    }
    let troubled = inspect::troubled(&api, &namespace).await?;
    let nothing = types == 0 && outside.is_none() && troubled.is_none();
    anyhow::ensure!(
        !nothing,
        "nothing of it is yours to see: ask an administrator, or for a role (conductor user add)"
    );
    findings.extend(outside.into_iter().flatten());
    for finding in &findings {
        say(&format!("{}: {} ({})", finding.object, finding.message, finding.invariant))?;
    }
    let troubled = troubled.unwrap_or_default();
    for trouble in &troubled {
        say(trouble)?;
    }
    if !unseen.is_empty() {
        say(&format!("not yours to see, and not checked: {}", unseen.iter().cloned().collect::<Vec<_>>().join(", ")))?;
    }
    let (elsewhere, findings): (Vec<_>, Vec<_>) =
        findings.iter().partition(|f| conductor_local::stray::is_elsewhere(&f.invariant));
    anyhow::ensure!(findings.is_empty(), "{} invariants are broken", findings.len());
    say(match (troubled.as_slice(), unseen.is_empty()) {
        ([], true) if !elsewhere.is_empty() => "here everything is as it must be; what another left behind is above",
        ([], true) => "everything is as it must be",
        ([], false) => "what is yours to see is as it must be",
        _ => "the books are right; what is Lost or Failed waits for somebody",
    })?;
    Ok(())
}

const PROVIDERS: &str = "/apis/conductor.io/v1alpha1/providers";

/// Asks every provider to compare the outside world with the API; `None`: not ours to ask.
async fn outside(api: &Api, patience: Duration) -> Result<Option<Vec<Finding>>, Failure> {
    let providers = match api.list("conductor.io/v1alpha1", "Provider", "").await {
        Ok(providers) => providers,
        Err(failure) if failure.code == 404 => return Ok(Some(Vec::new())),
        Err(failure) if failure.code == 403 => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let mut asked = Vec::new();
    for provider in &providers {
        let name = provider["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let number = |v: &Value| v.as_i64().unwrap_or(0);
        let wanted = number(&provider["spec"]["audit"]).max(number(&provider["status"]["audited"])) + 1;
        let body = json!({"spec": {"audit": wanted}}).to_string().into_bytes();
        match api.call(Method::PATCH, &format!("{PROVIDERS}/{name}"), "application/merge-patch+json", body).await {
            Err(failure) if failure.code == 403 => return Ok(None),
            asked => drop(asked?),
        }
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
    Ok(Some(findings))
}
