//! Kubernetes' escaping of property names, so that they are CEL identifiers.

use std::borrow::Cow;

/// The words that CEL keeps for itself: no variable has such a name.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier for a property, or `None` if the property cannot be reached from CEL.
///
/// `foo-bar` is `foo__dash__bar`, `namespace` is `__namespace__`.
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    if RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    let first = name.chars().next()?;
    if first.is_ascii_digit() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/'))
    {
        return None;
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    Some(Cow::Owned(escaped))
}

/// The property an identifier stands for, or `None` if it is not the escape of any.
pub fn unescape(ident: &str) -> Option<Cow<'_, str>> {
    if !ident.contains("__") {
        return Some(Cow::Borrowed(ident));
    }
    if let Some(word) = ident.strip_prefix("__").and_then(|i| i.strip_suffix("__"))
        && RESERVED.contains(&word)
    {
        return Some(Cow::Owned(word.to_owned()));
    }
    let mut out = String::with_capacity(ident.len());
    let mut rest = ident;
    while let Some(at) = rest.find("__") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (mark, text) = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")]
            .into_iter()
            .find(|(mark, _)| rest.starts_with(mark))?;
        out.push_str(text);
        rest = &rest[mark.len()..];
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_as_kubernetes_does() {
        for (name, ident) in [
            ("simple", Some("simple")),
            ("namespace", Some("__namespace__")),
            ("foo-bar", Some("foo__dash__bar")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("redact__d", Some("redact__underscores__d")),
            ("single_under", Some("single_under")),
            ("1a", None),
            ("has space", None),
            ("$ref", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), ident, "{name}");
            if let Some(ident) = ident {
                assert_eq!(unescape(ident).as_deref(), Some(name));
            }
        }
        assert_eq!(unescape("a__b"), None);
    }
}
