//! What an instance is promised of this machine's disk and memory.

use std::path::Path;

use conductor_claims::lifecycle::{Condition, condition_of};
use conductor_local::{Ledger, Object, Report, Stock, Trouble};
use serde_json::Value;

use crate::engine::{InstanceSpec, bytes};
use crate::layout::Facts;

/// Memory that is set up for where the spec says nothing.
const MEMORY: u64 = 64 << 20;

/// Whether an instance has what its spec asks for.
const RESIZED: &str = "Resized";

/// What an instance may have.
pub struct Granted {
    /// Its storage, as it was asked for and in bytes.
    pub storage: Option<(Value, u64)>,
    /// Its memory.
    pub memory: u64,
    /// Why it has no more than before.
    pub refused: Option<Trouble>,
}

/// What an instance was promised before this process began.
pub fn promised(object: &Object, home: &Path, facts: &Facts) -> Vec<(Stock, u64)> {
    let storage = had_storage(object).map(|(_, bytes)| bytes);
    let disk = Stock::disk(home).ok().zip(storage);
    let memory = if facts.memory == 0 { MEMORY } else { facts.memory };
    disk.into_iter().chain([(Stock::memory(), memory)]).collect()
}

fn had_storage(object: &Object) -> Option<(Value, u64)> {
    let said = &object.status("capacity")["storage"];
    Some((said.clone(), bytes(said).ok()??))
}

/// Promises an instance what its spec asks for. One that has something already keeps that where it cannot have more.
pub fn grant(
    ledger: &Ledger,
    object: &Object,
    spec: &InstanceSpec,
    home: &Path,
    facts: &Facts,
) -> Result<Granted, Trouble> {
    let uid = object.uid();
    let disk = Stock::disk(home).map_err(Trouble::io("look at the disk"))?;
    let memory = bytes(&spec.memory)?.unwrap_or(MEMORY);
    let storage = bytes(&spec.storage)?;
    let has_memory = ledger.promise(uid, &Stock::memory(), memory, spec.overcommit);
    let has_storage = storage.map_or(Ok(()), |asked| ledger.promise(uid, &disk, asked, spec.overcommit));
    let refused = has_memory.clone().err().or(has_storage.clone().err());
    if let Some(refused) = &refused
        && !object.was_ready()
    {
        ledger.forget(uid);
        return Err(refused.clone());
    }
    Ok(Granted {
        storage: match has_storage {
            Ok(()) => storage.map(|bytes| (spec.storage.clone(), bytes)),
            Err(_) => had_storage(object),
        },
        memory: match has_memory {
            Ok(()) => memory,
            Err(_) if facts.memory == 0 => MEMORY,
            Err(_) => facts.memory,
        },
        refused,
    })
}

/// Says whether it has what it asks for, where that was ever in question.
pub fn tell(report: &mut Report, refused: Option<Trouble>, object: &Object) {
    match refused {
        Some(why) => report.conditions.push(Condition::new(RESIZED, false, &*why.reason, why.message)),
        None if condition_of(&object.0, RESIZED).is_some() => {
            report.conditions.push(Condition::new(RESIZED, true, "Resized", "it has what is asked for"));
        }
        None => {}
    }
}
