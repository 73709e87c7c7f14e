//! The text form of paths and templates.

use serde_json::Value;

use super::{Node, PathError, Piece};

/// How deep unions and filters may be nested in each other.
const MAX_NESTING: usize = 16;

fn error(message: impl Into<String>) -> PathError {
    PathError(message.into())
}

/// Splits a template into text and actions.
pub(super) fn template(text: &str) -> Result<Vec<Piece>, PathError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        if at > 0 {
            pieces.push(Piece::Text(rest[..at].to_owned()));
        }
        let mut parser = Parser { rest: &rest[at + 1..], nesting: 0 };
        pieces.push(Piece::Action(parser.action()?));
        rest = parser.rest;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

struct Parser<'a> {
    rest: &'a str,
    nesting: usize,
}

fn terminates(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Parses up to the closing brace.
    fn action(&mut self) -> Result<Vec<Node>, PathError> {
        let mut nodes = Vec::new();
        loop {
            if self.rest.starts_with("[?(") {
                self.take(3);
                nodes.push(self.filter()?);
                continue;
            }
            if self.rest.starts_with("..") {
                if nodes.last() == Some(&Node::Recursive) {
                    return Err(error("invalid multiple recursive descent"));
                }
                self.take(2);
                nodes.push(Node::Recursive);
                if self.peek().is_some_and(|c| c == '_' || c.is_alphanumeric()) {
                    nodes.push(self.field());
                }
                continue;
            }
            match self.peek() {
                None | Some('\r' | '\n') => return Err(error("unclosed action")),
                Some('}') => {
                    self.take(1);
                    return Ok(nodes);
                }
                // The current object and the root are where we are.
                Some(' ' | '@' | '$') => drop(self.take(1)),
                Some('[') => self.brackets(&mut nodes)?,
                Some(quote @ ('"' | '\'')) => nodes.push(Node::Text(self.quoted(quote)?)),
                Some('.') => {
                    self.take(1);
                    nodes.push(self.field());
                }
                Some(c) if matches!(c, '+' | '-') || c.is_ascii_digit() => nodes.push(self.number()?),
                Some(c) if c == '_' || c.is_alphanumeric() => {
                    let length = self.rest.find(terminates).unwrap_or(self.rest.len());
                    nodes.push(match self.take(length) {
                        "true" => Node::Bool(true),
                        "false" => Node::Bool(false),
                        name => Node::Identifier(name.to_owned()),
                    });
                }
                Some(c) => {
                    let code = u32::from(c);
                    return Err(error(format!("unrecognized character in action: U+{code:04X} '{c}'")));
                }
            }
        }
    }

    /// Parses text as the inside of an action of its own.
    fn nested(&self, text: &str) -> Result<Vec<Node>, PathError> {
        if self.nesting >= MAX_NESTING {
            return Err(error("the expression is nested too deep"));
        }
        let text = format!("{text}}}");
        Parser { rest: &text, nesting: self.nesting + 1 }.action()
    }

    fn field(&mut self) -> Node {
        let mut name = String::new();
        let mut length = 0;
        let mut escaped = false;
        for c in self.rest.chars() {
            if !escaped && terminates(c) {
                break;
            }
            length += c.len_utf8();
            escaped = !escaped && c == '\\';
            if c != '\\' {
                name.push(c);
            }
        }
        self.take(length);
        if name == "*" { Node::Wildcard } else { Node::Field(name) }
    }

    fn number(&mut self) -> Result<Node, PathError> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest[sign..].bytes().take_while(|byte| *byte == b'.' || byte.is_ascii_digit()).count();
        let text = self.take(sign + digits);
        let bad = || error(format!("cannot parse number {text}"));
        if let Ok(whole) = text.parse::<i64>() {
            return Ok(Node::Number(whole.into()));
        }
        let number: f64 = text.parse().map_err(|_| bad())?;
        serde_json::Number::from_f64(number).map(|number| Node::Number(Value::Number(number))).ok_or_else(bad)
    }

    /// A quoted text; the quote is next.
    fn quoted(&mut self, quote: char) -> Result<String, PathError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\n' => break,
                c if c == quote => {
                    self.take(at + 1);
                    return Ok(text);
                }
                '\\' => {
                    let after = chars.next().map(|(_, after)| after);
                    let mut code = |length: usize| {
                        let digits: String = chars.by_ref().take(length).map(|(_, digit)| digit).collect();
                        let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == length);
                        code.and_then(char::from_u32)
                    };
                    let character = match after {
                        Some('x') => code(2),
                        Some('u') => code(4),
                        Some('U') => code(8),
                        Some('n') => Some('\n'),
                        Some('t') => Some('\t'),
                        Some('r') => Some('\r'),
                        Some('a') => Some('\u{7}'),
                        Some('b') => Some('\u{8}'),
                        Some('f') => Some('\u{c}'),
                        Some('v') => Some('\u{b}'),
                        Some('\\') => Some('\\'),
                        Some(c) if c == quote => Some(quote),
                        _ => None,
                    };
                    text.push(character.ok_or_else(|| error("unquote string error: invalid syntax"))?);
                }
                c => text.push(c),
            }
        }
        Err(error("unterminated quoted string"))
    }

    fn brackets(&mut self, nodes: &mut Vec<Node>) -> Result<(), PathError> {
        let end = self.rest.find([']', '\n']).filter(|end| self.rest[*end..].starts_with(']'));
        let end = end.ok_or_else(|| error("unterminated array"))?;
        let text = &self.take(end + 1)[1..end];
        if text.contains(',') {
            let parts = text.split(',').map(|part| self.nested(&format!("[{}]", part.trim_matches(' '))));
            nodes.push(Node::Union(parts.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).filter(|key| !key.contains('\''));
        if let Some(key) = key {
            nodes.extend(self.nested(&format!(".{key}"))?);
            return Ok(());
        }
        nodes.push(slice(if text == "*" { ":" } else { text })?);
        Ok(())
    }

    /// A filter; what is next stands after `[?(`.
    fn filter(&mut self) -> Result<Node, PathError> {
        let mut quote: Option<char> = None;
        let mut closed = false;
        let mut before = ' ';
        let mut end = None;
        for (at, c) in self.rest.char_indices() {
            match c {
                '\n' => break,
                '"' | '\'' => match quote {
                    None => quote = Some(c),
                    Some(opening) if opening == c && before != '\\' => closed = true,
                    Some(_) => {}
                },
                ')' if quote.is_some() == closed => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            before = c;
        }
        let end = end.ok_or_else(|| error("unterminated filter"))?;
        let text = &self.take(end + 1)[..end];
        if !self.rest.starts_with(']') {
            return Err(error("unclosed array expect ]"));
        }
        self.take(1);
        let operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let split = text.find(operator).filter(|at| *at > 0).and_then(|at| {
            let (left, rest) = text.split_at(at);
            let length = rest.find(|c| !operator(c)).unwrap_or(rest.len());
            // At least one character is left for the right side, even if it has to be an operator's.
            let length =
                if length == rest.len() { length.checked_sub(1).filter(|length| *length > 0)? } else { length };
            Some((left, &rest[..length], &rest[length..]))
        });
        Ok(match split {
            Some((left, operator, right)) => {
                Node::Filter { left: self.nested(left)?, operator: operator.to_owned(), right: self.nested(right)? }
            }
            None => Node::Filter { left: self.nested(text)?, operator: "exists".to_owned(), right: Vec::new() },
        })
    }
}

/// `start:end:step`, all of them optional; a lone index is a slice of one.
fn slice(text: &str) -> Result<Node, PathError> {
    let invalid = || error(format!("invalid array index {text}"));
    let parts: Vec<&str> = text.split(':').collect();
    let shaped = |part: &&str| part.strip_prefix('-').unwrap_or(part).bytes().all(|digit| digit.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(shaped) {
        return Err(invalid());
    }
    let part = |at: usize| match parts.get(at) {
        None | Some(&"") => Ok(None),
        Some(part) => part.parse::<i64>().map(Some).map_err(|_| error(format!("array index {part} is not a number"))),
    };
    let (start, end, step) = (part(0)?, part(1)?, part(2)?);
    let derived = parts.len() == 1;
    let end = if derived { Some(start.unwrap_or(0).checked_add(1).ok_or_else(invalid)?) } else { end };
    Ok(Node::Slice { start, end, derived, step })
}
