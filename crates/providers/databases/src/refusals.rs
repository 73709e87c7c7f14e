//! Whom a server refuses, as its log says: a login that somebody dropped or changed is mended when it is missed, not when it is looked at
//! next. Nothing is asked of a server for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conductor_local::{Said, Wake};
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::trust::Trust;

/// An object is looked at no more often because of refusals: some are of people who guess passwords.
const PACE: Duration = Duration::from_secs(5);
/// So many objects are remembered with their pace.
const MOST: usize = 1000;

/// Takes in the log of a server: the object whose login was refused is looked at, and trusted no more.
pub fn watcher<E: Engine>(server: &str, trust: &Arc<Trust>, wake: &Wake) -> Said {
    let (server, trust, wake) = (server.to_owned(), trust.clone(), wake.clone());
    let paced: Mutex<HashMap<String, Instant>> = Mutex::default();
    Arc::new(move |more: &str| {
        for name in more.lines().filter_map(E::refused) {
            let uid = uid_of(name).unwrap_or_else(|| server.clone());
            let mut paced = paced.lock();
            if paced.get(&uid).is_some_and(|at| at.elapsed() < PACE) {
                continue;
            }
            if paced.len() >= MOST {
                paced.clear();
            }
            paced.insert(uid.clone(), Instant::now());
            drop(paced);
            trust.forget(&uid);
            wake(&uid);
        }
    })
}

/// The uid of the object in a shared server whose database or login a name is, if it is that of one.
fn uid_of(name: &str) -> Option<String> {
    let hex = name.strip_prefix("c_")?.get(..32)?;
    if !hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return None;
    }
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Some(parts.join("-"))
}

/// The word between two others.
pub fn between<'t>(text: &'t str, before: &str, after: char) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mariadb::MariaDb;
    use crate::postgres::Postgres;

    #[test]
    fn logs_say_who_is_refused() {
        let check = |refused: fn(&str) -> Option<&str>, line: &str, expected: Option<&str>| {
            assert_eq!(refused(line), expected, "{line}");
        };
        let postgres = Postgres::refused;
        let line = |said: &str| format!("2026-11-16 14:40:00.000 UTC [77] FATAL:  {said}");
        check(postgres, &line("password authentication failed for user \"app_1\""), Some("app_1"));
        check(postgres, &line("role \"app_1\" is not permitted to log in"), Some("app_1"));
        check(postgres, &line("role \"c_1\" does not exist"), Some("c_1"));
        check(postgres, &line("database \"app\" does not exist"), Some("app"));
        check(postgres, &line("permission denied for database \"app\""), Some("app"));
        check(postgres, "2026 [77] ERROR:  role \"x\" does not exist", None);
        check(postgres, &line("sorry, too many clients already"), None);
        let mariadb = MariaDb::refused;
        check(
            mariadb,
            "14:40:00 5 [Warning] Access denied for user 'app'@'127.0.0.1' (using password: YES)",
            Some("app"),
        );
        check(mariadb, "14:40:00 0 [Note] ready for connections", None);
    }

    #[test]
    fn the_object_of_a_login_is_told_and_not_all_the_time() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let telling = told.clone();
        let wake: Wake = Arc::new(move |uid: &str| telling.lock().push(uid.to_owned()));
        let watch = watcher::<Postgres>("server", &Arc::default(), &wake);
        let fails = |name: &str| watch(&format!("x FATAL:  password authentication failed for user \"{name}\"\n"));
        fails("app_1");
        fails("app_1");
        fails("c_0b5c3f6e2f7d4f439d4b0d0c5b7f9a11_0b5c3f6e2f7d4f43_1");
        fails("c_short");
        assert_eq!(*told.lock(), ["server", "0b5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11"]);
    }
}
