//! Remarks of the passes: what a pass did at a Rust line, and what it did not do and why.
//!
//! A pass adds [`Done`] remarks while it runs. Why it leaves the rest as it is depends on the final function only, so
//! [`Pass::missed`](super::Pass::missed) is called after the pipeline, and only if somebody asks
//! ([`crate::opt_report`]).

mod text;

use serde::Serialize;

use crate::ir::{Binary, Loc, Type};

/// What a pass did or did not do, at a Rust line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Name of the pass.
    pub pass: &'static str,
    /// Location of the loop, access or instruction; none if the kernel has no locations.
    pub loc: Option<Loc>,
    /// What was done or not done.
    pub what: What,
}

/// Content of a [`Remark`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum What {
    /// The pass changed the function.
    Done(Done),
    /// The pass left something as it is.
    Missed(Missed),
}

/// A change that a pass made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Done {
    /// A loop became copies of its body.
    Unrolled {
        /// Number of iterations.
        iterations: usize,
    },
    /// A loop became a loop with several iterations a test.
    UnrolledPartially {
        /// Iterations a test.
        factor: u32,
        /// Whether the source asks for the factor (`.unroll(N)`).
        requested: bool,
        /// Whether a second loop runs the remaining iterations.
        remainder: bool,
    },
    /// Instructions that do not depend on the iteration were moved before the loop.
    Hoisted {
        /// Number of instructions, without constants.
        instructions: usize,
        /// Location of the loop.
        #[serde(skip)]
        out_of: Option<Loc>,
    },
    /// Adjacent accesses became a vector access.
    Widened {
        /// Whether the accesses are loads or stores.
        access: AccessKind,
        /// Number of elements of the vector.
        elements: u8,
        /// Type of the elements.
        #[serde(serialize_with = "displayed")]
        ty: Type,
    },
    /// A quotient or remainder by a constant became a product.
    Divided {
        /// The divisor.
        divisor: u32,
        /// Whether the remainder was computed, not the quotient.
        remainder: bool,
    },
    /// A branch became selections between values, and its instructions run on both sides.
    IfConverted {
        /// Number of selections.
        selects: usize,
    },
    /// A comparison or branch always has the same outcome.
    Decided {
        /// The outcome.
        outcome: bool,
    },
    /// A 64-bit operation was computed in 32 bits.
    Narrowed {
        /// The operation.
        #[serde(serialize_with = "displayed")]
        operation: Operation,
    },
    /// Variables of loops and branches share registers, so that they need no moves.
    SharedRegisters {
        /// Number of variables.
        variables: usize,
        /// Number of registers.
        registers: usize,
    },
}

/// Something that a pass left as it is, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Missed {
    /// A loop was not unrolled.
    Loop {
        /// The reason.
        why: LoopKept,
    },
    /// A load from the same address in each iteration was not moved before the loop.
    InvariantLoad {
        /// Location of the loop.
        #[serde(skip)]
        of: Option<Loc>,
    },
    /// Adjacent accesses were not joined.
    Adjacent {
        /// Whether the accesses are loads or stores.
        access: AccessKind,
        /// Number of adjacent accesses.
        accesses: usize,
        /// Type of the elements.
        #[serde(serialize_with = "displayed")]
        ty: Type,
        /// The reason.
        why: NotWidened,
    },
    /// A quotient or remainder was not computed as a product.
    Division {
        /// The reason.
        why: DivisionKept,
    },
    /// A branch did not become selections.
    Branch {
        /// The reason.
        why: BranchKept,
    },
}

/// Loads or stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessKind {
    /// Loads.
    Load,
    /// Stores.
    Store,
}

/// An operation that was narrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Arithmetic.
    Binary(Binary),
    /// A comparison.
    Compare,
    /// A conversion, or the extraction of half of a number.
    Convert,
}

/// Why a loop was not unrolled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum LoopKept {
    /// The source says `.unroll(1)`.
    Requested,
    /// The loop can end elsewhere than at its condition.
    SeveralExits {
        /// Location of the other end.
        #[serde(skip)]
        at: Option<Loc>,
    },
    /// Several jumps lead into the loop, or back to its start.
    SeveralEntries,
    /// The condition does not compare a counter that changes by a fixed step with a limit that the loop does not change.
    NoCounter,
    /// Start, limit or step are not constants, so that the number of iterations is unknown.
    IterationsUnknown,
    /// All iterations together have too many instructions.
    TooLarge {
        /// Instructions of an iteration.
        instructions: usize,
        /// Maximum number of instructions of all iterations.
        most: usize,
    },
    /// The loop contains branches or loops. Only a loop with a requested factor is unrolled then.
    Branches {
        /// Location of the first one.
        #[serde(skip)]
        at: Option<Loc>,
    },
    /// The loop writes memory or waits for other threads. Only a loop with a requested factor is unrolled then.
    Effect {
        /// Location of the first such instruction.
        #[serde(skip)]
        at: Option<Loc>,
    },
    /// An iteration has too many instructions for unrolling without a request.
    TooLong {
        /// Instructions of an iteration, without constants.
        instructions: usize,
        /// Maximum number.
        most: usize,
    },
    /// The loop reads no global memory, so unrolling would overlap nothing.
    NoLoads,
    /// The loop has fewer iterations than the factor.
    FewIterations {
        /// Number of iterations.
        iterations: u64,
        /// The factor.
        factor: u32,
    },
}

/// Why adjacent accesses were not joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum NotWidened {
    /// The address is not known to be sufficiently aligned.
    Alignment {
        /// Largest known alignment of the first access in bytes.
        known: u64,
        /// Alignment in bytes that a vector of two elements needs.
        needed: u64,
    },
    /// An instruction between the accesses may access the same memory, or orders them.
    Between {
        /// Location of the instruction.
        #[serde(skip)]
        at: Option<Loc>,
    },
}

/// Why a division was not computed as a product.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum DivisionKept {
    /// The divisor is not a constant.
    NotConstant,
    /// Only u32 numbers are divided by products.
    Type {
        /// Type of the numbers.
        #[serde(serialize_with = "displayed")]
        ty: Type,
    },
}

/// Why a branch did not become selections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum BranchKept {
    /// A side has an instruction that must not run unless the side is taken, such as a load or a store.
    Effect {
        /// Location of the instruction.
        #[serde(skip)]
        at: Option<Loc>,
    },
    /// A side has an instruction that takes more than a few cycles.
    Slow {
        /// Location of the instruction.
        #[serde(skip)]
        at: Option<Loc>,
    },
    /// The sides have too many instructions.
    TooLong {
        /// Number of instructions of both sides.
        instructions: usize,
        /// Maximum number.
        most: usize,
    },
    /// The branch assigns too many variables.
    TooManySelects {
        /// Number of variables.
        selects: usize,
        /// Maximum number.
        most: usize,
    },
}

/// The remarks of one run of a pass.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    list: Vec<(Option<Loc>, What)>,
}

impl Remarks {
    /// Adds a change.
    pub fn done(&mut self, loc: Option<Loc>, done: Done) {
        self.list.push((loc, What::Done(done)));
    }

    /// Adds something that was not changed.
    pub fn missed(&mut self, loc: Option<Loc>, missed: Missed) {
        self.list.push((loc, What::Missed(missed)));
    }

    /// The remarks, as remarks of the pass called `pass`.
    pub(crate) fn of(self, pass: &'static str) -> impl Iterator<Item = Remark> {
        self.list.into_iter().map(move |(loc, what)| Remark { pass, loc, what })
    }
}

fn displayed<T: std::fmt::Display, S: serde::Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
