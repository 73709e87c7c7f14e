//! What single parts cost, by the benches that are beside them: no server, no client.
use std::fmt::Write;
use std::process::Stdio;

use anyhow::{Context, ensure};

use super::Parts;
use super::report::{self, machine_load, processor};
use crate::repository;

/// Package, bench, what it measures, and what the project aims for.
const BENCHES: &[(&str, &str, &str)] = &[
    (
        "conductor-apiserver",
        "access",
        "Authentication, authorization and admission, with 1,000 roles and bindings. Aim: under 15 µs together.",
    ),
    (
        "conductor-kinds",
        "apply",
        "managedFields and server-side apply. Aim: under 10 µs for the update of a Pod, without the clone.",
    ),
    ("conductor-cel", "evaluate", "CEL, and the ten worst expressions, each refused or stopped."),
    ("conductor-managers", "bind", "A claim created and bound, by server and managers in memory and on one thread."),
    ("conductor-claims", "decide", "One decision about a claim. Aims: under 20 µs and 1 GiB with a million resources."),
];

/// Runs all of them and writes the document.
pub fn run(options: &Parts) -> anyhow::Result<()> {
    let mut generated = format!("\nProcessor: {}. Load before: {}.\n", processor(), machine_load());
    for (package, bench, what) in BENCHES {
        eprintln!("{package}: {bench}");
        let out = repository::cargo()
            .args(["bench", "--quiet", "--package", package, "--bench", bench])
            .stderr(Stdio::inherit())
            .output()
            .context("running cargo")?;
        ensure!(out.status.success(), "the bench {bench} of {package} failed: {}", out.status);
        let table = String::from_utf8_lossy(&out.stdout);
        print!("{table}");
        let _ = writeln!(
            generated,
            "\n{what}\n\n```console\n$ cargo bench --package {package} --bench {bench}\n{}\n```",
            table.trim_end()
        );
    }
    generated.push('\n');
    let output = options.output.clone().unwrap_or_else(|| repository::root().join("docs/benchmarks.md"));
    report::put(&output, "parts", &generated)
}
