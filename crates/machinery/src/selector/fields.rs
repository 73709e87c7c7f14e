//! Field selectors: `metadata.name=web,status.phase!=Running`.

use std::borrow::Cow;
use std::fmt;

use super::ParseError;

/// What one field must be, or must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field, `metadata.name`.
    pub field: String,
    /// Whether the value must be equal (or else must differ).
    pub equal: bool,
    /// The value. A field that is absent is empty.
    pub value: String,
}

/// A field selector: all its requirements must hold.
///
/// ```
/// use conductor_machinery::selector::FieldSelector;
/// let selector = FieldSelector::parse("status.phase!=Running,metadata.name=web").unwrap();
/// assert_eq!(selector.exact("metadata.name"), Some("web"));
/// assert_eq!(selector.to_string(), "metadata.name=web,status.phase!=Running");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Parses the text form. Which fields there are is for the resource to say: see [`FieldSelector::transform`].
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, equal, value)) = split_term(term) else {
                return Err(ParseError(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            let value = unescape(value)?.into_owned();
            // A lone operator demands nothing.
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(FieldRequirement { field: field.to_owned(), equal, value });
            }
        }
        Ok(FieldSelector { requirements })
    }

    /// One field must have one value.
    pub fn equals(field: &str, value: &str) -> Self {
        let requirement = FieldRequirement { field: field.to_owned(), equal: true, value: value.to_owned() };
        FieldSelector { requirements: vec![requirement] }
    }

    /// Whether the fields of an object satisfy it; a field that it does not have is empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = field(&requirement.field).unwrap_or_default();
            (value == requirement.value) == requirement.equal
        })
    }

    /// The value that it demands of a field, if it demands one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let wanted = self.requirements.iter().find(|requirement| requirement.equal && requirement.field == field)?;
        Some(&wanted.value)
    }

    /// Whether it restricts nothing.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Its requirements.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Renames fields, refuses those that are not supported, drops a requirement that becomes `None`.
    pub fn transform<E>(
        self,
        mut rename: impl FnMut(FieldRequirement) -> Result<Option<FieldRequirement>, E>,
    ) -> Result<Self, E> {
        let mut requirements = Vec::new();
        for requirement in self.requirements {
            requirements.extend(rename(requirement)?);
        }
        Ok(FieldSelector { requirements })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldRequirement { field, equal, value }) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if *equal { "=" } else { "!=" };
            write!(f, "{comma}{field}{operator}{}", escape(value))?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash stands before.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator; a field's name cannot hold one.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let bytes = term.as_bytes();
    for at in 0..bytes.len() {
        let (equal, length) = match &bytes[at..] {
            [b'!', b'=', ..] => (false, 2),
            [b'=', b'=', ..] => (true, 2),
            [b'=', ..] => (true, 1),
            _ => continue,
        };
        return Some((&term[..at], equal, &term[at + length..]));
    }
    None
}

/// Makes a value safe to stand in a field selector.
pub fn escape(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', ',', '=']) {
        return Cow::Borrowed(value);
    }
    let mut escaped = String::with_capacity(value.len() + 4);
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    Cow::Owned(escaped)
}

/// The value that [`escape`] made safe.
pub fn unescape(value: &str) -> Result<Cow<'_, str>, ParseError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(Cow::Borrowed(value));
    }
    let bad = |sequence: String| ParseError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                Some(other) => return Err(bad(format!("\\{other}"))),
                None => return Err(bad("\\".to_owned())),
            },
            ',' | '=' => {
                let code = u32::from(c);
                return Err(ParseError(format!("invalid field selector: unescaped character in value: {code}")));
            }
            other => plain.push(other),
        }
    }
    Ok(Cow::Owned(plain))
}
