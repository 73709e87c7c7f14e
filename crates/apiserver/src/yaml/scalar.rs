//! What a scalar of a YAML text is: go-yaml v2's rules, which are nearly those of YAML 1.1.

use serde_json::{Number, Value};

/// What a scalar says it is by its tag, or is by its notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without a tag and quotes: whatever it looks like.
    Open,
    Null,
    Bool,
    Int,
    Float,
    Timestamp,
    Binary,
    /// Quoted, or of a tag that means nothing here.
    Text,
}

impl Kind {
    /// By the tag's full name.
    pub fn of_tag(tag: &str) -> Kind {
        match tag.strip_prefix("tag:yaml.org,2002:") {
            Some("null") => Kind::Null,
            Some("bool") => Kind::Bool,
            Some("int") => Kind::Int,
            Some("float") => Kind::Float,
            Some("timestamp") => Kind::Timestamp,
            Some("binary") => Kind::Binary,
            _ => Kind::Text,
        }
    }
}

/// The value of a scalar, or what is wrong with it.
pub fn value(text: &str, kind: Kind) -> Result<Value, &'static str> {
    let seen = match kind {
        Kind::Text => return Ok(text.into()),
        Kind::Binary => {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|_| "!!binary value contains invalid base64 data")?;
            return Ok(String::from_utf8_lossy(&bytes).into());
        }
        // A timestamp stays the text that it is; which texts are one is left to whoever reads it.
        Kind::Timestamp => return Ok(text.into()),
        _ => plain(text)?,
    };
    match (kind, &seen) {
        (Kind::Open, _)
        | (Kind::Null, Value::Null)
        | (Kind::Bool, Value::Bool(_))
        | (Kind::Float, Value::Number(_)) => Ok(seen),
        (Kind::Int, Value::Number(_)) if integer(&text.replace('_', "")).is_some() => Ok(seen),
        (Kind::Null, _) => Err("cannot decode the value as a !!null"),
        (Kind::Bool, _) => Err("cannot decode the value as a !!bool"),
        (Kind::Int, _) => Err("cannot decode the value as a !!int"),
        _ => Err("cannot decode the value as a !!float"),
    }
}

/// The name of a field whose key is this value; nothing for what cannot be one.
pub fn key(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Bool(bool) => Some(bool.to_string()),
        Value::Number(number) if number.is_f64() => Some(float_key(number.as_f64()? as f32)),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Go's shortest form of a number of 32 bits, which is what becomes of a key.
fn float_key(float: f32) -> String {
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => float.to_string(),
    }
}

/// A scalar without quotes.
fn plain(text: &str) -> Result<Value, &'static str> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Ok(true.into()),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Ok(false.into()),
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return Err("the number is not finite"),
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' if underscores_separate_digits(text) => float(&text.replace('_', "")),
        b'+' | b'-' | b'0'..=b'9' => {
            // Wherever they stand.
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits))
        }
        _ => None,
    };
    Ok(number.map_or_else(|| text.into(), Value::Number))
}

/// A whole number as Go writes it in a program: a leading 0 makes it octal, `0x`, `0o` and `0b` are what they are.
fn integer(text: &str) -> Option<Number> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let prefix = digits.get(..2).filter(|_| digits.len() > 2).unwrap_or_default();
    let (radix, digits) = match prefix {
        "0x" | "0X" => (16, &digits[2..]),
        "0o" | "0O" => (8, &digits[2..]),
        "0b" | "0B" => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Rust takes a sign here, which was had.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    if let Ok(whole) = i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        return Some(whole.into());
    }
    let large = u64::from_str_radix(digits, radix).ok().filter(|_| !text.starts_with(['+', '-']))?;
    // What is larger than 63 bits is a float to Kubernetes.
    Number::from_f64(large as f64)
}

fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    // Rust would also take words, as in "infinity".
    let digits = unsigned.strip_prefix('.').unwrap_or(unsigned);
    if !digits.as_bytes().first()?.is_ascii_digit() || !unsigned.bytes().all(|b| b"0123456789.eE+-".contains(&b)) {
        return None;
    }
    // One that is too large is a text.
    let float = text.parse::<f64>().ok().filter(|float| float.is_finite())?;
    // Go writes a whole one without a fraction, and reads it again.
    if float.fract() == 0.0 && float.abs() < 9.2e18 {
        return Some((float as i64).into());
    }
    Number::from_f64(float)
}

fn underscores_separate_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    bytes.iter().enumerate().all(|(at, &b)| b != b'_' || digit(at.checked_sub(1)) && digit(Some(at + 1)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each as sigs.k8s.io/yaml 1.6.0 answers it.
    #[test]
    fn scalars_are_what_go_takes_them_for() {
        for (text, expected) in [
            ("0644", json!(420)),
            ("0o644", json!(420)),
            ("-0o17", json!(-15)),
            ("0b101", json!(5)),
            ("0B101", json!(5)),
            ("-0b101", json!(-5)),
            ("0b", json!("0b")),
            ("0x1F", json!(31)),
            ("+0x1F", json!(31)),
            ("0x1p4", json!("0x1p4")),
            ("0x8000000000000000", json!(9223372036854775808.0)),
            ("-0x8000000000000000", json!(i64::MIN)),
            ("0", json!(0)),
            ("00", json!(0)),
            ("089", json!(89)),
            ("0_7", json!(7)),
            ("0-7", json!("0-7")),
            ("1__0", json!(10)),
            ("1_", json!(1)),
            ("_1", json!("_1")),
            ("+12", json!(12)),
            ("-", json!("-")),
            ("+", json!("+")),
            ("-+1", json!("-+1")),
            ("12345678901234567890", json!(12345678901234567890.0)),
            ("99999999999999999999", json!(1e20)),
            ("0777777777777777777777777", json!(7.777777777777778e23)),
            ("685_230.15", json!(685230.15)),
            (".5_0", json!(0.5)),
            ("._5", json!("._5")),
            (".5e3", json!(500)),
            (".", json!(".")),
            ("+.5", json!(0.5)),
            ("1.", json!(1)),
            ("1.0", json!(1)),
            ("-0.0", json!(0)),
            ("1e3", json!(1000)),
            ("1e21", json!(1e21)),
            ("1.5e-7", json!(1.5e-7)),
            ("1e999", json!("1e999")),
            ("1e", json!("1e")),
            ("y", json!(true)),
            ("Off", json!(false)),
            ("yEs", json!("yEs")),
            ("~", json!(null)),
            ("NULL", json!(null)),
            ("nULL", json!("nULL")),
            ("inf", json!("inf")),
            ("nan", json!("nan")),
            ("2001-01-01", json!("2001-01-01")),
            ("190:20:30", json!("190:20:30")),
            ("1é", json!("1é")),
            ("0é", json!("0é")),
        ] {
            assert_eq!(value(text, Kind::Open), Ok(expected), "{text}");
        }
        assert!(value(".inf", Kind::Open).is_err());
    }

    #[test]
    fn tags_say_what_a_scalar_is_to_be() {
        let tagged = |text, tag: &str| value(text, Kind::of_tag(&format!("tag:yaml.org,2002:{tag}"))).ok();
        assert_eq!(tagged("012", "str"), Some(json!("012")));
        assert_eq!(tagged("012", "int"), Some(json!(10)));
        assert_eq!(tagged("1.5", "int"), None);
        assert_eq!(tagged("x", "int"), None);
        assert_eq!(tagged("0x10", "float"), Some(json!(16)));
        assert_eq!(tagged("", "null"), Some(json!(null)));
        assert_eq!(tagged("x", "null"), None);
        assert_eq!(tagged("yes", "bool"), Some(json!(true)));
        assert_eq!(tagged("aGVsbG8=", "binary"), Some(json!("hello")));
        assert_eq!(tagged("2001-01-01", "timestamp"), Some(json!("2001-01-01")));
        assert_eq!(value("12", Kind::of_tag("!foo")), Ok(json!("12")));
    }

    #[test]
    fn keys_are_texts_in_the_end() {
        for (text, expected) in [
            ("y", "true"),
            ("0644", "420"),
            ("1.0", "1"),
            ("1.1", "1.1"),
            ("1e30", "1e+30"),
            ("123456.5", "123456.5"),
            ("1234567.5", "1.2345675e+06"),
            ("0.00001", "1e-05"),
            ("2001-01-01", "2001-01-01"),
        ] {
            assert_eq!(key(value(text, Kind::Open).unwrap()).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(key(Value::Null), None);
    }
}
