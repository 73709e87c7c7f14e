//! OpenAPI documents, made from the same schemas that requests are checked against.

use std::sync::Arc;

use http::{HeaderMap, Response};

use crate::body::Body;
use crate::dispatch::answer;
use crate::server::Inner;

/// Documents already made.
#[derive(Default)]
pub struct Cache;

/// Serves `/openapi/v2`, `/openapi/v3` and what is below.
pub fn serve(_server: &Arc<Inner>, _path: &str, _headers: &HeaderMap) -> Response<Body> {
    answer(404, Body::whole("404 page not found\n"), "text/plain; charset=utf-8")
}
