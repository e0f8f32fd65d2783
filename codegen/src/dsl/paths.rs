//! The choice of paths through a recorded kernel, for [`super::replay`].
//!
//! Every side of a branch can be chosen, since conditions are known only on the GPU. Paths have one of three goals, in
//! this order ([`Goal`]). The first paths cover pairs: any two sides that can follow each other, and zero, one and several
//! iterations of every loop. The next paths take the sides of branches that no path has taken yet. The last paths are
//! long: they repeat the bodies of loops up to 1,024 times.

use rustc_hash::FxHashMap;

use crate::ir::{Function, Inst, Op};
use crate::passes::analysis::loops::loops;
use crate::passes::analysis::{Dominators, inst_blocks};

/// Maximum number of paths for pairs of sides.
const MAX_PAIR_PATHS: u32 = 16;

/// A path for pairs of sides chooses a side of a branch at this many visits; later visits take the side that leads to the
/// end.
const VISITS: usize = 4;

/// Number of labels of a branch.
const LABELS: usize = 2 * VISITS;

/// Number of branches up to which pairs of sides are tracked; in larger kernels, single sides are.
const MAX_PAIRED: usize = 1024;

/// Maximum number of iterations of a loop on a long path.
const MAX_TRIPS: usize = 1024;

/// Limit of the instructions of all long paths, or [`LONG_WORK`] times the kernel's size if that is more.
const MIN_LONG_STEPS: usize = 20_000;

/// Limit of the instructions of all long paths, as a multiple of the kernel's size: see [`MIN_LONG_STEPS`].
const LONG_WORK: usize = 2;

/// Goal of a path: the coverage that it adds.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    /// Takes pairs of sides that no earlier path took. `left` is the number of such paths that may follow.
    Pairs { left: u32 },
    /// Takes sides that no earlier path took.
    Sides,
    /// Stays in each loop of this nesting depth for `trips` iterations, and in other loops for one.
    Long { depth: usize, trips: usize },
}

/// A loop of the recorded kernel.
struct LoopInfo {
    /// Number of loops around its body.
    depth: usize,
    /// Number of instructions.
    size: usize,
    /// Whether a long path stayed in it.
    served: bool,
}

/// A set of small numbers.
#[derive(Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Bits {
        Bits(vec![0; size.div_ceil(64)])
    }
    fn insert(&mut self, bit: usize) {
        self.0[bit / 64] |= 1 << (bit % 64);
    }
    fn contains(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }
    fn add(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
    fn add_missing(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= !b);
    }
    fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// The branches of a recorded kernel, and the pairs of sides that earlier paths took.
///
/// A *label* is a side of a branch and the number of earlier visits of the path to that branch.
pub(super) struct Paths {
    numbers: FxHashMap<Inst, usize>,
    /// The branch that follows each side; none if the kernel ends.
    next: Vec<[Option<usize>; 2]>,
    /// Number of branches from each branch to the end of the kernel on the shortest path.
    to_end: Vec<u32>,
    /// Labels that can follow each side.
    reachable: Vec<[Bits; 2]>,
    /// The labels of first visits.
    first_visits: Bits,
    /// For each label, the labels that followed it on a path; the last row is the start of the kernel.
    taken: Vec<Bits>,
    /// The first branch of the kernel.
    start: Option<usize>,
    /// Which sides some path has taken.
    covered: Vec<[bool; 2]>,
    loops: Vec<LoopInfo>,
    /// The innermost loop around each branch.
    homes: Vec<Option<usize>>,
    /// The side that leaves the branch's innermost loop: true for the first.
    leaving: Vec<Option<bool>>,
    /// Limit of the instructions of all long paths.
    long_steps: usize,
}

/// The path being taken.
pub(super) struct Walk {
    labels: Vec<usize>,
    seen: Bits,
    visits: Vec<usize>,
    /// Labels that have not followed one of `labels` on any path.
    wanted: Bits,
    /// Labels that this path can no longer have.
    past: Bits,
    goal: Goal,
    /// For each side, the number of branches up to the next side that the goal looks for.
    toward: Vec<[u32; 2]>,
    /// How often each branch stayed in its innermost loop since the loop was entered.
    stays: Vec<usize>,
    /// Whether the path took a side, or stayed in a loop, that no earlier path did.
    new: bool,
}

fn label(branch: usize, side: bool, visits: usize) -> usize {
    branch * LABELS + usize::from(!side) * VISITS + visits
}

impl Paths {
    /// The paths of a recorded kernel. `single` says which branches have only one side worth taking: the first.
    pub fn new(function: &Function, single: impl Fn(Inst) -> bool) -> Paths {
        let mut numbers = FxHashMap::default();
        let mut branches = Vec::new();
        let mut reached = std::collections::HashSet::from([function.layout[0]]);
        let mut open = vec![function.layout[0]];
        while let Some(block) = open.pop() {
            let Some(&last) = function.block(block).insts.last() else { continue };
            if function.inst(last).op == Op::Branch && !single(last) {
                branches.push(last);
            }
            open.extend(function.successors(block).filter(|&next| reached.insert(next)));
        }
        branches.sort();
        numbers.extend(branches.iter().enumerate().map(|(number, &branch)| (branch, number)));
        let follow = |mut block| {
            // An endless loop without a branch is left after as many steps as there are blocks.
            for _ in 0..function.block_count() {
                let last = *function.block(block).insts.last()?;
                if let Some(&number) = numbers.get(&last) {
                    return Some(number);
                }
                block = function.inst(last).dests.first()?.block;
            }
            None
        };
        let next: Vec<[Option<usize>; 2]> = branches
            .iter()
            .map(|&branch| {
                let dests = &function.inst(branch).dests;
                [follow(dests[0].block), follow(dests[1].block)]
            })
            .collect();
        let count = branches.len();
        let labels = LABELS * count;
        let rows = if count <= MAX_PAIRED { labels + 1 } else { 1 };
        let to_end = distances(&next);
        let reachable = reachable_labels(&next);
        let start = follow(function.layout[0]);
        let doms = Dominators::new(function);
        let found = loops(function, &doms);
        let depth = |block| found.iter().filter(|one| one.blocks.contains(&block)).count();
        let size = |block| function.recorded_work(block);
        let infos: Vec<LoopInfo> = found
            .iter()
            .map(|one| LoopInfo {
                depth: depth(one.header),
                size: one.blocks.iter().map(|&block| size(block)).sum(),
                served: false,
            })
            .collect();
        let blocks = inst_blocks(function);
        let home = |&branch: &Inst| {
            let block = blocks[branch]?;
            // Inner loops come first.
            found.iter().position(|one| one.blocks.contains(&block))
        };
        let homes: Vec<Option<usize>> = branches.iter().map(home).collect();
        let leaving = branches
            .iter()
            .zip(&homes)
            .map(|(&branch, home)| {
                let inside = &found[(*home)?].blocks;
                let dests = &function.inst(branch).dests;
                [true, false].into_iter().find(|&side| !inside.contains(&dests[usize::from(!side)].block))
            })
            .collect();
        let long_steps =
            MIN_LONG_STEPS.max(LONG_WORK * function.layout.iter().map(|&block| size(block)).sum::<usize>());
        let mut first_visits = Bits::new(labels);
        for branch in 0..count {
            [true, false].iter().for_each(|&side| first_visits.insert(label(branch, side, 0)));
        }
        Paths {
            numbers,
            next,
            to_end,
            reachable,
            first_visits,
            taken: vec![Bits::new(labels); rows],
            start,
            covered: vec![[false; 2]; count],
            loops: infos,
            homes,
            leaving,
            long_steps,
        }
    }

    /// The goal of the first path.
    pub fn first_goal() -> Goal {
        Goal::Pairs { left: MAX_PAIR_PATHS - 1 }
    }

    /// Marks what a finished path took. Returns the goal of the next path; none if there is nothing left to take.
    /// `spent` says that the paths for pairs have used up their work.
    pub fn next_goal(&mut self, walk: &Walk, spent: bool) -> Option<Goal> {
        let sides = |paths: &Paths| paths.has_new_sides().then_some(Goal::Sides);
        match walk.goal {
            Goal::Pairs { left } => {
                let more = self.finish(walk) && !spent && left > 0;
                let pairs = more.then(|| Goal::Pairs { left: left - 1 });
                pairs.or_else(|| sides(self)).or_else(|| self.long_goal(1))
            }
            Goal::Sides => {
                let sides = if walk.new { sides(self) } else { None };
                sides.or_else(|| self.long_goal(1))
            }
            Goal::Long { depth, .. } => self.long_goal(if walk.new { depth } else { depth + 1 }),
        }
    }

    /// The goal of staying in the outermost loops that no long path has stayed in, from a nesting depth on.
    fn long_goal(&self, least_depth: usize) -> Option<Goal> {
        let deepest = self.loops.iter().map(|one| one.depth).max()?;
        (least_depth..=deepest).find_map(|depth| {
            let level = || self.loops.iter().filter(move |one| one.depth == depth);
            let size: usize = level().map(|one| one.size).sum();
            let trips = (self.long_steps / deepest / size.max(1)).min(MAX_TRIPS);
            (trips > VISITS && level().any(|one| !one.served)).then_some(Goal::Long { depth, trips })
        })
    }

    /// Whether a path can take a side that no path has taken.
    fn has_new_sides(&self) -> bool {
        let toward = self.toward(|branch, side| !self.covered[branch][side]);
        self.start.is_some_and(|start| toward[start].iter().any(|&distance| distance < u32::MAX))
    }

    /// For each side, the number of branches up to the next side that is `wanted`; 0 if the side itself is wanted.
    fn toward(&self, wanted: impl Fn(usize, usize) -> bool) -> Vec<[u32; 2]> {
        let mut toward = vec![[u32::MAX; 2]; self.next.len()];
        for (branch, sides) in toward.iter_mut().enumerate() {
            (0..2).filter(|&side| wanted(branch, side)).for_each(|side| sides[side] = 0);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for branch in (0..self.next.len()).rev() {
                for side in 0..2 {
                    let Some(next) = self.next[branch][side] else { continue };
                    let distance = toward[next][0].min(toward[next][1]).saturating_add(1);
                    changed |= distance < toward[branch][side];
                    toward[branch][side] = distance.min(toward[branch][side]);
                }
            }
        }
        toward
    }

    /// The distances to the sides that a path with this goal looks for.
    fn toward_goal(&self, goal: Goal) -> Vec<[u32; 2]> {
        match goal {
            Goal::Pairs { .. } => Vec::new(),
            Goal::Sides => self.toward(|branch, side| !self.covered[branch][side]),
            Goal::Long { depth, .. } => self.toward(|branch, side| {
                let home = self.homes[branch].map(|home| &self.loops[home]);
                let stays = self.leaving[branch] == Some(side == 1);
                stays && home.is_some_and(|home| home.depth == depth && !home.served)
            }),
        }
    }

    /// Number of instructions that a path with this goal may pass beside those of the kernel.
    pub fn most_steps(&self, goal: Goal) -> usize {
        if let Goal::Long { .. } = goal { 2 * self.long_steps } else { 0 }
    }

    /// Whether the kernel has a branch with two sides.
    pub fn has_branches(&self) -> bool {
        !self.next.is_empty()
    }

    /// Starts a path.
    pub fn walk(&self, goal: Goal) -> Walk {
        let labels = LABELS * self.next.len();
        let mut wanted = Bits::new(labels);
        wanted.add_missing(self.taken.last().expect("the row of the start"));
        Walk {
            labels: Vec::new(),
            seen: Bits::new(labels),
            visits: vec![0; self.next.len()],
            wanted,
            past: Bits::new(labels),
            goal,
            toward: self.toward_goal(goal),
            stays: vec![0; self.next.len()],
            new: false,
        }
    }

    /// The side of `branch` that `walk` takes next: the first if true. A branch with a single side takes the first.
    /// `hurries` says that the path is long enough and should end.
    pub fn choose(&mut self, walk: &mut Walk, branch: Inst, hurries: bool) -> bool {
        let Some(&branch) = self.numbers.get(&branch) else { return true };
        let visits = walk.visits[branch];
        walk.visits[branch] += 1;
        let end = |side: bool| match self.next[branch][usize::from(!side)] {
            Some(next) => self.to_end[next].saturating_add(1),
            None => 0,
        };
        let nearer = end(true) < end(false);
        let side = match walk.goal {
            _ if hurries => nearer,
            Goal::Pairs { .. } => self.choose_for_pairs(walk, branch, visits, nearer),
            Goal::Sides => {
                let [first, second] = walk.toward[branch];
                if first == second { nearer } else { first < second }
            }
            Goal::Long { depth, trips } => self.choose_for_long(walk, branch, visits, (depth, trips)),
        };
        let known = std::mem::replace(&mut self.covered[branch][usize::from(!side)], true);
        if !known && matches!(walk.goal, Goal::Sides) {
            walk.new = true;
            walk.toward = self.toward_goal(walk.goal);
        }
        side
    }

    fn choose_for_pairs(&self, walk: &mut Walk, branch: usize, visits: usize, nearer: bool) -> bool {
        if visits >= VISITS {
            return nearer;
        }
        for side in [true, false] {
            walk.past.insert(label(branch, side, visits));
        }
        let gain = |side| self.gain(walk, branch, side, visits);
        let (first, second) = (gain(true), gain(false));
        let side = if first == second { nearer } else { first > second };
        let label = label(branch, side, visits);
        if !walk.seen.contains(label) {
            walk.seen.insert(label);
            walk.labels.push(label);
            if let Some(taken) = self.row(label) {
                walk.wanted.add_missing(taken);
            }
        }
        side
    }

    /// The side on a long path. A branch that can leave its loop stays for some iterations; in and after the loops of the
    /// depth, other branches take one side and the other in an irregular order.
    fn choose_for_long(
        &mut self,
        walk: &mut Walk,
        branch: usize,
        visits: usize,
        (depth, trips): (usize, usize),
    ) -> bool {
        let home = self.homes[branch];
        let home_depth = home.map_or(0, |home| self.loops[home].depth);
        if let (Some(home), Some(leaving)) = (home, self.leaving[branch]) {
            let limit = if home_depth == depth { trips } else { 1 };
            if walk.stays[branch] < limit {
                walk.stays[branch] += 1;
                if home_depth == depth && !std::mem::replace(&mut self.loops[home].served, true) {
                    walk.new = true;
                    walk.toward = self.toward_goal(walk.goal);
                }
                return !leaving;
            }
            let inside = (0..walk.stays.len()).filter(|&other| self.homes[other] == Some(home));
            inside.for_each(|other| walk.stays[other] = 0);
            return leaving;
        }
        let [first, second] = walk.toward[branch];
        if home_depth < depth && first != second {
            return first < second;
        }
        let mixed = (branch as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ visits as u64;
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40 & 1 == 1
    }

    /// How much is new on the paths through this side: the number of labels that have not followed a label of the walk,
    /// where a side that no path has taken at its first visit counts more.
    fn gain(&self, walk: &Walk, branch: usize, side: bool, visits: usize) -> u32 {
        const NEVER_TAKEN: u32 = 16;
        let own = label(branch, side, visits);
        let taken = self.row(own);
        let start = self.taken.last().expect("the row of the start");
        let reachable = &self.reachable[branch][usize::from(!side)];
        let mut gain = 0;
        for (i, &reachable) in reachable.0.iter().enumerate() {
            let ahead = reachable & !walk.past.0[i];
            let new = walk.wanted.0[i] | taken.map_or(0, |taken| !taken.0[i]);
            gain += (new & ahead).count_ones();
            gain += NEVER_TAKEN * (!start.0[i] & ahead & self.first_visits.0[i]).count_ones();
        }
        let never = u32::from(visits == 0 && !start.contains(own));
        gain + u32::from(walk.wanted.contains(own)) + NEVER_TAKEN * never
    }

    fn row(&self, label: usize) -> Option<&Bits> {
        (self.taken.len() > 1).then(|| &self.taken[label])
    }

    /// Marks the pairs of a finished path as taken. Returns whether the path had a new one.
    fn finish(&mut self, walk: &Walk) -> bool {
        let mut after = Bits::new(LABELS * self.next.len());
        let paired = self.taken.len() > 1;
        let mut new = false;
        let mut mark = |row: &mut Bits, after: &Bits| {
            let before = row.len();
            row.add(after);
            new |= row.len() > before;
        };
        for &label in walk.labels.iter().rev() {
            if paired {
                mark(&mut self.taken[label], &after);
            }
            after.insert(label);
        }
        mark(self.taken.last_mut().expect("the row of the start"), &after);
        new
    }
}

/// Number of branches from each branch to the end of the kernel on the shortest path.
fn distances(next: &[[Option<usize>; 2]]) -> Vec<u32> {
    let mut distances = vec![u32::MAX; next.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (branch, sides) in next.iter().enumerate().rev() {
            let end = |side: &Option<usize>| side.map_or(0, |next| distances[next].saturating_add(1));
            let distance = sides.iter().map(end).min().unwrap_or(0);
            changed |= distance < distances[branch];
            distances[branch] = distance.min(distances[branch]);
        }
    }
    distances
}

/// The labels that can follow each side. Only a branch in a loop has labels of later visits.
fn reachable_labels(next: &[[Option<usize>; 2]]) -> Vec<[Bits; 2]> {
    let mut reachable = vec![[Bits::new(next.len()), Bits::new(next.len())]; next.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (branch, sides) in next.iter().enumerate().rev() {
            for (side, follower) in sides.iter().enumerate() {
                let Some(follower) = *follower else { continue };
                let mut new = reachable[branch][side].clone();
                new.insert(follower);
                new.add(&reachable[follower][0]);
                new.add(&reachable[follower][1]);
                changed |= new.len() > reachable[branch][side].len();
                reachable[branch][side] = new;
            }
        }
    }
    let repeats: Vec<bool> = reachable
        .iter()
        .enumerate()
        .map(|(branch, sides)| sides.iter().any(|side| side.contains(branch)))
        .collect();
    let labels = |branches: &Bits| {
        let mut labels = Bits::new(LABELS * next.len());
        for branch in (0..next.len()).filter(|&branch| branches.contains(branch)) {
            for side in [true, false] {
                let visits = if repeats[branch] { VISITS } else { 1 };
                (0..visits).for_each(|visits| labels.insert(label(branch, side, visits)));
            }
        }
        labels
    };
    reachable.iter().map(|[first, second]| [labels(first), labels(second)]).collect()
}
