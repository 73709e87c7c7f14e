//! String functions (cel-go's strings extension, version 2, as Kubernetes has it).

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::{Value, str_size};

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "charAt",
        overloads: &[("string_char_at_int", "string.(int) -> string")],
        cost: Cost::One,
        code: char_at,
    },
    Decl {
        name: "lowerAscii",
        overloads: &[("string_lower_ascii", "string.() -> string")],
        cost: Cost::Scan,
        code: |c, a| mapped(c, a, |s| s.to_ascii_lowercase()),
    },
    Decl {
        name: "upperAscii",
        overloads: &[("string_upper_ascii", "string.() -> string")],
        cost: Cost::Scan,
        code: |c, a| mapped(c, a, |s| s.to_ascii_uppercase()),
    },
    Decl {
        name: "trim",
        overloads: &[("string_trim", "string.() -> string")],
        cost: Cost::Scan,
        code: |c, a| mapped(c, a, |s| s.trim().to_owned()),
    },
    Decl {
        name: "replace",
        overloads: &[
            ("string_replace_string_string", "string.(string, string) -> string"),
            ("string_replace_string_string_int", "string.(string, string, int) -> string"),
        ],
        cost: Cost::Replace,
        code: replace,
    },
    Decl {
        name: "split",
        overloads: &[
            ("string_split_string", "string.(string) -> list<string>"),
            ("string_split_string_int", "string.(string, int) -> list<string>"),
        ],
        cost: Cost::Split,
        code: split,
    },
    Decl {
        name: "substring",
        overloads: &[
            ("string_substring_int", "string.(int) -> string"),
            ("string_substring_int_int", "string.(int, int) -> string"),
        ],
        cost: Cost::Scan,
        code: substring,
    },
    Decl {
        name: "join",
        overloads: &[
            ("list_join", "list<string>.() -> string"),
            ("list_join_string", "list<string>.(string) -> string"),
        ],
        cost: Cost::Join,
        code: join,
    },
    Decl {
        name: "strings.quote",
        overloads: &[("strings_quote", "(string) -> string")],
        cost: Cost::Quote,
        code: quote,
    },
];

/// What Kubernetes has on top of the common functions.
pub(crate) const KUBERNETES: &[Decl] = &[
    Decl {
        name: "format",
        overloads: &[("string_format", "string.(list<dyn>) -> string")],
        cost: Cost::FormatString,
        code: super::format_string::format_literal,
    },
    Decl {
        name: "indexOf",
        overloads: &[
            ("string_index_of_string", "string.(string) -> int"),
            ("string_index_of_string_int", "string.(string, int) -> int"),
        ],
        cost: Cost::Traverse,
        code: |c, a| index_of(c, a, false),
    },
    Decl {
        name: "lastIndexOf",
        overloads: &[
            ("string_last_index_of_string", "string.(string) -> int"),
            ("string_last_index_of_string_int", "string.(string, int) -> int"),
        ],
        cost: Cost::Traverse,
        code: |c, a| last_index_of(c, a, false),
    },
];

/// What the specification has on top of the common functions today.
pub(crate) const LATEST: &[Decl] = &[
    Decl {
        name: "indexOf",
        overloads: &[
            ("string_index_of_string", "string.(string) -> int"),
            ("string_index_of_string_int", "string.(string, int) -> int"),
        ],
        cost: Cost::Traverse,
        code: |c, a| index_of(c, a, true),
    },
    Decl {
        name: "lastIndexOf",
        overloads: &[
            ("string_last_index_of_string", "string.(string) -> int"),
            ("string_last_index_of_string_int", "string.(string, int) -> int"),
        ],
        cost: Cost::Traverse,
        code: |c, a| last_index_of(c, a, true),
    },
    Decl {
        name: "format",
        overloads: &[("string_format", "string.(list<dyn>) -> string")],
        cost: Cost::FormatString,
        code: super::format_string::format_plain,
    },
    Decl {
        name: "reverse",
        overloads: &[("string_reverse", "string.() -> string")],
        cost: Cost::Scan,
        code: |c, a| mapped(c, a, |s| s.chars().rev().collect()),
    },
];

fn out_of_range<'a>(index: i64) -> Outcome<'a> {
    Err(EvalError::failed(format!("index out of range: {index}")))
}

/// The byte offset of a code point's index; the length itself is an index too.
fn byte_offset(s: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if s.is_ascii() {
        return (index <= s.len()).then_some(index);
    }
    s.char_indices().map(|(at, _)| at).chain([s.len()]).nth(index)
}

fn mapped<'a>(ctx: &mut Context<'_>, args: &[Value<'a>], map: fn(&str) -> String) -> Outcome<'a> {
    match args {
        [Value::String(s)] => {
            ctx.budget.alloc(s.len() as u64)?;
            Ok(Value::string(map(s)))
        }
        _ => Err(EvalError::overload("string function")),
    }
}

fn char_at<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s), Value::Int(i)] = args else { return Err(EvalError::overload("charAt")) };
    ctx.budget.work(s.len() as u64 / 64)?;
    match byte_offset(s, *i) {
        Some(at) => Ok(Value::string(s[at..].chars().next().map(String::from).unwrap_or_default())),
        None => out_of_range(*i),
    }
}

/// `strict`: an index beyond the end is an error; in Kubernetes nothing is found there.
fn index_of<'a>(ctx: &mut Context<'_>, args: &[Value<'a>], strict: bool) -> Outcome<'a> {
    let (s, needle, from) = match args {
        [Value::String(s), Value::String(n)] => (s, n, 0),
        [Value::String(s), Value::String(n), Value::Int(from)] => (s, n, *from),
        _ => return Err(EvalError::overload("indexOf")),
    };
    ctx.budget.work(s.len() as u64 / 64)?;
    if needle.is_empty() && args.len() == 2 {
        return Ok(Value::Int(0));
    }
    if from < 0 {
        return out_of_range(from);
    }
    let start = byte_offset(s, from);
    if needle.is_empty() && (start.is_some() || !strict) {
        return Ok(Value::Int(from));
    }
    let start = match start {
        Some(start) if start < s.len() || !strict || args.len() == 2 => start,
        _ if strict => return out_of_range(from),
        _ => return Ok(Value::Int(-1)),
    };
    Ok(Value::Int(s[start..].find(&**needle).map_or(-1, |at| from + str_size(&s[start..start + at]) as i64)))
}

fn last_index_of<'a>(ctx: &mut Context<'_>, args: &[Value<'a>], strict: bool) -> Outcome<'a> {
    let (s, needle, from) = match args {
        [Value::String(s), Value::String(n)] => (s, n, None),
        [Value::String(s), Value::String(n), Value::Int(from)] => (s, n, Some(*from)),
        _ => return Err(EvalError::overload("lastIndexOf")),
    };
    ctx.budget.work(s.len() as u64 / 64)?;
    let size = str_size(s) as i64;
    if needle.is_empty() && from.is_none() {
        return Ok(Value::Int(size));
    }
    if let Some(from) = from {
        let beyond = from > size || (from == size && !needle.is_empty());
        if from < 0 || (strict && beyond) {
            return out_of_range(from);
        }
        if beyond {
            return Ok(Value::Int(if needle.is_empty() { from } else { -1 }));
        }
    }
    if needle.is_empty() {
        return Ok(Value::Int(from.unwrap_or(size)));
    }
    // The match must start at `from` or before it.
    let end = match from.and_then(|f| byte_offset(s, f)) {
        Some(at) => {
            let mut end = (at + needle.len()).min(s.len());
            while !s.is_char_boundary(end) {
                end -= 1;
            }
            end
        }
        None => s.len(),
    };
    Ok(Value::Int(s[..end].rfind(&**needle).map_or(-1, |at| str_size(&s[..at]) as i64)))
}

fn replace<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (s, from, to, limit) = match args {
        [Value::String(s), Value::String(from), Value::String(to)] => (s, from, to, -1),
        [Value::String(s), Value::String(from), Value::String(to), Value::Int(n)] => (s, from, to, *n),
        _ => return Err(EvalError::overload("replace")),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    ctx.budget.work(s.len() as u64 / 8)?;
    let count = s.matches(&**from).count().min(limit);
    ctx.budget.alloc((s.len() as u64).saturating_add((count as u64).saturating_mul(to.len() as u64)))?;
    Ok(Value::string(s.replacen(&**from, to, limit)))
}

fn split<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (s, sep, limit) = match args {
        [Value::String(s), Value::String(sep)] => (s, sep, -1),
        [Value::String(s), Value::String(sep), Value::Int(n)] => (s, sep, *n),
        _ => return Err(EvalError::overload("split")),
    };
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = if sep.is_empty() { s.len() } else { s.matches(&**sep).count() + 1 };
    ctx.budget.alloc(count.min(limit) as u64 * 64 + s.len() as u64)?;
    let part = |p: &str| Value::string(p);
    let parts = if !sep.is_empty() {
        s.splitn(limit, &**sep).map(part).collect()
    } else {
        let mut rest: &str = s;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let len = if parts.len() + 1 == limit { rest.len() } else { rest.chars().next().map_or(0, char::len_utf8) };
            parts.push(part(&rest[..len]));
            rest = &rest[len..];
        }
        parts
    };
    Ok(Value::list(parts))
}

fn substring<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (s, from, to) = match args {
        [Value::String(s), Value::Int(from)] => (s, *from, None),
        [Value::String(s), Value::Int(from), Value::Int(to)] => (s, *from, Some(*to)),
        _ => return Err(EvalError::overload("substring")),
    };
    if let Some(to) = to
        && from > to
    {
        return Err(EvalError::failed(format!("invalid substring range. start: {from}, end: {to}")));
    }
    let Some(start) = byte_offset(s, from) else { return out_of_range(from) };
    let end = match to {
        Some(to) => match byte_offset(s, to) {
            Some(end) => end,
            None => return out_of_range(to),
        },
        None => s.len(),
    };
    ctx.budget.alloc((end - start) as u64)?;
    Ok(Value::string(&s[start..end]))
}

fn join<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (list, sep) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(sep)] => (list, &**sep),
        _ => return Err(EvalError::overload("join")),
    };
    let mut out = String::new();
    for (i, item) in list.iter().enumerate() {
        let Value::String(item) = item? else { return Err(EvalError::failed("join: invalid input")) };
        ctx.budget.alloc((item.len() + sep.len()) as u64)?;
        if i > 0 {
            out.push_str(sep);
        }
        out.push_str(&item);
    }
    Ok(Value::string(out))
}

fn quote<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return Err(EvalError::overload("strings.quote")) };
    ctx.budget.alloc(s.len() as u64 * 2)?;
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(Value::string(out))
}
