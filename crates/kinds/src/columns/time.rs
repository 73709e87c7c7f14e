//! When something was, and how long ago that is, for people.

use conductor_machinery::time::{Time, human_duration};
use serde_json::Value;

use crate::value::text;

/// The time at a dotted path, in whole seconds since 1970.
pub(super) fn at(object: &Value, path: &str) -> Option<i64> {
    text(object, path).parse::<Time>().ok().map(|time| time.seconds)
}

/// How long ago the time at a dotted path was.
pub(super) fn since(object: &Value, path: &str, now: i64) -> String {
    at(object, path).map_or_else(|| "<unknown>".to_owned(), |then| ago(then, now))
}

/// The time between two moments, as an age.
pub(super) fn ago(then: i64, now: i64) -> String {
    human_duration(now.saturating_sub(then))
}
