//! What may be promised of what a machine has: more than there is, for few use all that they asked for, but within bounds.
//!
//! One object is promised no more than there is; all objects of a provider together no more than that times the overcommit which their spec
//! says. *Invariant:* what was promised stays promised, whatever is asked for later and whoever asks.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parking_lot::Mutex;

use crate::kind::Trouble;

/// How many times what there is may be promised, where a spec says nothing.
pub const OVERCOMMIT: u64 = 10;

/// Something that a machine has so much of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    /// A disk, by its device; or the memory, which is none.
    id: Option<u64>,
    /// How many bytes there are.
    has: u64,
}

impl Stock {
    /// The file system that a directory is on, or will be.
    pub fn disk(directory: &Path) -> io::Result<Stock> {
        let directory = directory.ancestors().find(|dir| dir.is_dir()).unwrap_or(directory);
        let id = fs::metadata(directory)?.dev();
        let disk = rustix::fs::statvfs(directory)?;
        Ok(Stock { id: Some(id), has: disk.f_blocks.saturating_mul(disk.f_frsize) })
    }

    /// The memory of this machine, or what we may use of it.
    pub fn memory() -> Stock {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let total = memory_in(&read("/proc/meminfo"));
        let limit = read("/sys/fs/cgroup/memory.max").trim().parse().unwrap_or(u64::MAX);
        Stock { id: None, has: total.min(limit) }
    }

    /// The most that one object can be promised, in whole Gi or Mi; `None`: nobody knows.
    pub fn most(&self) -> Option<String> {
        let (step, unit) = if self.has >> 30 >= 10 { (30, "Gi") } else { (20, "Mi") };
        (!matches!(self.has, 0 | u64::MAX)).then(|| format!("{}{unit}", self.has >> step))
    }

    fn words(&self) -> (&'static str, &'static str) {
        match self.id {
            Some(_) => ("storage", "the disk it would be on"),
            None => ("memory", "this machine"),
        }
    }
}

fn memory_in(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

/// Who was promised how much. See the module.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<HashMap<(String, Option<u64>), u64>>);

impl Ledger {
    /// Notes what an object was promised before.
    pub fn note(&self, uid: &str, stock: &Stock, amount: u64) {
        self.0.lock().insert((uid.to_owned(), stock.id), amount);
    }

    /// Promises an object so much in all; or says why that cannot be, and it has what it had.
    pub fn promise(&self, uid: &str, stock: &Stock, asked: u64, overcommit: Option<u64>) -> Result<(), Trouble> {
        let mut all = self.0.lock();
        let own = (uid.to_owned(), stock.id);
        if all.get(&own).is_none_or(|had| asked > *had) {
            let others = all.iter().filter(|(key, _)| key.1 == stock.id && key.0 != uid);
            let promised = others.fold(0u64, |sum, (_, amount)| sum.saturating_add(*amount));
            may(stock, asked, promised, overcommit.unwrap_or(OVERCOMMIT))?;
        }
        all.insert(own, asked);
        Ok(())
    }

    /// The object is gone, or never came to be.
    pub fn forget(&self, uid: &str) {
        self.0.lock().retain(|(other, _), _| other != uid);
    }
}

/// Whether so much may be promised beside what is promised already.
fn may(stock: &Stock, asked: u64, promised: u64, overcommit: u64) -> Result<(), Trouble> {
    let ((what, whose), has) = (stock.words(), stock.has);
    // a file system that does not say how large it is
    if has == 0 {
        return Ok(());
    }
    let most = has.saturating_mul(overcommit.max(1));
    let no = |why: String| Err(Trouble::new("NoRoom", why));
    if asked > has {
        return no(format!("asks for {} of {what}, and {whose} has {}: ask for less", about(asked), about(has)));
    }
    if promised.saturating_add(asked) > most {
        return no(format!(
            "asks for {} of {what}, {} are promised to others, and {whose} has {}, of which {} may be promised (spec.overcommit is \
             {overcommit}): ask for less, delete what is not needed, or let an administrator raise overcommit in the class",
            about(asked),
            about(promised),
            about(has),
            about(most),
        ));
    }
    Ok(())
}

/// An amount as people say it: 900Ti, 251.8Gi.
pub fn about(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let step = (0..units.len()).rev().find(|step| bytes >> (10 * step) > 0).unwrap_or(0);
    let tenths = (u128::from(bytes) * 10) >> (10 * step);
    match tenths % 10 {
        0 => format!("{}{}", tenths / 10, units[step]),
        rest => format!("{}.{rest}{}", tenths / 10, units[step]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn amounts_are_said_as_people_do() {
        let check = |bytes: u64, expected: &str| assert_eq!(about(bytes), expected);
        check(0, "0");
        check(512, "512");
        check(GIB, "1Gi");
        check(GIB * 5 / 2, "2.5Gi");
        check(900 << 40, "900Ti");
        check(u64::MAX, "15.9Ei");
    }

    #[test]
    fn one_is_promised_what_there_is_at_most_and_all_of_them_a_multiple() {
        let disk = Stock { id: Some(1), has: 100 * GIB };
        let ledger = Ledger::default();
        let ask = |uid: &str, gib: u64, overcommit: u64| ledger.promise(uid, &disk, gib * GIB, Some(overcommit));
        let refused = ask("a", 101, 10).expect_err("no file on it can hold that").message;
        assert!(refused.contains("101Gi") && refused.contains("100Gi"), "{refused}");
        ask("a", 80, 2).expect("fits");
        ask("b", 80, 2).expect("fits");
        let refused = ask("c", 41, 2).expect_err("is too much").message;
        for word in ["41Gi", "160Gi", "100Gi", "200Gi", "overcommit"] {
            assert!(refused.contains(word), "{word}: {refused}");
        }
        ask("c", 41, 3).expect("its class allows more");
        // what one had it keeps, and only more of it is asked for anew
        ask("a", 80, 1).expect("has it");
        ask("a", 81, 1).expect_err("others have it");
        ask("a", 10, 1).expect("is less");
        ask("b", 90, 1).expect_err("c has some of it");
        ledger.forget("c");
        ask("b", 90, 1).expect("c is gone");
        assert_eq!(disk.most().as_deref(), Some("100Gi"));
        assert_eq!(Stock { id: None, has: 9 * GIB + 1 }.most().as_deref(), Some("9216Mi"));
        assert_eq!(Stock { id: None, has: u64::MAX }.most(), None);
        // another disk is another matter
        ledger.promise("c", &Stock { id: Some(2), has: 10 * GIB }, 10 * GIB, Some(1)).expect("is free");
        ledger.note("d", &disk, 500 * GIB);
        ask("e", 1, 5).expect_err("was promised before");
    }

    #[test]
    fn what_the_machine_has_is_found() {
        assert_eq!(memory_in("MemTotal:       24597224 kB\nMemFree: 1 kB\n"), 24_597_224 << 10);
        assert_eq!(memory_in(""), u64::MAX);
        assert!(Stock::memory().has > 1 << 20);
        assert!(Stock::disk(Path::new("/")).expect("is there").has > 1 << 20);
        assert_eq!(
            Stock::disk(Path::new("/no/such")).expect("will be there"),
            Stock::disk(Path::new("/")).expect("is")
        );
    }
}
