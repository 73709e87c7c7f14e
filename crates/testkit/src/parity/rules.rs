//! Definitions with one validation rule each, from a list of expressions.

use serde_json::{Value, json};

use super::{Scenario, Step};
use crate::Request;

/// How many requests make a scenario.
const TOGETHER: usize = 20;

/// One expression on each line, `\n` and `\t` being what they are in strings; lines that begin with `##` are headings.
/// `{{repeat N words}}` stands for N times those words.
pub fn expressions(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("## ")).map(expand).collect()
}

fn expand(line: &str) -> String {
    let mut line = line.replace("\\n", "\n").replace("\\t", "\t");
    while let Some(start) = line.find("{{repeat ")
        && let Some(length) = line[start..].find("}}")
    {
        let (count, words) = line[start + 9..start + length].split_once(' ').unwrap_or(("1", ""));
        let repeated = words.repeat(count.parse().unwrap_or(1));
        line.replace_range(start..start + length + 2, &repeated);
    }
    line
}

/// A definition with each of them as a rule, sent without being stored.
pub fn definitions(expressions: &[String]) -> Vec<Scenario> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    let step = |rule: &String| Step::new(Request::json("POST", path, &definition(&json!([{"rule": rule}]))));
    let scenario = |(index, rules): (usize, &[String])| Scenario {
        name: format!("rules {index}"),
        steps: rules.iter().map(step).collect(),
        ..Scenario::default()
    };
    expressions.chunks(TOGETHER).enumerate().map(scenario).collect()
}

/// What the rules can be about: a field of each type.
fn definition(rules: &Value) -> Value {
    let text = json!({"type": "string", "maxLength": 20});
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": rules,
        "properties": {
            "i": {"type": "integer"}, "d": {"type": "number"}, "b": {"type": "boolean"}, "s": text, "nullable": {"type": "string", "nullable": true, "maxLength": 5},
            "list": {"type": "array", "maxItems": 5, "items": text},
            "numbers": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
            "map": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
            "o": {"type": "object", "properties": {"a": text, "b": {"type": "integer"}}},
            "items": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": text, "v": {"type": "integer"}}}},
            "any": {"x-kubernetes-int-or-string": true}, "time": {"type": "string", "format": "date-time"},
            "duration": {"type": "string", "format": "duration"}, "bytes": {"type": "string", "format": "byte", "maxLength": 20},
            "namespace": text, "with-dash": text, "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "unbounded": {"type": "array", "items": {"type": "string"}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.{{run}}.example.com"},
        "spec": {
            "group": "{{run}}.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

/// One definition with those of the rules that it can have, and what becomes of an object: which rules fail, and how.
pub fn verdicts(expressions: &[String]) -> Vec<Scenario> {
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let things = "/apis/{{run}}.example.com/v1/namespaces/{{ns}}/things";
    let quietly = |method: &str, path: &str, until: (&str, &str)| Step {
        until: Some((until.0.into(), until.1.into())),
        compared: false,
        ..Step::new(Request::new(method, path))
    };
    let scenario = |(index, rules): (usize, &[String])| {
        let rules: Value = rules.iter().map(|rule| json!({"rule": rule, "message": "does not hold"})).collect();
        let object = json!({
            "apiVersion": "{{run}}.example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
            "spec": {"i": 3, "d": 1.5, "b": true, "s": "text", "nullable": null, "list": ["a", "b"], "numbers": [3, 1, 2],
                "map": {"k": 1}, "o": {"a": "x"}, "items": [{"name": "n", "v": 1}], "any": "50%",
                "time": "2020-01-01T00:00:00Z", "duration": "1h", "bytes": "aGk=", "namespace": "n", "with-dash": "d"},
        });
        let gone = Step::new(Request::new("DELETE", format!("{all}/things.{{{{run}}}}.example.com")));
        let steps = vec![
            Step::new(Request::json("POST", all, &definition(&rules))),
            quietly(
                "GET",
                &format!("{all}/things.{{{{run}}}}.example.com"),
                ("/status/conditions/1/type", "Established"),
            ),
            quietly("GET", things, ("/kind", "ThingList")),
            Step::new(Request::json("POST", things, &object)),
            Step { compared: false, ..gone },
        ];
        Scenario { name: format!("verdicts of rules {index}"), steps, ..Scenario::default() }
    };
    expressions.chunks(TOGETHER).enumerate().map(scenario).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_from_lines() {
        let text = "## a heading\n1 + 1\\n== 2\n\n[{{repeat 3 1,}}]\n";
        assert_eq!(expressions(text), ["1 + 1\n== 2", "[1,1,1,]"]);
        assert_eq!(definitions(&expressions(text))[0].steps.len(), 2);
        assert_eq!(verdicts(&expressions(text)).len(), 1);
    }
}
