//! Watches over WebSocket, for browsers: each event is a message. What the client says is passed over.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::body::Body;

/// Marks answers that are watches.
#[derive(Clone, Copy)]
pub struct Watch;

/// Who cannot set headers sends its token as one of the protocols.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
/// What the specification of WebSockets has every server append.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How much a client may say at once, though nobody listens.
const HEARD: usize = 4096;

/// What a client wants that asks for a WebSocket.
pub struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
    upgrade: OnUpgrade,
}

fn has(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|own| own.trim().eq_ignore_ascii_case(word))
}

/// Takes the token out of the protocols, and gives the first of the others.
fn protocol(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let name = header::SEC_WEBSOCKET_PROTOCOL;
    let given: Vec<String> = headers
        .get_all(&name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|own| own.trim().to_owned())
        .collect();
    let (tokens, others): (Vec<_>, Vec<_>) = given.into_iter().partition(|own| own.starts_with(TOKEN));
    let first = others.first().and_then(|own| HeaderValue::from_str(own).ok())?;
    if let [token] = tokens.as_slice()
        && let Ok(token) = URL_SAFE_NO_PAD.decode(&token[TOKEN.len()..])
        && let Ok(value) = HeaderValue::from_bytes(&[b"Bearer ", token.as_slice()].concat())
    {
        headers.remove(&name);
        headers.entry(header::AUTHORIZATION).or_insert(value);
    }
    Some(first)
}

impl Handshake {
    /// Of a request that asks for one.
    pub fn of<B>(request: &mut Request<B>) -> Option<Handshake> {
        let headers = request.headers_mut();
        if !has(headers, header::UPGRADE, "websocket") || !has(headers, header::CONNECTION, "upgrade") {
            return None;
        }
        let key = headers.get(header::SEC_WEBSOCKET_KEY)?.to_str().ok()?;
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
        let accept = HeaderValue::from_str(&STANDARD.encode(digest)).ok()?;
        let protocol = protocol(headers);
        Some(Handshake { accept, protocol, upgrade: hyper::upgrade::on(request) })
    }

    /// Gives the events of a watch as messages, and any other answer as it is. `held` is kept for as long as that takes.
    pub fn answer(self, answer: Response<Body>, held: impl Send + 'static) -> Response<Body> {
        if answer.status() != StatusCode::OK || answer.extensions().get::<Watch>().is_none() {
            return answer;
        }
        let is_text = answer.headers().get(header::CONTENT_TYPE).is_none_or(|kind| !is_protobuf(kind));
        let mut taken = Response::new(Body::empty());
        *taken.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = taken.headers_mut();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = self.protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        let upgrade = self.upgrade;
        tokio::spawn(async move {
            let _held = held;
            if let Err(error) = tell(upgrade, answer.into_body(), is_text).await {
                tracing::debug!(%error, "a watch over WebSocket ended");
            }
        });
        taken
    }
}

fn is_protobuf(kind: &HeaderValue) -> bool {
    kind.to_str().is_ok_and(|kind| kind.contains("protobuf"))
}

async fn tell(
    upgrade: OnUpgrade,
    mut events: Body,
    is_text: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TokioIo::new(upgrade.await?);
    let limits = WebSocketConfig::default().max_message_size(Some(HEARD)).max_frame_size(Some(HEARD));
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await;
    let (mut out, mut from) = socket.split();
    let mut messages = Messages { is_text, ..Messages::default() };
    loop {
        tokio::select! {
            piece = events.frame() => {
                let Some(Ok(piece)) = piece else { break };
                let mut piece = piece.into_data().unwrap_or_default();
                while let Some(frame) = messages.next(&mut piece) {
                    out.feed(Message::Frame(frame)).await?;
                }
                out.flush().await?;
            }
            said = from.next() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                // answers to pings wait to be sent
                Some(Ok(_)) => out.flush().await?,
            },
        }
    }
    out.close().await?;
    Ok(())
}

/// Events as messages: each is a line, or what a length stands before. Large ones are sent as they come, in several frames.
#[derive(Default)]
struct Messages {
    is_text: bool,
    /// Whether a part of the event was sent.
    is_within: bool,
    /// What came of its length, and how much of the event is yet to come.
    length: Vec<u8>,
    left: usize,
}

impl Messages {
    /// The next frame of what came.
    fn next(&mut self, piece: &mut Bytes) -> Option<Frame> {
        if !self.is_text && !self.is_within {
            let rest = piece.split_to(piece.len().min(4 - self.length.len()));
            self.length.extend_from_slice(&rest);
            self.left = u32::from_be_bytes(self.length.first_chunk().copied()?) as usize;
            self.length.clear();
        } else if piece.is_empty() {
            return None;
        }
        let (size, is_last) = match self.is_text {
            true => match memchr::memchr(b'\n', piece) {
                Some(end) => (end + 1, true),
                None => (piece.len(), false),
            },
            false => (self.left.min(piece.len()), self.left <= piece.len()),
        };
        self.left = self.left.saturating_sub(size);
        let kind = match (self.is_within, self.is_text) {
            (true, _) => Data::Continue,
            (false, true) => Data::Text,
            (false, false) => Data::Binary,
        };
        self.is_within = !is_last;
        Some(Frame::message(piece.split_to(size), OpCode::Data(kind), is_last))
    }
}

/// A place among the connections, shared by whatever came of one.
pub type Place = Arc<tokio::sync::OwnedSemaphorePermit>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_among_the_protocols_is_a_bearer_token() {
        let headers = |value: &'static str| {
            HeaderMap::from_iter([(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(value))])
        };
        let mut with = headers("base64url.bearer.authorization.k8s.io.c2VjcmV0, base64.binary.k8s.io");
        assert_eq!(protocol(&mut with).unwrap(), "base64.binary.k8s.io");
        assert_eq!(with[header::AUTHORIZATION], "Bearer secret");
        // As in Kubernetes there must be another, to be named in the answer.
        let mut alone = headers("base64url.bearer.authorization.k8s.io.c2VjcmV0");
        assert_eq!(protocol(&mut alone), None);
        assert!(alone.get(header::AUTHORIZATION).is_none());
    }

    #[test]
    fn each_event_is_a_message_whatever_the_pieces_are() {
        let binary: &[u8] = &[0, 0, 0, 2, 7, 10, 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3];
        let text: &[u8] = b"{\"a\":1}\n{\"b\":22}\n";
        let wanted: [(_, &[&[u8]]); 2] =
            [(text, &[b"{\"a\":1}\n", b"{\"b\":22}\n"]), (binary, &[&[7, 10], &[], &[1, 2, 3]])];
        for (bytes, events) in wanted {
            for size in 1..=bytes.len() {
                let mut messages = Messages { is_text: bytes == text, ..Messages::default() };
                let (mut told, mut message, mut is_open) = (Vec::new(), Vec::new(), false);
                for piece in bytes.chunks(size) {
                    let mut piece = Bytes::copy_from_slice(piece);
                    while let Some(frame) = messages.next(&mut piece) {
                        let begins = frame.header().opcode != OpCode::Data(Data::Continue);
                        assert_eq!(begins, !is_open, "{size}");
                        is_open = !frame.header().is_final;
                        message.extend_from_slice(frame.payload());
                        if !is_open {
                            told.push(std::mem::take(&mut message));
                        }
                    }
                    assert!(piece.is_empty());
                }
                assert_eq!(told, events, "{size}");
            }
        }
    }
}
