//! Convergence check: reports barriers and warp-wide instructions that some of the required threads can no longer
//! reach.
//!
//! Only certain errors are reported. The check considers the branches whose condition depends on the thread index alone
//! ([`ThreadValues`]), so that each thread takes the same side at every visit. Threads that take the same side at all
//! of these branches form a class with its own control flow graph. An instruction is divergent if a branch sends one
//! class to it, and sends another class, whose threads the instruction waits for, where that class can no longer reach
//! it:
//!
//! - lanes of one warp, if they must execute the instruction together; if the branch compares the lane with a
//!   warp-uniform number ([`Uniformity`]), at most one lane takes the side where they are equal, whatever the
//!   number is;
//! - any threads, at a barrier of the whole CTA or cluster, unless they may reach another barrier at which they meet
//!   (one with the same number), as warps with different tasks do.
//!
//! Barriers with fewer threads than the CTA are meant for warps that diverge, and so are legal in such a branch.

use std::collections::{HashMap, HashSet};
use std::fmt;

use cranelift_entity::EntitySet;

use super::analysis::Dominators;
use super::analysis::postdominators::PostDominators;
use super::analysis::threads::{ThreadValues, WARP};
use super::analysis::uniformity::{Level, Uniformity};
use super::{Cleanup, Pass, Unreachable};
use crate::ir::{Block, Compare, Convergence, Function, InstData, Loc, Op, Value};

/// Error: instructions in divergent code that require all of their threads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", messages(.kernel, .instructions))]
pub struct Divergence {
    /// Name of the kernel.
    pub kernel: String,
    /// The divergent instructions, at least one.
    pub instructions: Vec<Divergent>,
}

/// An instruction in divergent code that some of the required threads skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergent {
    /// PTX name of the instruction.
    pub instruction: &'static str,
    /// The threads that the instruction waits for.
    pub members: Members,
    /// Source location of the instruction as `file:line:column`, with the inlined functions that contain it.
    pub place: String,
    /// Source location of the divergent branch, in the same form.
    pub branch: String,
    /// Indices of a thread that reaches the instruction and of a thread that does not; none if the branch selects at
    /// most one lane of each warp and it is unknown which.
    pub example: Option<(u32, u32)>,
    /// Number of threads that reach the instruction, if they are whole warps.
    pub whole_warps: Option<u32>,
}

/// The threads that an instruction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// All threads of the cluster that have not exited.
    Cluster,
    /// All threads of the CTA.
    Cta,
    /// All lanes of the warp.
    Warp,
    /// The lanes of a mask that have not exited.
    Lanes(u32),
}

fn messages(kernel: &str, instructions: &[Divergent]) -> String {
    let instructions: Vec<String> = instructions.iter().map(|instruction| instruction.to_string()).collect();
    format!("kernel {kernel}: {}", instructions.join("\n"))
}

impl fmt::Display for Divergent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Divergent { instruction, place, branch, .. } = self;
        let members = match self.members {
            Members::Cluster => "all threads of the cluster",
            Members::Cta => "all threads of the CTA",
            Members::Warp => "all lanes of the warp",
            Members::Lanes(_) => "all lanes of its mask",
        };
        writeln!(f, "{place}: `{instruction}` must be executed by {members}, but some of them skip it")?;
        match self.example {
            Some((reaches, skips)) => {
                writeln!(
                    f,
                    "  {branch}: this branch takes thread {reaches} to it and thread {skips} past it"
                )?;
            }
            None => writeln!(f, "  {branch}: this branch takes at most one lane of each warp to it")?,
        }
        f.write_str("  help: ")?;
        match (self.members, self.whole_warps) {
            (Members::Cta, Some(threads)) => write!(
                f,
                "move it after the branch, or give the {threads} threads that reach it a barrier of their own: \
                 `named_barrier(1, {threads})`"
            ),
            (Members::Cta | Members::Cluster, _) => {
                f.write_str("move it after the branch, where all threads reach it")
            }
            (Members::Warp, _) if instruction.starts_with("bar") => f.write_str(
                "move it after the branch, or branch on `warp_index()`: the threads of a barrier are whole warps",
            ),
            (Members::Warp | Members::Lanes(_), _) => {
                f.write_str("move it before the branch; lanes that do not need the result may ignore it")
            }
        }
    }
}

/// Finds the instructions that some of the required threads can no longer reach.
pub fn check(function: &Function) -> Result<(), Divergence> {
    // The recorder makes every variable that a branch may assign a block parameter, even where the branch does not
    // assign it: cleanup removes these parameters, so that more conditions are known.
    let mut cleaned = function.clone();
    Unreachable.run(&mut cleaned);
    Cleanup.run(&mut cleaned);
    check_cleaned(&cleaned)
}

fn check_cleaned(function: &Function) -> Result<(), Divergence> {
    let Some(values) = ThreadValues::new(function) else { return Ok(()) };
    let sites = sites(function);
    if sites.is_empty() {
        return Ok(());
    }
    let (flow, lane_branches) = Flow::new(function, values);
    let doms = Dominators::new(function);
    let post = PostDominators::new(function);
    let known = flow.branches.iter().map(|branch| (branch.block, flow.divergent(&post, branch, &sites)));
    let one_lane =
        lane_branches.iter().map(|branch| (branch.block, flow.one_lane(&doms, &post, branch, &sites)));
    // If several branches cause the error, the last one before the instruction is reported.
    let mut found: HashMap<usize, (u32, Divergent)> = HashMap::new();
    for (block, instructions) in known.chain(one_lane) {
        let order = doms.order(block);
        for (index, instruction) in instructions {
            if found.get(&index).is_none_or(|&(earlier, _)| earlier < order) {
                found.insert(index, (order, instruction));
            }
        }
    }
    let mut instructions: Vec<(usize, Divergent)> =
        found.into_iter().map(|(index, (_, instruction))| (index, instruction)).collect();
    if instructions.is_empty() {
        return Ok(());
    }
    instructions.sort_by_key(|&(index, _)| index);
    let mut instructions: Vec<Divergent> =
        instructions.into_iter().map(|(_, instruction)| instruction).collect();
    // Unrolled loops and reductions have several instructions at one source location.
    instructions.dedup();
    Err(Divergence { kernel: function.name.clone(), instructions })
}

/// A convergent instruction: several threads execute it together.
struct Site<'a> {
    block: Block,
    data: &'a InstData,
    ptx: &'static str,
    members: Members,
}

impl Site<'_> {
    /// Whether threads at this instruction synchronise with threads at `other`.
    fn meets(&self, other: &Site<'_>) -> bool {
        match (self.data.op.convergence(), other.data.op.convergence()) {
            (Convergence::Barrier { id: a, .. }, Convergence::Barrier { id: b, .. }) => a == b,
            _ => self.data.op == other.data.op && self.members == other.members,
        }
    }
}

fn sites(function: &Function) -> Vec<Site<'_>> {
    let insts = function
        .layout
        .iter()
        .flat_map(|&block| function.block(block).insts.iter().map(move |&inst| (block, function.inst(inst))));
    insts.filter_map(|(block, data)| site(function, block, data)).collect()
}

fn site<'a>(function: &Function, block: Block, data: &'a InstData) -> Option<Site<'a>> {
    let (ptx, members) = match data.op.convergence() {
        Convergence::Independent => return None,
        Convergence::Warp { ptx } => (ptx, Members::Warp),
        Convergence::Mask { ptx, operand } => {
            let mask = function.constant(*data.args.get(operand)?)?;
            (ptx, Members::Lanes(mask as u32))
        }
        Convergence::Barrier { ptx, threads, waits, .. } => {
            let whole = threads == 0 || Some(threads) == function.threads;
            (ptx, if waits && whole { Members::Cta } else { Members::Warp })
        }
        Convergence::Cluster { ptx } => (ptx, Members::Cluster),
    };
    Some(Site { block, data, ptx, members })
}

/// A branch whose outcome is known for every thread.
struct KnownBranch {
    block: Block,
    loc: Option<Loc>,
    /// Index of the branch target that each thread takes.
    target: Vec<usize>,
}

/// A branch that compares a value that differs in every lane with a warp-uniform value.
struct LaneBranch {
    block: Block,
    loc: Option<Loc>,
    /// Index of the branch target that at most one lane of a warp takes.
    target: usize,
}

/// Threads that take the same side of every known branch.
struct Class {
    threads: Vec<u32>,
    /// The blocks that the threads may reach.
    reach: EntitySet<Block>,
}

struct Flow<'a> {
    function: &'a Function,
    branches: Vec<KnownBranch>,
    by_block: HashMap<Block, usize>,
    classes: Vec<Class>,
}

impl<'a> Flow<'a> {
    /// Computes the control flow of each class, and the branches of [`lane_branches`].
    fn new(function: &'a Function, mut values: ThreadValues<'a>) -> (Flow<'a>, Vec<LaneBranch>) {
        let known = |&block: &Block| {
            let data = function.terminator(block);
            let bits = (data.op == Op::Branch).then(|| values.of(data.args[0]))??;
            let target = bits.iter().map(|&bit| usize::from(bit == 0)).collect();
            Some(KnownBranch { block, loc: data.loc, target })
        };
        let branches: Vec<KnownBranch> = function.layout.iter().filter_map(known).collect();
        let lane_branches = lane_branches(function, &mut values);
        let by_block = branches.iter().enumerate().map(|(index, branch)| (branch.block, index)).collect();
        let mut flow = Flow { function, branches, by_block, classes: Vec::new() };
        let mut classes: HashMap<Vec<usize>, usize> = HashMap::new();
        for thread in 0..function.threads.unwrap_or(0) {
            let sides = flow.branches.iter().map(|branch| branch.target[thread as usize]).collect();
            let class = *classes.entry(sides).or_insert(flow.classes.len());
            if class == flow.classes.len() {
                let reach = flow.reach(Some(thread), function.layout[0]);
                flow.classes.push(Class { threads: Vec::new(), reach });
            }
            flow.classes[class].threads.push(thread);
        }
        (flow, lane_branches)
    }

    /// The blocks reachable from `from`, itself included, by a thread (by any thread if none is given).
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

    /// Divergent instructions caused by a known branch, by their index in `sites`.
    fn divergent(
        &self,
        post: &PostDominators,
        branch: &KnownBranch,
        sites: &[Site<'_>],
    ) -> Vec<(usize, Divergent)> {
        let here = self.classes.iter().filter(|class| class.reach.contains(branch.block));
        let mut sides: [Vec<Side<'_>>; 2] = [Vec::new(), Vec::new()];
        for class in here {
            let thread = class.threads[0];
            let target = branch.target[thread as usize];
            let next = self.function.terminator(branch.block).dests[target].block;
            sides[target].push(Side { threads: &class.threads, reach: self.reach(Some(thread), next) });
        }
        if sides.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (index, site) in sites.iter().enumerate() {
            for (side, other_side) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
                let reaching: Vec<_> = side.iter().filter(|class| class.reach.contains(site.block)).collect();
                let skips = |class: &&Side<'_>| !class.reach.contains(site.block);
                let skipping = other_side.iter().filter(skips);
                // An earlier branch is not the cause for threads that exit at a later branch.
                if site.members == Members::Cluster && !other_side.iter().all(|class| skips(&class)) {
                    continue;
                }
                let pair = skipping
                    .flat_map(|other| reaching.iter().map(move |class| (class, other)))
                    .find_map(|(class, other)| {
                        let elsewhere = sites.iter().any(|twin| {
                            let common = post.dominates(twin.block, branch.block);
                            !common && site.meets(twin) && other.reach.contains(twin.block)
                        });
                        let ends_in_exit = post.immediate(branch.block).is_none();
                        let certain = Certain { members: site.members, elsewhere, ends_in_exit };
                        certain.pair(class.threads, other.threads)
                    });
                if pair.is_none() {
                    continue;
                }
                found.push((
                    index,
                    Divergent {
                        instruction: site.ptx,
                        members: site.members,
                        place: place(self.function, site.data.loc),
                        branch: place(self.function, branch.loc),
                        example: pair,
                        whole_warps: whole_warps(reaching.iter().flat_map(|class| class.threads).copied()),
                    },
                ));
            }
        }
        found
    }

    /// Instructions that at most one lane of a warp can reach because of a branch, by their index in `sites`.
    fn one_lane(
        &self,
        doms: &Dominators,
        post: &PostDominators,
        branch: &LaneBranch,
        sites: &[Site<'_>],
    ) -> Vec<(usize, Divergent)> {
        let dests = &self.function.terminator(branch.block).dests;
        let (chosen, others) = (dests[branch.target].block, dests[1 - branch.target].block);
        let reach = self.reach(None, others);
        let certain = |site: &Site<'_>| {
            let alone = doms.dominates(chosen, site.block) && !reach.contains(site.block);
            let meets = |twin: &Site<'_>| site.meets(twin) && reach.contains(twin.block);
            alone
                && match site.members {
                    Members::Warp | Members::Cta => true,
                    Members::Cluster | Members::Lanes(u32::MAX) => {
                        let exits = post.immediate(branch.block).is_none();
                        !exits && !sites.iter().any(meets)
                    }
                    Members::Lanes(_) => false,
                }
        };
        let divergent = |(index, site): (usize, &Site<'_>)| {
            certain(site).then(|| {
                let divergent = Divergent {
                    instruction: site.ptx,
                    members: site.members,
                    place: place(self.function, site.data.loc),
                    branch: place(self.function, branch.loc),
                    example: None,
                    whole_warps: None,
                };
                (index, divergent)
            })
        };
        sites.iter().enumerate().filter_map(divergent).collect()
    }
}

/// The branches of which one side is taken by at most one lane of each warp, where it is unknown which lane.
fn lane_branches(function: &Function, values: &mut ThreadValues<'_>) -> Vec<LaneBranch> {
    let uniformity = Uniformity::new(function);
    let preds = function.predecessors();
    let mut lane_branches = Vec::new();
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
            let uniform = uniformity.of(number) <= Level::Warp;
            uniform && values.of(number).is_none() && values.of(lane).is_some_and(|bits| all_differ(&bits))
        };
        let one = match condition.args[..] {
            [a, b] => differs(a, b) || differs(b, a),
            _ => true,
        };
        if one && preds[branch.dests[target].block].len() == 1 {
            lane_branches.push(LaneBranch { block, loc: branch.loc, target });
        }
    }
    lane_branches
}

/// Whether the per-thread bits differ between any two lanes of a warp; false if a warp has only one lane.
fn all_differ(bits: &[u64]) -> bool {
    bits.chunks(WARP).all(|warp| warp.len() > 1 && warp.iter().collect::<HashSet<_>>().len() == warp.len())
}

/// Threads of one [`Class`] that take one side of a branch, and the blocks that they may reach from there.
struct Side<'a> {
    threads: &'a [u32],
    reach: EntitySet<Block>,
}

/// Facts that decide whether it is an error that some threads reach an instruction and others skip it.
struct Certain {
    members: Members,
    /// Whether the threads that skip the instruction may synchronise with the others at another instruction.
    elsewhere: bool,
    /// Whether the two sides of the branch join only at the end of the kernel.
    ends_in_exit: bool,
}

impl Certain {
    /// A thread that reaches the instruction, and a thread that is required at the instruction but skips it. `None` if
    /// this is not certainly an error.
    fn pair(&self, reaching: &[u32], skipping: &[u32]) -> Option<(u32, u32)> {
        let warp = |thread: u32| thread as usize / WARP;
        let same_warp = |wanted: &dyn Fn(u32) -> bool| {
            let pair = |&a: &u32| {
                let b = skipping.iter().copied().find(|&b| warp(a) == warp(b) && wanted(b))?;
                wanted(a).then_some((a, b))
            };
            reaching.iter().find_map(pair)
        };
        match self.members {
            Members::Warp => same_warp(&|_| true),
            Members::Cta => {
                let pair = same_warp(&|_| true);
                pair.or_else(|| (!self.elsewhere).then(|| (reaching[0], skipping[0])))
            }
            Members::Cluster | Members::Lanes(_) if self.elsewhere || self.ends_in_exit => None,
            Members::Cluster => Some((reaching[0], skipping[0])),
            Members::Lanes(mask) => same_warp(&|thread| mask >> (thread % WARP as u32) & 1 != 0),
        }
    }
}

/// Number of threads, if they form whole warps.
fn whole_warps(threads: impl Iterator<Item = u32>) -> Option<u32> {
    let mut lanes: HashMap<usize, u32> = HashMap::new();
    threads.for_each(|thread| *lanes.entry(thread as usize / WARP).or_default() += 1);
    let whole = lanes.values().all(|&lanes| lanes as usize == WARP);
    whole.then_some((lanes.len() * WARP) as u32)
}

/// Text of a source location: the line in the kernel, and in parentheses the lines in the functions inlined there.
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
