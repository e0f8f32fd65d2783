//! Full unrolling of loops with a small constant trip count.
//!
//! ```text
//!   jump block1(0)                        jump block4
//! block1(v1: u32):                      block4:
//!   v2 = lt.u32 v1, 2                     store.u32 v0, 0
//!   branch v2, block2, block3       →     jump block5
//! block2:                               block5:
//!   store.u32 v0, v1                      store.u32 v0, 1
//!   v3 = add.u32 v1, 1                    jump block3
//!   jump block1(v3)
//! ```
//!
//! ptxas unrolls loops too, but here the constant offsets of the copies allow [`crate::passes::Widen`] to merge adjacent
//! accesses. The header must compare a counter with a constant; the counter must start at a constant and change by a
//! constant per iteration. A loop that is marked with `unroll 1` stays.

use super::{Counted, Simple, report_kept, unroll_all};
use crate::ir::{Binary, Block, Function, InstData, Op, Type, Value};
use crate::passes::analysis::loops::Loop;
use crate::passes::fold::eval::evaluate;
use crate::passes::remarks::{Done, LoopKept};
use crate::passes::{Pass, Remarks};

/// The full unrolling pass; see the module.
pub struct Unroll;

/// Maximum number of instructions of an unrolled loop.
const MAX_SIZE: usize = 256;

impl Pass for Unroll {
    fn name(&self) -> &'static str {
        "unroll"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
        unroll_all::<CompleteLoop>(function, remarks)
    }

    fn missed(&self, function: &Function, remarks: &mut Remarks) {
        report_kept::<CompleteLoop>(function, remarks);
    }
}

/// A loop with a known trip count.
struct CompleteLoop {
    simple: Simple,
    trips: usize,
}

/// A loop's counter.
struct Counter<'a> {
    /// Value in the first iteration.
    start: Value,
    /// The addition that gives the value in the next iteration.
    next: &'a InstData,
}

impl Counted for CompleteLoop {
    /// The loop with its trip count, if it can be unrolled within [`MAX_SIZE`].
    fn of(function: &Function, this: &Loop) -> Result<CompleteLoop, LoopKept> {
        let simple = Simple::of(function, this)?;
        if function.block(simple.header).unroll == Some(1) {
            return Err(LoopKept::Requested);
        }
        let most = MAX_SIZE / simple.size(function);
        let counted = CompleteLoop { simple, trips: 0 };
        let trips = counted.trips(function, most)?;
        Ok(CompleteLoop { trips, ..counted })
    }

    fn header(&self) -> Block {
        self.simple.header
    }

    fn done(&self, _: &Function) -> Done {
        Done::Unrolled { iterations: self.trips }
    }

    fn unroll(&self, function: &mut Function) {
        let copied = self.simple.iterations(function, self.trips, true, self.simple.entry);
        self.simple.insert_before(function, &copied.layout);
        self.simple.remove(function, &copied);
    }
}

impl CompleteLoop {
    /// The trip count, if it follows from constants and is at most `most`.
    fn trips(&self, function: &Function, most: usize) -> Result<usize, LoopKept> {
        let (condition, counter) = self.counter(function).ok_or(LoopKept::NoCounter)?;
        let constant = |value: Value| function.constant(value).ok_or(LoopKept::IterationsUnknown);
        let (limit, step) = (constant(condition.args[1])?, constant(counter.next.args[1])?);
        let mut count = constant(counter.start)?;
        let of = |op: Op, ty: Type, a: u64, b: u64| {
            evaluate(op, ty, &[(ty, a), (ty, b)]).map(|results| results[0]).ok_or(LoopKept::IterationsUnknown)
        };
        for trips in 0..=most {
            let holds = of(condition.op, condition.ty, count, limit)? != 0;
            if holds != (self.simple.stays == 0) {
                return Ok(trips);
            }
            count = of(counter.next.op, counter.next.ty, count, step)?;
        }
        Err(LoopKept::TooLarge { instructions: self.simple.size(function), most: MAX_SIZE })
    }

    /// The comparison at the end of the header, and the counter that is its first operand.
    fn counter<'a>(&self, function: &'a Function) -> Option<(&'a InstData, Counter<'a>)> {
        let condition = function.defining_inst(*function.terminator(self.simple.header).args.first()?)?;
        let (&[counter, _], Op::Compare(_)) = (&condition.args[..], condition.op) else { return None };
        let index = function.block(self.simple.header).params.iter().position(|&param| param == counter)?;
        let passed = |from: Block| self.simple.passed(function, from, index);
        let next = function.defining_inst(passed(self.simple.latch)?)?;
        let adds = next.op == Op::Binary(Binary::Add) && next.args[0] == counter;
        Some((condition, Counter { start: passed(self.simple.entry)?, next })).filter(|_| adds)
    }
}
