//! Users of this machine that processes run as.

use std::fs;

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

impl Account {
    /// The account with this name, as /etc/passwd has it.
    pub fn find(name: &str) -> Option<Account> {
        Account::read(&fs::read_to_string("/etc/passwd").ok()?, name)
    }

    fn read(passwd: &str, name: &str) -> Option<Account> {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [login, _, uid, gid, ..] = fields.as_slice() else { return None };
            (*login == name).then_some(())?;
            Some(Account { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()? })
        })
    }

    /// One without a name, as nobody else has: see [`OWN_IDS`].
    pub fn with_id(id: u32) -> Account {
        Account { name: String::new(), uid: id, gid: id }
    }

    /// Who we are.
    pub fn current() -> Option<Account> {
        let own = rustix::process::geteuid().as_raw();
        let passwd = fs::read_to_string("/etc/passwd").ok()?;
        let named = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next()?, fields.nth(1)?);
            (uid.parse() == Ok(own)).then_some(name)
        })?;
        Account::read(&passwd, named)
    }

    /// The account a server that refuses root is run as: the first of these there is, if we are root; else `None`, which is us.
    pub fn other_than_root(names: &[&str]) -> Option<Account> {
        if !is_root() {
            return None;
        }
        names.iter().chain(&["nobody"]).find_map(|name| Account::find(name))
    }
}

/// Ids that no account has, by the conventions of systemd and Debian: for processes that nobody else's may look into.
pub const OWN_IDS: std::ops::Range<u32> = 0x7000_0000..0x8000_0000;

/// Whether processes can be given those ids: not in a container with fewer.
pub fn has_own_ids() -> bool {
    let mapped = |file: &str| covers(&fs::read_to_string(file).unwrap_or_default());
    is_root() && mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map")
}

/// Whether a table of ids (`INSIDE OUTSIDE COUNT` each) has all of those.
fn covers(table: &str) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    table.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let (first, count) = (number(fields.next()), number(fields.nth(1)));
        first.zip(count).is_some_and(|(first, count)| {
            first <= u64::from(OWN_IDS.start) && first.saturating_add(count) >= u64::from(OWN_IDS.end)
        })
    })
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\n# no\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\nbad:x:a:b";
        let check = |name: &str, expected: Option<(u32, u32)>| {
            assert_eq!(Account::read(passwd, name).map(|a| (a.uid, a.gid)), expected, "{name}");
        };
        check("postgres", Some((101, 104)));
        check("post", None);
        check("bad", None);
    }

    #[test]
    fn a_container_may_have_too_few_ids() {
        assert!(covers("         0          0 4294967295\n"));
        assert!(!covers("         0     100000      65536\n"));
        assert!(!covers(""));
    }
}
