//! `cargo xtask fuzz`: every fuzz target for a while, with nothing but a Rust and a C++ compiler.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, bail, ensure};

use crate::repository;

/// What libFuzzer needs to see of a program, as cargo-fuzz asks for it; without a sanitizer, so that any compiler does.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1";

/// Which targets, and for how long.
#[derive(clap::Args)]
pub struct Options {
    /// The targets, as `crate/target` [default: all of them]
    targets: Vec<String>,
    /// How long each runs
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
}

/// A target: its crate's fuzz directory and its name.
struct Target {
    dir: PathBuf,
    krate: String,
    name: String,
}

/// Builds and runs them; fails with the first that finds something.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let targets = find(&repository::root().join("crates"))?;
    let is = |target: &Target, wanted: &str| format!("{}/{}", target.krate, target.name) == wanted;
    for wanted in &options.targets {
        ensure!(targets.iter().any(|target| is(target, wanted)), "no fuzz target is called {wanted}");
    }
    let chosen = |target: &&Target| options.targets.is_empty() || options.targets.iter().any(|name| is(target, name));
    let chosen: Vec<&Target> = targets.iter().filter(chosen).collect();
    let triple = host()?;
    let out = repository::target().join("fuzz");
    for target in &chosen {
        build(target, &triple, &out)?;
    }
    for target in &chosen {
        let name = format!("{}/{}", target.krate, target.name);
        eprintln!("{name}: {} s", options.seconds);
        // What was interesting once is tried first the next time.
        let corpus = out.join("corpus").join(&name);
        let found = out.join("found").join(&name);
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&found)?;
        let mut command = Command::new(out.join(&triple).join("release").join(&target.name));
        command
            .arg(format!("-max_total_time={}", options.seconds))
            .arg(format!("-artifact_prefix={}/", found.display()))
            .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"])
            .arg(&corpus);
        // Examples to begin with, for targets that would hardly come upon a whole one.
        let examples = target.dir.join("examples").join(&target.name);
        if examples.is_dir() {
            command.arg(examples);
        }
        let status = command.status().with_context(|| format!("running {name}"))?;
        if !status.success() {
            bail!("{name} found something: run it with the newest file in {}", found.display());
        }
    }
    println!("{} targets ran for {} s each and found nothing", chosen.len(), options.seconds);
    Ok(())
}

fn find(crates: &Path) -> anyhow::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(crates)? {
        let dir = entry?.path().join("fuzz");
        let krate = dir.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let Ok(files) = fs::read_dir(dir.join("fuzz_targets")) else { continue };
        for file in files {
            let path = file?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            targets.push(Target { dir: dir.clone(), krate: krate.clone(), name });
        }
    }
    targets.sort_by(|a, b| (&a.krate, &a.name).cmp(&(&b.krate, &b.name)));
    Ok(targets)
}

fn build(target: &Target, triple: &str, out: &Path) -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&target.dir)
        // With a target given, build scripts and macros are not looked into.
        .args(["build", "--quiet", "--release", "--target", triple, "--bin", &target.name])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", out)
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "the fuzz target {}/{} does not build", target.krate, target.name);
    Ok(())
}

/// What this compiler builds for if it is not told otherwise.
fn host() -> anyhow::Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("running rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).context("rustc does not say its host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_a_program_of_its_crate() {
        let targets = find(&repository::root().join("crates")).expect("found");
        assert!(targets.len() > 8, "{}", targets.len());
        for target in targets {
            let manifest = fs::read_to_string(target.dir.join("Cargo.toml")).expect("a manifest");
            assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}/{}", target.krate, target.name);
        }
    }
}
