//! Authentication: client certificates, tokens from a file, service-account tokens.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, header};
use x509_parser::prelude::*;

use crate::user::User;

/// The attribute of a subject that is the user's uid, 1.3.6.1.4.1.57683.2: Kubernetes' own.
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];

/// Why a client certificate does not say who its user is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UidError {
    /// It is no text.
    #[error("unable to parse UID into a string")]
    NoText,
    /// There are several.
    #[error("expected 1 UID, but found multiple: [{0}]")]
    Several(String),
    /// It says nothing.
    #[error("UID cannot be an empty string")]
    Empty,
}

/// The user that a client certificate names: the common name, the last if there are several as everywhere in Kubernetes, with
/// the organisations as groups. The TLS layer has already checked that our CA signed it.
pub fn user_of_certificate(der: &[u8]) -> Result<Option<Arc<User>>, UidError> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Ok(None) };
    let subject = certificate.subject();
    let name = subject.iter_common_name().last().and_then(|name| name.as_str().ok()).unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let groups: Vec<String> =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let mut user = User::new(name, groups);
    let digest = ring::digest::digest(&ring::digest::SHA256, der);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let credential = ("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={hex}")]);
    let known = Arc::make_mut(&mut user);
    known.uid = uid(subject)?;
    known.extra.extend([credential]);
    Ok(Some(user))
}

/// The uid that a subject says; nothing if it says none.
fn uid(subject: &X509Name<'_>) -> Result<String, UidError> {
    let all = subject.iter_attributes().filter(|own| own.attr_type().as_bytes() == UID);
    let all = all.map(|own| own.as_str().map_err(|_| UidError::NoText)).collect::<Result<Vec<_>, _>>()?;
    match *all.as_slice() {
        [] => Ok(String::new()),
        [""] => Err(UidError::Empty),
        [only] => Ok(only.to_owned()),
        _ => Err(UidError::Several(all.join(" "))),
    }
}

/// The bearer token of a request. One that is no text is empty, which is nobody's: who sends it is refused, not anonymous.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(header::AUTHORIZATION)?.as_bytes().trim_ascii();
    let space = header.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = (&header[..space], header[space..].trim_ascii());
    scheme.eq_ignore_ascii_case(b"bearer").then(|| std::str::from_utf8(token).unwrap_or_default())
}

/// Tokens from a file, as kube-apiserver reads it: `token,user,uid,"group1,group2"`.
#[derive(Default)]
pub struct TokenFile(HashMap<[u8; 32], Arc<User>>);

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read token file {0}: {1}")]
    Io(String, std::io::Error),
    /// A line is not as it should be.
    #[error("token file line {0}: {1}; each line is token,user,uid,\"group1,group2\"")]
    Line(usize, &'static str),
}

fn digest(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
    out
}

impl TokenFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<TokenFile, TokenFileError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| TokenFileError::Io(path.display().to_string(), error))?;
        TokenFile::parse(&text)
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut tokens = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let cells = csv(line).ok_or(TokenFileError::Line(at + 1, "a quote is not closed"))?;
            let [token, name, rest @ ..] = cells.as_slice() else {
                return Err(TokenFileError::Line(at + 1, "needs at least a token, a user and a uid"));
            };
            if rest.is_empty() {
                return Err(TokenFileError::Line(at + 1, "needs at least a token, a user and a uid"));
            }
            if token.is_empty() {
                return Err(TokenFileError::Line(at + 1, "the token is empty"));
            }
            let groups = rest.get(1).map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
            let mut user = (*User::new(name, groups)).clone();
            user.uid = rest[0].clone();
            // Kept as digests: a lookup takes no time that depends on the secret.
            tokens.insert(digest(token), Arc::new(user));
        }
        Ok(TokenFile(tokens))
    }

    /// Whose token it is.
    pub fn user(&self, token: &str) -> Option<Arc<User>> {
        self.0.get(&digest(token)).cloned()
    }
}

/// The cells of one line of CSV; `None` if a quote is not closed.
fn csv(line: &str) -> Option<Vec<String>> {
    let mut cells = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        let mut cell = String::new();
        while chars.peek() == Some(&' ') {
            chars.next();
        }
        if chars.peek() == Some(&'"') {
            chars.next();
            loop {
                match chars.next()? {
                    '"' if chars.peek() == Some(&'"') => {
                        chars.next();
                        cell.push('"');
                    }
                    '"' => break,
                    c => cell.push(c),
                }
            }
            while chars.peek().is_some_and(|c| *c != ',') {
                chars.next();
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                cell.push(c);
            }
        }
        cells.push(cell.trim().to_owned());
        if chars.next().is_none() {
            return Some(cells);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of `jane` with these further attributes, of which each can be there once.
    fn certificate(attributes: &[(&[u64], rcgen::DnValue)]) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
        for (number, value) in attributes {
            params.distinguished_name.push(rcgen::DnType::CustomDnType(number.to_vec()), value.clone());
        }
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn certificates_say_the_uid_once_and_as_text() {
        let own: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];
        let other: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 3];
        let uid = |attributes: &[(&[u64], rcgen::DnValue)]| {
            user_of_certificate(&certificate(attributes)).map(|user| user.unwrap().uid.clone())
        };
        assert_eq!(uid(&[]), Ok(String::new()));
        assert_eq!(uid(&[(own, "uid-1234".into())]), Ok("uid-1234".into()));
        assert_eq!(uid(&[(other, "".into())]), Ok(String::new()), "of somebody else's attributes nothing is known");
        assert_eq!(uid(&[(own, "".into())]), Err(UidError::Empty));
        let letters = rcgen::DnValue::BmpString("a".try_into().unwrap());
        assert_eq!(uid(&[(own, letters)]), Err(UidError::NoText));
        // The library writes each attribute once: the second one is made of another by its last byte.
        let mut twice = certificate(&[(own, "a".into()), (other, "b".into())]);
        let mut there = UID.to_vec();
        *there.last_mut().unwrap() = 3;
        for at in 0..twice.len() - there.len() {
            if twice[at..].starts_with(&there) {
                twice[at..at + UID.len()].copy_from_slice(UID);
            }
        }
        let several = user_of_certificate(&twice);
        assert_eq!(several, Err(UidError::Several("a b".into())));
        assert_eq!(several.unwrap_err().to_string(), "expected 1 UID, but found multiple: [a b]");
    }

    #[test]
    fn token_files_are_read_as_kube_apiserver_reads_them() {
        let file = TokenFile::parse("t0ken,jane,u1,\"dev,ops\"\n# note\nother,bob,u2\n").unwrap();
        let jane = file.user("t0ken").unwrap();
        assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "u1"));
        assert_eq!(jane.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(file.user("other").unwrap().groups, ["system:authenticated"]);
        assert!(file.user("nope").is_none());
        assert!(TokenFile::parse("a,b\n").is_err());
        assert!(TokenFile::parse(",b,c\n").is_err());
        assert!(TokenFile::parse("a,\"b\n").is_err());
    }
}
