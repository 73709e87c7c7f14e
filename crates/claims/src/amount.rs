//! Amounts: Kubernetes quantities as one comparable number.
//!
//! Matching compares millions of amounts, so they are kept as a number of nano units, not as text. That is exactly the precision
//! Kubernetes keeps; what is finer rounds away from zero, as there.

use std::fmt;

const NANO: i128 = 1_000_000_000;

/// A quantity in nano units, ordered by size.
///
/// `20Gi` reads as 21474836480 units and prints as `20Gi` again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// The text does not have the form of a quantity.
    #[error("{0:?} is not a quantity: write a number with an optional suffix, such as 500m, 25Gi or 3")]
    Form(String),
    /// The number does not fit.
    #[error("{0:?} is too large for a quantity")]
    Range(String),
}

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount(0);
    /// The largest amount there is.
    pub const MAX: Amount = Amount(i128::MAX);

    /// An amount of whole units.
    pub const fn units(units: i64) -> Amount {
        Amount(units as i128 * NANO)
    }

    /// The amount in nano units.
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// An amount from nano units.
    pub const fn from_nanos(nanos: i128) -> Amount {
        Amount(nanos)
    }

    /// What is left after taking `other` away; never below zero.
    pub fn less(self, other: Amount) -> Amount {
        Amount(self.0.saturating_sub(other.0).max(0))
    }

    /// Both together.
    pub fn plus(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }

    /// Reads a quantity as Kubernetes writes it.
    pub fn parse(text: &str) -> Result<Amount, AmountError> {
        let form = || AmountError::Form(text.chars().take(64).collect());
        let range = || AmountError::Range(text.chars().take(64).collect());
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, suffix) = rest.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(form());
        }
        let (power_of_two, power_of_ten) = scale(suffix).ok_or_else(form)?;
        let mut number: i128 = 0;
        let mut inexact = false;
        let mut shift = power_of_ten + 9;
        for (position, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
            if position >= whole.len() {
                // digits finer than a nano unit only decide the rounding
                if shift <= -9 && power_of_two == 0 || number > i128::MAX / 4096 / NANO {
                    inexact |= digit != b'0';
                    continue;
                }
                shift -= 1;
            }
            let value = i128::from(digit - b'0');
            number = number.checked_mul(10).and_then(|n| n.checked_add(value)).ok_or_else(range)?;
        }
        number = number.checked_mul(1i128 << power_of_two).ok_or_else(range)?;
        if shift >= 0 {
            let factor = 10i128.checked_pow(shift.unsigned_abs()).ok_or_else(range)?;
            number = number.checked_mul(factor).ok_or_else(range)?;
        } else {
            match 10i128.checked_pow(shift.unsigned_abs()) {
                Some(divisor) => {
                    inexact |= number % divisor != 0;
                    number /= divisor;
                }
                None => {
                    inexact |= number != 0;
                    number = 0;
                }
            }
        }
        if inexact {
            number = number.checked_add(1).ok_or_else(range)?;
        }
        Ok(Amount(if negative { -number } else { number }))
    }

    /// Reads a quantity from JSON, where it may be a text or a number.
    pub fn from_json(value: &serde_json::Value) -> Result<Amount, AmountError> {
        match value {
            serde_json::Value::String(text) => Amount::parse(text),
            serde_json::Value::Number(number) => Amount::parse(&number.to_string()),
            other => Err(AmountError::Form(other.to_string().chars().take(64).collect())),
        }
    }
}

/// The powers of two and ten a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let plain = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            if plain.is_empty() || plain.len() > 3 || !plain.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            (0, digits.strip_prefix('+').unwrap_or(digits).parse().ok()?)
        }
    })
}

impl fmt::Display for Amount {
    /// The shortest exact form; binary suffixes where both are as short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        if nanos == 0 {
            return f.write_str("0");
        }
        let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let mut number = nanos;
        let mut step = 0;
        while number.is_multiple_of(1000) && step + 1 < decimal.len() {
            number /= 1000;
            step += 1;
        }
        let mut best = format!("{sign}{number}{}", decimal[step]);
        if nanos.is_multiple_of(NANO as u128) {
            let mut number = nanos / NANO as u128;
            let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            let mut step = 0;
            while number.is_multiple_of(1024) && step + 1 < binary.len() {
                number /= 1024;
                step += 1;
            }
            let text = format!("{sign}{number}{}", binary[step]);
            if text.len() <= best.len() {
                best = text;
            }
        }
        f.write_str(&best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_and_print() {
        let check = |text: &str, printed: &str| {
            assert_eq!(Amount::parse(text).map(|a| a.to_string()), Ok(printed.to_owned()), "{text}");
        };
        check("25Gi", "25Gi");
        check("0.5", "500m");
        check("1.5Gi", "1536Mi");
        check("1e3", "1k");
        check("12E", "12E");
        check("100", "100");
        check("-3", "-3");
        check("1000", "1k");
        check("1024", "1Ki");
        check("0.0000000001", "1n");
        check("500m", "500m");
        check(".5", "500m");
        check("+2Ki", "2Ki");
        check("0", "0");
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "Gi", "1 Gi", "1gi", "1.2.3", "--1", "1e", "e5", "1Kix", "nan", "9e99", "1e-9999"] {
            assert!(Amount::parse(text).is_err(), "{text}");
        }
        assert!(Amount::parse(&"9".repeat(400)).is_err());
        assert!(Amount::parse(&format!("0.{}", "9".repeat(4000))).is_ok());
    }

    #[test]
    fn order_is_by_size() {
        let sizes = ["1n", "1m", "1", "1k", "1Ki", "1M", "1Mi", "1G", "1Gi", "2Ti"];
        let read: Vec<_> = sizes.iter().map(|s| Amount::parse(s).expect(s)).collect();
        assert!(read.is_sorted());
    }
}
