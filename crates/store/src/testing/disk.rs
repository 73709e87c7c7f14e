//! A simulated disk: page cache and platter apart.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Random;
use crate::engine::{Disk, DiskFile};

/// What the disk was asked to do; faults are decided by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Create a file.
    Create,
    /// Write bytes.
    Write,
    /// Reserve space.
    Allocate,
    /// Cut a file.
    Truncate,
    /// Sync a file.
    Sync,
    /// Rename a file.
    Rename,
    /// Remove a file.
    Remove,
    /// Sync the directory.
    SyncDirectory,
}

type Fault = Box<dyn FnMut(DiskOp, u64) -> Option<io::ErrorKind> + Send>;

/// A disk in memory that forgets at a crash what was not synced, sector by sector and as it pleases; that can be full; and that
/// fails when told to. After a failed sync it behaves like Linux: the pages count as clean although they may not be on disk.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<Mutex<Sim>>);

struct Sim {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names that no sync has covered, in order.
    name_changes: Vec<NameChange>,
    fault: Option<Fault>,
    ops: u64,
    capacity: usize,
    random: Random,
}

#[derive(Clone, Default)]
struct File {
    /// What programs see.
    cache: Vec<u8>,
    /// What a crash leaves for sure.
    durable: Vec<u8>,
    /// What a crash may or may not leave, in order.
    dirty: Vec<Dirty>,
}

#[derive(Clone)]
enum Dirty {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Clone)]
enum NameChange {
    Set(String, usize),
    /// The file moved is the one that had the old name then, whatever else of the directory survives.
    Rename(String, String, usize),
    Remove(String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Set(name, file) => {
                names.insert(name.clone(), *file);
            }
            NameChange::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl File {
    /// Decides which of the dirty sectors reached the disk.
    fn settle(&mut self, random: &mut Random) {
        for dirty in std::mem::take(&mut self.dirty) {
            match dirty {
                Dirty::Length(length) if random.one_in(2) => self.durable.resize(length, 0),
                Dirty::Length(_) => {}
                Dirty::Write(offset, bytes) => {
                    for (index, sector) in bytes.chunks(512).enumerate() {
                        if random.one_in(2) {
                            write(&mut self.durable, offset + index * 512, sector);
                        }
                    }
                }
            }
        }
    }
}

fn write(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

impl SimulatedDisk {
    /// An empty disk; the seed decides what crashes leave.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(Sim {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            fault: None,
            ops: 0,
            capacity: usize::MAX,
            random: Random::new(seed),
        })))
    }

    /// Lets `fault` decide, by what is asked and its number since the disk was made, what fails and how. Writes and syncs that
    /// fail may have done some of it; with `NotConnected` the disk is gone and nothing happens.
    pub fn set_fault(&self, fault: impl FnMut(DiskOp, u64) -> Option<io::ErrorKind> + Send + 'static) {
        self.0.lock().fault = Some(Box::new(fault));
    }

    /// Lets everything work again.
    pub fn heal(&self) {
        self.0.lock().fault = None;
    }

    /// How much all files may have together.
    pub fn set_capacity(&self, bytes: usize) {
        self.0.lock().capacity = bytes;
    }

    /// How many things the disk was asked to do so far.
    pub fn ops(&self) -> u64 {
        self.0.lock().ops
    }

    /// The disk as a power failure leaves it. The old one goes on by itself.
    pub fn after_power_failure(&self, seed: u64) -> SimulatedDisk {
        let sim = self.0.lock();
        let disk = SimulatedDisk::new(seed);
        let mut new = disk.0.lock();
        let mut random = Random::new(seed);
        let mut names = sim.durable_names.clone();
        // Most file systems keep the order of changes to a directory, so a prefix of them survives; nothing promises it.
        let ordered = random.one_in(2);
        let survived = random.below(sim.name_changes.len() as u64 + 1) as usize;
        for (index, change) in sim.name_changes.iter().enumerate() {
            if if ordered { index < survived } else { random.one_in(2) } {
                change.apply(&mut names);
            }
        }
        new.files = sim.files.clone();
        for file in &mut new.files {
            file.settle(&mut random);
            file.cache = file.durable.clone();
        }
        new.durable_names = names.clone();
        new.names = names;
        drop(new);
        disk
    }

    /// The disk as the end of a process leaves it: the page cache is still there, and still not durable.
    pub fn after_kill(&self) -> SimulatedDisk {
        let sim = self.0.lock();
        let disk = SimulatedDisk::new(0);
        let mut new = disk.0.lock();
        new.files = sim.files.clone();
        new.names = sim.names.clone();
        new.durable_names = sim.durable_names.clone();
        new.name_changes = sim.name_changes.clone();
        drop(new);
        disk
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let sim = self.0.lock();
        sim.names.get(name).map(|file| sim.files[*file].cache.clone())
    }

    /// Puts a file there, durably.
    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut sim = self.0.lock();
        let file = sim.files.len();
        sim.files.push(File { cache: bytes.clone(), durable: bytes, dirty: Vec::new() });
        sim.names.insert(name.to_owned(), file);
        sim.durable_names.insert(name.to_owned(), file);
    }

    fn change(&self, op: DiskOp, change: NameChange) -> io::Result<()> {
        let mut sim = self.0.lock();
        sim.ask(op)?;
        change.apply(&mut sim.names);
        sim.name_changes.push(change);
        Ok(())
    }
}

impl Sim {
    fn ask(&mut self, op: DiskOp) -> io::Result<()> {
        self.ops += 1;
        match self.fault.as_mut().and_then(|fault| fault(op, self.ops)) {
            Some(kind) => Err(io::Error::new(kind, format!("simulated fault in {op:?}"))),
            None => Ok(()),
        }
    }

    fn reserve(&self, file: usize, length: usize) -> io::Result<()> {
        let more = length.saturating_sub(self.files[file].cache.len());
        let used: usize = self.names.values().map(|file| self.files[*file].cache.len()).sum();
        if more > 0 && used + more > self.capacity {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "simulated disk is full"));
        }
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    fn path(&self) -> &Path {
        Path::new("simulated")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = {
            let mut sim = self.0.lock();
            sim.files.push(File::default());
            sim.files.len() - 1
        };
        self.change(DiskOp::Create, NameChange::Set(name.to_owned(), file))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.0.lock().names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.0.lock().names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        self.change(DiskOp::Rename, NameChange::Rename(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(DiskOp::Remove, NameChange::Remove(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut sim = self.0.lock();
        sim.ask(DiskOp::SyncDirectory)?;
        sim.durable_names = sim.names.clone();
        sim.name_changes.clear();
        Ok(())
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[self.file].cache.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let sim = self.disk.0.lock();
        let rest = sim.files[self.file].cache.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut sim = self.disk.0.lock();
        let asked = sim.ask(DiskOp::Write).and_then(|()| sim.reserve(self.file, offset as usize + bytes.len()));
        // A write that fails may have written some of it.
        let done = match &asked {
            Ok(()) => bytes.len(),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return asked,
            Err(_) => sim.random.below(bytes.len() as u64) as usize,
        };
        let file = &mut sim.files[self.file];
        write(&mut file.cache, offset as usize, &bytes[..done]);
        file.dirty.push(Dirty::Write(offset as usize, bytes[..done].to_vec()));
        asked
    }

    fn allocate(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let mut sim = self.disk.0.lock();
        sim.ask(DiskOp::Allocate)?;
        let end = (offset + length) as usize;
        sim.reserve(self.file, end)?;
        let file = &mut sim.files[self.file];
        if file.cache.len() < end {
            file.cache.resize(end, 0);
            file.dirty.push(Dirty::Length(end));
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut sim = self.disk.0.lock();
        sim.ask(DiskOp::Truncate)?;
        let file = &mut sim.files[self.file];
        file.cache.resize(length as usize, 0);
        file.dirty.push(Dirty::Length(length as usize));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut sim = self.disk.0.lock();
        let asked = sim.ask(DiskOp::Sync);
        let mut random = sim.random.clone();
        let file = &mut sim.files[self.file];
        match &asked {
            // Only what is dirty is written: pages that an earlier, failed sync marked clean are not.
            Ok(()) => {
                for dirty in std::mem::take(&mut file.dirty) {
                    match dirty {
                        Dirty::Write(offset, bytes) => write(&mut file.durable, offset, &bytes),
                        Dirty::Length(length) => file.durable.resize(length, 0),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(_) => file.settle(&mut random),
        }
        random.number();
        sim.random = random;
        asked
    }
}
