//! Regular expressions as Go reads them.
use std::sync::OnceLock;

use regex::Regex;

/// A pattern of a schema. It is compiled when first used: most schemas are read far more often than they refuse.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// A pattern that may turn out to be malformed.
    pub fn new(text: &str) -> Self {
        Pattern { text: text.into(), compiled: OnceLock::new() }
    }

    /// The pattern as it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches somewhere in the text; `None` if it is malformed.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        let compiled = self.compiled.get_or_init(|| compile(&self.text).ok());
        compiled.as_ref().map(|regex| regex.is_match(text))
    }
}

/// Compiles a pattern in Go's syntax, or says what is wrong with it.
pub(super) fn compile(text: &str) -> Result<Regex, String> {
    Regex::new(&translate(text)).map_err(|error| {
        let error = error.to_string();
        let last = error.lines().last().unwrap_or("malformed");
        format!("error parsing regexp: {}: `{text}`", last.strip_prefix("error: ").unwrap_or(last))
    })
}

/// Rewrites what Go and this crate's engine read differently: `\d`, `\w`, `\s` and `\b` mean ASCII in Go; inside brackets
/// `[`, `&&`, `--` and `~~` are plain characters; a brace that begins no repetition is a plain character.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let Some(escaped) = after.chars().next() else {
                    out.push('\\');
                    break;
                };
                rest = &after[escaped.len_utf8()..];
                match (escaped, in_class) {
                    ('d', _) => out.push_str("[0-9]"),
                    ('D', _) => out.push_str("[^0-9]"),
                    ('w', _) => out.push_str("[0-9A-Za-z_]"),
                    ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                    ('s', _) => out.push_str(r"[\t\n\x0c\r ]"),
                    ('S', _) => out.push_str(r"[^\t\n\x0c\r ]"),
                    ('b', false) => out.push_str(r"(?-u:\b)"),
                    ('B', false) => out.push_str(r"(?-u:\B)"),
                    ('Q', false) => {
                        let (literal, remaining) = rest.split_once("\\E").unwrap_or((rest, ""));
                        out.push_str(&regex::escape(literal));
                        rest = remaining;
                    }
                    ('p' | 'P' | 'x', _) if rest.starts_with('{') => {
                        let end = rest.find('}').map_or(rest.len(), |at| at + 1);
                        out.extend(['\\', escaped]);
                        out.push_str(&rest[..end]);
                        rest = &rest[end..];
                    }
                    _ => out.extend(['\\', escaped]),
                }
                continue;
            }
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                rest = after;
                // A bracket that closes right away is a plain character.
                for first in ["^]", "]", "^"] {
                    if let Some(remaining) = rest.strip_prefix(first) {
                        out.push_str(&first.replace(']', "\\]"));
                        rest = remaining;
                        break;
                    }
                }
                continue;
            }
            '[' if after.starts_with(':') && after.contains(":]") => {
                let end = after.find(":]").map_or(after.len(), |at| at + 2);
                out.push('[');
                out.push_str(&after[..end]);
                rest = &after[end..];
                continue;
            }
            '[' => out.push_str("\\["),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => out.extend(['\\', c]),
            '-' if in_class && after.starts_with('-') => out.push_str("\\-"),
            '{' if !in_class && !begins_repetition(after) => out.push_str("\\{"),
            '}' if !in_class && !ends_repetition(text, text.len() - rest.len()) => out.push_str("\\}"),
            _ => out.push(c),
        }
        rest = after;
    }
    out
}

fn begins_repetition(after: &str) -> bool {
    let Some((inside, _)) = after.split_once('}') else { return false };
    let (low, high) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

/// Whether the brace at this place closes a repetition.
fn ends_repetition(text: &str, at: usize) -> bool {
    text[..at].rfind('{').is_some_and(|open| begins_repetition(&text[open + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matches: &[&str], others: &[&str]) {
        let compiled = Pattern::new(pattern);
        for text in matches {
            assert_eq!(compiled.is_match(text), Some(true), "{pattern} {text}");
        }
        for text in others {
            assert_eq!(compiled.is_match(text), Some(false), "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        check(r"^\d+$", &["12"], &["", "\u{661}"]);
        check(r"^[\w-]+$", &["a-b_1"], &["é", "a b"]);
        check(r"^[^\s]+$", &["é"], &[" ", "a b"]);
        check(r"^[[]$", &["["], &["a"]);
        check(r"^[]a]+$", &["]a"], &["b"]);
        check(r"^[^]]+$", &["ab"], &["]"]);
        check(r"^[a&&b]+$", &["a&b"], &["c"]);
        check(r"^${a}$", &[], &["a"]);
        check(r"^\${[a-z]+}$", &["${abc}"], &["abc"]);
        check(r"^a{2,3}$", &["aa", "aaa"], &["a"]);
        check(r"^\p{Lu}$", &["É"], &["e"]);
        check(r"^[[:alpha:]]+$", &["abc"], &["1"]);
        check(r"^\Qa.b\E$", &["a.b"], &["axb"]);
        check(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", &["a.b-c"], &["-a"]);
        check(
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            &["10Gi"],
            &["x"],
        );
        assert!(compile("(").is_err());
    }
}
