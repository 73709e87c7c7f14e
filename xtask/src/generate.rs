//! `cargo xtask generate`: the table of built-in kinds, from what a real kube-apiserver serves and what Go's reflection knows.
mod discovery;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::repository;

/// Where the table comes from.
#[derive(clap::Args)]
pub struct Options {
    /// A directory with a real kube-apiserver's discovery-api.json, discovery-apis.json and openapi-v3/
    #[arg(long, value_name = "DIR", env = "CONDUCTOR_OPENAPI", default_value = "../shared/kubernetes-1.36.4")]
    openapi: PathBuf,
}

/// Writes `crates/kinds/data`.
pub fn generate(options: &Options) -> Result<()> {
    let recorded = repository::root().join(&options.openapi);
    ensure!(recorded.is_dir(), "{} is no directory: give one with --openapi", recorded.display());
    let data = repository::root().join("crates/kinds/data");
    fs::create_dir_all(&data)?;
    let (resources, versions) = discovery::resources(&recorded)?;
    let types = table::types(&reflected()?, &openapi(&recorded)?, &versions)?;
    for (name, text) in [("types.txt", types), ("resources.txt", resources)] {
        let file = data.join(name);
        fs::write(&file, &text)?;
        eprintln!("{}: {} lines, {} bytes", file.display(), text.lines().count(), text.len());
    }
    Ok(())
}

/// What tools/generate prints.
fn reflected() -> Result<Value> {
    let go = repository::find_program("go", &[]).context("no go on PATH: install it, it is needed to regenerate")?;
    let output = Command::new(go)
        .args(["run", "."])
        .current_dir(repository::root().join("tools/generate"))
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "tools/generate failed: {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// All schemas of all recorded OpenAPI v3 documents, by name.
fn openapi(recorded: &Path) -> Result<serde_json::Map<String, Value>> {
    let mut all = serde_json::Map::new();
    for entry in fs::read_dir(recorded.join("openapi-v3"))? {
        let mut document = read(&entry?.path())?;
        if let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas").map(Value::take) {
            all.extend(schemas);
        }
    }
    ensure!(!all.is_empty(), "no schemas in {}", recorded.display());
    Ok(all)
}

fn read(file: &Path) -> Result<Value> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no JSON", file.display()))
}
