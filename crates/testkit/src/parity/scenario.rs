//! Scenarios: requests in order, in a namespace of their own.
//!
//! As text, a scenario begins with `## its name`; each request with a line `### why it is sent`:
//!
//! ```text
//! ## Two objects cannot have one name
//! ### the first
//! POST /api/v1/namespaces/{{ns}}/configmaps
//! Content-Type: application/yaml
//! @save version /metadata/resourceVersion
//!
//! metadata: {name: a}
//! ### the second
//! POST /api/v1/namespaces/{{ns}}/configmaps?fieldManager=other
//!
//! {"metadata": {"name": "a"}}
//! ```
//!
//! `{{ns}}` is the scenario's namespace, `{{run}}` a name that this run alone has, for objects outside of namespaces.
//! `@save` keeps a string of an answer (or a header, if no pointer but a header's name stands there), each cluster its own; `@until pointer value` repeats the request until both
//! clusters have that there; `@ignore pattern` leaves out differences for a reason that belongs to the scenario.

use crate::Request;

/// Requests in order.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// What it is about.
    pub name: String,
    /// What is sent.
    pub steps: Vec<Step>,
    /// Differences that mean nothing in this scenario, as patterns.
    pub ignore: Vec<String>,
}

/// One request.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// What is sent; `{{name}}` stands for what was saved.
    pub request: Request,
    /// What to keep of the answer: a name and a JSON pointer, or a header.
    pub save: Vec<(String, String)>,
    /// What to wait for: a JSON pointer and the string there. Empty means that nothing is there.
    pub until: Option<(String, String)>,
    /// Whether the answers are compared.
    pub compared: bool,
}

impl Step {
    /// A request whose answers are compared.
    pub fn new(request: Request) -> Step {
        Step { request, compared: true, ..Step::default() }
    }
}

/// Why a text is no scenario.
#[derive(Debug, PartialEq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl Scenario {
    /// Reads scenarios.
    pub fn parse(text: &str) -> Result<Vec<Scenario>, ParseError> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        let mut part = Part::Between;
        for (index, line) in text.lines().enumerate() {
            let wrong = |why: &str| ParseError { line: index + 1, why: why.into() };
            if line.starts_with("### ") || line == "###" {
                let scenario = scenarios.last_mut().ok_or_else(|| wrong("a request outside of a scenario"))?;
                scenario.steps.push(Step::new(Request::default()));
                part = Part::RequestLine;
                continue;
            }
            if let Some(name) = line.strip_prefix("## ") {
                scenarios.push(Scenario { name: name.trim().into(), ..Scenario::default() });
                part = Part::Between;
                continue;
            }
            let Some(scenario) = scenarios.last_mut() else { continue };
            if let (Part::Between, Some(pattern)) = (&part, line.strip_prefix("@ignore ")) {
                scenario.ignore.push(pattern.trim().into());
                continue;
            }
            let Some(step) = scenario.steps.last_mut() else { continue };
            match part {
                Part::Between => {}
                Part::RequestLine => {
                    let (method, path) = line.split_once(' ').ok_or_else(|| wrong("a method and a path are needed"))?;
                    step.request.method = method.into();
                    step.request.path = path.trim().into();
                    part = Part::Headers;
                }
                Part::Headers if line.is_empty() => part = Part::Body,
                Part::Headers => header(step, line).map_err(|why| wrong(&why))?,
                Part::Body => {
                    step.request.body.push_str(line);
                    step.request.body.push('\n');
                }
            }
        }
        for step in scenarios.iter_mut().flat_map(|scenario| &mut scenario.steps) {
            let kept = step.request.body.trim_end().len();
            step.request.body.truncate(kept);
        }
        Ok(scenarios)
    }
}

enum Part {
    Between,
    RequestLine,
    Headers,
    Body,
}

fn header(step: &mut Step, line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match *words {
        ["@save", name, pointer] => step.save.push((name.into(), pointer.into())),
        ["@until", pointer] => step.until = Some((pointer.into(), String::new())),
        ["@until", pointer, value] => step.until = Some((pointer.into(), value.into())),
        ["@quietly"] => step.compared = false,
        _ => {
            let (name, value) = line.split_once(':').ok_or("a header needs a name and a value")?;
            step.request.headers.push((name.trim().into(), value.trim().into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_read_from_text() {
        let text = "words\n## One\n@ignore x\n### a\nPOST /a?b=c\nAccept: x/y\n@save v /metadata/name\n\n{\n}\n\n### b\nGET /b\n@until /status/phase Active\n@quietly\n## Two\n";
        let scenarios = Scenario::parse(text).unwrap();
        assert_eq!(scenarios.len(), 2);
        let [one, two] = &scenarios[0].steps[..] else { panic!("two requests") };
        assert_eq!(scenarios[0].ignore, ["x"]);
        assert_eq!(one.request, Request::new("POST", "/a?b=c").header("Accept", "x/y").body("{\n}"));
        assert_eq!(one.save, [("v".to_owned(), "/metadata/name".to_owned())]);
        assert_eq!(two.until, Some(("/status/phase".to_owned(), "Active".to_owned())));
        assert!(one.compared && !two.compared);
    }

    #[test]
    fn what_is_no_scenario_is_refused_with_its_line() {
        let check = |text: &str, line: usize| assert_eq!(Scenario::parse(text).unwrap_err().line, line, "{text}");
        check("### a\nGET /", 1);
        check("## s\n### a\nGET", 3);
        check("## s\n### a\nGET /\nnonsense", 4);
    }
}
