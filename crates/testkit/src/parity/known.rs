//! Known differences: lines of `docs/parity.md`, each its own matcher.
//!
//! ```text
//! - `POST .*/configmaps` `body.message`: the reason why they differ
//! ```
//!
//! The first pattern is looked for in the scenario's name, the method and the path; the second in the difference as it
//! is printed. That one server refuses what the other takes is known only to a pattern that speaks of codes.

use std::sync::atomic::{AtomicUsize, Ordering};

use regex::Regex;

use super::Difference;

/// The lines of a document that are matchers.
pub struct Known {
    /// In the document's order.
    pub rules: Vec<Rule>,
}

/// One known difference.
pub struct Rule {
    /// The heading it stands under.
    pub section: String,
    /// Its line.
    pub line: String,
    request: Regex,
    difference: Regex,
    of_codes: bool,
    hits: AtomicUsize,
}

impl Rule {
    /// How often it was met.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }
}

impl Known {
    /// Reads the lines of a document.
    pub fn parse(document: &str) -> Result<Known, String> {
        let form = Regex::new("^- `([^`]+)` `([^`]+)`: (.+)$").map_err(|error| error.to_string())?;
        let mut section = String::new();
        let mut rules = Vec::new();
        for line in document.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = heading.trim().into();
            }
            let Some(found) = form.captures(line) else { continue };
            let pattern = |text: &str| Regex::new(text).map_err(|error| format!("{line}: {error}"));
            rules.push(Rule {
                section: section.clone(),
                line: line.into(),
                request: pattern(&found[1])?,
                difference: pattern(&found[2])?,
                of_codes: found[2].contains("code"),
                hits: AtomicUsize::new(0),
            });
        }
        Ok(Known { rules })
    }

    /// Whether a difference is known.
    pub fn knows(&self, request: &str, difference: &Difference) -> bool {
        let text = difference.to_string();
        let of_codes = difference.place == "code";
        let rule = self.rules.iter().find(|rule| {
            (rule.of_codes || !of_codes) && rule.request.is_match(request) && rule.difference.is_match(&text)
        });
        if let Some(rule) = rule {
            rule.hits.fetch_add(1, Ordering::Relaxed);
        }
        rule.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_document_are_matchers() {
        let known = Known::parse("# T\n## Accepted\n- words\n- `GET .*/pods` `^body.status`: because\n").unwrap();
        let difference = |place: &str| Difference { place: place.into(), real: "1".into(), ours: "2".into() };
        assert!(known.knows("GET /api/v1/pods", &difference("body.status.phase")));
        assert!(!known.knows("GET /api/v1/pods", &difference("body.spec")));
        assert!(!known.knows("GET /api/v1/nodes", &difference("body.status")));
        let wide = Known::parse("- `.` `x`: because\n- `PUT` `^code: x`: because\n").unwrap();
        let codes = Difference { place: "code".into(), real: "x".into(), ours: "y".into() };
        assert!(wide.knows("PUT /", &codes) && !wide.knows("GET /", &codes));
        assert_eq!((known.rules[0].hits(), known.rules[0].section.as_str()), (1, "Accepted"));
        assert!(Known::parse("- `(` `x`: y").is_err());
    }
}
