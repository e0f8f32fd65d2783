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
//! ptxas unrolls loops too, but here the constant offsets of the copies allow [`super::Widen`] to merge adjacent
//! accesses. The loop's header must be its only exit and compare a counter with a constant; the counter must start at a
//! constant and change by a constant per iteration.

use std::collections::HashMap;

use super::Pass;
use super::analysis::Dominators;
use super::analysis::loops::{Loop, loops};
use super::fold::eval::evaluate;
use crate::ir::{Binary, Block, Function, InstData, Op, Type, Value};

/// The full unrolling pass; see the module.
pub struct Unroll;

/// Maximum number of instructions of an unrolled loop.
const MAX_SIZE: usize = 256;

impl Pass for Unroll {
    fn name(&self) -> &'static str {
        "unroll"
    }

    fn run(&self, function: &mut Function) -> bool {
        let mut changed = false;
        loop {
            let doms = Dominators::new(function);
            let found = loops(function, &doms);
            let Some(counted) = found.iter().find_map(|this| Counted::of(function, this)) else {
                return changed;
            };
            counted.unroll(function);
            changed = true;
        }
    }
}

/// A loop with a known trip count.
struct Counted {
    header: Block,
    /// Index, among the targets of the header's branch, of the target inside the loop.
    stays: usize,
    latch: Block,
    /// The only block outside the loop that jumps to the header.
    entry: Block,
    /// All blocks of the loop, in layout order.
    blocks: Vec<Block>,
    trips: usize,
}

impl Counted {
    /// The loop with its trip count, if it can be unrolled within [`MAX_SIZE`].
    fn of(function: &Function, this: &Loop) -> Option<Counted> {
        let inside = |block: &Block| this.blocks.contains(block);
        let preds = function.predecessors();
        let (latches, entries): (Vec<Block>, Vec<Block>) =
            preds[this.header].iter().partition(|&block| inside(block));
        let (&[latch], &[entry]) = (&latches[..], &entries[..]) else { return None };
        let leaves = |&&block: &&Block| function.successors(block).any(|next| !inside(&next));
        let blocks: Vec<Block> = function.layout.iter().copied().filter(inside).collect();
        let exits: Vec<Block> = blocks.iter().filter(leaves).copied().collect();
        if exits != [this.header] {
            return None;
        }
        let branch = function.terminator(this.header);
        let stays = branch.dests.iter().position(|dest| inside(&dest.block))?;
        let counted = Counted { header: this.header, stays, latch, entry, blocks, trips: 0 };
        let size: usize = counted.blocks.iter().map(|&block| function.block(block).insts.len()).sum();
        let trips = counted.trips(function, MAX_SIZE / size)?;
        Some(Counted { trips, ..counted })
    }

    /// The trip count, if it follows from constants and is at most `most`.
    fn trips(&self, function: &Function, most: usize) -> Option<usize> {
        let condition = function.defining_inst(*function.terminator(self.header).args.first()?)?;
        let (&[counter, limit], Op::Compare(_)) = (&condition.args[..], condition.op) else { return None };
        let index = function.block(self.header).params.iter().position(|&param| param == counter)?;
        let passed = |from: Block| {
            let mut dests = function.terminator(from).dests.iter();
            dests.find(|dest| dest.block == self.header).map(|dest| dest.args[index])
        };
        let next = function.defining_inst(passed(self.latch)?)?;
        if next.op != Op::Binary(Binary::Add) || next.args[0] != counter {
            return None;
        }
        let (limit, step) = (function.constant(limit)?, function.constant(next.args[1])?);
        let of = |op: Op, ty: Type, a: u64, b: u64| Some(evaluate(op, ty, &[(ty, a), (ty, b)])?[0]);
        let mut count = function.constant(passed(self.entry)?)?;
        for trips in 0..=most {
            let holds = of(condition.op, condition.ty, count, limit)? != 0;
            if holds != (self.stays == 0) {
                return Some(trips);
            }
            count = of(next.op, next.ty, count, step)?;
        }
        None
    }

    fn unroll(&self, function: &mut Function) {
        let mut layout = Vec::new();
        let mut values = HashMap::new();
        let mut enters = self.entry;
        for trip in 0..=self.trips {
            let is_last = trip == self.trips;
            // After the last copy of the body, only the header is executed once more.
            let blocks = if is_last { &[self.header][..] } else { &self.blocks };
            let copies = copy(function, blocks, self.header, &mut values);
            let header = copies[&self.header];
            for dest in &mut terminator(function, enters).dests {
                if dest.block == self.header {
                    dest.block = header;
                }
            }
            let branch = terminator(function, header);
            let way = if is_last { 1 - self.stays } else { self.stays };
            (branch.op, branch.dests) = (Op::Jump, vec![branch.dests.swap_remove(way)]);
            branch.args.clear();
            layout.extend(blocks.iter().map(|block| copies[block]));
            enters = copies.get(&self.latch).copied().unwrap_or(enters);
        }
        let at = function.layout.iter().position(|&block| block == self.blocks[0]).unwrap_or(0);
        function.layout.splice(at..at, layout);
        function.layout.retain(|block| !self.blocks.contains(block));
        // After the loop, uses refer to the values of the last copy of the header.
        function.rewrite_uses(|value| values.get(&value).copied().unwrap_or(value));
    }
}

fn terminator(function: &mut Function, block: Block) -> &mut InstData {
    let last = *function.block(block).insts.last().expect("a verified block has a terminator");
    function.inst_mut(last)
}

/// Copies the blocks with the edges among them; edges to the header are left to the caller. `values` maps the original
/// values to their copies.
fn copy(
    function: &mut Function,
    blocks: &[Block],
    header: Block,
    values: &mut HashMap<Value, Value>,
) -> HashMap<Block, Block> {
    values.clear();
    let mut copies = HashMap::new();
    for &block in blocks {
        let new = function.create_block();
        copies.insert(block, new);
        for param in function.block(block).params.clone() {
            let ty = function.value_type(param);
            values.insert(param, function.append_block_param(new, ty));
        }
        for inst in function.block(block).insts.clone() {
            let data = function.inst(inst).clone();
            let types: Vec<Type> = data.results.iter().map(|&result| function.value_type(result)).collect();
            let results = data.results.clone();
            let copy = function.create_inst(data, &types);
            values.extend(results.into_iter().zip(function.inst(copy).results.iter().copied()));
            function.block_mut(new).insts.push(copy);
        }
    }
    for new in copies.values() {
        for inst in function.block(*new).insts.clone() {
            let data = function.inst_mut(inst);
            let passed = data.dests.iter_mut().flat_map(|dest| &mut dest.args);
            for value in data.args.iter_mut().chain(passed) {
                *value = values.get(value).copied().unwrap_or(*value);
            }
            for dest in data.dests.iter_mut().filter(|dest| dest.block != header) {
                dest.block = copies.get(&dest.block).copied().unwrap_or(dest.block);
            }
        }
    }
    copies
}
