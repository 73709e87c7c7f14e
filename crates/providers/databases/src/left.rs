//! Servers in which something of a database may be, although its Secret names another by now: it was begun there, and not made.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{fs, io};

use conductor_claims::lifecycle::Condition;
use conductor_local::{Finding, Object, Report, home};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::credentials::plain;

/// Where a status lists these servers.
const LEFT: &str = "leftBehind";

/// Whether all that was ever begun for it is where its Secret leads.
const CONDITION: &str = "NothingLeftBehind";

/// One at a time changes what is remembered.
static KEEPING: Mutex<()> = Mutex::new(());

/// The servers but the one at `address` where an object was begun; `noted` is the last one, if it was no more than that there.
pub fn servers(object: &Object, noted: Option<&str>, address: &str) -> BTreeSet<String> {
    let known = object.status(LEFT).as_array().into_iter().flatten().filter_map(Value::as_str);
    known.chain(noted).filter(|server| *server != address).map(str::to_owned).collect()
}

/// Says where something may be left, for as long as that is so.
pub fn tell(report: &mut Report, object: &Object, database: &str, left: &BTreeSet<String>) {
    if !left.is_empty() {
        let all = left.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("something of {database} may be on {all}, where it was begun: {ADVICE}");
        report.conditions.push(Condition::new(CONDITION, false, "LeftBehind", message));
        report.status.insert(LEFT.into(), json!(left));
    } else if !object.status(LEFT).is_null() {
        report.conditions.push(Condition::new(CONDITION, true, "Nothing", "all of it is where its Secret leads"));
        report.status.insert(LEFT.into(), Value::Null);
    }
}

const ADVICE: &str = "drop what is there, and take it off status.leftBehind (kubectl edit --subresource=status)";

/// What an audit says of an object with something left behind.
pub fn findings(object: &Object, database: &str) -> Vec<Finding> {
    let kind = object.0["kind"].as_str().unwrap_or_default();
    let message = format!("{kind} {}/{} was begun there: {ADVICE}", object.namespace(), object.name());
    servers(object, None, "").iter().map(|server| finding(database, server, message.clone())).collect()
}

fn finding(database: &str, server: &str, message: String) -> Finding {
    Finding { object: format!("database {database} on {server}"), invariant: "no-leftover-database".into(), message }
}

/// What objects that are gone have left behind, a line for each server and database: nothing else tells of it.
pub struct Memory(pub PathBuf);

impl Memory {
    /// Servers and databases.
    pub fn all(&self) -> BTreeSet<(String, String)> {
        let all = fs::read_to_string(&self.0).unwrap_or_default();
        let lines = all.lines().filter_map(|line| line.split_once(' ')).filter(|(_, database)| plain(database));
        lines.map(|(server, database)| (server.to_owned(), database.to_owned())).collect()
    }

    fn keep(&self, change: impl FnOnce(&mut BTreeSet<(String, String)>)) -> io::Result<()> {
        let _alone = KEEPING.lock();
        let before = self.all();
        let mut all = before.clone();
        change(&mut all);
        if all == before {
            return Ok(());
        }
        let text: String = all.iter().map(|(server, database)| format!("{server} {database}\n")).collect();
        home::write_whole(&self.0, text.as_bytes(), 0o600)
    }

    /// Remembers that a database may be left in these servers.
    pub fn add(&self, database: &str, left: BTreeSet<String>) -> io::Result<()> {
        self.keep(|all| all.extend(left.into_iter().map(|server| (server, database.to_owned()))))
    }

    /// Forgets one that is not there.
    pub fn forget(&self, server: &str, database: &str) -> io::Result<()> {
        self.keep(|all| all.retain(|(at, name)| at != server || name != database))
    }

    /// What an audit says of them.
    pub fn findings(&self, kind: &str) -> Vec<Finding> {
        let file = self.0.display();
        let message =
            format!("a {kind} that is gone was begun there: drop what is there, and take the line out of {file}");
        self.all().iter().map(|(server, database)| finding(database, server, message.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(left: Value) -> Object {
        Object(json!({"kind": "PostgresDatabase", "metadata": {"namespace": "n", "name": "a"}, "status": {LEFT: left}}))
    }

    #[test]
    fn every_server_is_named_in_which_something_was_begun() {
        let check = |left: Value, noted: Option<&str>, address: &str, expected: &[&str]| {
            let servers = servers(&object(left.clone()), noted, address);
            assert_eq!(servers.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{left} {noted:?} {address}");
        };
        check(Value::Null, None, "new:1", &[]);
        check(Value::Null, Some("new:1"), "new:1", &[]);
        check(Value::Null, Some("old:1"), "new:1", &["old:1"]);
        check(json!(["old:1"]), Some("new:1"), "newer:1", &["new:1", "old:1"]);
        // where it is made after all, nothing is left
        check(json!(["old:1"]), Some("new:1"), "old:1", &["new:1"]);
    }

    #[test]
    fn what_is_left_is_said_until_it_is_not() {
        let said = |before: Value, left: &[&str]| {
            let mut report = Report::default();
            tell(&mut report, &object(before), "c_1", &left.iter().map(|server| (*server).to_owned()).collect());
            (report.conditions.first().map(|c| (c.status, c.message.clone())), report.status.get(LEFT).cloned())
        };
        let (condition, list) = said(Value::Null, &["old:1"]);
        assert!(condition.is_some_and(|(fine, message)| !fine && message.contains("c_1") && message.contains("old:1")));
        assert_eq!(list, Some(json!(["old:1"])));
        let (condition, list) = said(json!(["old:1"]), &[]);
        assert!(condition.is_some_and(|(fine, _)| fine));
        assert_eq!(list, Some(Value::Null));
        assert_eq!(said(Value::Null, &[]), (None, None));
        let found = findings(&object(json!(["old:1"])), "c_1");
        assert!(found.len() == 1 && found[0].object == "database c_1 on old:1", "{found:?}");
    }

    #[test]
    fn what_is_left_outlives_its_object() {
        let directory = tempfile::tempdir().expect("is made");
        let memory = Memory(directory.path().join("left"));
        memory.add("c_1", ["old:1".to_owned(), "older:1".to_owned()].into()).expect("is written");
        memory.add("c_2", ["old:1".to_owned()].into()).expect("is written");
        memory.forget("old:1", "c_1").expect("is written");
        let found: Vec<String> = memory.findings("PostgresDatabase").into_iter().map(|f| f.object).collect();
        assert_eq!(found, ["database c_2 on old:1", "database c_1 on older:1"]);
    }
}
