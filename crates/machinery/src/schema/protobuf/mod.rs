//! Kubernetes' protobuf encoding, driven by the numbers in the schema table.
//!
//! Messages are what Kubernetes' own are, with two liberties that every reader allows: fields that were never set are left
//! out, and so are the messages around them.
mod read;
mod wire;
mod write;

use serde_json::Value;

use super::{DecodeError, Schema, decode};
use wire::{Reader, put_bytes};

pub use write::write;

/// What every body begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// Why bytes are no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The bytes do not begin as Kubernetes' protobuf does.
    #[error("provided data does not appear to be a protobuf message, expected prefix \"k8s\\x00\"")]
    Magic,
    /// The bytes end too early or are malformed.
    #[error("proto: {0}")]
    Malformed(&'static str),
    /// The content is of another type than the object's.
    #[error("{0}")]
    Decode(#[from] DecodeError),
}

/// The envelope around an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apps/v1`
    pub api_version: &'a str,
    /// `Deployment`
    pub kind: &'a str,
    /// The object, without apiVersion and kind.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens an envelope.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let bytes = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
        let mut envelope = Envelope { api_version: "", kind: "", raw: &[] };
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.field()? {
            match number {
                1 => {
                    let mut inner = Reader::new(value.bytes()?);
                    while let Some((number, value)) = inner.field()? {
                        match number {
                            1 => envelope.api_version = value.text()?,
                            2 => envelope.kind = value.text()?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = value.bytes()?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// Writes the envelope around its content.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut kind = Vec::with_capacity(self.api_version.len() + self.kind.len() + 4);
        put_bytes(1, self.api_version.as_bytes(), &mut kind);
        put_bytes(2, self.kind.as_bytes(), &mut kind);
        out.extend_from_slice(MAGIC);
        put_bytes(1, &kind, out);
        put_bytes(2, self.raw, out);
        put_bytes(3, b"", out);
        put_bytes(4, b"", out);
    }
}

/// Writes a whole object in its envelope. Its apiVersion and kind say what it is.
pub fn to_protobuf(value: &Value, schema: Schema<'_>) -> Vec<u8> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or("");
    let mut raw = Vec::new();
    write(value, schema, &mut raw);
    let mut out = Vec::with_capacity(raw.len() + 64);
    Envelope { api_version: text("apiVersion"), kind: text("kind"), raw: &raw }.write(&mut out);
    out
}

/// Reads a whole object out of its envelope, in the same form as [`decode`] gives.
pub fn from_protobuf(bytes: &[u8], schema: Schema<'_>) -> Result<Value, ProtobufError> {
    let envelope = Envelope::read(bytes)?;
    let mut value = read::message(envelope.raw, schema)?;
    if let Value::Object(map) = &mut value {
        for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() {
                map.insert(key.to_owned(), Value::from(text));
            }
        }
    }
    Ok(decode(value, schema)?.value)
}

/// Writes one event of a watch: `object` is an object in its envelope. The stream's frames (a length in four bytes, big
/// endian) are part of it.
pub fn watch_frame(event: &str, object: &[u8], out: &mut Vec<u8>) {
    let mut raw = Vec::with_capacity(object.len() + 8);
    put_bytes(1, object, &mut raw);
    let mut message = Vec::with_capacity(raw.len() + event.len() + 16);
    put_bytes(1, event.as_bytes(), &mut message);
    put_bytes(2, &raw, &mut message);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&message);
}

#[cfg(test)]
mod tests;
