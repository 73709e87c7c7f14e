//! Frames: the unit that is whole or not there. A file is one head and then frames.
//!
//! ```text
//! head:   "conductor store\n" | kind u8 | zero | version u16 | store id u64 | number u64 | base u64 | salt u32 | zero u32 | crc u32
//! frame:  magic u32 | length u32 | crc u32 | kind u8 | first u64 | last u64 | payload
//! ```
//!
//! A batch is one frame and one `fdatasync`, so behind a frame that a crash tore there can never be another whole one: finding
//! one means corruption. The checksum begins with the file's random salt, so that no value a client stores can pass for a frame.

pub(crate) const VERSION: u16 = 1;
pub(crate) const HEAD: usize = 56;
pub(crate) const FRAME: usize = 29;
const NAME: &[u8; 16] = b"conductor store\n";
const MAGIC: [u8; 4] = [0xc5, 0x7e, 0x0a, 0x1f];

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Batch = 1,
    Entries = 2,
    /// The end of a checkpoint: without it the checkpoint is not complete.
    End = 3,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment = 1,
    Checkpoint = 2,
    Format = 3,
}

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: FileKind,
    pub(crate) store: u64,
    /// The number of a segment.
    pub(crate) number: u64,
    /// Of a segment: the last revision before it; whatever an older segment holds beyond it never happened. Of a checkpoint: its
    /// revision.
    pub(crate) base: u64,
    pub(crate) salt: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadHead {
    Foreign,
    Newer(u16),
    Damaged,
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..16].copy_from_slice(NAME);
        head[16] = self.kind as u8;
        head[18..20].copy_from_slice(&VERSION.to_le_bytes());
        head[20..28].copy_from_slice(&self.store.to_le_bytes());
        head[28..36].copy_from_slice(&self.number.to_le_bytes());
        head[36..44].copy_from_slice(&self.base.to_le_bytes());
        head[44..48].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&head[..52]);
        head[52..].copy_from_slice(&crc.to_le_bytes());
        head
    }

    pub(crate) fn decode(bytes: &[u8], kind: FileKind) -> Result<Head, BadHead> {
        let Some(head) = bytes.get(..HEAD) else {
            return Err(if bytes.starts_with(NAME) { BadHead::Damaged } else { BadHead::Foreign });
        };
        if &head[..16] != NAME {
            return Err(BadHead::Foreign);
        }
        let version = u16::from_le_bytes(array(&head[18..]));
        // The version is read before the checksum: a newer format may lay out the rest differently.
        if version > VERSION {
            return Err(BadHead::Newer(version));
        }
        if crc32c::crc32c(&head[..52]) != u32::from_le_bytes(array(&head[52..])) || head[16] != kind as u8 {
            return Err(BadHead::Damaged);
        }
        Ok(Head {
            kind,
            store: u64::from_le_bytes(array(&head[20..])),
            number: u64::from_le_bytes(array(&head[28..])),
            base: u64::from_le_bytes(array(&head[36..])),
            salt: u32::from_le_bytes(array(&head[44..])),
        })
    }
}

/// The first bytes of a slice that is known to be long enough.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

/// A frame as found in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: FrameKind,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(crate) fn encode(&self, salt: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        // Limits keep a batch far below 4 GiB.
        out.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.push(self.kind as u8);
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.last.to_le_bytes());
        out.extend_from_slice(self.payload);
        let crc = checksum(salt, &out[start..]);
        out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
    }

    /// The frame that `bytes` begin with, if it is whole.
    pub(crate) fn decode(bytes: &'a [u8], salt: u32) -> Option<Frame<'a>> {
        let length = Frame::length(bytes)?;
        let frame = bytes.get(..FRAME + length)?;
        if checksum(salt, frame) != u32::from_le_bytes(array(&frame[8..])) {
            return None;
        }
        let kind = match frame[12] {
            1 => FrameKind::Batch,
            2 => FrameKind::Entries,
            3 => FrameKind::End,
            _ => return None,
        };
        Some(Frame {
            kind,
            first: u64::from_le_bytes(array(&frame[13..])),
            last: u64::from_le_bytes(array(&frame[21..])),
            payload: &frame[FRAME..],
        })
    }

    /// The length that the frame's payload claims to have, if this looks like a frame at all.
    pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
        (bytes.len() >= FRAME && bytes[..4] == MAGIC).then(|| u32::from_le_bytes(array(&bytes[4..])) as usize)
    }

    /// Where in `bytes` the next whole frame begins, if there is one.
    ///
    /// Values full of what looks like frames could make this slow, so it gives up when it has summed 1 GiB.
    pub(crate) fn find(bytes: &[u8], salt: u32) -> Option<usize> {
        let (mut at, mut budget) = (0, 1_usize << 30);
        while let Some(step) = bytes[at..].iter().position(|byte| *byte == MAGIC[0]) {
            at += step;
            if let Some(length) = Frame::length(&bytes[at..]).filter(|length| FRAME + length <= bytes.len() - at) {
                budget = budget.checked_sub(FRAME + length)?;
                if Frame::decode(&bytes[at..], salt).is_some() {
                    return Some(at);
                }
            }
            at += 1;
        }
        None
    }

    /// The size in the file.
    pub(crate) fn size(&self) -> u64 {
        (FRAME + self.payload.len()) as u64
    }
}

/// Over the salt, the length, and everything behind the checksum.
fn checksum(salt: u32, frame: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(salt, &frame[4..8]);
    crc32c::crc32c_append(crc, &frame[12..])
}
