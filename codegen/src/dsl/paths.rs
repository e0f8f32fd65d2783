//! The choice of paths through a recorded kernel, for [`super::replay`].
//!
//! Every side of a branch can be chosen, since conditions are known only on the GPU. The goal is to take every two
//! sides that can follow each other on one path, and every loop zero times, once, and several times.

use std::collections::HashMap;

use crate::ir::{Function, Inst, Op};

/// A path chooses a side of a branch at so many visits; later visits take the side that leads to the end.
const VISITS: usize = 4;

/// Number of labels of a branch.
const LABELS: usize = 2 * VISITS;

/// Number of branches up to which pairs of sides are tracked; in larger kernels, single sides are.
const MOST_PAIRED: usize = 1024;

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
    numbers: HashMap<Inst, usize>,
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
}

fn label(branch: usize, side: bool, visits: usize) -> usize {
    branch * LABELS + usize::from(!side) * VISITS + visits
}

impl Paths {
    /// The paths of a recorded kernel. `single` says which branches have only one side worth taking: the first.
    pub fn new(function: &Function, single: impl Fn(Inst) -> bool) -> Paths {
        let mut numbers = HashMap::new();
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
        let rows = if count <= MOST_PAIRED { labels + 1 } else { 1 };
        let to_end = distances(&next);
        let reachable = reachable_labels(&next);
        let mut first_visits = Bits::new(labels);
        for branch in 0..count {
            [true, false].iter().for_each(|&side| first_visits.insert(label(branch, side, 0)));
        }
        Paths { numbers, next, to_end, reachable, first_visits, taken: vec![Bits::new(labels); rows] }
    }

    /// Whether the kernel has a branch with two sides.
    pub fn has_branches(&self) -> bool {
        !self.next.is_empty()
    }

    /// Starts a path.
    pub fn walk(&self) -> Walk {
        let labels = LABELS * self.next.len();
        let mut wanted = Bits::new(labels);
        wanted.add_missing(self.taken.last().expect("the row of the start"));
        Walk {
            labels: Vec::new(),
            seen: Bits::new(labels),
            visits: vec![0; self.next.len()],
            wanted,
            past: Bits::new(labels),
        }
    }

    /// The side of `branch` that `walk` takes next: the first if true. A branch with a single side takes the first.
    pub fn choose(&self, walk: &mut Walk, branch: Inst) -> bool {
        let Some(&branch) = self.numbers.get(&branch) else { return true };
        let visits = walk.visits[branch];
        walk.visits[branch] += 1;
        let end = |side: bool| match self.next[branch][usize::from(!side)] {
            Some(next) => self.to_end[next].saturating_add(1),
            None => 0,
        };
        let nearer = end(true) < end(false);
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
    pub fn finish(&mut self, walk: &Walk) -> bool {
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
