//! Detector of accesses that miss a `griddepcontrol.wait`.
//!
//! With programmatic dependent launch, a kernel starts once every CTA of the previous launch has executed
//! `griddepcontrol.launch_dependents` or has exited; `griddepcontrol.wait` blocks until the previous launch is
//! complete. The emulator runs launches one after the other, so a kernel without the wait computes correct results. The
//! detector records which launch accessed which bytes, and finds accesses that conflict with a launch that may run at
//! the same time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::code::access::Access;
use crate::memory::{Allocation, AllocationTable, Memory, ZeroedBytes};

/// Bytes of a granule, the unit of global memory in which accesses are recorded.
const GRANULE: u64 = 32;

/// Launch numbers have 16 bits: a log entry also holds a line.
const MAX_LAUNCHES: u32 = u16::MAX as u32;

/// Accesses of the launches so far.
#[derive(Default)]
pub(crate) struct LaunchHistory {
    /// Number of the last launch; the first launch has number 1.
    last: u32,
    /// Number of the first launch that may have run at the same time as the last launch.
    first_concurrent: u32,
    /// Whether a CTA of the last launch executed `griddepcontrol.wait` before it let the next launch start.
    triggered_after_wait: bool,
    /// Kernel name of each launch, starting with launch 1.
    names: Vec<String>,
    /// Access log of each allocation, by the allocation's address.
    logs: HashMap<u64, Arc<AccessLog>>,
}

impl LaunchHistory {
    /// Begins a launch of the kernel `name`. If `programmatic`, the launch is programmatically dependent on the
    /// previous launch; else the launch starts after all earlier launches are complete.
    pub(crate) fn begin(&mut self, name: &str, memory: &Memory, programmatic: bool) -> LaunchOrder {
        if self.last == MAX_LAUNCHES {
            *self = LaunchHistory::default();
        }
        self.last += 1;
        self.first_concurrent = match (programmatic, self.triggered_after_wait) {
            (false, _) => self.last,
            (true, true) => self.last - 1,
            (true, false) => self.first_concurrent,
        };
        self.names.push(name.to_string());
        let table = memory.snapshot();
        // Addresses are never reused, so an address identifies an allocation.
        let is_live = |base: u64| table.find(base).is_some_and(|index| table.live[index].base == base);
        self.logs.retain(|&base, _| is_live(base));
        let log = |a: &Arc<Allocation>| {
            self.logs.entry(a.base).or_insert_with(|| Arc::new(AccessLog::new(a.bytes))).clone()
        };
        let logs = table.live.iter().map(log).collect();
        LaunchOrder {
            number: self.last,
            first_concurrent: self.first_concurrent.max(1),
            requires_wait: programmatic && self.last > 1,
            triggered_after_wait: AtomicBool::new(false),
            names: std::mem::take(&mut self.names),
            table,
            logs,
        }
    }

    /// Ends a launch.
    pub(crate) fn end(&mut self, order: LaunchOrder) {
        self.triggered_after_wait = order.triggered_after_wait.load(Relaxed);
        self.names = order.names;
    }
}

/// Last read and last write of each granule of an allocation. An entry of 32 bits has the launch number in the upper
/// half and the PTX line in the lower half, 0 if the line does not fit.
struct AccessLog {
    reads: ZeroedBytes,
    writes: ZeroedBytes,
    /// Number of the last launch that read any granule, and of the last launch that wrote any.
    last: [AtomicU32; 2],
}

const READS: usize = 0;
const WRITES: usize = 1;

impl AccessLog {
    fn new(bytes: u64) -> AccessLog {
        let words = || ZeroedBytes::new(bytes.div_ceil(GRANULE) as usize * size_of::<u32>());
        AccessLog { reads: words(), writes: words(), last: Default::default() }
    }
}

/// A launch in programmatic order, with the accesses of the launches that may run at the same time.
pub(crate) struct LaunchOrder {
    number: u32,
    /// Number of the first launch that may run at the same time as this launch.
    first_concurrent: u32,
    /// Whether every CTA must execute `griddepcontrol.wait`.
    requires_wait: bool,
    /// Whether a CTA has executed `griddepcontrol.wait` before it let the next launch start.
    triggered_after_wait: AtomicBool,
    names: Vec<String>,
    table: Arc<AllocationTable>,
    /// Logs of the allocations, parallel to `table.live`.
    logs: Vec<Arc<AccessLog>>,
}

impl LaunchOrder {
    /// Lanes that count as having executed `griddepcontrol.wait` when a warp starts: all lanes if no earlier launch may
    /// run at the same time, else none.
    pub(crate) fn waited_at_start(&self) -> u32 {
        if self.first_concurrent < self.number { 0 } else { u32::MAX }
    }

    /// Fast check of an access before `griddepcontrol.wait`: whether a concurrent launch has made any access of the
    /// allocation that may conflict.
    fn may_conflict(&self, log: &AccessLog, access: Access) -> bool {
        let is_recent = |kind: usize| log.last[kind].load(Relaxed) >= self.first_concurrent;
        is_recent(WRITES) || matches!(access, Access::Store | Access::Atomic) && is_recent(READS)
    }

    /// Finds the access of a concurrent launch that conflicts with an access of a granule before `griddepcontrol.wait`.
    fn find_conflict(&self, log: &AccessLog, granule: u64, access: Access) -> Option<Dependency> {
        let concurrent = |entry: u32, writes: bool| {
            let launch = entry >> 16;
            (self.first_concurrent..self.number).contains(&launch).then_some(Dependency {
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

    /// Records that a CTA exits or executes `griddepcontrol.launch_dependents`; `waited` is whether the CTA has
    /// executed `griddepcontrol.wait` before.
    pub(crate) fn trigger(&self, waited: bool) {
        if waited {
            self.triggered_after_wait.store(true, Relaxed);
        }
    }

    /// Whether every CTA must execute `griddepcontrol.wait` before the CTA exits.
    pub(crate) fn requires_wait(&self) -> bool {
        self.requires_wait
    }

    /// Checks and records an access of global memory inside one allocation.
    pub(crate) fn check_and_record(&self, what: &GlobalAccess) -> Result<(), Dependency> {
        let index = match self.table.live.get(what.hint) {
            Some(allocation) if allocation.contains(what.address, what.bytes) => what.hint,
            _ => match self.table.find(what.address) {
                Some(index) if self.table.live[index].contains(what.address, what.bytes) => index,
                // Memory allocated after this launch began, such as a cooperative grid's workspace.
                _ => return Ok(()),
            },
        };
        let (Some(allocation), Some(log)) = (self.table.live.get(index), self.logs.get(index)) else {
            return Ok(());
        };
        let offset = what.address - allocation.base;
        let granules = offset / GRANULE..(offset + what.bytes).div_ceil(GRANULE);
        if !what.waited && self.may_conflict(log, what.access) {
            let found = granules.clone().find_map(|granule| self.find_conflict(log, granule, what.access));
            if let Some(dependency) = found {
                return Err(dependency);
            }
        }
        let line = if what.line <= 0xffff { what.line } else { 0 };
        let entry = self.number << 16 | line;
        let record = |words: &ZeroedBytes, granule: u64| {
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
            granules.clone().for_each(|granule| record(words, granule));
        }
        Ok(())
    }

    /// The detail of a finding about an access that conflicts with a concurrent launch.
    pub(crate) fn describe(&self, what: &GlobalAccess, dependency: Dependency) -> String {
        let Dependency { launch, line, writes } = dependency;
        let verb = what.access.verb();
        let name = &self.names[launch as usize - 1];
        let since = self.number - launch;
        let before =
            if since == 1 { "the previous launch".to_string() } else { format!("{since} launches before") };
        let done = if writes { "writes" } else { "reads" };
        let place = if line == 0 { String::new() } else { format!(" at PTX line {line}") };
        format!(
            "{}-byte {verb} global memory at {:#x}, which kernel `{name}` ({before}) {done}{place} and which may still \
             run: execute `griddepcontrol.wait` before the access",
            what.bytes, what.address
        )
    }
}

/// Access of global memory by one thread.
pub(crate) struct GlobalAccess {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    /// Whether the thread has executed `griddepcontrol.wait`, or synchronised with a thread that has.
    pub(crate) waited: bool,
    /// PTX line of the instruction.
    pub(crate) line: u32,
    /// Index of the allocation that the instruction accessed last.
    pub(crate) hint: usize,
}

impl GlobalAccess {
    /// The first and the last granule accessed.
    pub(crate) fn granules(&self) -> (u64, u64) {
        (self.address / GRANULE, (self.address + self.bytes - 1) / GRANULE)
    }
}

/// Access of an earlier launch that may still run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dependency {
    launch: u32,
    /// PTX line of the access; 0 if unknown.
    line: u32,
    writes: bool,
}
