//! The time, as objects write it.

use std::time::{SystemTime, UNIX_EPOCH};

use conductor_machinery::time::Time;

fn since() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Now, to the second.
pub fn now() -> String {
    Time::new(since().as_secs() as i64, 0).map(|t| t.to_string()).unwrap_or_default()
}

/// Now, to the microsecond, as Leases write it.
pub fn now_micro() -> String {
    let since = since();
    Time::new(since.as_secs() as i64, since.subsec_nanos()).map(Time::to_micro).unwrap_or_default()
}

/// Microseconds since 1970.
pub fn micro_now() -> u128 {
    since().as_micros()
}
