//! Reading a data directory back: what is whole, what a crash tore, and what must be refused.

use std::io;

use super::Recovered;
use super::disk::{Disk, DiskFile};
use super::frame::{BadHead, FRAME, FileKind, Frame, FrameKind, HEAD, Head, VERSION};
use super::log::{
    CHECKPOINT, FORMAT, FORMAT_NEW, Found, LogOptions, SEGMENT, Sealed, Segment, checkpoint_name, create_segment,
    number_in, random, segment_name,
};
use crate::error::OpenError;

type Visit<'a> = &'a mut dyn FnMut(Recovered<'_>) -> Result<(), String>;

/// Gives `visit` everything durable and finds the place where the log goes on.
pub(super) fn recover(disk: &dyn Disk, options: &LogOptions, visit: Visit<'_>) -> Result<Found, OpenError> {
    let reader = Files { disk };
    let names = disk.list().map_err(|error| reader.io("list", "", error))?;
    for unfinished in names.iter().filter(|name| is_unfinished(name)) {
        disk.remove(unfinished).map_err(|error| reader.io("remove", unfinished, error))?;
    }
    let store = if names.iter().any(|name| name == FORMAT) {
        reader.head(&*reader.open(FORMAT)?, FORMAT, FileKind::Format)?.store
    } else {
        return reader.initialise(&names, options);
    };

    let newest = names.iter().filter_map(|name| number_in(name, CHECKPOINT)).max();
    let mut last = newest.unwrap_or(0);
    let mut checkpoint_bytes = 0;
    if let Some(revision) = newest {
        checkpoint_bytes = reader.checkpoint(revision, store, visit)?;
    }

    let mut segments = reader.segments(&names, store)?;
    // A checkpoint at C is preceded by a segment that begins at C; without one, log is missing.
    if segments.last().is_none_or(|segment| segment.head.base < last) {
        return Err(reader.missing(segments.last().map_or(1, |segment| segment.head.number + 1)));
    }
    // What the checkpoint replaces may be there still, or some of it.
    let Some(start) = segments.iter().rposition(|segment| segment.head.base <= last) else {
        return Err(reader.missing(segments.first().map_or(1, |first| first.head.number.saturating_sub(1))));
    };
    let replaced: Vec<String> = segments.drain(..start).map(|segment| segment_name(segment.head.number)).collect();
    if let Some(hole) = segments.windows(2).find(|pair| pair[0].head.number + 1 != pair[1].head.number) {
        return Err(reader.missing(hole[0].head.number + 1));
    }
    let older = names.iter().filter(|name| number_in(name, CHECKPOINT).is_some_and(|revision| revision < last));
    let obsolete: Vec<String> = older.cloned().chain(replaced).collect();

    let bases: Vec<u64> = segments.iter().skip(1).map(|next| next.head.base).collect();
    let mut sealed = Vec::new();
    let mut active = None;
    for (index, segment) in segments.into_iter().enumerate() {
        let number = segment.head.number;
        let read = reader.segment(segment, bases.get(index).copied(), &mut last, visit)?;
        if let Some(previous) = active.replace(read) {
            sealed.push(Sealed { number: previous.number, bytes: previous.end });
        }
        debug_assert_eq!(active.as_ref().map(|active| active.number), Some(number));
    }
    // Only now that everything was found whole.
    for name in obsolete {
        disk.remove(&name).map_err(|error| reader.io("remove", &name, error))?;
    }
    disk.sync().map_err(|error| reader.io("sync", "", error))?;
    let active = active.ok_or_else(|| reader.missing(1))?;
    Ok(Found { store, active, sealed, last, checkpoint_bytes })
}

/// Files that were never given their final name: nothing in them counts.
fn is_unfinished(name: &str) -> bool {
    ["format.new", "segment.new", "checkpoint.new"].contains(&name)
}

struct OpenSegment {
    file: Box<dyn DiskFile>,
    head: Head,
}

struct Files<'a> {
    disk: &'a dyn Disk,
}

impl Files<'_> {
    fn io(&self, action: &'static str, name: &str, source: io::Error) -> OpenError {
        OpenError::Io { action, path: self.disk.path().join(name), source }
    }

    fn corrupt(&self, name: &str, offset: u64, reason: impl Into<String>) -> OpenError {
        OpenError::Corrupt { file: self.disk.path().join(name), offset, reason: reason.into() }
    }

    fn missing(&self, number: u64) -> OpenError {
        self.corrupt(&segment_name(number), 0, "this part of the log is missing")
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, OpenError> {
        self.disk.open(name).map_err(|error| self.io("open", name, error))
    }

    fn read(&self, file: &dyn DiskFile, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, OpenError> {
        let mut bytes = vec![0; length];
        let read = file.read_at(offset, &mut bytes).map_err(|error| self.io("read", name, error))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn head(&self, file: &dyn DiskFile, name: &str, kind: FileKind) -> Result<Head, OpenError> {
        let bytes = self.read(file, name, 0, HEAD)?;
        Head::decode(&bytes, kind).map_err(|bad| match bad {
            BadHead::Newer(found) => OpenError::NewerFormat {
                file: self.disk.path().join(name),
                found: found.into(),
                supported: VERSION.into(),
            },
            BadHead::Foreign => OpenError::Foreign { path: self.disk.path().to_owned(), found: name.to_owned() },
            BadHead::Damaged => self.corrupt(name, 0, "the head of the file is damaged"),
        })
    }

    /// Makes a store in a directory that has none: the first segment, then the file that says so.
    fn initialise(&self, names: &[String], options: &LogOptions) -> Result<Found, OpenError> {
        let first = segment_name(1);
        for name in names.iter().filter(|name| !is_unfinished(name) && *name != "lost+found") {
            if *name == first {
                // A crash during an earlier attempt leaves this, without any frame.
                let file = self.open(name)?;
                let head = self.head(&*file, name, FileKind::Segment)?;
                let rest = self.read(&*file, name, HEAD as u64, FRAME)?;
                if Frame::length(&rest).is_none() && head.base == 0 {
                    continue;
                }
            }
            let ours = number_in(name, SEGMENT).or(number_in(name, CHECKPOINT)).is_some();
            return Err(if ours {
                self.corrupt(FORMAT, 0, format!("the file is missing although {name} is there"))
            } else {
                OpenError::Foreign { path: self.disk.path().to_owned(), found: name.clone() }
            });
        }
        let head = Head { kind: FileKind::Format, store: random(), number: 0, base: 0, salt: 0 };
        let active = create_segment(self.disk, head.store, 1, 0, options.allocate_bytes)
            .map_err(|error| self.io("write", &first, error))?;
        let mut format = self.disk.create(FORMAT_NEW).map_err(|error| self.io("create", FORMAT_NEW, error))?;
        format
            .write_at(0, &head.encode())
            .and_then(|()| format.sync())
            .and_then(|()| self.disk.rename(FORMAT_NEW, FORMAT))
            .and_then(|()| self.disk.sync())
            .map_err(|error| self.io("write", FORMAT, error))?;
        Ok(Found { store: head.store, active, sealed: Vec::new(), last: 0, checkpoint_bytes: 0 })
    }

    /// Reads a checkpoint; it was complete when it got its name, so anything wrong with it is damage.
    fn checkpoint(&self, revision: u64, store: u64, visit: Visit<'_>) -> Result<u64, OpenError> {
        let name = checkpoint_name(revision);
        let file = self.open(&name)?;
        let head = self.head(&*file, &name, FileKind::Checkpoint)?;
        if head.store != store || head.base != revision {
            return Err(self.corrupt(&name, 0, "the file belongs to another store or revision"));
        }
        let length = file.length().map_err(|error| self.io("read", &name, error))?;
        let mut at = HEAD as u64;
        loop {
            let start = self.read(&*file, &name, at, FRAME)?;
            let size = Frame::length(&start).map(|length| FRAME + length);
            let size = size.filter(|size| *size as u64 <= length.saturating_sub(at));
            let Some(size) = size else { return Err(self.corrupt(&name, at, "the checkpoint is damaged here")) };
            let bytes = self.read(&*file, &name, at, size)?;
            let Some(frame) = Frame::decode(&bytes, head.salt) else {
                return Err(self.corrupt(&name, at, "the checkpoint is damaged here"));
            };
            let Frame { kind, first, last, payload } = frame;
            let item = match kind {
                FrameKind::Entries => Recovered::Entries { base: first, chunk: payload },
                FrameKind::Batch => Recovered::Batch { first, last, batch: payload },
                FrameKind::End if last == revision => return Ok(at + size as u64),
                FrameKind::End => return Err(self.corrupt(&name, at, "the end belongs to another checkpoint")),
            };
            visit(item).map_err(|reason| self.corrupt(&name, at, reason))?;
            at += size as u64;
        }
    }

    /// Opens all segments, in order.
    fn segments(&self, names: &[String], store: u64) -> Result<Vec<OpenSegment>, OpenError> {
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_in(name, SEGMENT)).collect();
        numbers.sort_unstable();
        let mut segments: Vec<OpenSegment> = Vec::new();
        for number in numbers {
            let name = segment_name(number);
            let file = self.open(&name)?;
            let head = self.head(&*file, &name, FileKind::Segment)?;
            let before = segments.last().map_or(0, |segment| segment.head.base);
            if head.store != store || head.number != number || head.base < before {
                return Err(self.corrupt(&name, 0, "the file belongs to another store or place"));
            }
            segments.push(OpenSegment { file, head });
        }
        Ok(segments)
    }

    /// Reads one segment, of which only revisions up to `limit` count (the next segment's base).
    fn segment(
        &self,
        segment: OpenSegment,
        limit: Option<u64>,
        last: &mut u64,
        visit: Visit<'_>,
    ) -> Result<Segment, OpenError> {
        let OpenSegment { mut file, head } = segment;
        let name = segment_name(head.number);
        let length = file.length().map_err(|error| self.io("read", &name, error))?;
        let bytes = self.read(&*file, &name, 0, usize::try_from(length).unwrap_or(usize::MAX))?;
        let (mut at, mut newest) = (HEAD, HEAD);
        let mut reached = head.base;
        while limit.is_none_or(|limit| reached < limit) {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(frame) = Frame::decode(rest, head.salt) else { break };
            let size = frame.size();
            let fits = frame.last >= frame.first && limit.is_none_or(|limit| frame.last <= limit);
            if frame.kind != FrameKind::Batch || frame.first != reached + 1 || !fits {
                return Err(self.corrupt(
                    &name,
                    at as u64,
                    format!("revision {} should follow {reached}", frame.first),
                ));
            }
            reached = frame.last;
            if frame.first > *last {
                visit(Recovered::Batch { first: frame.first, last: frame.last, batch: frame.payload })
                    .map_err(|reason| self.corrupt(&name, at as u64, reason))?;
                *last = reached;
            } else if frame.last > *last {
                return Err(self.corrupt(&name, at as u64, "the batch straddles the checkpoint"));
            }
            newest = at;
            at += size as usize;
        }
        match limit {
            Some(limit) if reached < limit => {
                return Err(self.corrupt(&name, at as u64, format!("revisions up to {limit} should be here")));
            }
            Some(_) => {}
            None => {
                self.cut_tail(&mut *file, &name, at as u64, bytes.get(at..).unwrap_or_default(), head.salt)?;
                // A killed process may have left its last frame in the page cache only, even marked clean by a sync that
                // failed. It must not be seen before it is durable, so it is written again.
                let again = bytes.get(newest..at).unwrap_or_default();
                file.write_at(newest as u64, again).map_err(|error| self.io("write", &name, error))?;
                file.sync().map_err(|error| self.io("sync", &name, error))?;
            }
        }
        let allocated = file.length().map_err(|error| self.io("read", &name, error))?;
        Ok(Segment { file, number: head.number, salt: head.salt, end: at as u64, allocated })
    }

    /// Behind the last whole frame there is nothing, or the batch that a crash tore: that was never acknowledged.
    fn cut_tail(&self, file: &mut dyn DiskFile, name: &str, at: u64, tail: &[u8], salt: u32) -> Result<(), OpenError> {
        if tail.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if let Some(next) = Frame::find(tail, salt) {
            let reason = format!("a damaged record is followed by a whole one at byte {}", at + next as u64);
            return Err(self.corrupt(name, at, reason));
        }
        tracing::info!(file = name, offset = at, "cut off a write that a crash left unfinished");
        file.truncate(at).map_err(|error| self.io("truncate", name, error))
    }
}
