//! What the server sends: whole answers, long lists in pieces, watches without end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use machinery::status::Status;
use std::sync::Arc;
use store::Entry;

use crate::bulk::{Long, Sending};
use crate::unread::{Unread, Waiting};
use crate::user::User;

/// A stream of pieces, for watches.
pub type Pieces = Pin<Box<dyn futures::Stream<Item = Bytes> + Send>>;

/// The body of an answer.
pub struct Body {
    inner: Inner,
    long: Option<Turns>,
    /// Whose answer it is, where that is known.
    pub user: Option<Arc<User>>,
    waiting: Option<Waiting>,
    /// What is to be dropped when it has been sent, or is given up.
    pub kept: Option<Box<dyn std::any::Any + Send>>,
}

/// A long answer lets others have their turn.
struct Turns {
    long: Long,
    /// How many pieces were sent since, and how many bytes.
    pieces: usize,
    bytes: usize,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Turns {
    /// Whether it is its turn to send another piece.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        self.pieces += 1;
        if self.pieces <= TURN {
            return Poll::Ready(());
        }
        self.pieces = 0;
        match self.long.sent(std::mem::take(&mut self.bytes)) {
            Some(until) => {
                let mut pause = Box::pin(tokio::time::sleep_until(until));
                let ready = pause.as_mut().poll(cx);
                self.pause = Some(pause);
                if ready.is_ready() {
                    cx.waker().wake_by_ref();
                }
            }
            None => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    }
}

enum Inner {
    Whole(Option<Bytes>),
    List(List),
    Stream(Pieces),
}

/// A list whose items are stored bytes: nothing is copied before it is sent.
struct List {
    head: Option<Bytes>,
    items: VecDeque<Arc<Entry>>,
    /// What is left of the item that is being sent.
    item: Bytes,
    tail: Option<Bytes>,
    first: bool,
    skip: usize,
    remaining: u64,
}

/// How large the pieces are in which long answers are sent: what a client that does not read has waiting is a few of them.
pub const PIECE: usize = 64 * 1024;
/// From how many bytes on an answer is long: writing it takes a millisecond.
const LONG: u64 = 1024 * 1024;
/// How many pieces a long answer sends before others have their turn.
const TURN: usize = 4;

impl From<Inner> for Body {
    fn from(inner: Inner) -> Body {
        Body { inner, long: None, user: None, waiting: None, kept: None }
    }
}

impl Body {
    /// Nothing.
    pub fn empty() -> Body {
        Inner::Whole(None).into()
    }

    /// All of it at once.
    pub fn whole(bytes: impl Into<Bytes>) -> Body {
        let bytes = bytes.into();
        Inner::Whole((!bytes.is_empty()).then_some(bytes)).into()
    }

    /// `head`, the entries' values separated by commas, `tail`. Of every value the first `skip` bytes are replaced by `{`.
    pub fn list(head: Bytes, items: Vec<Arc<Entry>>, tail: Bytes, skip: usize) -> Body {
        let commas = items.len().saturating_sub(1);
        let shorter = skip.saturating_sub(1) * items.len();
        let remaining = head.len() + tail.len() + commas + items.iter().map(|e| e.value.len()).sum::<usize>() - shorter;
        Inner::List(List {
            head: Some(head),
            items: items.into(),
            item: Bytes::new(),
            tail: Some(tail),
            first: true,
            skip,
            remaining: remaining as u64,
        })
        .into()
    }

    /// Pieces as they come.
    pub fn stream(pieces: Pieces) -> Body {
        Inner::Stream(pieces).into()
    }

    /// Counts as one of what a connection sends, as a long answer or a short one, and as its user's until it was sent; 429 if
    /// too much of the user's waits already.
    pub fn sent_by(&mut self, sending: &Sending, unread: &Unread) -> Result<(), Status> {
        if let Some(len) = self.len() {
            let whose = self.user.as_ref().map_or("", |user| user.party());
            self.waiting = unread.begin(whose, len, sending.close())?;
        }
        if self.len().is_some_and(|len| len > LONG) {
            self.long = Some(Turns { long: sending.one(), pieces: 0, bytes: 0, pause: None });
        } else if self.len().is_some() {
            sending.short();
        }
        Ok(())
    }

    /// How many bytes it has, where that is known.
    pub fn len(&self) -> Option<u64> {
        match &self.inner {
            Inner::Whole(bytes) => Some(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Inner::List(list) => Some(list.remaining),
            Inner::Stream(_) => None,
        }
    }

    /// The bytes of an answer that is whole.
    pub fn bytes(&self) -> Option<Bytes> {
        match &self.inner {
            Inner::Whole(bytes) => bytes.clone(),
            _ => None,
        }
    }

    /// Has all bytes of a body that has an end in one piece.
    pub fn make_whole(&mut self) {
        if let Inner::List(_) = &self.inner {
            let list = std::mem::replace(&mut self.inner, Inner::Whole(None));
            self.inner = Inner::Whole(Some(Body::from(list).into_bytes()));
        }
    }

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// All bytes of a body that has an end; streams give nothing.
    pub fn into_bytes(self) -> Bytes {
        match self.inner {
            Inner::Whole(bytes) => bytes.unwrap_or_default(),
            Inner::List(mut list) => {
                let mut out = BytesMut::with_capacity(list.remaining as usize);
                while let Some(piece) = list.next() {
                    out.put(piece);
                }
                out.freeze()
            }
            Inner::Stream(_) => Bytes::new(),
        }
    }
}

impl List {
    fn next(&mut self) -> Option<Bytes> {
        self.tail.as_ref()?;
        let mut out = BytesMut::with_capacity(PIECE.min(self.remaining as usize) + 1024);
        if let Some(head) = self.head.take() {
            out.put(head);
        }
        while out.len() < PIECE {
            if self.item.is_empty() {
                let Some(entry) = self.items.pop_front() else { break };
                if !std::mem::take(&mut self.first) {
                    out.put_u8(b',');
                }
                if self.skip > 0 {
                    out.put_u8(b'{');
                }
                self.item = entry.value.slice(self.skip.min(entry.value.len())..);
            }
            let part = self.item.len().min(PIECE.saturating_sub(out.len()));
            out.put(self.item.split_to(part));
        }
        if self.items.is_empty() && self.item.is_empty() {
            if let Some(tail) = self.tail.take() {
                out.put(tail);
            }
        }
        self.remaining = self.remaining.saturating_sub(out.len() as u64);
        Some(out.freeze())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(turns) = &mut self.long {
            ready!(turns.poll(cx));
        }
        let piece = match &mut self.inner {
            Inner::Whole(Some(bytes)) if bytes.len() > PIECE => Some(bytes.split_to(PIECE)),
            Inner::Whole(bytes) => bytes.take(),
            Inner::List(list) => list.next(),
            Inner::Stream(pieces) => match pieces.as_mut().poll_next(cx) {
                Poll::Ready(piece) => piece,
                Poll::Pending => return Poll::Pending,
            },
        };
        let own = &mut *self;
        if let (Some(turns), Some(piece)) = (&mut own.long, &piece) {
            turns.bytes += piece.len();
            own.waiting.iter().for_each(Waiting::moved);
        }
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.len() {
            Some(len) => SizeHint::with_exact(len),
            None => SizeHint::default(),
        }
    }
}
