//! The execution core: decoded instructions are function pointers over whole warps.
//!
//! Each family of instructions is one module that holds both what its instructions do to 32 lanes and
//! the table from opcode and modifiers to that function. A function reads and writes the warp's
//! register file by slot and says through [`Flow`] what the warp does next.
//!
//! What makes it fast: operands are always arrays of 32 lanes, constants included, so a function is one loop
//! without cases, which the compiler vectorises ([`lanes`]); type and modifiers are chosen when the kernel is
//! loaded; memory is looked at by ranges ([`resolve`]); and between branches nothing is looked at but [`Flow`]
//! ([`Inst::straight`]). A check or an observer costs one branch a warp instruction where it is off.

#![allow(clippy::needless_range_loop, reason = "a lane indexes several arrays and a mask at once")]

pub(crate) mod atomic;
pub(crate) mod bits;
pub(crate) mod bulk;
#[cfg(target_arch = "x86_64")]
mod bytes;
pub(crate) mod cluster;
pub(crate) mod collective;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod convert_small;
pub(crate) mod copy;
pub(crate) mod double;
pub(crate) mod float;
pub(crate) mod float_special;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod lanes;
pub(crate) mod load_store;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod moves;
pub(crate) mod remote;
pub(crate) mod resolve;
pub(crate) mod rounding;
pub(crate) mod wmma;

use std::sync::Arc;

use crate::checks::programmatic::Order;
use crate::context::cta::CtaState;
use crate::context::warp::Warp;
use crate::finding::{FindingKind, Neighbour, OtherAccess, Space};
use crate::memory::Table;
use crate::module::Kernel;

/// What a warp does after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Goes on with the next instruction.
    Next,
    /// Goes on at `warp.pc`, which the instruction has set.
    Jump,
    /// Lets other warps run first, then goes on with the next instruction.
    Yield,
    /// Has waited for an mbarrier in vain; lets other warps run, then goes on with the next instruction.
    Stall,
    /// Waits at a barrier; goes on with the next instruction once released.
    Wait,
    /// Has no thread left.
    Done,
    /// Stops the run: `worker.fault` says why.
    Fault,
}

/// The code of an instruction.
///
/// # Safety
/// The instruction's slots must have been laid out by the decoder for this warp's register file, and
/// the CPU must have the features that the function was compiled for (the tables see to both).
pub(crate) type Exec = for<'m, 'a, 'i> unsafe fn(&'m mut Machine<'a>, &'i Inst) -> Flow;

/// Marks a predicate slot as negated.
pub(crate) const NEGATED: u32 = 1 << 31;
/// A guard or slot that is absent.
pub(crate) const NONE: u32 = u32::MAX;

/// Positions in [`Inst::slots`] by convention: destination, then sources.
pub(crate) const D: usize = 0;
pub(crate) const A: usize = 1;
pub(crate) const B: usize = 2;
pub(crate) const C: usize = 3;

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) run: Exec,
    /// Register slots (byte offsets into the register file).
    pub(crate) slots: [u32; 7],
    /// The slot of the guard predicate, possibly [`NEGATED`]; [`NONE`] if unguarded.
    pub(crate) guard: u32,
    /// Index + 1 into [`crate::decode::Code::audits`] for instructions whose registers must be checked
    /// as they run; 0 otherwise.
    pub(crate) audit: u32,
    /// How many instructions from here on, this one included, all lanes that execute one execute together
    /// without guard and audit; 0 if this one has either.
    pub(crate) straight: u32,
    /// Family-specific immediate: an address offset, a branch target, packed options.
    pub(crate) imm: u64,
}

/// Everything that one launch's threads share.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) table: Arc<Table>,
    pub(crate) params: &'a [u8],
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// CTAs of a cluster along each axis, and whether anyone has asked for clusters.
    pub(crate) cluster: [u32; 3],
    pub(crate) explicit_cluster: bool,
    pub(crate) dynamic_shared: u32,
    pub(crate) checks: bool,
    /// Whether instructions are counted one by one.
    pub(crate) profile: bool,
    pub(crate) watches: crate::launch::Checks,
    /// The instructions, if not the kernel's own: see [`crate::checks::numeric`].
    pub(crate) watched: Vec<Inst>,
    pub(crate) instruction_limit: u64,
    pub(crate) resolver: resolve::Resolver,
    /// Where the module's variables are.
    pub(crate) module_base: u64,
    /// What the CTAs tell each other, if races are looked for.
    pub(crate) races: Option<crate::checks::races::Grid>,
    /// The launch's place among others, if somebody looks at that.
    pub(crate) order: Option<&'a Order>,
}

/// What one worker thread keeps between the CTAs that it runs.
pub(crate) struct Worker {
    /// Per instruction: the allocation that it last touched.
    pub(crate) hints: Vec<u32>,
    pub(crate) fault: Option<Box<Fault>>,
    pub(crate) stats: crate::launch::Stats,
    /// What it has counted of each instruction, if the launch is profiled.
    pub(crate) profile: Option<crate::profile::Tally>,
    /// Warp instructions executed by this worker: what `%clock` reads.
    pub(crate) clock: u64,
}

/// A finding before it is given its place in the source.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FindingKind,
    pub(crate) lane: u32,
    pub(crate) detail: String,
    pub(crate) address: Option<u64>,
    pub(crate) space: Option<Space>,
    pub(crate) nearest: Option<Neighbour>,
    /// The earlier of two accesses.
    pub(crate) other: Option<OtherAccess>,
    /// The instruction, if not the warp's current one.
    pub(crate) pc: Option<usize>,
}

/// One warp about to execute one instruction.
pub(crate) struct Machine<'a> {
    pub(crate) warp: &'a mut Warp,
    /// The lanes that execute the instruction.
    pub(crate) active: u32,
    pub(crate) cta: &'a mut CtaState,
    pub(crate) worker: &'a mut Worker,
    pub(crate) launch: &'a Launch<'a>,
}

impl Machine<'_> {
    /// The lanes in which a predicate (or its negation, as the slot says) holds.
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

    #[cold]
    pub(crate) fn fault(&mut self, kind: FindingKind, lane: u32, detail: impl Into<String>) -> Flow {
        self.worker.fault = Some(Box::new(Fault {
            kind,
            lane,
            detail: detail.into(),
            address: None,
            space: None,
            nearest: None,
            other: None,
            pc: None,
        }));
        Flow::Fault
    }
}

/// The set bits of a lane mask, lowest first.
#[inline(always)]
pub(crate) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}
