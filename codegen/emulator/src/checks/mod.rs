//! Detectors of races, of accesses out of programmatic order, of uninitialised registers and of suspicious numbers.
//!
//! A detector takes threads, spaces, addresses and values, and returns a conflict. It does not see the execution
//! context: `exec` and `schedule` call it and turn conflicts into faults.

pub(crate) mod initialisation;
pub(crate) mod numeric;
pub(crate) mod programmatic;
pub(crate) mod races;
