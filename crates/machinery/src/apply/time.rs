//! RFC 3339 times of managedFields entries: whole seconds, UTC.

/// Seconds since 1970 of a time.
pub(crate) fn seconds(time: &str) -> Option<i64> {
    let bytes = time.as_bytes();
    let digits = |from: usize, to: usize| -> Option<i64> {
        let part = bytes.get(from..to)?;
        part.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    };
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, separator)| bytes.get(*at) != Some(separator)) {
        return None;
    }
    if !matches!(bytes.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = 19;
    if bytes.get(rest) == Some(&b'.') {
        rest += 1;
        while bytes.get(rest).is_some_and(u8::is_ascii_digit) {
            rest += 1;
        }
    }
    let offset = match bytes.get(rest)? {
        b'Z' | b'z' if bytes.len() == rest + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == rest + 6 && bytes[rest + 3] == b':' => {
            let minutes = digits(rest + 1, rest + 3)? * 60 + digits(rest + 4, rest + 6)?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset * 60)
}

/// Days since 1970 of a date of the Gregorian calendar, counted in eras of 400 years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The canonical form of a time: `2026-01-02T03:04:05Z`; none if it is no time.
pub(crate) fn normal(time: String) -> Option<String> {
    let at = seconds(&time)?;
    if time.len() == 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z') {
        return Some(time);
    }
    let (days, of_day) = (at.div_euclid(86_400) + 719_468, at.rem_euclid(86_400));
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}
