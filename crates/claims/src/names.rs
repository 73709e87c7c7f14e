//! Names derived from what they are for, so that making a thing twice makes it once.

/// A DNS label of at most 63 characters from a prefix and a unique text.
///
/// A uid is kept readable (`relationaldatabase-0b5c…`); what does not fit or is no label is hashed.
pub fn derived(prefix: &str, unique: &str) -> String {
    let prefix = label(prefix);
    let fits = !unique.is_empty() && unique.len() <= 36 && label(unique) == unique;
    let tail = if fits { unique.to_owned() } else { hash(unique) };
    let room = 62 - tail.len();
    let prefix = prefix.get(..prefix.len().min(room)).unwrap_or_default().trim_end_matches('-');
    if prefix.is_empty() { format!("c-{tail}") } else { format!("{prefix}-{tail}") }
}

/// A DNS label that begins with a letter, readable where the text allows it, and different for different texts.
pub fn joined(stem: &str, suffix: &str) -> String {
    let whole = format!("{stem}-{suffix}");
    let clean = label(&whole);
    if clean == whole && clean.len() <= 63 && clean.starts_with(|c: char| c.is_ascii_lowercase()) {
        return clean;
    }
    let tail = hash(&whole);
    let head: String = clean.chars().skip_while(|c| !c.is_ascii_lowercase()).take(62 - tail.len()).collect();
    let head = head.trim_end_matches('-');
    if head.is_empty() { format!("c-{tail}") } else { format!("{head}-{tail}") }
}

fn label(text: &str) -> String {
    let lower: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    lower.trim_matches('-').to_owned()
}

/// 64 bits of FNV-1a in hexadecimal.
pub(crate) fn hash(text: &str) -> String {
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_stable() {
        let uid = "0b5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11";
        assert_eq!(derived("RelationalDatabase", uid), format!("relationaldatabase-{uid}"));
        for name in [
            derived(&"Very".repeat(30), uid),
            derived("x", &"u".repeat(300)),
            derived("", "A b"),
            joined(&"a".repeat(250), "db"),
        ] {
            assert!(name.len() <= 63, "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{name}");
            assert!(!name.starts_with('-') && !name.ends_with('-'), "{name}");
        }
        assert_eq!(joined("db", "bucket"), "db-bucket");
        assert_ne!(joined("a.b", "bucket"), joined("a-b", "bucket"));
        assert_ne!(joined("1a", "bucket"), joined("a", "bucket"));
    }
}
