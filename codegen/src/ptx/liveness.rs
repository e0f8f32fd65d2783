//! Liveness of values.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{Block, Function, InstData, Value};

/// The values of `tracked` that are live at the start of each block, without the block's parameters.
pub(super) fn live_at_starts(
    function: &Function,
    tracked: &FxHashSet<Value>,
) -> FxHashMap<Block, FxHashSet<Value>> {
    let mut live_in: FxHashMap<Block, FxHashSet<Value>> = FxHashMap::default();
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
pub(super) fn live_at_start(
    function: &Function,
    block: Block,
    tracked: &FxHashSet<Value>,
    live_in: &FxHashMap<Block, FxHashSet<Value>>,
    visit: &mut dyn FnMut(&InstData, &FxHashSet<Value>),
) -> FxHashSet<Value> {
    let mut live = FxHashSet::default();
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
