//! JSON: what is written can be read again, and the envelope agrees with the tree.
#![no_main]

use conductor_machinery::json::{Envelope, parse};
use conductor_machinery::meta::{Meta, validate_object_meta};
use conductor_machinery::{field::Path, names};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let envelope = Envelope::scan(bytes);
    let Ok(parsed) = parse(bytes) else { return };
    let written = parsed.value.to_string();
    assert_eq!(parse(written.as_bytes()).expect("what is written can be read").value, parsed.value);
    if let Ok(envelope) = envelope
        && parsed.duplicates.is_empty()
        && parsed.value.is_object()
    {
        assert_eq!(&*envelope.metadata.name, Meta::of(&parsed.value).name());
    }
    validate_object_meta(&parsed.value, true, names::name_is_subdomain, &Path::root("metadata"));
});
