//! Block parameters that share a register.
//!
//! A parameter that is passed on to another block's parameter shares its register, unless both are live at once. A variable
//! that only one side of a branch in a loop assigns then needs no move on the other side. ptxas keeps such moves.

use std::collections::{HashMap, HashSet};

use super::in_place::live_at_starts;
use crate::ir::{Function, Value};

/// Maps each parameter that shares a register to one parameter of its group. A parameter that shares with none is missing.
pub(super) fn shared_registers(function: &Function) -> HashMap<Value, Value> {
    let data = |&inst| function.inst(inst);
    let insts = || function.layout.iter().flat_map(|&block| &function.block(block).insts).map(data);
    // An instruction that updates its operand gives the operand's register to its result, which another parameter with this
    // register would overwrite.
    if insts().any(|data| data.op.in_place() > 0) {
        return HashMap::new();
    }
    let is_param = |value: Value| function.defining_inst(value).is_none();
    let mut passed: Vec<(Value, Value)> = Vec::new();
    for dest in insts().flat_map(|data| &data.dests) {
        let params = function.block(dest.block).params.iter().copied();
        passed.extend(
            params.zip(dest.args.iter().copied()).filter(|&(param, arg)| param != arg && is_param(arg)),
        );
    }
    if passed.is_empty() {
        return HashMap::new();
    }
    let tracked: HashSet<Value> = passed.iter().flat_map(|&(param, arg)| [param, arg]).collect();
    // All parameters of a block get their values at its start.
    let mut conflicts: HashMap<Value, HashSet<Value>> = HashMap::new();
    for (&block, live) in &live_at_starts(function, &tracked) {
        let params = &function.block(block).params;
        for &param in params.iter().filter(|param| tracked.contains(param)) {
            for &other in
                live.iter().chain(params).filter(|&&other| other != param && tracked.contains(&other))
            {
                conflicts.entry(param).or_default().insert(other);
                conflicts.entry(other).or_default().insert(param);
            }
        }
    }
    let mut groups: HashMap<Value, Vec<Value>> = tracked.iter().map(|&value| (value, vec![value])).collect();
    let mut representatives: HashMap<Value, Value> = tracked.iter().map(|&value| (value, value)).collect();
    for (param, arg) in passed {
        let [to, from] = [param, arg].map(|value| representatives[&value]);
        let conflict = |one: &Value| {
            conflicts.get(one).is_some_and(|with| groups[&from].iter().any(|other| with.contains(other)))
        };
        if to != from && !groups[&to].iter().any(conflict) {
            let moved = groups.remove(&from).expect("a representative has a group");
            representatives.extend(moved.iter().map(|&value| (value, to)));
            groups.get_mut(&to).expect("a representative has a group").extend(moved);
        }
    }
    representatives.retain(|_, to| groups[to].len() > 1);
    representatives
}

/// Numbers of parameters that share a register with others, and of these registers.
pub(crate) fn shared_register_groups(function: &Function) -> (usize, usize) {
    let shared = shared_registers(function);
    let registers: HashSet<Value> = shared.values().copied().collect();
    (shared.len(), registers.len())
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
