//! One server measured, or two in turns.
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::report::{self, Row, Unit, figure, machine_load};
use super::subject::Subject;
use super::{Api, Compare, Part, bind, chart, workloads};
use crate::repository;

/// What the project aims for: how many times better than etcd + kube-apiserver, or an absolute limit.
const AIMS: &[(&str, &str)] = &[
    ("start until ready", "under 300 ms"),
    ("memory, idle", "under 40 MiB"),
    ("memory, 10,000 objects of 1 KiB", "under 120 MiB"),
    ("create, 1 client", "3 x"),
    ("patch, 1 client", "3 x"),
    ("delete, 1 client", "3 x"),
    ("create, 32 clients", "5 x"),
    ("patch, 32 clients", "5 x"),
    ("delete, 32 clients", "5 x"),
    ("list of 10,000", "3 x"),
    ("server-side apply, 32 clients", "5 x"),
    ("definitions installed and discovered", "2,000 in seconds"),
    ("memory per small definition", "under 50 KiB"),
    ("memory per large definition, in its JSON", "under 3 x"),
    ("the same while another floods with lists of 10,000", "within 5 x its own alone"),
    (BIND, "50 x"),
    (MANAGED, "3 x"),
    (MANAGED_SHARE, "80 %"),
    ("a lone volume claim until Bound", "under 10 ms"),
];

/// Binding, by Kubernetes' own binder and by ours.
const BIND: &str = "bind volume claims, 32 clients";
/// The same, with ours on Kubernetes' own API server.
const MANAGED: &str = "bind volume claims, 32 clients, our managers on kube-apiserver";
/// What of it is written, and how much of that the server takes.
const MANAGED_SHARE: &str = "our managers on kube-apiserver: writes for claims, of what it takes of patches";

/// The rows of binding, and what they are called where ours runs on Kubernetes' own API server.
const MANAGED_ROWS: &[(&str, &str)] = &[
    (BIND, MANAGED),
    (bind::SETTLED, "our managers on kube-apiserver: the same until the volumes say so, too"),
    (bind::WRITES, "our managers on kube-apiserver: writes per volume claim"),
    (bind::PATCHES, "our managers on kube-apiserver: patch of a bound volume claim, 32 clients"),
    ("server's processor time per volume claim", "our managers on kube-apiserver: processor time per volume claim"),
    ("of it kube-apiserver", "our managers: of it kube-apiserver"),
    ("of it etcd", "our managers: of it etcd"),
    ("of it kube-controller-manager", "our managers: of it kube-controller-manager"),
    ("of it our managers", "our managers: of it our managers"),
];

/// Rows of binding as they are called where ours runs on Kubernetes' own API server.
fn renamed(rows: &[Row]) -> Vec<Row> {
    let called = |(what, shown): &(&str, &'static str)| {
        let row = rows.iter().find(|row| row.what == *what)?;
        Some(Row { what: shown, ..row.clone() })
    };
    MANAGED_ROWS.iter().filter_map(called).collect()
}

fn measure(subject: &mut Subject, quick: bool, parts: &[Part]) -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let measured = runtime.block_on(workloads::run(subject, quick, parts));
    ended(subject, measured)
}

/// Binding alone: a burst of claims for volumes, then one at a time.
fn measure_bind(subject: &mut Subject, quick: bool) -> anyhow::Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let measured = runtime.block_on(bind::measure(subject, bind::What::Volumes, if quick { 500 } else { 5000 }));
    ended(subject, measured)
}

/// Says how a server of ours ended, if that is why it could not be measured.
fn ended(subject: &mut Subject, measured: anyhow::Result<Vec<Row>>) -> anyhow::Result<Vec<Row>> {
    match (&measured, subject.ended()) {
        (Err(_), Some(how)) => measured.context(how),
        _ => measured,
    }
}

/// A directory for a server that is measured.
pub fn state_dir(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("conductor-bench-{}-{name}", std::process::id()))
}

/// Measures one server and prints a table.
pub fn one(options: &Api) -> anyhow::Result<()> {
    let program = match (&options.kubeconfig, &options.program) {
        (None, None) => Some(crate::conductor::build()?),
        (_, program) => program.clone(),
    };
    let mut rounds = Vec::new();
    for round in 0..options.rounds.max(1) {
        eprintln!("round {}: load {}", round + 1, machine_load());
        let mut subject = match (&options.kubeconfig, &program) {
            (Some(kubeconfig), _) => Subject::foreign(kubeconfig)?,
            (None, program) => Subject::conductor(program.as_deref().context("not built")?, &state_dir("ours"))?,
        };
        rounds.push(measure(&mut subject, options.quick, &options.parts)?);
    }
    let rows = report::medians(&rounds);
    match options.json {
        true => println!("{:#}", report::to_json(&rows)),
        false => print!("{}", report::table(&rows)),
    }
    Ok(())
}

/// Measures both in turns and writes the document.
pub fn both(options: &Compare) -> anyhow::Result<()> {
    let program = crate::conductor::build()?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let mut loads = Vec::new();
    for round in 0..options.rounds.max(1) {
        let with_api = !options.bind_only && options.api_rounds.is_none_or(|rounds| round < rounds.max(1));
        loads.push(machine_load());
        eprintln!("round {}: etcd + kube-apiserver, load {}", round + 1, machine_load());
        // binding has a server of its own: the other would still be busy with what it was loaded with
        let mut rows = match with_api {
            false => Vec::new(),
            true => measure(&mut Subject::kubernetes(&state_dir("kubernetes"))?, options.quick, &[])?,
        };
        rows.extend(measure_bind(&mut Subject::kubernetes(&state_dir("kubernetes"))?, options.quick)?);
        // what ours on the same API server is measured by
        let same = renamed(&rows);
        rows.extend(same);
        theirs.push(rows);
        loads.push(machine_load());
        eprintln!("round {}: conductor up, load {}", round + 1, machine_load());
        let mut rows = match with_api {
            false => Vec::new(),
            true => measure(&mut Subject::conductor(&program, &state_dir("ours"))?, options.quick, &[])?,
        };
        rows.extend(measure_bind(&mut Subject::conductor(&program, &state_dir("ours"))?, options.quick)?);
        eprintln!("round {}: our managers on kube-apiserver, load {}", round + 1, machine_load());
        let mut managed = Subject::managed(&state_dir("managed"), &program)?;
        let bound = measure_bind(&mut managed, options.quick)?;
        let value = |what: &str| bound.iter().find(|row| row.what == what).map_or(f64::NAN, |row| row.value);
        let share = 100.0 * value(bind::SETTLED) * value(bind::WRITES) / value(bind::PATCHES);
        rows.push(Row::new(MANAGED_SHARE, Unit::Percent, share));
        rows.extend(renamed(&bound));
        ours.push(rows);
    }
    let rounds = each_round(&theirs, &ours);
    let (theirs, ours) = (report::medians(&theirs), report::medians(&ours));
    let generated = document(&theirs, &ours, options, &loads) + &rounds;
    print!("{generated}");
    if options.bind_only && options.output.is_none() {
        // a part of it is not the document
        return Ok(());
    }
    let output = options.output.clone().unwrap_or_else(|| repository::root().join("docs/benchmarks.md"));
    write(&output, &generated, &chart::ratios(&theirs, &ours))
}

/// How many times better binding was in each round: how far rounds differ.
fn each_round(theirs: &[Vec<Row>], ours: &[Vec<Row>]) -> String {
    let value = |rows: &[Row], what: &str| rows.iter().find(|row| row.what == what).map_or(f64::NAN, |row| row.value);
    let ratios = |what: &str| -> Vec<String> {
        theirs.iter().zip(ours).map(|(theirs, ours)| figure(value(ours, what) / value(theirs, what))).collect()
    };
    let (up, managed) = (ratios(BIND).join(", "), ratios(MANAGED).join(", "));
    format!("Times better in each round: {BIND}: {up}; our managers on kube-apiserver: {managed}.\n\n")
}

fn write(output: &Path, generated: &str, chart: &str) -> anyhow::Result<()> {
    report::put(output, "compare", generated)?;
    let picture = output.with_extension("svg");
    fs::write(&picture, chart).with_context(|| format!("writing {}", picture.display()))
}

fn document(theirs: &[Row], ours: &[Row], options: &Compare, loads: &[String]) -> String {
    let mut out = String::new();
    let rounds = options.rounds.max(1);
    let quick = if options.quick { " --quick" } else { "" };
    let _ = writeln!(
        out,
        "\nMedians of {rounds} rounds of each, in turns{}{}.",
        if options.quick { ", with a tenth of the load" } else { "" },
        options
            .api_rounds
            .map_or(String::new(), |api| format!(", of what is not about binding {}", api.clamp(1, rounds)))
    );
    let _ = writeln!(out, "Processor: {}. Load before each measurement: {}.\n", report::processor(), loads.join("; "));
    let api = options.api_rounds.map_or(String::new(), |rounds| format!(" --api-rounds {rounds}"));
    let _ = writeln!(out, "```sh\ncargo xtask bench compare --rounds {rounds}{api}{quick}\n```\n");
    let _ = writeln!(out, "![how many times better than etcd + kube-apiserver](benchmarks.svg)\n");
    let _ = writeln!(
        out,
        "| | etcd + kube-apiserver | conductor up | times better | aim |\n| --- | ---: | ---: | ---: | ---: |"
    );
    for own in ours {
        let other = theirs.iter().find(|row| row.what == own.what);
        let ratio = other.map_or("–".to_owned(), |other| figure(own.unit.ratio(own.value, other.value)));
        let aim = AIMS.iter().find(|(what, _)| *what == own.what).map_or("", |(_, aim)| *aim);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {ratio} | {aim} |",
            own.what,
            other.map_or("–".to_owned(), cell),
            cell(own)
        );
    }
    out.push('\n');
    out
}

fn cell(row: &Row) -> String {
    let main = format!("{} {}", figure(row.value), row.unit.name());
    match (row.p50, row.p99) {
        (Some(p50), Some(p99)) => format!("{main} ({} / {} ms)", figure(p50), figure(p99)),
        _ => main,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_both_figures_their_ratio_and_the_aim() {
        let options = Compare { rounds: 1, quick: false, api_rounds: None, bind_only: false, output: None };
        let theirs = [Row::new("create, 32 clients", Unit::PerSecond, 2000.0).with(10.0, 40.0)];
        let ours = [
            Row::new("create, 32 clients", Unit::PerSecond, 12_000.0).with(2.0, 5.0),
            Row::new("transaction of two creates, 1 client", Unit::PerSecond, 1000.0),
        ];
        let text = document(&theirs, &ours, &options, &["0.10 on 2 processors".to_owned()]);
        assert!(
            text.contains(
                "| create, 32 clients | 2,000 /s (10.0 / 40.0 ms) | 12,000 /s (2.00 / 5.00 ms) | 6.00 | 5 x |"
            ),
            "{text}"
        );
        assert!(text.contains("| transaction of two creates, 1 client | – | 1,000 /s | – |  |"), "{text}");
    }
}
