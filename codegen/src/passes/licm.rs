//! Loop-invariant code motion: moves pure instructions with loop-invariant operands to the loop's preheader. Convergent
//! instructions are not moved.
//!
//! Loads are not moved: memory may change, and an address that is valid only under a condition must not be read.
//! Constants and parameters cost nothing inside the loop and are moved only with an instruction that uses them.

use std::collections::HashSet;

use super::Pass;
use super::analysis::loops::{Loop, loops};
use super::analysis::{Dominators, InstBlocks, defining_block, inst_blocks};
use crate::ir::{Block, BlockCall, Function, Inst, InstData, Op, Type, Value};

/// The loop-invariant code motion pass; see the module.
pub struct InvariantMotion;

impl Pass for InvariantMotion {
    fn name(&self) -> &'static str {
        "licm"
    }

    fn run(&self, function: &mut Function) -> bool {
        let mut changed = false;
        let doms = Dominators::new(function);
        // Inner loops come first, so that an instruction may be moved out of several loops. A new preheader belongs to
        // the outer loops too, so the loops are recomputed after each loop.
        let headers: Vec<Block> = loops(function, &doms).iter().map(|l| l.header).collect();
        for header in headers {
            let doms = Dominators::new(function);
            let Some(this) = loops(function, &doms).into_iter().find(|l| l.header == header) else {
                continue;
            };
            let invariant = Invariants::of(function, &doms, &this);
            if invariant.order.is_empty() {
                continue;
            }
            hoist(function, &this, &invariant.order);
            changed = true;
        }
        changed
    }
}

struct Invariants<'a> {
    this: &'a Loop,
    blocks: InstBlocks,
    /// Instructions to move, definitions before uses.
    order: Vec<Inst>,
    moved: HashSet<Inst>,
}

impl<'a> Invariants<'a> {
    fn of(function: &Function, doms: &Dominators, this: &'a Loop) -> Invariants<'a> {
        let blocks = inst_blocks(function);
        let mut invariant = Invariants { this, blocks, order: Vec::new(), moved: HashSet::new() };
        for block in doms.reverse_postorder().iter().filter(|block| this.blocks.contains(block)) {
            for &inst in &function.block(*block).insts {
                let data = function.inst(inst);
                let candidate = data.op.is_movable() && !data.args.is_empty();
                if candidate && data.args.iter().all(|&arg| invariant.is_outside(function, arg)) {
                    invariant.take(function, inst);
                }
            }
        }
        invariant
    }

    /// Whether the value is defined outside the loop, or can be moved out of it.
    fn is_outside(&self, function: &Function, value: Value) -> bool {
        let block = defining_block(function, &self.blocks, value);
        let inside = block.is_some_and(|block| self.this.blocks.contains(&block));
        !inside || self.leaf(function, value).is_some() || self.is_moved(function, value)
    }

    fn is_moved(&self, function: &Function, value: Value) -> bool {
        matches!(function.value_def(value), crate::ir::Def::Result(inst, _) if self.moved.contains(&inst))
    }

    /// The defining instruction of the value, if it is in the loop and has no operands, such as a constant.
    fn leaf(&self, function: &Function, value: Value) -> Option<Inst> {
        let crate::ir::Def::Result(inst, _) = function.value_def(value) else { return None };
        let data = function.inst(inst);
        let inside = self.blocks[inst].is_some_and(|block| self.this.blocks.contains(&block));
        (inside && data.op.is_movable() && data.args.is_empty()).then_some(inst)
    }

    fn take(&mut self, function: &Function, inst: Inst) {
        for &arg in &function.inst(inst).args {
            if let Some(leaf) = self.leaf(function, arg)
                && self.moved.insert(leaf)
            {
                self.order.push(leaf);
            }
        }
        self.moved.insert(inst);
        self.order.push(inst);
    }
}

fn hoist(function: &mut Function, this: &Loop, insts: &[Inst]) {
    let preheader = preheader(function, this);
    let moved: HashSet<Inst> = insts.iter().copied().collect();
    for &block in &this.blocks {
        function.block_mut(block).insts.retain(|inst| !moved.contains(inst));
    }
    let target = &mut function.block_mut(preheader).insts;
    let end = target.len() - 1;
    target.splice(end..end, insts.iter().copied());
}

/// The preheader of a loop: the only block outside that jumps to the header, if it has no other successor; otherwise a
/// new block.
fn preheader(function: &mut Function, this: &Loop) -> Block {
    let preds = function.predecessors();
    let outside: Vec<Block> =
        preds[this.header].iter().copied().filter(|block| !this.blocks.contains(block)).collect();
    if let [only] = outside[..]
        && function.terminator(only).op == Op::Jump
    {
        return only;
    }
    let new = function.create_block();
    let types: Vec<Type> =
        function.block(this.header).params.iter().map(|&param| function.value_type(param)).collect();
    let args = types.iter().map(|&ty| function.append_block_param(new, ty)).collect();
    let loc = function.terminator(this.header).loc;
    let jump = InstData {
        op: Op::Jump,
        ty: Type::U32,
        args: Default::default(),
        dests: vec![BlockCall { block: this.header, args }],
        results: Default::default(),
        loc,
    };
    let jump = function.create_inst(jump, &[]);
    function.block_mut(new).insts.push(jump);
    for block in outside {
        let Some(&last) = function.block(block).insts.last() else { continue };
        for dest in function.inst_mut(last).dests.iter_mut().filter(|dest| dest.block == this.header) {
            dest.block = new;
        }
    }
    let position = function.layout.iter().position(|&block| block == this.header).unwrap_or(0);
    function.layout.insert(position, new);
    new
}
