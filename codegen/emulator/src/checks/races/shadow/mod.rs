//! Shadow memory: the last writes and reads of each byte.
//!
//! Memory is divided into blocks of 128 bytes. A block is one line of 32 granules of 4 bytes. If an access does not
//! consist of whole granules, the block is divided into quarters: four lines of 32 bytes each. A line has records of
//! writes and records of reads. A record is for an access by lanes of one warp to some of the line's units, granules or
//! bytes, at one time, or for an access by a copy. Write records of a line are disjoint; a write removes its units from
//! the read records. An access is first compared with a whole record. Lanes and units are compared one by one only if the
//! whole record did not happen before.
//!
//! Times increase from cluster to cluster, so records of earlier clusters are recognised by their time and need not be
//! cleared.

mod check;
mod granules;
mod lines;
mod memory;
mod record;
mod split;

pub(super) use check::{Conflict, LastOrdered};
pub(super) use lines::{GranuleAccess, READS, WRITES};
pub(super) use memory::{LinePart, Shadow};
