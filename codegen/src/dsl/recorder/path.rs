//! The path that a replay follows: each instruction must be the recorded one at its place. See `replay`.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::ReservedValue;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Recorder, Site};
use crate::dsl::paths::{Paths, Walk};
use crate::ir::{Block, InstData, Op, Type, Value};

/// Why a call of `with` unwinds.
pub(crate) enum Stop {
    /// An error at a Rust line.
    Error(Site, String),
    /// The path is longer than worth following.
    PathEnds,
}

/// A merge point: the target of run-time jumps out of an unrolled loop, one of its iterations, or a function.
pub(crate) type MergeId = u32;

/// The merge points of a kernel.
#[derive(Default)]
pub(crate) struct Merges {
    /// The merge point that a block belongs to.
    pub owners: SecondaryMap<Block, Option<MergeId>>,
    /// Merge points by the place where they were declared: a block and a number of instructions in it.
    declared: FxHashMap<(Block, usize), Vec<MergeId>>,
    count: MergeId,
}

/// The path being followed.
pub(crate) struct Replay {
    /// Number of instructions of the current block that the path has passed.
    at: usize,
    /// Number of merge points declared at the current place.
    merges: usize,
    /// Number of instructions that all paths have passed.
    pub steps: usize,
    /// Number of jumps and branches that this path may still follow.
    jumps_left: usize,
    /// The last branch of the path, and the side that it took.
    last: Option<(Site, bool)>,
    pub paths: Paths,
    pub walk: Walk,
}

impl Replay {
    /// The start of a path. Other paths have passed `steps` instructions; this one may follow `jumps_left` jumps and branches.
    pub fn new(steps: usize, jumps_left: usize, paths: Paths, walk: Walk) -> Replay {
        Replay { at: 0, merges: 0, steps, jumps_left, last: None, paths, walk }
    }
}

/// Advice on state that is not carried: what to write instead.
const INSTEAD: &str = "Recording runs this code once, so state in a `Cell`, a `static`, a closure or an iterator is not \
                       carried through run-time branches and loops: assign a `let mut` variable of this function there, \
                       or use a `shared_array`";

/// Message for a line whose instructions differ between paths.
const OTHER: &str = "this line records other instructions than on other paths";

impl Recorder {
    /// Whether a path is being followed.
    pub fn is_replay(&self) -> bool {
        self.replay.is_some()
    }

    /// In a replay: the recorded instruction at this place.
    pub(in crate::dsl) fn next(&self) -> Option<&InstData> {
        let replay = self.replay.as_ref()?;
        let inst = *self.func.block(self.block).insts.get(replay.at)?;
        Some(self.func.inst(inst))
    }

    /// In a replay: the operation that was recorded at this place.
    pub(in crate::dsl) fn next_op(&self) -> Option<Op> {
        self.next().map(|data| data.op)
    }

    fn pass(&mut self) {
        let work = self.next_op().map_or(1, |op| self.func.work_of(op));
        if let Some(replay) = &mut self.replay {
            replay.at += 1;
            replay.steps += work;
            replay.merges = 0;
        }
    }

    fn enter(&mut self, block: Block) {
        self.block = block;
        if let Some(replay) = &mut self.replay {
            (replay.at, replay.merges) = (0, 0);
            match replay.jumps_left.checked_sub(1) {
                Some(left) => replay.jumps_left = left,
                // An error of this place stays.
                None => drop(self.stop.get_or_insert(Stop::PathEnds)),
            }
        }
    }

    /// Passes an instruction that is not a terminator, and returns its results.
    pub(in crate::dsl) fn follow(
        &mut self,
        op: Op,
        ty: Type,
        args: &[Value],
    ) -> Result<SmallVec<[Value; 2]>, String> {
        match self.next() {
            Some(data) if data.op == op && data.ty == ty && data.args[..] == *args => {
                let results = data.results.clone();
                self.pass();
                Ok(results)
            }
            Some(data) if data.op == op && data.ty == ty => {
                let recorded = data.args.clone();
                Err(self.other_values(&recorded, args))
            }
            Some(InstData { op: Op::Const(one), .. }) if matches!(op, Op::Const(_)) => {
                let Op::Const(other) = op else { unreachable!("matched above") };
                Err(self.difference(&format!("this is the constant {one:#x} on one path, and {other:#x}")))
            }
            _ => Err(self.difference(OTHER)),
        }
    }

    /// Follows the recorded jump at this place, which must pass `args`, and returns the target's parameters. None while
    /// recording.
    pub fn follow_jump(&mut self, args: &[Value], site: Site) -> Option<Vec<Value>> {
        self.follow_jump_with(args, args.len(), site)
    }

    /// As [`Recorder::follow_jump`], where the recorded jump passes the first `least` of `args` or all of them.
    pub fn follow_jump_with(&mut self, args: &[Value], least: usize, site: Site) -> Option<Vec<Value>> {
        self.replay.as_ref()?;
        let Some(InstData { op: Op::Jump, dests, .. }) = self.next() else {
            return self.differ(site, OTHER);
        };
        let dest = dests[0].clone();
        let args = if dest.args.len() == least { &args[..least] } else { args };
        if dest.args != args {
            let message = self.other_values(&dest.args, args);
            self.stop = Some(Stop::Error(site, message));
        }
        self.pass();
        self.enter(dest.block);
        Some(self.func.block(dest.block).params.clone())
    }

    /// Follows the jump at this place if it is to the merge point `merge`.
    pub fn follow_merge(&mut self, merge: MergeId, args: &[Value], site: Site) -> Option<Vec<Value>> {
        match self.next() {
            Some(InstData { op: Op::Jump, dests, .. })
                if self.merges.owners[dests[0].block] == Some(merge) =>
            {
                self.follow_jump(args, site)
            }
            _ => None,
        }
    }

    /// Follows the recorded branch at this place, on the side that the path chooses, and returns whether that is the
    /// first side. The sides pass `then` and `otherwise`. None while recording.
    pub fn follow_branch(
        &mut self,
        condition: Value,
        then: &[Value],
        otherwise: &[Value],
        site: Site,
    ) -> Option<bool> {
        self.replay.as_ref()?;
        let place = self.replay.as_ref().map(|replay| replay.at);
        let inst = place.and_then(|at| self.func.block(self.block).insts.get(at).copied());
        let Some(inst) = inst.filter(|&inst| self.func.inst(inst).op == Op::Branch) else {
            return self.differ(site, OTHER);
        };
        if self.func.inst(inst).args[..] != [condition] {
            let message = self.other_values(&self.func.inst(inst).args, &[condition]);
            self.stop = Some(Stop::Error(site, message));
        }
        // Every block is at most once on the way to the end.
        let way = self.func.layout.len();
        let replay = self.replay.as_mut().expect("checked above");
        let first = replay.paths.choose(&mut replay.walk, inst, replay.jumps_left < way);
        replay.last = Some((site, first));
        let dest = self.func.inst(inst).dests[usize::from(!first)].clone();
        let args = if first { then } else { otherwise };
        if dest.args != args {
            let message = self.other_values(&dest.args, args);
            self.stop = Some(Stop::Error(site, message));
        }
        self.pass();
        self.enter(dest.block);
        Some(first)
    }

    /// Declares a merge point. In a replay: the merge point that was declared at this place.
    pub fn declare_merge(&mut self, site: Site) -> MergeId {
        let place = match &self.replay {
            Some(replay) => (self.block, replay.at),
            None => (self.block, self.func.block(self.block).insts.len()),
        };
        let declared = self.merges.declared.entry(place).or_default();
        match &mut self.replay {
            None => {
                declared.push(self.merges.count);
                self.merges.count += 1;
                self.merges.count - 1
            }
            Some(replay) => {
                replay.merges += 1;
                match declared.get(replay.merges - 1) {
                    Some(&merge) => merge,
                    None => {
                        self.differ::<()>(site, OTHER);
                        MergeId::MAX
                    }
                }
            }
        }
    }

    fn differ<T>(&mut self, site: Site, what: &str) -> Option<T> {
        let message = self.difference(what);
        self.stop.get_or_insert(Stop::Error(site, message));
        None
    }

    /// The path so far, as the end of a sentence.
    fn path(&self) -> String {
        match self.replay.as_ref().and_then(|replay| replay.last) {
            Some((site, first)) => {
                let side = if first { "true" } else { "false" };
                format!("after the run-time condition at {site} was {side}")
            }
            None => "when the function is run again".to_owned(),
        }
    }

    /// Error of code that is not what was recorded.
    pub(in crate::dsl) fn difference(&self, what: &str) -> String {
        format!("{what} {}. {INSTEAD}", self.path())
    }

    /// Error of operands that are not the recorded ones.
    fn other_values(&self, recorded: &[Value], found: &[Value]) -> String {
        let differing = recorded.iter().zip(found).find(|(a, b)| a != b);
        match differing {
            Some((&recorded, &found)) if !found.is_reserved_value() => format!(
                "this uses the value of {} on one path, and that of {} {}. {INSTEAD}",
                self.definition(recorded),
                self.definition(found),
                self.path()
            ),
            _ => self.difference("this uses other values than on other paths"),
        }
    }
}
