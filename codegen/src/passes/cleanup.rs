//! Control flow cleanup: removes unreachable blocks and redundant parameters, branches and jumps.
//!
//! - Unreachable blocks are removed.
//! - A block parameter that receives the same value on every edge (apart from itself, around a loop) is replaced by
//!   that value; a parameter that receives equal constants is replaced by the constant.
//! - A branch on a constant, or with two equal targets and arguments, becomes a jump. A branch on `not p` becomes a
//!   branch on p.
//! - A jump to a block that contains only a jump goes directly to the final target.
//! - A block with one predecessor that jumps to it is merged into that predecessor.

use rustc_hash::{FxHashMap, FxHashSet};

use super::analysis::Dominators;
use super::analysis::uses::use_counts;
use super::edit::Aliases;
use super::{Pass, Remarks};
use crate::ir::{Block, BlockCall, Def, Function, Inst, InstData, Op, Type, Unary, Value};

/// A pass that only removes unreachable blocks.
pub struct Unreachable;

impl Pass for Unreachable {
    fn name(&self) -> &'static str {
        "unreachable"
    }

    fn apply(&self, function: &mut Function, _: &mut Remarks) -> bool {
        let doms = Dominators::new(function);
        let before = function.layout.len();
        function.layout.retain(|&block| doms.is_reachable(block));
        function.layout.len() != before
    }
}

/// The control flow cleanup pass; see the module.
pub struct Cleanup;

impl Pass for Cleanup {
    fn name(&self) -> &'static str {
        "cleanup"
    }

    fn apply(&self, function: &mut Function, _: &mut Remarks) -> bool {
        /// Limit on the rounds of jump threading, more than any chain of blocks needs. Without a limit, an endless loop
        /// of empty blocks would be threaded forever.
        const MAX_ROUNDS: usize = 64;
        let mut changed = false;
        for _ in 0..MAX_ROUNDS {
            let mut again = simplify_branches(function);
            again |= Unreachable.run(function);
            again |= redundant_params(function);
            again |= thread_jumps(function);
            again |= Unreachable.run(function);
            again |= merge_blocks(function);
            if !again {
                break;
            }
            changed = true;
        }
        changed
    }
}

/// The terminator of a block; none if the block has no instruction.
fn last(function: &Function, block: Block) -> Option<Inst> {
    function.block(block).insts.last().copied()
}

fn simplify_branches(function: &mut Function) -> bool {
    let mut changed = false;
    for block in function.layout.clone() {
        let Some(inst) = last(function, block) else { continue };
        while function.inst(inst).op == Op::Branch {
            let data = function.inst(inst);
            let condition = data.args[0];
            let negated = function.defining_inst(condition).filter(|d| d.op == Op::Unary(Unary::Not));
            let taken = match function.constant(condition) {
                Some(bits) => Some(usize::from(bits == 0)),
                None => (data.dests[0] == data.dests[1]).then_some(0),
            };
            if let Some(taken) = taken {
                let data = function.inst_mut(inst);
                data.op = Op::Jump;
                data.args.clear();
                data.dests.swap(0, taken);
                data.dests.truncate(1);
            } else if let Some(positive) = negated.map(|not| not.args[0]) {
                let data = function.inst_mut(inst);
                data.args[0] = positive;
                data.dests.swap(0, 1);
            } else {
                break;
            }
            changed = true;
        }
    }
    changed
}

/// The edges to each block: the terminator of the predecessor, and the index of the edge among its targets.
fn jumps(function: &Function) -> FxHashMap<Block, Vec<(Inst, usize)>> {
    let mut jumps: FxHashMap<Block, Vec<(Inst, usize)>> = FxHashMap::default();
    for &block in &function.layout {
        let Some(inst) = last(function, block) else { continue };
        for (index, dest) in function.inst(inst).dests.iter().enumerate() {
            jumps.entry(dest.block).or_default().push((inst, index));
        }
    }
    jumps
}

fn redundant_params(function: &mut Function) -> bool {
    let jumps = jumps(function);
    let mut aliases = Aliases::default();
    let mut keep: FxHashMap<Block, Vec<bool>> = function
        .layout
        .iter()
        .map(|&block| (block, vec![true; function.block(block).params.len()]))
        .collect();
    let mut again = true;
    while again {
        again = false;
        for &block in &function.layout.clone() {
            for index in 0..function.block(block).params.len() {
                if !keep[&block][index] {
                    continue;
                }
                let param = function.block(block).params[index];
                let incoming = jumps.get(&block).into_iter().flatten();
                let incoming = incoming.map(|&(inst, dest)| function.inst(inst).dests[dest].args[index]);
                let value = match common(function, incoming.map(|value| aliases.resolve(value)), param) {
                    Common::Value(value) => value,
                    Common::Constant(bits) => constant(function, block, function.value_type(param), bits),
                    Common::None => continue,
                };
                aliases.replace(param, value);
                keep.entry(block).and_modify(|keep| keep[index] = false);
                again = true;
            }
        }
    }
    aliases.apply(function);
    let mut changed = false;
    for (block, keep) in keep {
        if keep.contains(&false) {
            function.retain_block_params(block, &keep);
            changed = true;
        }
    }
    changed
}

/// The common value of all arguments passed to a block parameter.
enum Common {
    Value(Value),
    Constant(u64),
    None,
}

fn common(function: &Function, incoming: impl Iterator<Item = Value>, param: Value) -> Common {
    let mut found = Common::None;
    for value in incoming.filter(|&value| value != param) {
        found = match found {
            Common::None => Common::Value(value),
            Common::Value(first) if first == value => Common::Value(value),
            Common::Value(first) => match (function.constant(first), function.constant(value)) {
                (Some(a), Some(b)) if a == b => Common::Constant(a),
                _ => return Common::None,
            },
            Common::Constant(bits) if function.constant(value) == Some(bits) => found,
            Common::Constant(_) => return Common::None,
        };
    }
    found
}

/// Inserts a constant at the beginning of the block.
fn constant(function: &mut Function, block: Block, ty: Type, bits: u64) -> Value {
    let loc = last(function, block).and_then(|inst| function.inst(inst).loc);
    let data = InstData {
        op: Op::Const(bits),
        ty,
        args: Default::default(),
        dests: Vec::new(),
        results: Default::default(),
        loc,
    };
    let inst = function.create_inst(data, &[ty]);
    function.block_mut(block).insts.insert(0, inst);
    function.inst(inst).results[0]
}

/// The jump that the target block consists of, with its arguments resolved; none if the block contains anything else.
fn forwarded(function: &Function, call: &BlockCall, escapes: &dyn Fn(Block) -> bool) -> Option<BlockCall> {
    let data = function.block(call.block);
    let &[only] = &data.insts[..] else { return None };
    let jump = function.inst(only);
    if jump.op != Op::Jump || jump.dests[0].block == call.block || escapes(call.block) {
        return None;
    }
    let substitute = |value: &Value| match function.value_def(*value) {
        Def::Param(block, index) if block == call.block => call.args[index as usize],
        _ => *value,
    };
    let dest = &jump.dests[0];
    Some(BlockCall { block: dest.block, args: dest.args.iter().map(substitute).collect() })
}

fn thread_jumps(function: &mut Function) -> bool {
    let counts = use_counts(function);
    // A parameter that is used outside its block must still be defined there.
    let escapes = |function: &Function, block: Block| {
        let data = function.block(block);
        let own = |param: Value| {
            let dests = data.insts.iter().flat_map(|&inst| &function.inst(inst).dests);
            dests.flat_map(|dest| &dest.args).filter(|&&arg| arg == param).count() as u32
        };
        data.params.iter().any(|&param| counts[param] != own(param))
    };
    let mut changed = false;
    for block in function.layout.clone() {
        let Some(inst) = last(function, block) else { continue };
        let is_branch = function.inst(inst).op == Op::Branch;
        for index in 0..function.inst(inst).dests.len() {
            let dest = &function.inst(inst).dests[index];
            let Some(next) = forwarded(function, dest, &|block| escapes(function, block)) else { continue };
            // A branch cannot pass values on only one of its edges, so the block in between stays.
            if next.block == block || (is_branch && !next.args.is_empty()) {
                continue;
            }
            function.inst_mut(inst).dests[index] = next;
            changed = true;
        }
    }
    changed
}

fn merge_blocks(function: &mut Function) -> bool {
    let mut counts: FxHashMap<Block, usize> = FxHashMap::default();
    for &block in &function.layout {
        for target in function.successors(block) {
            *counts.entry(target).or_default() += 1;
        }
    }
    let mut aliases = Aliases::default();
    let mut gone = FxHashSet::default();
    for block in function.layout.clone() {
        if gone.contains(&block) {
            continue;
        }
        while let Some(inst) = last(function, block) {
            let data = function.inst(inst);
            let Some(dest) = data.dests.first().filter(|_| data.op == Op::Jump).cloned() else { break };
            if counts[&dest.block] != 1 || dest.block == block || dest.block == function.layout[0] {
                break;
            }
            for (&param, &arg) in function.block(dest.block).params.iter().zip(&dest.args) {
                aliases.replace(param, arg);
            }
            let insts = std::mem::take(&mut function.block_mut(dest.block).insts);
            let into = &mut function.block_mut(block).insts;
            into.pop();
            into.extend(insts);
            gone.insert(dest.block);
        }
    }
    function.layout.retain(|block| !gone.contains(block));
    aliases.apply(function);
    !gone.is_empty()
}
