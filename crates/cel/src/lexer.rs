//! Source text to tokens.

use std::sync::Arc;

use crate::ast::Literal;

/// A lexical token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Ident(Arc<str>),
    /// A field name between backquotes.
    Quoted(Arc<str>),
    Literal(Literal),
    /// An integer literal's magnitude that does not fit `i64` on its own (2^63, for `-2^63`).
    IntMin,
    /// Operators, brackets, and the word `in`.
    Op(&'static str),
    End,
}

/// A problem at an offset in code points.
pub(crate) type Problem = (u32, String);

const OPERATORS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(", ")", "[", "]", "{", "}",
    ",", ".", "in",
];

/// Splits `source` into tokens with their offsets.
pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, u32)>, Problem> {
    let mut lexer = Lexer { chars: source.chars().collect(), pos: 0 };
    let mut out = Vec::new();
    loop {
        lexer.skip_blank();
        let start = lexer.pos as u32;
        let token = lexer.next()?;
        let end = token == Token::End;
        out.push((token, start));
        if end {
            return Ok(out);
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    pos: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.pos + ahead).copied().unwrap_or('\0')
    }

    fn at_end(&self) -> bool {
        self.pos >= self.chars.len()
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                ' ' | '\t' | '\n' | '\r' | '\u{c}' => self.pos += 1,
                '/' if self.peek(1) == '/' => {
                    while !self.at_end() && self.peek(0) != '\n' {
                        self.pos += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Result<Token, Problem> {
        if self.at_end() {
            return Ok(Token::End);
        }
        let c = self.peek(0);
        if let Some(string) = self.string()? {
            return Ok(string);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            return Ok(self.word());
        }
        if c.is_ascii_digit() || (c == '.' && self.peek(1).is_ascii_digit()) {
            return self.number();
        }
        if c == '`' {
            return self.quoted();
        }
        for op in OPERATORS {
            let len = op.len();
            if op.chars().enumerate().all(|(i, o)| self.peek(i) == o) {
                self.pos += len;
                return Ok(Token::Op(op));
            }
        }
        Err((self.pos as u32, format!("Syntax error: token recognition error at: '{}'", c.escape_default())))
    }

    fn word(&mut self) -> Token {
        let start = self.pos;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == '_' {
            self.pos += 1;
        }
        let word: String = self.chars[start..self.pos].iter().collect();
        match word.as_str() {
            "true" => Token::Literal(Literal::Bool(true)),
            "false" => Token::Literal(Literal::Bool(false)),
            "null" => Token::Literal(Literal::Null),
            "in" => Token::Op("in"),
            _ => Token::Ident(word.into()),
        }
    }

    fn quoted(&mut self) -> Result<Token, Problem> {
        let start = self.pos;
        self.pos += 1;
        let name_start = self.pos;
        while matches!(self.peek(0), 'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' | '/' | ' ') {
            self.pos += 1;
        }
        if self.peek(0) != '`' || self.pos == name_start {
            return Err((start as u32, "Syntax error: token recognition error at: '`'".into()));
        }
        let name: String = self.chars[name_start..self.pos].iter().collect();
        self.pos += 1;
        Ok(Token::Quoted(name.into()))
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let start = self.pos;
        let at = start as u32;
        if self.peek(0) == '0' && matches!(self.peek(1), 'x' | 'X') && self.peek(2).is_ascii_hexdigit() {
            self.pos += 2;
            let digits = self.pos;
            while self.peek(0).is_ascii_hexdigit() {
                self.pos += 1;
            }
            let text: String = self.chars[digits..self.pos].iter().collect();
            return self.integer(u64::from_str_radix(&text, 16).ok(), at);
        }
        let digits = |l: &mut Self| {
            while l.peek(0).is_ascii_digit() {
                l.pos += 1;
            }
        };
        digits(self);
        let mut float = false;
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            float = true;
            self.pos += 1;
            digits(self);
        }
        if matches!(self.peek(0), 'e' | 'E') {
            let sign = usize::from(matches!(self.peek(1), '+' | '-'));
            if self.peek(1 + sign).is_ascii_digit() {
                float = true;
                self.pos += 1 + sign;
                digits(self);
            }
        }
        let text: String = self.chars[start..self.pos].iter().collect();
        if float {
            return match text.parse::<f64>() {
                Ok(v) if v.is_finite() => Ok(Token::Literal(Literal::Double(v))),
                _ => Err((at, "invalid double literal".into())),
            };
        }
        self.integer(text.parse().ok(), at)
    }

    fn integer(&mut self, magnitude: Option<u64>, at: u32) -> Result<Token, Problem> {
        let unsigned = matches!(self.peek(0), 'u' | 'U');
        if unsigned {
            self.pos += 1;
            return match magnitude {
                Some(v) => Ok(Token::Literal(Literal::Uint(v))),
                None => Err((at, "invalid uint literal".into())),
            };
        }
        match magnitude {
            Some(v) if v == i64::MIN.unsigned_abs() => Ok(Token::IntMin),
            Some(v) => match i64::try_from(v) {
                Ok(v) => Ok(Token::Literal(Literal::Int(v))),
                Err(_) => Err((at, "invalid int literal".into())),
            },
            None => Err((at, "invalid int literal".into())),
        }
    }

    /// A string or bytes literal, if one starts here.
    fn string(&mut self) -> Result<Option<Token>, Problem> {
        let (mut raw, mut bytes, mut ahead) = (false, false, 0);
        loop {
            match self.peek(ahead) {
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes && !raw => bytes = true,
                '"' | '\'' => break,
                _ => return Ok(None),
            }
            ahead += 1;
        }
        let start = self.pos as u32;
        let quote = self.peek(ahead);
        let triple = self.peek(ahead + 1) == quote && self.peek(ahead + 2) == quote;
        let width = if triple { 3 } else { 1 };
        self.pos += ahead + width;
        let mut text = Unescaped { bytes, out: Vec::new() };
        loop {
            if self.at_end() || (!triple && matches!(self.peek(0), '\n' | '\r')) {
                return Err((start, format!("Syntax error: token recognition error at: '{quote}'")));
            }
            if (0..width).all(|i| self.peek(i) == quote) {
                self.pos += width;
                break;
            }
            let c = self.peek(0);
            self.pos += 1;
            if c != '\\' || raw {
                text.push_char(c);
                continue;
            }
            self.escape(&mut text)?;
        }
        Ok(Some(Token::Literal(if bytes {
            Literal::Bytes(text.out.into())
        } else {
            match String::from_utf8(text.out) {
                Ok(s) => Literal::String(s.into()),
                Err(_) => return Err((start, "invalid string literal".into())),
            }
        })))
    }

    fn escape(&mut self, text: &mut Unescaped) -> Result<(), Problem> {
        let at = self.pos as u32 - 1;
        let c = self.peek(0);
        self.pos += 1;
        let simple = match c {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '\'' | '"' | '`' | '?' => c,
            'x' | 'X' => return self.code(text, 2, 16, at),
            'u' if !text.bytes => return self.code(text, 4, 16, at),
            'U' if !text.bytes => return self.code(text, 8, 16, at),
            '0'..='3' => {
                self.pos -= 1;
                return self.code(text, 3, 8, at);
            }
            _ => return Err((at, "unable to unescape string".into())),
        };
        text.push_char(simple);
        Ok(())
    }

    fn code(&mut self, text: &mut Unescaped, digits: usize, radix: u32, at: u32) -> Result<(), Problem> {
        let mut value = 0u32;
        for _ in 0..digits {
            let digit = self.peek(0).to_digit(radix);
            let Some(digit) = digit else { return Err((at, "unable to unescape string".into())) };
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.pos += 1;
        }
        if text.bytes {
            text.out.push(value as u8);
            return Ok(());
        }
        match char::from_u32(value) {
            Some(c) => {
                text.push_char(c);
                Ok(())
            }
            None => Err((at, "invalid unicode code point".into())),
        }
    }
}

struct Unescaped {
    bytes: bool,
    out: Vec<u8>,
}

impl Unescaped {
    fn push_char(&mut self, c: char) {
        self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
