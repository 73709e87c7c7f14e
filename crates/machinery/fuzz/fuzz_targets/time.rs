//! Times and durations: what is written can be read again.
#![no_main]

use conductor_machinery::time::{Duration, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(time) = text.parse::<Time>() {
        assert_eq!(time.to_string().parse(), Ok(Time { nanos: 0, ..time }));
    }
    if let Ok(duration) = text.parse::<Duration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration));
    }
});
