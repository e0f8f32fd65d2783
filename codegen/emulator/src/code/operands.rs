//! Operand slots: where an instruction finds its operands in the register file.

/// Index of the destination in an instruction's slots, by convention; the sources A, B and C follow.
pub(crate) const D: usize = 0;
pub(crate) const A: usize = 1;
pub(crate) const B: usize = 2;
pub(crate) const C: usize = 3;
/// Indices of the elements of a vector load or store, or of the matrices of `ldmatrix` and `stmatrix`; A is the address.
pub(crate) const ELEMENTS: [usize; 4] = [0, 2, 3, 4];

/// Bit of a predicate's slot that negates the predicate.
pub(crate) const NEGATED: u32 = 1 << 31;
/// An absent guard or operand.
pub(crate) const NONE: u32 = u32::MAX;
