use super::*;

#[test]
fn envelopes_open_as_they_were_closed() {
    let envelope = Envelope { api_version: "apps/v1", kind: "Deployment", raw: b"abc" };
    let mut bytes = Vec::new();
    envelope.write(&mut bytes);
    assert_eq!(Envelope::read(&bytes), Ok(envelope));
    for cut in 5..bytes.len() - 4 {
        assert_ne!(Envelope::read(&bytes[..cut]), Ok(envelope), "{cut}");
    }
    assert_eq!(Envelope::read(b"{}"), Err(ProtobufError::Magic));
}

#[test]
fn frames_say_their_length() {
    let mut out = Vec::new();
    watch_frame("ADDED", b"xyz", &mut out);
    assert_eq!(out, b"\0\0\0\x0e\x0a\x05ADDED\x12\x05\x0a\x03xyz");
}
