//! Shadow memory: the last writes and reads of each byte.
//!
//! Memory is divided into lines of 32 bytes. A line has records of writes and records of reads. A record is for an
//! access by lanes of one warp to some of the line's bytes at one time, or for an access by a copy. Write records of a
//! line are disjoint; a write removes its bytes from the read records. An access is first compared with a whole record.
//! Lanes and bytes are compared one by one only if the whole record did not happen before.
//!
//! Times increase from cluster to cluster, so records of earlier clusters are recognised by their time and need not be
//! cleared.

mod check;
mod granules;
mod memory;
mod record;

pub(super) use check::{Conflict, LastOrdered};
pub(super) use memory::{GRANULES, GranuleAccess, READS, Shadow, WRITES};
