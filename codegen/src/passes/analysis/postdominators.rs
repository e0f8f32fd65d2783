//! Post-dominators: dominators of the reversed control flow graph.

use cranelift_entity::SecondaryMap;

use crate::ir::dominators::immediate_dominators;
use crate::ir::{Block, Function};

/// The post-dominator tree of a function's blocks. Its root is a virtual exit, the successor of every returning block;
/// in each endless loop, one block counts as a predecessor of the exit.
pub struct PostDominators {
    /// Position in reverse postorder of the reversed graph: 1 is the exit, blocks start at 2, and 0 is a block outside
    /// the layout.
    order: SecondaryMap<Block, u32>,
    /// The blocks by position, starting with position 2.
    blocks: Vec<Block>,
    idom: Vec<u32>,
}

impl PostDominators {
    /// Computes the post-dominator tree.
    pub fn new(function: &Function) -> PostDominators {
        let preds = function.predecessors();
        let mut seen: SecondaryMap<Block, bool> = SecondaryMap::new();
        let mut is_exit: SecondaryMap<Block, bool> = SecondaryMap::new();
        let mut post = Vec::with_capacity(function.layout.len());
        let returns = function.layout.iter().filter(|&&block| function.successors(block).next().is_none());
        // Blocks that cannot reach a return are in endless loops.
        for &root in returns.chain(function.layout.iter().rev()) {
            if seen[root] {
                continue;
            }
            is_exit[root] = true;
            seen[root] = true;
            let mut stack = vec![(root, 0)];
            while let Some((block, next)) = stack.last_mut() {
                let pred = preds[*block].get(*next).copied();
                *next += 1;
                match pred {
                    Some(pred) if !seen[pred] => {
                        seen[pred] = true;
                        stack.push((pred, 0));
                    }
                    Some(_) => {}
                    None => {
                        post.push(*block);
                        stack.pop();
                    }
                }
            }
        }
        post.reverse();
        let mut order: SecondaryMap<Block, u32> = SecondaryMap::new();
        for (index, &block) in post.iter().enumerate() {
            order[block] = index as u32 + 2;
        }
        let idom = immediate_dominators(post.len() + 1, |index| {
            let block = post[index - 1];
            let end = is_exit[block].then_some(1);
            function.successors(block).map(|succ| order[succ]).chain(end).collect::<Vec<_>>().into_iter()
        });
        PostDominators { order, blocks: post, idom }
    }

    /// Immediate post-dominator: the closest strict post-dominator. None if that is the exit.
    pub fn immediate(&self, block: Block) -> Option<Block> {
        self.block(self.idom[self.order[block] as usize])
    }

    /// Whether every path from `b` to the exit goes through `a`; a block post-dominates itself.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let mut next = Some(b);
        while let Some(block) = next {
            if block == a {
                return true;
            }
            next = self.immediate(block);
        }
        false
    }

    fn block(&self, order: u32) -> Option<Block> {
        (order as usize).checked_sub(2).map(|index| self.blocks[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse::parse;

    #[test]
    fn an_early_return_and_an_endless_loop() {
        let text = "kernel @k() {
block0:
  v0 = const.pred true
  branch v0, block1, block2
block1:
  branch v0, block3, block4
block2:
  branch v0, block3, block5
block3:
  return
block4:
  jump block3
block5:
  jump block5
}";
        let function = parse(text).unwrap();
        let post = PostDominators::new(&function);
        let block = Block::from_u32;
        let found: Vec<_> = (0..6).map(|n| post.immediate(block(n)).map(Block::as_u32)).collect();
        assert_eq!(found, [None, Some(3), None, None, Some(3), None]);
        assert!(post.dominates(block(3), block(4)) && !post.dominates(block(3), block(2)));
    }
}
