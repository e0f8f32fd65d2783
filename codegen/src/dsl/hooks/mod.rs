//! The functions and types that `#[kernel]` and `#[device]` expand to.
//!
//! Not for direct use, except [`range()`]. Compile-time and run-time control flow expand to the same calls; the types
//! of conditions and iterators choose the implementation. A *slot* is a mutable Rust variable that a region may assign.
//! A slot that holds handles becomes block parameters; any other slot must leave a run-time region unchanged.

mod branch;
mod call;
mod compare;
mod condition;
mod expected_type;
mod for_loops;
mod frame;
mod logic;
mod loops;
mod merge;
mod range;
mod repeated;
mod side;
mod slot;
mod static_only;

pub use super::kernel_param::{
    KernelParam, PointerParam, TensorParam, aligned_parameter, parameter, tiled_parameter,
};
pub use super::parameters::{CompileTime, KernelFunction, compile_time, parameters};
pub use super::record::{CtaSize, KernelOptions, record_kernel};
pub use branch::{DynIf, StaticIf};
pub use call::{call, call_parameters, call_results, returned};
pub use compare::{CompareDyn, CompareStatic, Pair, RuntimeLeft};
pub use condition::{
    CheckedCondition, Condition, ConditionIf, ConditionType, ConditionWhile, ImpossibleWhile, NoIf, NoWhile,
    condition, condition_type,
};
pub use expected_type::{
    HandleIn, NoExpectation, OtherIn, PointerExpectation, PointerIs, SameElement, SameScalar, SameSpace,
    TypedPlace, TypesOf, ValueExpectation, ValueIs, no_values, of_type,
};
pub use for_loops::{DynFor, ForDyn, ForOf, ForStatic, Iterated, StaticFor};
pub use frame::{Frame, InlinedScope, enter_device};
pub use logic::{DynLogic, Operand, StaticLogic, begin_and, begin_or};
pub use loops::{DynLoop, StaticWhile, begin_loop};
pub use range::{
    DynRange, InclusiveRangeEnd, LiteralInclusiveRangeEnd, LiteralRangeEnd, RangeEnd, Unrollable, range,
    range_from_literal, range_inclusive, range_inclusive_from_literal, unroll,
};
pub use repeated::{Repeated, RepeatedByClone, RepeatedByReference};
pub use side::{SideOf, side};
pub use slot::{Carriable, NoSlot, Slot, SlotOf, SlotOfHandles, StaticSlot};
pub use static_only::{
    ArrayIndex, Assertable, AssertionOfHandle, AssertionOperand, CastOfHandle, CastOperand, CastResult,
    CastResultOfHandle, Castable, DereferenceOfHandle, DereferenceOperand, Dereferenceable, IndexOfHandle,
    IndexOperand, LetChainCondition, LetChainOfHandle, LetChainOperand, MatchOfHandle, MatchOperand,
    Matchable, MatchableValue, MatchedHandle, MatchedValue, StaticValue,
};
