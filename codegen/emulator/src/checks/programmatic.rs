//! Detector of accesses that come too early in programmatic order.
//!
//! With programmatic dependent launch a kernel starts once every CTA of the one before it has executed
//! `griddepcontrol.launch_dependents` or has ended, and `griddepcontrol.wait` holds it until that one is
//! complete. The emulator runs one launch after the other, so a kernel that forgets to wait computes the
//! right thing; the detector finds it out by remembering who touched which bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::code::access::Access;
use crate::memory::{Allocation, AllocationTable, Memory, ZeroedBytes};

/// Accesses are remembered for units of this many bytes.
const GRANULE: u64 = 32;

/// Launch numbers share a word with a line.
const MAX_LAUNCHES: u32 = u16::MAX as u32;

/// The accesses of the launches so far.
#[derive(Default)]
pub(crate) struct LaunchHistory {
    /// The last launch: launches are numbered from 1.
    last: u32,
    /// The first launch that may have run at the same time as the last.
    first: u32,
    /// Whether the last launch let its successor start only after its own wait.
    late: bool,
    /// Kernels by number of the launch, less one.
    names: Vec<String>,
    /// By first address of the allocation.
    logs: HashMap<u64, Arc<Log>>,
}

impl LaunchHistory {
    /// Begins a launch of the kernel `name`, dependent on the one before it on a programmatic edge or completely.
    pub(crate) fn begin(&mut self, name: &str, memory: &Memory, programmatic: bool) -> Order {
        if self.last == MAX_LAUNCHES {
            *self = LaunchHistory::default();
        }
        self.last += 1;
        self.first = match (programmatic, self.late) {
            (false, _) => self.last,
            (true, true) => self.last - 1,
            (true, false) => self.first,
        };
        self.names.push(name.to_string());
        let table = memory.snapshot();
        // Addresses are never reused.
        let live = |base: u64| table.find(base).is_some_and(|index| table.live[index].base == base);
        self.logs.retain(|&base, _| live(base));
        let log = |a: &Arc<Allocation>| {
            self.logs.entry(a.base).or_insert_with(|| Arc::new(Log::new(a.bytes))).clone()
        };
        let logs = table.live.iter().map(log).collect();
        Order {
            number: self.last,
            first: self.first.max(1),
            programmatic: programmatic && self.last > 1,
            late: AtomicBool::new(false),
            names: std::mem::take(&mut self.names),
            table,
            logs,
        }
    }

    /// Ends a launch.
    pub(crate) fn end(&mut self, order: Order) {
        self.late = order.late.load(Relaxed);
        self.names = order.names;
    }
}

/// Per granule of an allocation: the last launch that read it, and the last that wrote it, each in the
/// upper half of a word whose lower half is the PTX line (0 where it does not fit).
struct Log {
    reads: ZeroedBytes,
    writes: ZeroedBytes,
    /// The last launch that read any of them, and the last that wrote any.
    last: [AtomicU32; 2],
}

const READS: usize = 0;
const WRITES: usize = 1;

impl Log {
    fn new(bytes: u64) -> Log {
        let words = || ZeroedBytes::new(bytes.div_ceil(GRANULE) as usize * size_of::<u32>());
        Log { reads: words(), writes: words(), last: Default::default() }
    }
}

/// What one launch knows of its place in the order.
pub(crate) struct Order {
    number: u32,
    /// Launches from here to `number` may run at the same time.
    first: u32,
    programmatic: bool,
    /// Whether some CTA lets the successor start only after its own wait.
    late: AtomicBool,
    names: Vec<String>,
    table: Arc<AllocationTable>,
    /// In the table's order.
    logs: Vec<Arc<Log>>,
}

impl Order {
    /// The lanes that need not wait when a warp starts.
    pub(crate) fn waited_at_start(&self) -> u32 {
        if self.first < self.number { 0 } else { u32::MAX }
    }

    /// Whether some access of the launches that may run at the same time, or of this one, could forbid an unwaited one.
    fn concerns(&self, log: &Log, access: Access) -> bool {
        let since = |kind: usize| log.last[kind].load(Relaxed) >= self.first;
        since(WRITES) || matches!(access, Access::Store | Access::Atomic) && since(READS)
    }

    /// The first access of an earlier launch that forbids an unwaited access to a granule.
    fn conflict(&self, log: &Log, granule: u64, access: Access) -> Option<Dependency> {
        let concurrent = |entry: u32, writes: bool| {
            let launch = entry >> 16;
            (self.first..self.number).contains(&launch).then_some(Dependency {
                launch,
                line: entry & 0xffff,
                writes,
            })
        };
        let writer = concurrent(log.writes.word32(granule).load(Relaxed), true);
        match access {
            Access::Load | Access::Prefetch => writer,
            Access::Store | Access::Atomic => {
                writer.or_else(|| concurrent(log.reads.word32(granule).load(Relaxed), false))
            }
        }
    }

    /// A CTA ends, or lets its successor start: `waited` says whether it has waited by then.
    pub(crate) fn let_successor_start(&self, waited: bool) {
        if waited {
            self.late.store(true, Relaxed);
        }
    }

    /// Whether a CTA that has not waited must not end.
    pub(crate) fn must_wait(&self) -> bool {
        self.programmatic
    }

    /// Checks and records an access of global memory, which lies in one allocation.
    pub(crate) fn touch(&self, what: &Touch) -> Result<(), Dependency> {
        let index = match self.table.live.get(what.hint) {
            Some(allocation) if allocation.contains(what.address, what.bytes) => what.hint,
            _ => match self.table.find(what.address) {
                Some(index) => index,
                None => return Ok(()),
            },
        };
        let (Some(allocation), Some(log)) = (self.table.live.get(index), self.logs.get(index)) else {
            return Ok(());
        };
        let offset = what.address - allocation.base;
        let granules = offset / GRANULE..(offset + what.bytes).div_ceil(GRANULE);
        if !what.waited && self.concerns(log, what.access) {
            let found = granules.clone().find_map(|granule| self.conflict(log, granule, what.access));
            if let Some(dependency) = found {
                return Err(dependency);
            }
        }
        let line = if what.line <= 0xffff { what.line } else { 0 };
        let entry = self.number << 16 | line;
        let remember = |words: &ZeroedBytes, granule: u64| {
            let word = words.word32(granule);
            if word.load(Relaxed) >> 16 != self.number {
                word.store(entry, Relaxed);
            }
        };
        let kinds = [(&log.reads, READS, Access::Store), (&log.writes, WRITES, Access::Load)];
        for (words, kind, _) in kinds.into_iter().filter(|&(.., without)| without != what.access) {
            if log.last[kind].load(Relaxed) != self.number {
                log.last[kind].store(self.number, Relaxed);
            }
            granules.clone().for_each(|granule| remember(words, granule));
        }
        Ok(())
    }

    /// A sentence about an access that depends on an earlier launch.
    pub(crate) fn explain(&self, what: &Touch, dependency: Dependency) -> String {
        let Dependency { launch, line, writes } = dependency;
        let verb = what.access.verb();
        let name = &self.names[launch as usize - 1];
        let since = self.number - launch;
        let before =
            if since == 1 { "the launch before".to_string() } else { format!("{since} launches before") };
        let done = if writes { "writes" } else { "reads" };
        let place = if line == 0 { String::new() } else { format!(" at PTX line {line}") };
        format!(
            "{}-byte {verb} global memory at {:#x}, around which kernel `{name}`, {before}, {done}{place} and may \
             still run: the thread has not executed `griddepcontrol.wait`",
            what.bytes, what.address
        )
    }
}

/// An access of global memory by one thread.
pub(crate) struct Touch {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    /// Whether the thread has waited for the earlier launches.
    pub(crate) waited: bool,
    /// The PTX line.
    pub(crate) line: u32,
    /// The allocation that the instruction last accessed.
    pub(crate) hint: usize,
}

impl Touch {
    /// The granules accessed: the first and the last.
    pub(crate) fn granules(&self) -> (u64, u64) {
        (self.address / GRANULE, (self.address + self.bytes - 1) / GRANULE)
    }
}

/// An earlier launch that may still run, and whose access forbids an unwaited one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dependency {
    launch: u32,
    /// The PTX line of its access, if known, else 0.
    line: u32,
    writes: bool,
}
