//! The opcode table.
//!
//! A row states the opcode's members with their text form, its name, and four properties: the type rule for operands
//! and results; the effect; the threads that must execute the instruction together; the lowest target. Printer, parser,
//! verifier and passes are derived from the row. A row without one of these properties does not compile.
//!
//! In type rules, `T` is the instruction's type, and `HALF` and `DOUBLE` are the types half and twice as wide; see
//! [`super::rule`]. `BASELINE` is sm_80.

use super::arithmetic::{Binary, Compare, Fact, Float8, Rounding, Unary};
use super::async_copy::{AsyncCopy, CopyFormat};
use super::call::{Callee, CalleeFormat};
use super::effect::{BASELINE, Effect, Requirement, since};
use super::entities::{LocalVar, SharedVar, TableVar};
use super::inline::{Inline, InlineFormat};
use super::matrix::{
    Mma, MmaElement, MmaFormat, WgmmaOperands, WgmmaOperandsFormat, pass_through, wgmma_rule, wgmma_sums,
};
use super::mbarrier::{Eviction, FenceFor, Mbarrier};
use super::members::*;
use super::memory::{Access, AccessFormat, Atomic, AtomicOrdering, Cache, Ordering, Scope};
use super::rule::*;
use super::table::opcodes;
use super::threads::{ClusterBarrier, Match, Reduce, Shuffle, Vote};
use super::types::{Special, Type};
use crate::target::Target::{Sm80, Sm89, Sm90};

const INDEX: Number<u32> = Number { what: "a parameter's index", examples: &[0, 1] };
const BARRIER: Number<u8> = Number { what: "a barrier's number", examples: &[0, 3] };
const SIGN_8: Choice<bool> = Choice(&[("u8", false), ("i8", true)]);
const SIGN_16: Choice<bool> = Choice(&[("u16", false), ("i16", true)]);
const SIDE: Choice<bool> = Choice(&[("right", false), ("left", true)]);
const HALVES: Choice<bool> = Choice(&[("low", false), ("high", true)]);
const COLUMNS: Number<u32> = Number { what: "a number of columns", examples: &[8, 64] };
const REGISTERS: Number<u32> = Number { what: "a number of registers", examples: &[0, 4] };
const DIRECTION: Choice<bool> = Choice(&[("decrease", false), ("increase", true)]);
const REGISTERS_PER_THREAD: Number<u32> = Number { what: "a number of registers", examples: &[24, 232] };
const GROUPS: Number<u32> = Number { what: "a number of groups", examples: &[0, 1] };
const MATRICES: Choice<u8> = Choice(&[("x1", 1), ("x2", 2), ("x4", 4)]);

opcodes! {
    /// An opcode with its members. Opcode and instruction type determine the types of operands and results: see
    /// [`Op::signature`].
    pub enum Op at ty from source {
        /// A constant: its raw bits, in the low end of the 64.
        Const(bits: u64 as Literal) = "const":
            typed(NO_POINTER, &[], &[T]).check(fits(bits, ty)); Pure; Independent; BASELINE,
        /// The parameter of this index of the kernel or function.
        Param(index: u32 as INDEX) = "param": typed(PARAMETER, &[], &[T]); Pure; Independent;
            if ty == Type::TensorMap { since("a tensor map", Sm90, (8, 0)) } else { BASELINE },
        /// A special register such as the thread index; its type is that of the register.
        Special(special: Special as Variant) = "special":
            typed(special_type(special), &[], &[T]);
            if special.is_volatile() { Volatile } else { Pure }; Independent; special_requirement(special),
        /// The address of a static shared variable.
        SharedAddress(variable: SharedVar as Variable) = "shared_address":
            typed(ONLY_SHARED, &[], &[T]); Pure; Independent; BASELINE,
        /// The address of an array in the thread's local memory.
        LocalAddress(variable: LocalVar as LocalName) = "local_address":
            typed(ONLY_LOCAL, &[], &[T]); Pure; Independent; BASELINE,
        /// The address of a table of constants.
        TableAddress(table: TableVar as TableName) = "table_address":
            typed(ONLY_CONSTANT, &[], &[T]); Pure; Independent; BASELINE,
        /// The address of the CTA's dynamic shared memory.
        DynamicShared = "dynamic_shared": typed(ONLY_SHARED, &[], &[T]); Pure; Independent; BASELINE,

        /// An arithmetic or bitwise opcode of one operand.
        Unary[unary: Unary] = each unary: unary.rule(); Pure; Independent; unary.requirement(ty),
        /// An arithmetic or bitwise opcode of two operands.
        Binary[binary: Binary] = each binary: binary.rule(); Pure; Independent; binary.requirement(ty),
        /// The double-width product of two 32-bit integers; the instruction's type is that of the operands.
        MulWide = "mul_wide": typed(U32_OR_I32, &[T, T], &[DOUBLE]); Pure; Independent; BASELINE,
        /// `a * b + c`: fused with one rounding for floats, the low half for integers.
        MulAdd = "mul_add": typed(INTEGER_32_UP_OR_FLOAT, &[T, T, T], &[T]); Pure; Independent; BASELINE,
        /// A comparison; the instruction's type is that of the operands.
        Compare[compare: Compare] = each compare: typed(SCALAR_NUMBER, &[T, T], &[PRED]); Pure; Independent;
            if ty == Type::Bf16 { since("setp.bf16", Sm90, (7, 8)) } else { BASELINE },
        /// `p ? a : b`, operands p, a, b.
        Select = "select": typed(ANY, &[PRED, T, T], &[T]); Pure; Independent; BASELINE,
        /// A value conversion from the operand's type to the instruction's.
        Convert {
            /// Rounding mode, where the result may be inexact.
            rounding: Rounding as Variant,
            /// Whether to clamp to the result's range instead of wrapping (floats: to [0, 1]).
            saturate: bool as Flag("sat"),
        } = "convert": typed(if saturate { SATURATING } else { SCALAR_NUMBER }, &[DATA], &[T]);
            Pure; Independent; convert_requirement(ty, source),
        /// Reinterprets the bits as another type of the same width.
        Bitcast = "bitcast": typed(ANY, &[DATA], &[T]); Pure; Independent; BASELINE,
        /// A bitwise function of three u32, given by its truth table.
        Lop3(table: u8 as TruthTable) = "lop3": typed(ONLY_U32, &[T, T, T], &[T]); Pure; Independent; BASELINE,
        /// Byte permutation of the pair (a, b) by the selector c: operands a, b, c.
        Prmt = "prmt": typed(ONLY_U32, &[T, T, T], &[T]); Pure; Independent; BASELINE,
        /// Extracts the bit field of `a` that starts at bit b and is c bits long: operands a, b, c.
        BitField = "bit_field": typed(INTEGER_32_UP, &[T, U32, U32], &[T]); Pure; Independent; BASELINE,
        /// Inserts the low bits of a field into `a` at bit c, d bits long: operands field, a, c, d.
        BitInsert = "bit_insert": typed(INTEGER_32_UP, &[T, T, U32, U32], &[T]); Pure; Independent; BASELINE,
        /// Position of the c-th set bit of `a` from bit b upwards, or downwards if c is negative; all ones if there is
        /// no such bit. Operands a, b, c.
        NthSetBit = "nth_set_bit": typed(ONLY_U32, &[T, U32, I32], &[T]); Pure; Independent; BASELINE,
        /// Funnel shift: the upper (left shift) or lower (right shift) 32 bits of the pair (high, low) shifted by
        /// amount & 31; operands low, high, amount.
        Funnel {
            /// Whether to shift left; otherwise right.
            left: bool as SIDE,
        } = "funnel": typed(ONLY_U32, &[T, T, T], &[T]); Pure; Independent; BASELINE,
        /// Dot product `c + sum a_i * b_i` over the four bytes of a and b (u32 each); c and the result have the
        /// instruction's type.
        Dp4a {
            /// Whether the bytes of `a` are signed.
            a_signed: bool as SIGN_8,
            /// Whether the bytes of `b` are signed.
            b_signed: bool as SIGN_8,
        } = "dp4a": typed(U32_OR_I32, &[U32, U32, T], &[T]); Pure; Independent; BASELINE,
        /// Dot product `c + sum a_i * b_(i + 2 high)` over the two 16-bit halves of `a` and two bytes of `b`.
        Dp2a {
            /// Whether the 16-bit halves of `a` are signed.
            a_signed: bool as SIGN_16,
            /// Whether the bytes of `b` are signed.
            b_signed: bool as SIGN_8,
            /// Whether to use the upper two bytes of `b`; otherwise the lower two.
            high: bool as HALVES,
        } = "dp2a": typed(U32_OR_I32, &[U32, U32, T], &[T]); Pure; Independent; BASELINE,
        /// Packs two values into the low and high half of a type twice as wide: (f16, f16) → f16x2, (bf16, bf16) →
        /// bf16x2, (u16, u16) → u32, (u32, u32) → u64.
        Pack = "pack": typed(PAIR, &[HALF, HALF], &[T]); Pure; Independent; BASELINE,
        /// Rounds two f32 to nearest and packs them into the low and high half of the instruction's type.
        ConvertPack = "convert_pack": typed(PACKED_FLOATS, &[F32, F32], &[T]); Pure; Independent; BASELINE,
        /// Rounds two floats to nearest and packs them into the low and the high byte of a u16; numbers that are too large
        /// become the largest finite number. Operands are two f32 or one f16x2, by the instruction's type.
        ConvertToFloat8(to: Float8 as Variant) = "convert_to_float8":
            typed(F32_OR_F16X2, if ty == Type::F32 { &[T, T] } else { &[T] }, &[U16]);
            Pure; Independent; float8_requirement(to),
        /// The values of the low and the high byte of a u16, floats of 8 bits.
        ConvertFromFloat8(from: Float8 as Variant) = "convert_from_float8": typed(ONLY_F16X2, &[U16], &[T]);
            Pure; Independent; float8_requirement(from),
        /// Unpacks the low and the high half, the inverse of `pack`; the instruction's type is that of a half.
        Unpack = "unpack": typed(PAIRED, &[DOUBLE], &[T, T]); Pure; Independent; BASELINE,
        /// A pointer (the instruction's type) plus a byte offset (u32, i32, u64 or i64).
        PtrAdd = "ptr_add": typed(POINTERS, &[T, OFFSET], &[T]); Pure; Independent; BASELINE,

        /// A load of `vector` elements of the instruction's type.
        Load(access: Access as AccessFormat) = "load":
            access.load(ty); access.load_effect(); Independent; load_requirement(access),
        /// A store: operands pointer, then `vector` elements of the instruction's type.
        Store(access: Access as AccessFormat) = "store":
            access.store(ty); Write; Independent; hint_requirement(access),
        /// An atomic read-modify-write of the element at pointer + offset: operands pointer, value(s).
        Atomic {
            /// The operation.
            op: Atomic as Variant,
            /// Memory order and scope.
            ordering: Ordering as AtomicOrdering,
            /// Constant byte offset from the pointer operand.
            offset: i32 as AtPointer,
        } = "atomic": atomic_rule(op); Sync; Independent; atomic_requirement(op, ty),
        /// Creates an L2 cache policy (u64), an operand of accesses with `hinted`.
        CachePolicy(eviction: Eviction as Variant) = "cache_policy":
            typed(ONLY_U64, &[], &[T]); Pure; Independent; since("createpolicy", Sm80, (7, 4)),

        /// Waits at a CTA barrier (`bar.sync`).
        Barrier {
            /// The barrier's number, 0 to 15.
            id: u8 as BARRIER,
            /// Number of participating threads; 0 for all threads of the CTA.
            threads: u32 as Threads { or_all: true },
        } = "barrier": untyped(&[], &[]).check(check_barrier(id, threads));
            Sync; Barrier { ptx: "bar.sync", id, threads, waits: true }; BASELINE,
        /// Arrives at a CTA barrier without waiting (`bar.arrive`).
        BarrierArrive {
            /// The barrier's number, 0 to 15.
            id: u8 as BARRIER,
            /// Number of participating threads, the waiting ones included.
            threads: u32 as Threads { or_all: false },
        } = "barrier_arrive": untyped(&[], &[]).check(check_arrival(id, threads));
            Sync; Barrier { ptx: "bar.arrive", id, threads, waits: false }; BASELINE,
        /// A barrier among the lanes of the mask operand.
        WarpBarrier = "warp_barrier": untyped(&[U32], &[]);
            Sync; Mask { ptx: "bar.warp.sync", operand: 0 }; BASELINE,
        /// Arrival or wait at the barrier among all threads of the cluster.
        ClusterBarrier(half: ClusterBarrier as Variant) = "cluster_barrier": untyped(&[], &[]);
            Sync; Cluster { ptx: half.ptx() }; since("barrier.cluster", Sm90, (8, 0)),
        /// Acquire-release fence at the given scope: orders earlier accesses of the thread before later ones.
        Fence(scope: Scope as Variant) = "fence": untyped(&[], &[]); Sync; Independent; BASELINE,
        /// Sequentially consistent fence: all threads observe these fences in the same order.
        SequentialFence(scope: Scope as Variant) = "sequential_fence": untyped(&[], &[]);
            Sync; Independent; BASELINE,
        /// A fence for mbarrier initialisation or for the async proxy.
        FenceFor(purpose: FenceFor as Variant) = "fence_for": purpose.rule();
            Sync; Independent; purpose.requirement(ty),
        /// Cluster address of a variable in another CTA's shared memory, from its address in this CTA: operands
        /// address, CTA rank.
        MapShared = "map_shared": typed(ONLY_CLUSTER, &[SHARED, U32], &[T]);
            Pure; Independent; since("mapa", Sm90, (7, 8)),
        /// An operation on an mbarrier, a barrier in shared memory.
        Mbarrier(operation: Mbarrier as Variant) = "mbarrier": operation.rule();
            Sync; Independent; operation.requirement(ty),
        /// An asynchronous copy or prefetch, or a wait for one.
        AsyncCopy(copy: AsyncCopy as CopyFormat) = "transfer":
            copy.rule(ty); copy.effect(); copy.convergence(); copy.requirement(ty, source),

        /// Loads 1, 2 or 4 matrices of 8 rows of 16 bytes from shared memory (`ldmatrix`), by the whole warp; the
        /// operand of lane i is the address of row i mod 8 of matrix i / 8. Each result (u32) is the lane's fragment of
        /// one matrix: the four bytes at 4·(lane mod 4) of row lane / 4.
        LoadMatrix {
            /// Number of matrices and results.
            matrices: u8 as MATRICES,
            /// Whether to transpose the matrices of 16-bit elements.
            transposed: bool as Flag("transposed"),
        } = "load_matrix": load_matrix_rule(matrices); Read; Warp { ptx: "ldmatrix.sync" }; BASELINE,
        /// Transposes an 8 × 8 matrix of 16-bit elements, by the whole warp. Operand and result are the lane's
        /// fragments, laid out as in `LoadMatrix`.
        TransposeMatrix = "transpose_matrix": untyped(&[U32], &[U32]);
            Pure; Warp { ptx: "movmatrix.sync" }; since("movmatrix", Sm80, (7, 8)),
        /// A matrix product `A·B + C`, by the whole warp.
        Mma(mma: Mma as MmaFormat) = "mma": mma.rule(ty); Pure; Warp { ptx: "mma.sync" };
            mma.requirement(ty),

        /// Orders the writes of registers before the products of a warpgroup that follow. Operands and results: `sums`
        /// registers of sums, then `words` of A.
        WgmmaFence {
            /// Registers of sums.
            sums: u32 as REGISTERS,
            /// Registers of A (u32).
            words: u32 as REGISTERS,
        } = "wgmma_fence": pass_through(sums, words);
            Sync; Warp { ptx: "wgmma.fence" }; since("wgmma.fence", Sm90, (8, 0)),
        /// Starts D = A·B + D of a warpgroup: 64 rows of 32 bytes by `columns` columns. Operands: the sums, A, and the matrix
        /// descriptor of B in shared memory. A is four registers (`Mma`'s fragment of 16 rows; warp w of the warpgroup has
        /// rows 16·w and up), or a matrix descriptor. An operand in shared memory is contiguous along K, or if it is
        /// transposed along the rows of A or the columns of B. Results: the sums, which may be read after `WgmmaWait`.
        Wgmma {
            /// Element type of A.
            a: MmaElement as Variant,
            /// Element type of B.
            b: MmaElement as Variant,
            /// Columns of B.
            columns: u32 as COLUMNS,
            /// Whether the sums start at zero: there are no operands of sums.
            from_zero: bool as Flag("from_zero"),
            /// Where A and B are.
            operands: WgmmaOperands as WgmmaOperandsFormat,
        } = "wgmma": wgmma_rule([a, b], columns, from_zero, operands, ty);
            Sync; Warp { ptx: "wgmma.mma_async" };
            since("wgmma.mma_async", Sm90, if a == b || a.sum() == Type::F32 { (8, 0) } else { (8, 4) }),
        /// Closes the current group of products: those that the thread started since its last commit.
        WgmmaCommit = "wgmma_commit": untyped(&[], &[]);
            Sync; Warp { ptx: "wgmma.commit_group" }; since("wgmma.commit_group", Sm90, (8, 0)),
        /// Waits until at most the `pending` newest groups of products are incomplete. Operands and results: `sums`
        /// registers of sums.
        WgmmaWait {
            /// Groups that may still be incomplete.
            pending: u32 as GROUPS,
            /// Registers of sums.
            sums: u32 as REGISTERS,
        } = "wgmma_wait": pass_through(sums, 0);
            Sync; Warp { ptx: "wgmma.wait_group" }; since("wgmma.wait_group", Sm90, (8, 0)),

        /// Changes the registers of each thread of a warpgroup to `count`, which all its warps do: `setmaxnreg`. An increase
        /// waits until other warps of the CTA have given registers.
        SetRegisters {
            /// Whether to take registers; otherwise to give them.
            increase: bool as DIRECTION,
            /// Registers per thread afterwards: a multiple of 8 from 24 to 256.
            count: u32 as REGISTERS_PER_THREAD,
        } = "set_registers": untyped(&[], &[]).check(check_registers(count));
            Sync; Warp { ptx: "setmaxnreg.sync" }; since("setmaxnreg", Sm90, (8, 0)),

        /// The value of another lane: operands value, lane/delta/mask, clamp, member mask.
        Shuffle(shuffle: Shuffle as Variant) = "shuffle": typed(BITS_32, &[T, U32, U32, U32], &[T]);
            Exchange; Mask { ptx: "shfl.sync", operand: 3 }; BASELINE,
        /// A vote over the lanes of a warp: operands predicate, member mask.
        Vote(vote: Vote as Variant) = "vote": vote.rule();
            Exchange; Mask { ptx: "vote.sync", operand: 1 }; BASELINE,
        /// Lanes that hold the same value: operands value, member mask. The result is a lane mask (u32), and for `all`
        /// also a predicate: whether all members hold the same value.
        Match(lanes: Match as Variant) = "match": lanes.rule();
            Exchange; Mask { ptx: "match.sync", operand: 1 }; BASELINE,
        /// A reduction over the lanes of a warp: operands value, member mask.
        Reduce(reduce: Reduce as Variant) = "reduce": reduce.rule();
            Exchange; Mask { ptx: "redux.sync", operand: 1 }; BASELINE,
        /// Elects one lane of the member mask, always the same: true in that lane only.
        Elect = "elect": untyped(&[U32], &[PRED]);
            Exchange; Mask { ptx: "elect.sync", operand: 0 }; since("elect.sync", Sm90, (8, 0)),

        /// PTX that the kernel's author wrote.
        Inline(inline: Inline as InlineFormat) = "inline": inline.rule(); inline.effect();
            if inline.text().convergent { Warp { ptx: "inline PTX" } } else { Independent };
            inline.requirement(),

        /// States that the operands `a` and `b` have this relation. If they do not, the behaviour of the kernel is
        /// undefined.
        Assume(fact: Fact as Variant) = "assume": typed(INTEGER_32_UP, &[T, T], &[]); Fact; Independent; BASELINE,

        /// Suspends the thread for about as many nanoseconds as the operand (u32) states.
        Sleep = "sleep": untyped(&[U32], &[]); Sync; Independent; BASELINE,
        /// Stops the launch with an error.
        Trap = "trap": untyped(&[], &[]); Sync; Independent; BASELINE,
        /// Prints text: a format that ends with a zero byte, and the address of the arguments, each aligned to its size.
        Print(format: TableVar as TableName) = "print": untyped(&[LOCAL], &[]); Sync; Independent; BASELINE,
        /// Waits until the kernels that this launch depends on are complete and their writes are visible. With
        /// programmatic dependent launch, a kernel may start before those kernels end.
        WaitForDependencies = "wait_for_dependencies": untyped(&[], &[]);
            Sync; Independent; since("griddepcontrol.wait", Sm90, (7, 8)),
        /// Lets the next kernels in programmatic order start.
        LaunchDependents = "launch_dependents": untyped(&[], &[]);
            Sync; Independent; since("griddepcontrol.launch_dependents", Sm90, (7, 8)),
        /// Calls a function of the kernel: operands are its parameters.
        Call(callee: Callee as CalleeFormat) = "call": callee.rule(); callee.effect(); Independent; BASELINE,
        /// Sets the result of this index of the function to the operand. Before each return, every result is set.
        Result(index: u32 as INDEX) = "result": typed(PARAMETER, &[T], &[]); Sync; Independent; BASELINE,
        /// Jumps to a block with arguments.
        Jump = "jump": untyped(&[], &[]); Control; Independent; BASELINE,
        /// Jumps to one of two blocks, selected by a predicate.
        Branch = "branch": untyped(&[PRED], &[]); Control; Independent; BASELINE,
        /// Ends the thread; in a function, returns to the caller.
        Return = "return": untyped(&[], &[]); Control; Independent; BASELINE,
    }
}

impl Op {
    /// Types of operands and results at type `ty`, or the reason why there is no such instruction.
    pub fn signature(self, ty: Type) -> Result<Signature, String> {
        self.rule(ty).signature(self.name(), ty)
    }

    /// The opcode as printed for an instruction of type `ty`, without operands: its name and members.
    pub fn text(self, ty: Type) -> String {
        format!("{} {}", self.name(), self.members(ty)).trim_end().into()
    }

    /// Whether a called function may contain the instruction. Threads may call a function while others of their warp or
    /// CTA do not, and shared memory is declared by kernels.
    pub fn is_callable(self) -> bool {
        !self.is_convergent()
            && !matches!(
                self,
                Op::SharedAddress(_) | Op::DynamicShared | Op::WaitForDependencies | Op::LaunchDependents
            )
    }

    /// Number of leading operands whose registers an instruction of type `ty` updates in place: result i is the new value of
    /// operand i.
    pub fn in_place(self, ty: Type) -> usize {
        match self {
            Op::WgmmaFence { sums, words } => (sums + words) as usize,
            Op::Wgmma { columns, from_zero, .. } => {
                if from_zero {
                    0
                } else {
                    wgmma_sums(columns, ty)
                }
            }
            Op::WgmmaWait { sums, .. } => sums as usize,
            _ => 0,
        }
    }

    /// Whether the instruction exists on devices of its lowest target's compute capability alone, not on later ones: its
    /// PTX target is `sm_90a`.
    pub fn is_architecture_specific(self) -> bool {
        matches!(
            self,
            Op::WgmmaFence { .. }
                | Op::Wgmma { .. }
                | Op::WgmmaCommit
                | Op::WgmmaWait { .. }
                | Op::SetRegisters { .. }
        )
    }

    /// Whether instructions of this opcode have a type. Otherwise the type is `Type::U32`.
    pub fn is_typed(self) -> bool {
        self.rule(Type::U32).is_typed()
    }

    /// Whether the instruction ends a block.
    pub fn is_terminator(self) -> bool {
        self.effect() == Effect::Control
    }

    /// Whether the instruction has a side effect: it is never removed, merged or moved, even if its results are unused.
    pub fn has_effect(self) -> bool {
        !matches!(self.effect(), Effect::Pure | Effect::Read | Effect::Fact)
    }

    /// Whether the results depend on the operands only, so that equal instructions may be merged.
    pub fn is_pure(self) -> bool {
        self.effect() == Effect::Pure
    }

    /// Whether several threads execute the instruction together, so that it may not be moved under other conditions.
    pub fn is_convergent(self) -> bool {
        self.convergence() != super::effect::Convergence::Independent
    }

    /// Whether the results depend on the operands only and the instruction may be executed speculatively. A call is not
    /// movable: it may take long, or not end for operands that it would not get otherwise.
    pub fn is_movable(self) -> bool {
        self.is_pure() && !self.is_convergent() && !matches!(self, Op::Call(_))
    }

    /// Whether the first two operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        match self {
            Op::Binary(binary) => matches!(
                binary,
                Binary::Add
                    | Binary::Mul
                    | Binary::MulHi
                    | Binary::Min
                    | Binary::Max
                    | Binary::And
                    | Binary::Or
                    | Binary::Xor
            ),
            Op::Compare(compare) => matches!(compare, Compare::Eq | Compare::Ne),
            op => matches!(op, Op::MulWide | Op::MulAdd),
        }
    }

    /// Constant byte offset from the pointer operand, if the opcode accesses memory at one.
    pub fn offset(self) -> Option<i32> {
        match self {
            Op::Load(access) | Op::Store(access) => Some(access.offset),
            Op::Atomic { offset, .. } => Some(offset),
            _ => None,
        }
    }

    /// The same memory access at another offset; any other opcode is returned unchanged.
    pub fn with_offset(self, offset: i32) -> Op {
        match self {
            Op::Load(access) => Op::Load(Access { offset, ..access }),
            Op::Store(access) => Op::Store(Access { offset, ..access }),
            Op::Atomic { op, ordering, .. } => Op::Atomic { op, ordering, offset },
            op => op,
        }
    }
}

// Rules and requirements that depend on an opcode's members.

fn fits(bits: u64, ty: Type) -> Result<(), String> {
    if bits & !ty.mask() == 0 { Ok(()) } else { Err(format!("constant {bits:#x} does not fit {ty}")) }
}

fn special_type(special: Special) -> TypeSet {
    if special.ty() == Type::U64 { ONLY_U64 } else { ONLY_U32 }
}

fn special_requirement(special: Special) -> Option<Requirement> {
    match special {
        Special::ClusterRank => since("%cluster_ctarank", Sm90, (7, 8)),
        Special::ClusterSize => since("%cluster_nctarank", Sm90, (7, 8)),
        _ => BASELINE,
    }
}

fn convert_requirement(ty: Type, source: Option<Type>) -> Option<Requirement> {
    match source {
        Some(from) if ty == Type::Bf16 && from.is_int() => since("cvt.bf16 from an integer", Sm90, (7, 8)),
        Some(Type::F64) if ty == Type::Bf16 => since("cvt.bf16.f64", Sm90, (7, 8)),
        _ => BASELINE,
    }
}

fn float8_requirement(format: Float8) -> Option<Requirement> {
    since(format!("cvt.{format}x2"), Sm89, (8, 1))
}

fn load_requirement(access: Access) -> Option<Requirement> {
    if access.cache == Cache::ReadOnlyStreaming && !access.hinted {
        return since("ld.L1::no_allocate", Sm80, (7, 4));
    }
    hint_requirement(access)
}

fn hint_requirement(access: Access) -> Option<Requirement> {
    if access.hinted { since("L2::cache_hint", Sm80, (7, 4)) } else { BASELINE }
}

fn atomic_rule(op: Atomic) -> Rule {
    let types = match op {
        Atomic::Add => INTEGER_32_UP_OR_FLOAT,
        Atomic::Inc | Atomic::Dec => ONLY_U32,
        Atomic::Exch => BITS_32_OR_64,
        Atomic::Cas => INTEGER_16_UP,
        _ => INTEGER_32_UP,
    };
    typed(types, if op == Atomic::Cas { &[POINTER, T, T] } else { &[POINTER, T] }, &[T])
}

fn atomic_requirement(op: Atomic, ty: Type) -> Option<Requirement> {
    let bf16 = op == Atomic::Add && matches!(ty, Type::Bf16 | Type::Bf16x2);
    if bf16 { since(format!("atom.add.noftz.{ty}"), Sm90, (7, 8)) } else { BASELINE }
}

fn check_barrier(id: u8, threads: u32) -> Result<(), String> {
    if id > 15 || !threads.is_multiple_of(32) {
        return Err(format!("no barrier {id} of {threads} threads"));
    }
    Ok(())
}

fn check_registers(count: u32) -> Result<(), String> {
    if !count.is_multiple_of(8) || !(24..=256).contains(&count) {
        return Err(format!("{count} registers per thread: write a multiple of 8 from 24 to 256"));
    }
    Ok(())
}

fn check_arrival(id: u8, threads: u32) -> Result<(), String> {
    if id > 15 || !threads.is_multiple_of(32) || threads == 0 {
        return Err(format!("no barrier {id} of {threads} threads to arrive at"));
    }
    Ok(())
}

fn load_matrix_rule(matrices: u8) -> Rule {
    let members = match matrices {
        1 | 2 | 4 => Ok(()),
        _ => Err(format!("no load of {matrices} matrices")),
    };
    untyped(&[SHARED], &vec![U32; matrices.into()]).check(members)
}
