//! Barriers and operations of a whole warp that some of the threads that they wait for never come to.
//!
//! Only what is certain is reported. A branch counts if its condition follows from the thread's index alone
//! ([`ThreadValues`]), so that it parts the same threads at each visit; threads that go the same way at all such
//! branches form a class, which has a control flow graph of its own. An operation is wrong if a branch sends one class to
//! it and another, whose threads it waits for, to where that class cannot come to it any more:
//!
//! - the lanes of a warp, where the operation is of the kind that all of them execute together; a comparison of the lane
//!   with a number that the warp agrees on ([`Uniformity`]) sends one lane at most, whatever the number is;
//! - any threads, at a barrier of the whole CTA, unless they may meet there by another barrier of the same number, as
//!   warps with different tasks do.
//!
//! Barriers of fewer threads than the CTA has are for warps that part, and so are legal in such a branch.

use std::collections::{HashMap, HashSet};
use std::fmt;

use cranelift_entity::EntitySet;

use super::analysis::Dominators;
use super::analysis::postdominators::PostDominators;
use super::analysis::threads::{ThreadValues, WARP};
use super::analysis::uniformity::{Agreement, Uniformity};
use super::{Cleanup, Pass, Unreachable};
use crate::ir::{Block, Compare, Function, InstData, Loc, Op, Value};

/// Operations that not all of the threads that they wait for come to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", messages(.kernel, .operations))]
pub struct NonUniform {
    /// The kernel.
    pub kernel: String,
    /// The operations, at least one.
    pub operations: Vec<Parted>,
}

/// An operation that a branch keeps some threads from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// What it is, as PTX names it.
    pub operation: &'static str,
    /// Whom it waits for.
    pub members: Members,
    /// Where it is, as `file:line:column`, and in what functions that were inlined there.
    pub place: String,
    /// Where the branch is.
    pub branch: String,
    /// A thread that comes to the operation and one that does not; none if that depends on what one lane of each warp,
    /// at most, is chosen by.
    pub example: Option<(u32, u32)>,
    /// How many threads come to it, if they are whole warps.
    pub whole_warps: Option<u32>,
}

/// Whom an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// All threads of the CTA.
    Cta,
    /// All lanes of the warp.
    Warp,
    /// The lanes of a mask that have not exited.
    Lanes(u32),
}

fn messages(kernel: &str, operations: &[Parted]) -> String {
    let operations: Vec<String> = operations.iter().map(|operation| operation.to_string()).collect();
    format!("kernel {kernel}: {}", operations.join("\n"))
}

impl fmt::Display for Parted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parted { operation, place, branch, .. } = self;
        let members = match self.members {
            Members::Cta => "all threads of the CTA",
            Members::Warp => "all lanes of the warp",
            Members::Lanes(_) => "the lanes of its mask",
        };
        writeln!(f, "{place}: `{operation}` is for {members}, but not all of them come to it")?;
        match self.example {
            Some((comes, misses)) => writeln!(
                f,
                "  {branch}: this condition sends thread {comes} to it, and thread {misses} another way"
            )?,
            None => writeln!(f, "  {branch}: this condition sends at most one lane of each warp to it")?,
        }
        f.write_str("  help: ")?;
        match (self.members, self.whole_warps) {
            (Members::Cta, Some(threads)) => write!(
                f,
                "put it behind the branch, or let the {threads} threads that come to it meet at a barrier of their \
                 own: `named_barrier(1, {threads})`"
            ),
            (Members::Cta, None) => f.write_str("put it behind the branch, where all threads come"),
            (Members::Warp, _) if operation.starts_with("bar") => f.write_str(
                "put it behind the branch, or branch by `warp_index()`: the threads of a barrier are whole warps",
            ),
            (Members::Warp | Members::Lanes(_), _) => f.write_str(
                "put it in front of the branch; lanes that have no use for the result may ignore it",
            ),
        }
    }
}

/// Looks for operations that some of their threads never come to.
pub fn check(function: &Function) -> Result<(), NonUniform> {
    // The recorder makes parameters of all variables that a branch may assign, also where it does not.
    let mut cleaned = function.clone();
    Unreachable.run(&mut cleaned);
    Cleanup.run(&mut cleaned);
    check_cleaned(&cleaned)
}

fn check_cleaned(function: &Function) -> Result<(), NonUniform> {
    let Some(values) = ThreadValues::new(function) else { return Ok(()) };
    let sites = sites(function);
    if sites.is_empty() {
        return Ok(());
    }
    let (flow, choices) = Flow::new(function, values);
    let doms = Dominators::new(function);
    let post = PostDominators::new(function);
    let known = flow.branches.iter().map(|branch| (branch.block, flow.parted(&post, branch, &sites)));
    let chosen = choices.iter().map(|choice| (choice.block, flow.one_lane(&doms, &post, choice, &sites)));
    // Of several branches the last before the operation is the one to name.
    let mut found: HashMap<usize, (u32, Parted)> = HashMap::new();
    for (block, parted) in known.chain(chosen) {
        let order = doms.order(block);
        for (index, parted) in parted {
            if found.get(&index).is_none_or(|&(earlier, _)| earlier < order) {
                found.insert(index, (order, parted));
            }
        }
    }
    let mut operations: Vec<(usize, Parted)> =
        found.into_iter().map(|(index, (_, parted))| (index, parted)).collect();
    if operations.is_empty() {
        return Ok(());
    }
    operations.sort_by_key(|&(index, _)| index);
    let mut operations: Vec<Parted> = operations.into_iter().map(|(_, parted)| parted).collect();
    // Unrolled loops and reductions have several operations at one place.
    operations.dedup();
    Err(NonUniform { kernel: function.name.clone(), operations })
}

/// An operation that threads execute together.
struct Site<'a> {
    block: Block,
    data: &'a InstData,
    members: Members,
}

impl Site<'_> {
    /// Whether threads at the one and threads at the other meet.
    fn meets(&self, other: &Site<'_>) -> bool {
        let number = |op| match op {
            Op::Barrier { id, .. } | Op::BarrierArrive { id, .. } => Some(id),
            _ => None,
        };
        match (number(self.data.op), number(other.data.op)) {
            (Some(a), Some(b)) => a == b,
            _ => self.data.op == other.data.op && self.members == other.members,
        }
    }
}

fn sites(function: &Function) -> Vec<Site<'_>> {
    let mut sites = Vec::new();
    for &block in &function.layout {
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            let mask = |index: usize| {
                let bits = data.args.get(index).and_then(|&mask| function.constant(mask));
                bits.map(|bits| Members::Lanes(bits as u32))
            };
            let members = match data.op {
                Op::Barrier { threads, .. } if threads == 0 || Some(threads) == function.threads => {
                    Some(Members::Cta)
                }
                Op::Barrier { .. } | Op::BarrierArrive { .. } | Op::Mma(_) | Op::LoadMatrix { .. } => {
                    Some(Members::Warp)
                }
                Op::WarpBarrier | Op::Elect => mask(0),
                Op::Vote(_) | Op::Match(_) | Op::Reduce(_) => mask(1),
                Op::Shuffle(_) => mask(3),
                _ => None,
            };
            sites.extend(members.map(|members| Site { block, data, members }));
        }
    }
    sites
}

/// A branch whose outcome is known for every thread.
struct Known {
    block: Block,
    loc: Option<Loc>,
    /// By thread, which of its two targets is taken.
    target: Vec<usize>,
}

/// A branch by whether the lane, or what differs from lane to lane, is a number that the warp agrees on.
struct Choice {
    block: Block,
    loc: Option<Loc>,
    /// The target that one lane of a warp at most goes to.
    target: usize,
}

/// Threads that take the same way at every known branch.
struct Class {
    threads: Vec<u32>,
    /// The blocks that they may come to.
    reach: EntitySet<Block>,
}

struct Flow<'a> {
    function: &'a Function,
    branches: Vec<Known>,
    by_block: HashMap<Block, usize>,
    classes: Vec<Class>,
}

impl<'a> Flow<'a> {
    /// And the branches whose outcome is not known, but sends one lane of a warp at most.
    fn new(function: &'a Function, mut values: ThreadValues<'a>) -> (Flow<'a>, Vec<Choice>) {
        let known = |&block: &Block| {
            let data = function.terminator(block);
            let bits = (data.op == Op::Branch).then(|| values.of(data.args[0]))??;
            let target = bits.iter().map(|&bit| usize::from(bit == 0)).collect();
            Some(Known { block, loc: data.loc, target })
        };
        let branches: Vec<Known> = function.layout.iter().filter_map(known).collect();
        let choices = choices(function, &mut values);
        let by_block = branches.iter().enumerate().map(|(index, branch)| (branch.block, index)).collect();
        let mut flow = Flow { function, branches, by_block, classes: Vec::new() };
        let mut classes: HashMap<Vec<usize>, usize> = HashMap::new();
        for thread in 0..function.threads.unwrap_or(0) {
            let ways = flow.branches.iter().map(|branch| branch.target[thread as usize]).collect();
            let class = *classes.entry(ways).or_insert(flow.classes.len());
            if class == flow.classes.len() {
                let reach = flow.reach(Some(thread), function.layout[0]);
                flow.classes.push(Class { threads: Vec::new(), reach });
            }
            flow.classes[class].threads.push(thread);
        }
        (flow, choices)
    }

    /// The blocks that a thread, or any if none is given, may come to from a block on, that one included.
    fn reach(&self, thread: Option<u32>, from: Block) -> EntitySet<Block> {
        let mut reach = EntitySet::new();
        let mut work = vec![from];
        while let Some(block) = work.pop() {
            if !reach.insert(block) {
                continue;
            }
            match (self.by_block.get(&block), thread) {
                (Some(&index), Some(thread)) => {
                    let target = self.branches[index].target[thread as usize];
                    work.push(self.function.terminator(block).dests[target].block);
                }
                _ => work.extend(self.function.successors(block)),
            }
        }
        reach
    }

    /// The operations that a branch keeps threads from, by their index in `sites`.
    fn parted(&self, post: &PostDominators, branch: &Known, sites: &[Site<'_>]) -> Vec<(usize, Parted)> {
        let here = self.classes.iter().filter(|class| class.reach.contains(branch.block));
        let mut ways: [Vec<Way<'_>>; 2] = [Vec::new(), Vec::new()];
        for class in here {
            let thread = class.threads[0];
            let target = branch.target[thread as usize];
            let next = self.function.terminator(branch.block).dests[target].block;
            ways[target].push(Way { threads: &class.threads, reach: self.reach(Some(thread), next) });
        }
        if ways.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (index, site) in sites.iter().enumerate() {
            for (ways, others) in [(&ways[0], &ways[1]), (&ways[1], &ways[0])] {
                let comes: Vec<_> = ways.iter().filter(|way| way.reach.contains(site.block)).collect();
                let misses = others.iter().filter(|way| !way.reach.contains(site.block));
                let pair = misses.flat_map(|other| comes.iter().map(move |way| (way, other))).find_map(
                    |(way, other)| {
                        let elsewhere = sites.iter().any(|twin| {
                            let common = post.dominates(twin.block, branch.block);
                            !common && site.meets(twin) && other.reach.contains(twin.block)
                        });
                        let ends_in_exit = post.immediate(branch.block).is_none();
                        let certain = Certain { members: site.members, elsewhere, ends_in_exit };
                        certain.pair(way.threads, other.threads)
                    },
                );
                if pair.is_none() {
                    continue;
                }
                found.push((
                    index,
                    Parted {
                        operation: name(site.data.op),
                        members: site.members,
                        place: place(self.function, site.data.loc),
                        branch: place(self.function, branch.loc),
                        example: pair,
                        whole_warps: whole_warps(comes.iter().flat_map(|way| way.threads).copied()),
                    },
                ));
            }
        }
        found
    }

    /// The operations that a choice lets one lane of a warp come to, by their index in `sites`.
    fn one_lane(
        &self,
        doms: &Dominators,
        post: &PostDominators,
        choice: &Choice,
        sites: &[Site<'_>],
    ) -> Vec<(usize, Parted)> {
        let dests = &self.function.terminator(choice.block).dests;
        let (chosen, others) = (dests[choice.target].block, dests[1 - choice.target].block);
        let reach = self.reach(None, others);
        let certain = |site: &Site<'_>| {
            let alone = doms.dominates(chosen, site.block) && !reach.contains(site.block);
            let meets = |twin: &Site<'_>| site.meets(twin) && reach.contains(twin.block);
            alone
                && match site.members {
                    Members::Warp | Members::Cta => true,
                    Members::Lanes(mask) => {
                        let exits = post.immediate(choice.block).is_none();
                        let elsewhere = sites.iter().any(meets);
                        mask == u32::MAX && !exits && !elsewhere
                    }
                }
        };
        let parted = |(index, site): (usize, &Site<'_>)| {
            certain(site).then(|| {
                let parted = Parted {
                    operation: name(site.data.op),
                    members: site.members,
                    place: place(self.function, site.data.loc),
                    branch: place(self.function, choice.loc),
                    example: None,
                    whole_warps: None,
                };
                (index, parted)
            })
        };
        sites.iter().enumerate().filter_map(parted).collect()
    }
}

/// The branches that send one lane of a warp at most one way, which lane is not known.
fn choices(function: &Function, values: &mut ThreadValues<'_>) -> Vec<Choice> {
    let uniformity = Uniformity::new(function);
    let preds = function.predecessors();
    let mut choices = Vec::new();
    for &block in &function.layout {
        let branch = function.terminator(block);
        let condition = branch.args.first().and_then(|&condition| function.defining_inst(condition));
        let Some(condition) = condition.filter(|_| branch.op == Op::Branch) else { continue };
        let target = match condition.op {
            Op::Elect => 0,
            Op::Compare(Compare::Eq) if condition.ty.is_int() => 0,
            Op::Compare(Compare::Ne) if condition.ty.is_int() => 1,
            _ => continue,
        };
        let mut differs = |lane: Value, number: Value| {
            let agreed = uniformity.of(number) <= Agreement::Warp;
            agreed && values.of(number).is_none() && values.of(lane).is_some_and(|bits| all_differ(&bits))
        };
        let one = match condition.args[..] {
            [a, b] => differs(a, b) || differs(b, a),
            _ => true,
        };
        if one && preds[branch.dests[target].block].len() == 1 {
            choices.push(Choice { block, loc: branch.loc, target });
        }
    }
    choices
}

/// Whether no two lanes of a warp have the same bits, in warps of more than one.
fn all_differ(bits: &[u64]) -> bool {
    bits.chunks(WARP).all(|warp| warp.len() > 1 && warp.iter().collect::<HashSet<_>>().len() == warp.len())
}

/// The way that the threads of a class take from a branch.
struct Way<'a> {
    threads: &'a [u32],
    reach: EntitySet<Block>,
}

/// What decides whether an operation that some threads come to and others do not is an error.
struct Certain {
    members: Members,
    /// The others may come to an operation at which they meet these.
    elsewhere: bool,
    /// The ways of the branch meet at the end of the kernel only.
    ends_in_exit: bool,
}

impl Certain {
    /// A thread that comes and one that it waits for in vain.
    fn pair(&self, comes: &[u32], misses: &[u32]) -> Option<(u32, u32)> {
        let warp = |thread: u32| thread as usize / WARP;
        let same_warp = |wanted: &dyn Fn(u32) -> bool| {
            let pair = |&a: &u32| {
                let b = misses.iter().copied().find(|&b| warp(a) == warp(b) && wanted(b))?;
                wanted(a).then_some((a, b))
            };
            comes.iter().find_map(pair)
        };
        match self.members {
            Members::Warp => same_warp(&|_| true),
            Members::Cta => {
                let pair = same_warp(&|_| true);
                pair.or_else(|| (!self.elsewhere).then(|| (comes[0], misses[0])))
            }
            Members::Lanes(_) if self.elsewhere || self.ends_in_exit => None,
            Members::Lanes(mask) => same_warp(&|thread| mask >> (thread % WARP as u32) & 1 != 0),
        }
    }
}

/// How many threads there are, if they are whole warps.
fn whole_warps(threads: impl Iterator<Item = u32>) -> Option<u32> {
    let mut lanes: HashMap<usize, u32> = HashMap::new();
    threads.for_each(|thread| *lanes.entry(thread as usize / WARP).or_default() += 1);
    let whole = lanes.values().all(|&lanes| lanes as usize == WARP);
    whole.then_some((lanes.len() * WARP) as u32)
}

/// The operation as PTX names it.
fn name(op: Op) -> &'static str {
    match op {
        Op::Barrier { .. } => "bar.sync",
        Op::BarrierArrive { .. } => "bar.arrive",
        Op::WarpBarrier => "bar.warp.sync",
        Op::Vote(_) => "vote.sync",
        Op::Match(_) => "match.sync",
        Op::Reduce(_) => "redux.sync",
        Op::Elect => "elect.sync",
        Op::Shuffle(_) => "shfl.sync",
        Op::Mma(_) => "mma.sync",
        Op::LoadMatrix { .. } => "ldmatrix.sync",
        op => crate::ir::print::mnemonic(op),
    }
}

/// A place in the Rust source: the kernel's own line, and in parentheses the lines of the functions inlined there.
fn place(function: &Function, loc: Option<Loc>) -> String {
    let mut chain = Vec::new();
    let mut next = loc;
    while let Some(loc) = next {
        let at = &function.locs[loc];
        chain.push(format!("{}:{}:{}", at.file, at.line, at.column));
        next = at.inlined_at;
    }
    match chain.split_last() {
        None => "at an unknown place".into(),
        Some((outermost, [])) => outermost.clone(),
        Some((outermost, inner)) => format!("{outermost} (in {})", inner.join(", called at ")),
    }
}
