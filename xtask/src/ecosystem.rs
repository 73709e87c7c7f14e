//! Other projects' custom resource definitions and example objects, to test with: fetched as Go modules, never copied here.
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::kubernetes::build;
use crate::repository;

/// Tells tests where the projects are: a file like `tools/ecosystem.json`, with the directory of each.
pub const VARIABLE: &str = "CONDUCTOR_ECOSYSTEM";

/// Fetches all projects that `tools/ecosystem.json` names, unless Go's module cache has them. Gives the file for
/// [`VARIABLE`].
pub fn fetch() -> anyhow::Result<PathBuf> {
    let list = repository::root().join("tools/ecosystem.json");
    let text = fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let mut projects: Vec<Value> = serde_json::from_str(&text).with_context(|| format!("{}", list.display()))?;
    let go = build::go()?;
    for project in &mut projects {
        let field = |name: &str| project[name].as_str().unwrap_or_default().to_owned();
        let module = format!("{}@{}", field("module"), field("version"));
        let output = Command::new(&go)
            .current_dir(env::temp_dir())
            .args(["mod", "download", "-json", &module])
            .env("GOWORK", "off")
            .output()
            .with_context(|| format!("running {}", go.display()))?;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let Some(dir) = answer["Dir"].as_str().filter(|_| output.status.success()) else {
            let why =
                answer["Error"].as_str().map_or_else(|| String::from_utf8_lossy(&output.stderr).into(), Into::into);
            let why: String = why;
            bail!("go cannot get {module}: {}", why.trim());
        };
        if answer["Sum"] != project["sum"] {
            bail!("{module} has the sum {}, and tools/ecosystem.json says {}", answer["Sum"], project["sum"]);
        }
        project["dir"] = dir.into();
    }
    let found = repository::target().join("ecosystem.json");
    fs::create_dir_all(repository::target())?;
    fs::write(&found, serde_json::to_vec_pretty(&projects)?).with_context(|| format!("writing {}", found.display()))?;
    Ok(found)
}
