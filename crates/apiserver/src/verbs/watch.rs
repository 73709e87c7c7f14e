//! `watch`: what happened since, and what happens, without a gap or a repeat.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::unfold;
use machinery::field::{self, Path};
use machinery::selector::FieldSelector;
use machinery::status::Status;
use store::{Entry, Event, EventKind, KeyRange, ReadError, Watch, WatchError};
use tokio::time::Instant;

use crate::body::{PIECE, Pieces};
use crate::context::Context;
use crate::dispatch::renderer;
use crate::media::Form;
use crate::render::Renderer;
use crate::request::ListOptions;
use crate::resource::Resource;
use crate::verbs::list::too_large;
use crate::verbs::select::Selection;
use crate::watches::{Running, Waiting, Watches};

/// How often a quiet watch tells how far it is.
const BOOKMARKS_EVERY: Duration = Duration::from_secs(60);

/// An entry to be shown later.
enum Kept {
    /// It is the store's. When the store has forgotten it, the window has overtaken the watch.
    Stored(Weak<Entry>),
    /// A webhook made it for those who watch.
    Converted(Arc<Entry>),
}

/// What is left to send of a large event, from a byte on.
enum Rest {
    Object(Kept, usize),
    Rendered(Waiting, usize),
}

/// One watch, as its stream runs it. Between two pieces it keeps nothing alive: what its reader is too slow for the window
/// forgets, and the watch ends. Pieces are sent when they are large, or when nothing more is to be had at once.
struct Watching {
    watch: Watch,
    resource: Arc<Resource>,
    selection: Selection,
    render: Renderer,
    initial: std::vec::IntoIter<Kept>,
    rest: Option<Rest>,
    /// The revision of the bookmark that ends the initial events, while it is owed.
    initial_end: Option<u64>,
    bookmarks: bool,
    ends: Instant,
    next_bookmark: Instant,
    sent: u64,
    over: bool,
    watches: Watches,
    _running: Running,
    stop: tokio::sync::watch::Receiver<bool>,
    /// Says that the resource's definition has changed or gone: whoever watches begins anew, under the new one.
    superseded: Option<tokio::sync::watch::Receiver<bool>>,
}

impl Context {
    /// Begins a watch.
    pub async fn watch(&self, options: &ListOptions) -> Result<Pieces, Status> {
        let options = &self.check_watch_options(options)?;
        let running = self.server.watches.begin(&self.user)?;
        let selection = Selection::new(&self.resource, options)?;
        let store = &self.server.store;
        let table = &self.resource.table;
        let prefix = self.resource.prefix(&self.info.namespace);
        let wanted = options.revision()?;
        let mut render = renderer(self, &self.resource)?;
        let current = store.revision();
        // Without a version, and with "any", a watch begins with what exists, unless it asks not to.
        let initial = match options.send_initial_events {
            Some(initial) => initial,
            None => wanted.unwrap_or(0) == 0,
        };
        if initial && wanted.is_some_and(|wanted| wanted > current) {
            return Ok(refused(&mut render, &too_large(wanted.unwrap_or(0), current)));
        }
        let (from, entries) = if initial {
            let list = store
                .list(table, KeyRange::prefix(&prefix), None)
                .map_err(|error| Status::internal(format!("the watch cannot begin: {error}")))?;
            let mut entries = self.resource.show(list.entries, true).await?;
            entries.retain(|entry| selection.matches(entry));
            (list.revision, entries)
        } else {
            // What is yet to come is waited for, and what is before it is not told.
            (wanted.filter(|wanted| *wanted != 0).unwrap_or(current).min(current), Vec::new())
        };
        let watch = match store.watch(table, &prefix, from) {
            Ok(watch) => watch,
            Err(ReadError::Compacted { oldest }) => {
                let status = Status::expired(format!("too old resource version: {from} ({oldest})"));
                return Ok(refused(&mut render, &status));
            }
            Err(ReadError::Future { current }) => return Ok(refused(&mut render, &too_large(from, current))),
        };
        let seconds = options.timeout_seconds.unwrap_or_else(|| 1800 + u64::from(self.server.random_u32()) % 1800);
        let now = Instant::now();
        let watching = Watching {
            watch,
            resource: self.resource.clone(),
            selection,
            render,
            initial: entries.into_iter().map(|entry| keep(&self.resource, &entry)).collect::<Vec<_>>().into_iter(),
            rest: None,
            initial_end: (initial && options.send_initial_events == Some(true) && options.bookmarks).then_some(from),
            bookmarks: options.bookmarks,
            ends: now + Duration::from_secs(seconds.min(24 * 3600)),
            next_bookmark: now + BOOKMARKS_EVERY,
            sent: wanted.unwrap_or(0).max(from),
            over: false,
            watches: self.server.watches.clone(),
            _running: running,
            stop: self.server.stopping(),
            superseded: self.resource.superseded(),
        };
        // An event is no list: there is nothing to be told in that form.
        let fits = self.accept.form != Form::MetadataList;
        Ok(Box::pin(unfold(watching, move |mut watching| async move {
            let piece = watching.next().await.filter(|_| fits)?;
            Some((piece, watching))
        })))
    }

    fn check_watch_options(&self, options: &ListOptions) -> Result<ListOptions, Status> {
        let mut errors = Vec::new();
        let forbidden = |name: &str, detail: &str| field::Error::forbidden(&Path::root(name), detail);
        if options.send_initial_events.is_some() {
            if options.version_match != "NotOlderThan" {
                errors.push(forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
        } else if !options.version_match.is_empty() {
            errors.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !matches!(options.version_match.as_str(), "" | "NotOlderThan") {
            let path = Path::root("resourceVersionMatch");
            errors.push(field::Error::not_supported(&path, options.version_match.as_str(), &["NotOlderThan"]));
        }
        if !options.continue_token.is_empty() {
            errors.push(forbidden("continue", "continue is forbidden for watch"));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        let mut options = options.clone();
        // Who begins with what exists is told where that ends. Old paths are older than that.
        if matches!(options.resource_version.as_str(), "" | "0") && self.query.flag("watch") {
            options.send_initial_events.get_or_insert(true);
        }
        // Old watch paths name one object: who may see it may see no other.
        if !self.info.name.is_empty() {
            let own = format!("metadata.name={}", self.info.name);
            if options.field_selector.is_empty() {
                options.field_selector = own;
            } else {
                let selector = FieldSelector::parse(&options.field_selector)
                    .map_err(|error| Status::bad_request(error.to_string()))?;
                if selector.exact("metadata.name") != Some(&self.info.name) {
                    return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
                }
                options.field_selector = format!("{},{own}", options.field_selector);
            }
        }
        Ok(options)
    }
}

impl Watching {
    /// The next piece to send; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(rest) = self.rest.take() {
            return self.more(rest);
        }
        if self.over {
            return None;
        }
        let mut out = BytesMut::new();
        // What existed when the watch began.
        while let Some(kept) = self.initial.next() {
            match kept.entry() {
                Some(entry) => self.event(&mut out, "ADDED", &entry),
                None => {
                    self.over = true;
                    self.render.error(&mut out, &Status::expired("the watch's beginning was read too slowly"));
                    return self.piece(out);
                }
            }
            if self.is_full(&out) {
                return self.piece(out);
            }
        }
        if let Some(revision) = self.initial_end.take() {
            self.render.bookmark(&mut out, revision, true);
        }
        if !out.is_empty() {
            return self.piece(out);
        }
        loop {
            let wake = self.ends.min(self.next_bookmark);
            let events = tokio::select! {
                biased;
                events = self.watch.next() => Some(events),
                () = tokio::time::sleep_until(wake) => None,
                _ = self.stop.wait_for(|stop| *stop) => return None,
                () = superseded(&mut self.superseded) => return None,
            };
            let Some(events) = events else {
                let now = Instant::now();
                self.over = now >= self.ends;
                self.next_bookmark = now + BOOKMARKS_EVERY;
                let progress = self.progress();
                if self.bookmarks && progress >= self.sent && (!self.over || progress > self.sent) {
                    self.render.bookmark(&mut out, progress, false);
                    return Some(out.freeze());
                }
                if self.over {
                    return None;
                }
                continue;
            };
            match events {
                Ok(mut events) => {
                    loop {
                        if let Err(status) = self.batch(&mut out, &events).await {
                            self.over = true;
                            self.render.error(&mut out, &status);
                            break;
                        }
                        // What else is there goes into the same piece.
                        if self.is_full(&out) {
                            break;
                        }
                        match self.watch.try_next() {
                            Ok(Some(more)) => events = more,
                            _ => break,
                        }
                    }
                    if !out.is_empty() {
                        return self.piece(out);
                    }
                }
                Err(WatchError::Closed) => return None,
                Err(WatchError::Compacted { oldest }) => {
                    self.over = true;
                    let status = Status::expired(format!("too old resource version: {} ({oldest})", self.sent));
                    self.render.error(&mut out, &status);
                    return Some(out.freeze());
                }
            }
        }
    }

    /// Whether what there is has to be sent before there may be more.
    fn is_full(&self, out: &BytesMut) -> bool {
        out.len() >= PIECE || self.rest.is_some()
    }

    /// Sends what there is: all of it, unless it is a large event that was made for this watch.
    fn piece(&mut self, out: BytesMut) -> Option<Bytes> {
        match out.len() < 2 * PIECE {
            true => Some(out.freeze()),
            false => self.more(Rest::Rendered(self.watches.keep(out.freeze()), 0)),
        }
    }

    /// The next piece of a large event; the watch ends in the midst of it if that is no longer there.
    fn more(&mut self, rest: Rest) -> Option<Bytes> {
        let piece = match rest {
            Rest::Object(kept, from) => kept.entry().map(|entry| {
                let value = entry.value.get(from..).unwrap_or_default();
                let size = value.len().min(PIECE);
                let mut out = BytesMut::with_capacity(size + Renderer::END.len());
                out.put_slice(&value[..size]);
                match size == value.len() {
                    true => out.put_slice(Renderer::END),
                    false => self.rest = Some(Rest::Object(kept, from + size)),
                }
                out.freeze()
            }),
            Rest::Rendered(mut waiting, from) => waiting.piece(from, PIECE).map(|(piece, is_last)| {
                if !is_last {
                    self.rest = Some(Rest::Rendered(waiting, from + piece.len()));
                }
                piece
            }),
        };
        self.over |= piece.is_none();
        piece
    }

    /// Shows one object. Of a large one that is shown as it is stored only the beginning: the rest is sent from there.
    fn event(&mut self, out: &mut BytesMut, kind: &str, entry: &Arc<Entry>) {
        if entry.value.len() >= PIECE && self.render.as_stored(entry) {
            Renderer::begin(out, kind);
            self.rest = Some(Rest::Object(keep(&self.resource, entry), 0));
        } else {
            self.render.event(out, kind, entry);
        }
    }

    /// How far the client has definitely seen everything.
    fn progress(&mut self) -> u64 {
        self.watch.progress().unwrap_or(self.sent)
    }

    /// Shows what happened, up to a full piece. What could be shown before something cannot is shown.
    async fn batch(&mut self, out: &mut BytesMut, events: &[Arc<Event>]) -> Result<(), Status> {
        for event in events {
            if event.revision <= self.sent {
                continue;
            }
            if self.is_full(out) {
                self.watch.rewind(self.sent);
                break;
            }
            let (entry, previous) = match self.resource.needs_webhook() {
                false => (event.entry.clone(), event.previous.clone()),
                true => self.converted(event).await?,
            };
            self.sent = event.revision;
            let now = event.kind == EventKind::Put && self.selection.matches_shared(&entry);
            let before = previous.as_ref().is_some_and(|previous| self.selection.matches_shared(previous));
            match (before, now) {
                (false, false) => {}
                (false, true) => self.event(out, "ADDED", &entry),
                (true, true) => self.event(out, "MODIFIED", &entry),
                (true, false) if event.kind == EventKind::Delete => self.event(out, "DELETED", &entry),
                // It left the selection: its old content, at the revision of the change.
                (true, false) => {
                    if let Some(previous) = &previous {
                        self.render.left(out, previous, event.revision);
                    }
                }
            }
        }
        Ok(())
    }

    /// The new and the old entry of an event in the version that is watched; the old one only if its content matters.
    async fn converted(&self, event: &Event) -> Result<(Arc<Entry>, Option<Arc<Entry>>), Status> {
        let mut entries = vec![event.entry.clone()];
        let matters = !self.selection.is_everything();
        entries.extend(event.previous.clone().filter(|_| matters));
        let mut shown = self.resource.show(entries, true).await?.into_iter();
        let entry = shown.next().unwrap_or_else(|| event.entry.clone());
        Ok((entry, shown.next().or_else(|| event.previous.clone())))
    }
}

impl Kept {
    fn entry(&self) -> Option<Arc<Entry>> {
        match self {
            Kept::Stored(entry) => entry.upgrade(),
            Kept::Converted(entry) => Some(entry.clone()),
        }
    }
}

fn keep(resource: &Resource, entry: &Arc<Entry>) -> Kept {
    match resource.needs_webhook() {
        false => Kept::Stored(Arc::downgrade(entry)),
        true => Kept::Converted(entry.clone()),
    }
}

/// A watch that ends as it begins.
fn refused(render: &mut Renderer, status: &Status) -> Pieces {
    let mut out = BytesMut::new();
    render.error(&mut out, status);
    Box::pin(futures::stream::once(std::future::ready(out.freeze())))
}

/// Waits for as long as the definition of what is watched stands.
async fn superseded(signal: &mut Option<tokio::sync::watch::Receiver<bool>>) {
    match signal {
        Some(signal) => drop(signal.wait_for(|over| *over).await),
        None => std::future::pending().await,
    }
}
