//! Global value numbering: replaces an instruction by an equal instruction that dominates it.
//!
//! Only pure instructions are merged, and read-only loads within a block if no instruction between them waits for other
//! threads or kernels.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::analysis::Dominators;
use super::edit::Aliases;
use super::{Pass, Remarks};
use crate::ir::{Block, Effect, Function, Inst, InstData, Op, Type, Value};

/// The global value numbering pass; see the module.
pub struct ValueNumbering;

impl Pass for ValueNumbering {
    fn name(&self) -> &'static str {
        "gvn"
    }

    fn apply(&self, function: &mut Function, _: &mut Remarks) -> bool {
        let doms = Dominators::new(function);
        let mut aliases = Aliases::default();
        let mut table = Table { doms: &doms, pure: FxHashMap::default(), loads: FxHashMap::default() };
        let mut changed = false;
        // The walk is a preorder of the dominator tree. A table entry whose block does not dominate the current block
        // dominates no later block either, so one table serves all scopes.
        for &block in doms.preorder() {
            table.loads.clear();
            let insts = std::mem::take(&mut function.block_mut(block).insts);
            let mut kept = Vec::with_capacity(insts.len());
            for inst in insts {
                let data = function.inst_mut(inst);
                data.args.iter_mut().for_each(|value| *value = aliases.resolve(*value));
                let data = function.inst(inst);
                let first = data.args.first().map(|&arg| function.value_type(arg));
                let constant_memory = first == Some(Type::Constant);
                let Some(earlier) = table.find_or_enter(block, inst, data, constant_memory) else {
                    kept.push(inst);
                    continue;
                };
                let results = function.inst(earlier).results.clone();
                for (&from, &to) in function.inst(inst).results.iter().zip(&results) {
                    aliases.replace(from, to);
                }
                changed = true;
            }
            function.block_mut(block).insts = kept;
        }
        aliases.apply(function);
        changed
    }
}

type Key = (Op, Type, SmallVec<[Value; 4]>);

struct Table<'a> {
    doms: &'a Dominators,
    pure: FxHashMap<Key, (Block, Inst)>,
    /// Read-only loads of the current block, by key.
    loads: FxHashMap<Key, Inst>,
}

impl Table<'_> {
    /// An equal instruction that dominates `inst`; if there is none, enters `inst` into the table. `constant_memory`: the
    /// first operand points to constant memory.
    fn find_or_enter(
        &mut self,
        block: Block,
        inst: Inst,
        data: &InstData,
        constant_memory: bool,
    ) -> Option<Inst> {
        if let Op::Load(access) = data.op
            && (access.is_read_only() || constant_memory)
        {
            let earlier = *self.loads.entry(key(data)).or_insert(inst);
            return (earlier != inst).then_some(earlier);
        }
        // Writes of other threads or kernels may become visible here.
        if data.op.effect() == Effect::Sync {
            self.loads.clear();
        }
        if !data.op.is_pure() {
            return None;
        }
        let entry = self.pure.entry(key(data)).or_insert((block, inst));
        if self.doms.dominates(entry.0, block) {
            return (entry.1 != inst).then_some(entry.1);
        }
        *entry = (block, inst);
        None
    }
}

/// Key of an instruction, equal for instructions that compute the same results.
fn key(data: &InstData) -> Key {
    let mut args = data.args.clone();
    let mut op = data.op;
    if let [a, b, ..] = args[..]
        && a > b
    {
        match op {
            Op::Compare(compare) => {
                op = Op::Compare(compare.swapped());
                args.swap(0, 1);
            }
            op if op.is_commutative() => args.swap(0, 1),
            _ => {}
        }
    }
    (op, data.ty, args)
}
