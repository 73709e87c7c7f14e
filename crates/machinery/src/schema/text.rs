//! Strings of built-in kinds in their canonical form: times, base64.
use std::fmt::Write;

/// The layout of a time in Go's words, as its errors show it.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// The layout of a time in microseconds.
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A moment: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

impl Moment {
    /// What Go calls the zero time: the first day of year 1.
    pub const ZERO: Moment = Moment { seconds: -62_135_596_800, nanos: 0 };

    /// Reads RFC 3339. With `micros`, exactly six digits of a fraction must be there; otherwise any number may.
    pub fn parse(text: &str, micros: bool) -> Result<Moment, String> {
        let mut at = Cursor { text, rest: text, layout: if micros { MICROS } else { SECONDS } };
        let year = at.number(4, "2006")?;
        at.literal("-")?;
        let month = at.number(2, "01")?;
        at.literal("-")?;
        let day = at.number(2, "02")?;
        at.literal("T")?;
        let hour = at.number(2, "15")?;
        at.literal(":")?;
        let minute = at.number(2, "04")?;
        at.literal(":")?;
        let second = at.number(2, "05")?;
        let nanos = at.fraction(micros)?;
        let offset = at.offset()?;
        if !at.rest.is_empty() {
            return Err(format!("parsing time {text:?}: extra text: {:?}", at.rest));
        }
        for (value, low, high, name) in
            [(month, 1, 12, "month"), (hour, 0, 23, "hour"), (minute, 0, 59, "minute"), (second, 0, 59, "second")]
        {
            if value < low || value > high {
                return Err(format!("parsing time {text:?}: {name} out of range"));
            }
        }
        if day < 1 || day > days_in(year, month) {
            return Err(format!("parsing time {text:?}: day out of range"));
        }
        let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
        Ok(Moment { seconds, nanos })
    }

    /// Writes RFC 3339 in UTC, with or without microseconds.
    pub fn format(self, micros: bool) -> String {
        let (days, second) = (self.seconds.div_euclid(86_400), self.seconds.rem_euclid(86_400));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if micros {
            // Writing to a String cannot fail.
            let _ = write!(text, ".{:06}", self.nanos / 1_000);
        }
        text.push('Z');
        text
    }
}

struct Cursor<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Cursor<'a> {
    fn fail<T>(&self, wanted: &str) -> Result<T, String> {
        Err(format!("parsing time {:?} as {:?}: cannot parse {:?} as {wanted:?}", self.text, self.layout, self.rest))
    }

    fn digits(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_digit).count()
    }

    fn number(&mut self, width: usize, wanted: &str) -> Result<i64, String> {
        if self.digits() < width {
            return self.fail(wanted);
        }
        let (number, rest) = self.rest.split_at(width);
        self.rest = rest;
        number.parse().or_else(|_| self.fail(wanted))
    }

    fn literal(&mut self, wanted: &str) -> Result<(), String> {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.fail(wanted),
        }
    }

    fn fraction(&mut self, micros: bool) -> Result<u32, String> {
        let Some(after) =
            self.rest.strip_prefix(['.', ',']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        else {
            return if micros { self.fail(".000000") } else { Ok(0) };
        };
        let width = after.bytes().take_while(u8::is_ascii_digit).count();
        if micros && width < 6 {
            return self.fail(".000000");
        }
        let width = if micros { 6 } else { width };
        let (digits, rest) = after.split_at(width);
        self.rest = rest;
        // Nine digits are all that nanoseconds have; the rest is cut, as in Go.
        let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9).fold(0, |n, d| n * 10 + u32::from(d - b'0'));
        Ok(nanos)
    }

    /// `Z` or `+07:00`, in seconds.
    fn offset(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let shaped = bytes.len() >= 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|&at| bytes[at].is_ascii_digit());
        if !shaped {
            return self.fail("Z07:00");
        }
        let two = |at: usize| i64::from(bytes[at] - b'0') * 10 + i64::from(bytes[at + 1] - b'0');
        let (hours, minutes, negative) = (two(1), two(4), bytes[0] == b'-');
        if hours > 24 || minutes > 60 {
            return Err(format!("parsing time {:?}: time zone offset out of range", self.text));
        }
        self.rest = &self.rest[6..];
        let offset = hours * 3_600 + minutes * 60;
        Ok(if negative { -offset } else { offset })
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counted in eras of 400 years that begin in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// Decodes standard base64 with padding; line breaks are skipped, as in Go. The error is the position Go names.
pub(super) fn from_base64(text: &str) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count, mut padding) = (0u32, 0u8, 0u8);
    for (at, byte) in text.bytes().enumerate() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'\r' | b'\n' => continue,
            b'=' if count >= 2 && padding < 4 - count => {
                padding += 1;
                continue;
            }
            _ => return Err(at),
        };
        if padding > 0 || (count == 4 && out.is_empty()) {
            return Err(at);
        }
        bits = bits << 6 | u32::from(six);
        count += 1;
        if count == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, count) = (0, 0);
        }
    }
    match (count, padding) {
        (0, 0) => {}
        (2, 2) => out.push((bits >> 4) as u8),
        (3, 1) => out.extend_from_slice(&[(bits >> 10) as u8, (bits >> 2) as u8]),
        _ => return Err(text.len()),
    }
    Ok(out)
}

/// Encodes standard base64 with padding.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place)) & 63;
            out.push(if place <= chunk.len() { ALPHABET[six as usize] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, micros: bool, expect: Result<&str, &str>) {
        let got = Moment::parse(text, micros).map(|moment| moment.format(micros));
        match expect {
            Ok(expect) => assert_eq!(got.as_deref(), Ok(expect), "{text}"),
            Err(part) => assert!(got.as_ref().is_err_and(|error| error.contains(part)), "{text}: {got:?}"),
        }
    }

    #[test]
    fn times_are_read_and_written_as_go_does() {
        check("2026-01-02T03:04:05Z", false, Ok("2026-01-02T03:04:05Z"));
        check("2026-01-02T03:04:05.999Z", false, Ok("2026-01-02T03:04:05Z"));
        check("2026-01-02T03:04:05+02:00", false, Ok("2026-01-02T01:04:05Z"));
        check("2024-02-29T23:59:59-01:30", false, Ok("2024-03-01T01:29:59Z"));
        check("1969-12-31T23:59:59Z", false, Ok("1969-12-31T23:59:59Z"));
        check("2026-01-02T03:04:05.000123Z", true, Ok("2026-01-02T03:04:05.000123Z"));
        check("2026-01-02T03:04:05Z", true, Err("cannot parse \"Z\" as \".000000\""));
        check("yesterday", false, Err("cannot parse \"yesterday\" as \"2006\""));
        check("2026-13-02T03:04:05Z", false, Err("month out of range"));
        check("2023-02-29T03:04:05Z", false, Err("day out of range"));
        check("2026-01-02T03:04:05", false, Err("cannot parse \"\" as \"Z07:00\""));
        check("2026-01-02T03:04:05Zx", false, Err("extra text"));
        assert_eq!(Moment::parse("0001-01-01T00:00:00Z", false), Ok(Moment::ZERO));
    }

    #[test]
    fn base64_errors_name_the_position() {
        for (text, expect) in
            [("YQ==", Ok(b"a".to_vec())), ("YWI=\n", Ok(b"ab".to_vec())), ("Y!", Err(1)), ("", Ok(vec![]))]
        {
            assert_eq!(from_base64(text), expect, "{text}");
        }
        assert!(from_base64("YQ=").is_err());
        assert!(from_base64("YQ==YQ==").is_err());
        assert!(from_base64("YQ===").is_err());
    }

    proptest! {
        #[test]
        fn base64_round_trips(bytes: Vec<u8>) {
            prop_assert_eq!(from_base64(&to_base64(&bytes)), Ok(bytes));
        }

        #[test]
        fn moments_round_trip(seconds in -62_135_596_800i64..253_402_300_799) {
            let moment = Moment { seconds, nanos: 0 };
            prop_assert_eq!(Moment::parse(&moment.format(false), false), Ok(moment));
        }
    }
}
