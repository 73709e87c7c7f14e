use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn written_canonically() {
    for (text, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("0Ki", "0"),
        ("0.0", "0"),
        ("1", "1"),
        ("1.5", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1."),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("100000", "100k"),
        ("1000k", "1M"),
        ("1024Mi", "1Gi"),
        ("1024", "1024"),
        ("1536Mi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.1Ki", "102400m"),
        ("1025Ki", "1025Ki"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("1000e0", "1e3"),
        ("1e4", "10e3"),
        ("12e-3", "12e-3"),
        ("1E", "1E"),
        ("1Ei", "1Ei"),
        ("8Ei", "9223372036854775807"),
        ("-8Ei", "-9223372036854775807"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("0.00000000001", "1n"),
        ("-0.00000000001", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("1e-1000", "1e-9"),
        ("1e1000", "10e999"),
        ("+5", "+5"),
        ("-5", "-5"),
        ("1.500", "1.500"),
        ("0.500", "500m"),
        ("10000000000000000000000000000000000000", "10000000000000000000E"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1.000000000000000000001Ki", "1024000000001n"),
        ("12000E", "12000E"),
    ] {
        assert_eq!(parse(text).to_string(), expected, "{text}");
    }
}

/// Amounts that only arithmetic can give in a family that has no suffix for them.
#[test]
fn absurd_amounts_are_written_with_an_exponent() {
    let absurd = parse("1").add(&parse("2e107"));
    assert_eq!((absurd.format(), absurd.to_string().as_str()), (Format::DecimalSi, "200e105"));
    assert_eq!(parse(&absurd.to_string()).to_string(), "200e105");
}

#[test]
fn refused() {
    for (text, error) in [
        ("", ParseError::Format),
        ("1.1.1", ParseError::Format),
        ("1 Ki", ParseError::Format),
        (" 1", ParseError::Format),
        ("1k1x", ParseError::Format),
        ("aaa", ParseError::Format),
        ("1i", ParseError::Suffix),
        ("1K", ParseError::Suffix),
        ("1e", ParseError::Suffix),
        ("1ki", ParseError::Suffix),
        ("1mi", ParseError::Suffix),
        ("1Zi", ParseError::Format),
        ("1e99999999999999999999", ParseError::Suffix),
        ("1234567890123456789012345678901234567891", ParseError::Number),
        ("1ä", ParseError::Format),
        ("+", ParseError::Number),
        (".", ParseError::Number),
        ("Ki", ParseError::Number),
    ] {
        assert_eq!(text.parse::<Quantity>().unwrap_err(), error, "{text}");
    }
    assert_eq!("1".repeat(5000).parse::<Quantity>().unwrap_err(), ParseError::Number);
}

#[test]
fn compared_by_amount() {
    for (a, b, order) in [
        ("1Gi", "1024Mi", Ordering::Equal),
        ("1", "1000m", Ordering::Equal),
        ("1G", "1Gi", Ordering::Less),
        ("-1", "1n", Ordering::Less),
        ("1e400", "1e399", Ordering::Greater),
        ("-1e400", "-1e399", Ordering::Less),
        ("1e400", "1n", Ordering::Greater),
        ("0", "0Mi", Ordering::Equal),
        ("0", "1n", Ordering::Less),
    ] {
        assert_eq!(parse(a).cmp(&parse(b)), order, "{a} {b}");
        assert_eq!(parse(b).cmp(&parse(a)), order.reverse(), "{b} {a}");
    }
}

#[test]
fn added_and_subtracted() {
    for (a, b, sum, difference) in [
        ("1", "1", "2", "0"),
        ("1Gi", "1Mi", "1025Mi", "1023Mi"),
        ("1", "100m", "1100m", "900m"),
        ("0", "1Gi", "1Gi", "-1Gi"),
    ] {
        assert_eq!(parse(a).add(&parse(b)).to_string(), sum, "{a} + {b}");
        assert_eq!(parse(a).sub(&parse(b)).to_string(), difference, "{a} - {b}");
    }
}

/// A sum of more than 38 digits is rounded away from zero: the finer part is never lost.
#[test]
fn sums_that_do_not_fit_are_rounded() {
    assert!(parse("1e30").add(&parse("1n")) > parse("1e30"));
    assert!(parse("-1e30").add(&parse("-1n")) < parse("-1e30"));
    assert_eq!(parse("1e1000").add(&parse("1n")), parse("1e1000"));
}

#[test]
fn converted_rounding_away_from_zero() {
    for (text, value, milli) in [
        ("1", 1, 1000),
        ("1m", 1, 1),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("1Gi", 1 << 30, 1000 << 30),
        ("8E", 8_000_000_000_000_000_000, i64::MAX),
        ("1e1000", i64::MAX, i64::MAX),
        ("-1e1000", i64::MIN, i64::MIN),
    ] {
        assert_eq!((parse(text).value(), parse(text).milli_value()), (value, milli), "{text}");
    }
    assert_eq!(parse("1500m").as_i64(), None);
    assert_eq!(parse("2k").as_i64(), Some(2000));
    assert_eq!(Quantity::from_json(&serde_json::json!(0.5)).unwrap().to_string(), "500m");
    assert_eq!(Quantity::from_json(&serde_json::json!(" 1Gi ")).unwrap().to_string(), "1Gi");
}

fn any_quantity() -> impl Strategy<Value = String> {
    "[+-]?[0-9]{1,12}(\\.[0-9]{0,12})?(n|u|m||k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})"
}

proptest! {
    /// Writing a quantity and reading it again changes neither the amount nor, the second time, the text.
    #[test]
    fn reads_what_it_writes(text in any_quantity()) {
        let quantity = parse(&text);
        let mut computed = quantity.clone();
        computed.text = None;
        let again = parse(&computed.to_string());
        prop_assert_eq!(&again, &quantity);
        prop_assert_eq!(again.to_string(), computed.to_string());
    }

    #[test]
    fn order_agrees_with_subtraction(a in any_quantity(), b in any_quantity()) {
        let (a, b) = (parse(&a), parse(&b));
        prop_assert_eq!(a.cmp(&b), a.sub(&b).sign().cmp(&0));
        prop_assert_eq!(a.add(&b), b.add(&a));
    }

    #[test]
    fn never_panics(text in "\\PC{0,40}") {
        let _ = text.parse::<Quantity>();
    }
}

#[test]
fn what_is_rounded_up_to_a_nano_can_be_read_again() {
    // Found by fuzzing: 39 digits.
    let large: Quantity = "100000000000000000000000000000.000000000080".parse().unwrap();
    let written = large.neg().neg().to_string();
    assert_eq!(written.parse::<Quantity>().unwrap(), large, "{written}");
}
