//! Launches that may start before their predecessors end, and what they must not touch until they wait.
//!
//! With programmatic dependent launch a kernel starts once every CTA of the one before it has executed
//! `griddepcontrol.launch_dependents` or has ended, and `griddepcontrol.wait` holds it until that one is
//! complete. The emulator runs one launch after the other, so a kernel that forgets to wait computes the
//! right thing; [`ProgrammaticOrder`] finds it out by remembering who touched which bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::exec::lanes::LANES;
use crate::exec::resolve::Access;
use crate::exec::{Fault, Flow, Inst, Machine, lanes_of};
use crate::finding::{Finding, FindingKind, Space};
use crate::launch::{LaunchConfig, Options, Stats, run_in};
use crate::memory::{Allocation, Memory, Table, Zeroed};
use crate::module::Kernel;

/// Accesses are remembered for units of this many bytes.
const GRANULE: u64 = 32;

/// Kernels that run in order, some of them on programmatic edges.
///
/// Of each launch it remembers which bytes of global memory were read and written, in units of 32 bytes,
/// and by which line. A thread of a later launch that may run at the same time, and has not executed
/// `griddepcontrol.wait`, must not read what such a launch wrote, nor write what it read or wrote: that
/// is a finding of kind [`FindingKind::ProgrammaticDependency`]. So is a launch on a programmatic edge in
/// which a CTA ends without having waited: the launches after it could then not tell when the ones
/// before it are complete.
///
/// Launch `k + 1` may run at the same time as `k`. It may run at the same time as the launches before
/// that which `k` itself could not know to be complete, unless some CTA of `k` lets its successor start
/// only after having waited. A thread also counts as having waited when it has met one that has, at a
/// barrier, an mbarrier or `bar.warp.sync`.
#[derive(Default)]
pub struct ProgrammaticOrder {
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

/// Launch numbers share a word with a line.
const MAX_LAUNCHES: u32 = u16::MAX as u32;

impl ProgrammaticOrder {
    /// No launches so far.
    pub fn new() -> ProgrammaticOrder {
        ProgrammaticOrder::default()
    }

    /// [`run`](crate::run) as a launch that starts after all before it are complete.
    ///
    /// # Errors
    /// The [`Finding`] that stopped the run.
    pub fn run(
        &mut self,
        kernel: &Kernel,
        memory: &Memory,
        config: &LaunchConfig,
        params: &[u8],
        options: &Options,
    ) -> Result<Stats, Box<Finding>> {
        let order = self.next(kernel, memory, false);
        self.finish(order, |order| run_in(order, kernel, memory, config, params, options))
    }

    /// [`run`](crate::run) as a launch that is programmatically dependent on the one before it.
    ///
    /// # Errors
    /// The [`Finding`] that stopped the run.
    pub fn run_programmatic(
        &mut self,
        kernel: &Kernel,
        memory: &Memory,
        config: &LaunchConfig,
        params: &[u8],
        options: &Options,
    ) -> Result<Stats, Box<Finding>> {
        let order = self.next(kernel, memory, true);
        self.finish(order, |order| run_in(order, kernel, memory, config, params, options))
    }

    fn next(&mut self, kernel: &Kernel, memory: &Memory, programmatic: bool) -> Order {
        if self.last == MAX_LAUNCHES {
            *self = ProgrammaticOrder::new();
        }
        self.last += 1;
        self.first = match (programmatic, self.late) {
            (false, _) => self.last,
            (true, true) => self.last - 1,
            (true, false) => self.first,
        };
        self.names.push(kernel.name().to_string());
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

    fn finish<T>(&mut self, order: Order, run: impl FnOnce(&Order) -> T) -> T {
        let outcome = run(&order);
        self.late = order.late.load(Relaxed);
        self.names = order.names;
        outcome
    }
}

/// Per granule of an allocation: the last launch that read it, and the last that wrote it, each in the
/// upper half of a word whose lower half is the PTX line (0 where it does not fit).
struct Log {
    reads: Zeroed,
    writes: Zeroed,
    /// The last launch that read any of them, and the last that wrote any.
    last: [AtomicU32; 2],
}

const READS: usize = 0;
const WRITES: usize = 1;

impl Log {
    fn new(bytes: u64) -> Log {
        let words = || Zeroed::new(bytes.div_ceil(GRANULE) as usize * size_of::<u32>());
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
    table: Arc<Table>,
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

    /// The first launch, and its line, that forbids an unwaited access to a granule.
    fn conflict(&self, log: &Log, granule: u64, access: Access) -> Option<(u32, u32, bool)> {
        let concurrent = |entry: u32, writes: bool| {
            let launch = entry >> 16;
            (self.first..self.number).contains(&launch).then_some((launch, entry & 0xffff, writes))
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
}

/// A run of bytes that a lane accesses.
pub(crate) struct Touch {
    pub(crate) lane: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// Checks and remembers the accesses of all active lanes, `bytes` each.
#[inline(never)]
pub(crate) fn touch_lanes(m: &mut Machine<'_>, addresses: &[u64; LANES], bytes: u64, access: Access) -> bool {
    let mut last = None;
    for lane in lanes_of(m.active) {
        let address = addresses[lane];
        // Neighbours share a granule.
        let waited = m.warp.waited >> lane & 1;
        let span = (address / GRANULE, (address + bytes - 1) / GRANULE, waited);
        if last != Some(span) && !touch(m, Touch { lane, address, bytes, access }) {
            return false;
        }
        last = Some(span);
    }
    true
}

/// Checks and remembers one access, which lies in one allocation.
pub(crate) fn touch(m: &mut Machine<'_>, what: Touch) -> bool {
    let Some(order) = m.launch.order else { return true };
    let hint = m.worker.hints[m.warp.pc] as usize;
    let index = match order.table.live.get(hint) {
        Some(allocation) if allocation.contains(what.address, what.bytes) => hint,
        _ => match order.table.find(what.address) {
            Some(index) => index,
            None => return true,
        },
    };
    let (Some(allocation), Some(log)) = (order.table.live.get(index), order.logs.get(index)) else {
        return true;
    };
    let offset = what.address - allocation.base;
    let granules = offset / GRANULE..(offset + what.bytes).div_ceil(GRANULE);
    if m.warp.waited >> what.lane & 1 == 0 && order.concerns(log, what.access) {
        let found = granules.clone().find_map(|granule| order.conflict(log, granule, what.access));
        if let Some((launch, line, writes)) = found {
            explain(m, order, &what, (launch, line, writes));
            return false;
        }
    }
    let line = m.launch.kernel.place(m.warp.pc).line;
    let entry = order.number << 16 | if line <= 0xffff { line } else { 0 };
    let remember = |words: &Zeroed, granule: u64| {
        let word = words.word32(granule);
        if word.load(Relaxed) >> 16 != order.number {
            word.store(entry, Relaxed);
        }
    };
    let kinds = [(&log.reads, READS, Access::Store), (&log.writes, WRITES, Access::Load)];
    for (words, kind, _) in kinds.into_iter().filter(|&(.., without)| without != what.access) {
        if log.last[kind].load(Relaxed) != order.number {
            log.last[kind].store(order.number, Relaxed);
        }
        granules.clone().for_each(|granule| remember(words, granule));
    }
    true
}

#[cold]
fn explain(m: &mut Machine<'_>, order: &Order, what: &Touch, (launch, line, writes): (u32, u32, bool)) {
    let verb = match what.access {
        Access::Load | Access::Prefetch => "load from",
        Access::Store => "store to",
        Access::Atomic => "atomic operation on",
    };
    let name = &order.names[launch as usize - 1];
    let since = order.number - launch;
    let before =
        if since == 1 { "the launch before".to_string() } else { format!("{since} launches before") };
    let done = if writes { "writes" } else { "reads" };
    let place = if line == 0 { String::new() } else { format!(" at PTX line {line}") };
    m.worker.fault = Some(Box::new(Fault {
        kind: FindingKind::ProgrammaticDependency,
        lane: what.lane as u32,
        detail: format!(
            "{}-byte {verb} global memory at {:#x}, around which kernel `{name}`, {before}, {done}{place} and may \
             still run: the thread has not executed `griddepcontrol.wait`",
            what.bytes, what.address
        ),
        address: Some(what.address),
        space: Some(Space::Global),
        nearest: order.table.nearest(what.address, what.bytes),
        other: None,
        pc: None,
    }));
}

/// `griddepcontrol.wait`.
pub(crate) fn wait(m: &mut Machine<'_>, _: &Inst) -> Flow {
    m.warp.waited |= m.active;
    m.cta.waited = true;
    Flow::Next
}

/// `griddepcontrol.launch_dependents`.
pub(crate) fn launch_dependents(m: &mut Machine<'_>, _: &Inst) -> Flow {
    if !m.cta.triggered
        && let Some(order) = m.launch.order
    {
        m.cta.triggered = true;
        order.let_successor_start(m.cta.waited && m.active & !m.warp.waited == 0);
    }
    Flow::Next
}
