//! For tests: a disk that is worse than any real one.

mod disk;
mod random;

pub use disk::{DiskOp, SimulatedDisk};
pub use random::Random;
