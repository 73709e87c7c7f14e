//! Signs what a CertificateSigningRequest asks for: the key and subject as they were asked for, what it may be used for as approved.
//!
//! The certificate is written by hand: the library that makes this server's own ones keeps only one organization, and these are groups.

use rcgen::SigningKey;
use ring::rand::{SecureRandom, SystemRandom};
use time::{Duration, OffsetDateTime};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

use crate::pki::Pki;

/// How long a certificate is valid at most, and at least.
const LONGEST: Duration = Duration::days(365);
const SHORTEST: Duration = Duration::minutes(10);
/// Clocks of others may be late by this; what is valid for less than `SHORT` ends when it was asked to.
const BACKDATE: Duration = Duration::minutes(5);
const SHORT: Duration = Duration::hours(8);

/// For whom a signer signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Clients of this server.
    Client,
    /// Kubelets as clients of this server.
    KubeletClient,
    /// Kubelets as servers.
    KubeletServing,
}

impl Signer {
    /// The signer of a name, if it is one of this server's.
    pub fn named(name: &str) -> Option<Signer> {
        match name {
            "kubernetes.io/kube-apiserver-client" => Some(Signer::Client),
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(Signer::KubeletClient),
            "kubernetes.io/kubelet-serving" => Some(Signer::KubeletServing),
            _ => None,
        }
    }

    /// Why it does not sign this.
    fn check(self, request: &X509CertificationRequest<'_>, usages: &[&str]) -> Result<(), String> {
        if self == Signer::Client {
            return match usages.iter().find(|usage| !CLIENT.contains(usage)) {
                Some(usage) => Err(format!("invalid usage for client certificate: {usage}")),
                None if usages.contains(&"client auth") => Ok(()),
                None => Err("missing required usage for client certificate: client auth".into()),
            };
        }
        let subject = &request.certification_request_info.subject;
        let text = |value: &AttributeTypeAndValue<'_>| value.as_str().unwrap_or_default().to_owned();
        let groups: Vec<String> = subject.iter_organization().map(text).collect();
        if groups != ["system:nodes"] {
            return Err("subject organization is not system:nodes".into());
        }
        let names = names(request);
        let has = |is: fn(&GeneralName<'_>) -> bool| names.iter().any(|name| is(name));
        let (dns, ip) =
            (has(|n| matches!(n, GeneralName::DNSName(_))), has(|n| matches!(n, GeneralName::IPAddress(_))));
        if self == Signer::KubeletServing && !dns && !ip {
            return Err("DNS or IP subjectAltName is required".into());
        }
        for (is, name) in [
            (self == Signer::KubeletClient && dns, "DNS"),
            (has(|n| matches!(n, GeneralName::RFC822Name(_))), "Email"),
            (self == Signer::KubeletClient && ip, "IP"),
            (has(|n| matches!(n, GeneralName::URI(_))), "URI"),
        ] {
            if is {
                return Err(format!("{name} subjectAltNames are not allowed"));
            }
        }
        // Of several the last one counts.
        if !subject.iter_common_name().last().map(text).unwrap_or_default().starts_with("system:node:") {
            return Err("subject common name does not begin with system:node:".into());
        }
        let auth = if self == Signer::KubeletServing { "server auth" } else { "client auth" };
        let needed = |usage: &str| usage == "digital signature" || usage == auth;
        let all = usages.iter().all(|usage| needed(usage) || *usage == "key encipherment");
        if !all || !["digital signature", auth].iter().all(|needed| usages.contains(needed)) {
            let mut wanted = [auth, "digital signature", "key encipherment"];
            wanted.sort_unstable();
            return Err(format!("usages did not match [{}]", wanted.join(" ")));
        }
        Ok(())
    }
}

/// The common name that a request for a certificate says; of several the last one.
pub fn common_name(request: &serde_json::Value) -> Result<String, String> {
    use base64::Engine;
    let text = request.as_str().unwrap_or_default();
    let pem = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let block = x509_parser::pem::parse_x509_pem(&pem).map(|(_, block)| block).ok();
    let block = block.filter(|block| block.label == "CERTIFICATE REQUEST");
    let block = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
    let name = request.certification_request_info.subject.iter_common_name().last();
    Ok(name.and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned())
}

const CLIENT: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

fn names<'a>(request: &'a X509CertificationRequest<'_>) -> Vec<&'a GeneralName<'a>> {
    let extensions = request.requested_extensions().into_iter().flatten();
    let names = extensions.filter_map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    });
    names.flatten().collect()
}

/// What went wrong.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It will never be signed, and why.
    Never(String),
    /// It could not be signed.
    Failed(String),
}

/// The certificate that a request in PEM asks for, in PEM.
pub fn sign(
    pki: &Pki,
    signer: Signer,
    pem: &[u8],
    usages: &[&str],
    seconds: Option<i64>,
    now: OffsetDateTime,
) -> Result<String, Refusal> {
    let failed = |error: &dyn std::fmt::Display| Refusal::Failed(error.to_string());
    let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|error| failed(&error))?;
    let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|error| failed(&error))?;
    signer.check(&request, usages).map_err(Refusal::Never)?;
    let (_, ca) = x509_parser::pem::parse_x509_pem(pki.ca().as_bytes()).map_err(|error| failed(&error))?;
    let (_, ca) = X509Certificate::from_der(&ca.contents).map_err(|error| failed(&error))?;
    let lifetime = seconds.map_or(LONGEST, Duration::seconds).clamp(SHORTEST, LONGEST);
    let until = if lifetime < SHORT { now + lifetime } else { now + lifetime - BACKDATE };
    let until = until.unix_timestamp().min(ca.validity().not_after.timestamp());

    let mut serial = [0u8; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| Refusal::Failed("no randomness".into()))?;
    // Above zero, and not written with a zero in front.
    serial[0] = serial[0] & 0x3f | 0x40;
    let info = &request.certification_request_info;
    let body = sequence(&[
        &tlv(0xa0, &tlv(0x02, &[2])),
        &tlv(0x02, &serial),
        &algorithm(),
        ca.subject().as_raw(),
        &sequence(&[&moment((now - BACKDATE).unix_timestamp()), &moment(until)]),
        &subject(&info.subject),
        info.subject_pki.raw,
        &tlv(0xa3, &extensions(&request, &ca, usages)),
    ]);
    let signature = pki.issuer().key().sign(&body).map_err(|error| failed(&error))?;
    let certificate = sequence(&[&body, &algorithm(), &tlv(0x03, &[&[0], &*signature].concat())]);
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, certificate);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
    Ok(format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n")))
}

/// The last byte of the attributes of a subject that Go's certificates know (2.5.4.N): nobody gives themselves another, such as a uid.
const KNOWN: [u8; 9] = [3, 5, 6, 7, 8, 9, 10, 11, 17];

/// A subject as it was asked for, with the attributes that are known. One whose text is written in a way of its own could read otherwise
/// when it is written anew: it is left out, too.
fn subject(asked: &X509Name<'_>) -> Vec<u8> {
    let is_known = |own: &&AttributeTypeAndValue<'_>| matches!(own.attr_type().as_bytes(), [0x55, 0x04, last] if KNOWN.contains(last));
    if asked.iter_attributes().all(|own| is_known(&own)) {
        return asked.as_raw().to_vec();
    }
    let is_plain = |own: &&AttributeTypeAndValue<'_>| {
        let header = &own.attr_value().header;
        header.is_universal() && header.is_primitive() && header.tag().0 <= 30
    };
    let written = |own: &AttributeTypeAndValue<'_>| {
        let (id, value) = (own.attr_type().as_bytes(), own.attr_value());
        sequence(&[&tlv(0x06, id), &tlv(u8::try_from(value.tag().0).unwrap_or_default(), value.data)])
    };
    let part = |own: &RelativeDistinguishedName<'_>| -> Vec<Vec<u8>> {
        own.iter().filter(is_known).filter(is_plain).map(written).collect()
    };
    let parts = asked.iter_rdn().map(part).filter(|part| !part.is_empty());
    tlv(0x30, &parts.map(|part| tlv(0x31, &part.concat())).collect::<Vec<_>>().concat())
}

fn extensions(request: &X509CertificationRequest<'_>, ca: &X509Certificate<'_>, usages: &[&str]) -> Vec<u8> {
    let extension = |id: &[u8], critical: bool, value: &[u8]| {
        let critical = if critical { tlv(0x01, &[0xff]) } else { Vec::new() };
        sequence(&[&tlv(0x06, id), &critical, &tlv(0x04, value)])
    };
    let mut list = Vec::new();
    let bits = [("digital signature", 0x80), ("key encipherment", 0x20)];
    let bits = bits.iter().filter(|(usage, _)| usages.contains(usage)).fold(0u8, |all, (_, bit)| all | bit);
    if bits != 0 {
        let unused = u8::try_from(bits.trailing_zeros()).unwrap_or_default();
        list.push(extension(&[0x55, 0x1d, 0x0f], true, &tlv(0x03, &[unused, bits])));
    }
    // id-kp-serverAuth and id-kp-clientAuth.
    let purposes: Vec<Vec<u8>> = [("server auth", 1), ("client auth", 2)]
        .iter()
        .filter(|(usage, _)| usages.contains(usage))
        .map(|(_, last)| tlv(0x06, &[0x2b, 6, 1, 5, 5, 7, 3, *last]))
        .collect();
    list.push(extension(&[0x55, 0x1d, 0x25], false, &tlv(0x30, &purposes.concat())));
    list.push(extension(&[0x55, 0x1d, 0x13], true, &sequence(&[])));
    for own in ca.extensions() {
        if let ParsedExtension::SubjectKeyIdentifier(id) = own.parsed_extension() {
            list.push(extension(&[0x55, 0x1d, 0x23], false, &sequence(&[&tlv(0x80, id.0)])));
        }
    }
    if let Some(names) = raw_names(request) {
        list.push(extension(&[0x55, 0x1d, 0x11], false, names));
    }
    sequence(&list.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The names that are asked for, as they were written.
fn raw_names<'a>(request: &'a X509CertificationRequest<'_>) -> Option<&'a [u8]> {
    use x509_parser::cri_attributes::ParsedCriAttribute;
    let attributes = request.certification_request_info.iter_attributes();
    let requested = attributes.filter_map(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(requested) => Some(&requested.extensions),
        _ => None,
    });
    let names = |own: &&x509_parser::extensions::X509Extension<'_>| {
        matches!(own.parsed_extension(), ParsedExtension::SubjectAlternativeName(_))
    };
    requested.flatten().find(names).map(|own| own.value)
}

/// ECDSA with SHA-256: what the CA's key signs with.
fn algorithm() -> Vec<u8> {
    sequence(&[&tlv(0x06, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2])])
}

fn moment(seconds: i64) -> Vec<u8> {
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    let rest = format!("{month:02}{day:02}{:02}{:02}{:02}Z", at.hour(), at.minute(), at.second());
    // From 2050 on years have four digits.
    match year {
        1950..2050 => tlv(0x17, format!("{:02}{rest}", year % 100).as_bytes()),
        _ => tlv(0x18, format!("{year:04}{rest}").as_bytes()),
    }
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tlv(0x30, &parts.concat())
}

fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = value.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|byte| **byte == 0).count().min(length.len() - 1)..];
    if value.len() >= 0x80 {
        out.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
    }
    out.extend_from_slice(digits);
    out.extend_from_slice(value);
    out
}
