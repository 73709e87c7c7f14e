//! One thing at a time per volume, also when the one before was given up on: a scrub that takes too long goes on in its thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Locks by uid.
#[derive(Default)]
pub struct Busy(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Busy {
    /// Waits until nobody is at it.
    pub async fn alone(&self, uid: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.entry(uid.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }

    /// The volume is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}
