//! `"%s is %d".format([…])`.

use super::{Context, Outcome};
use crate::error::EvalError;
use crate::library::standard::double_text;
use crate::time::format_duration;
use crate::value::{List, Value};

/// Deepest value that is written out, and most digits after the point.
const MAX_NESTING: u32 = 64;
const MAX_PRECISION: usize = 1000;

type Text = Result<String, EvalError>;

/// How values within lists and maps are written.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// As Kubernetes does (cel-go's strings version 2): such that they read as CEL again.
    Literal,
    /// As the specification says today: the same as outside.
    Plain,
}

/// `format` as Kubernetes has it.
pub(crate) fn format_literal<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    format(ctx, args, Style::Literal)
}

/// `format` as the specification has it.
pub(crate) fn format_plain<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    format(ctx, args, Style::Plain)
}

fn format<'a>(ctx: &mut Context<'_>, args: &[Value<'a>], style: Style) -> Outcome<'a> {
    let [Value::String(format), Value::List(list)] = args else { return Err(EvalError::overload("format")) };
    ctx.budget.alloc(format.len() as u64)?;
    let mut out = String::with_capacity(format.len());
    let mut next = 0;
    for clause in Clauses::new(format) {
        let (text, verb) = clause?;
        out.push_str(text);
        let Some(verb) = verb else { continue };
        let text = clause_text(ctx, verb.0, verb.1, list, next, style)?;
        next += 1;
        ctx.budget.alloc(text.len() as u64)?;
        out.push_str(&text);
    }
    Ok(Value::string(out))
}

/// The parts of a format string: text, then perhaps a verb.
pub(crate) struct Clauses<'t> {
    rest: &'t str,
}

impl<'t> Clauses<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { rest: text }
    }
}

impl<'t> Iterator for Clauses<'t> {
    type Item = Result<(&'t str, Option<(char, Option<usize>)>), EvalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some(at) = self.rest.find('%') else {
            return Some(Ok((std::mem::take(&mut self.rest), None)));
        };
        let after = &self.rest[at + 1..];
        if let Some(rest) = after.strip_prefix('%') {
            // One of the two is part of the text.
            let text = &self.rest[..=at];
            self.rest = rest;
            return Some(Ok((text, None)));
        }
        let text = &self.rest[..at];
        match clause(after) {
            Ok((verb, precision, rest)) => {
                self.rest = rest;
                Some(Ok((text, Some((verb, precision)))))
            }
            Err(e) => {
                self.rest = "";
                Some(Err(e))
            }
        }
    }
}

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> EvalError {
    EvalError::failed(message)
}

/// Reads `.3f`: the verb, its precision, and what follows.
fn clause(text: &str) -> Result<(char, Option<usize>, &str), EvalError> {
    let mut precision = None;
    let mut rest = text;
    if let Some(after) = rest.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let value: usize = after[..digits].parse().unwrap_or(if digits == 0 { 0 } else { usize::MAX });
        if value > MAX_PRECISION {
            return Err(bad("could not parse formatting clause: precision too large"));
        }
        precision = Some(value);
        rest = &after[digits..];
    }
    let Some(verb) = rest.chars().next() else { return Err(bad("unexpected end of string")) };
    if !"sdfebxXo".contains(verb) {
        return Err(bad(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\"")));
    }
    Ok((verb, precision, &rest[verb.len_utf8()..]))
}

fn clause_text(
    ctx: &mut Context<'_>,
    verb: char,
    precision: Option<usize>,
    list: &List<'_>,
    index: usize,
    style: Style,
) -> Text {
    let Some(value) = list.get(index) else { return Err(bad(format!("index {index} out of range"))) };
    let value = value?;
    let plain = style == Style::Plain;
    let refuse = |what: &str| Err(bad(format!("error during formatting: {what}, was given {}", value.type_name())));
    match (verb, &value) {
        ('s', _) => string(ctx, &value, 0, style),
        ('d', Value::Int(i)) => Ok(i.to_string()),
        ('d', Value::Uint(u)) => Ok(u.to_string()),
        ('d', Value::Double(d)) if !d.is_finite() && plain => Ok(named(*d)),
        ('d', _) => refuse("decimal clause can only be used on integers"),
        ('f' | 'e', Value::Double(d)) if !plain => Ok(localized(*d, verb, precision.unwrap_or(6))),
        ('f' | 'e', Value::Double(d)) if !d.is_finite() => Ok(named(*d)),
        ('f', Value::Double(d)) => Ok(format!("{d:.*}", precision.unwrap_or(6))),
        ('f', Value::Int(i)) if plain => Ok(format!("{:.*}", precision.unwrap_or(6), *i as f64)),
        ('f', Value::Uint(i)) if plain => Ok(format!("{:.*}", precision.unwrap_or(6), *i as f64)),
        ('e', Value::Double(d)) => Ok(scientific(*d, precision.unwrap_or(6))),
        ('e', Value::Int(i)) if plain => Ok(scientific(*i as f64, precision.unwrap_or(6))),
        ('e', Value::Uint(i)) if plain => Ok(scientific(*i as f64, precision.unwrap_or(6))),
        ('f' | 'e', Value::String(s)) if matches!(&**s, "NaN" | "Infinity" | "-Infinity") => Ok(s.to_string()),
        ('f', _) => refuse("fixed-point clause can only be used on doubles"),
        ('e', _) => refuse("scientific clause can only be used on doubles"),
        ('b', Value::Int(i)) => Ok(signed(*i, format!("{:b}", i.unsigned_abs()))),
        ('b', Value::Uint(u)) => Ok(format!("{u:b}")),
        ('b', Value::Bool(b)) => Ok(u8::from(*b).to_string()),
        ('b', _) => refuse("only integers and bools can be formatted as binary"),
        ('o', Value::Int(i)) => Ok(signed(*i, format!("{:o}", i.unsigned_abs()))),
        ('o', Value::Uint(u)) => Ok(format!("{u:o}")),
        ('o', _) => refuse("octal clause can only be used on integers"),
        (_, Value::Int(i)) => Ok(signed(*i, hex(verb, format!("{:x}", i.unsigned_abs())))),
        (_, Value::Uint(u)) => Ok(hex(verb, format!("{u:x}"))),
        (_, Value::String(s)) => {
            ctx.budget.alloc(s.len() as u64 * 2)?;
            Ok(hex(verb, s.bytes().map(|b| format!("{b:02x}")).collect()))
        }
        (_, Value::Bytes(s)) => {
            ctx.budget.alloc(s.len() as u64 * 2)?;
            Ok(hex(verb, s.iter().map(|b| format!("{b:02x}")).collect()))
        }
        _ => refuse("only integers, byte buffers, and strings can be formatted as hex"),
    }
}

fn signed(i: i64, digits: String) -> String {
    if i < 0 { format!("-{digits}") } else { digits }
}

fn hex(verb: char, digits: String) -> String {
    if verb == 'X' { digits.to_uppercase() } else { digits }
}

fn named(d: f64) -> String {
    if d.is_nan() {
        "NaN"
    } else if d > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
    .to_owned()
}

fn scientific(d: f64, precision: usize) -> String {
    let text = format!("{d:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Kubernetes writes `%f` and `%e` for readers of English: `1,234.5`, `1.5×10⁰³`.
fn localized(d: f64, verb: char, precision: usize) -> String {
    if d.is_nan() {
        return "NaN".into();
    }
    if d.is_infinite() {
        return if d > 0.0 { "∞" } else { "-∞" }.into();
    }
    if verb == 'e' {
        // The precision asked for is not heeded there.
        let text = scientific(d, 6);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        let raised: String = exponent
            .chars()
            .filter_map(|c| match c {
                '-' => Some('⁻'),
                '+' => None,
                digit => "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit.to_digit(10)? as usize),
            })
            .collect();
        return format!("{mantissa}×10{raised}");
    }
    let text = format!("{:.precision$}", d.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::from(if d.is_sign_negative() { "-" } else { "" });
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A value as `%s` writes it.
fn string(ctx: &mut Context<'_>, value: &Value<'_>, depth: u32, style: Style) -> Text {
    ctx.budget.work(1)?;
    if depth > MAX_NESTING {
        return Err(bad("value is nested too deeply to be formatted"));
    }
    let literal = depth > 0 && style == Style::Literal;
    Ok(match value {
        Value::String(s) => {
            ctx.budget.alloc(s.len() as u64)?;
            if literal { format!("{:?}", &**s) } else { s.to_string() }
        }
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => u.to_string(),
        Value::Double(d) if !d.is_finite() && literal => format!("{:?}", named(*d)),
        Value::Double(d) if !d.is_finite() => named(*d),
        Value::Double(d) if literal => format!("{d:.6}"),
        Value::Double(d) => double_text(*d),
        Value::Bytes(b) => {
            ctx.budget.alloc(b.len() as u64)?;
            let text = String::from_utf8_lossy(b);
            if literal { format!("b{text:?}") } else { text.into_owned() }
        }
        Value::Timestamp(t) if literal => format!("timestamp({:?})", t.format()),
        Value::Timestamp(t) => t.format(),
        Value::Duration(d) if literal => format!("duration({:?})", format_duration(*d)),
        Value::Duration(d) => format_duration(*d),
        Value::Type(name) => (*name).to_owned(),
        Value::List(list) => {
            let mut out = String::from("[");
            for (i, item) in list.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                out.push_str(&string(ctx, &item?, depth + 1, style)?);
                ctx.budget.alloc(16)?;
            }
            out.push(']');
            out
        }
        Value::Map(map) => {
            let mut pairs = Vec::new();
            for key in map.keys() {
                if let Some(entry) = map.get(&key, ctx.budget) {
                    let name = string(ctx, &key, depth + 1, style)?;
                    let entry = string(ctx, &entry?, depth + 1, style)?;
                    ctx.budget.alloc((name.len() + entry.len() + 32) as u64)?;
                    pairs.push((name, entry));
                }
            }
            pairs.sort();
            let colon = if style == Style::Literal { ":" } else { ": " };
            let text: Vec<String> = pairs.into_iter().map(|(k, v)| format!("{k}{colon}{v}")).collect();
            format!("{{{}}}", text.join(", "))
        }
        other => {
            return Err(bad(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                other.type_name()
            )));
        }
    })
}
