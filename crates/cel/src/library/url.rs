//! URLs, read as Go's `url.ParseRequestURI` reads them: absolute, or an absolute path.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::{Key, Str, Value};

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

impl Url {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("empty url");
        }
        if text.chars().any(|c| c.is_ascii_control()) {
            return Err("invalid control character in URL");
        }
        let (body, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, rest) = scheme(body)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') {
            if scheme.is_empty() {
                return Err("invalid URI for request");
            }
            // Opaque, as in mailto:someone.
            return Ok(Self {
                scheme,
                host: String::new(),
                path: String::new(),
                query: query.to_owned(),
                fragment: fragment.to_owned(),
            });
        }
        let (host, path) = match rest.strip_prefix("//") {
            Some(after) if !scheme.is_empty() || !rest.starts_with("///") => {
                let end = after.find('/').unwrap_or(after.len());
                (authority(&after[..end])?, &after[end..])
            }
            _ => (String::new(), rest),
        };
        if !escapes_are_valid(path) {
            return Err("invalid URL escape");
        }
        Ok(Self { scheme, host, path: path.to_owned(), query: query.to_owned(), fragment: fragment.to_owned() })
    }

    fn hostname(&self) -> &str {
        let host = self.without_port().0;
        host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
    }

    fn without_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.contains(']') => (host, port),
            _ => (&self.host, ""),
        }
    }

    fn escaped_path(&self) -> String {
        let mut out = String::with_capacity(self.path.len());
        for byte in self.path.bytes() {
            let plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%[]".contains(&byte);
            if plain { out.push(byte as char) } else { out.push_str(&format!("%{byte:02X}")) }
        }
        out
    }

    fn query_values(&self) -> BTreeMap<String, Vec<String>> {
        let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (unescape(key), unescape(value)) {
                out.entry(key).or_default().push(value);
            }
        }
        out
    }
}

fn scheme(text: &str) -> Result<(String, &str), &'static str> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((text[..i].to_ascii_lowercase(), &text[i + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

fn authority(text: &str) -> Result<String, &'static str> {
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let port = if host.starts_with('[') {
        let (inside, after) = host.split_once(']').ok_or("missing ']' in host")?;
        if inside.len() < 2 {
            return Err("invalid host");
        }
        after
    } else {
        host.find(':').map_or("", |at| &host[at..])
    };
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit())) {
        return Err("invalid port after host");
    }
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c) || !c.is_ascii();
    if !host.chars().all(valid) || (!host.starts_with('[') && !escapes_are_valid(host)) {
        return Err("invalid character in host name");
    }
    Ok(host.to_owned())
}

fn escapes_are_valid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'%')
        .all(|(i, _)| bytes.get(i + 1..i + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)))
}

fn unescape(text: &str) -> Option<String> {
    if !escapes_are_valid(text) {
        return None;
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'%' => {
                out.push(u8::from_str_radix(text.get(i + 1..i + 3)?, 16).ok()?);
                i += 2;
            }
            b'+' => out.push(b' '),
            b => out.push(b),
        }
        i += 1;
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

pub(crate) const DECLS: &[Decl] = &[
    Decl { name: "url", overloads: &[("string_to_url", "(string) -> URL")], cost: Cost::Scan, code: to_url },
    Decl {
        name: "isURL",
        overloads: &[("is_url_string", "(string) -> bool")],
        cost: Cost::One,
        code: |_, a| match a {
            [Value::String(s)] => Ok(Value::Bool(Url::parse(s).is_ok())),
            _ => Err(EvalError::overload("isURL")),
        },
    },
    Decl {
        name: "getScheme",
        overloads: &[("url_get_scheme", "URL.() -> string")],
        cost: Cost::One,
        code: |_, a| part(a, |u| u.scheme.clone()),
    },
    Decl {
        name: "getHost",
        overloads: &[("url_get_host", "URL.() -> string")],
        cost: Cost::One,
        code: |_, a| part(a, |u| u.host.clone()),
    },
    Decl {
        name: "getHostname",
        overloads: &[("url_get_hostname", "URL.() -> string")],
        cost: Cost::One,
        code: |_, a| part(a, |u| u.hostname().to_owned()),
    },
    Decl {
        name: "getPort",
        overloads: &[("url_get_port", "URL.() -> string")],
        cost: Cost::One,
        code: |_, a| part(a, |u| u.without_port().1.to_owned()),
    },
    Decl {
        name: "getEscapedPath",
        overloads: &[("url_get_escaped_path", "URL.() -> string")],
        cost: Cost::One,
        code: |_, a| part(a, Url::escaped_path),
    },
    Decl {
        name: "getQuery",
        overloads: &[("url_get_query", "URL.() -> map<string, list<string>>")],
        cost: Cost::One,
        code: query,
    },
];

fn to_url<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return Err(EvalError::overload("url")) };
    ctx.budget.alloc(s.len() as u64)?;
    match Url::parse(s) {
        Ok(url) => Ok(Value::Url(Arc::new(url))),
        Err(why) => {
            Err(EvalError::failed(format!("URL parse error during conversion from string: parse \"{}\": {why}", &**s)))
        }
    }
}

fn part<'a>(args: &[Value<'a>], f: fn(&Url) -> String) -> Outcome<'a> {
    match args {
        [Value::Url(url)] => Ok(Value::string(f(url))),
        _ => Err(EvalError::overload("url")),
    }
}

fn query<'a>(ctx: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Url(url)] = args else { return Err(EvalError::overload("getQuery")) };
    ctx.budget.alloc(url.query.len() as u64 * 32)?;
    let entries = url.query_values().into_iter().map(|(key, values)| {
        let values = values.into_iter().map(Value::string).collect();
        (Key::String(Str::Shared(key.into())), Value::list(values))
    });
    Ok(Value::map(entries.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, ok) in [
            ("https://user:pass@example.com:80/path?query=val#fragment", true),
            ("/path", true),
            ("https://a:b:c/", false),
            ("../relative-path", false),
            ("mailto:someone", true),
            ("https://[::1]:80/x", true),
            ("https://ho st/", false),
            ("https://h/%zz", false),
            ("", false),
        ] {
            assert_eq!(Url::parse(text).is_ok(), ok, "{text}");
        }
        let url = Url::parse("https://[::1]:8080/a b?k=a&k=b%20c").unwrap();
        assert_eq!((url.hostname(), url.without_port().1), ("::1", "8080"));
        assert_eq!(url.escaped_path(), "/a%20b");
        assert_eq!(url.query_values()["k"], ["a", "b c"]);
    }
}
