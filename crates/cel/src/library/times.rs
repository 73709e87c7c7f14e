//! Parts of timestamps and durations.

use super::{Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::time::Civil;
use crate::value::Value;

const DATE: &[(&str, &str)] =
    &[("timestamp_part", "timestamp.() -> int"), ("timestamp_part_with_tz", "timestamp.(string) -> int")];
const TIME: &[(&str, &str)] = &[
    ("timestamp_part", "timestamp.() -> int"),
    ("timestamp_part_with_tz", "timestamp.(string) -> int"),
    ("duration_part", "duration.() -> int"),
];

pub(crate) const DECLS: &[Decl] = &[
    Decl { name: "getFullYear", overloads: DATE, cost: Cost::One, code: |_, a| date(a, |c| c.year) },
    Decl { name: "getMonth", overloads: DATE, cost: Cost::One, code: |_, a| date(a, |c| i64::from(c.month) - 1) },
    Decl { name: "getDayOfYear", overloads: DATE, cost: Cost::One, code: |_, a| date(a, |c| i64::from(c.day_of_year)) },
    Decl { name: "getDayOfMonth", overloads: DATE, cost: Cost::One, code: |_, a| date(a, |c| i64::from(c.day) - 1) },
    Decl { name: "getDate", overloads: DATE, cost: Cost::One, code: |_, a| date(a, |c| i64::from(c.day)) },
    Decl { name: "getDayOfWeek", overloads: DATE, cost: Cost::One, code: |_, a| date(a, |c| i64::from(c.weekday)) },
    Decl {
        name: "getHours",
        overloads: TIME,
        cost: Cost::One,
        code: |_, a| time(a, |d| d / 3_600_000_000_000, |c| i64::from(c.hour)),
    },
    Decl {
        name: "getMinutes",
        overloads: TIME,
        cost: Cost::One,
        code: |_, a| time(a, |d| d / 60_000_000_000, |c| i64::from(c.minute)),
    },
    Decl {
        name: "getSeconds",
        overloads: TIME,
        cost: Cost::One,
        code: |_, a| time(a, |d| d / 1_000_000_000, |c| i64::from(c.second)),
    },
    Decl {
        name: "getMilliseconds",
        overloads: TIME,
        cost: Cost::One,
        code: |_, a| time(a, |d| d / 1_000_000, |c| i64::from(c.millis)),
    },
];

fn date<'a>(args: &[Value<'a>], part: fn(&Civil) -> i64) -> Outcome<'a> {
    let (timestamp, zone) = match args {
        [Value::Timestamp(t)] => (t, ""),
        [Value::Timestamp(t), Value::String(zone)] => (t, &**zone),
        _ => return Err(EvalError::overload("timestamp part")),
    };
    match timestamp.offset_in(zone) {
        Some(offset) => Ok(Value::Int(part(&timestamp.civil(offset)))),
        None => Err(EvalError::failed(format!("unknown time zone {zone}"))),
    }
}

fn time<'a>(args: &[Value<'a>], of_duration: fn(i64) -> i64, of_civil: fn(&Civil) -> i64) -> Outcome<'a> {
    match args {
        [Value::Duration(d)] => Ok(Value::Int(of_duration(*d))),
        _ => date(args, of_civil),
    }
}
