//! The time by which spans are measured that outlive a process.
//!
//! It is the time of day when this process began, and goes on from there by itself: somebody who sets the clock neither ends a span nor
//! makes one last. What was written before the clock was set back is for who reads it to bound.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

static BEGAN: LazyLock<(u64, Instant)> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), Instant::now())
});

/// Seconds since 1970, which never go back and never jump while this process lives.
pub fn seconds() -> i64 {
    let (began, at) = *BEGAN;
    i64::try_from(began.saturating_add(at.elapsed().as_secs())).unwrap_or(i64::MAX)
}
