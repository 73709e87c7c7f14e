//! Kubernetes' JSONPath: `.status.conditions[?(@.type=="Ready")].status`, alone (printer columns) or in a template
//! (`{range .items[*]}{.metadata.name}{"\n"}{end}`).
//!
//! It is the dialect of Kubernetes' clients, with its oddities: `['a.b']` is two fields (write `['a\.b']`), `[]` is `[0]`,
//! comparing values of different types is an error. Text and work are bounded.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

mod eval;
mod parse;

/// The longest text that is parsed.
const MAX_TEXT: usize = 16 * 1024;
/// More values than this at any point of an evaluation are too many.
const MAX_VALUES: usize = 100_000;

/// Why a text is no JSONPath, or why a path makes no sense on a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathError(String);

/// A step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Text(String),
    Field(String),
    /// Start, end, step; the end is derived where one index was given.
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        derived: bool,
        step: Option<i64>,
    },
    Filter {
        left: Vec<Node>,
        operator: String,
        right: Vec<Node>,
    },
    Number(Value),
    Bool(bool),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Node>>),
    /// `range`, `end`, or a mistake.
    Identifier(String),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Action(Vec<Node>),
}

/// One path.
///
/// ```
/// use conductor_machinery::jsonpath::JsonPath;
/// let path = JsonPath::parse(".conditions[?(@.type=='Ready')].status").unwrap();
/// let object = serde_json::json!({"conditions": [{"type": "Ready", "status": "True"}]});
/// assert_eq!(path.first(&object).as_deref(), Some(&"True".into()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Node>);

impl JsonPath {
    /// Parses a path without braces, as a printer column has it.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let template = Template::parse(&format!("{{{text}}}"))?;
        match <[Piece; 1]>::try_from(template.0) {
            Ok([Piece::Action(nodes)]) => Ok(JsonPath(nodes)),
            _ => Err(PathError("a path is one expression".to_owned())),
        }
    }

    /// All values it leads to; fields that are not there lead to none.
    pub fn find<'a>(&self, value: &'a Value) -> Result<Vec<Cow<'a, Value>>, PathError> {
        eval::list(vec![Cow::Borrowed(value)], &self.0, true)
    }

    /// The first value it leads to, which is what a printer column shows. Errors lead nowhere.
    pub fn first<'a>(&self, value: &'a Value) -> Option<Cow<'a, Value>> {
        self.find(value).ok()?.into_iter().next()
    }
}

/// A text with paths in braces.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.len() > MAX_TEXT {
            return Err(PathError(format!("a JSONPath has at most {MAX_TEXT} bytes")));
        }
        parse::template(text).map(Template)
    }

    /// Writes the template for a value. Unless `allow_missing`, a field that is nowhere is an error.
    pub fn render(&self, value: &Value, allow_missing: bool) -> Result<String, PathError> {
        let mut output = String::new();
        let mut budget = MAX_VALUES;
        render(&self.0, Cow::Borrowed(value), allow_missing, false, &mut budget, &mut output)?;
        Ok(output)
    }
}

fn is_keyword(piece: &Piece, keyword: &str) -> bool {
    matches!(piece, Piece::Action(nodes) if nodes.iter().any(|node| matches!(node, Node::Identifier(name) if name == keyword)))
}

/// The position of the `end` that closes a range whose body begins the pieces.
fn matching_end(pieces: &[Piece]) -> usize {
    let mut open = 0;
    for (at, piece) in pieces.iter().enumerate() {
        if is_keyword(piece, "range") {
            open += 1;
        } else if is_keyword(piece, "end") {
            if open == 0 {
                return at;
            }
            open -= 1;
        }
    }
    pieces.len()
}

fn render(
    pieces: &[Piece],
    value: Cow<'_, Value>,
    allow_missing: bool,
    in_range: bool,
    budget: &mut usize,
    output: &mut String,
) -> Result<(), PathError> {
    let mut at = 0;
    while let Some(piece) = pieces.get(at) {
        at += 1;
        *budget = budget.checked_sub(1).ok_or_else(|| PathError("the template yields too many values".to_owned()))?;
        let nodes = match piece {
            Piece::Text(text) => {
                output.push_str(text);
                continue;
            }
            Piece::Action(nodes) => nodes,
        };
        if is_keyword(piece, "end") && !in_range {
            return Err(PathError("not in range, nothing to end".to_owned()));
        }
        let results = eval::list(vec![value.clone()], nodes, allow_missing)?;
        if is_keyword(piece, "range") {
            let rest = &pieces[at..];
            let end = matching_end(rest);
            for item in results {
                render(&rest[..end], item, allow_missing, true, budget, output)?;
            }
            at += end + 1;
            continue;
        }
        for (index, result) in results.iter().enumerate() {
            if index > 0 {
                output.push(' ');
            }
            print(result, output);
        }
    }
    Ok(())
}

/// A value as text: strings bare, objects and lists as JSON.
pub fn print(value: &Value, output: &mut String) {
    match value {
        Value::String(text) => output.push_str(text),
        Value::Number(number) if number.is_f64() => output.push_str(&go_float(number.as_f64().unwrap_or_default())),
        // Writing to a string cannot fail.
        other => drop(write!(output, "{other}")),
    }
}

/// A float as Go writes it: with an exponent only where it is very large or very small.
fn go_float(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e21).contains(&value.abs()) {
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) => {
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
                format!("{digits}e{sign}{exponent:0>2}")
            }
            None => text,
        };
    }
    format!("{value}")
}

#[cfg(test)]
mod tests;
