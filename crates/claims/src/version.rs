//! Versions and version ranges: a resource says `5.6`, a claim says `>= 5.6`.
//!
//! A range compares by as many parts as it writes: `5.6` and `<= 5.6` take 5.6.12, `> 5.6` does not. Alternatives are separated by `||`,
//! conditions that must all hold by spaces or commas.

use std::cmp::Ordering;
use std::fmt;

const MAX_TEXT: usize = 256;
const MAX_CONDITIONS: usize = 32;

/// A version as it was written, with its numeric parts for comparison.
///
/// `v8.0.1-rc2` has the parts 8, 0, 1 and the pre-release `rc2`, which sorts before 8.0.1. A text that does not begin with a number
/// (`latest`) equals only itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    text: String,
    parts: Vec<u64>,
    pre: String,
}

/// Why a text is not a version range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Longer than any sensible range.
    #[error("a version range has at most {MAX_TEXT} characters and {MAX_CONDITIONS} conditions")]
    TooLong,
    /// A condition lacks its version, or the whole range is empty.
    #[error("{0:?} is not a version range: write for example \">= 5.6\", \"5.x\", \"~> 5.6\" or \">=5.6 <8\"")]
    Form(String),
}

impl Version {
    /// Reads a version; every text is one.
    pub fn parse(text: &str) -> Version {
        let text: String = text.trim().chars().take(MAX_TEXT).collect();
        let bare = text.strip_prefix(['v', 'V']).unwrap_or(&text);
        let (bare, _build) = bare.split_once('+').unwrap_or((bare, ""));
        let (release, pre) = bare.split_once(['-', '~']).unwrap_or((bare, ""));
        let mut parts = Vec::new();
        let mut pre = pre.to_owned();
        for part in release.split('.') {
            match part.parse::<u64>() {
                Ok(number) if part.bytes().all(|b| b.is_ascii_digit()) => parts.push(number),
                _ if parts.is_empty() => return Version { text, parts, pre: String::new() },
                _ => {
                    // 8.0.rc1: what follows the numbers is a pre-release
                    pre = if pre.is_empty() { part.to_owned() } else { format!("{part}-{pre}") };
                    break;
                }
            }
        }
        Version { text, parts, pre }
    }

    /// The version as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn part(&self, index: usize) -> u64 {
        self.parts.get(index).copied().unwrap_or(0)
    }

    /// Order among versions; missing parts count as zero, a pre-release comes before its release.
    pub fn order(&self, other: &Version) -> Ordering {
        let length = self.parts.len().max(other.parts.len());
        self.prefix_order(other, length)
            .then_with(|| pre_order(&self.pre, &other.pre))
            .then_with(|| if self.parts.is_empty() { self.text.cmp(&other.text) } else { Ordering::Equal })
    }

    fn prefix_order(&self, other: &Version, length: usize) -> Ordering {
        (0..length).map(|i| self.part(i).cmp(&other.part(i))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Order by as many parts as `bound` writes.
    fn order_by(&self, bound: &Version) -> Ordering {
        self.prefix_order(bound, bound.parts.len()).then_with(|| {
            if bound.pre.is_empty() && self.prefix_order(bound, self.parts.len()).is_ne() {
                Ordering::Equal
            } else {
                pre_order(&self.pre, &bound.pre)
            }
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Pre-releases compare identifier by identifier, numbers as numbers; none at all comes last.
fn pre_order(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => match (x.parse::<u64>(), y.parse::<u64>()) {
                (Ok(x), Ok(y)) => x.cmp(&y),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => x.cmp(y),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Condition {
    Any,
    Like(Version),
    Unlike(Version),
    Below(Version),
    AtMost(Version),
    Above(Version),
    /// At least the version, and the first `fixed` parts equal to it.
    From(Version, usize),
}

/// A set of versions, as a claim writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionRange {
    text: String,
    alternatives: Vec<Vec<Condition>>,
}

impl VersionRange {
    /// Reads a range.
    pub fn parse(text: &str) -> Result<VersionRange, RangeError> {
        let text = text.trim();
        if text.len() > MAX_TEXT {
            return Err(RangeError::TooLong);
        }
        let mut alternatives = Vec::new();
        let mut total = 0;
        for alternative in text.split("||") {
            let mut conditions = Vec::new();
            let mut rest = alternative.trim_start_matches([' ', ',', '\t']);
            while !rest.is_empty() {
                let (condition, after) = condition(rest).ok_or_else(|| RangeError::Form(text.to_owned()))?;
                conditions.push(condition);
                total += 1;
                rest = after.trim_start_matches([' ', ',', '\t']);
            }
            // several words, of which one is no number, are no range that anything could be in
            let word = |c: &Condition| matches!(c, Condition::Like(bound) if bound.parts.is_empty());
            if conditions.is_empty() || (conditions.len() > 1 && conditions.iter().any(word)) {
                return Err(RangeError::Form(text.to_owned()));
            }
            alternatives.push(conditions);
        }
        if total > MAX_CONDITIONS {
            return Err(RangeError::TooLong);
        }
        Ok(VersionRange { text: text.to_owned(), alternatives })
    }

    /// The range as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the version is in the range.
    pub fn contains(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|all| all.iter().all(|c| c.holds(version)))
    }

    /// The highest of some versions that is in the range.
    pub fn highest<'v>(&self, versions: impl IntoIterator<Item = &'v Version>) -> Option<&'v Version> {
        versions.into_iter().filter(|v| self.contains(v)).max_by(|a, b| a.order(b))
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    fn holds(&self, version: &Version) -> bool {
        match self {
            Condition::Any => true,
            Condition::Like(bound) => like(version, bound),
            Condition::Unlike(bound) => !like(version, bound),
            _ if version.parts.is_empty() => false,
            Condition::Below(bound) => version.order_by(bound).is_lt(),
            Condition::AtMost(bound) => version.order_by(bound).is_le(),
            Condition::Above(bound) => version.order_by(bound).is_gt(),
            Condition::From(bound, fixed) => {
                version.order_by(bound).is_ge() && version.prefix_order(bound, *fixed).is_eq()
            }
        }
    }
}

fn like(version: &Version, bound: &Version) -> bool {
    if bound.parts.is_empty() || version.parts.is_empty() {
        return version.text == bound.text;
    }
    version.order_by(bound).is_eq()
}

/// Reads one condition off the front of a text.
fn condition(text: &str) -> Option<(Condition, &str)> {
    let operator = ["~>", ">=", "<=", "==", "!=", ">", "<", "=", "~", "^"].into_iter().find(|o| text.starts_with(o));
    let rest = operator.map_or(text, |o| &text[o.len()..]).trim_start();
    let end = rest.find([' ', ',', '\t', '<', '>', '=', '!']).unwrap_or(rest.len());
    let (word, rest) = rest.split_at(end);
    if word.is_empty() {
        return None;
    }
    // 5.x, 5.* and 5 mean the same
    let mut stem = word;
    while let Some(shorter) = [".x", ".X", ".*"].iter().find_map(|w| stem.strip_suffix(w)) {
        stem = shorter;
    }
    if ["x", "X", "*"].contains(&stem) {
        return matches!(operator, None | Some("=" | "==" | ">=")).then_some((Condition::Any, rest));
    }
    let version = Version::parse(stem);
    let numeric = !version.parts.is_empty();
    let length = version.parts.len();
    let condition = match operator {
        None | Some("=" | "==") => Condition::Like(version),
        Some("!=") => Condition::Unlike(version),
        _ if !numeric => return None,
        Some(">=") => Condition::From(version, 0),
        Some(">") => Condition::Above(version),
        Some("<") => Condition::Below(version),
        Some("<=") => Condition::AtMost(version),
        // the last part written may grow
        Some("~>") => Condition::From(version, length.saturating_sub(1).max(1)),
        Some("~") => Condition::From(version, length.min(2)),
        // nothing left of the first part that is not zero may change
        Some("^") => {
            let fixed = version.parts.iter().position(|p| *p != 0).map_or(length, |p| p + 1);
            Condition::From(version, fixed)
        }
        Some(_) => return None,
    };
    Some((condition, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(range: &str, inside: &[&str], outside: &[&str]) {
        let read = VersionRange::parse(range).unwrap_or_else(|e| panic!("{range}: {e}"));
        for version in inside {
            assert!(read.contains(&Version::parse(version)), "{range} takes {version}");
        }
        for version in outside {
            assert!(!read.contains(&Version::parse(version)), "{range} refuses {version}");
        }
    }

    #[test]
    fn ranges() {
        check(">= 5.6", &["5.6", "5.6.1", "5.10", "8.0", "v6"], &["5.5", "5", "5.6-rc1", "latest"]);
        check("5.x", &["5", "5.0", "5.99.1"], &["4.9", "6"]);
        check("5.6.*", &["5.6", "5.6.40"], &["5.7"]);
        check("~> 5.6", &["5.6", "5.7"], &["5.5", "6.0"]);
        check("~> 5.6.1", &["5.6.1", "5.6.9"], &["5.6.0", "5.7"]);
        check("~5.6", &["5.6.3"], &["5.7"]);
        check("^5.6", &["5.6", "5.99"], &["5.5", "6"]);
        check("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2"]);
        check(">=5.6 <8", &["5.6", "7.9"], &["8.0", "5.5", "8"]);
        check(">=5.6,<8", &["7"], &["8"]);
        check(">=5.6<8", &["7"], &["8"]);
        check("5.6 || 8.0", &["5.6", "5.6.2", "8.0.33"], &["5.7", "8.1"]);
        check("5.6", &["5.6", "5.6.1"], &["5.10", "5.60", "5"]);
        check("5.1", &["5.1"], &["5.10"]);
        check("> 5.6", &["5.7"], &["5.6.1", "5.6"]);
        check("<= 5.6", &["5.6.1", "5.5"], &["5.7"]);
        check("!= 5.7", &["5.6", "latest"], &["5.7.1"]);
        check("*", &["1", "latest"], &[]);
        check("latest", &["latest"], &["1"]);
    }

    #[test]
    fn what_is_no_range() {
        for text in ["", " ", ">=", "5.6 ||", ">= latest", "~> *", "||"] {
            assert!(VersionRange::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(VersionRange::parse(&"1 ".repeat(200)), Err(RangeError::TooLong));
    }

    #[test]
    fn order() {
        let sorted = ["5.1", "5.6", "5.10-rc1", "5.10-rc.2", "5.10", "8.0.1"];
        for pair in sorted.windows(2) {
            assert!(
                Version::parse(pair[0]).order(&Version::parse(pair[1])).is_lt() || pair[0].contains("rc1"),
                "{pair:?}"
            );
        }
        let offered = ["5.6", "5.10", "8.0", "5.7"].map(Version::parse);
        let highest = VersionRange::parse("5.x").expect("range");
        assert_eq!(highest.highest(&offered).map(Version::text), Some("5.10"));
    }
}
