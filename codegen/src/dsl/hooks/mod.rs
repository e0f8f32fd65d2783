//! What `#[kernel]` and `#[device]` expand to.
//!
//! Not for direct use, but for [`range`]. Static and run-time control flow expand alike; the types of conditions
//! and iterators decide which of the hooks' implementations runs. A *slot* is a mutable Rust variable that a
//! region may assign: one that holds handles becomes block parameters, one that does not must come out of a
//! run-time region as it went in.

mod branch;
mod compare;
mod ends;
mod exit;
mod frame;
mod given;
mod logic;
mod loops;
mod methods;
mod slot;
mod staged;

pub use super::record::{
    KernelOptions, KernelParam, PointerParam, aligned_parameter, parameter, record_kernel,
};
pub use branch::{AnyIf, Asked, Condition, ConditionIf, DynIf, StaticIf, condition};
pub use compare::{CompareDyn, CompareStatic, Pair, RuntimeLeft};
pub use ends::{EndDyn, EndsOf, IteratedRange, StartDyn};
pub use frame::{Frame, InlinedScope, enter_device};
pub use given::{
    FragmentFor, FragmentGiven, GivenHandle, GivenLoaded, GivenMade, GivenPlace, GivenPlain, Of, Plain,
    PlainPlace, PointerFor, PointerGiven, SameElement, SameKind, SameScalar, SameSpace, ValueFor, ValueGiven,
    as_wanted, no_values, wanted_after,
};
pub use logic::{DynLogic, Operand, StaticLogic, begin_and, begin_or};
pub use loops::{
    AnyWhile, AskedType, ConditionWhile, DynFor, DynLoop, DynRange, ForDyn, ForOf, ForStatic,
    InclusiveRangeEnd, Iterated, LiteralInclusiveRangeEnd, LiteralRangeEnd, NoWhile, RangeEnd, StaticFor,
    StaticWhile, begin_loop, condition_type, range, range_from_literal, range_inclusive,
    range_inclusive_from_literal,
};
pub use methods::{AtomicElement, HasFunctions, InBlock, NoFunctions, NotOfPointer};
pub use slot::{Kept, Slot, SlotOf, ViaCarry, ViaNothing, ViaStatic};
pub use staged::{
    ArrayIndex, AssertDyn, AssertOf, Assertable, CastDyn, CastOf, CastResult, CastResultDyn, Castable,
    Chained, ChainedDyn, ChainedOf, DerefDyn, DerefOf, Dereferenced, IndexDyn, IndexOf, KnownNow, MatchDyn,
    MatchOf, Matchable, PointedOf,
};
