//! Members of opcodes that are kept for the life of the process, since opcodes are `Copy`.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Distinct values, each stored once.
pub(super) struct Interned<T: 'static>(LazyLock<Mutex<HashSet<&'static T>>>);

impl<T: Eq + Hash> Interned<T> {
    pub(super) const fn new() -> Interned<T> {
        Interned(LazyLock::new(Mutex::default))
    }

    /// The stored value that is equal to this one.
    pub(super) fn get(&self, value: T) -> &'static T {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = known.get(&value) {
            return known;
        }
        let kept: &'static T = Box::leak(Box::new(value));
        known.insert(kept);
        kept
    }
}
