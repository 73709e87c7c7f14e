//! Selectors: what is written can be read again and is the same selector.
#![no_main]

use conductor_machinery::selector::{FieldSelector, Selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(selector) = Selector::parse(text) {
        assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(&selector));
        selector.matches_pairs([("a", "b"), ("x", "1")].into_iter());
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        // Terms are sorted as they are written, so the order is settled only the second time.
        let again = FieldSelector::parse(&selector.to_string()).expect("what is written can be read");
        assert_eq!(again.requirements().len(), selector.requirements().len());
        assert_eq!(FieldSelector::parse(&again.to_string()).as_ref(), Ok(&again));
    }
});
