//! The durable engine: a preallocated append-only log in segments, and checkpoints that replace its beginning.
//!
//! **When the disk fails.** After a failed `fdatasync` the kernel may have dropped the dirty pages and marked them clean: what
//! the page cache shows is not what the disk holds, and a second `fdatasync` that succeeds proves nothing about the first. So a
//! segment that a write or sync failed on is never appended to again. The next segment is made instead, and its head says
//! after which revision it begins; recovery ignores whatever an older segment holds beyond that. Only when that head is
//! durable is the failed batch surely dead; until then nothing is appended, and each commit first tries to make it.
//!
//! The same holds for a rotation that failed half-way: the new segment's name may or may not be on disk, and a batch appended
//! to the old segment would be ignored if it were. So from the first step of a rotation to its last the log is `broken`.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::{Disk, DiskFile};
use super::frame::{FRAME, FileKind, Frame, FrameKind, HEAD, Head};
use super::{AppendError, Checkpoint, Engine, EngineStats, Recovered, recover};
use crate::error::OpenError;

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size at which a new segment is begun.
    pub segment_bytes: u64,
    /// How much of a segment is preallocated at a time: an idle store takes no more than this.
    pub allocate_bytes: u64,
    /// A checkpoint is made when the log is larger than this ...
    pub checkpoint_bytes: u64,
    /// ... and larger than so many times the live bytes.
    pub checkpoint_ratio: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { segment_bytes: 64 << 20, allocate_bytes: 1 << 20, checkpoint_bytes: 64 << 20, checkpoint_ratio: 2 }
    }
}

/// The segment that batches are appended to.
pub(super) struct Segment {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) number: u64,
    pub(super) salt: u32,
    /// Where the next frame goes.
    pub(super) end: u64,
    /// Up to where space is reserved.
    pub(super) allocated: u64,
}

/// A segment that is complete.
pub(super) struct Sealed {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

/// What recovery found.
pub(super) struct Found {
    pub(super) store: u64,
    pub(super) active: Segment,
    pub(super) sealed: Vec<Sealed>,
    /// The last durable revision.
    pub(super) last: u64,
    pub(super) checkpoint_bytes: u64,
}

/// The durable engine, over any [`Disk`].
pub struct Log {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    /// Nothing before `recover`.
    found: Option<Found>,
    /// Whether the active segment must not be appended to any more.
    broken: bool,
    running: Option<Running>,
    /// No checkpoint is tried before the log has this size: set when one failed.
    not_before: u64,
    buffer: Vec<u8>,
    stats: EngineStats,
}

/// A checkpoint being written.
struct Running {
    /// Segments below this number go with it.
    replaces: u64,
    bytes: Arc<AtomicU64>,
}

impl Log {
    /// A log on a disk; nothing is read before [`Engine::recover`].
    pub fn new(disk: Arc<dyn Disk>, options: LogOptions) -> Log {
        Log {
            disk,
            options,
            found: None,
            broken: false,
            running: None,
            not_before: 0,
            buffer: Vec::new(),
            stats: EngineStats::default(),
        }
    }

    /// Seals the active segment and begins the next one, which makes anything beyond the last good revision void.
    fn rotate(&mut self) -> io::Result<()> {
        let found = self.found.as_mut().ok_or_else(unrecovered)?;
        self.broken = true;
        let next =
            create_segment(&*self.disk, found.store, found.active.number + 1, found.last, self.options.allocate_bytes)?;
        let old = std::mem::replace(&mut found.active, next);
        found.sealed.push(Sealed { number: old.number, bytes: old.end });
        self.broken = false;
        Ok(())
    }

    /// Makes sure that there is a segment with room for `size` bytes at its end.
    fn make_room(&mut self, size: u64) -> io::Result<()> {
        let (end, limit) = (self.active()?.end, self.options.segment_bytes);
        if self.broken || (end + size > limit && end > HEAD as u64) {
            self.rotate()?;
        }
        let step = self.options.allocate_bytes;
        let active = self.active()?;
        let needed = active.end + size;
        if needed > active.allocated {
            let ahead = (needed - active.allocated).max(step);
            // On an almost full disk what is needed may fit although a whole step does not.
            let ahead = match active.file.allocate(active.allocated, ahead) {
                Ok(()) => ahead,
                Err(_) => {
                    active.file.allocate(active.allocated, needed - active.allocated)?;
                    needed - active.allocated
                }
            };
            active.allocated += ahead;
        }
        Ok(())
    }

    fn active(&mut self) -> io::Result<&mut Segment> {
        Ok(&mut self.found.as_mut().ok_or_else(unrecovered)?.active)
    }

    /// The write or sync of the frame at the segment's end failed: makes sure that it never counts.
    fn invalidate(&mut self) -> bool {
        self.broken = true;
        // A head of zeros is no frame. This helps against a crash of the process even if the disk is gone.
        let zeroed = self.active().and_then(|active| {
            active.file.write_at(active.end, &[0; FRAME])?;
            active.file.sync()
        });
        // Zeros written after the failure and then synced are on disk: that alone voids the frame. The segment stays closed.
        self.rotate().is_ok() || zeroed.is_ok()
    }

    fn log_bytes(&self) -> u64 {
        self.found
            .as_ref()
            .map_or(0, |found| found.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>() + found.active.end)
    }
}

impl Engine for Log {
    fn recover(&mut self, visit: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>) -> Result<(), OpenError> {
        let found = recover::recover(&*self.disk, &self.options, visit)?;
        self.stats.checkpoint_bytes = found.checkpoint_bytes;
        self.found = Some(found);
        Ok(())
    }

    fn append(&mut self, first: u64, last: u64, batch: &[u8]) -> Result<(), AppendError> {
        let size = (FRAME + batch.len()) as u64;
        // Up to here nothing of the batch is on disk, so an error leaves nothing behind.
        self.make_room(size).map_err(|error| AppendError { error, unknown: false })?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let written = self.active().and_then(|active| {
            Frame { kind: FrameKind::Batch, first, last, payload: batch }.encode(active.salt, &mut buffer);
            active.file.write_at(active.end, &buffer)?;
            active.file.sync()
        });
        buffer.shrink_to(1 << 20);
        self.buffer = buffer;
        self.stats.syncs += 1;
        match (written, self.found.as_mut()) {
            (Ok(()), Some(found)) => {
                found.active.end += size;
                found.last = last;
                self.stats.batches += 1;
                Ok(())
            }
            (written, _) => {
                let error = written.err().unwrap_or_else(unrecovered);
                Err(AppendError { error, unknown: !self.invalidate() })
            }
        }
    }

    fn wants_checkpoint(&self, live: u64) -> bool {
        let log = self.log_bytes();
        self.running.is_none()
            && log >= self.not_before
            && log > self.options.checkpoint_bytes.max(live.saturating_mul(self.options.checkpoint_ratio))
    }

    fn begin_checkpoint(&mut self) -> io::Result<Box<dyn Checkpoint>> {
        if self.broken || self.active()?.end > HEAD as u64 {
            self.rotate()?;
        }
        let found = self.found.as_ref().ok_or_else(unrecovered)?;
        let head =
            Head { kind: FileKind::Checkpoint, store: found.store, number: 0, base: found.last, salt: random() as u32 };
        let mut file = self.disk.create(CHECKPOINT_NEW)?;
        file.write_at(0, &head.encode())?;
        let bytes = Arc::new(AtomicU64::new(0));
        self.running = Some(Running { replaces: found.active.number, bytes: bytes.clone() });
        Ok(Box::new(LogCheckpoint {
            disk: self.disk.clone(),
            file,
            head,
            end: HEAD as u64,
            buffer: Vec::new(),
            replaces: found.active.number,
            bytes,
        }))
    }

    fn end_checkpoint(&mut self, succeeded: bool) {
        let Some((running, found)) = self.running.take().zip(self.found.as_mut()) else { return };
        if succeeded {
            found.sealed.retain(|sealed| sealed.number >= running.replaces);
            self.stats.checkpoint_bytes = running.bytes.load(Ordering::Relaxed);
            self.stats.checkpoints += 1;
            self.not_before = 0;
        } else {
            self.not_before = self.log_bytes() + (self.options.checkpoint_bytes / 4);
        }
    }

    fn stats(&self) -> EngineStats {
        EngineStats { log_bytes: self.log_bytes(), ..self.stats }
    }
}

/// A checkpoint on its way to disk; complete only under its final name.
struct LogCheckpoint {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    head: Head,
    end: u64,
    buffer: Vec<u8>,
    /// Segments below this number are not needed once this is durable.
    replaces: u64,
    bytes: Arc<AtomicU64>,
}

impl LogCheckpoint {
    fn frame(&mut self, frame: Frame<'_>) -> io::Result<()> {
        frame.encode(self.head.salt, &mut self.buffer);
        if self.buffer.len() >= 1 << 20 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(self.end, &self.buffer)?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Checkpoint for LogCheckpoint {
    fn entries(&mut self, base: u64, chunk: &[u8]) -> io::Result<()> {
        self.frame(Frame { kind: FrameKind::Entries, first: base, last: base, payload: chunk })
    }

    fn batch(&mut self, first: u64, last: u64, batch: &[u8]) -> io::Result<()> {
        self.frame(Frame { kind: FrameKind::Batch, first, last, payload: batch })
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        let revision = self.head.base;
        self.frame(Frame { kind: FrameKind::End, first: revision, last: revision, payload: &[] })?;
        self.flush()?;
        self.file.sync()?;
        self.disk.rename(CHECKPOINT_NEW, &checkpoint_name(revision))?;
        self.disk.sync()?;
        self.bytes.store(self.end, Ordering::Relaxed);
        // From here on everything older is superfluous. What cannot be removed now is removed later: go by what is there.
        let older = |name: &String| {
            number_in(name, CHECKPOINT).is_some_and(|checkpoint| checkpoint < revision)
                || number_in(name, SEGMENT).is_some_and(|segment| segment < self.replaces)
        };
        for name in self.disk.list()?.into_iter().filter(older) {
            if let Err(error) = self.disk.remove(&name) {
                tracing::warn!(file = name, %error, "cannot remove a file that a checkpoint has replaced");
            }
        }
        Ok(())
    }
}

impl Drop for LogCheckpoint {
    fn drop(&mut self) {
        // After `finish` the name is gone; before, an abandoned file would only take space.
        let _ = self.disk.remove(CHECKPOINT_NEW);
    }
}

/// Makes a segment that is whole under its final name, or not there.
pub(super) fn create_segment(
    disk: &dyn Disk,
    store: u64,
    number: u64,
    base: u64,
    allocate: u64,
) -> io::Result<Segment> {
    let head = Head { kind: FileKind::Segment, store, number, base, salt: random() as u32 };
    let mut file = disk.create(SEGMENT_NEW)?;
    file.write_at(0, &head.encode())?;
    // Without room for a whole step the segment begins small: its head matters more.
    let allocated = match file.allocate(0, allocate.max(HEAD as u64)) {
        Ok(()) => allocate.max(HEAD as u64),
        Err(_) => HEAD as u64,
    };
    file.sync()?;
    disk.rename(SEGMENT_NEW, &segment_name(number))?;
    disk.sync()?;
    Ok(Segment { file, number, salt: head.salt, end: HEAD as u64, allocated })
}

pub(super) const FORMAT: &str = "format";
pub(super) const FORMAT_NEW: &str = "format.new";
pub(super) const SEGMENT: &str = "segment-";
const SEGMENT_NEW: &str = "segment.new";
pub(super) const CHECKPOINT: &str = "checkpoint-";
const CHECKPOINT_NEW: &str = "checkpoint.new";

pub(super) fn segment_name(number: u64) -> String {
    format!("{SEGMENT}{number:020}")
}

pub(super) fn checkpoint_name(revision: u64) -> String {
    format!("{CHECKPOINT}{revision:020}")
}

/// The number in a file's name, if the name is one of `kind`.
pub(super) fn number_in(name: &str, kind: &str) -> Option<u64> {
    let digits = name.strip_prefix(kind)?;
    (digits.len() == 20).then(|| digits.parse().ok())?
}

/// Different each time; nothing secret hangs on it.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn unrecovered() -> io::Error {
    io::Error::other("the log was not recovered")
}
