//! Regular expressions: RE2's syntax on the `regex` crate, linear time, bounded in size.

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use super::{Context, Cost, Decl, Outcome};
use crate::budget::Budget;
use crate::error::EvalError;
use crate::value::Value;

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "find",
        overloads: &[("string_find_string", "string.(string) -> string")],
        cost: Cost::Regex { found: true },
        code: find,
    },
    Decl {
        name: "findAll",
        overloads: &[
            ("string_find_all_string", "string.(string) -> list<string>"),
            ("string_find_all_string_int", "string.(string, int) -> list<string>"),
        ],
        cost: Cost::Regex { found: true },
        code: find_all,
    },
];

/// Largest compiled program, in bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// Largest cache of the lazily built automaton, per regex.
const DFA_LIMIT: usize = 1 << 20;
/// What compiling costs in work units at evaluation: compiling is far slower than matching.
const COMPILE_WORK: u64 = 50_000;
/// Largest count in `{n,m}`, as in RE2.
const MAX_REPEAT: u32 = 1000;

/// Regexes compiled during one evaluation.
#[derive(Default)]
pub(crate) struct Cache {
    compiled: HashMap<String, Regex>,
}

impl Cache {
    fn get<'r>(
        &'r mut self,
        constant: Option<&'r Regex>,
        pattern: &str,
        budget: &mut Budget,
    ) -> Result<&'r Regex, EvalError> {
        if let Some(regex) = constant {
            return Ok(regex);
        }
        if !self.compiled.contains_key(pattern) {
            budget.work(COMPILE_WORK)?;
            budget.alloc(1 << 16)?;
            self.compiled.insert(pattern.to_owned(), compile(pattern).map_err(EvalError::failed)?);
        }
        self.compiled.get(pattern).ok_or(EvalError::failed("regex cache lost an entry"))
    }
}

/// Compiles a pattern in RE2's syntax.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated).size_limit(SIZE_LIMIT).dfa_size_limit(DFA_LIMIT).nest_limit(100).build().map_err(
        |e| match e {
            regex::Error::CompiledTooBig(_) => format!("error parsing regexp: expression too large: `{pattern}`"),
            other => format!("error parsing regexp: {}", last_line(&other.to_string())),
        },
    )
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned()
}

/// RE2's classes are ASCII where those of `regex` are Unicode, and its sets know no operators.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    // Whether the last thing read repeats what is before it, so that nothing may repeat it again.
    let mut repeats = false;
    while let Some(c) = chars.next() {
        if !in_class && matches!(c, '*' | '+') && repeats {
            return Err(format!("error parsing regexp: invalid nested repetition operator: `{c}`"));
        }
        repeats = !in_class && (matches!(c, '*' | '+') || (c == '?' && !out.ends_with('(')));
        match c {
            '\\' => match chars.next() {
                None => {
                    return Err(format!("error parsing regexp: trailing backslash at end of expression: `{pattern}`"));
                }
                Some('Q') if !in_class => {
                    let mut literal = String::new();
                    while let Some(c) = chars.next() {
                        if c == '\\' && chars.peek() == Some(&'E') {
                            chars.next();
                            break;
                        }
                        literal.push(c);
                    }
                    out.push_str(&regex::escape(&literal));
                }
                Some(escaped) => match (escaped, in_class) {
                    ('d', true) => out.push_str("0-9"),
                    ('w', true) => out.push_str("0-9A-Za-z_"),
                    ('s', true) => out.push_str("\\t\\n\\x0c\\r "),
                    ('d', false) => out.push_str("[0-9]"),
                    ('w', false) => out.push_str("[0-9A-Za-z_]"),
                    ('s', false) => out.push_str("[\\t\\n\\x0c\\r ]"),
                    ('D', _) => out.push_str("[^0-9]"),
                    ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                    ('S', _) => out.push_str("[^\\t\\n\\x0c\\r ]"),
                    ('b', false) => out.push_str("(?-u:\\b)"),
                    ('Z' | 'G' | 'u' | 'U', _) | ('<' | '>', false) => {
                        return Err(format!("error parsing regexp: invalid escape sequence: `\\{escaped}`"));
                    }
                    (c, _) => {
                        out.push('\\');
                        out.push(c);
                    }
                },
            },
            '[' if in_class && chars.peek() == Some(&':') => out.push('['),
            '[' if in_class => out.push_str("\\["),
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '[' => {
                in_class = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
                // A bracket that comes first stands for itself.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            ']' if in_class => {
                out.push(']');
                in_class = out.ends_with(":]") && open_named_class(&out);
            }
            '{' if !in_class => {
                let rest: String = chars.clone().take_while(|c| *c != '}').take(32).collect();
                let counted =
                    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit() || c == ',') && !rest.starts_with(',');
                if counted && chars.clone().nth(rest.chars().count()) == Some('}') {
                    if rest.split(',').any(|n| !n.is_empty() && n.parse::<u32>().map_or(true, |n| n > MAX_REPEAT)) {
                        return Err(format!("error parsing regexp: invalid repeat count: `{{{rest}}}`"));
                    }
                    out.push('{');
                } else {
                    out.push_str("\\{");
                }
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Whether the bracket that just closed belongs to `[:name:]` rather than to the class.
fn open_named_class(out: &str) -> bool {
    let body = &out[..out.len() - 2];
    body.rfind("[:").is_some_and(|at| body[at + 2..].chars().all(|c| c.is_ascii_alphabetic() || c == '^'))
}

fn strings<'v>(args: &'v [Value<'_>], name: &'static str) -> Result<(&'v str, &'v str), EvalError> {
    match args {
        [Value::String(text), Value::String(pattern), ..] => Ok((text, pattern)),
        _ => Err(EvalError::overload(name)),
    }
}

pub(crate) fn matches<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern) = strings(args, "matches")?;
    ctx.budget.work(text.len() as u64 / 8)?;
    Ok(Value::Bool(ctx.regexes.get(ctx.constant, pattern, ctx.budget)?.is_match(text)))
}

fn find<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern) = strings(args, "find")?;
    ctx.budget.work(text.len() as u64 / 8)?;
    let found = ctx.regexes.get(ctx.constant, pattern, ctx.budget)?.find(text).map_or("", |m| m.as_str());
    ctx.budget.alloc(found.len() as u64)?;
    Ok(Value::string(found))
}

fn find_all<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, pattern) = strings(args, "findAll")?;
    let limit = match args {
        [_, _, Value::Int(n)] => usize::try_from(*n).unwrap_or(usize::MAX),
        [_, _] => usize::MAX,
        _ => return Err(EvalError::overload("findAll")),
    };
    ctx.budget.work(text.len() as u64 / 4)?;
    let regex = ctx.regexes.get(ctx.constant, pattern, ctx.budget)?;
    let mut out = Vec::new();
    for found in regex.find_iter(text).take(limit) {
        ctx.budget.alloc(found.len() as u64 + 64)?;
        out.push(Value::string(found.as_str()));
    }
    Ok(Value::list(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_re2_syntax() {
        for (pattern, text, expected) in [
            (r"^\d+$", "123", true),
            (r"^\d+$", "١٢٣", false),
            (r"^[\w.]+$", "a.b", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^[^]]+$", "abc", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"a{,2}", "a{,2}", true),
            (r"^[\D]$", "x", true),
            (r"\bfoo\b", "a foo b", true),
        ] {
            assert_eq!(compile(pattern).map(|r| r.is_match(text)), Ok(expected), "{pattern}");
        }
        for pattern in ["a{1001}", "(", r"\", "(((((a{1000}){1000}){1000}){1000})"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
