//! Path and query of a request: whatever is sent, it is taken apart without a panic and cannot be mistaken for another path.
#![no_main]

use conductor_apiserver::request::{ListOptions, Query, RequestInfo};
use libfuzzer_sys::fuzz_target;

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "NONSENSE"];

fuzz_target!(|data: (u8, &str)| {
    let (method, target) = data;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let method = METHODS[usize::from(method) % METHODS.len()].parse().expect("a method");
    let query = Query::parse(query);
    let _ = ListOptions::from_query(&query).map(|options| options.revision());
    let Ok(info) = RequestInfo::parse(&method, path, &query) else { return };
    let _ = info.describe();
    if !info.is_resource {
        return;
    }
    assert!(!info.resource.is_empty() && !info.version.is_empty(), "{info:?}");
    // A name from a field selector is only compared; parts of the path become keys of the store.
    let from_selector = matches!(&*info.verb, "list" | "watch" | "deletecollection");
    let parts = [&info.group, &info.version, &info.namespace, &info.resource];
    for part in parts.into_iter().chain((!from_selector).then_some(&info.name)) {
        assert!(!part.contains(['/', '\0']) && part != ".." && part != ".", "{info:?}");
    }
});
