//! The certificates and keys of a control plane, made anew for each.
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// A certificate and its private key, as PEM.
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

/// What a certificate is for.
pub enum Usage<'a> {
    /// A server under these names and addresses.
    Server(&'a [&'a str]),
    /// A client: user and groups as Kubernetes reads them from the subject.
    Client {
        /// Groups, from the organization.
        group: Option<&'a str>,
    },
}

impl Authority {
    /// A new authority.
    pub fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// A certificate by this authority.
    pub fn issue(&self, name: &str, usage: Usage<'_>) -> Result<Identity, rcgen::Error> {
        let mut params = match usage {
            Usage::Server(names) => {
                let mut params = CertificateParams::new(names.iter().map(|n| n.to_string()).collect::<Vec<_>>())?;
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                params.distinguished_name = subject(name, None);
                params
            }
            Usage::Client { group } => {
                let mut params = CertificateParams::default();
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                params.distinguished_name = subject(name, group);
                params
            }
        };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

/// The private key that signs service account tokens, and the public key that checks them.
pub fn signing_keys() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// A kubeconfig for one user of one server.
pub fn kubeconfig(server: &str, authority: &Authority, user: &str, identity: &Identity) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {user}@real\n\
         clusters:\n- name: real\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
         users:\n- name: {user}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n\
         contexts:\n- name: {user}@real\n  context: {{cluster: real, user: {user}}}\n",
        ca = STANDARD.encode(&authority.certificate),
        certificate = STANDARD.encode(&identity.certificate),
        key = STANDARD.encode(&identity.key),
    )
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, content: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())
}
