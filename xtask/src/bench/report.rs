//! What was measured, for people and for programs.
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

/// In what a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// More is better.
    PerSecond,
    /// Less is better.
    Milliseconds,
    /// Less is better.
    Mebibytes,
    /// Less is better.
    Kibibytes,
    /// Less is better.
    Times,
    /// Less is better.
    Writes,
    /// More is better.
    Percent,
}

impl Unit {
    /// As written behind a figure.
    pub fn name(self) -> &'static str {
        match self {
            Unit::PerSecond => "/s",
            Unit::Milliseconds => "ms",
            Unit::Mebibytes => "MiB",
            Unit::Kibibytes => "KiB",
            Unit::Times => "x",
            Unit::Writes => "writes",
            Unit::Percent => "%",
        }
    }

    /// How many times better `own` is than `other`.
    pub fn ratio(self, own: f64, other: f64) -> f64 {
        match self {
            Unit::PerSecond | Unit::Percent => own / other,
            Unit::Milliseconds | Unit::Mebibytes | Unit::Kibibytes | Unit::Times | Unit::Writes => other / own,
        }
    }
}

/// One thing that was measured.
#[derive(Clone, Debug)]
pub struct Row {
    /// What.
    pub what: &'static str,
    /// In what.
    pub unit: Unit,
    /// How much.
    pub value: f64,
    /// Half of the requests took at most this, in milliseconds.
    pub p50: Option<f64>,
    /// All but one of a hundred took at most this, in milliseconds.
    pub p99: Option<f64>,
}

impl Row {
    /// A figure.
    pub fn new(what: &'static str, unit: Unit, value: f64) -> Row {
        Row { what, unit, value, p50: None, p99: None }
    }

    /// And how long it took each time.
    pub fn with(self, p50: f64, p99: f64) -> Row {
        Row { p50: Some(p50), p99: Some(p99), ..self }
    }
}

/// Of several rounds, the middle of each figure.
pub fn medians(rounds: &[Vec<Row>]) -> Vec<Row> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let median = |what: &str, part: &dyn Fn(&Row) -> Option<f64>| {
        let mut all: Vec<f64> = rounds.iter().flatten().filter(|row| row.what == what).filter_map(part).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let of = |row: &Row| Row {
        value: median(row.what, &|row| Some(row.value)).unwrap_or(row.value),
        p50: median(row.what, &|row| row.p50),
        p99: median(row.what, &|row| row.p99),
        ..row.clone()
    };
    first.iter().map(of).collect()
}

/// A figure with as many digits as mean something.
pub fn figure(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.2}");
    }
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A table in aligned columns.
pub fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
    let mut out = format!("{:width$}  {:>12}         {:>9}  {:>9}\n", "", "", "p50 ms", "p99 ms");
    let show = |value: Option<f64>| value.map(figure).unwrap_or_default();
    for row in rows {
        let (value, unit) = (figure(row.value), row.unit.name());
        let line = format!("{:width$}  {value:>12} {unit:<6}  {:>9}  {:>9}", row.what, show(row.p50), show(row.p99));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// The same for programs.
pub fn to_json(rows: &[Row]) -> Value {
    let one = |row: &Row| json!({"what": row.what, "value": row.value, "unit": row.unit.name(), "p50ms": row.p50, "p99ms": row.p99});
    json!({"figures": rows.iter().map(one).collect::<Vec<_>>(), "load": machine_load()})
}

/// How busy the machine has been in the last minute, and with how many processors.
pub fn machine_load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown").to_owned();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{load} on {processors} processors")
}

/// Writes what a benchmark found into a document, or a new one.
pub fn put(output: &Path, bench: &str, generated: &str) -> anyhow::Result<()> {
    let before = match fs::read_to_string(output) {
        Err(error) if error.kind() == ErrorKind::NotFound => lines(bench).concat(),
        read => read.with_context(|| format!("reading {}", output.display()))?,
    };
    let after = replaced(&before, bench, generated)?;
    fs::write(output, after).with_context(|| format!("writing {}", output.display()))
}

/// The lines around what a benchmark has written.
fn lines(bench: &str) -> [String; 2] {
    ["begin", "end"].map(|word| format!("<!-- generated by cargo xtask bench {bench}: {word} -->"))
}

/// A document with the part that a benchmark has written replaced.
fn replaced(document: &str, bench: &str, generated: &str) -> anyhow::Result<String> {
    let [begin, end] = lines(bench);
    let parts = document.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else {
        anyhow::bail!("the document lacks the lines between which the table goes:\n{begin}\n{end}")
    };
    Ok(format!("{before}{begin}\n{generated}{end}{after}"))
}

/// The processor's name.
pub fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = all.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned()));
    name.unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_its_own_and_nothing_else() {
        let [begin, end] = lines("x");
        let document = format!("# Title\n{begin}\nold\n{end}\nhand-written\n");
        let expected = format!("# Title\n{begin}\nnew\n{end}\nhand-written\n");
        assert_eq!(replaced(&document, "x", "new\n").expect("has its place"), expected);
        let error = replaced("# Title\n", "x", "new\n").expect_err("has no place").to_string();
        assert!(error.contains(&begin), "{error}");
        let dir = tempfile::tempdir().expect("a directory");
        let new = dir.path().join("new.md");
        for table in ["old\n", "new\n"] {
            put(&new, "x", table).expect("written");
            assert_eq!(fs::read_to_string(&new).expect("read"), format!("{begin}\n{table}{end}"));
        }
    }

    #[test]
    fn figures_and_tables() {
        let shown = [0.123, 9.996, 12.34, 999.6, 1234.0, 1_234_567.0].map(figure);
        assert_eq!(shown, ["0.12", "10.00", "12.3", "1,000", "1,234", "1,234,567"]);
        let rows =
            [Row::new("create", Unit::PerSecond, 1200.0).with(1.0, 20.0), Row::new("memory", Unit::Mebibytes, 40.0)];
        let lines: Vec<Vec<String>> =
            table(&rows).lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
        assert_eq!(
            lines,
            [
                vec!["p50", "ms", "p99", "ms"],
                vec!["create", "1,200", "/s", "1.00", "20.0"],
                vec!["memory", "40.0", "MiB"]
            ]
        );
    }

    #[test]
    fn medians_by_name() {
        let round =
            |value| vec![Row::new("a", Unit::PerSecond, value).with(value, value), Row::new("b", Unit::Mebibytes, 1.0)];
        let median = medians(&[round(3.0), round(1.0), round(2.0)]);
        assert_eq!((median[0].value, median[0].p99, median[1].p50), (2.0, Some(2.0), None));
        assert_eq!((Unit::PerSecond.ratio(6.0, 2.0), Unit::Mebibytes.ratio(2.0, 6.0)), (3.0, 3.0));
    }
}
