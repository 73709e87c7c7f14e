//! Patches of all three kinds. The first line is the object, the rest the patch; results are as bounded as objects are, a
//! merge patch changes nothing the second time, and a strategic one without lists and directives is a merge patch.
#![no_main]

use conductor_machinery::json::parse;
use conductor_machinery::patch::{apply_json_patch, apply_merge_patch, apply_strategic_merge_patch};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Whether there are only objects and scalars, none of them null, and no directives.
fn plain(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().all(|(name, value)| !name.starts_with('$') && plain(value)),
        Value::Array(_) | Value::Null => false,
        _ => true,
    }
}

fuzz_target!(|text: &str| {
    let Some((object, patch)) = text.split_once('\n') else { return };
    let (Ok(object), Ok(patch)) = (parse(object.as_bytes()), parse(patch.as_bytes())) else { return };
    let (object, patch) = (object.value, patch.value);
    let pod = conductor_kinds::table::schema_of("", "v1", "Pod").expect("there are Pods");
    let results = [
        apply_json_patch(&object, &patch),
        apply_merge_patch(&object, &patch),
        apply_strategic_merge_patch(&object, &patch, pod),
    ];
    if let Ok(merged) = &results[1] {
        assert_eq!(apply_merge_patch(merged, &patch).as_ref(), Ok(merged));
        if let Ok(strategic) = &results[2]
            && object.is_object()
            && plain(&object)
            && plain(&patch)
        {
            assert_eq!(strategic, merged);
        }
    }
    for result in results.into_iter().flatten() {
        assert!(parse(result.to_string().as_bytes()).is_ok());
    }
});
