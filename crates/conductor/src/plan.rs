//! `conductor plan`: what would happen.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use conductor_managers::inspect;
use serde_json::Value;

use crate::manager::Cluster;
use crate::out::say;

/// Say what would happen if a file were applied: bind to which, make what, refuse why. Nothing is done.
///
/// Ends with 1 if something in it would wait or be refused.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  conductor plan -f claims.yaml\n  conductor plan -f examples/shop\n  kubectl kustomize . | conductor plan -f -"
)]
pub struct Args {
    /// The file, YAML or JSON, with any number of objects, or a directory of such; - is standard input
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Where claims go that name no namespace [default: the context's]
    #[arg(long, short)]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// The files that are meant: of a directory those with YAML and JSON, by name.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot = || format!("cannot read {}", path.display());
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path).with_context(cannot)? {
        let file = entry.with_context(cannot)?.path();
        if file.is_file() && file.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known)) {
            all.push(file);
        }
    }
    anyhow::ensure!(!all.is_empty(), "{} has no .yaml, .yml or .json file", path.display());
    all.sort();
    Ok(all)
}

/// Every object of a file; lists are taken apart.
fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no YAML or JSON", path.display()))?;
    let mut all = Vec::new();
    for document in documents.into_iter().filter(|d| !d.is_null()) {
        match document["items"].as_array() {
            Some(items) if document["kind"].as_str().is_some_and(|k| k.ends_with("List")) => all.extend(items.clone()),
            _ => all.push(document),
        }
    }
    Ok(all)
}

/// Prints it; whether all is well.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut objects = Vec::new();
    for file in files(&args.file)? {
        objects.extend(read(&file)?);
    }
    for (number, object) in objects.iter().enumerate() {
        let named = object["kind"].as_str().is_some_and(|kind| !kind.is_empty());
        anyhow::ensure!(named, "object {} of {} has no kind", number + 1, args.file.display());
    }
    let (api, namespace) = args.cluster.api().await?;
    let outlooks = inspect::plan(&api, &objects, args.namespace.as_deref().unwrap_or(&namespace)).await?;
    let width = outlooks.iter().map(|o| o.object.len()).max().unwrap_or(0);
    for outlook in &outlooks {
        say(&format!("{:width$}  {}", outlook.object, outlook.text))?;
    }
    let trouble = outlooks.iter().filter(|o| o.trouble).count();
    anyhow::ensure!(trouble == 0, "{trouble} of {} would wait or be refused", outlooks.len());
    Ok(())
}
