//! The text form of label selectors.

use std::collections::BTreeSet;

use super::{Operator, ParseError, Requirement, join};
use crate::field::{Error, Path};
use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Identifier(&'a str),
    In,
    NotIn,
    Not,
    Open,
    Close,
    Comma,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Identifier(text) => text,
            Token::In => "in",
            Token::NotIn => "notin",
            Token::Not => "!",
            Token::Open => "(",
            Token::Close => ")",
            Token::Comma => ",",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::End => "",
        }
    }

    /// Where a key or value is expected, `in` and `notin` are ordinary words.
    fn as_word(self) -> Token<'a> {
        match self {
            Token::In | Token::NotIn => Token::Identifier(self.text()),
            other => other,
        }
    }
}

fn special(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Hands out tokens with one token of lookahead.
struct Parser<'a> {
    rest: &'a str,
    next: Token<'a>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut parser = Parser { rest: text, next: Token::End };
        parser.next = parser.lex();
        parser
    }

    fn lex(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii() && blank(c as u8));
        let bytes = self.rest.as_bytes();
        let (token, length) = match bytes {
            [] | [0, ..] => (Token::End, 0),
            [b'=', b'=', ..] => (Token::DoubleEquals, 2),
            [b'!', b'=', ..] => (Token::NotEquals, 2),
            [b'=', ..] => (Token::Equals, 1),
            [b'!', ..] => (Token::Not, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b',', ..] => (Token::Comma, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'<', ..] => (Token::Less, 1),
            _ => {
                let ends = |byte: &u8| special(*byte) || blank(*byte) || *byte == 0;
                let length = bytes.iter().position(ends).unwrap_or(bytes.len());
                match &self.rest[..length] {
                    "in" => (Token::In, length),
                    "notin" => (Token::NotIn, length),
                    word => (Token::Identifier(word), length),
                }
            }
        };
        self.rest = &self.rest[length..];
        token
    }

    fn peek(&self) -> Token<'a> {
        self.next.as_word()
    }

    fn take_operator(&mut self) -> Token<'a> {
        let next = self.lex();
        std::mem::replace(&mut self.next, next)
    }

    fn take(&mut self) -> Token<'a> {
        self.take_operator().as_word()
    }
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, ParseError> {
    let mut parser = Parser::new(text);
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Identifier(_) | Token::Not => {
                let requirement = parse_requirement(&mut parser)
                    .map_err(|message| ParseError(format!("unable to parse requirement: {message}")))?;
                requirements.push(requirement);
                match parser.take() {
                    Token::End => return Ok(requirements),
                    Token::Comma => {
                        let next = parser.peek();
                        if !matches!(next, Token::Identifier(_) | Token::Not) {
                            return Err(ParseError(format!("found '{}', expected: identifier after ','", next.text())));
                        }
                    }
                    other => {
                        let found = other.text();
                        return Err(ParseError(format!("found '{found}', expected: ',' or 'end of string'")));
                    }
                }
            }
            Token::End => return Ok(requirements),
            other => {
                let found = other.text();
                return Err(ParseError(format!("found '{found}', expected: !, identifier, or 'end of string'")));
            }
        }
    }
}

fn parse_requirement(parser: &mut Parser<'_>) -> Result<Requirement, String> {
    let mut first = parser.take();
    let negated = first == Token::Not;
    if negated {
        first = parser.take();
    }
    let Token::Identifier(key) = first else {
        return Err(format!("found '{}', expected: identifier", first.text()));
    };
    let messages = names::qualified_name(key);
    if !messages.is_empty() {
        return Err(Error::invalid(&Path::empty(), key, messages.join("; ")).to_string());
    }
    let (operator, values) = if negated {
        (Operator::DoesNotExist, BTreeSet::new())
    } else if matches!(parser.peek(), Token::End | Token::Comma) {
        (Operator::Exists, BTreeSet::new())
    } else {
        let operator = match parser.take_operator() {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            other => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text())),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => parse_set(parser)?,
            _ => BTreeSet::from([parse_value(parser)?]),
        };
        (operator, values)
    };
    let values = values.into_iter().map(str::to_owned).collect();
    Requirement::new(key, operator, values, &Path::empty()).map_err(|errors| join(&errors))
}

fn parse_value<'a>(parser: &mut Parser<'a>) -> Result<&'a str, String> {
    if matches!(parser.peek(), Token::End | Token::Comma) {
        return Ok("");
    }
    match parser.take() {
        Token::Identifier(value) => Ok(value),
        other => Err(format!("found '{}', expected: identifier", other.text())),
    }
}

/// `(a,b)`; between commas and at the ends an empty value may be left out, and `()` is the set of the empty value.
fn parse_set<'a>(parser: &mut Parser<'a>) -> Result<BTreeSet<&'a str>, String> {
    let open = parser.take();
    if open != Token::Open {
        return Err(format!("found '{}' expected: '('", open.text()));
    }
    let mut values = BTreeSet::new();
    match parser.peek() {
        Token::Identifier(_) | Token::Comma => {}
        Token::Close => {
            parser.take();
            return Ok(BTreeSet::from([""]));
        }
        other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
    }
    loop {
        match parser.take() {
            Token::Identifier(value) => {
                values.insert(value);
                match parser.peek() {
                    Token::Comma => {}
                    Token::Close => break,
                    other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                }
            }
            Token::Comma => {
                if values.is_empty() {
                    values.insert("");
                }
                match parser.peek() {
                    Token::Close => {
                        values.insert("");
                        break;
                    }
                    Token::Comma => {
                        values.insert("");
                    }
                    _ => {}
                }
            }
            other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
        }
    }
    parser.take();
    Ok(values)
}
