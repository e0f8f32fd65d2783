//! Data-flow analyses: uninitialised reads, live intervals, and allocation of register slots.

use crate::load::ast::RegId;
use crate::load::control_flow::Cfg;
use crate::load::types::Width;

/// Registers that an instruction reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) reads: Vec<RegId>,
    pub(crate) writes: Vec<RegId>,
    /// Registers that the instruction reads in the lanes in which the predicate at the slot `condition` holds.
    pub(crate) conditional_reads: Vec<RegId>,
    pub(crate) condition: u32,
    /// Whether the instruction has a guard, so that its writes may not happen.
    pub(crate) guarded: bool,
}

impl Effects {
    /// Registers that the instruction reads, or may read.
    fn all_reads(&self) -> impl Iterator<Item = &RegId> {
        self.reads.iter().chain(&self.conditional_reads)
    }
}

/// Set of registers, as a bit vector.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn empty(registers: usize) -> Set {
        Set(vec![0; registers.div_ceil(64)])
    }

    fn full(registers: usize) -> Set {
        Set(vec![u64::MAX; registers.div_ceil(64)])
    }

    fn insert(&mut self, register: RegId) {
        self.0[register as usize / 64] |= 1 << (register % 64);
    }

    fn remove(&mut self, register: RegId) {
        self.0[register as usize / 64] &= !(1 << (register % 64));
    }

    fn contains(&self, register: RegId) -> bool {
        self.0[register as usize / 64] >> (register % 64) & 1 != 0
    }

    fn iter(&self) -> impl Iterator<Item = RegId> {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (index * 64 + bit) as RegId)
        })
    }
}

/// For each register, whether some path reads it before a write. Forward analysis of "assigned on every path".
pub(crate) fn maybe_uninitialised(cfg: &Cfg, effects: &[Effects], registers: usize) -> Vec<bool> {
    let transfer = |block: usize, set: &mut Set| {
        for effect in &effects[cfg.blocks[block].start..cfg.blocks[block].end] {
            if !effect.guarded {
                effect.writes.iter().for_each(|&register| set.insert(register));
            }
        }
    };
    let mut out = vec![Set::full(registers); cfg.blocks.len()];
    let mut changed = true;
    let entry_set = |block: usize, out: &[Set]| {
        // On entry to the function, which is a predecessor of block 0, no register is assigned.
        let mut set = if block == 0 { Set::empty(registers) } else { Set::full(registers) };
        for &predecessor in &cfg.blocks[block].predecessors {
            for (word, other) in set.0.iter_mut().zip(&out[predecessor as usize].0) {
                *word &= other;
            }
        }
        set
    };
    while changed {
        changed = false;
        for block in 0..cfg.blocks.len() {
            let mut set = entry_set(block, &out);
            transfer(block, &mut set);
            if set != out[block] {
                out[block] = set;
                changed = true;
            }
        }
    }
    let mut unassigned = vec![false; registers];
    for block in 0..cfg.blocks.len() {
        let mut set = entry_set(block, &out);
        for effect in &effects[cfg.blocks[block].start..cfg.blocks[block].end] {
            for &register in effect.all_reads() {
                unassigned[register as usize] |= !set.contains(register);
            }
            if !effect.guarded {
                effect.writes.iter().for_each(|&register| set.insert(register));
            }
        }
    }
    unassigned
}

/// Allocates a slot (a byte offset) for every register by linear scan. Registers whose live intervals do not overlap
/// share slots. Returns the slots, and the total size of all slots in bytes.
///
/// A live interval is one range of instructions in text order, which is precise enough if loops are contiguous.
/// Registers in `pinned` do not share their slots.
pub(crate) fn allocate(cfg: &Cfg, effects: &[Effects], widths: &[Width], pinned: &[bool]) -> (Vec<u32>, u32) {
    let mut intervals = live_intervals(cfg, effects, widths.len());
    for (interval, &pinned) in intervals.iter_mut().zip(pinned) {
        if pinned {
            *interval = (0, usize::MAX);
        }
    }
    let mut slots = vec![0; widths.len()];
    let mut next = 0u32;
    for width in [Width::Predicate, Width::W16, Width::W32, Width::W64] {
        let mut members: Vec<usize> =
            (0..widths.len()).filter(|&register| widths[register] == width).collect();
        members.sort_by_key(|&register| intervals[register].0);
        let mut active = std::collections::BinaryHeap::new();
        for register in members {
            let (start, end) = intervals[register];
            let reuse = match active.peek() {
                Some(&std::cmp::Reverse((ends, slot))) if ends < start => Some(slot),
                _ => None,
            };
            let slot = match reuse {
                Some(slot) => {
                    active.pop();
                    slot
                }
                None => {
                    next += width.slot_bytes();
                    next - width.slot_bytes()
                }
            };
            active.push(std::cmp::Reverse((end, slot)));
            slots[register] = slot;
        }
        next = next.next_multiple_of(64);
    }
    (slots, next)
}

/// Live interval of each register: first and last instruction at which it is live or accessed.
fn live_intervals(cfg: &Cfg, effects: &[Effects], registers: usize) -> Vec<(usize, usize)> {
    let mut live_in = vec![Set::empty(registers); cfg.blocks.len()];
    let live_out = |block: usize, live_in: &[Set]| {
        let mut set = Set::empty(registers);
        for &successor in &cfg.blocks[block].successors {
            for (word, other) in set.0.iter_mut().zip(&live_in[successor as usize].0) {
                *word |= other;
            }
        }
        set
    };
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..cfg.blocks.len()).rev() {
            let mut set = live_out(block, &live_in);
            for effect in effects[cfg.blocks[block].start..cfg.blocks[block].end].iter().rev() {
                if !effect.guarded {
                    effect.writes.iter().for_each(|&register| set.remove(register));
                }
                effect.all_reads().for_each(|&register| set.insert(register));
            }
            if set != live_in[block] {
                live_in[block] = set;
                changed = true;
            }
        }
    }
    let mut intervals = vec![(usize::MAX, 0); registers];
    let mut extend = |register: RegId, at: usize| {
        let interval = &mut intervals[register as usize];
        *interval = (interval.0.min(at), interval.1.max(at));
    };
    for (block, bounds) in cfg.blocks.iter().enumerate() {
        live_in[block].iter().for_each(|register| extend(register, bounds.start));
        live_out(block, &live_in).iter().for_each(|register| extend(register, bounds.end - 1));
        for (at, effect) in effects.iter().enumerate().take(bounds.end).skip(bounds.start) {
            effect.all_reads().chain(&effect.writes).for_each(|&register| extend(register, at));
        }
    }
    intervals
}
