//! Certificates: a CA that persists, what it signs for the server and the administrator, the kubeconfig that carries them.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

use crate::auth::tokens::Tokens;

/// Why the certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The file system refused.
    #[error("cannot {0} {1}: {2}")]
    Io(&'static str, PathBuf, io::Error),
    /// A file there is not what it should be.
    #[error(
        "{0} cannot be used: {1}; remove the directory it is in to have new ones made (clients then need the new kubeconfig)"
    )]
    Bad(PathBuf, String),
    /// Signing failed.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// No randomness, or no key.
    #[error("cannot make a signing key")]
    Key,
}

/// A certificate and its key, in PEM.
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Pair {
    /// Both as TLS wants them.
    pub(crate) fn der(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), pem::Error> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect::<Result<_, _>>()?;
        Ok((chain, PrivateKeyDer::from_pem_slice(self.key.as_bytes())?))
    }
}

/// The CA and the service accounts' key of one server.
pub struct Pki {
    ca: String,
    issuer: Issuer<'static, KeyPair>,
    /// Signs nothing but [`Pki::front_proxy`]: who is believed whatever they say must not come from the CA of all users.
    front_proxy: (String, Issuer<'static, KeyPair>),
    /// Signs service-account tokens (PKCS#8).
    pub service_account_key: Vec<u8>,
}

impl Pki {
    /// Reads them from a directory, making what is missing.
    pub fn open(dir: &Path) -> Result<Pki, PkiError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| PkiError::Io("make directory", dir.into(), error))?;
        let sa_path = dir.join("service-accounts.key");
        let (ca, issuer) = open_ca(dir, "ca", "conductor-ca")?;
        let front_proxy = open_ca(dir, "front-proxy-ca", "front-proxy-ca")?;
        if !sa_path.exists() {
            write_secret(&sa_path, &Tokens::generate().map_err(|_| PkiError::Key)?)?;
        }
        let service_account_key = fs::read(&sa_path).map_err(|error| PkiError::Io("read", sa_path, error))?;
        Ok(Pki { ca, issuer, front_proxy, service_account_key })
    }

    /// Made for this process only.
    pub fn ephemeral() -> Result<Pki, PkiError> {
        let make = |name: &str| -> Result<(String, Issuer<'static, KeyPair>), PkiError> {
            let pair = make_ca(name)?;
            let issuer = Issuer::from_ca_cert_pem(&pair.certificate, KeyPair::from_pem(&pair.key)?)?;
            Ok((pair.certificate, issuer))
        };
        let service_account_key = Tokens::generate().map_err(|_| PkiError::Key)?;
        let (ca, issuer) = make("conductor-ca")?;
        Ok(Pki { ca, issuer, front_proxy: make("front-proxy-ca")?, service_account_key })
    }

    /// The CA's certificate, in PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The CA's name and key.
    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// The CA of who may say in whose name they ask, in PEM.
    pub fn front_proxy_ca(&self) -> &str {
        &self.front_proxy.0
    }

    /// The certificate by which servers beside this one know it. It is made anew at every start.
    pub fn front_proxy(&self) -> Result<Pair, PkiError> {
        let mut params = params(FRONT_PROXY, None, Duration::days(365));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        sign(params, &self.front_proxy.1)
    }

    /// A certificate for the server. It is made anew at every start: clients trust the CA.
    pub fn server(&self, addresses: &[IpAddr], names: &[&str]) -> Result<Pair, PkiError> {
        let mut params = params("kube-apiserver", None, Duration::days(365));
        for address in addresses {
            params.subject_alt_names.push(SanType::IpAddress(*address));
        }
        for name in names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        sign(params, &self.issuer)
    }

    /// A certificate for a user of a group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Pair, PkiError> {
        let mut params = params(user, group, Duration::days(365));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        sign(params, &self.issuer)
    }

    /// A kubeconfig for a user of a group.
    pub fn kubeconfig(&self, server: &str, user: &str, group: Option<&str>) -> Result<String, PkiError> {
        let pair = self.client(user, group)?;
        let encode = |text: &str| STANDARD.encode(text);
        Ok(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: conductor\nclusters:\n- name: conductor\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\ncontexts:\n- name: conductor\n  context:\n    cluster: conductor\n    user: {user}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
            encode(&self.ca),
            encode(&pair.certificate),
            encode(&pair.key)
        ))
    }
}

/// The name of the certificate by which servers beside this one know it.
pub const FRONT_PROXY: &str = "front-proxy-client";

fn sign(mut params: CertificateParams, issuer: &Issuer<'static, KeyPair>) -> Result<Pair, PkiError> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Reads a CA of a directory, or makes it there.
fn open_ca(dir: &Path, file: &str, name: &str) -> Result<(String, Issuer<'static, KeyPair>), PkiError> {
    let (ca_path, key_path) = (dir.join(format!("{file}.crt")), dir.join(format!("{file}.key")));
    if !ca_path.exists() || !key_path.exists() {
        let pair = make_ca(name)?;
        write_secret(&key_path, pair.key.as_bytes())?;
        write_secret(&ca_path, pair.certificate.as_bytes())?;
    }
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| PkiError::Io("read", path.into(), error));
    let ca = read(&ca_path)?;
    let key = KeyPair::from_pem(&read(&key_path)?).map_err(|e| PkiError::Bad(key_path.clone(), e.to_string()))?;
    let issuer = Issuer::from_ca_cert_pem(&ca, key).map_err(|e| PkiError::Bad(ca_path.clone(), e.to_string()))?;
    Ok((ca, issuer))
}

fn params(name: &str, group: Option<&str>, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + lifetime;
    params
}

fn make_ca(name: &str) -> Result<Pair, PkiError> {
    let mut params = params(name, None, Duration::days(3650));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Writes a file that only its owner may read, whole or not at all.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    let temporary = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&temporary);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        PkiError::Io("write", path.into(), error)
    })
}
