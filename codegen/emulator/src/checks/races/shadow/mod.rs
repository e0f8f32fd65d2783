//! Shadow memory: the last writes and reads of each byte.
//!
//! Memory is divided into lines of 32 bytes. A line has access records, of writes and of reads. A record stands for what
//! lanes of one warp did to some of the line's bytes at one time, or for a copy. Write records of a line are disjoint;
//! a write removes its bytes from the read records. Comparing an access with a whole record usually shows that the
//! record happened before; only otherwise are lanes and bytes compared one by one.
//!
//! Times increase from cluster to cluster, so records of earlier clusters are recognised by their time and need not be
//! cleared.

mod check;
mod granules;
mod memory;
mod record;

pub(super) use check::{Conflict, LastOrdered};
pub(super) use memory::{GRANULES, GranuleAccess, READS, Shadow, WRITES};
