//! The dominator tree of the reachable blocks, by the iteration of Cooper, Harvey and Kennedy, "A Simple, Fast
//! Dominance Algorithm" (2001).

use cranelift_entity::SecondaryMap;

use super::{Block, Def, Function, Value};

#[derive(Clone, Copy, Default)]
struct Node {
    /// Position in reverse postorder, from 1; 0 if unreachable.
    order: u32,
    /// Position in reverse postorder of the immediate dominator; the entry block is its own.
    idom: u32,
    /// Entry and exit times of a depth-first walk of the dominator tree: `a` dominates `b` if its interval encloses
    /// that of `b`.
    enter: u32,
    exit: u32,
}

/// The dominator tree of a function's reachable blocks.
pub struct Dominators {
    nodes: SecondaryMap<Block, Node>,
    rpo: Vec<Block>,
    preorder: Vec<Block>,
}

impl Dominators {
    /// Computes the dominator tree; empty for a function without blocks.
    pub fn new(function: &Function) -> Dominators {
        let rpo = reverse_postorder(function);
        let mut nodes: SecondaryMap<Block, Node> = SecondaryMap::new();
        for (index, &block) in rpo.iter().enumerate() {
            nodes[block].order = index as u32 + 1;
        }
        let preds = function.predecessors();
        let idom =
            immediate_dominators(rpo.len(), |index| preds[rpo[index]].iter().map(|&pred| nodes[pred].order));
        for (index, &block) in rpo.iter().enumerate() {
            nodes[block].idom = idom[index + 1];
        }
        let preorder = number(&mut nodes, &rpo, &Children::new(&idom));
        Dominators { nodes, rpo, preorder }
    }

    /// The reachable blocks in reverse postorder, the entry first.
    pub fn reverse_postorder(&self) -> &[Block] {
        &self.rpo
    }

    /// The reachable blocks in depth-first preorder of the dominator tree: every subtree is contiguous.
    pub fn preorder(&self) -> &[Block] {
        &self.preorder
    }

    /// Whether the block is reachable from the entry.
    pub fn is_reachable(&self, block: Block) -> bool {
        self.nodes[block].order != 0
    }

    /// The block's position in reverse postorder, from 1; 0 if unreachable.
    pub fn order(&self, block: Block) -> u32 {
        self.nodes[block].order
    }

    /// Immediate dominator: the closest strict dominator. None for the entry and for unreachable blocks.
    pub fn immediate(&self, block: Block) -> Option<Block> {
        let node = self.nodes[block];
        (node.order > 1).then(|| self.rpo[node.idom as usize - 1])
    }

    /// Whether every path from the entry to `b` goes through `a`; a block dominates itself.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let (outer, inner) = (self.nodes[a], self.nodes[b]);
        outer.order != 0 && inner.order != 0 && outer.enter <= inner.enter && inner.exit <= outer.exit
    }
}

/// The block that contains the definition of a value, if `blocks` has one for it.
pub fn defining_block(function: &Function, blocks: &InstBlocks, value: Value) -> Option<Block> {
    match function.value_def(value) {
        Def::Param(block, _) => Some(block),
        Def::Result(inst, _) => blocks[inst],
    }
}

/// The block that contains each instruction.
pub type InstBlocks = SecondaryMap<super::Inst, Option<Block>>;

/// Computes the block of each instruction in the layout.
pub fn inst_blocks(function: &Function) -> InstBlocks {
    let mut blocks = SecondaryMap::new();
    for &block in &function.layout {
        for &inst in &function.block(block).insts {
            blocks[inst] = Some(block);
        }
    }
    blocks
}

/// Immediate dominator of every node of a graph whose nodes are numbered from 1 in reverse postorder; the first node is
/// its own. `preds` returns the predecessors of node `index + 1`; an unreachable predecessor is 0.
pub(crate) fn immediate_dominators<I: Iterator<Item = u32>>(
    nodes: usize,
    preds: impl Fn(usize) -> I,
) -> Vec<u32> {
    let mut idom = vec![0u32; nodes + 1];
    if nodes > 0 {
        idom[1] = 1;
    }
    let mut changed = true;
    while changed {
        changed = false;
        for index in 1..nodes {
            let known = preds(index).filter(|&pred| idom[pred as usize] != 0);
            let new = known.reduce(|a, b| intersect(&idom, a, b)).unwrap_or(0);
            if idom[index + 1] != new {
                idom[index + 1] = new;
                changed = true;
            }
        }
    }
    idom
}

fn intersect(idom: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        if a > b {
            a = idom[a as usize];
        } else {
            b = idom[b as usize];
        }
    }
    a
}

fn reverse_postorder(function: &Function) -> Vec<Block> {
    let Some(&entry) = function.layout.first() else { return Vec::new() };
    let mut seen: SecondaryMap<Block, bool> = SecondaryMap::new();
    let mut post = Vec::new();
    let mut stack = vec![(entry, 0)];
    seen[entry] = true;
    while let Some((block, next)) = stack.last_mut() {
        let successor = function.successors(*block).nth(*next);
        *next += 1;
        match successor {
            Some(successor) if !seen[successor] => {
                seen[successor] = true;
                stack.push((successor, 0));
            }
            Some(_) => {}
            None => {
                post.push(*block);
                stack.pop();
            }
        }
    }
    post.reverse();
    post
}

/// Children of the nodes of a dominator tree, as linked lists in ascending order; 0 ends a list.
struct Children {
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Children {
    /// The children by the immediate dominator of each node, numbered from 1.
    fn new(idom: &[u32]) -> Children {
        let mut children = Children { first: vec![0; idom.len()], next: vec![0; idom.len()] };
        for node in (2..idom.len()).rev() {
            let parent = idom[node] as usize;
            children.next[node] = children.first[parent];
            children.first[parent] = node as u32;
        }
        children
    }
}

/// Sets every node's entry and exit time and returns the blocks in preorder.
fn number(nodes: &mut SecondaryMap<Block, Node>, rpo: &[Block], children: &Children) -> Vec<Block> {
    let mut preorder = Vec::with_capacity(rpo.len());
    let mut time = 0;
    // The nodes on the path from the root, each with its next child.
    let mut stack: Vec<(u32, u32)> = Vec::new();
    let mut entered = u32::from(!rpo.is_empty());
    loop {
        if entered != 0 {
            let block = rpo[entered as usize - 1];
            preorder.push(block);
            nodes[block].enter = time;
            time += 1;
            stack.push((entered, children.first[entered as usize]));
        }
        let Some((order, child)) = stack.last_mut() else { return preorder };
        entered = *child;
        if entered == 0 {
            nodes[rpo[*order as usize - 1]].exit = time;
            stack.pop();
        } else {
            *child = children.next[entered as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse::parse;

    #[test]
    fn a_loop_with_a_diamond() {
        let text = "kernel @k() {
block0:
  jump block1
block1:
  v0 = const.pred true
  branch v0, block2, block5
block2:
  branch v0, block3, block4
block3:
  jump block4
block4:
  jump block1
block5:
  return
}";
        let function = parse(text).unwrap();
        let doms = Dominators::new(&function);
        let block = |n| Block::from_u32(n);
        let idoms: Vec<_> = (0..6).map(|n| doms.immediate(block(n)).map(|b| b.as_u32())).collect();
        assert_eq!(idoms, [None, Some(0), Some(1), Some(2), Some(2), Some(1)]);
        assert!(doms.dominates(block(1), block(4)) && doms.dominates(block(4), block(4)));
        assert!(!doms.dominates(block(3), block(4)) && !doms.dominates(block(2), block(5)));
    }
}
