//! Exchanges among threads: shuffles, votes, matches, reductions, and the barrier of a cluster.

use super::named::named_enum;
use super::rule::{BITS_32_OR_64, ONLY_PRED, ONLY_U32, PRED, Rule, T, U32, U32_OR_I32, typed};

named_enum! {
    /// Source lane of a shuffle.
    pub enum Shuffle {
        /// The lane whose index is the operand.
        Idx = "idx",
        /// The lane whose index is lower by the operand.
        Up = "up",
        /// The lane whose index is higher by the operand.
        Down = "down",
        /// The lane whose index is the reading lane's index xor the operand.
        Bfly = "bfly",
    }
}

named_enum! {
    /// Kind of vote: every lane of a warp contributes a predicate, and all lanes get the result.
    pub enum Vote {
        /// Whether the predicate is true in every lane.
        All = "all",
        /// Whether the predicate is true in any lane.
        Any = "any",
        /// The predicates of all lanes, one bit per lane, as u32.
        Ballot = "ballot",
    }
}

impl Vote {
    pub(super) fn rule(self) -> Rule {
        let types = if self == Vote::Ballot { ONLY_U32 } else { ONLY_PRED };
        typed(types, &[PRED, U32], &[T])
    }
}

named_enum! {
    /// Kind of match: every lane of a warp contributes a value.
    pub enum Match {
        /// For each lane, the mask of the lanes that hold the same value.
        Any = "any",
        /// The member mask if all its lanes hold the same value, otherwise 0; and a predicate for which of the two.
        All = "all",
    }
}

impl Match {
    pub(super) fn rule(self) -> Rule {
        let results: &[_] = if self == Match::All { &[U32, PRED] } else { &[U32] };
        typed(BITS_32_OR_64, &[T, U32], results)
    }
}

named_enum! {
    /// Reductions over the lanes of a warp.
    pub enum Reduce {
        /// Sum; wraps.
        Add = "add",
        /// Minimum.
        Min = "min",
        /// Maximum.
        Max = "max",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
    }
}

impl Reduce {
    /// Whether the reduction is bitwise.
    pub fn is_bitwise(self) -> bool {
        matches!(self, Reduce::And | Reduce::Or | Reduce::Xor)
    }

    pub(super) fn rule(self) -> Rule {
        typed(if self.is_bitwise() { ONLY_U32 } else { U32_OR_I32 }, &[T, U32], &[T])
    }
}

named_enum! {
    /// The two halves of the barrier among all threads of a cluster: arrival and wait.
    pub enum ClusterBarrier {
        /// Arrives; the thread's earlier writes are visible to threads after they wait.
        Arrive = "arrive",
        /// Waits until all threads of the cluster have arrived.
        Wait = "wait",
    }
}

impl ClusterBarrier {
    /// Name of the PTX instruction.
    pub(super) fn ptx(self) -> &'static str {
        match self {
            ClusterBarrier::Arrive => "barrier.cluster.arrive",
            ClusterBarrier::Wait => "barrier.cluster.wait",
        }
    }
}
