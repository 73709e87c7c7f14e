//! Whose certificates are believed.
//!
//! Like Kubernetes, a certificate that stands in the caBundle itself is believed, even if it says that it is an authority: what
//! `openssl req -x509` makes, and what most who try a webhook have. The library's verifier alone refuses those.

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::pki::Pair;

/// The TLS side of a webhook call.
pub fn client_tls(
    ca_bundle: Option<&[u8]>,
    insecure: bool,
    identity: Option<&Pair>,
) -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trusted = match ca_bundle {
        _ if insecure => None,
        None => Some(Trusted { inner: system(&provider)?, own: Vec::new() }),
        Some(bundle) => {
            let own: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(bundle)
                .collect::<Result<_, _>>()
                .map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block".to_owned())?;
            if own.is_empty() {
                return Err("unable to load root certificates: unable to parse bytes as PEM block".into());
            }
            let mut roots = RootCertStore::empty();
            for certificate in &own {
                roots.add(certificate.clone()).map_err(|error| format!("unable to load root certificates: {error}"))?;
            }
            Some(Trusted { inner: webpki(roots, &provider)?, own })
        }
    };
    let verifier = Arc::new(Verifier { provider: provider.clone(), trusted });
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
            let (chain, key) = chain.and_then(|chain| Ok((chain, key?))).map_err(|error| error.to_string())?;
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn webpki(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| format!("unable to load root certificates: {error}"))
}

/// The system's authorities, read once.
fn system(provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    static ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    webpki(ROOTS.clone(), provider)
        .map_err(|_| "tls: this machine has no certificate authorities: give the webhook a caBundle".to_owned())
}

/// Believes what the given certificates sign, and the certificates themselves; or everybody. Whoever shows a certificate must have
/// its key in any case.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trusted: Option<Trusted>,
}

#[derive(Debug)]
struct Trusted {
    inner: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(Trusted { inner, own }) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let checked = inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let error = match checked {
            Ok(verified) => return Ok(verified),
            Err(error) => error,
        };
        if let rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) = &error
        {
            return Err(name_error(end_entity, server_name));
        }
        if !own.contains(end_entity) {
            return Err(error);
        }
        let (_, certificate) = X509Certificate::from_der(end_entity)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let validity = certificate.validity();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if seconds > validity.not_after.timestamp() {
            return Err(CertificateError::Expired.into());
        }
        if seconds < validity.not_before.timestamp() {
            return Err(CertificateError::NotValidYet.into());
        }
        let parsed = rustls::server::ParsedCertificate::try_from(end_entity)?;
        rustls::client::verify_server_name(&parsed, server_name).map_err(|_| name_error(end_entity, server_name))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Which names a certificate is for.
fn name_error(certificate: &CertificateDer<'_>, wanted: &ServerName<'_>) -> rustls::Error {
    let names: Vec<String> = match X509Certificate::from_der(certificate) {
        Ok((_, certificate)) => match certificate.subject_alternative_name() {
            Ok(Some(names)) => names.value.general_names.iter().filter_map(name_text).collect(),
            _ => Vec::new(),
        },
        Err(_) => Vec::new(),
    };
    let wanted = wanted.to_str();
    let text = if names.is_empty() {
        "x509: certificate relies on legacy Common Name field, use SANs instead".to_owned()
    } else {
        format!("x509: certificate is valid for {}, not {wanted}", names.join(", "))
    };
    rustls::Error::General(text)
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| std::net::Ipv4Addr::from(bytes).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| std::net::Ipv6Addr::from(bytes).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// A failed handshake in Kubernetes' words.
pub fn in_words(error: &io::Error, name: &str) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "EOF".into(),
            io::ErrorKind::ConnectionReset => "read: connection reset by peer".into(),
            _ => error.to_string(),
        };
    };
    let why = match tls {
        // A bad signature: an authority of that name, but another one.
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "x509: certificate has expired or is not yet valid".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::NotValidForName) => {
            format!("x509: certificate is not valid for {name}")
        }
        rustls::Error::General(text) if text.starts_with("x509: ") => text.clone(),
        rustls::Error::InvalidCertificate(other) => format!("x509: {other}"),
        rustls::Error::InvalidMessage(_) => return "tls: first record does not look like a TLS handshake".into(),
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: {why}")
}
