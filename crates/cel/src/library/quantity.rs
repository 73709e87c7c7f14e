//! Kubernetes quantities: `1.5Gi`, `100m`, `12e6`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::Value;

/// A decimal number, `mantissa * 10^exponent`. Binary suffixes are exact in it.
#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    exponent: i32,
    /// Whether Kubernetes keeps it as a 64-bit number with a scale: only then, and if the scale
    /// is not negative, does it count as an integer there.
    small: bool,
}

/// Beyond this, quantities with binary suffixes are capped, as in Kubernetes.
const MAX: i128 = i64::MAX as i128;
/// More digits than this are not read; no quantity that means anything has them.
const MAX_DIGITS: usize = 36;

impl Quantity {
    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str =
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        let (negative, rest) = match text.as_bytes().first().ok_or(FORM)? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, mut rest) = rest.split_at(digits(rest));
        let whole = whole.trim_start_matches('0');
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let len = digits(after);
            fraction = &after[..len];
            rest = &after[len..];
        }
        if !rest.bytes().all(|b| b"eEinumkKMGTP+-0123456789".contains(&b)) {
            return Err(FORM);
        }
        let (binary, power) = suffix(rest).ok_or("unable to parse quantity's suffix")?;
        let (places, rounded_up) = match fraction.get(..MAX_DIGITS) {
            Some(kept) => (kept, fraction[MAX_DIGITS..].bytes().any(|b| b != b'0')),
            None => (fraction, false),
        };
        if whole.len() > MAX_DIGITS {
            return Err("unable to parse numeric part of quantity");
        }
        let value = |s: &str| s.bytes().fold(0i128, |n, d| n * 10 + i128::from(d - b'0'));
        // Whole and fraction are scaled on their own, so that neither overflows.
        let scale = if binary { 1i128 << power } else { 1 };
        let exponent = if binary { 0 } else { power };
        let whole_part = Self::new(value(whole).checked_mul(scale).unwrap_or(i128::MAX / 16), exponent);
        let kept: &str = if places.len() > 18 { &places[..18] } else { places };
        let lost = rounded_up || places.bytes().skip(18).any(|b| b != b'0');
        let fraction_part = Self::new((value(kept) + i128::from(lost)) * scale, exponent - kept.len() as i32);
        let mut quantity = whole_part.add(&fraction_part);
        quantity.round_up_to_nano();
        let length = (whole.len().max(1) + fraction.len()) as i32;
        quantity.small = if binary {
            fraction.is_empty() && 15 - length - (power * 3 / 10) > 0 && power > 0
        } else {
            length <= 18 && power - fraction.len() as i32 >= -9
        };
        if quantity.small && !binary {
            // Kept as written: trailing zeros count.
            quantity.scale_down(power - fraction.len() as i32);
        }
        if binary && quantity.compare(&Self::new(MAX, 0)) == Ordering::Greater {
            quantity = Self::new(MAX, 0);
        }
        if negative {
            quantity.mantissa = -quantity.mantissa;
        }
        Ok(quantity)
    }

    fn new(mantissa: i128, exponent: i32) -> Self {
        Self { mantissa, exponent, small: false }
    }

    fn round_up_to_nano(&mut self) {
        while self.exponent < -9 {
            let (quotient, remainder) = (self.mantissa / 10, self.mantissa % 10);
            self.mantissa = quotient + i128::from(remainder > 0);
            self.exponent += 1;
        }
    }

    /// Writes the value with a smaller exponent, if it fits.
    fn scale_down(&mut self, exponent: i32) {
        while self.exponent > exponent {
            let Some(mantissa) = self.mantissa.checked_mul(10) else { return };
            self.mantissa = mantissa;
            self.exponent -= 1;
        }
    }

    /// Order by value.
    pub fn compare(&self, other: &Self) -> Ordering {
        if self.mantissa.signum() != other.mantissa.signum() || self.mantissa == 0 {
            return self.mantissa.signum().cmp(&other.mantissa.signum());
        }
        // Compare magnitudes by number of digits first, so that scaling cannot overflow.
        let order = |q: &Self| i64::from(q.mantissa.unsigned_abs().ilog10()) + i64::from(q.exponent);
        let by_order = order(self).cmp(&order(other));
        let magnitude = by_order.then_with(|| {
            let (mut a, mut b) = (self.mantissa.unsigned_abs(), other.mantissa.unsigned_abs());
            let (da, db) = (a.ilog10(), b.ilog10());
            if da < db {
                a = a.saturating_mul(10u128.saturating_pow(db - da));
            } else {
                b = b.saturating_mul(10u128.saturating_pow(da - db));
            }
            a.cmp(&b)
        });
        if self.mantissa < 0 { magnitude.reverse() } else { magnitude }
    }

    /// The sum; saturates far outside what Kubernetes can represent.
    pub fn add(&self, other: &Self) -> Self {
        if other.mantissa == 0 {
            return self.clone();
        }
        if self.mantissa == 0 {
            return other.clone();
        }
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let shift = (high.exponent - low.exponent) as u32;
        let scaled = 10i128.checked_pow(shift).and_then(|f| high.mantissa.checked_mul(f));
        match scaled.and_then(|m| m.checked_add(low.mantissa)) {
            Some(mantissa) => {
                let small = self.small && other.small && i64::try_from(mantissa).is_ok();
                Self { mantissa, exponent: low.exponent, small }
            }
            // So far apart that the smaller one does not count.
            None => high.clone(),
        }
    }

    fn negated(&self) -> Self {
        Self { mantissa: -self.mantissa, ..*self }
    }

    /// The value if Kubernetes takes it for a whole number (`1000m` is none there).
    pub fn as_integer(&self) -> Option<i64> {
        if self.exponent < 0 || !self.small {
            return None;
        }
        let scaled = 10i128.checked_pow(self.exponent as u32)?.checked_mul(self.mantissa)?;
        i64::try_from(scaled).ok()
    }

    /// The nearest double.
    pub fn as_double(&self) -> f64 {
        format!("{}e{}", self.mantissa, self.exponent).parse().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exponent {
            0 => write!(f, "{}", self.mantissa),
            e => write!(f, "{}e{e}", self.mantissa),
        }
    }
}

impl From<i64> for Quantity {
    fn from(i: i64) -> Self {
        Self { mantissa: i128::from(i), exponent: 0, small: true }
    }
}

/// A suffix: (whether it is a power of two, the power).
fn suffix(text: &str) -> Option<(bool, i32)> {
    Some(match text {
        "" => (false, 0),
        "n" => (false, -9),
        "u" => (false, -6),
        "m" => (false, -3),
        "k" => (false, 3),
        "M" => (false, 6),
        "G" => (false, 9),
        "T" => (false, 12),
        "P" => (false, 15),
        "E" => (false, 18),
        "Ki" => (true, 10),
        "Mi" => (true, 20),
        "Gi" => (true, 30),
        "Ti" => (true, 40),
        "Pi" => (true, 50),
        "Ei" => (true, 60),
        other => {
            let exponent: i32 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
            if !(-1000..=1000).contains(&exponent) {
                return None;
            }
            (false, exponent)
        }
    })
}

pub(crate) const DECLS: &[Decl] = &[
    Decl {
        name: "quantity",
        overloads: &[("string_to_quantity", "(string) -> Quantity")],
        cost: Cost::Parse,
        code: quantity,
    },
    Decl {
        name: "isQuantity",
        overloads: &[("is_quantity_string", "(string) -> bool")],
        cost: Cost::Parse,
        code: |_, a| match a {
            [Value::String(s)] => Ok(Value::Bool(Quantity::parse(s).is_ok())),
            _ => Err(EvalError::overload("isQuantity")),
        },
    },
    Decl {
        name: "sign",
        overloads: &[("quantity_sign", "(Quantity) -> int")],
        cost: Cost::One,
        code: |_, a| one(a, |q| Ok(Value::Int(q.mantissa.signum() as i64))),
    },
    Decl {
        name: "isGreaterThan",
        overloads: &[("quantity_is_greater_than", "Quantity.(Quantity) -> bool")],
        cost: Cost::One,
        code: |_, a| two(a, |x, y| Value::Bool(x.compare(y).is_gt())),
    },
    Decl {
        name: "isLessThan",
        overloads: &[("quantity_is_less_than", "Quantity.(Quantity) -> bool")],
        cost: Cost::One,
        code: |_, a| two(a, |x, y| Value::Bool(x.compare(y).is_lt())),
    },
    Decl {
        name: "compareTo",
        overloads: &[("quantity_compare_to", "Quantity.(Quantity) -> int")],
        cost: Cost::One,
        code: |_, a| two(a, |x, y| Value::Int(x.compare(y) as i64)),
    },
    Decl {
        name: "asApproximateFloat",
        overloads: &[("quantity_get_float", "Quantity.() -> double")],
        cost: Cost::One,
        code: |_, a| one(a, |q| Ok(Value::Double(q.as_double()))),
    },
    Decl {
        name: "asInteger",
        overloads: &[("quantity_get_int", "Quantity.() -> int")],
        cost: Cost::One,
        code: |_, a| {
            one(a, |q| q.as_integer().map(Value::Int).ok_or(EvalError::failed("cannot convert value to integer")))
        },
    },
    Decl {
        name: "isInteger",
        overloads: &[("quantity_is_integer", "Quantity.() -> bool")],
        cost: Cost::One,
        code: |_, a| one(a, |q| Ok(Value::Bool(q.as_integer().is_some()))),
    },
    Decl {
        name: "add",
        overloads: &[
            ("quantity_add", "Quantity.(Quantity) -> Quantity"),
            ("quantity_add_int", "Quantity.(int) -> Quantity"),
        ],
        cost: Cost::One,
        code: |_, a| sum(a, false),
    },
    Decl {
        name: "sub",
        overloads: &[
            ("quantity_sub", "Quantity.(Quantity) -> Quantity"),
            ("quantity_sub_int", "Quantity.(int) -> Quantity"),
        ],
        cost: Cost::One,
        code: |_, a| sum(a, true),
    },
];

fn quantity<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(s)] = args else { return Err(EvalError::overload("quantity")) };
    match Quantity::parse(s) {
        Ok(q) => Ok(Value::Quantity(Arc::new(q))),
        Err(why) => Err(EvalError::failed(why)),
    }
}

fn one<'a>(args: &[Value<'a>], f: fn(&Quantity) -> Outcome<'a>) -> Outcome<'a> {
    match args {
        [Value::Quantity(q)] => f(q),
        _ => Err(EvalError::overload("quantity")),
    }
}

fn two<'a>(args: &[Value<'a>], f: fn(&Quantity, &Quantity) -> Value<'a>) -> Outcome<'a> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(f(a, b)),
        _ => Err(EvalError::overload("quantity")),
    }
}

fn sum<'a>(args: &[Value<'a>], negate: bool) -> Outcome<'a> {
    let (a, b) = match args {
        [Value::Quantity(a), Value::Quantity(b)] => (a, (**b).clone()),
        [Value::Quantity(a), Value::Int(b)] => (a, Quantity::from(*b)),
        _ => return Err(EvalError::overload("quantity")),
    };
    let b = if negate { b.negated() } else { b };
    Ok(Value::Quantity(Arc::new(a.add(&b))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_by_value() {
        let q = |s: &str| Quantity::parse(s).unwrap();
        for (a, b, expected) in [
            ("1Gi", "1024Mi", Ordering::Equal),
            ("1G", "1Gi", Ordering::Less),
            ("1500m", "1.5", Ordering::Equal),
            ("0.5", "500m", Ordering::Equal),
            ("1e3", "1k", Ordering::Equal),
            ("-1", "1", Ordering::Less),
            ("100E", "99E", Ordering::Greater),
            ("0", "-0", Ordering::Equal),
            ("0.0000000001", "1n", Ordering::Equal),
        ] {
            assert_eq!(q(a).compare(&q(b)), expected, "{a} {b}");
        }
        for bad in ["", "1.2.3", "10Mo", "1 Mi", "0x5", "1e", "e"] {
            assert!(Quantity::parse(bad).is_err(), "{bad}");
        }
        // Oddities of Kubernetes: no digits are zero, thousandths are no integers.
        assert_eq!(q("Mi").compare(&q("0")), Ordering::Equal);
        assert_eq!(q("1000m").as_integer(), None);
        assert_eq!(q("16Ei").compare(&q("8Ei")), Ordering::Equal);
        assert_eq!(q("50k").add(&q("20000")).as_integer(), Some(70_000));
        assert_eq!(q("200M").as_integer(), Some(200_000_000));
        assert_eq!(q("0.3").as_integer(), None);
    }
}
