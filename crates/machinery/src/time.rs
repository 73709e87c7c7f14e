//! Times and durations as the API writes them. There is no clock here: times come in as numbers.

use std::fmt;
use std::str::FromStr;

/// Why a text is no time or duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// A moment: seconds since 1970 in UTC, and nanoseconds into that second.
///
/// ```
/// use conductor_machinery::time::Time;
/// let time: Time = "2026-01-02T03:04:05.678+01:00".parse().unwrap();
/// assert_eq!(time.to_string(), "2026-01-02T02:04:05Z");
/// assert_eq!(time.to_micro(), "2026-01-02T02:04:05.678000Z");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970 in UTC.
    pub seconds: i64,
    /// Nanoseconds, below a thousand million.
    pub nanos: u32,
}

/// The first and the last second that RFC 3339 can write: the years 0000 to 9999.
const RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

impl Time {
    /// A moment; `None` if it cannot be written.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (RANGE.contains(&seconds) && nanos < 1_000_000_000).then_some(Time { seconds, nanos })
    }

    /// With six digits of a second, as leases and events have it.
    pub fn to_micro(self) -> String {
        let text = self.to_string();
        format!("{}.{:06}Z", text.trim_end_matches('Z'), self.nanos / 1000)
    }

    /// How long after `earlier` it is, in whole seconds.
    pub fn seconds_since(self, earlier: Time) -> i64 {
        let borrow = i64::from(self.nanos < earlier.nanos);
        self.seconds - earlier.seconds - borrow
    }

    /// How long ago it was at `now`, as tables show it.
    pub fn age(self, now: Time) -> String {
        human_duration(now.seconds_since(self))
    }
}

impl fmt::Display for Time {
    /// In whole seconds, as most of the API has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.seconds.div_euclid(86_400));
        let second = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Year, month and day of a day counted from 1970-01-01. Years begin in March here, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl FromStr for Time {
    type Err = ParseError;

    /// Parses RFC 3339. A fraction may have any number of digits; those below a nanosecond are dropped.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad = |why: &str| {
            let quoted = crate::field::quote(text);
            ParseError(format!("parsing time {quoted}{why}: write it as \"2006-01-02T15:04:05Z\""))
        };
        if text.len() > 64 || !text.is_ascii() || text.len() < 20 {
            return Err(bad(" as RFC 3339"));
        }
        let number = |from: usize, length: usize| -> Option<i64> {
            let digits = text.get(from..from + length)?;
            digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let mark = |at: usize, mark: u8| text.as_bytes().get(at) == Some(&mark);
        let parts = (number(0, 4), number(5, 2), number(8, 2), number(11, 2), number(14, 2), number(17, 2));
        let (Some(year), Some(month), Some(day), Some(hour), Some(minute), Some(second)) = parts else {
            return Err(bad(" as RFC 3339"));
        };
        if !(mark(4, b'-') && mark(7, b'-') && mark(10, b'T') && mark(13, b':') && mark(16, b':')) {
            return Err(bad(" as RFC 3339"));
        }
        for (value, range, name) in [
            (month, 1..=12, "month"),
            (day, 1..=days_in_month(year, month), "day"),
            (hour, 0..=23, "hour"),
            (minute, 0..=59, "minute"),
            (second, 0..=59, "second"),
        ] {
            if !range.contains(&value) {
                return Err(bad(&format!(": {name} out of range")));
            }
        }
        let (fraction, zone) = match text[19..].strip_prefix(['.', ',']) {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", &text[19..]),
        };
        if fraction.is_empty() && text.len() - zone.len() != 19 {
            return Err(bad(" as RFC 3339"));
        }
        let nanos = format!("{fraction:0<9}")[..9].parse().map_err(|_| bad(" as RFC 3339"))?;
        let offset = match zone.as_bytes() {
            b"Z" => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let at = text.len() - 6;
                let (Some(hours), Some(minutes)) = (number(at + 1, 2), number(at + 4, 2)) else {
                    return Err(bad(" as RFC 3339"));
                };
                if hours > 24 || minutes > 60 {
                    return Err(bad(": time zone offset out of range"));
                }
                let offset = hours * 3600 + minutes * 60;
                if *sign == b'-' { -offset } else { offset }
            }
            _ => return Err(bad(" as RFC 3339")),
        };
        let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Time::new(seconds, nanos).ok_or_else(|| bad(": year outside of range [0,9999]"))
    }
}

/// A length of time in nanoseconds, read and written as Go does: `1h0m0s`, `1.5s`.
///
/// ```
/// use conductor_machinery::time::Duration;
/// assert_eq!("90m".parse::<Duration>().unwrap().to_string(), "1h30m0s");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

impl Duration {
    /// Whole seconds, rounded towards zero.
    pub fn seconds(self) -> i64 {
        self.0 / 1_000_000_000
    }
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl FromStr for Duration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let quoted = || crate::field::quote(text);
        let invalid = || ParseError(format!("time: invalid duration {}", quoted()));
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Duration(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        // One more than the largest is fine if it is negative.
        const LIMIT: u128 = 1 << 63;
        let mut total: u128 = 0;
        while !rest.is_empty() {
            let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
            let (whole, after) = rest.split_at(digits(rest));
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => after.split_at(digits(after)),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let length = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (name, after) = after.split_at(length);
            if name.is_empty() {
                return Err(ParseError(format!("time: missing unit in duration {}", quoted())));
            }
            let Some((_, nanos)) = UNITS.iter().find(|(unit, _)| *unit == name) else {
                let name = crate::field::quote(name);
                return Err(ParseError(format!("time: unknown unit {name} in duration {}", quoted())));
            };
            let unit = u128::from(*nanos);
            let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
            let part = u128::from(fraction_of(fraction, *nanos));
            total = whole.checked_mul(unit).and_then(|whole| total.checked_add(whole)).ok_or_else(invalid)? + part;
            if total > LIMIT {
                return Err(invalid());
            }
            rest = after;
        }
        match (negative, i64::try_from(total)) {
            (true, Ok(nanos)) => Ok(Duration(-nanos)),
            (true, Err(_)) => Ok(Duration(i64::MIN)),
            (false, Ok(nanos)) => Ok(Duration(nanos)),
            (false, Err(_)) => Err(invalid()),
        }
    }
}

/// A fraction of a unit in nanoseconds, computed as Go computes it, in floats, so that `0.3333333333333333333h` is twenty
/// minutes here as well.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0u64, 1f64);
    for digit in digits.bytes() {
        // Further digits are below a nanosecond in any unit.
        if value > i64::MAX as u64 / 10 {
            break;
        }
        value = value * 10 + u64::from(digit - b'0');
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (unit, name) = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let (mut whole, fraction) = (nanos / unit, nanos % unit);
        if name == "s" {
            if whole >= 3600 {
                write!(f, "{}h", whole / 3600)?;
            }
            if whole >= 60 {
                write!(f, "{}m", whole / 60 % 60)?;
            }
            whole %= 60;
        }
        write!(f, "{whole}")?;
        if fraction > 0 {
            let width = unit.ilog10() as usize;
            write!(f, ".{}", format!("{fraction:0width$}").trim_end_matches('0'))?;
        }
        f.write_str(name)
    }
}

/// Seconds as tables show an age: `5s`, `2m3s`, `3h`, `4d5h`, `2y35d`. Two or three digits of precision.
pub fn human_duration(seconds: i64) -> String {
    let two = |large: i64, large_unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, 'd', hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

/// Seconds in one unit: `5s`, `2m`, `3h`, `4d`, `2y`.
pub fn short_human_duration(seconds: i64) -> String {
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ if seconds < 86_400 * 365 => format!("{}d", seconds / 86_400),
        _ => format!("{}y", seconds / 86_400 / 365),
    }
}

#[cfg(test)]
mod tests;
