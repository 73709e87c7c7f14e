use proptest::prelude::*;

use super::*;

#[test]
fn times_are_parsed() {
    for (text, seconds, nanos) in [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("2026-11-15T08:30:00Z", 1_794_731_400, 0),
        ("2024-02-29T23:59:59.5Z", 1_709_251_199, 500_000_000),
        ("2026-01-01T00:00:00+02:00", 1_767_218_400, 0),
        ("2026-01-01T00:00:00-00:30", 1_767_227_400, 0),
        ("1969-12-31T23:59:59.123456789123Z", -1, 123_456_789),
        ("0001-01-01T00:00:00Z", -62_135_596_800, 0),
        ("9999-12-31T23:59:59Z", 253_402_300_799, 0),
    ] {
        assert_eq!(text.parse(), Ok(Time { seconds, nanos }), "{text}");
    }
    for text in [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00z",
        "2026-01-01T00:00:00+0100",
        "2026-01-01T00:00:00Zx",
        "-026-01-01T00:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "2026-01-01T00:00:00+ä0:00",
    ] {
        assert!(text.parse::<Time>().is_err(), "{text}");
    }
}

#[test]
fn durations() {
    for (text, expected) in [
        ("0", "0s"),
        ("1h", "1h0m0s"),
        ("90m", "1h30m0s"),
        ("1.5h", "1h30m0s"),
        ("-1m30s", "-1m30s"),
        ("+5s", "5s"),
        ("1h2m3.5s", "1h2m3.5s"),
        ("100ms", "100ms"),
        ("1500us", "1.5ms"),
        ("1µs", "1µs"),
        ("10ns", "10ns"),
        (".5s", "500ms"),
        ("1.s", "1s"),
        ("0.3333333333333333333h", "20m0s"),
        ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
    ] {
        assert_eq!(text.parse::<Duration>().map(|duration| duration.to_string()), Ok(expected.to_owned()), "{text}");
    }
    for text in ["", "1", "-", ".", "1x", "s", "1d", "1 s", "3000000h", "9223372036854775808ns", ".s", "1m-5s"] {
        assert!(text.parse::<Duration>().is_err(), "{text}");
    }
}

#[test]
fn ages() {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    for (seconds, expected, short) in [
        (-2, "<invalid>", "<invalid>"),
        (-1, "0s", "0s"),
        (0, "0s", "0s"),
        (119, "119s", "1m"),
        (120, "2m", "2m"),
        (123, "2m3s", "2m"),
        (10 * MINUTE + 1, "10m", "10m"),
        (179 * MINUTE, "179m", "2h"),
        (3 * HOUR, "3h", "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m", "3h"),
        (8 * HOUR + MINUTE, "8h", "8h"),
        (47 * HOUR, "47h", "1d"),
        (2 * DAY, "2d", "2d"),
        (3 * DAY + 4 * HOUR, "3d4h", "3d"),
        (8 * DAY + HOUR, "8d", "8d"),
        (729 * DAY, "729d", "1y"),
        (730 * DAY, "2y", "2y"),
        (765 * DAY, "2y35d", "2y"),
        (9 * 365 * DAY, "9y", "9y"),
    ] {
        assert_eq!((human_duration(seconds), short_human_duration(seconds)), (expected.to_owned(), short.to_owned()));
    }
    let time = |seconds, nanos| Time { seconds, nanos };
    assert_eq!(time(10, 0).age(time(15, 1)), "5s");
    assert_eq!(time(10, 2).age(time(15, 1)), "4s");
}

proptest! {
    #[test]
    fn times_survive_writing(seconds in RANGE, nanos in 0u32..1_000_000) {
        let time = Time { seconds, nanos: nanos * 1000 };
        prop_assert_eq!(time.to_micro().parse(), Ok(time));
        prop_assert_eq!(time.to_string().parse(), Ok(Time { nanos: 0, ..time }));
    }

    #[test]
    fn durations_survive_writing(nanos: i64) {
        prop_assert_eq!(Duration(nanos).to_string().parse(), Ok(Duration(nanos)));
    }

    #[test]
    fn no_text_panics(text in "[0-9TZ:.+hmsµn-]{0,30}|\\PC{0,30}") {
        let _ = (text.parse::<Time>(), text.parse::<Duration>());
    }
}
