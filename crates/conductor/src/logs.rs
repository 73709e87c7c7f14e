//! `conductor logs`: what the processes behind a claim say.

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
use crate::out::{unread, write};

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
        let tail = conductor_local::logs::tail_bytes(dir, args.lines);
        let mut tail = tail.with_context(|| {
            format!("{} is no file of this machine; the log is where conductor up runs", file.display())
        })?;
        tail.push(b'\n');
        write(&Shown::new().next(tail))?;
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

/// What is done with what processes say before it is printed.
struct Shown {
    /// Whether a terminal shows it; whatever else reads it gets what was written.
    terminal: bool,
    /// The beginning of a character whose end is not written yet.
    begun: Vec<u8>,
}

impl Shown {
    fn new() -> Shown {
        Shown { terminal: std::io::stdout().is_terminal(), begun: Vec::new() }
    }

    /// As it may be shown: who uses a database writes into its log, and does not steer whoever reads it.
    fn next(&mut self, said: Vec<u8>) -> Vec<u8> {
        if !self.terminal {
            return said;
        }
        let mut all = std::mem::take(&mut self.begun);
        all.extend(said);
        let is_begun = |bytes: &[u8]| {
            std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        };
        let begun = (all.len().saturating_sub(3)..all.len()).find(|at| is_begun(&all[*at..]));
        self.begun = all.split_off(begun.unwrap_or(all.len()));
        let mut shown = String::new();
        for c in String::from_utf8_lossy(&all).chars() {
            match c.is_control() && !matches!(c, '\n' | '\t') {
                true => shown.extend(c.escape_unicode()),
                false => shown.push(c),
            }
        }
        shown.into_bytes()
    }
}

/// Prints what is appended, for ever. A log that was emptied is read from its beginning.
async fn follow(path: &PathBuf) -> anyhow::Result<()> {
    let mut file = File::open(path)?;
    let mut at = file.seek(SeekFrom::End(0))?;
    let mut shown = Shown::new();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        if file.metadata()?.len() < at {
            at = file.seek(SeekFrom::Start(0))?;
            shown.begun.clear();
        }
        let mut new = Vec::new();
        at += file.read_to_end(&mut new)? as u64;
        write(&shown.next(new))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(terminal: bool, pieces: &[&[u8]]) -> Vec<u8> {
        let mut shown = Shown { terminal, begun: Vec::new() };
        pieces.iter().flat_map(|piece| shown.next(piece.to_vec())).collect()
    }

    #[test]
    fn what_is_piped_is_what_was_written() {
        let latin = &b"caf\xe9 \x1b[31m\n"[..];
        assert_eq!(shown(false, &[latin]), latin);
        assert_eq!(shown(false, &[&latin[..4], &latin[4..]]), latin);
    }

    #[test]
    fn a_terminal_is_shown_whole_characters_and_is_not_steered() {
        let text = "grün €5 🙂 ja\n";
        for at in 0..text.len() {
            let (one, two) = text.as_bytes().split_at(at);
            assert_eq!(shown(true, &[one, &[], two]), text.as_bytes(), "in two at {at}");
        }
        assert_eq!(shown(true, &[b"a\x1b[31m\tb\n"]), b"a\\u{1b}[31m\tb\n");
        assert_eq!(shown(true, &[b"caf\xe9", b" x\n"]), "caf\u{fffd} x\n".as_bytes());
    }
}
