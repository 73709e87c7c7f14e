//! Random operations of several managers, sent to a real Kubernetes and to ours: the same objects, the same managers,
//! the same conflicts.
//!
//! `CONDUCTOR_SEQUENCES=N` runs N of them instead of a few hundred, `CONDUCTOR_SEQUENCES_SEED` others,
//! `CONDUCTOR_SEQUENCES_ONLY=NAME` those of some kinds. `CONDUCTOR_SEQUENCES_REPORT=FILE` writes where they came apart.

use std::fmt::Write as _;

use conductor_testkit::sequences::{Divergence, Plan, run};
use conductor_testkit::{Cluster, KUBECONFIG, skip};

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_get_along_as_on_a_real_kubernetes() {
    let Some(real) = Cluster::real().await else {
        return skip("managers_get_along_as_on_a_real_kubernetes", &format!("{KUBECONFIG} is not set"));
    };
    let ours = Cluster::served().await;
    let plan = Plan {
        sequences: number("CONDUCTOR_SEQUENCES", 240),
        rounds: number("CONDUCTOR_SEQUENCES_ROUNDS", 12),
        seed: number("CONDUCTOR_SEQUENCES_SEED", 1) as u64,
        only: std::env::var("CONDUCTOR_SEQUENCES_ONLY").unwrap_or_default(),
    };
    let summary = run(&real, &ours, &plan).await;
    println!(
        "{} sequences, {} answers compared ({} conflicts, {} refused otherwise), {} came apart",
        plan.sequences,
        summary.compared,
        summary.conflicts,
        summary.refused,
        summary.divergences.len()
    );
    let text: String = summary.divergences.iter().map(describe).collect();
    if let Ok(path) = std::env::var("CONDUCTOR_SEQUENCES_REPORT") {
        std::fs::write(path, &text).unwrap();
    }
    let head: String = text.lines().take(60).map(|line| format!("{line}\n")).collect();
    assert!(summary.divergences.is_empty(), "{} sequences came apart:\n{head}", summary.divergences.len());
    assert!(summary.conflicts * 50 > summary.compared, "hardly any conflicts: the sequences have lost their point");
}

fn describe(divergence: &Divergence) -> String {
    let mut text = format!("=== {} (seed {})\n", divergence.subject, divergence.seed);
    for difference in &divergence.differences {
        let _ = writeln!(text, "  {difference}");
    }
    let _ = writeln!(text, "  before: {}", divergence.before);
    for request in &divergence.history {
        let media = request.headers.first().map_or("", |(_, value)| value.as_str());
        let _ = writeln!(text, "    {} {} {media}\n      {}", request.method, request.path, request.body);
    }
    text
}
