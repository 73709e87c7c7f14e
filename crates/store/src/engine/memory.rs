//! The engine that remembers nothing.

use std::io;

use super::{AppendError, Checkpoint, Engine, EngineStats, Recovered};
use crate::error::OpenError;

/// An engine for stores that live as long as the process.
#[derive(Debug, Default)]
pub struct Memory {
    batches: u64,
}

impl Engine for Memory {
    fn recover(&mut self, _: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>) -> Result<(), OpenError> {
        Ok(())
    }

    fn append(&mut self, _: u64, _: u64, _: &[u8]) -> Result<(), AppendError> {
        self.batches += 1;
        Ok(())
    }

    fn wants_checkpoint(&self, _: u64) -> bool {
        false
    }

    fn begin_checkpoint(&mut self) -> io::Result<Box<dyn Checkpoint>> {
        Ok(Box::new(Nowhere))
    }

    fn end_checkpoint(&mut self, _: bool) {}

    fn stats(&self) -> EngineStats {
        EngineStats { batches: self.batches, ..EngineStats::default() }
    }
}

struct Nowhere;

impl Checkpoint for Nowhere {
    fn entries(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn batch(&mut self, _: u64, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}
