//! Halves of surrogate pairs in JSON: `"\\ud800"` is no character, and Go reads it as U+FFFD.

/// The text with U+FFFD for each escaped half of a pair that stands alone; nothing if none does.
pub fn replaced(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        match (bytes[at], unit(bytes, at)) {
            (b'\\', Some(0xd800..=0xdbff)) if matches!(unit(bytes, at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            (b'\\', Some(0xd800..=0xdfff)) => {
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // What is escaped begins nothing itself.
            (b'\\', _) => at += 2,
            _ => at += 1,
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(&text[copied..]);
    Some(out)
}

/// The number that is escaped here, if one is.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u").filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    /// Each as Go reads it.
    #[test]
    fn halves_of_pairs_are_replaced() {
        for (text, expected) in [
            (r#""a\ud800""#, "a\u{fffd}"),
            (r#""\uDFFFb""#, "\u{fffd}b"),
            (r#""\ud800\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud800\n\u0041é""#, "\u{fffd}\nAé"),
            (r#""\\ud800\ud800""#, "\\ud800\u{fffd}"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().value, expected, "{text}");
        }
        for wrong in [r#""\ud800"#, r#""\ud8""#, r#""\ud800\x""#, r#"\ud800"#, r#"["\ud800\"]"#] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
