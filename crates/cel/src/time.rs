//! Timestamps and durations, as Go and RFC 3339 write them.

/// Seconds of 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;

/// A point in time between the years 1 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
}

/// A timestamp's parts in some time zone.
pub(crate) struct Civil {
    pub year: i64,
    /// From one.
    pub month: u32,
    /// From one.
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub millis: u32,
    /// From zero.
    pub day_of_year: u32,
    /// Sunday is zero.
    pub weekday: u32,
}

fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = i64::from((month + 9) % 12);
    let doy = (153 * mp + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Timestamp {
    /// From seconds and nanoseconds since 1970; `None` outside the years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (nanos < 1_000_000_000 && (MIN_SECONDS..=MAX_SECONDS).contains(&seconds)).then_some(Self { seconds, nanos })
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    /// Nanoseconds of the second.
    pub fn nanos(&self) -> u32 {
        self.nanos
    }

    /// Reads RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        let b = text.as_bytes();
        if b.len() < 20 || !text.is_ascii() {
            return None;
        }
        let number = |from: usize, to: usize| -> Option<u32> {
            let part = &b[from..to];
            part.iter().all(u8::is_ascii_digit).then(|| part.iter().fold(0, |n, d| n * 10 + u32::from(d - b'0')))
        };
        let sep = |at: usize, c: u8| (b[at] == c).then_some(());
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        sep(4, b'-').and(sep(7, b'-')).and(sep(13, b':')).and(sep(16, b':'))?;
        sep(10, b'T').or(sep(10, b't'))?;
        let valid = (1..=12).contains(&month)
            && day >= 1
            && day <= days_in_month(i64::from(year), month)
            && hour < 24
            && minute < 60
            && second < 60;
        if !valid {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0;
        if b[at] == b'.' {
            let start = at + 1;
            at = start + b[start..].iter().take_while(|c| c.is_ascii_digit()).count();
            if at == start || at == b.len() {
                return None;
            }
            for i in 0..9 {
                let digit = if start + i < at { b[start + i] - b'0' } else { 0 };
                nanos = nanos * 10 + u32::from(digit);
            }
        }
        let offset = match b[at] {
            b'Z' | b'z' if at + 1 == b.len() => 0,
            sign @ (b'+' | b'-') if at + 6 == b.len() && b[at + 3] == b':' => {
                let (h, m) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
                if h > 23 || m > 59 {
                    return None;
                }
                let seconds = i64::from(h * 3600 + m * 60);
                if sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        let days = days_from_civil(i64::from(year), month, day);
        Self::new(days * 86_400 + i64::from(hour * 3600 + minute * 60 + second) - offset, nanos)
    }

    /// As RFC 3339 in UTC, fraction as short as it can be.
    pub fn format(&self) -> String {
        let c = self.civil(0);
        let mut out =
            format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", c.year, c.month, c.day, c.hour, c.minute, c.second);
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            out.push('.');
            out.push_str(fraction.trim_end_matches('0'));
        }
        out.push('Z');
        out
    }

    pub(crate) fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(86_400);
        let time = local.rem_euclid(86_400) as u32;
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
            millis: self.nanos / 1_000_000,
            day_of_year: (days - days_from_civil(year, 1, 1)) as u32,
            weekday: (days + 4).rem_euclid(7) as u32,
        }
    }

    /// The time zone's offset from UTC in seconds at this time: `UTC`, `+02:00`, or a name of the
    /// IANA database (bundled: the result does not depend on the machine).
    pub(crate) fn offset_in(&self, zone: &str) -> Option<i64> {
        if zone.is_empty() || zone.eq_ignore_ascii_case("utc") {
            return Some(0);
        }
        if let Some(colon) = zone.find(':') {
            let (h, m) = (&zone[..colon], &zone[colon + 1..]);
            let negative = h.starts_with('-');
            let hours: i64 = h.trim_start_matches(['+', '-']).parse().ok()?;
            let minutes: i64 = m.parse().ok()?;
            if hours > 23 || !(0..60).contains(&minutes) {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            return Some(if negative { -seconds } else { seconds });
        }
        let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).ok()?;
        let at = jiff::Timestamp::new(self.seconds, self.nanos as i32).ok()?;
        Some(i64::from(zone.to_offset(at).seconds()))
    }

    pub(crate) fn add(&self, nanos: i64) -> Option<Self> {
        let total = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos) + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
        Self::new(seconds, total.rem_euclid(1_000_000_000) as u32)
    }

    pub(crate) fn since(&self, other: &Self) -> Option<i64> {
        let seconds = i128::from(self.seconds) - i128::from(other.seconds);
        let nanos = seconds * 1_000_000_000 + i128::from(self.nanos) - i128::from(other.nanos);
        i64::try_from(nanos).ok()
    }
}

/// Reads a duration as Go writes them: `1h30m`, `-1.5s`, `100us`, `0`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, i128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let whole_len = digits(rest);
        let whole: i128 = if whole_len > 19 { return None } else { rest[..whole_len].parse().unwrap_or(0) };
        rest = &rest[whole_len..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let len = digits(after);
            fraction = &after[..len];
            rest = &after[len..];
        }
        if whole_len == 0 && fraction.is_empty() {
            return None;
        }
        let (unit, nanos) =
            UNITS.iter().find(|(unit, _)| rest.starts_with(unit) && !(*unit == "m" && rest.starts_with("ms")))?;
        rest = &rest[unit.len()..];
        total += whole * nanos;
        let mut scale = *nanos;
        for digit in fraction.bytes().take(18) {
            let part = i128::from(digit - b'0') * scale;
            total += part / 10;
            scale /= 10;
            if scale == 0 {
                break;
            }
        }
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Writes a duration as seconds: `3600s`, `1.5s`.
pub(crate) fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let (seconds, fraction) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    let digits = format!("{fraction:09}");
    format!("{sign}{seconds}.{}s", digits.trim_end_matches('0'))
}
