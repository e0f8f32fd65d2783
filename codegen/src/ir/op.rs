//! Operations and the rule that gives their operand and result types.

use super::entities::SharedVar;
use super::names::named_enum;
use super::types::{Special, Type};

named_enum! {
    /// Operations of one operand; the result has the operand's type unless said otherwise.
    pub enum Unary {
        /// Arithmetic negation.
        Neg = "neg",
        /// Bitwise complement; logical on predicates.
        Not = "not",
        /// Absolute value.
        Abs = "abs",
        /// Number of one bits, as u32.
        Popc = "popc",
        /// Number of leading zero bits, as u32.
        Clz = "clz",
        /// Bits in reverse order.
        Brev = "brev",
        /// Reciprocal, correctly rounded.
        Rcp = "rcp",
        /// Reciprocal, approximate (1 ulp).
        RcpApprox = "rcp_approx",
        /// Square root, correctly rounded.
        Sqrt = "sqrt",
        /// Square root, approximate.
        SqrtApprox = "sqrt_approx",
        /// Reciprocal square root, approximate (about 2^-22.9 relative).
        Rsqrt = "rsqrt",
        /// 2^x, approximate (about 2 ulp).
        Exp2 = "exp2",
        /// log2 x, approximate (2^-22 relative).
        Log2 = "log2",
        /// sin x, approximate (2^-20.5 absolute in [-pi, pi]).
        Sin = "sin",
        /// cos x, approximate (2^-20.5 absolute in [-pi, pi]).
        Cos = "cos",
        /// tanh x, approximate (2^-11 relative).
        Tanh = "tanh",
    }
}

named_enum! {
    /// Operations of two operands of one type; the result has that type.
    pub enum Binary {
        /// Sum; wraps for integers.
        Add = "add",
        /// Difference; wraps for integers.
        Sub = "sub",
        /// Product; the low half for integers.
        Mul = "mul",
        /// The high half of an integer product.
        MulHi = "mul_hi",
        /// Quotient: truncating for integers, correctly rounded for floats.
        Div = "div",
        /// Quotient of floats, approximate (2 ulp for moderate divisors).
        DivApprox = "div_approx",
        /// Remainder of a truncating division.
        Rem = "rem",
        /// The smaller; a NaN operand loses.
        Min = "min",
        /// The larger; a NaN operand loses.
        Max = "max",
        /// Bitwise and; logical on predicates.
        And = "and",
        /// Bitwise or; logical on predicates.
        Or = "or",
        /// Exclusive or.
        Xor = "xor",
        /// Left shift; the amount (second operand, u32) clamps at the width.
        Shl = "shl",
        /// Right shift, arithmetic for signed types; the amount (u32) clamps at the width.
        Shr = "shr",
    }
}

named_enum! {
    /// Comparisons; the result is a predicate. Ordered for floats except `ne`, which is true of a NaN.
    pub enum Compare {
        /// Equal.
        Eq = "eq",
        /// Not equal.
        Ne = "ne",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Le = "le",
        /// Greater.
        Gt = "gt",
        /// Greater or equal.
        Ge = "ge",
    }
}

impl Compare {
    /// The comparison that holds of (b, a) whenever this one holds of (a, b).
    pub fn swapped(self) -> Compare {
        match self {
            Compare::Lt => Compare::Gt,
            Compare::Le => Compare::Ge,
            Compare::Gt => Compare::Lt,
            Compare::Ge => Compare::Le,
            same => same,
        }
    }

    /// The comparison that holds whenever this one does not, for numbers that are not NaN.
    pub fn inverted(self) -> Compare {
        match self {
            Compare::Eq => Compare::Ne,
            Compare::Ne => Compare::Eq,
            Compare::Lt => Compare::Ge,
            Compare::Le => Compare::Gt,
            Compare::Gt => Compare::Le,
            Compare::Ge => Compare::Lt,
        }
    }
}

named_enum! {
    /// How a conversion rounds when the result cannot hold the operand exactly.
    pub enum Rounding {
        /// To nearest, ties to even.
        Nearest = "rn",
        /// Towards zero.
        Zero = "rz",
        /// Towards minus infinity.
        Down = "rm",
        /// Towards plus infinity.
        Up = "rp",
    }
}

named_enum! {
    /// Where a load looks and what a line's chance to stay in a cache is.
    pub enum Cache {
        /// The default: all levels.
        Default = "default",
        /// Second level only; sees what other multiprocessors wrote (`.cg`).
        L2 = "cg",
        /// Read once, evict first (`.cs`).
        Streaming = "cs",
        /// Through the read-only path; the memory must not change while the kernel runs (`.nc`).
        ReadOnly = "nc",
        /// Read-only, and leaving no line in the first level (`.nc` with `.L1::no_allocate`).
        ReadOnlyStreaming = "nc_stream",
        /// Neither reordered nor removed, seen by the whole system (`.volatile`).
        Volatile = "volatile",
    }
}

named_enum! {
    /// Atomic read-modify-write operations; the result is the old value.
    pub enum Atomic {
        /// Add.
        Add = "add",
        /// Smaller.
        Min = "min",
        /// Larger.
        Max = "max",
        /// And.
        And = "and",
        /// Or.
        Or = "or",
        /// Exclusive or.
        Xor = "xor",
        /// Exchange.
        Exch = "exch",
        /// Compare and swap: operands compare, then new.
        Cas = "cas",
    }
}

named_enum! {
    /// The threads among which an atomic or a fence holds.
    pub enum Scope {
        /// The CTA.
        Cta = "cta",
        /// The device.
        Gpu = "gpu",
        /// The whole system, host included.
        Sys = "sys",
    }
}

named_enum! {
    /// Which lane a shuffle reads.
    pub enum Shuffle {
        /// The lane named by the operand.
        Idx = "idx",
        /// The lane as far below.
        Up = "up",
        /// The lane as far above.
        Down = "down",
        /// The lane whose index differs in these bits.
        Bfly = "bfly",
    }
}

named_enum! {
    /// What a vote over the warp's predicates gives.
    pub enum Vote {
        /// True in every lane.
        All = "all",
        /// True in some lane.
        Any = "any",
        /// A bit a lane, as u32.
        Ballot = "ballot",
    }
}

/// A memory access: `vector` consecutive elements at the pointer operand plus `offset` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Elements accessed: 1, 2 or 4.
    pub vector: u8,
    /// Constant byte offset from the pointer operand.
    pub offset: i32,
    /// Caching.
    pub cache: Cache,
}

impl Access {
    /// One element at the pointer, default caching.
    pub const SCALAR: Access = Access { vector: 1, offset: 0, cache: Cache::Default };
}

/// What an instruction does. With the instruction's type this determines operands and results: see
/// [`Op::signature`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant, as raw bits in the low end.
    Const(u64),
    /// The kernel's parameter of this index.
    Param(u32),
    /// A special register (u32).
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
    /// Two values as the low and high half of one twice as wide: (f16, f16) → f16x2, (u16, u16) → u32,
    /// (u32, u32) → u64.
    Pack,
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
        /// The threads it is atomic among.
        scope: Scope,
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
    /// A barrier among the lanes of the mask operand.
    WarpBarrier,
    /// Makes earlier writes visible in the scope before later ones.
    Fence(Scope),
    /// A value from another lane: operands value, lane/delta/mask, clamp, member mask (u32).
    Shuffle(Shuffle),
    /// A vote: operands predicate, member mask.
    Vote(Vote),
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

/// What an operand must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Exactly this type.
    Is(Type),
    /// Any pointer.
    Pointer,
    /// Any type that a register can hold except a predicate.
    Data,
    /// u32, i32, u64 or i64.
    Offset,
}

impl Op {
    /// Ends a block.
    pub fn is_terminator(self) -> bool {
        matches!(self, Op::Jump | Op::Branch | Op::Return)
    }

    /// Has an effect besides its results, or depends on when it runs; never removed, merged or moved.
    pub fn has_effect(self) -> bool {
        match self {
            Op::Load(access) => access.cache == Cache::Volatile,
            Op::Special(special) => special.is_volatile(),
            Op::Store(_)
            | Op::Atomic { .. }
            | Op::Barrier { .. }
            | Op::WarpBarrier
            | Op::Fence(_)
            | Op::Shuffle(_)
            | Op::Vote(_)
            | Op::WaitForDependencies
            | Op::LaunchDependents => true,
            op => op.is_terminator(),
        }
    }

    /// Computes its results from its operands alone, so that equal instructions may be merged.
    pub fn is_pure(self) -> bool {
        !self.has_effect() && !matches!(self, Op::Load(_))
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
                    | Op::WarpBarrier
                    | Op::Fence(_)
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
            Op::Atomic { op, scope, .. } => Op::Atomic { op, scope, offset },
            op => op,
        }
    }

    /// The operands expected and the results given by this operation at type `ty`, or why there is no such
    /// instruction.
    pub fn signature(self, ty: Type) -> Result<(Vec<Expect>, Vec<Type>), String> {
        use Expect::{Data, Is, Offset, Pointer};
        let same = |n: usize| vec![Is(ty); n];
        let require = |ok: bool, what: &str| {
            if ok { Ok(()) } else { Err(format!("{self:?} needs {what}, not {ty}")) }
        };
        Ok(match self {
            Op::Const(bits) => {
                require(!ty.is_pointer(), "a scalar type")?;
                if ty.bits() < 64 && bits >> ty.bits() != 0 {
                    return Err(format!("constant {bits:#x} does not fit {ty}"));
                }
                (vec![], vec![ty])
            }
            Op::Param(_) => {
                require(!matches!(ty, Type::Pred | Type::Shared), "a parameter type")?;
                (vec![], vec![ty])
            }
            Op::Special(_) => {
                require(ty == Type::U32, "u32")?;
                (vec![], vec![ty])
            }
            Op::SharedAddress(_) | Op::DynamicShared => {
                require(ty == Type::Shared, "shared")?;
                (vec![], vec![ty])
            }
            Op::Unary(unary) => {
                let word = ty.is_int() && ty.bits() >= 32;
                match unary {
                    Unary::Neg => require(ty.is_int() || ty.is_float(), "a number")?,
                    Unary::Not => require(ty.is_int() || ty == Type::Pred, "an integer or predicate")?,
                    Unary::Abs => require(ty.is_signed() || ty.is_float(), "a signed number")?,
                    Unary::Popc | Unary::Clz => {
                        require(word, "a 32- or 64-bit integer")?;
                        return Ok((same(1), vec![Type::U32]));
                    }
                    Unary::Brev => require(word, "a 32- or 64-bit integer")?,
                    Unary::Tanh => {
                        require(matches!(ty, Type::F32 | Type::F16 | Type::F16x2), "f32, f16 or f16x2")?
                    }
                    Unary::Exp2 => {
                        require(matches!(ty, Type::F32 | Type::F16 | Type::F16x2), "f32, f16 or f16x2")?
                    }
                    _ => require(ty == Type::F32, "f32")?,
                }
                (same(1), vec![ty])
            }
            Op::Binary(binary) => {
                match binary {
                    Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max => {
                        require(ty.is_int() || ty.is_float(), "a number")?;
                    }
                    Binary::Div => require(ty.is_int() || ty == Type::F32, "an integer or f32")?,
                    Binary::DivApprox => require(ty == Type::F32, "f32")?,
                    Binary::Rem => require(ty.is_int(), "an integer")?,
                    Binary::MulHi => {
                        require(ty.is_int() && ty.bits() >= 16, "an integer of 16 bits or more")?
                    }
                    Binary::And | Binary::Or | Binary::Xor => {
                        require(ty.is_int() || ty == Type::Pred, "an integer or predicate")?;
                    }
                    Binary::Shl | Binary::Shr => {
                        require(ty.is_int(), "an integer")?;
                        return Ok((vec![Is(ty), Is(Type::U32)], vec![ty]));
                    }
                }
                (same(2), vec![ty])
            }
            Op::MulWide => {
                let wide = match ty {
                    Type::U32 => Type::U64,
                    Type::I32 => Type::I64,
                    _ => return Err(format!("mul_wide needs u32 or i32, not {ty}")),
                };
                (same(2), vec![wide])
            }
            Op::MulAdd => {
                require(
                    ty.is_float() || (ty.is_int() && ty.bits() >= 32),
                    "a float or a 32- or 64-bit integer",
                )?;
                (same(3), vec![ty])
            }
            Op::Compare(_) => {
                require(ty.is_int() || matches!(ty, Type::F16 | Type::Bf16 | Type::F32), "a scalar number")?;
                (same(2), vec![Type::Pred])
            }
            Op::Select => (vec![Is(Type::Pred), Is(ty), Is(ty)], vec![ty]),
            Op::Convert { .. } => {
                require(ty.is_int() || (ty.is_float() && ty != Type::F16x2), "a scalar number")?;
                (vec![Data], vec![ty])
            }
            Op::Bitcast => (vec![Data], vec![ty]),
            Op::Lop3(_) | Op::Prmt => {
                require(ty == Type::U32, "u32")?;
                (same(3), vec![ty])
            }
            Op::BitField => {
                require(ty.is_int() && ty.bits() >= 32, "a 32- or 64-bit integer")?;
                (vec![Is(ty), Is(Type::U32), Is(Type::U32)], vec![ty])
            }
            Op::Funnel { .. } => {
                require(ty == Type::U32, "u32")?;
                (same(3), vec![ty])
            }
            Op::Dp4a { .. } | Op::Dp2a { .. } => {
                require(matches!(ty, Type::U32 | Type::I32), "u32 or i32")?;
                (vec![Is(Type::U32), Is(Type::U32), Is(ty)], vec![ty])
            }
            Op::Pack => {
                let half = match ty {
                    Type::F16x2 => Type::F16,
                    Type::U32 => Type::U16,
                    Type::U64 => Type::U32,
                    _ => return Err(format!("pack needs f16x2, u32 or u64, not {ty}")),
                };
                (vec![Is(half); 2], vec![ty])
            }
            Op::Unpack => {
                let whole = match ty {
                    Type::F16 => Type::F16x2,
                    Type::U16 => Type::U32,
                    Type::U32 => Type::U64,
                    _ => return Err(format!("unpack needs f16, u16 or u32, not {ty}")),
                };
                (vec![Is(whole)], vec![ty; 2])
            }
            Op::PtrAdd => {
                require(ty.is_pointer(), "a pointer")?;
                (vec![Is(ty), Offset], vec![ty])
            }
            Op::Load(access) | Op::Store(access) => {
                require(!ty.is_pointer() && ty != Type::Pred, "a scalar element")?;
                let n = usize::from(access.vector);
                if !matches!(n, 1 | 2 | 4) || n as u32 * ty.bytes() > 16 {
                    return Err(format!("no access of {n} elements of {ty}"));
                }
                if matches!(self, Op::Load(_)) {
                    (vec![Pointer], vec![ty; n])
                } else {
                    if matches!(access.cache, Cache::ReadOnly | Cache::ReadOnlyStreaming) {
                        return Err("a store cannot be read-only".into());
                    }
                    ([vec![Pointer], same(n)].concat(), vec![])
                }
            }
            Op::Atomic { op, .. } => {
                let word = ty.is_int() && ty.bits() >= 32;
                match op {
                    Atomic::Add => require(word || ty == Type::F32, "a 32- or 64-bit number")?,
                    _ => require(word, "a 32- or 64-bit integer")?,
                }
                let n = if op == Atomic::Cas { 2 } else { 1 };
                ([vec![Pointer], same(n)].concat(), vec![ty])
            }
            Op::Barrier { id, threads } => {
                if id > 15 || threads % 32 != 0 {
                    return Err(format!("no barrier {id} of {threads} threads"));
                }
                (vec![], vec![])
            }
            Op::WarpBarrier => (vec![Is(Type::U32)], vec![]),
            Op::Shuffle(_) => {
                require(ty.bits() == 32 && !ty.is_pointer(), "a 32-bit type")?;
                (vec![Is(ty), Is(Type::U32), Is(Type::U32), Is(Type::U32)], vec![ty])
            }
            Op::Vote(vote) => {
                let result = if vote == Vote::Ballot { Type::U32 } else { Type::Pred };
                require(ty == result, result.name())?;
                (vec![Is(Type::Pred), Is(Type::U32)], vec![result])
            }
            Op::Branch => (vec![Is(Type::Pred)], vec![]),
            Op::Fence(_) | Op::WaitForDependencies | Op::LaunchDependents | Op::Jump | Op::Return => {
                (vec![], vec![])
            }
        })
    }
}
