//! Unrolling of loops: completely if the trip count is a small constant ([`Unroll`]), else by a factor, with a loop for
//! the remaining iterations ([`UnrollPartially`]).
//!
//! A loop can be unrolled if its header is its only exit.

mod full;
mod partial;

use rustc_hash::FxHashMap;

use super::Remarks;
use super::analysis::Dominators;
use super::analysis::loops::{Loop, loops};
use super::remarks::{Done, LoopKept, Missed};
use crate::ir::{Block, Function, InstData, Op, Type, Value};

pub use full::Unroll;
pub use partial::UnrollPartially;

/// A loop that one of the passes unrolls.
trait Counted: Sized {
    /// The loop, or why the pass keeps it as it is.
    fn of(function: &Function, this: &Loop) -> Result<Self, LoopKept>;
    fn header(&self) -> Block;
    /// The remark that it was unrolled.
    fn done(&self, function: &Function) -> Done;
    fn unroll(&self, function: &mut Function);
}

/// Unrolls every loop of a kind; returns whether there was one.
fn unroll_all<C: Counted>(function: &mut Function, remarks: &mut Remarks) -> bool {
    let mut changed = false;
    loop {
        let doms = Dominators::new(function);
        let found = loops(function, &doms);
        let Some(counted) = found.iter().find_map(|this| C::of(function, this).ok()) else {
            return changed;
        };
        remarks.done(function.terminator(counted.header()).loc, counted.done(function));
        counted.unroll(function);
        changed = true;
    }
}

/// Reports the loops that are not of the kind.
fn report_kept<C: Counted>(function: &Function, remarks: &mut Remarks) {
    let doms = Dominators::new(function);
    for this in loops(function, &doms) {
        if let Err(why) = C::of(function, &this) {
            remarks.missed(function.terminator(this.header).loc, Missed::Loop { why });
        }
    }
}

/// A loop whose only exit is the branch at the end of its header.
struct Simple {
    header: Block,
    /// Index, among the targets of the header's branch, of the target inside the loop.
    stays: usize,
    latch: Block,
    /// The only block outside the loop that jumps to the header.
    entry: Block,
    /// All blocks of the loop, in layout order.
    blocks: Vec<Block>,
}

impl Simple {
    fn of(function: &Function, this: &Loop) -> Result<Simple, LoopKept> {
        let inside = |block: &Block| this.blocks.contains(block);
        let preds = function.predecessors();
        let (latches, entries): (Vec<Block>, Vec<Block>) =
            preds[this.header].iter().partition(|&block| inside(block));
        let (&[latch], &[entry]) = (&latches[..], &entries[..]) else {
            return Err(LoopKept::SeveralEntries);
        };
        let leaves = |&&block: &&Block| function.successors(block).any(|next| !inside(&next));
        let blocks: Vec<Block> = function.layout.iter().copied().filter(inside).collect();
        let exits: Vec<Block> = blocks.iter().filter(leaves).copied().collect();
        if exits != [this.header] {
            let other = exits.iter().find(|&&block| block != this.header);
            return Err(LoopKept::SeveralExits {
                at: other.and_then(|&block| function.terminator(block).loc),
            });
        }
        let branch = function.terminator(this.header);
        let stays = branch.dests.iter().position(|dest| inside(&dest.block)).ok_or(LoopKept::NoCounter)?;
        Ok(Simple { header: this.header, stays, latch, entry, blocks })
    }

    /// Number of instructions of an iteration.
    fn size(&self, function: &Function) -> usize {
        self.blocks.iter().map(|&block| function.block(block).insts.len()).sum()
    }

    /// The argument for the header's parameter `index` on the edge from `from`.
    fn passed(&self, function: &Function, from: Block, index: usize) -> Option<Value> {
        let mut dests = function.terminator(from).dests.iter();
        dests.find(|dest| dest.block == self.header).map(|dest| dest.args[index])
    }

    /// Copies the loop's blocks for `count` consecutive iterations; the jump from `enters` to the header then leads
    /// to the first copy. If `leaves`, a copy of the header that leaves the loop follows. Otherwise the last
    /// iteration still jumps to the header.
    fn iterations(&self, function: &mut Function, count: usize, leaves: bool, enters: Block) -> Iterations {
        let mut copied = Iterations { layout: Vec::new(), values: FxHashMap::default(), end: enters };
        for trip in 0..count + usize::from(leaves) {
            let blocks = if trip == count { &[self.header][..] } else { &self.blocks };
            let copies = copy(function, blocks, self.header, &mut copied.values);
            let header = copies[&self.header];
            redirect(function, copied.end, self.header, header);
            self.decide(function, header, trip < count);
            copied.layout.extend(blocks.iter().map(|block| copies[block]));
            copied.end = copies.get(&self.latch).copied().unwrap_or(header);
        }
        copied
    }

    /// Makes the branch at the end of a copy of the header a jump: into the loop or out of it.
    fn decide(&self, function: &mut Function, header: Block, into_loop: bool) {
        let way = if into_loop { self.stays } else { 1 - self.stays };
        let branch = terminator(function, header);
        (branch.op, branch.dests) = (Op::Jump, vec![branch.dests.swap_remove(way)]);
        branch.args.clear();
    }

    /// Inserts blocks into the layout before the loop.
    fn insert_before(&self, function: &mut Function, blocks: &[Block]) {
        let at = function.layout.iter().position(|&block| block == self.blocks[0]).unwrap_or(0);
        function.layout.splice(at..at, blocks.iter().copied());
    }

    /// Removes the loop, which was replaced by copies that end in a copy of the header.
    fn remove(&self, function: &mut Function, copied: &Iterations) {
        function.layout.retain(|block| !self.blocks.contains(block));
        // After the loop, uses refer to the values of the last copy of the header.
        function.rewrite_uses(|value| copied.values.get(&value).copied().unwrap_or(value));
    }
}

/// Iterations in a row, made by [`Simple::iterations`].
struct Iterations {
    layout: Vec<Block>,
    /// From the loop's values to their copies in the last iteration.
    values: FxHashMap<Value, Value>,
    /// The last block.
    end: Block,
}

/// Makes `block` jump to `to` where it jumps to `from`.
fn redirect(function: &mut Function, block: Block, from: Block, to: Block) {
    for dest in terminator(function, block).dests.iter_mut().filter(|dest| dest.block == from) {
        dest.block = to;
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
    values: &mut FxHashMap<Value, Value>,
) -> FxHashMap<Block, Block> {
    values.clear();
    let mut copies = FxHashMap::default();
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
        if block != header {
            function.block_mut(new).unroll = function.block(block).unroll;
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
