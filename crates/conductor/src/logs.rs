//! `conductor logs`: what the processes behind a claim say.

use std::borrow::Cow;
use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use conductor_claims::types::ResourceType;
use conductor_managers::Api;
use conductor_managers::api::Failure;
use serde_json::Value;

use crate::manager::Cluster;
use crate::out::{say, unread, write};

/// Show the log of the process behind a claim, a resource or an implementation.
///
/// Logs are files of the machine on which `conductor up` runs, kept within bounds.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor logs rdbc/db -n shop\n  conductor logs relationaldatabase/database-445 --follow\n  conductor logs postgresinstance/shared --lines 500"
)]
pub struct Args {
    /// The claim, resource or implementation: KIND/NAME, with the kind as kubectl takes it
    object: String,
    /// Its namespace [default: the context's; of implementations conductor-system]
    #[arg(long, short)]
    namespace: Option<String>,
    /// How many lines from the end
    #[arg(long, value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Go on with what is written from now on
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// Prints them.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let (api, namespace) = args.cluster.api().await?;
    let (kind, name) = args.object.split_once('/').context("say which: KIND/NAME")?;
    let (api_version, served) = api.kind_of(kind).await?.with_context(|| format!("the server has no kind {kind:?}"))?;
    let mut object = None;
    for namespace in [args.namespace.as_deref().unwrap_or(&namespace), "conductor-system"] {
        if object.is_none() {
            object = match api.get(&api_version, &served.kind, namespace, name).await {
                // who may not look there has nothing of theirs there
                Err(failure) if failure.code == 403 && namespace == "conductor-system" => None,
                found => seen(found, &served.kind, name)?,
            };
        }
    }
    let object = object.with_context(|| format!("there is no {} {name}", served.kind))?;
    let files = files(&api, &object).await?;
    ensure!(!files.is_empty(), "no process is behind {} {name}, as far as its status says", served.kind);
    for file in &files {
        let dir = file.parent().context("a log has a directory")?;
        let tail = conductor_local::logs::tail(dir, args.lines);
        let tail = tail.with_context(|| {
            format!("{} is no file of this machine; the log is where conductor up runs", file.display())
        })?;
        say(&shown(&tail))?;
    }
    if args.follow {
        tokio::select! {
            result = follow(&files[0]) => result?,
            () = unread() => {}
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What is behind a claim is not for everybody to see, and so its log is not.
fn seen(found: Result<Option<Value>, Failure>, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
    match found {
        Err(failure) if failure.code == 403 => {
            bail!(
                "{kind} {name} is not yours to see, and so its log is not: ask an administrator ({})",
                failure.message
            )
        }
        found => Ok(found?),
    }
}

/// The logs behind an object: its own, its resource's, its implementations'.
async fn files(api: &Api, object: &Value) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(own) = object["status"]["logs"].as_str() {
        return Ok(vec![PathBuf::from(own)]);
    }
    if object["kind"] == "PersistentVolumeClaim" || object["kind"] == "PersistentVolume" {
        bail!("a volume has no process, and so no log: kubectl describe shows what was said about it");
    }
    let mut resource = object.clone();
    if object["status"]["implementations"].is_null() {
        let named = text(&object["spec"]["resourceName"]);
        ensure!(!named.is_empty(), "it is bound to nothing yet: {}", text(&object["status"]["message"]));
        let version = text(&object["apiVersion"]);
        let claim = text(&object["kind"]);
        let kinds = api.list("conductor.io/v1alpha1", "ResourceType", "").await?;
        let mut kinds = kinds.iter().filter_map(|kind| ResourceType::parse(kind).ok());
        let Some(kind) = kinds.find(|kind| kind.names.claim == claim) else { bail!("{claim} is no claim") };
        let live = api.get(version, &kind.names.resource, "", named).await;
        resource = seen(live, &kind.names.resource, named)?.context("its resource is gone")?;
    }
    let mut all = Vec::new();
    for reference in resource["status"]["implementations"].as_array().into_iter().flatten() {
        let field = |key: &str| text(&reference[key]);
        let live = api.get(field("apiVersion"), field("kind"), field("namespace"), field("name")).await;
        let live = seen(live, field("kind"), field("name"))?;
        all.extend(live.and_then(|live| live["status"]["logs"].as_str().map(PathBuf::from)));
    }
    Ok(all)
}

/// What a process says, as a terminal may show it: who uses a database writes into its log, and does not steer whoever reads it.
fn shown(said: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !std::io::stdout().is_terminal() || !said.contains(steers) {
        return said.into();
    }
    said.chars().map(|c| if steers(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// Prints what is appended, for ever. A log that was emptied is read from its beginning.
async fn follow(path: &PathBuf) -> anyhow::Result<()> {
    let mut file = File::open(path)?;
    let mut at = file.seek(SeekFrom::End(0))?;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        if file.metadata()?.len() < at {
            at = file.seek(SeekFrom::Start(0))?;
        }
        let mut new = Vec::new();
        at += file.read_to_end(&mut new)? as u64;
        write(shown(&String::from_utf8_lossy(&new)).as_bytes())?;
    }
}
