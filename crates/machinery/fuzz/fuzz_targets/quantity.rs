//! Quantities: what is written can be read again and is the same amount; order agrees with subtraction.
#![no_main]

use conductor_machinery::quantity::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (a, b) = text.split_once(' ').unwrap_or((text, "1Ki"));
    let (Ok(a), Ok(b)) = (a.parse::<Quantity>(), b.parse::<Quantity>()) else { return };
    // Twice negated, it has lost the text it was parsed from.
    let computed = a.neg().neg();
    let written = computed.to_string();
    let again: Quantity = written.parse().expect("what is written can be read");
    assert_eq!(again, a, "{written}");
    assert_eq!(again.to_string(), written);
    assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
    let _ = (a.value(), a.milli_value(), a.approximate_f64(), a.add(&b), a.sub(&b));
});
