//! Operations and what passes may do with them.

use super::entities::SharedVar;
use super::kinds::*;
use super::matrix::Mma;
use super::transfer::{Eviction, FenceFor, Mbarrier, Transfer};
use super::types::Special;

/// What an instruction does. With the instruction's type this determines operands and results: see
/// [`Op::signature`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant, as raw bits in the low end.
    Const(u64),
    /// The kernel's parameter of this index.
    Param(u32),
    /// A special register, of its own type.
    Special(Special),
    /// The address of a static shared variable.
    SharedAddress(SharedVar),
    /// The address of the CTA's dynamic shared memory.
    DynamicShared,
    /// One operand.
    Unary(Unary),
    /// Two operands.
    Binary(Binary),
    /// The double-width product of two 32-bit integers; the instruction's type is the operands'.
    MulWide,
    /// `a * b + c`: fused with one rounding for floats, the low half for integers.
    MulAdd,
    /// A comparison; the instruction's type is the operands'.
    Compare(Compare),
    /// `p ? a : b`, operands p, a, b.
    Select,
    /// A value conversion from the operand's type to the instruction's.
    Convert {
        /// Rounding, where the result may be inexact.
        rounding: Rounding,
        /// Clamp to the result's range instead of wrapping (floats: to [0, 1]).
        saturate: bool,
    },
    /// The same bits as another type of the same width.
    Bitcast,
    /// Any bitwise function of three u32 by its truth table.
    Lop3(u8),
    /// Byte permutation of the pair (a, b) by the selector c (u32).
    Prmt,
    /// The bit field of `a` from position b, c bits long (b, c u32).
    BitField,
    /// `a` with the low bits of the field in place of its own from position c, d bits long; operands field, a, c, d
    /// (c, d u32).
    BitInsert,
    /// The position of the c-th set bit of the word `a` from bit b upwards, downwards if c is negative; all ones if
    /// there is none. Operands a, b (u32) and c (i32).
    NthSetBit,
    /// Funnel shift: the upper (left) or lower (right) 32 bits of (high:low) shifted by c & 31; operands low,
    /// high, amount (u32).
    Funnel {
        /// Shift left, else right.
        left: bool,
    },
    /// `c + sum a_i * b_i` over four bytes; `a` and `b` are u32 holding bytes of the signedness given; c and the
    /// result are the instruction's type (u32 or i32).
    Dp4a {
        /// The bytes of `a` are signed.
        a_signed: bool,
        /// The bytes of `b` are signed.
        b_signed: bool,
    },
    /// `c + sum a_i * b_(i + 2 high)` over the two halves of `a` and two bytes of `b`.
    Dp2a {
        /// The halves of `a` are signed.
        a_signed: bool,
        /// The bytes of `b` are signed.
        b_signed: bool,
        /// Use the upper two bytes of `b`, else the lower two.
        high: bool,
    },
    /// Two values as the low and high half of one twice as wide: (f16, f16) → f16x2, (bf16, bf16) → bf16x2,
    /// (u16, u16) → u32, (u32, u32) → u64.
    Pack,
    /// Two f32, rounded to nearest, as the low and high half of the instruction's type.
    ConvertPack,
    /// The low and the high half: the inverse of `pack`; the instruction's type is the halves'.
    Unpack,
    /// A pointer (the instruction's type) plus a byte offset (u32, i32, u64 or i64).
    PtrAdd,
    /// A load of `vector` elements of the instruction's type.
    Load(Access),
    /// A store: operands pointer, then `vector` elements of the instruction's type.
    Store(Access),
    /// An atomic on the element at the pointer plus offset: operands pointer, value(s).
    Atomic {
        /// The operation.
        op: Atomic,
        /// The threads it is atomic among, and its order.
        ordering: Ordering,
        /// Constant byte offset.
        offset: i32,
    },
    /// A CTA barrier among `threads` threads (0: all of the CTA).
    Barrier {
        /// The barrier's number, 0 to 15.
        id: u8,
        /// How many threads take part; 0 for all.
        threads: u32,
    },
    /// Arrives at a CTA barrier among `threads` threads without waiting at it.
    BarrierArrive {
        /// The barrier's number, 0 to 15.
        id: u8,
        /// How many threads take part, those that wait included.
        threads: u32,
    },
    /// A barrier among the lanes of the mask operand.
    WarpBarrier,
    /// Makes earlier writes visible in the scope before later ones.
    Fence(Scope),
    /// The same, and all such fences are in one order that all threads agree on.
    SequentialFence(Scope),
    /// Orders what one purpose needs ordered.
    FenceFor(FenceFor),
    /// The address in another CTA of the cluster that corresponds to one in this: operands address, rank (u32).
    MapShared,
    /// A part of the barrier among all threads of the cluster.
    ClusterBarrier(ClusterBarrier),
    /// An operation on a barrier in shared memory.
    Mbarrier(Mbarrier),
    /// A copy or prefetch that the thread does not wait for, or a wait for such.
    Transfer(Transfer),
    /// A policy (u64) by which the second level evicts the lines of the accesses that name it.
    CachePolicy(Eviction),
    /// A load of 1, 2 or 4 matrices of 8 rows of 16 bytes from shared memory by the whole warp, which must be converged;
    /// lane i gives the address of row i mod 8 of matrix i / 8. A result holds, of its matrix, the lane's four bytes: those
    /// at 4·(lane mod 4) of row lane / 4, as u32.
    LoadMatrix {
        /// How many: the number of results.
        matrices: u8,
        /// Exchanges the rows and columns of the matrices' 16-bit elements.
        transposed: bool,
    },
    /// A product of matrices by the whole warp, which must be converged.
    Mma(Mma),
    /// A value from another lane: operands value, lane/delta/mask, clamp, member mask (u32).
    Shuffle(Shuffle),
    /// A vote: operands predicate, member mask.
    Vote(Vote),
    /// Which lanes hold the same value: operands value, member mask; a bit a lane as u32, and of `all` whether all do.
    Match(Match),
    /// A reduction over the lanes of a warp: operands value, member mask.
    Reduce(Reduce),
    /// True in one lane of the member mask, the same each time.
    Elect,
    /// Lets the thread sleep for about as many nanoseconds as the operand (u32) says.
    Sleep,
    /// Waits until the kernels before this one in programmatic order have finished and flushed.
    WaitForDependencies,
    /// Lets the kernels after this one in programmatic order start.
    LaunchDependents,
    /// To a block with arguments.
    Jump,
    /// To one of two blocks by a predicate.
    Branch,
    /// Ends the thread.
    Return,
}

impl Op {
    /// Ends a block.
    pub fn is_terminator(self) -> bool {
        matches!(self, Op::Jump | Op::Branch | Op::Return)
    }

    /// Has an effect besides its results, or depends on when it runs; never removed, merged or moved.
    pub fn has_effect(self) -> bool {
        match self {
            Op::Load(access) => access.cache == Cache::Volatile || access.ordering.is_some(),
            Op::Special(special) => special.is_volatile(),
            Op::Store(_)
            | Op::Atomic { .. }
            | Op::Barrier { .. }
            | Op::BarrierArrive { .. }
            | Op::WarpBarrier
            | Op::Fence(_)
            | Op::SequentialFence(_)
            | Op::FenceFor(_)
            | Op::ClusterBarrier(_)
            | Op::Mbarrier(_)
            | Op::Transfer(_)
            | Op::Shuffle(_)
            | Op::Vote(_)
            | Op::Match(_)
            | Op::Reduce(_)
            | Op::Elect
            | Op::Sleep
            | Op::WaitForDependencies
            | Op::LaunchDependents => true,
            op => op.is_terminator(),
        }
    }

    /// Computes its results from its operands alone, so that equal instructions may be merged.
    pub fn is_pure(self) -> bool {
        !self.has_effect() && !matches!(self, Op::Load(_) | Op::LoadMatrix { .. })
    }

    /// Every lane of the warp has to run it together, so that it stays under the conditions it is under.
    pub fn is_convergent(self) -> bool {
        matches!(
            self,
            Op::Mma(_)
                | Op::LoadMatrix { .. }
                | Op::Shuffle(_)
                | Op::Vote(_)
                | Op::Match(_)
                | Op::Reduce(_)
                | Op::Elect
                | Op::Barrier { .. }
                | Op::BarrierArrive { .. }
        )
    }

    /// Computes its results from its operands alone and may do so at another place, also in vain.
    pub fn is_movable(self) -> bool {
        self.is_pure() && !self.is_convergent()
    }

    /// Exchanging the first two operands changes nothing.
    pub fn is_commutative(self) -> bool {
        match self {
            Op::Binary(binary) => !matches!(
                binary,
                Binary::Sub | Binary::Div | Binary::DivApprox | Binary::Rem | Binary::Shl | Binary::Shr
            ),
            Op::Compare(compare) => matches!(compare, Compare::Eq | Compare::Ne),
            op => matches!(op, Op::MulWide | Op::MulAdd),
        }
    }

    /// Whether the instruction's type means anything; it is `Type::U32` where it does not.
    pub fn is_typed(self) -> bool {
        !self.is_terminator()
            && !matches!(
                self,
                Op::Barrier { .. }
                    | Op::BarrierArrive { .. }
                    | Op::WarpBarrier
                    | Op::Fence(_)
                    | Op::SequentialFence(_)
                    | Op::FenceFor(_)
                    | Op::ClusterBarrier(_)
                    | Op::Mbarrier(_)
                    | Op::Transfer(_)
                    | Op::LoadMatrix { .. }
                    | Op::Elect
                    | Op::Sleep
                    | Op::WaitForDependencies
                    | Op::LaunchDependents
            )
    }

    /// The constant byte offset from the pointer, which is the first operand, if this accesses memory.
    pub fn offset(self) -> Option<i32> {
        match self {
            Op::Load(access) | Op::Store(access) => Some(access.offset),
            Op::Atomic { offset, .. } => Some(offset),
            _ => None,
        }
    }

    /// The same access of memory at another offset; any other operation as it is.
    pub fn with_offset(self, offset: i32) -> Op {
        match self {
            Op::Load(access) => Op::Load(Access { offset, ..access }),
            Op::Store(access) => Op::Store(Access { offset, ..access }),
            Op::Atomic { op, ordering, .. } => Op::Atomic { op, ordering, offset },
            op => op,
        }
    }
}
