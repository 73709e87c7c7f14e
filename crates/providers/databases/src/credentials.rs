//! Passwords, and the Secret an implementation's connection details were last written to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use conductor_claims::lifecycle::ROTATION;
use conductor_local::{Object, Trouble};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;

/// A password nobody guesses, of letters and digits: it needs no quoting anywhere.
pub fn password() -> Result<String, Trouble> {
    random(32)
}

/// Letters and digits from the kernel's randomness.
pub fn random(length: usize) -> Result<String, Trouble> {
    const LETTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789";
    let mut source = File::open("/dev/urandom").map_err(Trouble::io("read randomness"))?;
    let (mut text, mut bytes) = (String::new(), [0u8; 64]);
    while text.len() < length {
        source.read_exact(&mut bytes).map_err(Trouble::io("read randomness"))?;
        // those beyond the last whole round would make some letters likelier
        let fair = bytes.iter().filter(|b| usize::from(**b) < 256 - 256 % LETTERS.len());
        text.extend(fair.map(|b| LETTERS[usize::from(*b) % LETTERS.len()] as char));
    }
    text.truncate(length);
    Ok(text)
}

/// Whether a name may stand in SQL without quotes.
pub fn plain(name: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (1..=63).contains(&name.len()) && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a database may have this name: a plain one that no engine has for itself. The database's role or user has it too.
pub fn may_be_database(name: &str) -> bool {
    const TAKEN: [&str; 12] = [
        "conductor",
        "postgres",
        "template0",
        "template1",
        "root",
        "mysql",
        "mariadb",
        "sys",
        "information_schema",
        "performance_schema",
        "public",
        "none",
    ];
    plain(name) && name.len() <= 48 && !name.starts_with("pg_") && !TAKEN.contains(&name)
}

/// The content of a Secret; `None` if there is none.
pub async fn read(
    client: &kube::Client,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, Trouble> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let Some(secret) = api.get_opt(name).await? else { return Ok(None) };
    Ok(Some(plain_text(secret.data)))
}

fn plain_text(data: Option<BTreeMap<String, k8s_openapi::ByteString>>) -> BTreeMap<String, String> {
    let text = |(key, value): (String, k8s_openapi::ByteString)| Some((key, String::from_utf8(value.0).ok()?));
    data.unwrap_or_default().into_iter().filter_map(text).collect()
}

/// A login and its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub username: String,
    /// The password.
    pub password: String,
}

/// How much of a database's name is in its claims' users: names have 63 letters, with the number of a rotation.
const STEM: usize = 34;
/// How many digits of a claim's uid are in its user's name.
const DIGITS: usize = 16;

/// What the user of one of several claims is called: no other claim's. `None`: nobody has such a uid.
pub fn claim_user(database: &str, uid: &str) -> Option<String> {
    let hex = uid.chars().filter(char::is_ascii_hexdigit).map(|c| c.to_ascii_lowercase()).take(DIGITS);
    let hex: String = hex.collect();
    (hex.len() == DIGITS).then(|| format!("{}_{hex}", stem(database)))
}

/// Whether a user is one of those of a database's claims.
pub fn is_claim_user(name: &str, database: &str) -> bool {
    let digits = name.strip_prefix(stem(database)).and_then(|rest| rest.strip_prefix('_'));
    digits.is_some_and(|d| d.len() == DIGITS && d.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

fn stem(database: &str) -> &str {
    database.get(..STEM).unwrap_or(database)
}

/// The login that an implementation's connection Secret holds, or the one for one of several claims, if that is its own, and the rotation
/// that it is from.
pub async fn current(
    client: &kube::Client,
    object: &Object,
    claim: Option<&str>,
) -> Result<Option<(Login, i64)>, Trouble> {
    let api: Api<Secret> = Api::namespaced(client.clone(), object.namespace());
    let Some(secret) = api.get_opt(&conductor_local::secret_name(object, claim)).await? else { return Ok(None) };
    let owners = secret.metadata.owner_references.unwrap_or_default();
    if !owners.iter().any(|owner| owner.uid == object.uid()) {
        return Ok(None);
    }
    let annotations = secret.metadata.annotations.unwrap_or_default();
    let rotation = annotations.get(ROTATION).and_then(|number| number.parse().ok()).unwrap_or(0);
    let mut details = plain_text(secret.data);
    let login = (details.remove("username"), details.remove("password"));
    let (Some(username), Some(password)) = login else { return Ok(None) };
    let safe = plain(&username) && password.chars().all(|c| c.is_ascii_alphanumeric()) && !password.is_empty();
    Ok(safe.then_some((Login { username, password }, rotation)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_differ_and_names_are_plain() {
        let (one, two) = (password().expect("random"), password().expect("random"));
        assert!(one != two && one.len() == 32 && one.chars().all(|c| c.is_ascii_alphanumeric()));
        let check = |name: &str, expected: bool| assert_eq!(plain(name), expected, "{name}");
        check("app_1", true);
        check("1app", false);
        check("a\"b", false);
        check("", false);
        check(&"a".repeat(64), false);
        for taken in ["conductor", "template1", "mysql", "pg_monitor", "App"] {
            assert!(!may_be_database(taken), "{taken}");
        }
        assert!(may_be_database("app"));
    }

    #[test]
    fn every_claim_has_a_user_of_its_own() {
        let uid = "0B5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11";
        assert_eq!(claim_user("app", uid).as_deref(), Some("app_0b5c3f6e2f7d4f43"));
        assert_eq!(claim_user("app", "none"), None);
        for database in ["app", &"a".repeat(48)] {
            let user = claim_user(database, uid).expect("has a uid");
            assert!(is_claim_user(&user, database) && plain(&format!("{user}_123456789")), "{user}");
        }
        let check = |name: &str, expected: bool| assert_eq!(is_claim_user(name, "app"), expected, "{name}");
        check("app", false);
        check("app_1", false);
        check("other_0b5c3f6e2f7d4f43", false);
        check("app_0b5c3f6e2f7d4f4x", false);
        check("app_0b5c3f6e2f7d4f43_1", false);
    }
}
