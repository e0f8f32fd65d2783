//! Which values all threads of a CTA, or all lanes of a warp, agree on wherever they compute them together.
//!
//! Threads differ by their index, by what they load from different places, and by what they were when they parted:
//! where the two ways of a branch meet, a parameter that they give different values differs as much as the branch's
//! condition did, and so does a value that leaves a loop which threads leave at different times. Conditions that
//! depend on the thread's index alone are exact ([`super::threads`]): `tid.x / 32` is one number a warp.

use std::collections::HashSet;

use cranelift_entity::SecondaryMap;

use super::postdominators::PostDominators;
use super::threads::{ThreadValues, WARP};
use super::{Dominators, defining_block, inst_blocks};
use crate::ir::{Access, Binary, Block, Cache, Function, InstData, Match, Op, Shuffle, Special, Value};

/// Who agrees on a value, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agreement {
    /// All threads of the CTA.
    #[default]
    Cta,
    /// The lanes of each warp.
    Warp,
    /// Nobody.
    Thread,
}

/// Who agrees on each value of a function. Valid until the function changes.
pub struct Uniformity {
    values: SecondaryMap<Value, Agreement>,
}

impl Uniformity {
    /// Computes it.
    pub fn new(function: &Function) -> Uniformity {
        let mut solver = Solver {
            function,
            post: PostDominators::new(function),
            preds: function.predecessors(),
            threads: ThreadValues::new(function),
            values: SecondaryMap::new(),
            joins: SecondaryMap::new(),
            parted: SecondaryMap::new(),
        };
        let order = Dominators::new(function).reverse_postorder().to_vec();
        while solver.sweep(&order) {}
        Uniformity { values: solver.values }
    }

    /// Who agrees on the value.
    pub fn of(&self, value: Value) -> Agreement {
        self.values[value]
    }
}

struct Solver<'a> {
    function: &'a Function,
    post: PostDominators,
    preds: SecondaryMap<Block, Vec<Block>>,
    threads: Option<ThreadValues<'a>>,
    values: SecondaryMap<Value, Agreement>,
    /// For every block, who may come to it by different ways.
    joins: SecondaryMap<Block, Agreement>,
    /// For every block, the threads that its branch is known to part.
    parted: SecondaryMap<Block, Agreement>,
}

impl Solver<'_> {
    /// Visits every instruction once; tells whether anything was weakened.
    fn sweep(&mut self, order: &[Block]) -> bool {
        let function = self.function;
        let mut changed = false;
        for &block in order {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                if data.op == Op::Branch {
                    let parts = self.values[data.args[0]];
                    if parts > self.parted[block] {
                        self.parted[block] = parts;
                        self.part(block, parts);
                        changed = true;
                    }
                }
                if !data.results.is_empty() {
                    let level = self.agreement(data);
                    for &result in &data.results {
                        changed |= self.weaken(result, level);
                    }
                }
                for dest in &data.dests {
                    let meets = self.joins[dest.block];
                    for (&param, &arg) in function.block(dest.block).params.iter().zip(&dest.args) {
                        let level = self.values[arg].max(meets);
                        changed |= self.weaken(param, level);
                    }
                }
            }
        }
        changed
    }

    fn weaken(&mut self, value: Value, level: Agreement) -> bool {
        let weaker = level > self.values[value];
        if weaker {
            self.values[value] = level;
        }
        weaker
    }

    /// Who agrees on the results, by the operands.
    fn agreement(&mut self, data: &InstData) -> Agreement {
        let args = data.args.iter().map(|&arg| self.values[arg]).max().unwrap_or_default();
        match data.op {
            Op::Special(special) => match special {
                Special::TidY | Special::TidZ if self.threads.is_some() => Agreement::Cta,
                Special::TidX | Special::TidY | Special::TidZ | Special::LaneId => Agreement::Thread,
                special if special.is_volatile() => Agreement::Thread,
                _ => Agreement::Cta,
            },
            // Warps load at different times; lanes at the same.
            Op::Load(access) => args.max(loaded(access)),
            // Full masks are the only ones that the lanes of a warp need not agree on besides.
            Op::Vote(_) | Op::Reduce(_) | Op::Match(Match::All) if self.all_lanes(data.args[1]) => {
                Agreement::Warp
            }
            Op::Shuffle(Shuffle::Idx) if self.all_lanes(data.args[3]) => {
                let source = self.values[data.args[1]].max(self.values[data.args[2]]);
                if source <= Agreement::Warp {
                    self.values[data.args[0]].min(Agreement::Warp).max(source)
                } else {
                    args
                }
            }
            Op::Shuffle(_) => args,
            op if !op.is_pure() || op.is_convergent() => Agreement::Thread,
            Op::Binary(Binary::Shr | Binary::Div | Binary::And) | Op::Compare(_) | Op::BitField
                if args == Agreement::Thread =>
            {
                self.exact(data.results[0]).unwrap_or(args)
            }
            _ => args,
        }
    }

    fn all_lanes(&self, mask: Value) -> bool {
        self.function.constant(mask) == Some(u32::MAX.into())
    }

    /// Who agrees on a value that follows from the thread's index.
    fn exact(&mut self, value: Value) -> Option<Agreement> {
        let bits = self.threads.as_mut()?.of(value)?;
        let same = |bits: &[u64]| bits.iter().all(|&other| other == bits[0]);
        Some(match () {
            () if same(&bits) => Agreement::Cta,
            () if bits.chunks(WARP).all(same) => Agreement::Warp,
            () => Agreement::Thread,
        })
    }

    /// The branch at the end of a block parts threads: they come by different ways to where its ways meet.
    fn part(&mut self, block: Block, parts: Agreement) {
        let function = self.function;
        let meet = self.post.immediate(block);
        let mut ways = HashSet::new();
        let mut work: Vec<Block> = function.successors(block).collect();
        while let Some(next) = work.pop() {
            if self.preds[next].len() > 1 {
                self.joins[next] = self.joins[next].max(parts);
            }
            if Some(next) != meet && ways.insert(next) {
                work.extend(function.successors(next));
            }
        }
        if ways.contains(&block) {
            self.leave_loop(&ways, parts);
        }
    }

    /// Threads leave the loop at different times, and with what it last computed.
    fn leave_loop(&mut self, ways: &HashSet<Block>, parts: Agreement) {
        let function = self.function;
        let blocks = inst_blocks(function);
        for &block in function.layout.iter().filter(|block| !ways.contains(block)) {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                for &value in data.args.iter().chain(data.dests.iter().flat_map(|dest| &dest.args)) {
                    let inside = defining_block(function, &blocks, value);
                    if inside.is_some_and(|block| ways.contains(&block)) && function.constant(value).is_none()
                    {
                        self.weaken(value, parts);
                    }
                }
            }
        }
    }
}

/// Who agrees on what is loaded from one place.
fn loaded(access: Access) -> Agreement {
    match access.cache {
        Cache::Volatile => Agreement::Thread,
        _ if access.ordering.is_some() => Agreement::Thread,
        Cache::ReadOnly | Cache::ReadOnlyStreaming => Agreement::Cta,
        _ => Agreement::Warp,
    }
}
