//! Service-account tokens: signed, bound to an audience, a time and the account itself, or kept in a Secret.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{self, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::user::User;

/// Signs and checks tokens with one P-256 key.
pub struct Tokens {
    key: EcdsaKeyPair,
    key_id: String,
    issuer: String,
    /// Tokens for this server itself whose signature has been checked, by their digest.
    checked: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

/// Who issues the tokens that are kept in Secrets.
pub const SECRET_ISSUER: &str = "kubernetes/serviceaccount";
/// What the claims of such a token begin with.
const SECRET_CLAIMS: &str = "kubernetes.io/serviceaccount/";

/// How many checked tokens are remembered.
const REMEMBERED: usize = 4096;

/// What a checked token says.
#[derive(Debug)]
pub struct Claims {
    /// The namespace of the account.
    pub namespace: String,
    /// The account.
    pub name: String,
    /// The uid of the account when the token was made.
    pub uid: String,
    /// What else the token is bound to: kind, name, uid.
    pub bound: Option<(String, String, String)>,
    /// Name and uid of the node on which the Pod is that it is bound to.
    pub node: Option<(String, String)>,
    /// The Secret that holds it, of a token without end.
    pub secret: Option<String>,
    /// The audiences.
    pub audiences: Vec<String>,
    /// The token's own id.
    pub id: String,
    /// When it ends, in seconds.
    pub expires: i64,
}

/// Why a token is not accepted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not one of ours at all: some other authenticator may know it.
    #[error("not a token of this issuer")]
    Foreign,
    /// Ours, and broken.
    #[error("invalid bearer token: {0}")]
    Invalid(&'static str),
}

/// What to put into a token.
pub struct Request<'a> {
    /// Namespace, name and uid of the account.
    pub account: (&'a str, &'a str, &'a str),
    /// Audiences; the issuer's own if empty.
    pub audiences: &'a [String],
    /// Kind, name and uid of an object the token dies with.
    pub bound: Option<(&'a str, &'a str, &'a str)>,
    /// Name and uid of the node of the Pod that the token dies with; the uid is empty where there is no such Node.
    pub node: Option<(&'a str, &'a str)>,
    /// When who uses it still is to be warned, in seconds: it was to end then.
    pub warn_after: Option<i64>,
    /// Now, in seconds.
    pub now: i64,
    /// How long it is good for, in seconds.
    pub lifetime: i64,
    /// A random id.
    pub id: String,
}

impl Tokens {
    /// Signs with a PKCS#8 key.
    pub fn new(pkcs8: &[u8], issuer: &str) -> Result<Tokens, ring::error::KeyRejected> {
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new())?;
        let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key().as_ref());
        let key_id = URL_SAFE_NO_PAD.encode(digest.as_ref());
        Ok(Tokens { key, key_id, issuer: issuer.into(), checked: Mutex::default() })
    }

    /// A new key.
    pub fn generate() -> Result<Vec<u8>, ring::error::Unspecified> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())?;
        Ok(key.as_ref().to_vec())
    }

    /// Who issues them.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// A signed token.
    pub fn sign(&self, request: &Request<'_>) -> Option<String> {
        let (namespace, name, uid) = request.account;
        let mut private = json!({
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": uid},
        });
        if let Some((kind, name, uid)) = request.bound {
            private[kind.to_lowercase()] = json!({"name": name, "uid": uid});
        }
        if let Some((name, uid)) = request.node {
            private["node"] = json!({"name": name});
            if !uid.is_empty() {
                private["node"]["uid"] = uid.into();
            }
        }
        if let Some(time) = request.warn_after {
            private["warnafter"] = time.into();
        }
        let audiences =
            if request.audiences.is_empty() { vec![self.issuer.clone()] } else { request.audiences.to_vec() };
        let claims = json!({
            "aud": audiences,
            "exp": request.now + request.lifetime,
            "iat": request.now,
            "iss": self.issuer,
            "jti": request.id,
            "kubernetes.io": private,
            "nbf": request.now,
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
        });
        self.sealed(&claims)
    }

    /// A token without end, for a Secret of the account's namespace: good while the Secret holds it.
    pub fn sign_for_secret(&self, account: (&str, &str, &str), secret: &str) -> Option<String> {
        let (namespace, name, uid) = account;
        let mut claims = json!({"iss": SECRET_ISSUER, "sub": format!("system:serviceaccount:{namespace}:{name}")});
        for (claim, value) in [
            ("namespace", namespace),
            ("secret.name", secret),
            ("service-account.name", name),
            ("service-account.uid", uid),
        ] {
            claims[format!("{SECRET_CLAIMS}{claim}")] = value.into();
        }
        self.sealed(&claims)
    }

    fn sealed(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let mut text = URL_SAFE_NO_PAD.encode(header.to_string());
        text.push('.');
        text.push_str(&URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes()).ok()?;
        text.push('.');
        text.push_str(&URL_SAFE_NO_PAD.encode(signature.as_ref()));
        Some(text)
    }

    /// As [`Tokens::verify`] for this server itself; checks the signature of each token once.
    pub fn verify_own(&self, token: &str, now: i64) -> Result<Arc<Claims>, TokenError> {
        let mut key = [0; 32];
        key.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
        if let Some(claims) = self.checked.lock().get(&key) {
            if claims.expires > now {
                return Ok(claims.clone());
            }
        }
        let claims = Arc::new(self.verify(token, &[], now)?);
        let mut checked = self.checked.lock();
        if checked.len() >= REMEMBERED {
            checked.clear();
        }
        checked.insert(key, claims.clone());
        Ok(claims)
    }

    /// Checks signature, issuer, time and audience; not whether the account still exists.
    pub fn verify(&self, token: &str, audiences: &[String], now: i64) -> Result<Claims, TokenError> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(sig), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Foreign);
        };
        let json = |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
        let (Some(head), Some(claims)) = (json(header), json(payload)) else { return Err(TokenError::Foreign) };
        let in_secret = claims["iss"] == SECRET_ISSUER;
        if !in_secret && claims["iss"] != self.issuer.as_str() {
            return Err(TokenError::Foreign);
        }
        if head["alg"] != "ES256" {
            return Err(TokenError::Invalid("unexpected algorithm"));
        }
        let sig = URL_SAFE_NO_PAD.decode(sig).map_err(|_| TokenError::Invalid("malformed signature"))?;
        let signed = &token[..header.len() + 1 + payload.len()];
        UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &sig)
            .map_err(|_| TokenError::Invalid("wrong signature"))?;
        let expires = if in_secret { i64::MAX } else { claims["exp"].as_i64().unwrap_or(0) };
        if expires <= now {
            return Err(TokenError::Invalid("token has expired"));
        }
        if claims["nbf"].as_i64().unwrap_or(0) > now + 10 {
            return Err(TokenError::Invalid("token is not valid yet"));
        }
        // What is kept in a Secret is for this server.
        let own: Vec<String> = if in_secret {
            vec![self.issuer.clone()]
        } else {
            claims["aud"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let wanted: Vec<String> = if audiences.is_empty() { vec![self.issuer.clone()] } else { audiences.to_vec() };
        let audiences: Vec<String> = wanted.into_iter().filter(|audience| own.contains(audience)).collect();
        if audiences.is_empty() {
            return Err(TokenError::Invalid("token audiences are not for this server"));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if in_secret {
            let own = |claim: &str| text(&claims[format!("{SECRET_CLAIMS}{claim}")]);
            let (namespace, name) = (own("namespace"), own("service-account.name"));
            if claims["sub"] != format!("system:serviceaccount:{namespace}:{name}") {
                return Err(TokenError::Invalid("the subject is another account"));
            }
            let secret = Some(own("secret.name"));
            return Ok(Claims {
                namespace,
                name,
                uid: own("service-account.uid"),
                bound: None,
                node: None,
                secret,
                audiences,
                id: String::new(),
                expires,
            });
        }
        let private = &claims["kubernetes.io"];
        let bound = ["pod", "secret", "node"].iter().find_map(|kind| {
            let object = private.get(*kind)?;
            Some(((*kind).to_owned(), text(&object["name"]), text(&object["uid"])))
        });
        let of_pod = bound.as_ref().is_some_and(|(kind, _, _)| kind == "pod");
        let node = private.get("node").filter(|_| of_pod).map(|node| (text(&node["name"]), text(&node["uid"])));
        Ok(Claims {
            namespace: text(&private["namespace"]),
            name: text(&private["serviceaccount"]["name"]),
            uid: text(&private["serviceaccount"]["uid"]),
            bound,
            node,
            secret: None,
            audiences,
            id: text(&claims["jti"]),
            expires,
        })
    }

    /// The public key, as a JWK set.
    pub fn jwks(&self) -> Value {
        // An uncompressed point: 0x04, x, y.
        let point = self.key.public_key().as_ref();
        let half = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": half(1..33), "y": half(33..65),
        }]})
    }
}

impl Claims {
    /// The user that the token stands for.
    pub fn user(&self) -> Arc<User> {
        let mut user = (*User::service_account(&self.namespace, &self.name)).clone();
        user.uid = self.uid.clone();
        if !self.id.is_empty() {
            user.extra.insert("authentication.kubernetes.io/credential-id".into(), vec![format!("JTI={}", self.id)]);
        }
        if let Some((kind, name, uid)) = &self.bound {
            if kind == "pod" || kind == "node" {
                user.extra.insert(format!("authentication.kubernetes.io/{kind}-name"), vec![name.clone()]);
                user.extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), vec![uid.clone()]);
            }
        }
        for (part, value) in self.node.iter().flat_map(|(name, uid)| [("name", name), ("uid", uid)]) {
            if !value.is_empty() {
                user.extra.insert(format!("authentication.kubernetes.io/node-{part}"), vec![value.clone()]);
            }
        }
        Arc::new(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::new(&Tokens::generate().unwrap(), "https://issuer").unwrap()
    }

    fn sign(tokens: &Tokens, audiences: &[String], lifetime: i64) -> String {
        let account = ("ns", "robot", "uid-1");
        tokens
            .sign(&Request {
                account,
                audiences,
                bound: None,
                node: None,
                warn_after: None,
                now: 1000,
                lifetime,
                id: "i".into(),
            })
            .unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_audience_and_time_only() {
        let tokens = tokens();
        let token = sign(&tokens, &[], 600);
        let claims = tokens.verify(&token, &[], 1100).unwrap();
        assert_eq!((claims.namespace.as_str(), claims.name.as_str(), claims.uid.as_str()), ("ns", "robot", "uid-1"));
        assert_eq!(claims.user().name, "system:serviceaccount:ns:robot");
        assert!(tokens.verify(&token, &[], 1600).is_err());
        for _ in 0..2 {
            assert_eq!(tokens.verify_own(&token, 1100).unwrap().name, "robot");
            assert!(tokens.verify_own(&token, 1600).is_err());
        }
        assert!(tokens.verify(&token, &["vault".into()], 1100).is_err());
        let other = sign(&tokens, &["vault".into()], 600);
        assert!(tokens.verify(&other, &[], 1100).is_err());
        assert!(tokens.verify(&other, &["vault".into()], 1100).is_ok());
    }

    #[test]
    fn a_token_for_a_secret_has_no_end_and_is_for_this_server() {
        let tokens = tokens();
        let account = ("ns", "robot", "uid-1");
        let token = tokens.sign_for_secret(account, "kept").unwrap();
        let far = i64::MAX / 2;
        let claims = tokens.verify_own(&token, far).unwrap();
        assert_eq!((&*claims.namespace, &*claims.name, &*claims.uid), account);
        assert_eq!(
            (claims.secret.as_deref(), claims.audiences.as_slice()),
            (Some("kept"), &["https://issuer".to_owned()][..])
        );
        assert_eq!(claims.user().groups[..2], ["system:serviceaccounts", "system:serviceaccounts:ns"]);
        assert!(tokens.verify(&token, &["vault".into()], 0).is_err());
        assert!(self::tokens().verify(&token, &[], 0).is_err(), "of another key");
        let payload: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap();
        assert_eq!(
            payload,
            json!({
                "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:robot",
                "kubernetes.io/serviceaccount/namespace": "ns", "kubernetes.io/serviceaccount/secret.name": "kept",
                "kubernetes.io/serviceaccount/service-account.name": "robot",
                "kubernetes.io/serviceaccount/service-account.uid": "uid-1",
            })
        );
        let mut other = payload;
        other["sub"] = json!("system:serviceaccount:ns:admin");
        assert!(tokens.verify(&tokens.sealed(&other).unwrap(), &[], 0).is_err());
    }

    #[test]
    fn a_changed_or_foreign_token_is_refused() {
        let tokens = tokens();
        let token = sign(&tokens, &[], 600);
        let mut parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD
            .encode(String::from_utf8(URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap().replace("robot", "admin"));
        parts[1] = &forged;
        assert_eq!(tokens.verify(&parts.join("."), &[], 1100).unwrap_err(), TokenError::Invalid("wrong signature"));
        assert_eq!(tokens.verify("abc", &[], 1100).unwrap_err(), TokenError::Foreign);
        let none = format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), token.split('.').nth(1).unwrap());
        assert!(tokens.verify(&none, &[], 1100).is_err());
        assert!(self::tokens().verify(&token, &[], 1100).is_err());
    }
}
