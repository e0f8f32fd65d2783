//! Dead code elimination: removes instructions without side effect whose results are unused, and unused block
//! parameters, including parameters that only feed each other around a loop.

use cranelift_entity::EntitySet;
use rustc_hash::FxHashMap;

use super::{Pass, Remarks};
use crate::ir::{Block, Def, Effect, Function, Inst, Value};

/// The dead code elimination pass; see the module.
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dce"
    }

    fn apply(&self, function: &mut Function, _: &mut Remarks) -> bool {
        let live = Live::of(function);
        let mut changed = false;
        for block in function.layout.clone() {
            let insts = &mut function.block_mut(block).insts;
            let before = insts.len();
            insts.retain(|&inst| live.insts.contains(inst));
            changed |= insts.len() != before;
            let keep: Vec<bool> =
                function.block(block).params.iter().map(|&param| live.values.contains(param)).collect();
            if keep.contains(&false) {
                function.retain_block_params(block, &keep);
                changed = true;
            }
        }
        changed
    }
}

struct Live {
    insts: EntitySet<Inst>,
    values: EntitySet<Value>,
}

impl Live {
    fn of(function: &Function) -> Live {
        // The edges to each block: the terminator of the predecessor, and the index of the edge among its targets.
        let mut jumps: FxHashMap<Block, Vec<(Inst, usize)>> = FxHashMap::default();
        let mut live = Live { insts: EntitySet::new(), values: EntitySet::new() };
        let mut work = Vec::new();
        for &block in &function.layout {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                for (index, dest) in data.dests.iter().enumerate() {
                    jumps.entry(dest.block).or_default().push((inst, index));
                }
                if data.op.has_effect() {
                    live.insts.insert(inst);
                    work.extend(&data.args);
                }
            }
        }
        live.follow(function, &jumps, work);
        // A fact about values that the kernel does not use is useless.
        for &block in &function.layout {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                let is_live = |&arg: &Value| live.values.contains(arg) || function.constant(arg).is_some();
                if data.op.effect() == Effect::Fact && data.args.iter().all(is_live) {
                    live.insts.insert(inst);
                    let constants =
                        data.args.iter().copied().filter(|&arg| !live.values.contains(arg)).collect();
                    live.follow(function, &jumps, constants);
                }
            }
        }
        live
    }

    /// Marks what the values in `work` are computed from.
    fn follow(
        &mut self,
        function: &Function,
        jumps: &FxHashMap<Block, Vec<(Inst, usize)>>,
        mut work: Vec<Value>,
    ) {
        let live = self;
        while let Some(value) = work.pop() {
            if !live.values.insert(value) {
                continue;
            }
            match function.value_def(value) {
                Def::Result(inst, _) => {
                    if live.insts.insert(inst) {
                        work.extend(&function.inst(inst).args);
                    }
                }
                Def::Param(block, index) => {
                    let jumps = jumps.get(&block).into_iter().flatten();
                    work.extend(
                        jumps.map(|&(inst, dest)| function.inst(inst).dests[dest].args[index as usize]),
                    );
                }
            }
        }
    }
}
