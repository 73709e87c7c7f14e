//! Approved requests are signed, and the certificates are good for what they say.

use super::client::Client;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde_json::{Value, json};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(name: &str, organization: &str, names: &[&str]) -> String {
    let mut params = CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    STANDARD.encode(params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap())
}

async fn ask(client: &Client, name: &str, signer: &str, usages: &[&str], request: String) {
    let spec = json!({"request": request, "signerName": format!("kubernetes.io/{signer}"), "usages": usages,
                      "expirationSeconds": 3600});
    let mut asked = client.create(REQUESTS, json!({"metadata": {"name": name}, "spec": spec})).await;
    let yes = json!([{"type": "Approved", "status": "True", "reason": "R", "message": "m"}]);
    asked["status"]["conditions"] = yes;
    let path = format!("{REQUESTS}/{name}/approval");
    let (code, answer) = client.send(Method::PUT, &path, "application/json", asked).await;
    assert_eq!(code, 200, "{answer}");
}

async fn until(client: &Client, name: &str, what: impl Fn(&Value) -> bool) -> Value {
    let path = format!("{REQUESTS}/{name}");
    client.until(&path, "answered", |own| own.is_some_and(|own| what(&own["status"]))).await.unwrap()["status"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_requests_are_signed_for_what_they_ask() {
    let client = Client::in_memory().await;
    // Two groups, as openssl writes them: CN=alice, O=painters, O=dancers.
    let alice = include_str!("alice.csr");
    ask(&client, "alice", "kube-apiserver-client", &["client auth", "digital signature"], STANDARD.encode(alice)).await;
    let status = until(&client, "alice", |status| status.get("certificate").is_some()).await;
    let pem = STANDARD.decode(status["certificate"].as_str().unwrap()).unwrap();
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    let (rest, certificate) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    let groups: Vec<&str> = certificate.subject().iter_organization().map(|o| o.as_str().unwrap()).collect();
    assert_eq!(groups, ["painters", "dancers"]);
    assert!(!certificate.is_ca());
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth);
    let lifetime = certificate.validity().not_after.timestamp() - certificate.validity().not_before.timestamp();
    assert_eq!(lifetime, 3600 + 300);

    // Whoever trusts the CA takes it.
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(client.0.pki().ca().as_bytes()).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
    verifier.verify_client_cert(&der, &[], UnixTime::now()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_have_signers_of_their_own() {
    let client = Client::in_memory().await;
    let serving = ["digital signature", "key encipherment", "server auth"];
    let own = request("system:node:n1", "system:nodes", &["n1", "192.0.2.7"]);
    ask(&client, "serving", "kubelet-serving", &serving, own.clone()).await;
    let status = until(&client, "serving", |status| status.get("certificate").is_some()).await;
    let pem = STANDARD.decode(status["certificate"].as_str().unwrap()).unwrap();
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
    assert_eq!(names, [GeneralName::DNSName("n1"), GeneralName::IPAddress(&[192, 0, 2, 7])]);

    for (name, signer, usages, request, why) in [
        (
            "a",
            "kubelet-serving",
            &serving[..],
            request("n1", "system:nodes", &["n1"]),
            "does not begin with system:node:",
        ),
        ("b", "kubelet-serving", &serving, request("system:node:n1", "others", &["n1"]), "is not system:nodes"),
        (
            "c",
            "kubelet-serving",
            &serving,
            request("system:node:n1", "system:nodes", &[]),
            "subjectAltName is required",
        ),
        ("d", "kube-apiserver-client-kubelet", &["client auth", "digital signature"], own, "DNS subjectAltNames"),
        ("e", "kube-apiserver-client", &["server auth", "client auth"], request("u", "g", &[]), "invalid usage"),
        ("f", "kube-apiserver-client", &["digital signature"], request("u", "g", &[]), "missing required usage"),
    ] {
        ask(&client, name, signer, usages, request).await;
        let status =
            until(&client, name, |status| status["conditions"].as_array().is_some_and(|all| all.len() > 1)).await;
        let failed = &status["conditions"][1];
        assert_eq!((&failed["type"], &failed["reason"]), (&json!("Failed"), &json!("SignerValidationFailure")));
        assert!(failed["message"].as_str().unwrap().contains(why), "{failed}");
        assert!(status.get("certificate").is_none());
    }
}

/// A request with these parts of a name, in this order.
fn request_of(parts: &[(DnType, rcgen::DnValue)]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    parts.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), value.clone()));
    STANDARD.encode(params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap())
}

/// Others take the last of several names for the user's. If this server took the first, who approves a node would make an administrator.
#[tokio::test(flavor = "multi_thread")]
async fn of_several_names_the_last_one_counts() {
    let client = Client::in_memory().await;
    // The library knows each kind once; by its number it is another one.
    let second = DnType::CustomDnType(vec![2, 5, 4, 3]);
    let nodes = (DnType::OrganizationName, "system:nodes".into());
    let usages = ["client auth", "digital signature"];
    let asked =
        request_of(&[nodes.clone(), (DnType::CommonName, "system:node:n".into()), (second.clone(), "admin".into())]);
    ask(&client, "last", "kube-apiserver-client-kubelet", &usages, asked).await;
    until(&client, "last", |status| status["conditions"][1]["type"] == "Failed").await;

    let asked = request_of(&[nodes, (DnType::CommonName, "admin".into()), (second, "system:node:n".into())]);
    ask(&client, "first", "kube-apiserver-client-kubelet", &usages, asked).await;
    let status = until(&client, "first", |status| status.get("certificate").is_some()).await;
    let pem = STANDARD.decode(status["certificate"].as_str().unwrap()).unwrap();
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    let user = conductor_apiserver::auth::authn::user_of_certificate(&der).unwrap().unwrap();
    assert_eq!(user.name, "system:node:n");
}

/// A kubeconfig's client with another certificate.
fn with_certificate(
    server: &conductor_apiserver::Server,
    url: &str,
    certificate: &[u8],
    key: &KeyPair,
) -> kube::Config {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.root_cert = Some(vec![CertificateDer::from_pem_slice(server.pki().ca().as_bytes()).unwrap().to_vec()]);
    config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
    config.auth_info.client_key_data = Some(STANDARD.encode(key.serialize_pem()).into());
    config
}

/// The uid of a user goes with their certificate; who has one without a meaning is refused, not nobody in particular.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_say_the_uid_or_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let client = Client::open(directory.path()).await;
    let listening = client.0.listen(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("https://{}", listening.address);
    let read = |file: &str| std::fs::read_to_string(directory.path().join("pki").join(file)).unwrap();
    let ca = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.crt"), ca).unwrap();
    for (uid, token, expected) in
        [("uid-1234", "", Some("uid-1234")), ("", "", None), ("", "Bearer x", None), ("", "Basic x", None)]
    {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), uid);
        params.extended_key_usages.push(rcgen::ExtendedKeyUsagePurpose::ClientAuth);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        let asker = kube::Client::try_from(with_certificate(&client.0, &url, certificate.as_bytes(), &key)).unwrap();
        let mut request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("content-type", "application/json");
        if !token.is_empty() {
            request = request.header("authorization", token);
        }
        let answer = asker.request::<Value>(request.body(b"{}".to_vec()).unwrap()).await;
        match (expected, answer) {
            (Some(uid), Ok(review)) => {
                let user = &review["status"]["userInfo"];
                assert_eq!((&user["username"], &user["uid"]), (&json!("jane"), &json!(uid)));
            }
            (None, Err(kube::Error::Api(status))) => assert_eq!(status.code, 401, "{token}"),
            (_, answer) => panic!("{uid} {token}: {answer:?}"),
        }
    }
}

/// What is signed says the names and groups that somebody approved, and nothing else that was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_chooses_a_uid() {
    let client = Client::in_memory().await;
    let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    let unit = (DnType::OrganizationalUnitName, "unit".into());
    let asked = request_of(&[
        (uid, "0".into()),
        (DnType::OrganizationName, "painters".into()),
        unit,
        (DnType::CommonName, "alice".into()),
    ]);
    ask(&client, "uid", "kube-apiserver-client", &["client auth"], asked).await;
    let status = until(&client, "uid", |status| status.get("certificate").is_some()).await;
    let pem = STANDARD.decode(status["certificate"].as_str().unwrap()).unwrap();
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    let user = conductor_apiserver::auth::authn::user_of_certificate(&der).unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", ""));
    assert!(user.in_group("painters"));
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.subject().to_string(), "O=painters, OU=unit, CN=alice");
}

/// An old kind of text that Go reads and this server does not.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_becomes_a_master_in_other_letters() {
    let client = Client::in_memory().await;
    let text = rcgen::DnValue::TeletexString("system:masters".try_into().unwrap());
    for masters in ["system:masters".into(), text] {
        let asked = request_of(&[(DnType::OrganizationName, masters), (DnType::CommonName, "eve".into())]);
        let spec =
            json!({"request": asked, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]});
        let body = json!({"metadata": {"name": "eve"}, "spec": spec});
        let (code, answer) = client.send(Method::POST, REQUESTS, "application/json", body).await;
        assert_eq!(code, 403, "{answer}");
    }
}

/// What is no certificate is none, and a decision is not made by the way.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_takes_certificates_and_no_decisions() {
    let client = Client::in_memory().await;
    let spec = json!({"request": request("x", "o", &[]), "signerName": "example.com/own", "usages": ["client auth"]});
    client.create(REQUESTS, json!({"metadata": {"name": "x"}, "spec": spec})).await;
    let status = format!("{REQUESTS}/x/status");
    let merge = "application/merge-patch+json";
    let whole = rcgen::generate_simple_self_signed(vec!["a".into()]).unwrap().cert.pem();
    let other = whole.replace("CERTIFICATE", "FOO");
    for wrong in
        ["a", "", &other, &format!("{whole}{other}"), "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"]
    {
        let patch = json!({"status": {"certificate": STANDARD.encode(wrong)}});
        let (code, answer) = client.send(Method::PATCH, &status, merge, patch).await;
        // none is none, and may be said
        assert_eq!(code, if wrong.is_empty() { 200 } else { 422 }, "{wrong:?}: {answer}");
        assert!(answer["status"].get("certificate").is_none(), "{wrong:?}: {answer}");
    }
    let decision = |kind: &str| json!([{"type": kind, "status": "True", "reason": "R"}]);
    for kind in ["Approved", "Denied"] {
        let patch = json!({"status": {"conditions": decision(kind)}});
        let (code, answer) = client.send(Method::PATCH, &status, merge, patch).await;
        let why = format!("updates may not add a condition of type \"{kind}\"");
        assert!(code == 422 && answer["message"].as_str().unwrap().contains(&why), "{answer}");
    }
    let patch = json!({"status": {"certificate": STANDARD.encode(format!("{whole}{whole}"))}});
    let (code, answer) = client.send(Method::PATCH, &status, merge, patch).await;
    assert_eq!(code, 200, "{answer}");
}
