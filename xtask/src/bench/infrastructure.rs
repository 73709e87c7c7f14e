//! What is behind claims on this machine: how long until it can be used, and what it costs.
use std::fmt::Write;
use std::fs;
use std::time::Duration;

use super::report::{machine_load, processor, put};
use super::subject::Subject;
use super::{Infrastructure, databases, machine};
use crate::repository;

/// One line of the table.
pub struct Figure {
    what: String,
    value: String,
    slowest: String,
    aim: &'static str,
}

impl Figure {
    /// One number.
    pub fn one(what: String, value: String) -> Figure {
        Figure { what, value, slowest: String::new(), aim: "" }
    }

    /// The median and the slowest of some.
    pub fn times(what: &str, mut times: Vec<Duration>, aim: &'static str) -> Figure {
        times.sort();
        let shown = |time: Option<&Duration>| time.map_or_else(String::new, |t| format!("{} ms", t.as_millis()));
        Figure { what: what.to_owned(), value: shown(times.get(times.len() / 2)), slowest: shown(times.last()), aim }
    }
}

/// Measures, prints a table, and writes it.
pub fn run(options: &Infrastructure) -> anyhow::Result<()> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => crate::conductor::build()?,
    };
    let dir = std::env::temp_dir().join(format!("conductor-bench-{}", std::process::id()));
    fs::create_dir_all(dir.join("data"))?;
    let mut subject = Subject::conductor(&program, &dir)?;
    let load = machine_load();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(async {
        let mut api = subject.endpoint.connect().await?;
        let mut figures = machine::measure(&mut api, options.rounds).await?;
        let home = dir.join("data/providers/databases");
        figures.extend(databases::measure(&mut api, options.rounds, options.instances, &home).await?);
        Ok::<_, anyhow::Error>(figures)
    });
    let figures = match (measured, subject.ended()) {
        (Err(error), Some(how)) => return Err(error.context(how)),
        (measured, _) => measured?,
    };
    let generated = document(&figures, options, &load);
    print!("{generated}");
    let output = options.output.clone().unwrap_or_else(|| repository::root().join("docs/benchmarks.md"));
    put(&output, "infrastructure", &generated)
}

fn document(figures: &[Figure], options: &Infrastructure, load: &str) -> String {
    let mut out = format!("\nProcessor: {}. Load before: {load}.\n\n", processor());
    let _ = writeln!(
        out,
        "```sh\ncargo xtask bench infrastructure --rounds {} --instances {}\n```\n",
        options.rounds, options.instances
    );
    out.push_str("| | median | slowest | aim |\n| --- | ---: | ---: | ---: |\n");
    for Figure { what, value, slowest, aim } in figures {
        let _ = writeln!(out, "| {what} | {value} | {slowest} | {aim} |");
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_figure() {
        let times = [30, 10, 20].map(Duration::from_millis).to_vec();
        let figures = [Figure::times("a", times, "under 1 s"), Figure::one("b".into(), "2 MiB".into())];
        let options = Infrastructure { rounds: 3, instances: 1, program: None, output: None };
        let text = document(&figures, &options, "0");
        assert!(text.contains("| a | 20 ms | 30 ms | under 1 s |\n| b | 2 MiB |  |  |\n"), "{text}");
    }
}
