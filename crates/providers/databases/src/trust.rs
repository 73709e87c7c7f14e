//! Logins that work: what was tried is not tried again and again. A server whose log says whom it refuses ([`crate::refusals`]) tells when
//! one does not work any more, and an idle server is left in peace.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use conductor_local::Object;
use parking_lot::Mutex;

use crate::credentials::Login;

/// For how long it is taken to work although nothing was tried.
const TRUST: Duration = Duration::from_secs(600);

/// What worked, by the uid of the object.
#[derive(Default)]
pub struct Trust(Mutex<HashMap<String, Worked>>);

struct Worked {
    /// The object as it was: whoever changes it wants it looked at.
    version: String,
    at: Instant,
    logins: HashSet<(String, String)>,
}

fn version(object: &Object) -> &str {
    object.0["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

impl Trust {
    /// A login was tried, and worked.
    pub fn note(&self, object: &Object, login: &Login) {
        let mut all = self.0.lock();
        let fresh = || Worked { version: version(object).to_owned(), at: Instant::now(), logins: HashSet::new() };
        let worked = all.entry(object.uid().to_owned()).or_insert_with(fresh);
        if worked.version != version(object) || worked.at.elapsed() >= TRUST {
            *worked = fresh();
        }
        worked.logins.insert((login.username.clone(), login.password.clone()));
    }

    /// Whether all is as it was when it worked; `login`: with this login.
    pub fn holds(&self, object: &Object, login: Option<&Login>) -> bool {
        let all = self.0.lock();
        let worked = all.get(object.uid()).filter(|w| w.version == version(object) && w.at.elapsed() < TRUST);
        let knows = |w: &Worked| login.is_none_or(|l| w.logins.contains(&(l.username.clone(), l.password.clone())));
        worked.is_some_and(knows)
    }

    /// Somebody was refused, or the object is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_as_it_was_is_trusted() {
        let object = |version: &str| Object(json!({"metadata": {"uid": "u", "resourceVersion": version}}));
        let login = |password: &str| Login { username: "app_1".into(), password: password.into() };
        let trust = Trust::default();
        assert!(!trust.holds(&object("1"), None));
        trust.note(&object("1"), &login("a"));
        assert!(trust.holds(&object("1"), None) && trust.holds(&object("1"), Some(&login("a"))));
        assert!(!trust.holds(&object("1"), Some(&login("b"))), "another login");
        assert!(!trust.holds(&object("2"), None), "a change");
        trust.note(&object("2"), &login("b"));
        assert!(!trust.holds(&object("2"), Some(&login("a"))), "what was is forgotten with a change");
        trust.forget("u");
        assert!(!trust.holds(&object("2"), None));
    }
}
