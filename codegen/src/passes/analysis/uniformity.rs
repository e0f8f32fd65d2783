//! Uniformity analysis: which values are the same in all threads of a CTA or in all lanes of a warp.
//!
//! Sources of divergence are the thread index, loads from different addresses, and control flow. Where the two sides of
//! a divergent branch join, a block parameter that receives different values is as divergent as the branch condition;
//! so is a value that is used after a loop which threads leave in different iterations. Conditions that depend on the
//! thread index alone are exact ([`super::threads`]): `tid.x / 32` is warp-uniform.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};

use super::postdominators::PostDominators;
use super::threads::{ThreadValues, WARP};
use super::{Dominators, defining_block, inst_blocks};
use crate::ir::{
    Access, Binary, Block, Cache, Callee, Function, InstData, Match, Op, Predecessors, Shuffle, Special,
    Type, Value,
};

/// Set of threads in which a value is the same, strongest level first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// All threads of the CTA: CTA-uniform.
    #[default]
    Cta,
    /// The lanes of each warp: warp-uniform.
    Warp,
    /// Only the thread itself: the value may differ from thread to thread.
    Thread,
}

/// Uniformity of each value of a function. Valid until the function changes.
pub struct Uniformity {
    values: SecondaryMap<Value, Level>,
}

impl Uniformity {
    /// Runs the uniformity analysis.
    pub fn new(function: &Function) -> Uniformity {
        // Threads may call a function with different values.
        let params = if function.results.is_some() { Level::Thread } else { Level::Cta };
        Uniformity { values: Solver::solve(function, &function.functions, params) }
    }

    /// Uniformity of the value.
    pub fn of(&self, value: Value) -> Level {
        self.values[value]
    }
}

/// Uniformity of the results of a function that all threads of the CTA call with the same values.
fn results(function: &Function, callees: &[Function]) -> Level {
    let values = Solver::solve(function, callees, Level::Cta);
    let insts = function.layout.iter().flat_map(|&block| &function.block(block).insts);
    let data = insts.map(|&inst| function.inst(inst)).filter(|data| matches!(data.op, Op::Result(_)));
    data.map(|data| values[data.args[0]]).max().unwrap_or_default()
}

struct Solver<'a> {
    function: &'a Function,
    /// Functions that the analysed function may call.
    callees: &'a [Function],
    /// Uniformity of the results of the callees seen so far, by name, if the arguments are the same in all threads.
    results: FxHashMap<&'a str, Level>,
    /// Uniformity of the parameters.
    params: Level,
    post: PostDominators,
    preds: Predecessors,
    threads: Option<ThreadValues<'a>>,
    values: SecondaryMap<Value, Level>,
    /// For every block, the uniformity of the branches whose sides join at the block.
    joins: SecondaryMap<Block, Level>,
    /// For every block, the uniformity found so far of the branch that ends it.
    divergent: SecondaryMap<Block, Level>,
}

impl<'a> Solver<'a> {
    fn solve(function: &'a Function, callees: &'a [Function], params: Level) -> SecondaryMap<Value, Level> {
        let mut solver = Solver {
            function,
            callees,
            results: FxHashMap::default(),
            params,
            post: PostDominators::new(function),
            preds: function.predecessors(),
            threads: ThreadValues::new(function),
            values: SecondaryMap::new(),
            joins: SecondaryMap::new(),
            divergent: SecondaryMap::new(),
        };
        let order = Dominators::new(function).reverse_postorder().to_vec();
        while solver.sweep(&order) {}
        solver.values
    }

    /// Uniformity of the results of the function that is called, if the arguments are the same in all threads.
    fn called(&mut self, callee: Callee) -> Level {
        let name = callee.signature().name.as_str();
        let Some(at) = self.callees.iter().position(|known| known.name == name) else { return Level::Thread };
        let callees = &self.callees[..at];
        *self.results.entry(name).or_insert_with(|| results(&self.callees[at], callees))
    }

    /// Visits every instruction once; returns whether the level of any value was weakened.
    fn sweep(&mut self, order: &[Block]) -> bool {
        let function = self.function;
        let mut changed = false;
        for &block in order {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                if data.op == Op::Branch {
                    let level = self.values[data.args[0]];
                    if level > self.divergent[block] {
                        self.divergent[block] = level;
                        self.join_sides(block, level);
                        changed = true;
                    }
                }
                if !data.results.is_empty() {
                    let level = self.level(data);
                    for &result in &data.results {
                        changed |= self.weaken(result, level);
                    }
                }
                for dest in &data.dests {
                    let join = self.joins[dest.block];
                    for (&param, &arg) in function.block(dest.block).params.iter().zip(&dest.args) {
                        let level = self.values[arg].max(join);
                        changed |= self.weaken(param, level);
                    }
                }
            }
        }
        changed
    }

    fn weaken(&mut self, value: Value, level: Level) -> bool {
        let weaker = level > self.values[value];
        if weaker {
            self.values[value] = level;
        }
        weaker
    }

    /// Uniformity of an instruction's results, from its operands.
    fn level(&mut self, data: &InstData) -> Level {
        let args = data.args.iter().map(|&arg| self.values[arg]).max().unwrap_or_default();
        match data.op {
            Op::Param(_) => self.params,
            Op::Call(callee) => args.max(self.called(callee)),
            Op::Special(special) => match special {
                // A line of threads along x has one index along y and z; in other CTAs a warp may be in one row.
                Special::TidY | Special::TidZ if self.threads.is_some() => {
                    self.exact(data.results[0]).unwrap_or(Level::Thread)
                }
                Special::TidX | Special::TidY | Special::TidZ | Special::LaneId => Level::Thread,
                special if special.is_volatile() => Level::Thread,
                _ => Level::Cta,
            },
            // Warps execute a load at different times; lanes execute it together.
            Op::Load(access) => args.max(match self.function.value_type(data.args[0]) {
                // Each thread has its own data at one address.
                Type::Local => Level::Thread,
                Type::Constant => Level::Cta,
                _ => loaded(access),
            }),
            // With a partial mask, lanes of a warp may get different results.
            Op::Vote(_) | Op::Reduce(_) | Op::Match(Match::All) if self.all_lanes(data.args[1]) => {
                Level::Warp
            }
            Op::Shuffle(Shuffle::Idx) if self.all_lanes(data.args[3]) => {
                let source = self.values[data.args[1]].max(self.values[data.args[2]]);
                if source <= Level::Warp {
                    self.values[data.args[0]].min(Level::Warp).max(source)
                } else {
                    args
                }
            }
            Op::Shuffle(_) => args,
            // Inline PTX may read registers such as the lane index.
            op if !op.is_pure() || op.is_convergent() || matches!(op, Op::Inline(_)) => Level::Thread,
            Op::Binary(Binary::Shr | Binary::Div | Binary::And) | Op::Compare(_) | Op::BitField
                if args == Level::Thread =>
            {
                self.exact(data.results[0]).unwrap_or(args)
            }
            _ => args,
        }
    }

    fn all_lanes(&self, mask: Value) -> bool {
        self.function.constant(mask) == Some(u32::MAX.into())
    }

    /// Exact uniformity of a value that depends on the thread index alone.
    fn exact(&mut self, value: Value) -> Option<Level> {
        let bits = self.threads.as_mut()?.of(value)?;
        let same = |bits: &[u64]| bits.iter().all(|&other| other == bits[0]);
        Some(match () {
            () if same(&bits) => Level::Cta,
            () if bits.chunks(WARP).all(same) => Level::Warp,
            () => Level::Thread,
        })
    }

    /// Marks the blocks where the sides of the divergent branch at the end of `block` join.
    fn join_sides(&mut self, block: Block, level: Level) {
        let function = self.function;
        let join = self.post.immediate(block);
        let mut sides = FxHashSet::default();
        let mut work: Vec<Block> = function.successors(block).collect();
        while let Some(next) = work.pop() {
            if self.preds[next].len() > 1 {
                self.joins[next] = self.joins[next].max(level);
            }
            if Some(next) != join && sides.insert(next) {
                work.extend(function.successors(next));
            }
        }
        if sides.contains(&block) {
            self.leave_loop(&sides, level);
        }
    }

    /// Weakens the values of a loop that are used after it, since threads leave the loop in different iterations.
    fn leave_loop(&mut self, sides: &FxHashSet<Block>, level: Level) {
        let function = self.function;
        let blocks = inst_blocks(function);
        for &block in function.layout.iter().filter(|block| !sides.contains(block)) {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                for &value in data.args.iter().chain(data.dests.iter().flat_map(|dest| &dest.args)) {
                    let inside = defining_block(function, &blocks, value);
                    if inside.is_some_and(|block| sides.contains(&block))
                        && function.constant(value).is_none()
                    {
                        self.weaken(value, level);
                    }
                }
            }
        }
    }
}

/// Uniformity of the result of loading from one address.
fn loaded(access: Access) -> Level {
    match access.cache {
        Cache::Volatile => Level::Thread,
        _ if access.ordering.is_some() => Level::Thread,
        Cache::ReadOnly | Cache::ReadOnlyStreaming => Level::Cta,
        _ => Level::Warp,
    }
}
