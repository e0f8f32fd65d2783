//! Definitions and uses of an instruction: the registers that it reads and writes, and how its results depend on its operands.

use crate::lanes::{LANES, RegisterFile, lanes_of};
use crate::load::ast::Instruction;
use crate::load::types::{Ty, Width};

/// How the results of an instruction depend on its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependence {
    /// A result bit depends on one bit of each operand, in the same lane: moves and bitwise operations. Operands that select
    /// ([`ValueFlow::selectors`]) determine the whole result.
    Bits,
    /// As `Bits`, of operands in any lane: shuffles and votes.
    Shuffle,
    /// Every result bit of a lane depends on every operand bit of that lane.
    Lane,
    /// As `Lane`, for the two halves of registers separately: packed arithmetic and conversions of pairs.
    Halves,
    /// As `Lane`, of two operands: the upper half of the result depends on the first, the lower half on the second.
    PackedPair,
    /// Every result bit depends on every operand bit of all lanes.
    Warp,
    /// A product of matrices of floats: a result depends on a row, on a column and on an accumulator.
    Matrix,
    /// As `Matrix`, of integers of 4 or 8 bits.
    IntegerMatrix,
    /// A load by each lane.
    Load(Elements),
    /// A store by each lane.
    Store(Elements),
    /// A load of matrices by the whole warp (`ldmatrix`).
    MatrixLoad,
    /// A store of this number of 8 × 8 matrices by the whole warp (`stmatrix`).
    MatrixStore(usize),
    /// A branch, which depends on its guard.
    Branch,
    /// The operands determine an effect other than results: synchronisation, an atomic operation, a copy.
    Effect,
}

impl Dependence {
    /// Whether the instruction only computes results, each from operands of the same lane.
    pub(crate) fn is_of_lanes(self) -> bool {
        matches!(self, Dependence::Bits | Dependence::Lane | Dependence::Halves | Dependence::PackedPair)
    }
}

/// Index of the first operand in the text that selects what the result is, such as a shift amount, a predicate of `selp`, or
/// the lane and the member mask of `shfl`.
pub(crate) fn first_selector(opcode: &str) -> Option<usize> {
    match opcode {
        "elect" => Some(1),
        "shl" | "shr" | "bfe" | "shfl" | "vote" | "match" | "redux" => Some(2),
        "shf" | "bfi" | "prmt" | "selp" | "slct" => Some(3),
        _ => None,
    }
}

/// Elements that one lane loads or stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elements {
    pub(crate) count: u32,
    /// Bytes of one element.
    pub(crate) bytes: u32,
    pub(crate) signed: bool,
}

impl Elements {
    /// The elements of a load or store; `None` if they are not 1, 2 or 4 elements of at most 16 bytes together.
    pub(crate) fn of(instruction: &Instruction) -> Option<Elements> {
        let modifiers = || instruction.modifiers.iter().map(String::as_str);
        let count = modifiers().find_map(|modifier| match modifier {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        });
        let (count, ty) = (count.unwrap_or(1), modifiers().find_map(Ty::parse)?);
        let elements = Elements { count, bytes: ty.bytes(), signed: ty.is_signed() };
        (count * elements.bytes <= 16 && count <= 4).then_some(elements)
    }

    /// Width of the narrowest register that holds an element.
    pub(crate) fn width(self) -> Width {
        match self.bytes {
            8 => Width::W64,
            4 => Width::W32,
            _ => Width::W16,
        }
    }

    /// Bytes of all elements.
    pub(crate) fn total(self) -> u32 {
        self.count * self.bytes
    }
}

/// A register that an instruction reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterSlot {
    pub(crate) slot: u32,
    pub(crate) width: Width,
}

impl RegisterSlot {
    /// The register's value in each lane.
    pub(crate) fn values(self, file: &RegisterFile) -> [u64; LANES] {
        match self.width {
            Width::Predicate => std::array::from_fn(|lane| u64::from(file.mask(self.slot) >> lane & 1)),
            Width::W16 => file.lanes::<u16>(self.slot).map(u64::from),
            Width::W32 => file.lanes::<u32>(self.slot).map(u64::from),
            Width::W64 => *file.lanes::<u64>(self.slot),
        }
    }

    /// Writes the low bits of the values to the register in the lanes of `active`.
    pub(crate) fn write(self, file: &mut RegisterFile, values: &[u64; LANES], active: u32) {
        match self.width {
            Width::Predicate => {
                let set = lanes_of(active).filter(|&lane| values[lane] & 1 != 0);
                let set = set.fold(0, |mask, lane| mask | 1 << lane);
                file.set_mask(self.slot, file.mask(self.slot) & !active | set);
            }
            Width::W16 => file.write(self.slot, &values.map(|value| value as u16), active),
            Width::W32 => file.write(self.slot, &values.map(|value| value as u32), active),
            Width::W64 => file.write(self.slot, values, active),
        }
    }
}

/// The registers that an instruction reads and writes.
#[derive(Debug)]
pub(crate) struct ValueFlow {
    pub(crate) dependence: Dependence,
    /// Without the guard, and without registers that are only selectors.
    pub(crate) reads: Box<[RegisterSlot]>,
    /// Registers that select what the result is.
    pub(crate) selectors: Box<[RegisterSlot]>,
    /// Whether the carry flag is an operand, and whether it is a result.
    pub(crate) reads_carry: bool,
    pub(crate) writes_carry: bool,
    /// Registers that are read only in lanes in which the predicate at the slot `condition` is true.
    pub(crate) conditional_reads: Box<[RegisterSlot]>,
    pub(crate) condition: u32,
    pub(crate) writes: Box<[RegisterSlot]>,
}
