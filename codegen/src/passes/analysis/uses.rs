//! Use counts of values.

use cranelift_entity::SecondaryMap;

use crate::ir::{Function, Value};

/// Number of uses of each value, as operand or block argument, in the layout.
pub fn use_counts(function: &Function) -> SecondaryMap<Value, u32> {
    let mut counts = SecondaryMap::new();
    for &block in &function.layout {
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            for &value in data.args.iter().chain(data.dests.iter().flat_map(|dest| &dest.args)) {
                counts[value] += 1;
            }
        }
    }
    counts
}
