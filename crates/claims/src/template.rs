//! Templates: objects with `${…}` in their strings.
//!
//! An expression yields a typed JSON value put at its place, never text parsed again. A string that is one expression becomes what
//! the expression yields; in a longer string the value is written as text.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::errors::{FieldError, Path};

/// How deep a template may nest.
const MAX_DEPTH: usize = 64;

/// Evaluates an expression over named values; implemented where CEL is at hand.
pub trait Expressions {
    /// The value, or why there is none.
    fn evaluate(&self, expression: &str, scope: &BTreeMap<&str, &Value>) -> Result<Value, String>;
}

/// A part of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// As it stands.
    Literal(String),
    /// Between `${` and `}`.
    Expression(String),
}

/// Takes a string apart. `$${` stands for a literal `${`; braces and quotes within an expression are respected.
pub fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            literal.push_str(&rest[..at - 1]);
            literal.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        literal.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let end = closing(inner).ok_or_else(|| "an expression is not closed: add }".to_owned())?;
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        let expression = inner[..end].trim();
        if expression.is_empty() {
            return Err("an expression is empty".into());
        }
        parts.push(Part::Expression(expression.to_owned()));
        rest = &inner[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() || parts.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

/// Where the expression that begins here ends.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') if depth == 0 => return Some(at),
            (None, '}') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// An expression of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The path of its string.
    pub field: String,
    /// The expression.
    pub expression: String,
    /// Whether the string is nothing else.
    pub alone: bool,
}

/// The expression that a text is as a whole.
pub fn whole(value: &Value) -> Option<String> {
    match parts(value.as_str()?).ok()?.as_mut_slice() {
        [Part::Expression(expression)] => Some(std::mem::take(expression)),
        _ => None,
    }
}

/// Every expression in a template.
pub fn expressions(template: &Value) -> Result<Vec<Placed>, FieldError> {
    let mut all = Vec::new();
    collect(template, &Path::root(), 0, &mut all)?;
    Ok(all)
}

fn collect(value: &Value, path: &Path, depth: usize, all: &mut Vec<Placed>) -> Result<(), FieldError> {
    if depth > MAX_DEPTH {
        return Err(path.error("nests too deeply"));
    }
    match value {
        Value::String(text) => {
            let parts = parts(text).map_err(|e| path.error(e))?;
            let alone = parts.len() == 1;
            for part in parts {
                if let Part::Expression(expression) = part {
                    all.push(Placed { field: path.to_string(), expression, alone });
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                collect(item, &path.index(i), depth + 1, all)?;
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                if key.contains("${") {
                    return Err(path.field(key).error("a key takes no expression"));
                }
                collect(value, &path.field(key), depth + 1, all)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// What is wrong with a template before any claim is there: its form, and expressions over the claim where none may be.
pub fn check(template: &Value) -> Vec<FieldError> {
    let root = Path::root();
    let mut errors = Vec::new();
    for key in ["apiVersion", "kind"] {
        if template[key].as_str().is_none_or(str::is_empty) {
            errors.push(root.field(key).error("is required"));
        }
    }
    match expressions(template) {
        Err(error) => errors.push(error),
        Ok(all) => {
            for Placed { field: path, expression, .. } in all {
                let fixed = ["apiVersion", "kind", "metadata.namespace"].contains(&path.as_str());
                let (claim, class) = (mentions(&expression, "claim"), mentions(&expression, "class"));
                if fixed && claim {
                    errors.push(FieldError { field: path, message: "takes no expression over the claim".into() });
                } else if mentions(&expression, "resource") && (claim || class) {
                    let message =
                        "names the resource, which is made after claim and class are read: write two expressions";
                    errors.push(FieldError { field: path, message: message.into() });
                }
            }
        }
    }
    errors
}

/// Whether an expression uses a variable; of one that cannot be compiled, whether it occurs in it.
pub fn mentions(expression: &str, variable: &str) -> bool {
    if !expression.contains(variable) {
        return false;
    }
    if let Ok(program) = crate::expressions::compile(expression) {
        return program.uses(variable);
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    expression.match_indices(variable).any(|(at, _)| {
        let before = expression[..at].chars().next_back();
        let after = expression[at + variable.len()..].chars().next();
        !before.is_some_and(|c| word(c) || c == '.') && !after.is_some_and(word)
    })
}

/// The template with every expression over the scope evaluated. Expressions over a variable in `later` stay as they are, and all
/// else is written such that it is not taken for one when the rest is filled in: what an expression yields is never read again.
pub fn render(
    template: &Value,
    scope: &BTreeMap<&str, &Value>,
    later: &[&str],
    with: &dyn Expressions,
) -> Result<Value, FieldError> {
    fill(template, &Path::root(), 0, scope, later, with)
}

fn fill(
    value: &Value,
    path: &Path,
    depth: usize,
    scope: &BTreeMap<&str, &Value>,
    later: &[&str],
    with: &dyn Expressions,
) -> Result<Value, FieldError> {
    if depth > MAX_DEPTH {
        return Err(path.error("nests too deeply"));
    }
    Ok(match value {
        Value::String(text) if text.contains("${") => {
            let parts = parts(text).map_err(|e| path.error(e))?;
            let postponed = |e: &str| later.iter().any(|v| mentions(e, v));
            if let [Part::Expression(expression)] = parts.as_slice() {
                if postponed(expression) {
                    return Ok(value.clone());
                }
                let made = with.evaluate(expression, scope).map_err(|e| path.error(e))?;
                return Ok(if later.is_empty() { made } else { escaped(made) });
            }
            let mut whole = String::new();
            for part in parts {
                let made = match part {
                    Part::Literal(literal) => literal,
                    Part::Expression(expression) if postponed(&expression) => {
                        postpone(&mut whole, &expression);
                        continue;
                    }
                    Part::Expression(expression) => {
                        match with.evaluate(&expression, scope).map_err(|e| path.error(e))? {
                            Value::String(text) => text,
                            value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
                            _ => {
                                return Err(path.error(format!(
                                    "{expression} is no text, number or boolean, which a longer string needs"
                                )));
                            }
                        }
                    }
                };
                whole.push_str(&if later.is_empty() { made } else { made.replace("${", "$${") });
            }
            Value::String(whole)
        }
        Value::Array(items) => {
            let filled =
                items.iter().enumerate().map(|(i, item)| fill(item, &path.index(i), depth + 1, scope, later, with));
            Value::Array(filled.collect::<Result<_, _>>()?)
        }
        Value::Object(map) => {
            let mut filled = Map::new();
            for (key, value) in map {
                filled.insert(key.clone(), fill(value, &path.field(key), depth + 1, scope, later, with)?);
            }
            Value::Object(filled)
        }
        other => other.clone(),
    })
}

/// A value in which no text is an expression.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("${", "$${")),
        Value::Array(items) => Value::Array(items.into_iter().map(escaped).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, escaped(value))).collect()),
        other => other,
    }
}

/// Puts an expression behind a text. Signs that would make it a literal become an expression of their own.
fn postpone(text: &mut String, expression: &str) {
    let signs = text.len() - text.trim_end_matches('$').len();
    if signs > 0 {
        text.truncate(text.len() - signs);
        *text += &format!("${{'{}'}}", "$".repeat(signs));
    }
    *text += &format!("${{{expression}}}");
}

/// Only paths such as `claim.spec.engine`; what there is without CEL.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paths;

impl Expressions for Paths {
    fn evaluate(&self, expression: &str, scope: &BTreeMap<&str, &Value>) -> Result<Value, String> {
        let mut steps = expression.split('.');
        let root = steps.next().unwrap_or_default().trim();
        let mut at = *scope.get(root).ok_or_else(|| format!("there is no {root:?} here"))?;
        for step in steps {
            at = at.get(step.trim()).ok_or_else(|| format!("{expression} has no field {step:?}"))?;
        }
        Ok(at.clone())
    }
}

/// Fields that two renderings of a template differ in, as the later one has them.
pub(crate) fn difference(before: &Value, now: &Value) -> Value {
    let (Some(before), Some(now)) = (before.as_object(), now.as_object()) else { return now.clone() };
    let changed = now.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let part =
        |(key, value): (&String, &Value)| (key.clone(), difference(before.get(key).unwrap_or(&Value::Null), value));
    Value::Object(changed.map(part).collect::<Map<String, Value>>())
}

/// Takes a merge patch in.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    match (target.as_object_mut(), patch.as_object()) {
        (Some(target), Some(patch)) => {
            for (key, value) in patch {
                match value {
                    Value::Null => drop(target.remove(key)),
                    value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
                }
            }
        }
        _ => *target = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_come_apart() {
        let check = |text: &str, expected: &str| {
            let shown = parts(text).map(|p| {
                p.into_iter()
                    .map(|p| match p {
                        Part::Literal(l) => format!("[{l}]"),
                        Part::Expression(e) => format!("({e})"),
                    })
                    .collect::<String>()
            });
            assert_eq!(shown.unwrap_or_else(|e| format!("error {e}").split_at(5).0.to_owned()), expected, "{text}");
        };
        check("", "[]");
        check("plain $ text", "[plain $ text]");
        check("${a.b}", "(a.b)");
        check("x-${a}-${ b }", "[x-](a)[-](b)");
        check("$${a}", "[${a}]");
        check("${ {'k': '}'}['k'] }", "({'k': '}'}['k'])");
        check("${'\\'}'}", "('\\'}')");
        check("${a", "error");
        check("${}", "error");
    }

    #[test]
    fn values_keep_their_type() {
        let claim = json!({"spec": {"size": 3, "ha": true, "engine": "mysql", "tags": ["a"]}});
        let scope = BTreeMap::from([("claim", &claim)]);
        let check = |template: Value, expected: Result<Value, &str>| {
            let filled = render(&template, &scope, &["resource"], &Paths);
            assert_eq!(filled.as_ref().map_err(|e| e.field.as_str()), expected.as_ref().map_err(|e| *e), "{template}");
        };
        check(json!({"n": "${claim.spec.size}"}), Ok(json!({"n": 3})));
        check(json!(["${claim.spec.ha}", "${claim.spec.tags}"]), Ok(json!([true, ["a"]])));
        check(json!("${claim.spec.engine}-${claim.spec.size}"), Ok(json!("mysql-3")));
        check(json!({"a": ["x${claim.spec.tags}"]}), Err("a[0]"));
        check(json!({"a": "${claim.spec.none}"}), Err("a"));
        check(json!("${resource.metadata.name}"), Ok(json!("${resource.metadata.name}")));
        // what an expression yields is never read again
        let sly = json!({"spec": {"x": "${claim.spec.y}", "y": "secret"}});
        let scope = BTreeMap::from([("claim", &sly)]);
        assert_eq!(render(&json!("${claim.spec.x}"), &scope, &[], &Paths), Ok(json!("${claim.spec.y}")));
    }

    /// A class's template is filled in twice: over the claim, then over the resource.
    #[test]
    fn what_is_filled_in_is_not_read_when_the_rest_is() {
        struct Both;
        impl Expressions for Both {
            fn evaluate(&self, expression: &str, scope: &BTreeMap<&str, &Value>) -> Result<Value, String> {
                match expression.strip_prefix('\'') {
                    Some(text) => Ok(json!(text.trim_end_matches('\''))),
                    None => Paths.evaluate(expression, scope),
                }
            }
        }
        let claim = json!({"a": "${resource.secret}", "b": "x$", "c": ["$${", {"k": "${"}], "d": "$$"});
        let resource = json!({"name": "r", "secret": "s", "sly": "${resource.secret}"});
        let check = |template: Value, expected: Value| {
            let first =
                render(&template, &BTreeMap::from([("claim", &claim)]), &["resource"], &Both).expect("filled in");
            let second = render(&first, &BTreeMap::from([("resource", &resource)]), &[], &Both);
            assert_eq!(second, Ok(expected), "{template} {first}");
        };
        check(json!("${claim.a}"), json!("${resource.secret}"));
        check(json!("<${claim.a}>"), json!("<${resource.secret}>"));
        check(json!("${claim.a}-${resource.name}"), json!("${resource.secret}-r"));
        check(json!("${claim.b}${resource.name}"), json!("x$r"));
        check(json!("${claim.d}${resource.name}${claim.b}"), json!("$$rx$"));
        check(json!({"k": "${claim.c}"}), json!({"k": ["$${", {"k": "${"}]}));
        check(json!("$${resource.secret}"), json!("${resource.secret}"));
        check(json!("${resource.sly}"), json!("${resource.secret}"));
        check(json!("plain $ text"), json!("plain $ text"));
    }

    #[test]
    fn identity_takes_no_expression_over_the_claim() {
        let check_fields = |template: Value, fields: &[&str]| {
            let found: Vec<String> = check(&template).into_iter().map(|e| e.field).collect();
            assert_eq!(found, fields, "{template}");
        };
        check_fields(json!({"apiVersion": "v1", "kind": "A", "spec": {"x": "${claim.metadata.name}"}}), &[]);
        check_fields(json!({"apiVersion": "v1", "kind": "${claim.spec.kind}"}), &["kind"]);
        check_fields(
            json!({"apiVersion": "v1", "kind": "A", "metadata": {"namespace": "${claim.metadata.namespace}"}}),
            &["metadata.namespace"],
        );
        check_fields(json!({"apiVersion": "v1", "kind": "A", "metadata": {"namespace": "${class.x}"}}), &[]);
        check_fields(json!({"spec": {}}), &["apiVersion", "kind"]);
        let template = |x: &str| json!({"apiVersion": "v1", "kind": "A", "spec": {"x": x}});
        check_fields(template("${resource.metadata.name + claim.metadata.name}"), &["spec.x"]);
        check_fields(template("${resource.metadata.name}${claim.metadata.name}"), &[]);
        check_fields(template("${'resource of ' + claim.metadata.name}"), &[]);
        check_fields(json!({"apiVersion": "v1", "kind": "A", "${x}": 1}), &["${x}"]);
    }
}
