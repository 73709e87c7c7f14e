//! Source text to tokens.

use std::ops::Range;
use std::sync::Arc;

use crate::ast::Literal;
use crate::literals;
use crate::syntax::KINDS;

/// A lexical token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Ident(Arc<str>),
    /// A field name between backquotes.
    Quoted(Arc<str>),
    Literal(Literal),
    /// An integer literal's magnitude that does not fit `i64` on its own (2^63, for `-2^63`).
    IntMin,
    /// A literal that means nothing, and why. `number`: a minus before it belongs to it.
    Bad {
        why: &'static str,
        number: bool,
    },
    /// Operators, brackets, and the word `in`.
    Op(&'static str),
    End,
}

/// A problem at an offset in code points.
pub(crate) type Problem = (u32, String);
/// The offset of what is nowhere in particular.
pub(crate) const NOWHERE: u32 = u32::MAX;

const WHITESPACE: usize = 29;
const COMMENT: usize = 30;
const FLOAT: usize = 31;
const INT: usize = 32;
const UINT: usize = 33;
const STRING: usize = 34;
const BYTES: usize = 35;
const IDENTIFIER: usize = 36;
const QUOTED: usize = 37;

/// A source taken apart.
pub(crate) struct Scanned {
    chars: Vec<char>,
    /// All tokens with their kinds, also blanks.
    all: Vec<(usize, Range<usize>)>,
    /// Which of them are not blank.
    solid: Vec<usize>,
    /// What is no token.
    pub problems: Vec<Problem>,
}

/// Splits a source into tokens.
pub(crate) fn scan(source: &str) -> Scanned {
    let chars: Vec<char> = source.chars().collect();
    let mut scanned = Scanned { all: Vec::new(), solid: Vec::new(), problems: Vec::new(), chars: Vec::new() };
    let mut start = 0;
    while start < chars.len() {
        match longest(&chars, start) {
            Ok((kind, end)) => {
                if kind != WHITESPACE && kind != COMMENT {
                    scanned.solid.push(scanned.all.len());
                }
                scanned.all.push((kind, start..end));
                start = end;
            }
            Err(stuck) => {
                // The character that does not fit goes with what stands before it.
                let end = (stuck + 1).min(chars.len());
                let text: String = chars[start..end].iter().collect();
                scanned.problems.push((start as u32, format!("token recognition error at: '{text}'")));
                start = end;
            }
        }
    }
    scanned.chars = chars;
    scanned
}

impl Scanned {
    /// The kind of the `nth` token that is not blank; 0 after the last.
    pub fn kind(&self, nth: usize) -> usize {
        self.solid.get(nth).map_or(0, |at| self.all[*at].0)
    }

    /// Where it begins.
    pub fn offset(&self, nth: usize) -> u32 {
        self.solid.get(nth).map_or(self.chars.len(), |at| self.all[*at].1.start) as u32
    }

    /// The text from one token to another, with the blanks between them and without what is no token.
    pub fn text(&self, first: usize, last: usize) -> String {
        let Some(first) = self.solid.get(first) else { return String::new() };
        let end = self.solid.get(last).map_or(self.all.len(), |last| last + 1);
        self.all[*first..end].iter().flat_map(|(_, range)| &self.chars[range.clone()]).collect()
    }

    /// The tokens that are not blank, with their offsets and what they mean.
    pub fn tokens(&self) -> Vec<(Token, u32)> {
        let token = |at: &usize| {
            let (kind, range) = &self.all[*at];
            (token(*kind, &self.chars[range.clone()]), range.start as u32)
        };
        self.solid.iter().map(token).chain([(Token::End, self.chars.len() as u32)]).collect()
    }
}

fn token(kind: usize, chars: &[char]) -> Token {
    let text = || chars.iter().collect::<String>();
    match kind {
        FLOAT | INT | UINT => literals::number(&text(), kind == FLOAT),
        STRING | BYTES => match literals::text(chars) {
            Ok(literal) => Token::Literal(literal),
            Err(why) => Token::Bad { why, number: false },
        },
        IDENTIFIER => Token::Ident(text().into()),
        QUOTED => Token::Quoted(chars[1..chars.len() - 1].iter().collect::<String>().into()),
        _ => match KINDS[kind].trim_matches('\'') {
            "true" => Token::Literal(Literal::Bool(true)),
            "false" => Token::Literal(Literal::Bool(false)),
            "null" => Token::Literal(Literal::Null),
            op => Token::Op(op),
        },
    }
}

/// The longest token that begins here: its kind and its end; else the character at which none can go on.
fn longest(chars: &[char], start: usize) -> Result<(usize, usize), usize> {
    let peek = |at: usize| chars.get(at).copied().unwrap_or('\0');
    let run = |mut at: usize, fits: &dyn Fn(char) -> bool| {
        while at < chars.len() && fits(chars[at]) {
            at += 1;
        }
        at
    };
    let first = chars[start];
    match first {
        ' ' | '\t' | '\n' | '\r' | '\u{c}' => {
            Ok((WHITESPACE, run(start, &|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}'))))
        }
        '/' if peek(start + 1) == '/' => Ok((COMMENT, run(start, &|c| c != '\n'))),
        '0'..='9' => Ok(number(chars, start)),
        '.' if peek(start + 1).is_ascii_digit() => {
            Ok((FLOAT, exponent(chars, run(start + 1, &|c| c.is_ascii_digit()))))
        }
        '"' | '\'' => string(chars, start, false).map(|end| (STRING, end)),
        '`' => {
            let end = run(start + 1, &|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
            if peek(end) == '`' && end > start + 1 { Ok((QUOTED, end + 1)) } else { Err(end) }
        }
        'a'..='z' | 'A'..='Z' | '_' => {
            let bytes = matches!(first, 'b' | 'B');
            let after = start + usize::from(bytes);
            let raw = matches!(peek(after), 'r' | 'R');
            let quote = after + usize::from(raw);
            if (bytes || raw)
                && matches!(peek(quote), '"' | '\'')
                && let Ok(end) = string(chars, quote, raw)
            {
                return Ok((if bytes { BYTES } else { STRING }, end));
            }
            let end = run(start, &|c| c.is_ascii_alphanumeric() || c == '_');
            let word: String = chars[start..end].iter().collect();
            let quoted = format!("'{word}'");
            Ok((KINDS.iter().position(|kind| *kind == quoted).unwrap_or(IDENTIFIER), end))
        }
        _ => {
            let kind = |length: usize| {
                let text: String = chars[start..].iter().take(length).collect();
                KINDS.iter().position(|kind| *kind == format!("'{text}'"))
            };
            match (kind(2), kind(1)) {
                (Some(kind), _) if start + 1 < chars.len() => Ok((kind, start + 2)),
                (_, Some(kind)) => Ok((kind, start + 1)),
                // Each of these is the first half of an operator.
                _ => Err(if matches!(first, '=' | '&' | '|') { start + 1 } else { start }),
            }
        }
    }
}

fn exponent(chars: &[char], at: usize) -> usize {
    let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    if !matches!(chars.get(at), Some('e' | 'E')) {
        return at;
    }
    let mut end = at + 1 + usize::from(matches!(chars.get(at + 1), Some('+' | '-')));
    if !digit(end) {
        return at;
    }
    while digit(end) {
        end += 1;
    }
    end
}

fn number(chars: &[char], start: usize) -> (usize, usize) {
    let run = |mut at: usize, fits: fn(&char) -> bool| {
        while chars.get(at).is_some_and(fits) {
            at += 1;
        }
        at
    };
    let hex = chars[start] == '0' && chars.get(start + 1) == Some(&'x');
    let mut end = if hex { run(start + 2, char::is_ascii_hexdigit) } else { run(start, char::is_ascii_digit) };
    if hex && end == start + 2 {
        end = start + 1;
    }
    if matches!(chars.get(end), Some('u' | 'U')) {
        return (UINT, end + 1);
    }
    if hex {
        return (INT, end);
    }
    let fraction = if chars.get(end) == Some(&'.') { run(end + 1, char::is_ascii_digit) } else { end };
    let whole = if fraction > end + 1 { fraction } else { end };
    let all = exponent(chars, whole);
    (if all > end { FLOAT } else { INT }, all)
}

/// The end of a string that begins with a quote here, or the character at which it can be none.
fn string(chars: &[char], start: usize, raw: bool) -> Result<usize, usize> {
    let quote = chars[start];
    let quotes = |at: usize| chars[at..].iter().take(3).take_while(|c| **c == quote).count();
    if quotes(start) == 3 {
        // Without an end, the first two are an empty string.
        return Ok(body(chars, start + 3, raw, |at| quotes(at) == 3, false).map_or(start + 2, |end| end + 3));
    }
    body(chars, start + 1, raw, |at| chars[at] == quote, true).map(|end| end + 1)
}

/// Where a string's text ends.
fn body(chars: &[char], mut at: usize, raw: bool, ends: impl Fn(usize) -> bool, line: bool) -> Result<usize, usize> {
    while at < chars.len() {
        if ends(at) {
            return Ok(at);
        }
        match chars[at] {
            '\n' | '\r' if line => return Err(at),
            '\\' if !raw => at = escape(chars, at + 1)?,
            _ => at += 1,
        }
    }
    Err(at)
}

/// The end of what stands after a backslash.
fn escape(chars: &[char], at: usize) -> Result<usize, usize> {
    let digits = |count: usize, radix: u32| {
        let wrong = (at + 1..at + 1 + count).find(|at| !chars.get(*at).is_some_and(|c| c.is_digit(radix)));
        wrong.map_or(Ok(at + 1 + count), Err)
    };
    match chars.get(at) {
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => Ok(at + 1),
        Some('x' | 'X') => digits(2, 16),
        Some('u') => digits(4, 16),
        Some('U') => digits(8, 16),
        Some('0'..='3') => digits(2, 8),
        _ => Err(at),
    }
}
