//! Values that share a register, so that no move is needed between them.
//!
//! - A block parameter and a parameter that is passed to it. A variable that only one side of a branch in a loop assigns then
//!   needs no move on the other side. ptxas keeps such moves.
//! - The operand and the result of an instruction that updates the operand in place ([`crate::ir::Op::in_place`]), and the
//!   block parameters through which control flow carries the value. ptxas serialises the products of a warpgroup whose sums
//!   other instructions move, and a move reads sums that products still change.
//!
//! Values share a register only if they are not live at once.

use rustc_hash::{FxHashMap, FxHashSet};

use super::liveness::{live_at_start, live_at_starts};
use crate::ir::{Function, Inst, InstData, Op, Value};

/// Maps each value that shares a register to one value of its group. A value that shares with none is missing.
pub(super) fn shared_registers(function: &Function) -> FxHashMap<Value, Value> {
    let insts = || function.layout.iter().flat_map(|&block| &function.block(block).insts);
    let data = |&inst: &Inst| function.inst(inst);
    let mut updated: FxHashSet<Value> =
        insts().map(data).flat_map(updates).flat_map(|pair| [pair.0, pair.1]).collect();
    updated.retain(|&value| function.constant(value).is_none());
    let mut passed: Vec<(Value, Value)> = Vec::new();
    for dest in insts().map(data).flat_map(|data| &data.dests) {
        let params = function.block(dest.block).params.iter().copied();
        let values = params.zip(dest.args.iter().copied());
        passed.extend(values.filter(|&(param, arg)| param != arg && function.constant(arg).is_none()));
    }
    spread(&mut updated, &passed);
    passed.retain(|(_, arg)| function.defining_inst(*arg).is_none() || updated.contains(arg));
    let tracked: FxHashSet<Value> =
        passed.iter().flat_map(|&(param, arg)| [param, arg]).chain(updated.iter().copied()).collect();
    if tracked.is_empty() {
        return FxHashMap::default();
    }

    let mut groups = Groups::new(&tracked);
    let live_in = live_at_starts(function, &tracked);
    let visit = |visit: &mut dyn FnMut(&InstData, &FxHashSet<Value>)| {
        for &block in &function.layout {
            live_at_start(function, block, &tracked, &live_in, visit);
        }
    };
    // Results that continue their operand: each value of such a chain is dead when the next one is defined, or equal to it.
    let mut continued: FxHashSet<Value> = FxHashSet::default();
    visit(&mut |data, live| {
        for (index, (operand, result)) in updates(data).enumerate() {
            let last_use = !live.contains(&operand) && !data.args[..index].contains(&operand);
            if tracked.contains(&operand) && (last_use || passes_through(data, index)) {
                groups.join(result, operand);
                continued.insert(result);
            }
        }
    });
    // A running product reads its other operands until the wait, which may be after the end of their live range.
    for data in insts().map(data).filter(|data| matches!(data.op, Op::Wgmma { .. })) {
        for operand in data.args[data.in_place()..].iter().filter(|operand| tracked.contains(operand)) {
            groups.fixed.insert(groups.of[operand]);
        }
    }
    visit(&mut |data, live| {
        for result in
            data.results.iter().filter(|result| tracked.contains(result) && !continued.contains(result))
        {
            // Moves to the results precede the instruction, which may be several lines of PTX.
            groups.conflict(*result, live.iter().chain(&data.results).chain(&data.args));
        }
    });
    for (block, live) in &live_in {
        // All parameters of a block get their values at its start.
        let params = &function.block(*block).params;
        for param in params.iter().filter(|param| tracked.contains(param)) {
            groups.conflict(*param, live.iter().chain(params));
        }
    }
    for (param, arg) in passed {
        groups.join_if_free(param, arg);
    }
    groups.shared()
}

/// Operands that an instruction updates in place, with their results.
fn updates(data: &InstData) -> impl Iterator<Item = (Value, Value)> {
    data.args.iter().copied().zip(data.results.iter().copied()).take(data.in_place())
}

/// Whether the instruction's result with this index equals its operand, and no instruction updates it later: a register of A.
fn passes_through(data: &InstData, index: usize) -> bool {
    matches!(data.op, Op::WgmmaFence { sums, .. } if index >= sums as usize)
}

/// Adds the values to which, and from which, control flow passes a value of `updated`.
fn spread(updated: &mut FxHashSet<Value>, passed: &[(Value, Value)]) {
    if updated.is_empty() {
        return;
    }
    loop {
        let before = updated.len();
        for &(param, arg) in passed {
            if updated.contains(&param) || updated.contains(&arg) {
                updated.extend([param, arg]);
            }
        }
        if updated.len() == before {
            return;
        }
    }
}

/// Groups of values with one register each, named by one of their values.
struct Groups {
    /// The group of each value.
    of: FxHashMap<Value, Value>,
    members: FxHashMap<Value, Vec<Value>>,
    /// Groups that are live at once.
    conflicts: FxHashMap<Value, FxHashSet<Value>>,
    /// Groups that take no further values.
    fixed: FxHashSet<Value>,
}

impl Groups {
    fn new(values: &FxHashSet<Value>) -> Groups {
        Groups {
            of: values.iter().map(|&value| (value, value)).collect(),
            members: values.iter().map(|&value| (value, vec![value])).collect(),
            conflicts: FxHashMap::default(),
            fixed: FxHashSet::default(),
        }
    }

    /// Adds the group of `from` to that of `to`.
    fn join(&mut self, to: Value, from: Value) {
        let [to, from] = [to, from].map(|value| self.of[&value]);
        if to == from {
            return;
        }
        let moved = self.members.remove(&from).expect("a group has members");
        self.of.extend(moved.iter().map(|&value| (value, to)));
        self.members.get_mut(&to).expect("a group has members").extend(moved);
        for other in self.conflicts.remove(&from).unwrap_or_default() {
            let others = self.conflicts.entry(other).or_default();
            others.remove(&from);
            others.insert(to);
            self.conflicts.entry(to).or_default().insert(other);
        }
    }

    /// As [`Groups::join`], unless values of the two groups are live at once.
    fn join_if_free(&mut self, to: Value, from: Value) {
        let [to, from] = [to, from].map(|value| self.of[&value]);
        let conflict = self.conflicts.get(&to).is_some_and(|others| others.contains(&from));
        if !conflict && !self.fixed.contains(&to) && !self.fixed.contains(&from) {
            self.join(to, from);
        }
    }

    /// States that `value` is live together with those of `others` that are in groups.
    fn conflict<'a>(&mut self, value: Value, others: impl Iterator<Item = &'a Value>) {
        let group = self.of[&value];
        for other in others {
            let Some(&other) = self.of.get(other) else { continue };
            if other != group {
                self.conflicts.entry(group).or_default().insert(other);
                self.conflicts.entry(other).or_default().insert(group);
            }
        }
    }

    /// The group of each value that is not alone.
    fn shared(mut self) -> FxHashMap<Value, Value> {
        self.of.retain(|_, group| self.members[group].len() > 1);
        self.of
    }
}

/// Numbers of parameters that share a register with others, and of these registers.
pub(crate) fn shared_register_groups(function: &Function) -> (usize, usize) {
    let mut params: FxHashMap<Value, usize> = FxHashMap::default();
    for (value, group) in shared_registers(function) {
        *params.entry(group).or_default() += usize::from(function.defining_inst(value).is_none());
    }
    params.retain(|_, count| *count > 1);
    (params.values().sum(), params.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse::parse;
    use crate::ptx::{Target, print};

    /// The largest of some numbers in a loop; `after` follows the branch that assigns it.
    fn largest(after: &str) -> Function {
        let kernel = format!(
            "kernel @k(x: global f32) {{
             block0:
               v0 = param.global 0
               v1 = const.u32 0
               v2 = const.f32 0.0
               jump block1(v1, v2)
             block1(v3: u32, v4: f32):
               v5 = load.f32 v0
               v6 = lt.f32 v4, v5
               branch v6, block2, block3(v4)
             block2:
               jump block3(v5)
             block3(v7: f32):
               v8 = const.u32 100
               v9 = add.u32 v3, v8
               {after}
               v11 = lt.u32 v9, v8
               branch v11, block1(v9, v7), block4
             block4:
               store.f32 v0, v7
               return
             }}"
        );
        parse(&kernel).expect("the kernel parses")
    }

    fn groups(function: &Function) -> Vec<(String, String)> {
        let shared = shared_registers(function);
        let mut groups: Vec<_> =
            shared.iter().map(|(value, to)| (value.to_string(), to.to_string())).collect();
        groups.sort();
        groups
    }

    #[test]
    fn a_parameter_that_is_passed_on_needs_no_move() {
        let function = largest("");
        let names = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(groups(&function), [names("v4", "v7"), names("v7", "v7")]);
        let ptx = print(&function, Target::Sm80).expect("every target has the instructions");
        // The start of the loop, and the side that assigns.
        assert_eq!(ptx.matches("mov.f32").count(), 2, "{ptx}");
    }

    #[test]
    fn parameters_that_are_live_at_once_do_not_share() {
        assert_eq!(groups(&largest("store.f32 v0 + 4, v4")), []);
        let exchanged = parse(
            "kernel @k(x: global f32) {
             block0:
               v0 = param.global 0
               v1, v2 = load.f32 x2 v0
               jump block1(v1, v2)
             block1(v3: f32, v4: f32):
               v5 = lt.f32 v3, v4
               branch v5, block1(v4, v3), block2
             block2:
               store.f32 x2 v0, v3, v4
               return
             }",
        );
        assert_eq!(groups(&exchanged.expect("the kernel parses")), []);
    }
}
