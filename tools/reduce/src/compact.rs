//! Copies of functions without unused entities.

use std::collections::HashMap;

use bespoke_codegen::ir::{Block, Function, Loc, SourceLoc, Type, Value};
use bespoke_codegen::passes::{Pass, Unreachable};

/// A copy of the kernel and of its functions, without unreachable blocks, in which blocks and values are numbered in the order of the text.
pub(crate) fn compact(function: &Function) -> Function {
    let mut old = function.clone();
    Unreachable.run(&mut old);
    let mut new = Function::new(old.name.clone());
    new.params = old.params.clone();
    new.results = old.results.clone();
    new.functions = old.functions.iter().map(compact).collect();
    (new.threads, new.threads_yz, new.min_blocks) = (old.threads, old.threads_yz, old.min_blocks);
    (new.max_registers, new.cluster, new.allow_spills) = (old.max_registers, old.cluster, old.allow_spills);
    (new.shared, new.locals, new.tables) = (old.shared.clone(), old.locals.clone(), old.tables.clone());
    let blocks: HashMap<Block, Block> = old.layout.iter().map(|&block| (block, new.create_block())).collect();
    let (mut values, mut locs) = (HashMap::new(), HashMap::new());
    new.layout = old.layout.iter().map(|block| blocks[block]).collect();
    for &block in &old.layout {
        let to = blocks[&block];
        for &param in &old.block(block).params {
            values.insert(param, new.append_block_param(to, old.value_type(param)));
        }
        for &inst in &old.block(block).insts {
            let mut data = old.inst(inst).clone();
            data.loc = data.loc.map(|loc| place(&old, &mut new, &mut locs, loc));
            data.dests
                .iter_mut()
                .for_each(|dest| dest.block = blocks.get(&dest.block).copied().unwrap_or(to));
            let types: Vec<Type> = data.results.iter().map(|&result| old.value_type(result)).collect();
            let results = data.results.clone();
            let copy = new.create_inst(data, &types);
            values.extend(results.into_iter().zip(new.inst(copy).results.iter().copied()));
            new.block_mut(to).insts.push(copy);
        }
        new.block_mut(to).unroll = old.block(block).unroll;
    }
    let renamed = |value: Value| values.get(&value).copied();
    // An operand without a definition in the layout stays an undefined value, which the verifier rejects.
    let undefined = values.len();
    new.rewrite_uses(|value| renamed(value).unwrap_or_else(|| Value::from_u32(undefined as u32)));
    new
}

/// The location in the new function.
fn place(old: &Function, new: &mut Function, locs: &mut HashMap<Loc, Loc>, loc: Loc) -> Loc {
    if let Some(&known) = locs.get(&loc) {
        return known;
    }
    let at = old.locs[loc].clone();
    let inlined_at = at.inlined_at.map(|caller| place(old, new, locs, caller));
    let made = new.locs.push(SourceLoc { inlined_at, ..at });
    locs.insert(loc, made);
    made
}
