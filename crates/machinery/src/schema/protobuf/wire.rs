//! Protobuf's wire format.
use super::ProtobufError;

/// One value on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::Malformed("wrong wireType")),
        }
    }

    pub fn text(self) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ProtobufError::Malformed("invalid UTF-8"))
    }

    pub fn integer(self) -> Result<i64, ProtobufError> {
        match self {
            Wire::Varint(number) => Ok(number as i64),
            _ => Err(ProtobufError::Malformed("wrong wireType")),
        }
    }
}

/// Reads the fields of a message one after another.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Reader { rest }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field: its number and its value.
    pub fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or(ProtobufError::Malformed("illegal tag"))?;
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| ProtobufError::Malformed("unexpected EOF"))?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(ProtobufError::Malformed("illegal wireType")),
        };
        Ok(Some((number, value)))
    }

    pub fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Malformed("integer overflow"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(ProtobufError::Malformed("unexpected EOF"))?;
        self.rest = rest;
        Ok(*array)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Malformed("unexpected EOF"))?;
        self.rest = rest;
        Ok(taken)
    }
}

pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_integer(field: u32, number: i64, out: &mut Vec<u8>) {
    put_varint(u64::from(field) << 3, out);
    put_varint(number as u64, out);
}

pub(super) fn put_double(field: u32, number: f64, out: &mut Vec<u8>) {
    put_varint(u64::from(field) << 3 | 1, out);
    out.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(field) << 3 | 2, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a message whose length is known only afterwards: most are short, so one byte is kept for it.
pub(super) fn put_message(field: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    put_varint(u64::from(field) << 3 | 2, out);
    let at = out.len();
    out.push(0);
    content(out);
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
    } else {
        let mut prefix = Vec::with_capacity(5);
        put_varint(length as u64, &mut prefix);
        out.splice(at..=at, prefix);
    }
}
