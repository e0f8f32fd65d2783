//! `while` and `loop`.

use std::panic::Location;

use super::merge::MergePoint;
use super::slot::{Saved, Slot, current_params, leaves, save, set_leaves};
use crate::dsl::recorder::{Site, with};
use crate::dsl::value::Val;
use crate::ir::{Block, BlockCall, Value};

/// Starts a `loop`, which is always a run-time loop.
#[track_caller]
pub fn begin_loop(slots: &mut [Slot<'_>]) -> DynLoop {
    DynLoop::new(slots, Location::caller())
}

/// The jumps of a loop that is being unrolled.
///
/// A jump that the current point of recording certainly makes is taken while recording. A jump under a run-time
/// condition is recorded. Until recording reaches the jump's target, code between jump and target may run or not;
/// therefore an open target counts as one more run-time construct around the current point.
pub(super) struct Unrolled {
    depth: u32,
    live: bool,
    after: MergePoint,
    next: MergePoint,
}

impl Unrolled {
    pub fn new(site: Site) -> Unrolled {
        let (depth, live) = with(|r| (r.depth, r.is_live()));
        Unrolled { depth, live, after: MergePoint::new(site), next: MergePoint::new(site) }
    }

    /// Whether a jump has certainly left the loop: no further iteration is reachable.
    pub fn is_over(&self) -> bool {
        self.live && !with(|r| r.is_live())
    }

    /// Whether the current point of recording certainly runs: no run-time construct encloses it except this loop's open
    /// targets.
    fn is_certain(&self) -> bool {
        let open = u32::from(self.after.is_open()) + u32::from(self.next.is_open());
        with(|r| r.depth) == self.depth + open
    }

    /// Executes a `break`. Returns true if recording takes the jump, false if it records one. A replay takes all jumps.
    pub fn break_(&mut self, slots: &mut [Slot<'_>], site: Site) -> bool {
        if with(|r| r.is_replay()) {
            return true;
        }
        let taken = self.is_certain() && !self.next.is_open();
        if !taken {
            record_jump(&mut self.after, slots, site);
        }
        taken
    }

    /// Executes a `continue`. Returns true if recording takes the jump, false if it records one. A replay takes all
    /// jumps.
    pub fn continue_(&mut self, slots: &mut [Slot<'_>], site: Site) -> bool {
        if with(|r| r.is_replay()) {
            return true;
        }
        let taken = self.is_certain();
        if !taken {
            record_jump(&mut self.next, slots, site);
        }
        taken
    }

    /// Ends an iteration of the unrolled loop.
    pub fn end_item(&mut self, slots: &mut [Slot<'_>], site: Site) {
        arrive(&mut self.next, slots, site);
    }

    /// Ends the unrolled loop.
    pub fn finish(&mut self, slots: &mut [Slot<'_>], site: Site) {
        arrive(&mut self.after, slots, site);
    }
}

fn record_jump(merge: &mut MergePoint, slots: &[Slot<'_>], site: Site) {
    let was_open = merge.is_open();
    merge.jump(slots, site);
    if merge.is_open() && !was_open {
        with(|r| r.depth += 1);
    }
}

fn arrive(merge: &mut MergePoint, slots: &mut [Slot<'_>], site: Site) {
    if with(|r| r.is_replay()) {
        merge.follow(slots, site);
    } else if merge.is_open() {
        merge.arrive(slots, site);
        with(|r| r.depth -= 1);
    }
}

/// A `while` over a compile-time condition: unrolled.
pub struct StaticWhile(Unrolled);

impl StaticWhile {
    pub(super) fn new(site: Site) -> StaticWhile {
        StaticWhile(Unrolled::new(site))
    }
    /// Whether to record another iteration: true if `condition` is true and the loop has not been left.
    #[track_caller]
    pub fn test(&mut self, condition: bool, slots: &mut [Slot<'_>]) -> bool {
        self.0.end_item(slots, Location::caller());
        condition && !self.0.is_over()
    }
    /// Ends an iteration. Returns false: the condition decides about the next iteration.
    #[track_caller]
    pub fn next(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.0.end_item(slots, Location::caller());
        false
    }
    /// Executes a `break`. Returns true if recording takes the jump, false if it records one.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.0.break_(slots, Location::caller())
    }
    /// Executes a `continue`. Returns true if recording takes the jump, false if it records one.
    #[track_caller]
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.0.continue_(slots, Location::caller())
    }
    /// Ends the unrolled loop.
    #[track_caller]
    pub fn finish(mut self, slots: &mut [Slot<'_>]) {
        self.0.finish(slots, Location::caller());
    }
}

/// A run-time loop: a header block and an exit block, both with the loop's variables as parameters.
pub struct DynLoop {
    site: Site,
    /// None in a replay.
    open: Option<OpenLoop>,
}

struct OpenLoop {
    header: Block,
    exit: Block,
    exit_params: Vec<Value>,
    before: Vec<Saved>,
}

impl DynLoop {
    pub(super) fn new(slots: &mut [Slot<'_>], site: Site) -> DynLoop {
        let values = leaves(slots);
        if let Some(params) = with(|r| r.follow_jump(&values, site)) {
            set_leaves(slots, &params);
            return DynLoop { site, open: None };
        }
        let before = save(slots);
        let (header, params, exit, exit_params) = with(|r| {
            let (header, params) = r.block_like(&values, site);
            let (exit, exit_params) = r.block_like(&values, site);
            r.jump(header, values, site);
            r.switch_to(header);
            r.depth += 1;
            (header, params, exit, exit_params)
        });
        set_leaves(slots, &params);
        DynLoop { site, open: Some(OpenLoop { header, exit, exit_params, before }) }
    }

    /// Whether to run the body: always while recording, which records a branch to the body if `condition` is true, else
    /// out of the loop. A replay follows one side.
    #[track_caller]
    pub fn test(&mut self, condition: Val<bool>, slots: &mut [Slot<'_>]) -> bool {
        let site = Location::caller();
        let values = leaves(slots);
        let Some(open) = &self.open else {
            return with(|r| r.follow_branch(condition.id(), &[], &values, site)).expect("this is a replay");
        };
        with(|r| {
            let body = r.func.create_block();
            let exit = BlockCall { block: open.exit, args: values };
            r.branch(condition.id(), BlockCall { block: body, args: Vec::new() }, exit, site);
            r.switch_to(body);
        });
        true
    }

    /// Jumps back to the header. Returns whether the loop is over: while recording, because the body is recorded once.
    #[track_caller]
    pub fn next(&mut self, slots: &mut [Slot<'_>]) -> bool {
        !self.continue_(slots)
    }

    /// While recording: records a `break`, a jump to the block after the loop. In a replay: returns true, and Rust
    /// takes the jump.
    #[track_caller]
    pub fn break_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let (values, site) = (leaves(slots), Location::caller());
        let Some(open) = &self.open else { return with(|r| r.follow_jump(&values, site)).is_some() };
        open.check(slots, self.site);
        with(|r| r.jump(open.exit, values, site));
        false
    }

    /// While recording: records a `continue`, a jump to the header. In a replay: returns true, and Rust takes the jump.
    #[track_caller]
    pub fn continue_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let (values, site) = (leaves(slots), Location::caller());
        let Some(open) = &self.open else {
            set_leaves(slots, &with(|r| r.follow_jump(&values, site)).expect("this is a replay"));
            return true;
        };
        open.check(slots, self.site);
        with(|r| r.jump(open.header, values, site));
        false
    }

    /// Continues in the block after the loop.
    pub fn finish(self, slots: &mut [Slot<'_>]) {
        let Some(open) = self.open else { return set_leaves(slots, &current_params()) };
        with(|r| {
            r.depth -= 1;
            r.switch_to(open.exit);
        });
        set_leaves(slots, &open.exit_params);
    }
}

impl OpenLoop {
    fn check(&self, slots: &[Slot<'_>], site: Site) {
        for (slot, saved) in slots.iter().zip(&self.before) {
            slot.require_unchanged(saved, "loop", site);
        }
    }
}
