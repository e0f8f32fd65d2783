//! Control-flow graph and reconvergence points of a function.

use crate::load::ast::{Function, Instruction};

/// Control-flow graph: basic blocks in the order of the text.
#[derive(Debug)]
pub(crate) struct Cfg {
    pub(crate) blocks: Vec<Block>,
    /// Index of the block that contains each instruction.
    pub(crate) block_of: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) successors: Vec<u32>,
    pub(crate) predecessors: Vec<u32>,
    /// Index of the instruction where lanes that diverge at the end of this block reconverge; `None` if they do not
    /// reconverge before they exit.
    pub(crate) reconvergence: Option<usize>,
}

/// Whether the instruction ends the thread or returns from the function.
fn exits(opcode: &str) -> bool {
    matches!(opcode, "ret" | "exit" | "trap")
}

/// Whether the instruction of a kernel, into which calls have been inlined, ends the thread.
pub(crate) fn exits_always(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "ret" | "exit") && instruction.guard.is_none()
}

/// Largest number of blocks that the search of the main exit visits: of many exits, the last ones are compared.
const MAX_SEARCHED: usize = 1 << 24;

impl Cfg {
    /// Builds the control-flow graph. `targets[i]` is the target of instruction `i` if it is a branch.
    pub(crate) fn build(function: &Function, targets: &[Option<usize>]) -> Cfg {
        let body = &function.body;
        let mut leader = vec![false; body.len() + 1];
        leader[0] = true;
        for (at, target) in targets.iter().enumerate() {
            let ends = target.is_some() || exits(&body[at].opcode) && body[at].guard.is_none();
            leader[at + 1] |= ends;
            if let Some(target) = target {
                leader[*target] = true;
            }
        }
        let mut blocks: Vec<Block> = Vec::new();
        let mut block_of = Vec::with_capacity(body.len());
        for (at, &leads) in leader.iter().enumerate().take(body.len()) {
            if leads {
                blocks.push(Block {
                    start: at,
                    end: at,
                    successors: Vec::new(),
                    predecessors: Vec::new(),
                    reconvergence: None,
                });
            }
            let last = blocks.len() - 1;
            blocks[last].end = at + 1;
            block_of.push(last as u32);
        }
        for index in 0..blocks.len() {
            let last = blocks[index].end - 1;
            let unguarded = body[last].guard.is_none();
            let mut successors = Vec::new();
            if let Some(target) = targets[last] {
                successors.push(block_of[target]);
            }
            let falls_through = !(unguarded && (targets[last].is_some() || exits(&body[last].opcode)));
            if falls_through && index + 1 < blocks.len() && !successors.contains(&(index as u32 + 1)) {
                successors.push(index as u32 + 1);
            }
            for &successor in &successors {
                blocks[successor as usize].predecessors.push(index as u32);
            }
            blocks[index].successors = successors;
        }
        let mut cfg = Cfg { blocks, block_of };
        cfg.find_reconvergence();
        cfg
    }

    /// Finds the reconvergence points: the immediate post-dominators with respect to the exit that can be reached from
    /// most blocks. Lanes that leave by another exit do not return, so the remaining lanes need not wait for them.
    fn find_reconvergence(&mut self) {
        let exits = (0..self.blocks.len()).rev().filter(|&index| self.blocks[index].successors.is_empty());
        let most = (MAX_SEARCHED / self.blocks.len()).max(1);
        let exits = exits.take(most);
        let Some(main) = exits.max_by_key(|&exit| (self.reach_backwards(exit).len(), exit)) else { return };
        // Post-order of the reversed graph, starting at the main exit.
        let order = self.reach_backwards(main);
        let mut rank = vec![usize::MAX; self.blocks.len()];
        for (position, &block) in order.iter().enumerate() {
            rank[block] = position;
        }
        let mut idom = vec![usize::MAX; self.blocks.len()];
        idom[main] = main;
        let mut changed = true;
        while changed {
            changed = false;
            for &block in order.iter().rev().filter(|&&block| block != main) {
                let mut new = usize::MAX;
                for &successor in &self.blocks[block].successors {
                    let successor = successor as usize;
                    if idom[successor] == usize::MAX {
                        continue;
                    }
                    new = if new == usize::MAX { successor } else { meet(new, successor, &idom, &rank) };
                }
                if new != usize::MAX && idom[block] != new {
                    idom[block] = new;
                    changed = true;
                }
            }
        }
        for (block, &idom) in idom.iter().enumerate() {
            if block != main && idom != usize::MAX {
                self.blocks[block].reconvergence = Some(self.blocks[idom].start);
            }
        }
    }

    /// Blocks from which `exit` can be reached, in post-order of the reversed graph.
    fn reach_backwards(&self, exit: usize) -> Vec<usize> {
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::new();
        let mut stack = vec![(exit, 0)];
        seen[exit] = true;
        while let Some((block, next)) = stack.pop() {
            match self.blocks[block].predecessors.get(next) {
                Some(&predecessor) => {
                    stack.push((block, next + 1));
                    let predecessor = predecessor as usize;
                    if !seen[predecessor] {
                        seen[predecessor] = true;
                        stack.push((predecessor, 0));
                    }
                }
                None => order.push(block),
            }
        }
        order
    }
}

/// Nearest common post-dominator of two blocks (`intersect` of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance
/// Algorithm").
fn meet(mut a: usize, mut b: usize, idom: &[usize], rank: &[usize]) -> usize {
    while a != b {
        while rank[a] < rank[b] {
            a = idom[a];
        }
        while rank[b] < rank[a] {
            b = idom[b];
        }
    }
    a
}
