//! Random numbers for ids and seeds, not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is different at each call and in each process.
pub fn number() -> u64 {
    // `RandomState` is keyed with the system's random numbers.
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    STATE.hash_one(COUNT.fetch_add(1, Ordering::Relaxed))
}

/// An id of 32 hexadecimal digits.
pub fn id() -> String {
    format!("{:016x}{:016x}", number(), number())
}
