//! Natural loops.

use rustc_hash::FxHashSet;

use super::Dominators;
use crate::ir::{Block, Function};

/// A natural loop: a header that dominates all blocks of the loop, and one or more edges back to the header.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The header: the only block through which the loop is entered.
    pub header: Block,
    /// All blocks of the loop, including the header and inner loops.
    pub blocks: FxHashSet<Block>,
}

/// Finds the function's natural loops, inner loops before the loops that contain them. Loops with the same header are
/// merged.
pub fn loops(function: &Function, doms: &Dominators) -> Vec<Loop> {
    let preds = function.predecessors();
    let mut loops = Vec::new();
    for &header in doms.reverse_postorder() {
        let mut work: Vec<Block> =
            preds[header].iter().copied().filter(|&latch| doms.dominates(header, latch)).collect();
        if work.is_empty() {
            continue;
        }
        let mut blocks = FxHashSet::from_iter([header]);
        while let Some(block) = work.pop() {
            if blocks.insert(block) {
                work.extend(&preds[block]);
            }
        }
        loops.push(Loop { header, blocks });
    }
    // An inner loop has fewer blocks than any loop around it.
    loops.sort_by_key(|l| l.blocks.len());
    loops
}
