//! Unrolling of counted loops by a factor, with a loop for the remaining iterations.
//!
//! ```text
//!                                        v9 = sub.u32 (max.u32 v1, 3), 3
//!   jump block1(0)                       jump block4(0)
//! block1(v2: u32) unroll 4:            block4(v10: u32) unroll 1:
//!   v3 = lt.u32 v2, v1                   v11 = lt.u32 v10, v9
//!   branch v3, block2, block3      →     branch v11, block5, block1(v10)
//! block2:                              block5:
//!   …                                    … four iterations
//!   v4 = add.u32 v2, 1                   jump block4(v18)
//!   jump block1(v4)                    block1(v2: u32) unroll 1:
//!                                        … as before
//! ```
//!
//! The four iterations have one test, so ptxas may load for the later ones before it computes the earlier ones. A number
//! of iterations that is a known multiple of the factor needs no second loop.
//!
//! The header must test `counter < limit` for a limit that the loop does not change, and the loop must add a positive
//! step to the counter. A loop with `unroll N` is unrolled N times. Without a mark, a short loop of one block is unrolled
//! [`FACTOR`] times if its loads do not have to wait for earlier iterations: it reads memory and neither writes memory
//! nor waits.

use smallvec::SmallVec;

use super::{Counted, Iterations, Simple, redirect, report_kept, terminator, unroll_all};
use crate::ir::{Access, Binary, Block, BlockCall, Cache, Compare, Function, InstData, Loc, Op, Type, Value};
use crate::passes::analysis::divisibility::Divisibility;
use crate::passes::analysis::loops::Loop;
use crate::passes::analysis::{defining_block, inst_blocks};
use crate::passes::remarks::{Done, LoopKept};
use crate::passes::{Pass, Remarks};

/// The pass that unrolls by a factor; see the module.
pub struct UnrollPartially;

/// Factor of a loop without a mark.
const FACTOR: u32 = 4;
/// Maximum number of instructions, without constants, of a loop without a mark.
const MAX_SIZE: usize = 24;

impl Pass for UnrollPartially {
    fn name(&self) -> &'static str {
        "unroll_partially"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
        unroll_all::<LongLoop>(function, remarks)
    }

    fn missed(&self, function: &Function, remarks: &mut Remarks) {
        report_kept::<LongLoop>(function, remarks);
    }
}

/// A loop that counts up to a limit.
struct LongLoop {
    simple: Simple,
    factor: u32,
    /// Type of the counter.
    ty: Type,
    /// Index of the counter among the header's parameters.
    counter: usize,
    limit: Invariant,
    step: Invariant,
    /// Number of iterations, if it is known.
    trips: Option<u64>,
    /// Whether the number of iterations is a multiple of the factor, though it is not known.
    multiple: bool,
    loc: Option<Loc>,
}

/// A value that a loop does not change.
#[derive(Clone, Copy)]
enum Invariant {
    /// A constant, wherever it is defined.
    Constant(u64),
    /// A value that is defined before the loop.
    Value(Value),
}

impl Counted for LongLoop {
    fn of(function: &Function, this: &Loop) -> Result<LongLoop, LoopKept> {
        if function.block(this.header).unroll == Some(1) {
            return Err(LoopKept::Requested);
        }
        let simple = Simple::of(function, this)?;
        let factor = match function.block(simple.header).unroll {
            Some(requested) => requested,
            None => automatic(function, &simple)?,
        };
        let counted = LongLoop::with_factor(function, simple, factor).ok_or(LoopKept::NoCounter)?;
        // A loop with fewer iterations stays as it is.
        match counted.trips {
            Some(iterations) if iterations < factor.into() => {
                Err(LoopKept::FewIterations { iterations, factor })
            }
            _ => Ok(counted),
        }
    }

    fn header(&self) -> Block {
        self.simple.header
    }

    fn done(&self, function: &Function) -> Done {
        let requested = function.block(self.simple.header).unroll.is_some();
        Done::UnrolledPartially { factor: self.factor, requested, remainder: !self.leaves() }
    }

    fn unroll(&self, function: &mut Function) {
        let header = self.simple.header;
        let leaves = self.leaves();
        let limit = self.main_limit(function);
        let main = function.create_block();
        let params: Vec<Value> = function
            .block(header)
            .params
            .clone()
            .into_iter()
            .map(|param| function.append_block_param(main, function.value_type(param)))
            .collect();
        (function.block_mut(main).unroll, function.block_mut(header).unroll) = (Some(1), Some(1));
        let again =
            self.emit(function, main, Op::Compare(Compare::Lt), self.ty, &[params[self.counter], limit]);
        let to = |block: Block| BlockCall { block, args: params.clone() };
        let branch = self.inst(Op::Branch, Type::U32, &[again], vec![to(header), to(header)]);
        let branch = function.create_inst(branch, &[]);
        function.block_mut(main).insts.push(branch);
        redirect(function, self.simple.entry, header, main);

        // The copies begin at the branch's first target; the second one stays with the loop, or leaves it.
        let enters = self.edge(function, &params);
        let body = self.simple.iterations(function, self.factor as usize, false, enters);
        redirect(function, body.end, header, main);
        terminator(function, main).dests[0] = BlockCall { block: enters, args: Vec::new() };
        let mut layout = vec![main, enters];
        layout.extend(&body.layout);
        if leaves {
            let exits = self.edge(function, &params);
            let last: Iterations = self.simple.iterations(function, 0, true, exits);
            terminator(function, main).dests[1] = BlockCall { block: exits, args: Vec::new() };
            layout.push(exits);
            layout.extend(&last.layout);
            self.simple.insert_before(function, &layout);
            self.simple.remove(function, &last);
        } else {
            self.simple.insert_before(function, &layout);
        }
    }
}

impl LongLoop {
    /// The loop, if its condition compares a counter with an invariant limit.
    fn with_factor(function: &Function, simple: Simple, factor: u32) -> Option<LongLoop> {
        let branch = function.terminator(simple.header);
        let condition = function.defining_inst(*branch.args.first()?)?;
        let (&[a, b], Op::Compare(compare), true) =
            (&condition.args[..], condition.op, condition.ty.is_int() && condition.ty.bits() >= 32)
        else {
            return None;
        };
        let compare = if simple.stays == 0 { compare } else { compare.inverted() };
        let (counter, limit) = match compare {
            Compare::Lt => (a, b),
            Compare::Gt => (b, a),
            _ => return None,
        };
        let index = function.block(simple.header).params.iter().position(|&param| param == counter)?;
        let next = function.defining_inst(simple.passed(function, simple.latch, index)?)?;
        let step = match next.args[..] {
            [value, step] | [step, value] if next.op == Op::Binary(Binary::Add) && value == counter => step,
            _ => return None,
        };
        let blocks = inst_blocks(function);
        let invariant = |value: Value| match function.constant(value) {
            Some(bits) => Some(Invariant::Constant(bits)),
            None => {
                let inside = defining_block(function, &blocks, value);
                (!inside.is_some_and(|block| simple.blocks.contains(&block)))
                    .then_some(Invariant::Value(value))
            }
        };
        let ty = condition.ty;
        let (limit, step) = (invariant(limit)?, invariant(step)?);
        if matches!(step, Invariant::Constant(bits) if signed(ty, bits) <= 0 || distance(ty, bits, factor).is_none())
        {
            return None;
        }
        let start = function.constant(simple.passed(function, simple.entry, index)?);
        let trips = match (start, limit, step) {
            (Some(start), Invariant::Constant(limit), Invariant::Constant(step)) => {
                let (start, limit, step) = (signed(ty, start), signed(ty, limit), signed(ty, step));
                let trips = ((limit - start).max(0) + step - 1) / step;
                // A counter that wraps is below the limit again.
                let wraps = start + trips * step > greatest(ty).into();
                u64::try_from(trips).ok().filter(|_| !wraps)
            }
            _ => None,
        };
        // The counter then reaches the limit exactly, or starts beyond it.
        let multiple = match (start, limit, step) {
            (Some(start), Invariant::Value(limit), Invariant::Constant(step)) => {
                let all = step.checked_mul(factor.into()).filter(|all| all.is_power_of_two());
                all.is_some_and(|all| {
                    let distance =
                        Divisibility::new(function).of(limit).offset_by((start as i64).wrapping_neg());
                    all <= greatest(ty) && distance.is_multiple_of(all)
                })
            }
            _ => false,
        };
        let loc = condition.loc;
        Some(LongLoop { simple, factor, ty, counter: index, limit, step, trips, multiple, loc })
    }

    /// Whether the number of iterations is known to be a multiple of the factor, so that no second loop is needed.
    fn leaves(&self) -> bool {
        self.multiple || self.trips.is_some_and(|trips| trips.is_multiple_of(self.factor.into()))
    }

    /// A block that only jumps to the header.
    fn edge(&self, function: &mut Function, params: &[Value]) -> Block {
        let block = function.create_block();
        let dest = BlockCall { block: self.simple.header, args: params.to_vec() };
        let jump = function.create_inst(self.inst(Op::Jump, Type::U32, &[], vec![dest]), &[]);
        function.block_mut(block).insts.push(jump);
        block
    }

    /// Appends the limit of the unrolled loop to the block before the loop, and returns it. A counter below this limit
    /// is below the loop's limit in all of the next `factor` iterations. The limit is `max(limit, least + d) - d`,
    /// where d is the distance of the last of these iterations and `least` the type's least number, so that nothing
    /// wraps.
    fn main_limit(&self, function: &mut Function) -> Value {
        let (entry, ty) = (self.simple.entry, self.ty);
        let jump = function.block_mut(entry).insts.pop().expect("a verified block has a terminator");
        let least = signed_least(ty);
        let constant = |function: &mut Function, bits: u64| {
            self.emit(function, entry, Op::Const(bits & ty.mask()), ty, &[])
        };
        let limit = match self.limit {
            Invariant::Constant(bits) => constant(function, bits),
            Invariant::Value(value) => value,
        };
        let binary = |function: &mut Function, binary: Binary, a: Value, b: Value| {
            self.emit(function, entry, Op::Binary(binary), ty, &[a, b])
        };
        let limit = match self.step {
            Invariant::Constant(bits) => {
                let distance = distance(ty, bits, self.factor).expect("checked by `of`");
                let lowest = constant(function, least.wrapping_add(distance));
                let distance = constant(function, distance);
                let limit = binary(function, Binary::Max, limit, lowest);
                binary(function, Binary::Sub, limit, distance)
            }
            Invariant::Value(step) => {
                // If the step's distance would wrap, or the step is not positive, the second loop executes all
                // iterations.
                let others = u64::from(self.factor - 1);
                let factor = constant(function, others);
                let distance = binary(function, Binary::Mul, step, factor);
                let least = constant(function, least);
                let lowest = binary(function, Binary::Add, distance, least);
                let limit = binary(function, Binary::Max, limit, lowest);
                let limit = binary(function, Binary::Sub, limit, distance);
                let most = constant(function, greatest(ty) / others);
                let one = constant(function, 1);
                let exact = self.emit(function, entry, Op::Compare(Compare::Le), ty, &[step, most]);
                let forward = self.emit(function, entry, Op::Compare(Compare::Ge), ty, &[step, one]);
                let both = self.emit(function, entry, Op::Binary(Binary::And), Type::Pred, &[exact, forward]);
                self.emit(function, entry, Op::Select, ty, &[both, limit, least])
            }
        };
        function.block_mut(entry).insts.push(jump);
        limit
    }

    fn inst(&self, op: Op, ty: Type, args: &[Value], dests: Vec<BlockCall>) -> InstData {
        InstData { op, ty, args: SmallVec::from_slice(args), dests, results: SmallVec::new(), loc: self.loc }
    }

    /// Appends an instruction with one result to a block.
    fn emit(&self, function: &mut Function, block: Block, op: Op, ty: Type, args: &[Value]) -> Value {
        let result = if matches!(op, Op::Compare(_)) { Type::Pred } else { ty };
        let inst = function.create_inst(self.inst(op, ty, args, Vec::new()), &[result]);
        function.block_mut(block).insts.push(inst);
        function.inst(inst).results[0]
    }
}

/// The number with these bits.
fn signed(ty: Type, bits: u64) -> i128 {
    if ty.is_signed() { ty.sign_extend(bits).into() } else { bits.into() }
}

/// Bits of the least number of an integer type.
fn signed_least(ty: Type) -> u64 {
    if ty.is_signed() { 1 << (ty.bits() - 1) } else { 0 }
}

/// Greatest number of an integer type.
fn greatest(ty: Type) -> u64 {
    if ty.is_signed() { ty.mask() >> 1 } else { ty.mask() }
}

/// The distance of the last of `factor` iterations from the first, if it is a number of the type.
fn distance(ty: Type, step: u64, factor: u32) -> Option<u64> {
    step.checked_mul(u64::from(factor - 1)).filter(|&distance| distance <= greatest(ty))
}

/// The factor of a loop without a mark, if it should be unrolled.
fn automatic(function: &Function, simple: &Simple) -> Result<u32, LoopKept> {
    if simple.blocks.len() > 2 {
        let inner = simple.blocks.iter().filter(|&&block| block != simple.header);
        let branch = inner.map(|&block| function.terminator(block)).find(|data| data.op == Op::Branch);
        return Err(LoopKept::Branches { at: branch.and_then(|data| data.loc) });
    }
    let insts = || simple.blocks.iter().flat_map(|&block| &function.block(block).insts);
    let data = || insts().map(|&inst| function.inst(inst)).filter(|data| !data.op.is_terminator());
    if let Some(data) = data().find(|data| data.op.has_effect() || data.op.is_convergent()) {
        return Err(LoopKept::Effect { at: data.loc });
    }
    let instructions = data().filter(|data| !matches!(data.op, Op::Const(_))).count();
    if instructions > MAX_SIZE {
        return Err(LoopKept::TooLong { instructions, most: MAX_SIZE });
    }
    let loads = data().any(|data| match data.op {
        Op::Load(Access { cache, .. }) => {
            cache != Cache::Volatile && function.value_type(data.args[0]) == Type::Global
        }
        _ => false,
    });
    if loads { Ok(FACTOR) } else { Err(LoopKept::NoLoads) }
}
