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
}

/// Beyond this a quantity is capped, as in Kubernetes.
const MAX: i128 = i64::MAX as i128;

impl Quantity {
    /// Reads a quantity.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let whole_len = digits(rest);
        let (whole, mut rest) = rest.split_at(whole_len);
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let len = digits(after);
            fraction = &after[..len];
            rest = &after[len..];
        }
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (factor, suffix_exponent) = suffix(rest)?;
        let mut mantissa: i128 = 0;
        let mut exponent = suffix_exponent;
        let mut capped = false;
        for digit in whole.trim_start_matches('0').bytes() {
            if mantissa > MAX * 1000 {
                capped = true;
                break;
            }
            mantissa = mantissa * 10 + i128::from(digit - b'0');
        }
        let fraction = fraction.trim_end_matches('0');
        let mut rounded_up = false;
        for digit in fraction.bytes() {
            // Twenty digits are more than nano precision can show; the rest rounds up.
            if exponent < suffix_exponent - 20 || mantissa > MAX * 1_000_000 {
                rounded_up |= digit != b'0';
                continue;
            }
            mantissa = mantissa * 10 + i128::from(digit - b'0');
            exponent -= 1;
        }
        mantissa += i128::from(rounded_up);
        let mut quantity = match mantissa.checked_mul(factor) {
            Some(mantissa) if !capped => Self { mantissa, exponent },
            _ => Self { mantissa: MAX, exponent: 0 },
        };
        quantity.round_up_to_nano();
        // Kubernetes keeps short decimal numbers as they are, however large; others are capped.
        let short = factor == 1 && whole.len() + fraction.len() <= 18;
        if !short && quantity.cmp(&Self { mantissa: MAX, exponent: 0 }) == Ordering::Greater {
            quantity = Self { mantissa: MAX, exponent: 0 };
        }
        if negative {
            quantity.mantissa = -quantity.mantissa;
        }
        Some(quantity.normal())
    }

    fn round_up_to_nano(&mut self) {
        while self.exponent < -9 {
            let (quotient, remainder) = (self.mantissa / 10, self.mantissa % 10);
            self.mantissa = quotient + i128::from(remainder > 0);
            self.exponent += 1;
        }
    }

    /// Without trailing zeros in the mantissa.
    fn normal(mut self) -> Self {
        if self.mantissa == 0 {
            return Self { mantissa: 0, exponent: 0 };
        }
        while self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.exponent += 1;
        }
        self
    }

    /// Order by value.
    pub fn cmp(&self, other: &Self) -> Ordering {
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
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let shift = (high.exponent - low.exponent) as u32;
        let scaled = 10i128.checked_pow(shift).and_then(|f| high.mantissa.checked_mul(f));
        match scaled.and_then(|m| m.checked_add(low.mantissa)) {
            Some(mantissa) => Self { mantissa, exponent: low.exponent }.normal(),
            // So far apart that the smaller one does not count.
            None => high.clone(),
        }
    }

    fn negated(&self) -> Self {
        Self { mantissa: -self.mantissa, exponent: self.exponent }
    }

    /// The value if it is a whole number that fits.
    pub fn as_integer(&self) -> Option<i64> {
        if self.exponent < 0 {
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
        Self { mantissa: i128::from(i), exponent: 0 }.normal()
    }
}

/// (factor, power of ten) of a suffix.
fn suffix(text: &str) -> Option<(i128, i32)> {
    Some(match text {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        other => {
            let digits = other.strip_prefix(['e', 'E'])?;
            let exponent: i32 = digits.parse().ok()?;
            if digits.is_empty() || !(-1000..=1000).contains(&exponent) {
                return None;
            }
            (1, exponent)
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
            [Value::String(s)] => Ok(Value::Bool(Quantity::parse(s).is_some())),
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
        code: |_, a| two(a, |x, y| Value::Bool(x.cmp(y).is_gt())),
    },
    Decl {
        name: "isLessThan",
        overloads: &[("quantity_is_less_than", "Quantity.(Quantity) -> bool")],
        cost: Cost::One,
        code: |_, a| two(a, |x, y| Value::Bool(x.cmp(y).is_lt())),
    },
    Decl {
        name: "compareTo",
        overloads: &[("quantity_compare_to", "Quantity.(Quantity) -> int")],
        cost: Cost::One,
        code: |_, a| two(a, |x, y| Value::Int(x.cmp(y) as i64)),
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
        Some(q) => Ok(Value::Quantity(Arc::new(q))),
        None => Err(EvalError::failed(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        )),
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
            assert_eq!(q(a).cmp(&q(b)), expected, "{a} {b}");
        }
        for bad in ["", "Mi", "1.2.3", "10Mo", "1 Mi", "0x5", "--1", "1e"] {
            assert!(Quantity::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(q("50k").add(&q("20000")).as_integer(), Some(70_000));
        assert_eq!(q("200M").as_integer(), Some(200_000_000));
        assert_eq!(q("0.3").as_integer(), None);
    }
}
