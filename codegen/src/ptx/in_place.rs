//! Registers of instructions that update operands in place ([`crate::ir::Op::in_place`]).
//!
//! A result takes the register of its operand if the operand is not used afterwards. In a loop that carries the value,
//! the block parameter, the operands and the results then share one register, and no move separates the products of a
//! warpgroup. ptxas serialises products whose sums other instructions move.

use std::collections::{HashMap, HashSet};

use super::printer::Printer;
use crate::ir::{Block, Function, InstData, Value};

/// The operands of updating instructions that are not used after the instruction, with its first result.
#[derive(Default)]
pub(super) struct LastUses(HashSet<(Value, Value)>);

impl LastUses {
    /// Analyses the liveness of the operands that instructions of a function update.
    pub fn of(function: &Function) -> LastUses {
        let updated: HashSet<Value> = function
            .layout
            .iter()
            .flat_map(|&block| &function.block(block).insts)
            .flat_map(|&inst| {
                let data = function.inst(inst);
                data.args[..data.op.in_place()].iter().copied()
            })
            .collect();
        if updated.is_empty() {
            return LastUses::default();
        }
        let live_in = live_at_starts(function, &updated);
        let mut last = HashSet::new();
        for &block in &function.layout {
            live_at_start(function, block, &updated, &live_in, &mut |data, live| {
                let operands = data.args[..data.op.in_place()].iter().filter(|value| !live.contains(value));
                last.extend(operands.map(|&value| (data.results[0], value)));
            });
        }
        LastUses(last)
    }

    /// Whether the instruction with the first result `result` is the last use of `operand`.
    fn contains(&self, result: Value, operand: Value) -> bool {
        self.0.contains(&(result, operand))
    }
}

/// The values of `tracked` that are live at the start of each block, without the block's parameters.
pub(super) fn live_at_starts(
    function: &Function,
    tracked: &HashSet<Value>,
) -> HashMap<Block, HashSet<Value>> {
    let mut live_in: HashMap<Block, HashSet<Value>> = HashMap::new();
    let mut changed = true;
    while changed {
        changed = false;
        for &block in function.layout.iter().rev() {
            let live = live_at_start(function, block, tracked, &live_in, &mut |_, _| {});
            if live_in.get(&block) != Some(&live) {
                live_in.insert(block, live);
                changed = true;
            }
        }
    }
    live_in
}

/// The values of `tracked` that are live at the start of a block. `visit` gets each instruction with the values that are
/// live after it.
fn live_at_start(
    function: &Function,
    block: Block,
    tracked: &HashSet<Value>,
    live_in: &HashMap<Block, HashSet<Value>>,
    visit: &mut dyn FnMut(&InstData, &HashSet<Value>),
) -> HashSet<Value> {
    let mut live = HashSet::new();
    for &inst in function.block(block).insts.iter().rev() {
        let data = function.inst(inst);
        for dest in &data.dests {
            live.extend(live_in.get(&dest.block).into_iter().flatten());
            live.extend(dest.args.iter().filter(|value| tracked.contains(value)));
        }
        visit(data, &live);
        for result in &data.results {
            live.remove(result);
        }
        live.extend(data.args.iter().filter(|value| tracked.contains(value)));
    }
    for param in &function.block(block).params {
        live.remove(param);
    }
    live
}

impl Printer<'_> {
    /// Gives each result of an updating instruction the register of its operand, or a register with a copy of it.
    pub(super) fn update_in_place(&mut self, data: &InstData) {
        for (index, &result) in data.results.iter().take(data.op.in_place()).enumerate() {
            let operand = data.args[index];
            // The register of a constant is new.
            let own = self.function.constant(operand).is_some()
                || (self.last_uses.contains(data.results[0], operand)
                    && !data.args[..index].contains(&operand));
            let from = self.register(operand);
            if own && !self.has_register(result) {
                self.assign_register(result, from);
            } else {
                let to = self.register(result);
                if to != from {
                    self.line(format_args!("mov.{} {to}, {from};", to.class.declared()));
                }
            }
        }
    }
}
