//! Detectors of races, of accesses out of programmatic order, of uninitialised registers and of suspicious numbers.
//!
//! A detector takes threads, spaces, addresses and values, and returns a conflict. Detectors do not see the execution
//! context: `exec` and `schedule` call detectors and turn conflicts into faults.

pub(crate) mod initialisation;
pub(crate) mod numeric;
pub(crate) mod programmatic;
pub(crate) mod races;
pub(crate) mod read_only;
