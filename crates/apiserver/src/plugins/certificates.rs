//! Certificate requests: who asks is on record, and who approves or signs may do so for that signer.

use std::sync::Arc;

use machinery::field;
use machinery::status::Status;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};
use crate::auth::authz::{Authorizer, Decision};
use crate::request::RequestInfo;
use crate::user::User;

const GROUP: &str = "certificates.k8s.io";
/// The signer of certificates that name users of this server.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// `CertificateApproval`, `CertificateSigning`, `CertificateSubjectRestriction`, and the sender's name on each request.
pub struct Requests(pub Arc<dyn Authorizer>);

impl Requests {
    /// Whether the sender may do something for a signer, or for all signers of its domain.
    fn may(&self, attributes: &Attributes<'_>, verb: &'static str, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
            let info = RequestInfo {
                is_resource: true,
                verb: verb.into(),
                group: GROUP.into(),
                version: "*".into(),
                resource: "signers".into(),
                name,
                ..RequestInfo::default()
            };
            matches!(self.0.authorize(attributes.user, &info), Decision::Allow(_))
        })
    }
}

fn is_request(attributes: &Attributes<'_>) -> bool {
    attributes.resource.gk() == (GROUP, "CertificateSigningRequest")
}

/// Writes on a new request who sent it, whatever the request says itself.
pub fn sign(request: &mut Value, user: &User) {
    let Some(spec) = request["spec"].as_object_mut() else { return };
    for (field, value) in [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ] {
        let empty = value == json!("") || value == json!({});
        if empty {
            spec.remove(field);
        } else {
            spec.insert(field.into(), value);
        }
    }
}

impl Plugin for Requests {
    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !is_request(attributes) {
            return Ok(());
        }
        let signer = attributes.old["spec"]["signerName"].as_str().unwrap_or_default();
        match (attributes.operation, attributes.subresource) {
            (Operation::Create, "") => {
                let spec = &attributes.object["spec"];
                if spec["signerName"] == CLIENT && names_masters(spec["request"].as_str().unwrap_or_default()) {
                    let why = format!("use of {CLIENT} signer with system:masters group is not allowed");
                    return Err(forbidden(attributes, why));
                }
            }
            (Operation::Update, "approval") if !self.may(attributes, "approve", signer) => {
                let why = format!("user not permitted to approve requests with signerName {signer:?}");
                return Err(forbidden(attributes, why));
            }
            (Operation::Update, "status") => {
                let (new, old) = (&attributes.object["status"], &attributes.old["status"]);
                let changed = new["certificate"] != old["certificate"] || new["conditions"] != old["conditions"];
                if changed && !self.may(attributes, "sign", signer) {
                    let why = format!("user not permitted to sign requests with signerName {signer:?}");
                    return Err(forbidden(attributes, why));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The PEM block of a request, which the API has as base64.
fn pem_of(request: &str) -> Option<Pem> {
    use base64::Engine;
    let pem = base64::engine::general_purpose::STANDARD.decode(request).ok()?;
    Some(x509_parser::pem::parse_x509_pem(&pem).ok()?.1)
}

/// Whether a certificate is asked for that would be in `system:masters`, or in a group that only others can read: of those nobody
/// here knows whether it is.
fn names_masters(request: &str) -> bool {
    let Some(pem) = pem_of(request) else { return false };
    X509CertificationRequest::from_der(&pem.contents).is_ok_and(|(_, request)| {
        let groups = request.certification_request_info.subject.iter_organization();
        groups.into_iter().any(|group| group.as_str().map_or(true, |group| group == crate::user::MASTERS))
    })
}

/// What is wrong with the request itself: it must be one, and signed by the key it names.
pub fn check(object: &Value) -> field::Errors {
    let request = object["spec"]["request"].as_str().unwrap_or_default();
    let wrong = match pem_of(request).filter(|pem| pem.label == "CERTIFICATE REQUEST") {
        None => "PEM block type must be CERTIFICATE REQUEST".to_owned(),
        Some(pem) => match X509CertificationRequest::from_der(&pem.contents) {
            Err(error) => format!("the PEM block is no PKCS#10 request: {error}"),
            Ok((_, request)) => match request.verify_signature() {
                Ok(()) => return field::Errors::new(),
                Err(error) => format!("the request is not signed by the key it names: {error}"),
            },
        },
    };
    let path = field::Path::root("spec").child("request");
    vec![field::Error::invalid(&path, object["spec"]["request"].clone(), wrong)]
}

/// What is wrong with a certificate that is issued: it must be one, or several, and nothing else.
pub fn check_issued(new: &Value, old: &Value) -> field::Errors {
    use base64::Engine;
    let issued = new["status"]["certificate"].as_str().unwrap_or_default();
    if issued.is_empty() || new["status"]["certificate"] == old["status"]["certificate"] {
        return field::Errors::new();
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(issued).unwrap_or_default();
    let mut count = 0;
    let mut wrong = None;
    for block in Pem::iter_from_buffer(&bytes) {
        count += 1;
        wrong = match block {
            Err(_) => Some("must be PEM blocks and nothing else".to_owned()),
            Ok(block) if block.label != "CERTIFICATE" => {
                Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label))
            }
            Ok(block) => block.parse_x509().err().map(|error| format!("x509: malformed certificate: {error}")),
        };
        if wrong.is_some() {
            break;
        }
    }
    if count == 0 {
        wrong = Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    let path = field::Path::root("status").child("certificate");
    wrong.map(|wrong| field::Error::invalid(&path, "<certificate data>", wrong)).into_iter().collect()
}
