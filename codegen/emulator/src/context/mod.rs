//! Execution context of instructions: decoded instruction, warp, cluster (shared memory, barriers), worker thread and
//! launch.

pub(crate) mod barrier;
pub(crate) mod cluster;
pub(crate) mod fault;
mod independent;
mod polls;
mod printed;
pub(crate) mod registers;
pub(crate) mod tensor_maps;
pub(crate) mod uninitialised;
pub(crate) mod warp;

use std::sync::Arc;

use crate::checks::numeric::NumericChecks;
use crate::checks::programmatic::LaunchOrder;
use crate::checks::races::GridDetector;
use crate::checks::read_only::ReadOnlyGrid;
use crate::code::access::{Access, FLAGS, StateSpace};
use crate::code::operands::NEGATED;
use crate::code::program::Program;
use crate::context::cluster::ClusterState;
use crate::context::fault::{Fault, Missing};
use crate::context::tensor_maps::ChangedMaps;
use crate::context::warp::Warp;
use crate::finding::FindingKind;
use crate::geometry::Geometry;
use crate::lanes::{LANES, lanes_of};
use crate::memory::AllocationTable;
use crate::options::Checks;
use crate::profile::traffic::ProfileTraits;
use crate::profile::{Counts, Tally};
pub(crate) use printed::Printed;

/// What a warp does after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Continues with the next instruction.
    Next,
    /// Continues at `warp.pc`, which the instruction has set.
    Jump,
    /// Lets other warps run, then continues with the next instruction.
    Yield,
    /// A wait for an mbarrier has failed: lets other warps run, then continues with the next instruction.
    Stall,
    /// Lets other warps run, then executes the same instruction again.
    Retry,
    /// Waits at a barrier; continues with the next instruction once released.
    Wait,
    /// Ends: the warp has no thread left.
    Done,
    /// Stops the run: `worker.fault` says why.
    Fault,
}

/// The function that executes an instruction.
///
/// # Safety
/// The instruction's slots must have been laid out by the decoder for this warp's register file, and
/// the CPU must have the features that the function was compiled for (the decoder ensures both).
pub(crate) type Exec = for<'m, 'a, 'i> unsafe fn(&'m mut ExecutionContext<'a>, &'i Inst) -> Flow;

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) run: Exec,
    /// Register slots (byte offsets into the register file).
    pub(crate) slots: [u32; 7],
    /// The slot of the guard predicate, possibly [`NEGATED`]; [`NONE`](crate::code::operands::NONE) if unguarded.
    pub(crate) guard: u32,
    /// Index + 1 into [`Program::register_checks`] if the instruction's registers are checked at run time; else 0.
    pub(crate) register_check: u32,
    /// Number of consecutive instructions from this instruction on, inside its basic block, without guard and register
    /// check: all lanes of the warp's mask execute all of these. 0 if this instruction has a guard or a register check.
    pub(crate) unconditional: u32,
    /// Family-specific immediate: an address offset, a branch target, packed options.
    pub(crate) imm: u64,
}

/// State of a launch that all worker threads share.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Program,
    /// The kernel's instructions.
    pub(crate) insts: &'a [Inst],
    /// Instructions to run instead of `insts` if numeric checks are on; else empty.
    pub(crate) instrumented: Vec<Inst>,
    /// Instructions to run instead of `insts` and `instrumented`, with checks of the registers that are operands of
    /// `wgmma`; empty if the kernel has no `wgmma`, or memory is not checked.
    pub(crate) watched: Vec<Inst>,
    pub(crate) numeric: NumericChecks<'a>,
    pub(crate) table: Arc<AllocationTable>,
    pub(crate) params: &'a [u8],
    pub(crate) geometry: Geometry,
    pub(crate) dynamic_shared: u32,
    /// The optional checks of the run.
    pub(crate) checks: Checks,
    /// Profile traits of the instructions, if the launch is profiled.
    pub(crate) profile: Option<&'a [ProfileTraits]>,
    pub(crate) resolver: Resolver,
    /// Address of the module's variables in global memory.
    pub(crate) module_base: u64,
    /// Address of the memory with which the CTAs of a cooperative launch synchronise; 0 for other launches.
    pub(crate) grid_workspace: u64,
    /// Text that the threads have printed.
    pub(crate) printed: Printed,
    /// Tensor maps in global memory that the launch has changed.
    pub(crate) changed_maps: ChangedMaps,
    /// Accesses of the clusters that have ended, if races are checked.
    pub(crate) races: Option<GridDetector>,
    /// Reads with `.nc` and writes of the clusters that have ended, if races are checked and the kernel loads with `.nc`.
    pub(crate) read_only: Option<ReadOnlyGrid>,
    /// The launch's position in programmatic order, if that is checked.
    pub(crate) order: Option<&'a LaunchOrder>,
}

/// Host pointers of an access.
#[allow(clippy::large_enum_variant, reason = "it lives for one instruction, on the stack")]
pub(crate) enum Resolved {
    /// Pointer of lane 0; the elements of all 32 lanes are contiguous.
    Run(*mut u8),
    /// One pointer for all lanes.
    Same(*mut u8),
    /// One pointer per lane; the pointers of inactive lanes must not be used.
    Lanes([*mut u8; LANES]),
    /// `worker.fault` is set.
    Fault,
}

/// The function that resolves the addresses of a load or store to host pointers.
///
/// # Safety
/// The CPU must have the features that the function was compiled for.
pub(crate) type Resolver =
    for<'m, 'a, 'i> unsafe fn(&'m mut ExecutionContext<'a>, &'i Inst, u64, Access) -> Resolved;

/// Counters of executed instructions and of traffic with global memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) lane_instructions: u64,
    pub(crate) warp_instructions: u64,
    pub(crate) global_bytes_loaded: u64,
    pub(crate) global_bytes_stored: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, other: &Counters) {
        self.lane_instructions += other.lane_instructions;
        self.warp_instructions += other.warp_instructions;
        self.global_bytes_loaded += other.global_bytes_loaded;
        self.global_bytes_stored += other.global_bytes_stored;
    }

    /// Counts a store of `bytes` bytes by each lane of `active`, if the instruction with these slots accesses global
    /// memory.
    #[inline(always)]
    pub(crate) fn count_store(&mut self, slots: &[u32; 7], active: u32, bytes: usize) {
        if StateSpace::of(slots[FLAGS]) == StateSpace::Global {
            self.global_bytes_stored += active.count_ones() as u64 * bytes as u64;
        }
    }

    /// Counts a load of `bytes` bytes by each lane of `active`, if the instruction with these slots accesses global
    /// memory.
    #[inline(always)]
    pub(crate) fn count_load(&mut self, slots: &[u32; 7], active: u32, bytes: usize) {
        if StateSpace::of(slots[FLAGS]) == StateSpace::Global {
            self.global_bytes_loaded += active.count_ones() as u64 * bytes as u64;
        }
    }
}

/// State of a worker thread, kept from cluster to cluster.
pub(crate) struct Worker {
    /// Index of the allocation that each instruction last accessed.
    pub(crate) hints: Vec<u32>,
    pub(crate) fault: Option<Box<Fault>>,
    pub(crate) counters: Counters,
    /// Counts of each instruction, if the launch is profiled.
    pub(crate) profile: Option<Tally>,
    /// Counts of the instruction observed last, before it was added.
    pub(crate) counts_before: Counts,
    /// Whether loads may read uninitialised bytes, because the warp tracks the bits that they load.
    pub(crate) admits_uninitialised: bool,
    /// Warp instructions executed by this worker: the value of `%clock`.
    pub(crate) clock: u64,
}

impl Worker {
    /// The missing lanes, if the fault is that lanes do not execute an instruction together.
    pub(crate) fn missing_lanes(&self) -> Option<Missing> {
        self.fault.as_ref().and_then(|fault| fault.missing)
    }
}

/// One warp about to execute one instruction.
pub(crate) struct ExecutionContext<'a> {
    pub(crate) warp: &'a mut Warp,
    /// The lanes that execute the instruction.
    pub(crate) active: u32,
    pub(crate) cluster: &'a mut ClusterState,
    pub(crate) worker: &'a mut Worker,
    pub(crate) launch: &'a Launch<'a>,
}

impl ExecutionContext<'_> {
    /// Lanes in which the predicate at a slot holds, or does not hold if the slot is [`NEGATED`].
    #[inline(always)]
    pub(crate) fn mask(&self, slot: u32) -> u32 {
        let mask = self.warp.regs.mask(slot & !NEGATED);
        if slot & NEGATED != 0 { !mask } else { mask }
    }

    /// Writes a predicate in the active lanes.
    #[inline(always)]
    pub(crate) fn set_mask(&mut self, slot: u32, value: u32) {
        let old = self.warp.regs.mask(slot);
        self.warp.regs.set_mask(slot, old & !self.active | value & self.active);
    }

    /// The active lanes, lowest first.
    #[inline(always)]
    pub(crate) fn active_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        lanes_of(self.active)
    }

    /// Sets the worker's fault: the lanes of `missing` do not execute the instruction together with the active lanes.
    /// `missing` is empty if these lanes have exited.
    #[cold]
    pub(crate) fn fault_of_missing(
        &mut self,
        kind: FindingKind,
        missing: Missing,
        lane: u32,
        detail: impl Into<String>,
    ) -> Flow {
        let missing = (missing.lanes != 0).then_some(missing);
        self.worker.fault = Some(Box::new(Fault { missing, ..Fault::new(kind, lane, detail) }));
        Flow::Fault
    }

    /// Exits the lanes whose next instruction ends the thread. They have left the code that the active lanes execute, and a
    /// device does not wait for them.
    #[cold]
    pub(crate) fn exit_waiting_lanes(&mut self) {
        let exits = &self.launch.program.exits;
        self.warp.exit_waiting_lanes(|pc| exits.get(pc).is_some_and(|&exits| exits));
    }

    /// The lanes that have not exited and are not active, all of which can join.
    pub(crate) fn missing(&self) -> Missing {
        let lanes = self.warp.live & !self.active;
        Missing { lanes, joinable: lanes }
    }

    /// Sets the worker's fault.
    #[cold]
    pub(crate) fn fault(&mut self, kind: FindingKind, lane: u32, detail: impl Into<String>) -> Flow {
        self.worker.fault = Some(Box::new(Fault::new(kind, lane, detail)));
        Flow::Fault
    }
}
