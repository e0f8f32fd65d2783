//! What the operations of one kind choose among.

use super::names::named_enum;

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
    /// The parts of a barrier among all threads of a cluster.
    pub enum ClusterBarrier {
        /// Arrives, after what precedes it.
        Arrive = "arrive",
        /// Waits until all threads have arrived; what they wrote before is visible then.
        Wait = "wait",
    }
}

named_enum! {
    /// How an atomic or an access is ordered with the thread's other accesses.
    pub enum Order {
        /// Not at all.
        Relaxed = "relaxed",
        /// Before what follows it: sees what was written before the release that it reads from.
        Acquire = "acquire",
        /// After what precedes it.
        Release = "release",
        /// Both.
        AcqRel = "acq_rel",
    }
}

/// An order and the threads among which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ordering {
    /// The order.
    pub order: Order,
    /// The threads.
    pub scope: Scope,
}

impl Order {
    /// This order among the threads of a scope.
    pub const fn among(self, scope: Scope) -> Ordering {
        Ordering { order: self, scope }
    }
}

/// Relaxed.
impl From<Scope> for Ordering {
    fn from(scope: Scope) -> Ordering {
        Order::Relaxed.among(scope)
    }
}

impl std::fmt::Display for Ordering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.order, self.scope)
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

named_enum! {
    /// Which lanes a match compares.
    pub enum Match {
        /// For each lane, those whose value is the lane's own.
        Any = "any",
        /// All of them if they hold one value, else none; and whether they do.
        All = "all",
    }
}

named_enum! {
    /// Reductions over the lanes of a warp.
    pub enum Reduce {
        /// Sum; wraps.
        Add = "add",
        /// The smallest.
        Min = "min",
        /// The largest.
        Max = "max",
        /// And.
        And = "and",
        /// Or.
        Or = "or",
        /// Exclusive or.
        Xor = "xor",
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
    /// The last operand is a policy of the second-level cache (u64).
    pub hinted: bool,
    /// How the access is ordered with those of other threads, if they may access the element at the same time.
    pub ordering: Option<Ordering>,
}

impl Access {
    /// One element at the pointer, default caching.
    pub const SCALAR: Access =
        Access { vector: 1, offset: 0, cache: Cache::Default, hinted: false, ordering: None };
}
