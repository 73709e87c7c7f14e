//! The users of a database in a MariaDB server: who logs in, who is connected, and the one that says whose the database is.

use serde_json::{Value, json};

use crate::client::{Client, ENDS, Refused};
use crate::credentials::is_claim_user;
use crate::installation::is_mark;

/// Where a marker is from: nobody logs in as one, from anywhere.
pub(super) const MARKER_HOST: &str = "localhost";

/// A way in that is nobody's. Beside a user's password it says that somebody may be connected with another, and is to be ended when that one's
/// time is over.
pub(super) const NOBODYS: &str = "mysql_native_password using 'invalid'";

/// Whether a user has one password only, and nobody is connected with another unless he was ended: `answer` is the hash of that password, and
/// what the server keeps about the user. A user may change a way in that we gave (to the other's hash, to none at all) and cannot have
/// fewer: anything but the one that is wanted, alone, is not settled.
pub(super) fn is_settled(answer: &[String]) -> bool {
    let Some((wanted, kept)) = answer.split_first() else { return false };
    let Ok(kept) = serde_json::from_str::<Value>(&kept.concat()) else { return false };
    let native = kept.get("plugin").is_none_or(|plugin| plugin == "mysql_native_password");
    // an empty entry stands for the way in that is written outside the list
    let alone = kept.get("auth_or").is_none_or(|ways| *ways == json!([{}]));
    native && alone && hashes(wanted).len() == 1 && kept["authentication_string"] == wanted.as_str()
}

/// The hashes of the passwords that work, in what a server keeps about a user.
pub(super) fn hashes(kept: &str) -> Vec<&str> {
    let each = kept.split('*').skip(1).filter_map(|rest| rest.get(..40));
    let mut found: Vec<&str> = each.filter(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit())).collect();
    found.sort_unstable();
    found
}

/// The users of a database's claims: those that we could have made, whatever a server answers.
pub(super) async fn claim_users(client: &Client, database: &str) -> Result<Vec<String>, Refused> {
    let mut found = client.run("select user from mysql.user where host = '%';\n").await?;
    found.retain(|user| is_claim_user(user, database));
    Ok(found)
}

/// The name of the user that says whose a database is: the database's, and the mark of the installation. Whoever uses a database can
/// change what is said of it, and users only an administrator makes. `None`: it is marked as nobody's.
fn marker(database: &str, mark: &str) -> Option<String> {
    mark.split(' ').nth(1).filter(|mark| is_mark(mark)).map(|mark| format!("{database} {mark}"))
}

/// The markers that a database has: one, unless somebody else makes such.
pub(super) async fn markers(client: &Client, database: &str) -> Result<Vec<String>, Refused> {
    let mut found = client.run(&format!("select user from mysql.user where host = '{MARKER_HOST}';\n")).await?;
    found.retain(|user| user.strip_prefix(database).and_then(|rest| rest.strip_prefix(' ')).is_some_and(is_mark));
    Ok(found)
}

/// What gives a database the one marker that it should have, at no time none.
pub(super) async fn marking(client: &Client, database: &str, mark: &str) -> Result<String, Refused> {
    let Some(marker) = marker(database, mark) else { return Ok(String::new()) };
    let there = markers(client, database).await?;
    let mut others = there.iter().filter(|other| **other != marker).peekable();
    let mut sql = match others.peek() {
        _ if there.contains(&marker) => String::new(),
        Some(_) => {
            let other = others.next().map(String::as_str).unwrap_or_default();
            format!("rename user '{other}'@'{MARKER_HOST}' to '{marker}'@'{MARKER_HOST}';\n")
        }
        None => {
            format!("create user if not exists '{marker}'@'{MARKER_HOST}' identified via {NOBODYS} account lock;\n")
        }
    };
    sql.extend(others.map(|other| format!("drop user if exists '{other}'@'{MARKER_HOST}';\n")));
    Ok(sql)
}

/// Ends whoever is connected as one of these users, or is about to be, and sees them gone. Only of users who cannot log in any more (or not
/// as before) this is all of them: a session has its rights by the name of its user, and so those of whoever has that name next.
pub(super) async fn end_sessions(client: &Client, users: &[String]) -> Result<(), Refused> {
    let listed = users.iter().map(|user| format!("'{user}'")).collect::<Vec<_>>().join(", ");
    let mut sql: String = users.iter().map(|user| format!("kill user '{user}';\n")).collect();
    // those who come later, to be refused, are others
    sql += &format!("select id from information_schema.processlist where user in ({listed});\n");
    let mut left = ids(&client.run(&sql).await?);
    for _ in 0..ENDS.0 {
        if left.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(ENDS.1).await;
        let sql = format!("select id from information_schema.processlist where id in ({});\n", left.join(", "));
        left = ids(&client.run(&sql).await?);
    }
    Err(Refused::Locked(format!("a session of {} that was ended", users.join(", "))))
}

/// Sees those gone who were connected as a user and have been ended; others may be.
pub(super) async fn see_ended(client: &Client, user: &str) -> Result<(), Refused> {
    let sql = format!(
        "select id from information_schema.processlist where user = '{user}' and command in ('Killed', 'Busy');\n"
    );
    for _ in 0..ENDS.0 {
        if client.run(&sql).await?.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(ENDS.1).await;
    }
    Err(Refused::Locked(format!("a session of {user} that was ended")))
}

/// What is held when nobody is connected: transactions that were prepared outlive sessions and servers, and MariaDB does not tell whose they
/// are. To end another's would be to break what that has been promised, so an administrator is told of them.
pub(super) async fn prepared(client: &Client, database: &str) -> Option<String> {
    let count = client.run("xa recover;\n").await.ok()?.len();
    (count > 0).then(|| {
        format!("what is in {database} (it may be one that no session has: of {count} that xa recover lists, end those of {database} with xa rollback)")
    })
}

fn ids(rows: &[String]) -> Vec<String> {
    rows.iter().filter(|row| row.bytes().all(|b| b.is_ascii_digit())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_that_work_are_found() {
        let (one, two) = ("0123456789ABCDEF0123456789ABCDEF01234567", "F".repeat(40));
        let kept = format!(
            r#"{{"access":0,"plugin":"mysql_native_password","authentication_string":"*{one}","auth_or":[{{"authentication_string":"*{two}"}},{{}}],"x":"*0' or"}}"#
        );
        assert_eq!(hashes(&kept), [one, two.as_str()]);
        assert!(hashes("{}").is_empty());
    }

    #[test]
    fn a_user_is_settled_with_one_password_and_nothing_beside_it() {
        let (one, two) = ("0".repeat(40), "F".repeat(40));
        let check = |kept: String, expected: bool| {
            assert_eq!(is_settled(&[format!("*{one}"), kept.clone()]), expected, "{kept}");
        };
        check(format!(r#"{{"authentication_string":"*{one}","auth_or":[{{}}]}}"#), true);
        check(format!(r#"{{"authentication_string":"*{two}"}}"#), false);
        check(
            format!(r#"{{"authentication_string":"*{one}","auth_or":[{{}},{{"authentication_string":"*{two}"}}]}}"#),
            false,
        );
        check(
            format!(r#"{{"authentication_string":"*{one}","auth_or":[{{}},{{"authentication_string":"invalid"}}]}}"#),
            false,
        );
        // who writes the new one over the old one himself
        check(
            format!(r#"{{"authentication_string":"*{one}","auth_or":[{{}},{{"authentication_string":"*{one}"}}]}}"#),
            false,
        );
        // who has the old one takes it off: then no password is needed
        check(
            format!(r#"{{"authentication_string":"","auth_or":[{{}},{{"authentication_string":"*{one}"}}]}}"#),
            false,
        );
        check(r#"{"authentication_string":"","auth_or":[{}]}"#.into(), false);
        check(format!(r#"{{"plugin":"ed25519","authentication_string":"*{one}"}}"#), false);
        check(format!(r#"{{"authentication_string":"*{one}","auth_or":[{{}},{{"plugin":"unix_socket"}}]}}"#), false);
        check(format!("*{one}"), false);
        assert!(!is_settled(&[String::new(), r#"{"authentication_string":""}"#.into()]), "none is no password");
        assert!(!is_settled(&[]) && !is_settled(&[format!("*{one}")]), "one who is not there is not");
    }

    #[test]
    fn a_database_is_marked_by_a_name_that_needs_no_quoting() {
        let check = |mark: &str, expected: Option<&str>| assert_eq!(marker("c_1", mark).as_deref(), expected, "{mark}");
        check("conductor abcDEF234567 0b5c3f6e-2f7d", Some("c_1 abcDEF234567"));
        check("conductor", None);
        check("conductor x' uid", None);
    }
}
