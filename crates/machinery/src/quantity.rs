//! Amounts of a resource: `100m`, `1Gi`, `12e6`. Exact decimal arithmetic, never a float.
//!
//! A quantity keeps the family of suffixes it was written in, and is written back in its shortest form of that family:
//! `1024Mi` becomes `1Gi`, `0.5` becomes `500m`, `1e3` stays. Text that Kubernetes takes to be canonical already stays as
//! it is (`1.500`, `+5`). Amounts finer than a nano are rounded away from zero; binary ones end at 2^63-1.
//!
//! Differences from Kubernetes, all at the far end: at most 38 significant digits, exponents of at most 31 bits, decimal
//! amounts above 1000E are written in full (Kubernetes drops the exponent), a number has at least one digit, and conversions
//! saturate instead of wrapping.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// Longer texts are refused before any work is done on them.
const MAX_TEXT: usize = 1024;
/// The finest amount there is.
const NANO: i64 = -9;

/// Why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text does not look like a quantity at all.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number has too many digits.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// There is no such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The family of suffixes a quantity is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// An exact amount, `mantissa × 10^exponent`. Two quantities are equal if their amounts are, however they are written.
///
/// ```
/// use conductor_machinery::quantity::Quantity;
/// let q: Quantity = "1024Mi".parse().unwrap();
/// assert_eq!(q.to_string(), "1Gi");
/// assert!(q > "1G".parse().unwrap());
/// assert_eq!("1500m".parse::<Quantity>().unwrap().value(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    exponent: i64,
    format: Format,
    /// The text it was parsed from, if that counts as canonical.
    text: Option<Box<str>>,
}

impl Default for Quantity {
    fn default() -> Self {
        Quantity::new(0, Format::DecimalSi)
    }
}

impl Quantity {
    /// A whole amount.
    pub fn new(value: i64, format: Format) -> Self {
        Quantity { mantissa: value.into(), exponent: 0, format, text: None }
    }

    /// An amount in thousandths.
    pub fn from_milli(value: i64, format: Format) -> Self {
        Quantity { mantissa: value.into(), exponent: -3, format, text: None }
    }

    /// From a JSON string or number, as the API accepts both. Null is zero.
    pub fn from_json(value: &Value) -> Result<Self, ParseError> {
        match value {
            Value::String(text) => text.trim().parse(),
            Value::Number(number) => number.to_string().parse(),
            Value::Null => Ok(Self::default()),
            _ => Err(ParseError::Format),
        }
    }

    /// The family of suffixes it is written in.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The amount as a whole number, if it is one that fits.
    pub fn as_i64(&self) -> Option<i64> {
        let (value, exact) = self.scaled(0)?;
        if exact { i64::try_from(value).ok() } else { None }
    }

    /// The amount rounded away from zero to a whole number; the nearest `i64` if it does not fit.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded away from zero; the nearest `i64` if it does not fit.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// The amount in units of `10^scale`, rounded away from zero; the nearest `i64` if it does not fit.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        match self.scaled(scale.into()) {
            Some((value, _)) => saturate(value),
            None => saturate(if self.mantissa < 0 { i128::MIN } else { i128::MAX }),
        }
    }

    /// The amount as a float, for display and for languages that have nothing better.
    pub fn approximate_f64(&self) -> f64 {
        let exponent = i32::try_from(self.exponent).unwrap_or(i32::MAX);
        if exponent < 0 {
            self.mantissa as f64 / 10f64.powi(-exponent)
        } else {
            self.mantissa as f64 * 10f64.powi(exponent)
        }
    }

    /// The sum. The left side gives the format, unless it is zero.
    #[must_use]
    pub fn add(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        let (mut a, mut b) = (self.trimmed(), other.trimmed());
        if a.0 == 0 || b.0 == 0 {
            let (mantissa, exponent) = if a.0 == 0 { b } else { a };
            return Quantity { mantissa, exponent, format, text: None };
        }
        if a.1 < b.1 {
            std::mem::swap(&mut a, &mut b);
        }
        // Scale the coarser one down to the finer one's unit; while that does not fit, give up digits of the finer one.
        loop {
            let scaled = u32::try_from(a.1 - b.1).ok().and_then(|by| 10i128.checked_pow(by));
            let sum = scaled.and_then(|by| a.0.checked_mul(by)).and_then(|a| a.checked_add(b.0));
            match sum {
                Some(mantissa) if mantissa != i128::MIN => {
                    return Quantity { mantissa, exponent: b.1, format, text: None };
                }
                _ if a.1 - b.1 > 100 => {
                    // The finer one vanishes beside the coarser one.
                    return Quantity { mantissa: a.0, exponent: a.1, format, text: None };
                }
                _ => {
                    let (tenth, _) = divide_away(b.0, 1);
                    b = (tenth, b.1 + 1);
                    if b.1 > a.1 {
                        let (tenth, _) = divide_away(a.0, 1);
                        a = (tenth, a.1 + 1);
                    }
                }
            }
        }
    }

    /// The difference. The left side gives the format, unless it is zero.
    #[must_use]
    pub fn sub(&self, other: &Quantity) -> Quantity {
        self.add(&other.neg())
    }

    /// The same amount with the other sign.
    #[must_use]
    pub fn neg(&self) -> Quantity {
        // The mantissa is never i128::MIN.
        Quantity { mantissa: -self.mantissa, exponent: self.exponent, format: self.format, text: None }
    }

    /// The amount in units of `10^scale` rounded away from zero, and whether that is exact; `None` if it is too large.
    fn scaled(&self, scale: i64) -> Option<(i128, bool)> {
        if self.mantissa == 0 {
            return Some((0, true));
        }
        let by = self.exponent - scale;
        if by < 0 {
            return Some(divide_away(self.mantissa, by.unsigned_abs()));
        }
        let factor = 10i128.checked_pow(u32::try_from(by).ok()?)?;
        self.mantissa.checked_mul(factor).map(|value| (value, true))
    }

    /// Mantissa and exponent with all factors of ten in the exponent.
    fn trimmed(&self) -> (i128, i64) {
        let (mut mantissa, mut exponent) = (self.mantissa, self.exponent);
        if mantissa == 0 {
            return (0, 0);
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        (mantissa, exponent)
    }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// `value / 10^by`, rounded away from zero, and whether nothing was lost.
fn divide_away(value: i128, by: u64) -> (i128, bool) {
    let Some(divisor) = u32::try_from(by).ok().and_then(|by| 10i128.checked_pow(by)) else {
        return (value.signum(), value == 0);
    };
    let (quotient, rest) = (value / divisor, value % divisor);
    if rest == 0 { (quotient, true) } else { (quotient + value.signum(), false) }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.exponent == other.exponent || self.mantissa.signum() != other.mantissa.signum() {
            return if self.exponent == other.exponent {
                self.mantissa.cmp(&other.mantissa)
            } else {
                self.mantissa.signum().cmp(&other.mantissa.signum())
            };
        }
        if self.exponent < other.exponent {
            return other.cmp(self).reverse();
        }
        // Same sign, self has the coarser unit. If it does not fit in the finer unit, its magnitude is the larger one.
        match self.scaled(other.exponent) {
            Some((mantissa, _)) => mantissa.cmp(&other.mantissa),
            None => self.mantissa.signum().cmp(&0),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some((mut value, true)) = self.scaled(0)
            && value.unsigned_abs() >= 1024
        {
            let mut times = 0;
            while times < BINARY.len() - 1 && value % 1024 == 0 {
                value /= 1024;
                times += 1;
            }
            return write!(f, "{value}{}", BINARY[times]);
        }
        let (mantissa, mut exponent) = self.trimmed();
        let mut zeros = exponent.rem_euclid(3);
        exponent -= zeros;
        let mut format = self.format;
        if format != Format::DecimalExponent && exponent > 18 {
            // 1000E and more cannot be written shorter; absurdly more gets an exponent.
            if exponent > 18 + 60 {
                format = Format::DecimalExponent;
            } else {
                zeros += exponent - 18;
                exponent = 18;
            }
        }
        write!(f, "{mantissa}{}", "0".repeat(usize::try_from(zeros).unwrap_or(0)))?;
        match format {
            Format::DecimalExponent if exponent == 0 => Ok(()),
            Format::DecimalExponent => write!(f, "e{exponent}"),
            _ => f.write_str(DECIMAL[usize::try_from((exponent - NANO) / 3).unwrap_or(3)]),
        }
    }
}

/// Suffixes of powers of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes of powers of 1000, from a thousand-millionth up.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point without leading zeros; "0" if there are none.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// Takes a text apart. Kubernetes takes some texts without any digit for zero; here none is.
fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
    let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if digits(exponent) != exponent.len() {
        return Err(ParseError::Format);
    }
    if !text[..text.len() - suffix.len()].bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(ParseError::Number);
    }
    Ok(Parts { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Format);
        }
        if text.len() > MAX_TEXT {
            return Err(ParseError::Number);
        }
        let parts = split(text)?;
        if let Some(power) = BINARY.iter().skip(1).position(|suffix| *suffix == parts.suffix) {
            return binary(text, &parts, 10 * (power as u32 + 1));
        }
        if let Some(power) = DECIMAL.iter().position(|suffix| *suffix == parts.suffix) {
            return decimal(text, &parts, 3 * power as i64 + NANO, Format::DecimalSi);
        }
        let exponent = parts.suffix.strip_prefix(['e', 'E']).ok_or(ParseError::Suffix)?;
        let exponent: i32 = exponent.parse().map_err(|_| ParseError::Suffix)?;
        decimal(text, &parts, exponent.into(), Format::DecimalExponent)
    }
}

fn decimal(text: &str, parts: &Parts<'_>, exponent: i64, format: Format) -> Result<Quantity, ParseError> {
    let digits = format!("{}{}", parts.whole, parts.fraction);
    let mut exponent = exponent - parts.fraction.len() as i64;
    let canonical = digits.len() <= 18
        && exponent >= NANO
        && exponent % 3 == 0
        && !digits.ends_with("000")
        && !digits.starts_with('0');
    // Everything below a nano is one nano more.
    let below = usize::try_from(NANO - exponent).unwrap_or(0).min(digits.len());
    let (kept, lost) = digits.split_at(digits.len() - below);
    let significant = kept.trim_start_matches('0').trim_end_matches('0');
    let zeros = kept.trim_start_matches('0').len() - significant.len();
    let mut mantissa: i128 =
        if significant.is_empty() { 0 } else { significant.parse().map_err(|_| ParseError::Number)? };
    exponent = exponent.max(NANO) + zeros as i64;
    if lost.bytes().any(|digit| digit != b'0') {
        // Only possible with the exponent at nano: bring the mantissa back to that unit first.
        mantissa = u32::try_from(exponent - NANO)
            .ok()
            .and_then(|by| 10i128.checked_pow(by))
            .and_then(|by| mantissa.checked_mul(by))
            .and_then(|mantissa| mantissa.checked_add(1))
            .ok_or(ParseError::Number)?;
        exponent = NANO;
    }
    if mantissa == 0 {
        exponent = 0;
    }
    let mantissa = if parts.negative { -mantissa } else { mantissa };
    Ok(Quantity { mantissa, exponent, format, text: canonical.then(|| text.into()) })
}

fn binary(text: &str, parts: &Parts<'_>, bits: u32) -> Result<Quantity, ParseError> {
    const MAX: i128 = i64::MAX as i128;
    // Twenty digits and more are above 2^63 in any unit.
    let whole = if parts.whole.len() > 19 { MAX + 1 } else { parts.whole.parse().map_err(|_| ParseError::Number)? };
    // The fraction is doubled digit by digit; what it carries over belongs to the whole.
    let mut fraction: Vec<u8> = parts.fraction.bytes().map(|digit| digit - b'0').collect();
    let mut value: i128 = whole.min(MAX + 1);
    for _ in 0..bits {
        let mut carry = 0;
        for digit in fraction.iter_mut().rev() {
            let doubled = *digit * 2 + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        value = (value * 2 + i128::from(carry)).min(MAX + 1);
    }
    let (mut mantissa, mut exponent) = (value, 0);
    let kept = fraction.len().min(9);
    if fraction.iter().any(|digit| *digit != 0) {
        for at in 0..9 {
            mantissa = mantissa * 10 + i128::from(fraction.get(at).copied().unwrap_or(0));
        }
        if fraction[kept..].iter().any(|digit| *digit != 0) {
            mantissa += 1;
        }
        exponent = NANO;
    }
    let mut quantity = Quantity { mantissa, exponent, format: Format::BinarySi, text: None };
    if quantity > Quantity::new(i64::MAX, Format::BinarySi) {
        quantity = Quantity::new(i64::MAX, Format::BinarySi);
    }
    if !quantity.is_zero() && quantity < Quantity::new(1, Format::BinarySi) {
        quantity.format = Format::DecimalSi;
    }
    // Kubernetes keeps the text where the number is surely not a multiple of 1024 and surely small.
    let room = 14 - parts.whole.len() as i64 - i64::from(bits * 3 / 10);
    if parts.fraction.is_empty() && room >= 0 && whole & 7 != 0 {
        quantity.text = Some(text.into());
    }
    if parts.negative {
        quantity.mantissa = -quantity.mantissa;
    }
    Ok(quantity)
}

/// The canonical form of a quantity's text.
pub fn canonical(text: &str) -> Result<String, ParseError> {
    text.parse::<Quantity>().map(|quantity| quantity.to_string())
}

#[cfg(test)]
mod tests;
