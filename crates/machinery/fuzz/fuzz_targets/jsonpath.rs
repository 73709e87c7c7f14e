//! JSONPath: any template on any value ends, in text or an error, and what is found is found also where things may be
//! missing. The first line is the template.
#![no_main]

use conductor_machinery::json::parse;
use conductor_machinery::jsonpath::Template;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (path, value) = text.split_once('\n').unwrap_or((text, r#"{"a":[{"b":1,"c":"x"},{"b":2}]}"#));
    if let (Ok(template), Ok(parsed)) = (Template::parse(path), parse(value.as_bytes())) {
        let lenient = template.render(&parsed.value, true);
        if let Ok(strict) = template.render(&parsed.value, false) {
            assert_eq!(lenient.as_deref(), Ok(&*strict));
        }
    }
});
