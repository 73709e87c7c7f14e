//! A run of named steps, with headings and a summary of times.
use std::time::{Duration, Instant};

/// What became of the steps so far.
#[derive(Default)]
pub struct Steps {
    done: Vec<(String, Outcome)>,
}

enum Outcome {
    Passed(Duration),
    Failed(Duration),
    Skipped(String),
}

impl Steps {
    /// Runs a step and remembers how it went.
    pub fn run<T>(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        eprintln!("\n==> {name}");
        let begin = Instant::now();
        let result = step();
        let took = begin.elapsed();
        self.done.push((name.into(), if result.is_ok() { Outcome::Passed(took) } else { Outcome::Failed(took) }));
        result.map_err(|e| e.context(format!("step \"{name}\" failed")))
    }

    /// Says aloud that a step is left out, and why.
    pub fn skip(&mut self, name: &str, why: impl Into<String>) {
        let why = why.into();
        eprintln!("\n==> {name}\nSKIPPED: {why}");
        self.done.push((name.into(), Outcome::Skipped(why)));
    }

    /// One line per step.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (name, outcome) in &self.done {
            text += &match outcome {
                Outcome::Passed(took) => format!("{:>8.1} s  ok      {name}\n", took.as_secs_f64()),
                Outcome::Failed(took) => format!("{:>8.1} s  FAILED  {name}\n", took.as_secs_f64()),
                Outcome::Skipped(why) => format!("{:>10}  SKIPPED {name}: {why}\n", ""),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_passed_failed_and_skipped_apart() {
        let mut steps = Steps::default();
        assert_eq!(steps.run("one", || Ok(1)).ok(), Some(1));
        let error = steps.run::<()>("two", || anyhow::bail!("broken")).expect_err("it fails");
        assert!(format!("{error:#}").contains("broken"));
        steps.skip("three", "no Go");
        let summary = steps.summary();
        let verdicts: Vec<_> = ["ok      one", "FAILED  two", "SKIPPED three: no Go"]
            .iter()
            .filter_map(|line| summary.find(line))
            .collect();
        assert_eq!(verdicts.len(), 3, "{summary}");
        assert!(verdicts.is_sorted(), "{summary}");
    }
}
