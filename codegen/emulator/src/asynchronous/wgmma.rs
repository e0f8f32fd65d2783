//! `wgmma` operations in flight.
//!
//! A warpgroup is four consecutive warps that issue the same operations. Each warp has a quarter of the rows of an
//! operation, but an operation completes as a whole: a warp that waits for it also waits until the other warps have
//! issued it. So one thread of the warpgroup may tell others, after its wait, that the operands in shared memory are
//! free.

use std::collections::VecDeque;

use crate::lanes::LANES;

/// Warps of a warpgroup.
pub(crate) const WARPS_PER_WARPGROUP: usize = 4;

/// First warp of a warp's warpgroup. Warps are numbered over the cluster, and warpgroups start at multiples of four in
/// each CTA.
pub(crate) fn first_in_warpgroup(warp: usize, warps_per_cta: usize) -> usize {
    warp - warp % warps_per_cta % WARPS_PER_WARPGROUP
}

/// Bytes of shared memory that are counted together: the smallest part of an operand.
pub(crate) const CHUNK: u64 = 16;

/// What the threads of a warpgroup must agree on when they issue an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonOperands {
    pub(crate) pc: usize,
    /// Descriptors of `A` and `B`; 0 for `A` in registers.
    pub(crate) descriptors: [u64; 2],
    pub(crate) scale_d: bool,
}

/// Operations that some warps of a warpgroup have issued and others have not.
#[derive(Clone, Default)]
struct IssuedOperations {
    /// Number of the first operation.
    first: u64,
    /// The operations in order, each with the warp that has issued it first.
    operations: VecDeque<(usize, CommonOperands)>,
}

/// The part of an operation that one warp has issued.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Number of the operation among those of the warp.
    pub(crate) number: u64,
    /// Number of the warp's group of operations.
    pub(crate) group: u64,
    pub(crate) pc: usize,
    /// Ranges of shared memory that the part reads: address and size.
    pub(crate) reads: Vec<(u64, u64)>,
    /// Registers that the part writes, each with its slot.
    pub(crate) writes: Vec<(u32, u32)>,
    /// Registers of operand `A`.
    pub(crate) a: Vec<u32>,
}

/// A register that is an operand of some `wgmma`, in one warp. Registers are numbered by the loader.
#[derive(Clone, Default)]
pub(crate) struct OperandRegister {
    /// Number of operations in flight that write the register, and the last of them.
    pub(crate) writers: u32,
    pub(crate) writer: usize,
    /// Number of operations in flight that read the register as part of `A`, and the last of them.
    pub(crate) readers: u32,
    pub(crate) reader: usize,
    /// Whether an instruction other than `wgmma` has read or written the register since the last `wgmma.fence`.
    pub(crate) was_read: bool,
    pub(crate) was_written: bool,
    /// Shape of the operation that has accumulated in the register since the last `wgmma.fence`; 0 for none.
    pub(crate) shape: u32,
    /// Value after the operations in flight.
    pub(crate) result: [u32; LANES],
}

/// What a warp's part of a complete operation has read.
pub(crate) struct CompletedRead {
    /// Number of the operation among those of the warpgroup.
    pub(crate) number: u64,
    pub(crate) pc: usize,
    /// Ranges of shared memory: start and bytes.
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// The `wgmma` operations of a warp.
#[derive(Clone, Default)]
pub(crate) struct WarpOperations {
    pub(crate) in_flight: Vec<Operation>,
    /// Number of operations issued.
    pub(crate) issued: u64,
    /// Number of groups committed; also the number of the open group.
    pub(crate) committed: u64,
    /// Whether the warp has executed `wgmma.fence`.
    pub(crate) fenced: bool,
    /// Number of first operations that the warp waits for, if another warp of the warpgroup has issued fewer.
    pub(crate) awaited_count: Option<u64>,
    pub(crate) registers: Vec<OperandRegister>,
}

impl WarpOperations {
    /// State of a register with this number.
    pub(crate) fn register(&mut self, number: u32) -> &mut OperandRegister {
        let index = number as usize;
        if self.registers.len() <= index {
            self.registers.resize_with(index + 1, OperandRegister::default);
        }
        &mut self.registers[index]
    }

    /// Orders the warp's accesses of registers before later operations.
    pub(crate) fn fence(&mut self) {
        self.fenced = true;
        for register in &mut self.registers {
            (register.was_read, register.was_written, register.shape) = (false, false, 0);
        }
    }

    /// Merges `later` into an operation in flight of the same instruction and group that reads the same memory; returns
    /// whether there is one. Bounds the number of operations in flight per group in a loop without waits.
    pub(crate) fn merge(&mut self, later: &Operation) -> bool {
        let group = self.in_flight.iter_mut().rev().take_while(|one| one.group == later.group);
        let same = group.into_iter().find(|one| one.pc == later.pc && one.reads == later.reads);
        let Some(same) = same else { return false };
        same.number = later.number;
        true
    }

    /// Number of operations that are complete when at most `pending` of the latest groups are in flight.
    pub(crate) fn complete_with(&self, pending: u64) -> u64 {
        let first_pending = self.committed.saturating_sub(pending);
        let done = self.in_flight.iter().filter(|operation| operation.group < first_pending);
        done.map(|operation| operation.number + 1).max().unwrap_or(0)
    }
}

/// `wgmma` operations of a cluster, by warp.
#[derive(Default)]
pub(crate) struct WgmmaOperations {
    warps: Vec<WarpOperations>,
    warps_per_cta: usize,
    /// By the first warp of a warpgroup.
    issued: Vec<IssuedOperations>,
    /// Number of operations in flight that read each chunk of shared memory.
    readers: Vec<u32>,
}

impl WgmmaOperations {
    pub(crate) fn reset(&mut self, warps_per_cta: usize) {
        self.warps_per_cta = warps_per_cta;
        self.warps.clear();
        self.issued.clear();
        self.readers.fill(0);
    }

    pub(crate) fn warp(&mut self, warp: usize) -> &mut WarpOperations {
        if self.warps.len() <= warp {
            self.warps.resize_with(warp + 1, WarpOperations::default);
        }
        &mut self.warps[warp]
    }

    /// The operations of all warps that have any.
    pub(crate) fn warps(&self) -> impl Iterator<Item = (usize, &WarpOperations)> {
        self.warps.iter().enumerate()
    }

    fn first_in_warpgroup(&self, warp: usize) -> usize {
        first_in_warpgroup(warp, self.warps_per_cta)
    }

    /// Operations in flight, each with its warp.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (usize, &Operation)> {
        self.warps().flat_map(|(warp, operations)| operations.in_flight.iter().map(move |one| (warp, one)))
    }

    /// Numbers the next operation of a warp. The error is a different operation of this number that another warp of the
    /// warpgroup has issued, and that warp.
    pub(crate) fn number(
        &mut self,
        warp: usize,
        operands: CommonOperands,
    ) -> Result<u64, (usize, CommonOperands)> {
        let (number, group) = (self.warp(warp).issued, self.first_in_warpgroup(warp));
        if self.issued.len() <= group {
            self.issued.resize_with(group + 1, IssuedOperations::default);
        }
        let issued = &mut self.issued[group];
        match issued.operations.get((number - issued.first) as usize) {
            Some(&(other, found)) if found != operands => return Err((other, found)),
            Some(_) => {}
            None => issued.operations.push_back((warp, operands)),
        }
        self.warps[warp].issued += 1;
        let warps = self.warps.iter().skip(group).take(WARPS_PER_WARPGROUP);
        let by_all = match warps.len() {
            WARPS_PER_WARPGROUP => warps.map(|warp| warp.issued).min().unwrap_or(0),
            _ => 0,
        };
        while issued.first < by_all && issued.operations.pop_front().is_some() {
            issued.first += 1;
        }
        Ok(number)
    }

    /// Number of first operations that a warp waits for, if another warp of its warpgroup has issued fewer.
    pub(crate) fn awaited_count(&self, warp: usize) -> Option<u64> {
        self.warps.get(warp)?.awaited_count
    }

    /// A warp of the warpgroup of `warp` that has issued fewer than `count` operations, and how many.
    pub(crate) fn lagging_warp(&self, warp: usize, count: u64) -> Option<(usize, u64)> {
        let first = self.first_in_warpgroup(warp);
        let issued = |warp: usize| self.warps.get(warp).map_or(0, |operations| operations.issued);
        let mut warps = (first..first + WARPS_PER_WARPGROUP).map(|other| (other, issued(other)));
        warps.find(|&(_, issued)| issued < count)
    }

    /// Takes the memory reads of the first `count` operations of `warp`'s warpgroup, which are complete, in order of
    /// operations.
    pub(crate) fn complete_reads(&mut self, warp: usize, count: u64) -> Vec<CompletedRead> {
        let first = self.first_in_warpgroup(warp);
        let warps = self.warps.iter_mut().skip(first).take(WARPS_PER_WARPGROUP);
        let parts = warps.flat_map(|warp| &mut warp.in_flight);
        let parts = parts.filter(|part| part.number < count && !part.reads.is_empty());
        let read = |part: &mut Operation| CompletedRead {
            number: part.number,
            pc: part.pc,
            ranges: std::mem::take(&mut part.reads),
        };
        let mut reads: Vec<CompletedRead> = parts.map(read).collect();
        reads.sort_by_key(|read| read.number);
        reads
    }

    /// Counts a reader of a range; calls `reserve` for each chunk that had none.
    pub(crate) fn read(&mut self, (start, bytes): (u64, u64), mut reserve: impl FnMut(u64)) {
        for chunk in start / CHUNK..(start + bytes).div_ceil(CHUNK) {
            let index = chunk as usize;
            if self.readers.len() <= index {
                self.readers.resize(index + 1, 0);
            }
            if self.readers[index] == 0 {
                reserve(chunk * CHUNK);
            }
            self.readers[index] += 1;
        }
    }

    /// Addresses of the chunks of a range that operations in flight read.
    pub(super) fn read_chunks(&self, (start, bytes): (u64, u64)) -> impl Iterator<Item = u64> {
        let chunks = start / CHUNK..(start + bytes).div_ceil(CHUNK);
        let is_read = |chunk: &u64| self.readers.get(*chunk as usize).is_some_and(|&readers| readers > 0);
        chunks.filter(is_read).map(|chunk| chunk * CHUNK)
    }

    /// Ends the reading of a range; calls `release` for each chunk that has no reader left.
    pub(crate) fn end_read(&mut self, (start, bytes): (u64, u64), mut release: impl FnMut(u64)) {
        for chunk in start / CHUNK..(start + bytes).div_ceil(CHUNK) {
            let readers = &mut self.readers[chunk as usize];
            *readers -= 1;
            if *readers == 0 {
                release(chunk * CHUNK);
            }
        }
    }
}
