//! When something was, and how long ago that is, for people.

use serde_json::Value;

use crate::value::text;

/// The time at a dotted path, in whole seconds since 1970.
pub(super) fn at(object: &Value, path: &str) -> Option<i64> {
    parse(text(object, path))
}

/// How long ago the time at a dotted path was.
pub(super) fn since(object: &Value, path: &str, now: i64) -> String {
    at(object, path).map_or_else(|| "<unknown>".to_owned(), |then| ago(then, now))
}

/// The time between two moments with two or three significant figures, as `kubectl` shows an age: `59s`, `3m20s`, `5d2h`.
pub(super) fn ago(then: i64, now: i64) -> String {
    let seconds = now.saturating_sub(then);
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |big: i64, unit: &str, small: i64, part: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{part}"),
    };
    match () {
        // Clocks may differ by a second.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 120 => format!("{}s", seconds.max(0)),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

/// Whole seconds since 1970 of an RFC 3339 time.
fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (clock, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let zone = rest.strip_prefix('.').map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let offset = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), offset) => {
            let (hours, minutes) = offset.split_once(':')?;
            let minutes = hours.parse::<u8>().ok()? as i64 * 60 + minutes.parse::<u8>().ok()? as i64;
            if sign == "+" { minutes } else { -minutes }
        }
        _ => return None,
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days are counted in eras of 400 years that begin in March.
    let shifted = year - i64::from(month <= 2);
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second)
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| part.parse::<u16>().ok().map(i64::from));
    Some([parts.next()??, parts.next()??, parts.next()??])
}
