//! Schedules of CronJobs: five fields, or a name such as `@daily`.

/// The range of each field: minute, hour, day of the month, month, day of the week.
const RANGES: [(u32, u32); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// What is wrong with a schedule, if anything.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let mut text = schedule;
    if let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        text = rest.split_once(' ').map_or("", |(_, rest)| rest).trim_start();
    }
    if let Some(name) = text.strip_prefix('@') {
        return match name {
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => Ok(()),
            _ if name.strip_prefix("every ").is_some_and(is_duration) => Ok(()),
            _ => Err(format!("unrecognized descriptor: @{name}")),
        };
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != RANGES.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (index, field) in fields.iter().enumerate() {
        for part in field.split(',') {
            range(part, index)?;
        }
    }
    Ok(())
}

fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if digits.len() == rest.len() {
            return false;
        }
        let unit = ["ns", "us", "µs", "ms", "h", "m", "s"].iter().find_map(|unit| digits.strip_prefix(unit));
        let Some(after) = unit else { return false };
        rest = after;
    }
    !text.is_empty()
}

fn number(text: &str, index: usize) -> Result<u32, String> {
    let names: &[&str] = match index {
        3 => &MONTHS,
        4 => &DAYS,
        _ => &[],
    };
    let lower = text.to_lowercase();
    if let Some(position) = names.iter().position(|name| *name == lower) {
        return Ok(position as u32 + if index == 3 { 1 } else { 0 });
    }
    text.parse().map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
}

fn range(part: &str, index: usize) -> Result<(), String> {
    let (low, high) = RANGES[index];
    let (span, step) = match part.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {part}")),
        Some((span, step)) => (span, Some(step)),
        None => (part, None),
    };
    let (start, end) = match span.split_once('-') {
        _ if matches!(span, "*" | "?") => (low, high),
        Some((_, end)) if end.contains('-') => return Err(format!("too many hyphens: {part}")),
        Some((start, end)) => (number(start, index)?, number(end, index)?),
        None => {
            let start = number(span, index)?;
            (start, if step.is_some() { high } else { start })
        }
    };
    if let Some(step) = step
        && number(step, 0)? == 0
    {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    if start < low {
        return Err(format!("beginning of range ({start}) below minimum ({low}): {part}"));
    }
    if end > high {
        return Err(format!("end of range ({end}) above maximum ({high}): {part}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules_have_five_fields_in_range() {
        for fine in ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "0 0 ? * 0", "@daily", "@every 1h30m", "TZ=UTC 0 0 * * *"]
        {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for bad in ["", "* * * *", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "@never", "a * * * *"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
