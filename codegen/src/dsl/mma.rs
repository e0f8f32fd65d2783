//! Matrix products by a warp on tensor cores.
//!
//! A product D = A·B + C has 16 rows and 8 columns. All 32 lanes run it together, each holding a fragment of every
//! matrix. Lane l is in group g = l / 4 and has place t = l mod 4 in it (PTX ISA, "Matrix Fragments for mma"):
//!
//! | fragment        | register i holds                                                                     |
//! |-----------------|--------------------------------------------------------------------------------------|
//! | [`FragmentA`]   | row g + 8·(i mod 2), bytes 4t + 16·(i / 2) and the next three of the row             |
//! | [`FragmentB`]   | column g, bytes 4t + 16·i and the next three of the column                           |
//! | [`FragmentC`]   | the sum in row g + 8·(i / 2) and column 2t + i mod 2                                 |
//!
//! A row of A, and a column of B, is 16 or 32 bytes: the number of registers says which. Elements are u8, i8 (with i32
//! sums that wrap), [`half::f16`] or [`half::bf16`] (with f32 sums).

use std::marker::PhantomData;
use std::panic::Location;

use super::pointer::{Ptr, Shared};
use super::record::emit;
use super::scalar::Scalar;
use super::value::Val;
use super::{lane, val};
use crate::Carry;
use crate::ir::{self, Mma, MmaShape, Op, Type, Value};

/// What A and B are made of.
pub trait MmaElement: Scalar {
    /// The IR's name of it.
    const ELEMENT: ir::MmaElement;
    /// What sums of products are made of.
    type Sum: Scalar + Default;
}

/// Elements of A that can be multiplied by elements `B`: bytes by bytes of any sign, floats by the same.
pub trait MmaWith<B: MmaElement<Sum = Self::Sum>>: MmaElement {}

macro_rules! elements {
    ($($ty:ty: $name:ident, $sum:ty, $($with:ty)*;)*) => {
        $(impl MmaElement for $ty {
            const ELEMENT: ir::MmaElement = ir::MmaElement::$name;
            type Sum = $sum;
        }
        $(impl MmaWith<$with> for $ty {})*)*
    };
}
elements! {
    u8: U8, i32, u8 i8;
    i8: I8, i32, u8 i8;
    half::f16: F16, f32, half::f16;
    half::bf16: Bf16, f32, half::bf16;
}

/// A lane's part of A: 16 rows of 8·`R` bytes. See the module.
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentA<T, const R: usize> {
    registers: [Val<u32>; R],
    #[carry(skip)]
    elements: PhantomData<T>,
}

/// A lane's part of B: 8 columns of 16·`R` bytes. See the module.
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentB<T, const R: usize> {
    registers: [Val<u32>; R],
    #[carry(skip)]
    elements: PhantomData<T>,
}

/// A lane's part of C or D: 16 rows of 8 sums. See the module.
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentC<S: Scalar>(pub [Val<S>; 4]);

impl<T: MmaElement, const R: usize> FragmentA<T, R> {
    /// The lane's registers, elements in order from the low bits.
    pub fn from_registers(registers: [Val<u32>; R]) -> FragmentA<T, R> {
        FragmentA { registers, elements: PhantomData }
    }

    /// The lane's registers.
    pub fn registers(self) -> [Val<u32>; R] {
        self.registers
    }

    /// Loads 16 rows of 8·`R` bytes that lie `pitch` bytes apart, both `tile` and the pitch aligned to 16
    /// (`ldmatrix`). Eight consecutive rows should lie in different banks: an odd multiple of 16 as the pitch does it.
    #[track_caller]
    pub fn load(tile: Ptr<Shared, T>, pitch: u32) -> FragmentA<T, R> {
        let lane = lane();
        let row = tile.cast().bytes((lane & 15) * pitch);
        let row = if R == 4 { row.bytes((lane >> 4) * 16) } else { row };
        FragmentA::from_registers(load_matrices(row))
    }
}

impl<T: MmaElement, const R: usize> FragmentB<T, R> {
    /// The lane's registers, elements in order from the low bits.
    pub fn from_registers(registers: [Val<u32>; R]) -> FragmentB<T, R> {
        FragmentB { registers, elements: PhantomData }
    }

    /// The lane's registers.
    pub fn registers(self) -> [Val<u32>; R] {
        self.registers
    }

    /// Loads 8 columns of 16·`R` bytes that lie `pitch` bytes apart, both `tile` and the pitch aligned to 16
    /// (`ldmatrix`): B's elements of one column are neighbours.
    #[track_caller]
    pub fn load(tile: Ptr<Shared, T>, pitch: u32) -> FragmentB<T, R> {
        let lane = lane();
        let column = tile.cast().bytes((lane & 7) * pitch);
        let column = if R == 2 { column.bytes((lane >> 3 & 1) * 16) } else { column };
        FragmentB::from_registers(load_matrices(column))
    }
}

impl<T: MmaElement> FragmentB<T, 2> {
    /// As [`FragmentB::load`], of 16 columns at once: the first and the last eight.
    #[track_caller]
    pub fn load_pair(tile: Ptr<Shared, T>, pitch: u32) -> [FragmentB<T, 2>; 2] {
        let lane = lane();
        let column = (lane & 7) + (lane >> 4) * 8;
        let [a, b, c, d] = load_matrices(tile.cast().bytes(column * pitch).bytes((lane >> 3 & 1) * 16));
        [[a, b], [c, d]].map(FragmentB::from_registers)
    }
}

impl<T: MmaElement<Sum = f32>> FragmentB<T, 2> {
    /// Loads 8 columns of B, 16 elements each, whose rows lie `pitch` bytes apart, both `tile` and the pitch aligned to
    /// 16 (`ldmatrix.trans`): B's elements of one row are neighbours.
    #[track_caller]
    pub fn load_transposed(tile: Ptr<Shared, T>, pitch: u32) -> FragmentB<T, 2> {
        let row = tile.cast().bytes((lane() & 15) * pitch);
        FragmentB::from_registers(load_matrices_transposed(row))
    }
}

impl<S: Scalar + Default> FragmentC<S> {
    /// Zero everywhere.
    #[track_caller]
    pub fn zero() -> FragmentC<S> {
        FragmentC([val(S::default()); 4])
    }

    /// The row of the lane's sum number `i`.
    #[track_caller]
    pub fn row(i: u32) -> Val<u32> {
        (lane() >> 2) + (i / 2 * 8)
    }

    /// The column of the lane's sum number `i`.
    #[track_caller]
    pub fn column(i: u32) -> Val<u32> {
        (lane() & 3) * 2 + i % 2
    }
}

/// A·B + C (`mma.sync.aligned.m16n8k8`, `.m16n8k16` or `.m16n8k32`, sm_80). All lanes of the warp run it together.
/// `RA` is 4 for rows of 32 bytes and 2 for rows of 16; `RB` is half of it.
#[track_caller]
pub fn mma<A, B, const RA: usize, const RB: usize>(
    a: FragmentA<A, RA>,
    b: FragmentB<B, RB>,
    c: FragmentC<A::Sum>,
) -> FragmentC<A::Sum>
where
    A: MmaWith<B>,
    B: MmaElement<Sum = A::Sum>,
{
    const {
        assert!(
            matches!((RA, RB), (4, 2) | (2, 1)),
            "fragments of 16 or 32 bytes a row of A and a column of B"
        );
    }
    let shape = match RB * 16 / A::TYPE.bytes() as usize {
        8 => MmaShape::M16N8K8,
        16 => MmaShape::M16N8K16,
        _ => MmaShape::M16N8K32,
    };
    let mma = Mma { shape, a: A::ELEMENT, b: B::ELEMENT };
    let words = a.registers.iter().chain(&b.registers).map(|word| word.id);
    let args: Vec<Value> = words.chain(c.0.iter().map(|sum| sum.id)).collect();
    let sums = emit(Op::Mma(mma), A::Sum::TYPE, &args, Location::caller());
    FragmentC(std::array::from_fn(|i| Val::from_id(sums[i])))
}

/// [`mma`] of bytes, 16×32 by 32×8, by registers instead of fragments (`mma.sync.aligned.m16n8k32.row.col.s32`).
#[track_caller]
pub fn mma_m16n8k32_i8(
    a: [Val<u32>; 4],
    a_signed: bool,
    b: [Val<u32>; 2],
    b_signed: bool,
    c: [Val<i32>; 4],
) -> [Val<i32>; 4] {
    let c = FragmentC(c);
    let sums = match (a_signed, b_signed) {
        (false, false) => mma::<u8, u8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
        (false, true) => mma::<u8, i8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
        (true, false) => mma::<i8, u8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
        (true, true) => mma::<i8, i8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
    };
    sums.0
}

#[track_caller]
fn load_rows<const N: usize>(row: Ptr<Shared, u8>, transposed: bool) -> [Val<u32>; N] {
    const { assert!(matches!(N, 1 | 2 | 4), "1, 2 or 4 matrices are loaded at a time") };
    let op = Op::LoadMatrix { matrices: N as u8, transposed };
    let words = emit(op, Type::U32, &[row.id], Location::caller());
    std::array::from_fn(|i| Val::from_id(words[i]))
}

/// Loads `N` (1, 2 or 4) matrices of 8 rows of 16 bytes from shared memory (`ldmatrix.sync.aligned.m8n8.x1` and so on).
/// Lane l gives the address, aligned to 16, of row l mod 8 of matrix l / 8; those of lanes from 8·`N` on are not used.
/// Word i of a lane is the four bytes at 4·(l mod 4) of row l / 4 of matrix i.
#[track_caller]
pub fn load_matrices<const N: usize>(row: Ptr<Shared, u8>) -> [Val<u32>; N] {
    load_rows(row, false)
}

/// As [`load_matrices`], with the rows and columns of each matrix of 8×8 16-bit elements exchanged (`.trans`).
#[track_caller]
pub fn load_matrices_transposed<const N: usize>(row: Ptr<Shared, u8>) -> [Val<u32>; N] {
    load_rows(row, true)
}
