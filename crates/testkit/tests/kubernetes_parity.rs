//! The same requests to a real Kubernetes and to ours; differences are listed in `docs/parity.md` or are failures.
//!
//! `CONDUCTOR_PARITY_REPORT=FILE` writes all unknown differences there; `CONDUCTOR_PARITY_ONLY=PATTERN` sends only
//! scenarios with such names; `CONDUCTOR_PARITY_SEED=N` and `CONDUCTOR_PARITY_RANDOM=N` choose which and how many random
//! definitions there are, `CONDUCTOR_PARITY_VARIANTS=N` how many variants of an object there are at most; 0: all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use conductor_testkit::parity::{Known, Report, Scenario, breadth, compare_all, formats, random, rules};
use conductor_testkit::{Cluster, KUBECONFIG, skip};
use regex::Regex;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parity.md");
const WRITTEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");

fn written() -> Vec<Scenario> {
    let mut files: Vec<_> = std::fs::read_dir(WRITTEN).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let http = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "http");
    files.iter().filter(http).flat_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Vec<Scenario> {
    let text = std::fs::read_to_string(path).unwrap();
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{}:{}: {}", path.display(), error.line, error.why))
}

#[test]
fn the_written_scenarios_can_be_read() {
    assert!(written().iter().all(|scenario| !scenario.steps.is_empty()));
}

#[test]
fn the_lines_of_the_document_can_be_read() {
    Known::parse(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn our_answers_are_those_of_a_real_kubernetes() {
    let Some(real) = Cluster::real().await else {
        return skip("our_answers_are_those_of_a_real_kubernetes", &format!("{KUBECONFIG} is not set"));
    };
    let ours = Cluster::served().await;
    let known = Known::parse(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
    let only = std::env::var("CONDUCTOR_PARITY_ONLY").unwrap_or_default();
    let only = Regex::new(&only).unwrap();
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    let seed = number("CONDUCTOR_PARITY_SEED", 1);
    let count = number("CONDUCTOR_PARITY_RANDOM", 24) as usize;
    let most = match number("CONDUCTOR_PARITY_VARIANTS", 60) as usize {
        0 => breadth::Most::ALL,
        more => breadth::Most { made: 4 * more, more },
    };
    let random =
        [random::definitions(seed, 10 * count), random::objects(seed, count), vec![formats::scenario()]].concat();
    let listed = |file: &str| rules::expressions(&std::fs::read_to_string(format!("{WRITTEN}/{file}")).unwrap());
    let (wrong, right) = (rules::definitions(&listed("rules.txt")), rules::verdicts(&listed("verdicts.txt")));
    let scenarios: Vec<Scenario> = [written(), breadth::lives(), breadth::refusals(most), random, wrong, right]
        .concat()
        .into_iter()
        .filter(|scenario| only.is_match(&scenario.name))
        .collect();
    let count = scenarios.len();
    let report = compare_all(&real, &ours, scenarios, &known).await;
    let (compared, equal, excepted) = report.counts();
    println!(
        "parity: {compared} requests of {count} scenarios compared, {equal} equal, {excepted} with known differences only"
    );
    for rule in &known.rules {
        println!("  {:5} {}: {}", rule.hits(), rule.section, rule.line.trim_start_matches("- "));
    }
    let text = describe(&report);
    if let Ok(path) = std::env::var("CONDUCTOR_PARITY_REPORT") {
        std::fs::write(path, &text).unwrap();
    }
    let unequal = compared - equal - excepted;
    let head: String = text.lines().take(200).map(|line| format!("{line}\n")).collect();
    assert_eq!(unequal, 0, "{unequal} requests have unknown differences:\n{head}");
    assert!(only.as_str() != "" || compared > 1000, "only {compared} requests were compared");
}

/// Unknown differences, the most frequent first, each with a request that shows it.
fn describe(report: &Report) -> String {
    let digits = Regex::new(r"\[\d+\]").unwrap();
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for comparison in &report.comparisons {
        for difference in &comparison.unknown {
            let place = digits.replace_all(&difference.place, "[]").into_owned();
            let text = format!("{}\n      {difference}\n      sent {}", comparison.request, comparison.body);
            kinds.entry(place).or_default().push(text);
        }
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, found)| std::cmp::Reverse(found.len()));
    let mut text = String::new();
    for (place, found) in kinds {
        let _ = writeln!(text, "{} × {place}", found.len());
        for one in found {
            let _ = writeln!(text, "    {one}");
        }
    }
    text
}
