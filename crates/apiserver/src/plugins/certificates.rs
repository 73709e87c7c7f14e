//! Certificate requests: who asks is on record, and who approves or signs may do so for that signer.

use std::sync::Arc;

use machinery::status::Status;
use serde_json::{Value, json};

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

/// Whether a certificate is asked for that would be in `system:masters`.
fn names_masters(request: &str) -> bool {
    use base64::Engine;
    use x509_parser::prelude::FromDer;
    let Ok(pem) = base64::engine::general_purpose::STANDARD.decode(request) else { return false };
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(&pem) else { return false };
    let parsed = x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents);
    parsed.is_ok_and(|(_, request)| {
        let groups = request.certification_request_info.subject.iter_organization();
        groups.into_iter().any(|group| group.as_str() == Ok(crate::user::MASTERS))
    })
}
