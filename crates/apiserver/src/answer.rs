//! What a request goes through, from its bytes to its answer.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use machinery::status::Status;
use parking_lot::Mutex;

use crate::auth::authz::{Decision, refusal};
use crate::body::Body;
use crate::context::Context;
use crate::flow::Class;
use crate::gate::Pass;
use crate::heavy::{self, LARGE, aside, wait_aside};
use crate::impersonation::Acting;
use crate::media::{self, Accept, Encoding, Form, Offer};
use crate::metrics::Labels;
use crate::noted::{Noted, Telling};
use crate::request::{Query, RequestInfo};
use crate::server::{Inner, OWN, Server};
use crate::user::User;

/// The most a request's body may have.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(60);
/// How long a client's name for a request may be.
const MOST_ID: usize = 64;
/// How much of a body is taken that nobody reads, and for how long.
const DRAINED: usize = 256 * 1024;
const DRAINED_OF_LARGE: usize = 32 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// How long a request may take in all; a watch only begins in this time.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// Answers from this size on are compressed for who accepts it.
const GZIP_FROM: u64 = 128 * 1024;

const JSON: Accept = Accept::JSON;

impl Server {
    /// A refusal that is made for no request's sake.
    pub(crate) fn refuse(&self, status: &Status) -> Response<Body> {
        self.0.status_response(status, JSON, &HeaderMap::new())
    }

    /// Answers one request. The user is in its extensions, or its credentials say who it is.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let started = std::time::Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = match RequestInfo::parse(&parts.method, parts.uri.path(), &query) {
            Ok(info) => info,
            Err(_) => {
                drain(body, DRAINED).await;
                let status = Status::bad_request("the path of the request is malformed");
                return self.0.status_response(&status, JSON, &parts.headers);
            }
        };
        let labels = Labels::of(&parts.method, &parts.headers, &query, &info);
        let mut noted = Noted::new(self);
        let mut body = Some(body);
        let work = self.answer(parts, query, info, &mut body, &mut noted);
        let answered = AssertUnwindSafe(work).catch_unwind().await;
        let panicked = answered.is_err();
        if let Some(unread) = body {
            drain(unread, DRAINED).await;
        }
        let mut response = match answered {
            Ok(response) => response,
            Err(_) => {
                tracing::error!(request = %labels, "a request panicked");
                let status = Status::internal("this request hit a bug in the server; the server goes on");
                self.0.status_response(&status, JSON, &HeaderMap::new())
            }
        };
        response.body_mut().user = noted.user.clone();
        if let Some(class) = noted.class.take() {
            class.tell(response.headers_mut());
        }
        if let Some(warning) = noted.warning {
            warn(response.headers_mut(), warning);
        }
        if let Some(id) = noted.record.as_ref().and_then(|record| HeaderValue::from_str(record.id()).ok()) {
            response.headers_mut().insert("audit-id", id);
        }
        if noted.is_logged() {
            let mut logging = Box::pin(async move {
                noted.log(&mut response, panicked.then_some("Panic")).await;
                response
            });
            response = match logging.as_mut().now_or_never() {
                Some(response) => response,
                // It has to wait, and who goes away meanwhile is to be in the log.
                None => match tokio::spawn(logging).await {
                    Ok(response) => response,
                    Err(_) => self.refuse(&Status::internal("the audit log cannot be written")),
                },
            };
        }
        self.0.metrics.request(labels, || self.0.catalog(), response.status().as_u16(), started.elapsed());
        response
    }

    async fn answer<B>(
        &self,
        parts: http::request::Parts,
        query: Query,
        info: RequestInfo,
        body: &mut Option<B>,
        noted: &mut Noted,
    ) -> Response<Body>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: std::fmt::Display,
    {
        let inner = &self.0;
        let pretty = is_pretty(&query, &parts.headers);
        let refusals = media::of_refusals(&parts.headers, pretty);
        let time = match time_of(&info, &query) {
            Ok(time) => time,
            Err(status) => return inner.status_response(&status, refusals, &parts.headers),
        };
        let (user, held) = inner.authenticate(&parts);
        if let Some(held) = &held {
            held.mark(inner, time).await;
            noted.warning = held.warning();
        }
        let user = match user {
            Ok(user) => user,
            Err(status) => {
                noted.record = inner.audit.as_ref().and_then(|audit| {
                    audit.unauthenticated(&info, &parts, inner.audit_id(&parts.headers), inner.now_precisely())
                });
                return inner.status_response(&status, refusals, &parts.headers);
            }
        };
        let real = user;
        // who may not act as somebody else is audited as who they are
        let (acting, refused) = match crate::impersonation::effective(inner, real.clone(), &info, &parts.headers) {
            Ok(acting) => (acting, None),
            Err(status) => (Acting { user: real.clone(), constraint: None }, Some(status)),
        };
        if let Some(audit) = &inner.audit {
            let now = inner.now_precisely();
            (noted.record, noted.operations) =
                audit.begin(&real, &acting, &info, &parts, inner.audit_id(&parts.headers), now.clone());
            noted.annotate(held.iter().flat_map(|held| held.annotations()));
            if let Some(record) = &mut noted.record {
                audit.stage(record, "RequestReceived", now).await;
            }
        }
        if let Some(status) = refused {
            return inner.refused(&status, refusals, &parts.headers);
        }
        let user = acting.user;
        noted.user = Some(user.clone());
        noted.class = inner.flows.classify(&user, &info);
        let decision = inner.authorizer.authorize(&user, &info);
        if let Some(record) = &mut noted.record {
            record.decided(&decision);
        }
        if let Decision::NoOpinion(reason) = decision {
            return inner.refused(&refusal(&user, &info, &reason), refusals, &parts.headers);
        }
        if let Some(remote) = inner.remotes.of_path(&info.path) {
            let body = match inner.admitted(&user, &info, body, &parts.headers, noted).await {
                Ok(body) => body,
                Err(status) => return inner.status_response(&status, refusals, &parts.headers),
            };
            let response = crate::aggregation::proxy::forward(inner, &remote, &user, &parts, body, time).await;
            return inner.finish(response, &parts.headers, &parts.method, Vec::new());
        }
        if !info.is_resource {
            let response = crate::paths::serve(inner, &parts.method, &info, &query, &parts.headers, pretty);
            return inner.finish(response, &parts.headers, &parts.method, Vec::new());
        }
        let catalog = inner.catalog();
        let Some(resource) = catalog.find(&info.group, &info.version, &info.resource).cloned() else {
            // Built-in groups say that something is not theirs; of others nobody knows.
            return match catalog.is_builtin(&info.group) {
                true => inner.status_response(&Status::no_such_path(), refusals, &parts.headers),
                false => inner.finish(crate::paths::no_page(), &parts.headers, &parts.method, Vec::new()),
            };
        };
        drop(catalog);
        // Kubernetes' router knows no HEAD; custom resources do without the router.
        let of_part =
            resource.subresource(&info.subresource).is_some() && (!info.deeper || info.subresource == "proxy");
        let has_path = info.subresource.is_empty() || of_part;
        if parts.method == http::Method::HEAD && !resource.is_custom() && has_path {
            let response = inner.plain_status(&Status::method_not_allowed(), refusals);
            return inner.finish(response, &parts.headers, &parts.method, Vec::new());
        }
        // What is only asked, never kept, has no table.
        let offer = match resource.is_custom() {
            true => Offer::CUSTOM,
            false => Offer::builtin(matches!(&*info.verb, "list" | "watch"), !inner.namespaces_optional(&resource)),
        };
        let accept = match media::negotiate(&parts.headers, pretty, offer) {
            Ok(accept) => accept,
            Err(status) => return inner.status_response(&status, refusals, &parts.headers),
        };
        if info.verb == "watch" && accept.encoding == media::Encoding::Yaml {
            let status = media::no_stream();
            return inner.status_response(&status, refusals, &parts.headers);
        }
        let body = match inner.admitted(&user, &info, body, &parts.headers, noted).await {
            Ok(body) => body,
            Err(status) => return inner.status_response(&status, refusals, &parts.headers),
        };
        let method = parts.method;
        let cx = Context {
            server: inner.clone(),
            info,
            query,
            headers: parts.headers,
            user,
            resource,
            accept,
            deadline: tokio::time::Instant::now() + time,
            warnings: Mutex::default(),
            annotations: Mutex::default(),
            operations: Mutex::default(),
        };
        let telling = Telling { cx, noted };
        let cx = &telling.cx;
        let large = body.len() > LARGE && !matches!(&*cx.info.verb, "get" | "list" | "watch");
        let work = tokio::time::timeout(time, crate::dispatch::run(cx, body));
        let result = if large {
            match inner.heavy_turn(&cx.user).await {
                Ok(_turn) => wait_aside(work).await,
                Err(status) => Ok(Err(status)),
            }
        } else {
            work.await
        };
        let result = match result {
            Ok(result) => result,
            Err(_) => {
                let message = "Timeout: request did not complete within the allotted timeout";
                Err(Status::timeout(message, 0))
            }
        };
        let warnings = std::mem::take(&mut *cx.warnings.lock());
        let response = match result {
            Ok(response) => response,
            Err(status) => inner.plain_status(&status, refusals),
        };
        if compresses(&response, &cx.headers) && response.body().len().is_some_and(|len| len > LARGE as u64) {
            return match inner.heavy_turn(&cx.user).await {
                Ok(_turn) => aside(|| inner.finish(response, &cx.headers, &method, warnings)),
                Err(status) => inner.plain_status(&status, refusals),
            };
        }
        inner.finish(response, &cx.headers, &method, warnings)
    }
}

impl Inner {
    /// The body of a request and its turn: a client that sends slowly keeps no one else out. What they count as is noted.
    async fn admitted<B>(
        &self,
        user: &User,
        info: &RequestInfo,
        body: &mut Option<B>,
        headers: &HeaderMap,
        noted: &mut Noted,
    ) -> Result<Bytes, Status>
    where
        B: http_body::Body,
        B::Error: std::fmt::Display,
    {
        let (held, pass) = noted.place.insert((self.bodies.account(user), None));
        let body = match body.take() {
            Some(body) => read_body(body, held).await?,
            None => Bytes::new(),
        };
        if let Some(record) = &mut noted.record {
            record.sent(info, headers, &body);
        }
        *pass = self.place(user, info, noted.class.as_ref()).await?;
        Ok(body)
    }

    /// Waits until it is a request's turn, if it has to wait for one.
    async fn place(&self, user: &User, info: &RequestInfo, class: Option<&Class>) -> Result<Option<Pass>, Status> {
        let gate = match &*info.verb {
            "watch" => return Ok(None),
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        // The server itself is not kept waiting by its clients.
        if user.name == OWN || class.is_some_and(|class| class.exempt) {
            return Ok(None);
        }
        gate.enter(user.party()).await.map(Some)
    }

    /// A status as an answer.
    fn status_response(&self, status: &Status, accept: Accept, headers: &HeaderMap) -> Response<Body> {
        self.finish(self.plain_status(status, accept), headers, &http::Method::GET, Vec::new())
    }

    /// That somebody may not do something, as an answer.
    fn refused(&self, status: &Status, accept: Accept, headers: &HeaderMap) -> Response<Body> {
        let mut response = self.status_response(status, accept, headers);
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    /// A status as an answer, without the headers all answers have.
    pub fn plain_status(&self, status: &Status, accept: Accept) -> Response<Body> {
        let json = status.to_json();
        let accept = Accept { form: Form::Object, ..accept };
        let (body, kind) = match accept.encoding {
            Encoding::Protobuf => {
                (crate::render::protobuf(&json).unwrap_or_default(), Encoding::Protobuf.content_type())
            }
            encoding => (crate::render::encode_ordered(&json, accept), encoding.content_type()),
        };
        let mut response = Response::new(Body::whole(body));
        *response.status_mut() =
            http::StatusCode::from_u16(status.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(seconds) = status.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if status.code == 401 {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// Under which name a request is audited: the client's own, if that is one.
    fn audit_id(&self, asked: &HeaderMap) -> String {
        let given =
            asked.get("audit-id").and_then(|id| id.to_str().ok()).filter(|id| (1..=MOST_ID).contains(&id.len()));
        given.map_or_else(|| self.new_uid(), str::to_owned)
    }

    /// What all answers have: warnings, no caching, an id, compression where it pays.
    fn finish(
        &self,
        mut response: Response<Body>,
        asked: &HeaderMap,
        method: &http::Method,
        warnings: Vec<String>,
    ) -> Response<Body> {
        if compresses(&response, asked) {
            let (mut parts, body) = response.into_parts();
            let bytes = body.into_bytes();
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 6), flate2::Compression::new(1));
            let compressed = std::io::Write::write_all(&mut encoder, &bytes).and_then(|()| encoder.finish());
            let body = match compressed {
                Ok(compressed) => {
                    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                    parts.headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
                    Body::whole(compressed)
                }
                Err(_) => Body::whole(bytes),
            };
            response = Response::from_parts(parts, body);
        }
        let headers = response.headers_mut();
        for warning in warnings {
            warn(headers, &warning);
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if let Ok(id) = HeaderValue::from_str(&self.audit_id(asked)) {
            headers.insert("audit-id", id);
        }
        if method == http::Method::HEAD {
            if let Some(len) = response.body().len() {
                response.headers_mut().insert(header::CONTENT_LENGTH, len.into());
            }
            *response.body_mut() = Body::empty();
        }
        response
    }
}

/// Tells who is answered something beside the answer.
fn warn(headers: &mut HeaderMap, text: &str) {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
        headers.append(header::WARNING, value);
    }
}

/// Whether an answer is to be compressed.
fn compresses(response: &Response<Body>, asked: &HeaderMap) -> bool {
    !response.headers().contains_key(header::CONTENT_ENCODING)
        && response.body().len().is_some_and(|len| len >= GZIP_FROM)
        && media::takes_gzip(asked)
}

/// Whether people read the answer: they say so, or use what people use.
fn is_pretty(query: &Query, headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    match query.get("pretty") {
        Some(said) => matches!(said, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known.as_bytes())),
    }
}

/// How long a request may take: as long as it says, and no longer than any. A watch has a time of its own.
fn time_of(info: &RequestInfo, query: &Query) -> Result<Duration, Status> {
    let asked = match query.get("timeout") {
        Some(text) if &*info.verb != "watch" => text
            .parse::<machinery::time::Duration>()
            .map_err(|error| Status::bad_request(format!("invalid timeout specified in the request URL - {error}")))?,
        _ => Default::default(),
    };
    Ok(match u64::try_from(asked.0) {
        Ok(nanos) if nanos > 0 => Duration::from_nanos(nanos).min(REQUEST_TIME),
        _ => REQUEST_TIME,
    })
}

/// Takes what is left of a body that nobody reads, within bounds: on a connection where something is left the client's next
/// request would be lost.
async fn drain<B: http_body::Body>(body: B, mut room: usize) {
    let rest = async {
        let mut body = std::pin::pin!(body);
        while let Some(Ok(frame)) = body.frame().await {
            let Some(left) = room.checked_sub(frame.data_ref().map_or(0, Buf::remaining)) else { return };
            room = left;
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

async fn read_body<B>(body: B, held: &mut heavy::Bytes) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: std::fmt::Display,
{
    let too_large = || Status::too_large(format!("Request entity too large: limit is {BODY_LIMIT}"));
    // A client that still writes would not read the answer: of what is too large by little the rest is taken.
    if body.size_hint().lower() > BODY_LIMIT as u64 {
        drain(body, DRAINED_OF_LARGE).await;
        return Err(too_large());
    }
    let read = async {
        let mut body = std::pin::pin!(body);
        let mut out = BytesMut::new();
        let mut fits = true;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Status::bad_request(format!("the body could not be read: {error}")))?;
            if let Ok(mut data) = frame.into_data() {
                if out.len() + data.remaining() > BODY_LIMIT {
                    fits = false;
                    break;
                }
                held.grown(out.len() + data.remaining())?;
                let bytes = data.copy_to_bytes(data.remaining());
                out.extend_from_slice(&bytes);
            }
        }
        if !fits {
            drain(body, DRAINED_OF_LARGE).await;
            return Err(too_large());
        }
        Ok(out.freeze())
    };
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(result) => result,
        Err(_) => Err(Status::new(408, "Timeout", "the body took too long to arrive")),
    }
}
