//! Loop-invariant code motion: moves pure instructions with loop-invariant operands to the loop's preheader. Convergent
//! instructions are not moved.
//!
//! Loads are not moved: memory may change, and an address that is valid only under a condition must not be read.
//! Constants and parameters cost nothing inside the loop and are moved only with an instruction that uses them.

use rustc_hash::FxHashSet;

use super::analysis::loops::{Loop, loops};
use super::analysis::{Dominators, InstBlocks, defining_block, inst_blocks};
use super::remarks::{Done, Missed};
use super::{Pass, Remarks};
use crate::ir::{Access, Block, BlockCall, Cache, Function, Inst, InstData, Loc, Op, Type, Value};

/// The loop-invariant code motion pass; see the module.
pub struct InvariantMotion;

impl Pass for InvariantMotion {
    fn name(&self) -> &'static str {
        "licm"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
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
            invariant.remark(function, remarks);
            hoist(function, &this, &invariant.order);
            changed = true;
        }
        changed
    }

    fn missed(&self, function: &Function, remarks: &mut Remarks) {
        let doms = Dominators::new(function);
        let mut seen = FxHashSet::default();
        for this in loops(function, &doms) {
            let invariant = Invariants::of(function, &doms, &this);
            let blocks = function.layout.iter().filter(|block| this.blocks.contains(block));
            for &inst in blocks.flat_map(|&block| &function.block(block).insts) {
                let data = function.inst(inst);
                let is_load = matches!(data.op, Op::Load(Access { cache, ordering: None, .. }) if cache != Cache::Volatile);
                let same = is_load && data.args.iter().all(|&arg| invariant.is_outside(function, arg));
                if same && seen.insert(inst) {
                    let of = function.terminator(this.header).loc;
                    remarks.missed(data.loc, Missed::InvariantLoad { of });
                }
            }
        }
    }
}

struct Invariants<'a> {
    this: &'a Loop,
    blocks: InstBlocks,
    /// Instructions to move, definitions before uses.
    order: Vec<Inst>,
    moved: FxHashSet<Inst>,
}

impl<'a> Invariants<'a> {
    fn of(function: &Function, doms: &Dominators, this: &'a Loop) -> Invariants<'a> {
        let blocks = inst_blocks(function);
        let mut invariant = Invariants { this, blocks, order: Vec::new(), moved: FxHashSet::default() };
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

    /// Adds a remark for each location with the number of its instructions.
    fn remark(&self, function: &Function, remarks: &mut Remarks) {
        let mut counts: Vec<(Option<Loc>, usize)> = Vec::new();
        for &inst in &self.order {
            let data = function.inst(inst);
            if data.args.is_empty() {
                continue;
            }
            match counts.iter_mut().find(|(loc, _)| *loc == data.loc) {
                Some((_, count)) => *count += 1,
                None => counts.push((data.loc, 1)),
            }
        }
        let out_of = function.terminator(self.this.header).loc;
        for (loc, instructions) in counts {
            remarks.done(loc, Done::Hoisted { instructions, out_of });
        }
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
    let moved: FxHashSet<Inst> = insts.iter().copied().collect();
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
