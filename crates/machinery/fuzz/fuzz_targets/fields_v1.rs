//! FieldsV1: whatever can be read is written back in one form, and the algebra of sets holds. Two sets, one on each line.
#![no_main]

use conductor_machinery::apply::{FieldSet, PathElement};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = PathElement::parse(text);
    let (first, second) = text.split_once('\n').unwrap_or((text, "{}"));
    let read = |text: &str| FieldSet::from_json(&serde_json::from_str(text).ok()?).ok();
    let (Some(a), Some(b)) = (read(first), read(second)) else { return };
    let written = a.to_json();
    assert_eq!(FieldSet::from_json(&written).expect("what is written can be read"), a);
    let (both, only) = (a.intersection(&b), a.difference(&b));
    assert_eq!(both.union(&only), a);
    assert!(!only.intersects(&b));
    assert_eq!(a.union(&b).len(), a.len() + b.difference(&a).len());
    assert_eq!(a.paths().len(), a.len());
    assert!(a.recursive_difference(&b).difference(&only).is_empty());
});
