//! Dominators of the blocks recorded so far.
//!
//! A block's immediate dominator is known when recording continues in the block: all forward edges to a block are
//! recorded before, and later edges are back edges, whose sources the block dominates.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

use crate::ir::Block;

#[derive(Clone, Copy, Default)]
struct Node {
    /// Immediate dominator; the entry block is its own.
    parent: PackedOption<Block>,
    /// A dominator further up, chosen so that any dominator is found in a logarithmic number of steps.
    jump: PackedOption<Block>,
    depth: u32,
    /// Whether recording has continued in the block, so that its immediate dominator is final.
    started: bool,
}

/// The dominator tree of the blocks that recording has reached.
pub(super) struct DominatorTree(SecondaryMap<Block, Node>);

impl DominatorTree {
    /// The tree of a kernel with only an entry block.
    pub fn new(entry: Block) -> DominatorTree {
        let mut nodes = SecondaryMap::new();
        nodes[entry] = Node { parent: entry.into(), jump: entry.into(), depth: 0, started: true };
        DominatorTree(nodes)
    }

    /// Whether a path from the entry to `block` has been recorded.
    pub fn is_reached(&self, block: Block) -> bool {
        self.0[block].parent.is_some()
    }

    /// Adds the edge from a block in which recording has started to `to`. An edge from an unreachable block changes
    /// nothing.
    pub fn add_edge(&mut self, from: Block, to: Block) {
        if !self.is_reached(from) || self.0[to].started {
            return;
        }
        let parent = match self.0[to].parent.expand() {
            Some(other) => self.common(other, from),
            None => from,
        };
        self.0[to].parent = parent.into();
    }

    /// Records that recording continues in `block`: its immediate dominator is final.
    pub fn start(&mut self, block: Block) {
        let node = self.0[block];
        if let Some(parent) = node.parent.expand().filter(|_| !node.started) {
            let up = self.jump(parent);
            let further = self.jump(up);
            let equal_steps = self.depth(parent) - self.depth(up) == self.depth(up) - self.depth(further);
            self.0[block].jump = if equal_steps { further } else { parent }.into();
            self.0[block].depth = self.depth(parent) + 1;
        }
        self.0[block].started = true;
    }

    /// Whether every path from the entry to `b` goes through `a`. Both are reached.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        self.is_reached(a) && self.ancestor(b, self.depth(a)) == a
    }

    /// The closest block that dominates `a` and `b`.
    fn common(&self, a: Block, b: Block) -> Block {
        let depth = self.depth(a).min(self.depth(b));
        let (mut a, mut b) = (self.ancestor(a, depth), self.ancestor(b, depth));
        while a != b {
            let (up_a, up_b) = (self.jump(a), self.jump(b));
            (a, b) = if up_a != up_b { (up_a, up_b) } else { (self.parent(a), self.parent(b)) };
        }
        a
    }

    /// The dominator of `block` at `depth`; `block` itself if it is not deeper.
    fn ancestor(&self, mut block: Block, depth: u32) -> Block {
        while self.depth(block) > depth {
            let up = self.jump(block);
            block = if self.depth(up) >= depth { up } else { self.parent(block) };
        }
        block
    }

    fn depth(&self, block: Block) -> u32 {
        self.0[block].depth
    }

    fn parent(&self, block: Block) -> Block {
        self.0[block].parent.expand().expect("a reached block has a dominator")
    }

    fn jump(&self, block: Block) -> Block {
        self.0[block].jump.expand().expect("recording has started in a dominator")
    }
}
