//! What the text of a literal means.

use crate::ast::Literal;
use crate::lexer::Token;

/// A number, as the lexer found it.
pub(crate) fn number(text: &str, float: bool) -> Token {
    let bad = |why: &'static str| Token::Bad { why, number: true };
    if float {
        return match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Token::Literal(Literal::Double(value)),
            _ => bad("invalid double literal"),
        };
    }
    let (digits, unsigned) = match text.strip_suffix(['u', 'U']) {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let magnitude = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    };
    match magnitude {
        Some(value) if unsigned => Token::Literal(Literal::Uint(value)),
        None if unsigned => Token::Bad { why: "invalid uint literal", number: false },
        Some(value) if value == i64::MIN.unsigned_abs() => Token::IntMin,
        Some(value) => match i64::try_from(value) {
            Ok(value) => Token::Literal(Literal::Int(value)),
            Err(_) => bad("invalid int literal"),
        },
        None => bad("invalid int literal"),
    }
}

/// A string or bytes, with prefix and quotes. Escapes are well formed: the lexer has seen to it.
pub(crate) fn text(chars: &[char]) -> Result<Literal, &'static str> {
    let bytes = matches!(chars.first(), Some('b' | 'B'));
    let chars = if bytes { &chars[1..] } else { chars };
    let raw = matches!(chars.first(), Some('r' | 'R'));
    let chars = if raw { &chars[1..] } else { chars };
    let width = if chars.len() >= 6 && chars[1] == chars[0] && chars[2] == chars[0] { 3 } else { 1 };
    let mut out = Vec::new();
    let mut rest = chars[width..chars.len() - width].iter().copied();
    while let Some(c) = rest.next() {
        let (c, code) = match c {
            '\\' if !raw => match rest.next() {
                Some(c @ ('u' | 'U')) if !bytes => (c, Some(code(&mut rest, 0, if c == 'u' { 4 } else { 8 }, 16)?)),
                Some(c @ ('x' | 'X')) => (c, Some(code(&mut rest, 0, 2, 16)?)),
                Some(c @ '0'..='3') => (c, Some(code(&mut rest, u32::from(c) - u32::from('0'), 2, 8)?)),
                Some(c) => (simple(c)?, None),
                None => return Err(UNABLE),
            },
            c => (c, None),
        };
        match code {
            Some(code) if bytes => out.push(code as u8),
            Some(code) => push(&mut out, char::from_u32(code).ok_or("invalid unicode code point")?),
            None => push(&mut out, c),
        }
    }
    if bytes {
        return Ok(Literal::Bytes(out.into()));
    }
    String::from_utf8(out).map(|text| Literal::String(text.into())).map_err(|_| "invalid string literal")
}

const UNABLE: &str = "unable to unescape string";

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn simple(c: char) -> Result<char, &'static str> {
    Ok(match c {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\\' | '\'' | '"' | '`' | '?' => c,
        _ => return Err(UNABLE),
    })
}

/// The number that so many digits say.
fn code(rest: &mut impl Iterator<Item = char>, first: u32, digits: usize, radix: u32) -> Result<u32, &'static str> {
    (0..digits).try_fold(first, |value, _| {
        let digit = rest.next().and_then(|c| c.to_digit(radix)).ok_or(UNABLE)?;
        Ok(value.wrapping_mul(radix).wrapping_add(digit))
    })
}
