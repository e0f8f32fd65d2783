//! The uninitialised bits of a warp's registers, with the reads that they come from.

use std::collections::HashMap;

use super::fault::Fault;
use crate::code::value_flow::RegisterSlot;
use crate::lanes::{LANES, RegisterFile, lanes_of};
use crate::load::types::Width;

/// Bytes of the smallest slot, that of a predicate.
const SLOT_BYTES: usize = 4;
/// Instructions between two searches for uninitialised bits.
const SEARCH_INTERVAL: u32 = 1 << 12;

/// The uninitialised bits of a warp's registers, with their origins: the reads of uninitialised memory or registers that they
/// come from. A warp has this state from its first such read until no register has uninitialised bits any more.
pub(crate) struct UninitialisedBits {
    /// One bit for each register bit, in the register's slot: 1 if uninitialised.
    bits: RegisterFile,
    /// For each slot, the lanes with uninitialised bits.
    masks: Vec<u32>,
    /// For each slot, the lanes whose bits are results of arithmetic, and not copies of uninitialised memory.
    computed: Vec<u32>,
    /// Origin of the uninitialised bits of each lane, by slot: an index into `reads`.
    origins: HashMap<u32, [u32; LANES]>,
    /// For each instruction that has read uninitialised bits, the finding at its last such read.
    reads: Vec<Fault>,
    /// Lanes with an uninitialised carry flag, and its origin.
    carry: (u32, u32),
    /// Instructions until the next search.
    until_search: u32,
}

impl UninitialisedBits {
    /// A state without uninitialised bits, for registers that end at byte `end` of the register file.
    pub(crate) fn new(end: u32) -> UninitialisedBits {
        let slots = end as usize / SLOT_BYTES;
        UninitialisedBits {
            bits: RegisterFile::new(end),
            masks: vec![0; slots],
            computed: vec![0; slots],
            origins: HashMap::new(),
            reads: Vec::new(),
            carry: (0, 0),
            until_search: SEARCH_INTERVAL,
        }
    }

    /// Counts an instruction, and searches every [`SEARCH_INTERVAL`] instructions; returns true if no register has
    /// uninitialised bits.
    pub(crate) fn count(&mut self) -> bool {
        self.until_search -= 1;
        if self.until_search > 0 {
            return false;
        }
        self.until_search = SEARCH_INTERVAL;
        self.carry.0 == 0 && self.masks.iter().all(|&mask| mask == 0)
    }

    /// The uninitialised bits of a register in each lane.
    pub(crate) fn lanes(&self, register: RegisterSlot) -> [u64; LANES] {
        register.values(&self.bits)
    }

    /// The lanes in which a register has uninitialised bits.
    pub(crate) fn mask(&self, register: RegisterSlot) -> u32 {
        self.masks[register.slot as usize / SLOT_BYTES]
    }

    /// The lanes in which the uninitialised bits of a register are results of arithmetic.
    pub(crate) fn computed(&self, slot: u32) -> u32 {
        self.computed[slot as usize / SLOT_BYTES]
    }

    /// Origin of the uninitialised bits of a register in the first of `lanes` that has such bits.
    pub(crate) fn origin(&self, register: RegisterSlot, lanes: u32) -> u32 {
        let lane = (self.mask(register) & lanes).trailing_zeros() as usize % LANES;
        self.origins.get(&register.slot).map_or(0, |origins| origins[lane])
    }

    /// The read that is an origin, as a finding.
    pub(crate) fn read(&self, origin: u32) -> Option<&Fault> {
        self.reads.get(origin as usize)
    }

    /// Adds a read as an origin, in place of the last one by the same instruction.
    pub(crate) fn add_read(&mut self, pc: usize, read: Fault) -> u32 {
        let read = read.at(pc);
        let known = self.reads.iter().position(|known| known.pc == Some(pc));
        let index = known.unwrap_or(self.reads.len());
        match known {
            Some(index) => self.reads[index] = read,
            None => self.reads.push(read),
        }
        index as u32
    }

    /// Sets the uninitialised bits of a register in the lanes of `active`. Those of the lanes in `computed` are results of
    /// arithmetic.
    pub(crate) fn set(
        &mut self,
        register: RegisterSlot,
        active: u32,
        bits: &[u64; LANES],
        (computed, origin): (u32, u32),
    ) {
        let index = register.slot as usize / SLOT_BYTES;
        let uninitialised = mask_of(bits) & active;
        let mask = &mut self.masks[index];
        if (*mask & active) | uninitialised == 0 {
            return;
        }
        *mask = *mask & !active | uninitialised;
        register.write(&mut self.bits, bits, active);
        self.computed[index] = self.computed[index] & !active | computed & uninitialised;
        if uninitialised != 0 {
            let origins = self.origins.entry(register.slot).or_insert([0; LANES]);
            lanes_of(uninitialised).for_each(|lane| origins[lane] = origin);
        }
    }

    /// Marks a register as uninitialised in the lanes of `uninitialised`, and as initialised in the other lanes of `active`.
    pub(crate) fn set_whole(
        &mut self,
        register: RegisterSlot,
        active: u32,
        uninitialised: u32,
        (computed, origin): (u32, u32),
    ) {
        if (self.mask(register) & active) | uninitialised & active == 0 {
            return;
        }
        let all = all_bits(register.width);
        let bits = std::array::from_fn(|lane| if uninitialised >> lane & 1 != 0 { all } else { 0 });
        self.set(register, active, &bits, (computed, origin));
    }

    /// Lanes with an uninitialised carry flag, and its origin.
    pub(crate) fn carry(&self) -> (u32, u32) {
        self.carry
    }

    /// Sets whether the carry flag is uninitialised in the lanes of `active`.
    pub(crate) fn set_carry(&mut self, active: u32, (uninitialised, origin): (u32, u32)) {
        let lanes = self.carry.0 & !active | uninitialised & active;
        self.carry = (lanes, if uninitialised != 0 { origin } else { self.carry.1 });
    }
}

/// A register's value in which all bits are set.
fn all_bits(width: Width) -> u64 {
    u64::MAX >> (64 - width.bits())
}

/// The lanes whose bits are not all zero.
pub(crate) fn mask_of(bits: &[u64; LANES]) -> u32 {
    lanes_of(u32::MAX).filter(|&lane| bits[lane] != 0).fold(0, |mask, lane| mask | 1 << lane)
}
