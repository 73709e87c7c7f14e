//! What ginkgo says of the specs that it ran.
use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use serde_json::Value;

/// How a spec went.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// It looked, and found that it does not apply here.
    Inapplicable(String),
    /// Where and why.
    Failed(String),
}

/// How all specs went, by name.
#[derive(Default)]
pub struct Report(BTreeMap<String, Outcome>);

impl Report {
    /// Reads ginkgo's JSON.
    pub fn read(report: &Value) -> anyhow::Result<Report> {
        let mut outcomes = BTreeMap::new();
        for spec in report[0]["SpecReports"].as_array().context("ginkgo's report has no specs")? {
            let leaf = spec["LeafNodeType"].as_str().unwrap_or_default();
            let failure = || {
                let at = &spec["Failure"]["Location"];
                let file = at["FileName"].as_str().unwrap_or_default();
                let file = file.rsplit_once("/test/").map_or(file, |(_, rest)| rest);
                let message = spec["Failure"]["Message"].as_str().unwrap_or_default();
                let words: Vec<&str> = message.split_whitespace().collect();
                let message: String = words.join(" ").chars().take(400).collect();
                format!("{file}:{}: {message}", at["LineNumber"])
            };
            let outcome = match spec["State"].as_str().unwrap_or_default() {
                "passed" => Outcome::Passed,
                // Those that nobody asked for give no reason.
                "skipped" if spec["Failure"]["Message"].as_str().is_none_or(str::is_empty) => continue,
                "skipped" => Outcome::Inapplicable(failure()),
                "pending" => continue,
                _ => Outcome::Failed(failure()),
            };
            if leaf != "It" && !matches!(outcome, Outcome::Failed(_)) {
                continue;
            }
            let containers = spec["ContainerHierarchyTexts"].as_array().map(Vec::as_slice).unwrap_or_default();
            let texts = containers.iter().chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
            let mut name = texts.collect::<Vec<_>>().join(" ");
            if name.is_empty() {
                name = leaf.into();
            }
            outcomes.insert(name, outcome);
        }
        Ok(Report(outcomes))
    }

    /// Reads what `tools/conformance/cmd.sh` says of its functions.
    pub fn of_functions(text: &str) -> Report {
        let line = |line: &str| {
            let (how, name) = line.split_once(' ')?;
            match how {
                "passed" => Some((name.to_owned(), Outcome::Passed)),
                "FAILED" => name.split_once(": ").map(|(name, why)| (name.to_owned(), Outcome::Failed(why.into()))),
                _ => None,
            }
        };
        Report(text.lines().filter_map(line).collect())
    }

    /// Both.
    pub fn and(mut self, other: Report) -> Report {
        self.0.extend(other.0);
        self
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.0.values().filter(|outcome| is(outcome)).count()
    }

    /// How many passed.
    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    /// How many failed.
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// In one line.
    pub fn counts(&self) -> String {
        let inapplicable = self.count(|outcome| matches!(outcome, Outcome::Inapplicable(_)));
        format!("{} passed, {} failed, {inapplicable} do not apply", self.passed(), self.failed())
    }

    /// Every spec with its outcome, in an order that two runs share.
    pub fn list(&self) -> String {
        let line = |(name, outcome): (&String, &Outcome)| {
            let outcome = match outcome {
                Outcome::Passed => "passed",
                Outcome::Failed(_) => "FAILED",
                Outcome::Inapplicable(_) => "does not apply",
            };
            format!("{outcome}: {name}\n")
        };
        self.0.iter().map(line).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.0 {
            if let Outcome::Failed(why) = outcome {
                writeln!(f, "FAILED {name}\n    {why}")?;
            }
        }
        f.write_str(&self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_tells_what_passed_failed_and_did_not_apply() {
        let spec = |leaf: &str, name: &str, state: &str, message: &str| {
            let at = json!({"FileName": "k8s.io/kubernetes/test/e2e/a.go", "LineNumber": 7});
            json!({
                "ContainerHierarchyTexts": ["[sig-a]"], "LeafNodeText": name, "LeafNodeType": leaf, "State": state,
                "Failure": {"Message": message, "Location": at},
            })
        };
        let report = json!([{"SpecReports": [
            spec("It", "works", "passed", ""),
            spec("It", "breaks", "failed", "no\n  such thing"),
            spec("It", "hangs", "timedout", "too long"),
            spec("It", "needs ssh", "skipped", "no ssh"),
            spec("It", "not asked for", "skipped", ""),
            spec("BeforeSuite", "", "passed", ""),
        ]}]);
        let report = Report::read(&report).expect("a report");
        assert_eq!(report.counts(), "1 passed, 2 failed, 1 do not apply");
        assert_eq!(report.list().lines().next(), Some("FAILED: [sig-a] breaks"));
        assert!(report.to_string().contains("    e2e/a.go:7: no such thing\n"), "{report}");
        assert!(Report::read(&json!({})).is_err());
    }

    #[test]
    fn functions_are_told_line_by_line() {
        let report = Report::of_functions("passed run_a_tests\nFAILED run_b_tests: see b.log\n");
        assert_eq!(report.counts(), "1 passed, 1 failed, 0 do not apply");
        assert!(report.to_string().contains("FAILED run_b_tests\n    see b.log\n"), "{report}");
    }
}
