//! The standard functions: size, string tests, conversions.

use std::sync::Arc;

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::time::{Timestamp, format_duration, parse_duration};
use crate::value::{Value, str_size};

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "size",
        overloads: &[
            ("size_string", "(string) -> int"),
            ("string_size", "string.() -> int"),
            ("size_bytes", "(bytes) -> int"),
            ("bytes_size", "bytes.() -> int"),
            ("size_list", "(list<A>) -> int"),
            ("list_size", "list<A>.() -> int"),
            ("size_map", "(map<A, B>) -> int"),
            ("map_size", "map<A, B>.() -> int"),
        ],
        cost: Cost::One,
        code: size,
    },
    Decl {
        name: "startsWith",
        overloads: &[("starts_with_string", "string.(string) -> bool")],
        cost: Cost::Affix,
        code: starts_with,
    },
    Decl {
        name: "endsWith",
        overloads: &[("ends_with_string", "string.(string) -> bool")],
        cost: Cost::Affix,
        code: ends_with,
    },
    Decl {
        name: "contains",
        overloads: &[("contains_string", "string.(string) -> bool")],
        cost: Cost::Substring,
        code: contains,
    },
    Decl {
        name: "matches",
        overloads: &[("matches", "(string, string) -> bool"), ("matches_string", "string.(string) -> bool")],
        cost: Cost::Regex { found: false },
        code: super::regex::matches,
    },
    Decl { name: "type", overloads: &[("type", "(A) -> type<A>")], cost: Cost::One, code: type_of },
    Decl { name: "dyn", overloads: &[("to_dyn", "(A) -> dyn")], cost: Cost::One, code: identity },
    Decl {
        name: "bool",
        overloads: &[("bool_to_bool", "(bool) -> bool"), ("string_to_bool", "(string) -> bool")],
        cost: Cost::One,
        code: to_bool,
    },
    Decl {
        name: "int",
        overloads: &[
            ("int64_to_int64", "(int) -> int"),
            ("uint64_to_int64", "(uint) -> int"),
            ("double_to_int64", "(double) -> int"),
            ("string_to_int64", "(string) -> int"),
            ("timestamp_to_int64", "(timestamp) -> int"),
            ("duration_to_int64", "(duration) -> int"),
        ],
        cost: Cost::One,
        code: to_int,
    },
    Decl {
        name: "uint",
        overloads: &[
            ("uint64_to_uint64", "(uint) -> uint"),
            ("int64_to_uint64", "(int) -> uint"),
            ("double_to_uint64", "(double) -> uint"),
            ("string_to_uint64", "(string) -> uint"),
        ],
        cost: Cost::One,
        code: to_uint,
    },
    Decl {
        name: "double",
        overloads: &[
            ("double_to_double", "(double) -> double"),
            ("int64_to_double", "(int) -> double"),
            ("uint64_to_double", "(uint) -> double"),
            ("string_to_double", "(string) -> double"),
        ],
        cost: Cost::One,
        code: to_double,
    },
    Decl {
        name: "string",
        overloads: &[
            ("string_to_string", "(string) -> string"),
            ("bool_to_string", "(bool) -> string"),
            ("int64_to_string", "(int) -> string"),
            ("uint64_to_string", "(uint) -> string"),
            ("double_to_string", "(double) -> string"),
            ("timestamp_to_string", "(timestamp) -> string"),
            ("duration_to_string", "(duration) -> string"),
        ],
        cost: Cost::One,
        code: to_string,
    },
    Decl {
        name: "string",
        overloads: &[("bytes_to_string", "(bytes) -> string")],
        cost: Cost::BytesToString,
        code: to_string,
    },
    Decl { name: "bytes", overloads: &[("bytes_to_bytes", "(bytes) -> bytes")], cost: Cost::One, code: to_bytes },
    Decl {
        name: "bytes",
        overloads: &[("string_to_bytes", "(string) -> bytes")],
        cost: Cost::StringToBytes,
        code: to_bytes,
    },
    Decl {
        name: "duration",
        overloads: &[
            ("duration_to_duration", "(duration) -> duration"),
            ("int64_to_duration", "(int) -> duration"),
            ("string_to_duration", "(string) -> duration"),
        ],
        cost: Cost::One,
        code: to_duration,
    },
    Decl {
        name: "timestamp",
        overloads: &[
            ("timestamp_to_timestamp", "(timestamp) -> timestamp"),
            ("string_to_timestamp", "(string) -> timestamp"),
            ("int64_to_timestamp", "(int) -> timestamp"),
        ],
        cost: Cost::One,
        code: to_timestamp,
    },
];

/// Functions that are computed when an expression is compiled if their argument is constant.
pub(crate) const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

fn size<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    if let [Value::String(s)] = args {
        // Counting code points reads the whole text.
        ctx.budget.work(s.len() as u64 / 64)?;
    }
    let size = match args {
        [Value::String(s)] => str_size(s),
        [Value::Bytes(b)] => b.len() as u64,
        [Value::List(l)] => l.len() as u64,
        [Value::Map(m)] => m.len() as u64,
        _ => return Err(EvalError::overload("size")),
    };
    Ok(Value::Int(size as i64))
}

fn two_strings<'v>(args: &'v [Value<'_>]) -> Option<(&'v str, &'v str)> {
    match args {
        [Value::String(a), Value::String(b)] => Some((a, b)),
        _ => None,
    }
}

fn starts_with<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (a, b) = two_strings(args).ok_or(EvalError::overload("startsWith"))?;
    Ok(Value::Bool(a.starts_with(b)))
}

fn ends_with<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (a, b) = two_strings(args).ok_or(EvalError::overload("endsWith"))?;
    Ok(Value::Bool(a.ends_with(b)))
}

fn contains<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (a, b) = two_strings(args).ok_or(EvalError::overload("contains"))?;
    ctx.budget.work(a.len() as u64 / 64)?;
    Ok(Value::Bool(a.contains(b)))
}

fn type_of<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    args.first().map(|v| Value::Type(v.type_name())).ok_or(EvalError::overload("type"))
}

fn identity<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    args.first().cloned().ok_or(EvalError::overload("dyn"))
}

fn conversion<'a>(from: &str, to: &str) -> Outcome<'a> {
    Err(EvalError::failed(format!("type conversion error from '{from}' to '{to}'")))
}

fn to_bool<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bool(b)] => Ok(Value::Bool(*b)),
        [Value::String(s)] => match &**s {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => conversion("string", "bool"),
        },
        _ => Err(EvalError::overload("bool")),
    }
}

fn unsigned_range<'a>() -> Outcome<'a> {
    Err(EvalError::failed("unsigned integer overflow"))
}

fn range<'a>() -> Outcome<'a> {
    Err(EvalError::failed("integer overflow"))
}

fn to_int<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Int(i)] => Ok(Value::Int(*i)),
        [Value::Uint(u)] => i64::try_from(*u).map(Value::Int).or_else(|_| range()),
        [Value::Double(d)] => {
            // The bounds themselves are not exact in double precision and are refused.
            if *d > i64::MIN as f64 && *d < i64::MAX as f64 { Ok(Value::Int(*d as i64)) } else { range() }
        }
        [Value::String(s)] => s.parse().map(Value::Int).or_else(|_| conversion("string", "int")),
        [Value::Timestamp(t)] => Ok(Value::Int(t.seconds())),
        [Value::Duration(d)] => Ok(Value::Int(*d)),
        _ => Err(EvalError::overload("int")),
    }
}

fn to_uint<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Uint(u)] => Ok(Value::Uint(*u)),
        [Value::Int(i)] => u64::try_from(*i).map(Value::Uint).or_else(|_| unsigned_range()),
        [Value::Double(d)] => {
            if *d >= 0.0 && *d < u64::MAX as f64 {
                Ok(Value::Uint(*d as u64))
            } else {
                unsigned_range()
            }
        }
        [Value::String(s)] if !s.starts_with('+') => {
            s.parse().map(Value::Uint).or_else(|_| conversion("string", "uint"))
        }
        [Value::String(_)] => conversion("string", "uint"),
        _ => Err(EvalError::overload("uint")),
    }
}

fn to_double<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Double(d)] => Ok(Value::Double(*d)),
        [Value::Int(i)] => Ok(Value::Double(*i as f64)),
        [Value::Uint(u)] => Ok(Value::Double(*u as f64)),
        [Value::String(s)] => match s.parse() {
            Ok(d) => Ok(Value::Double(d)),
            Err(_) => conversion("string", "double"),
        },
        _ => Err(EvalError::overload("double")),
    }
}

/// A double as Go's `%g` with the fewest digits that read back the same.
pub(crate) fn double_text(d: f64) -> String {
    if d.is_nan() {
        return "NaN".into();
    }
    if d.is_infinite() {
        return if d > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let magnitude = d.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        let text = format!("{d:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{d}")
}

fn to_string<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::String(s)] => Value::String(s.clone()),
        [Value::Bool(b)] => Value::str(if *b { "true" } else { "false" }),
        [Value::Int(i)] => Value::string(i.to_string()),
        [Value::Uint(u)] => Value::string(u.to_string()),
        [Value::Double(d)] => Value::string(double_text(*d)),
        [Value::Bytes(b)] => {
            ctx.budget.alloc(b.len() as u64)?;
            match std::str::from_utf8(b) {
                Ok(s) => Value::string(s),
                Err(_) => return Err(EvalError::failed("invalid UTF-8 in bytes, cannot convert to string")),
            }
        }
        [Value::Timestamp(t)] => Value::string(t.format()),
        [Value::Duration(d)] => Value::string(format_duration(*d)),
        _ => return Err(EvalError::overload("string")),
    })
}

fn to_bytes<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bytes(b)] => Ok(Value::Bytes(b.clone())),
        [Value::String(s)] => {
            ctx.budget.alloc(s.len() as u64)?;
            Ok(Value::Bytes(Arc::from(s.as_bytes())))
        }
        _ => Err(EvalError::overload("bytes")),
    }
}

fn to_duration<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Duration(d)] => Ok(Value::Duration(*d)),
        [Value::String(s)] => match parse_duration(s) {
            Some(d) => Ok(Value::Duration(d)),
            None => conversion("string", "google.protobuf.Duration"),
        },
        // Declared in cel-go, but no number is a duration.
        [Value::Int(_)] => conversion("int", "google.protobuf.Duration"),
        _ => Err(EvalError::overload("duration")),
    }
}

fn to_timestamp<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let timestamp = match args {
        [Value::Timestamp(t)] => Some(*t),
        [Value::String(s)] => match Timestamp::parse(s) {
            Some(t) => Some(t),
            None => return conversion("string", "google.protobuf.Timestamp"),
        },
        [Value::Int(i)] => Timestamp::new(*i, 0),
        _ => return Err(EvalError::overload("timestamp")),
    };
    timestamp.map(Value::Timestamp).ok_or(EvalError::failed("timestamp overflow"))
}
