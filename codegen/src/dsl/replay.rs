//! Replay of a recorded kernel along paths, to find state that the recording does not carry.
//!
//! Recording runs the Rust code of every branch and loop body once, one after another. A variable that such code
//! assigns becomes a block parameter, but recording cannot see state elsewhere: in a `Cell`, a `static`, an iterator in
//! a closure. After a kernel has been recorded, its function therefore runs again along several paths
//! ([`super::paths`]), each as a thread of the GPU could take it: one side of each branch, a loop body as often as the
//! path enters it. Nothing is appended. Instead every instruction must be the recorded one at that place, with the same
//! operands; then the recorded kernel computes on this path what the Rust program says. The first difference is an
//! error at its Rust line. Since a replay follows Rust's own semantics, a kernel without such state never differs.
//!
//! The hooks call `follow_jump` and `follow_branch` where they record jumps and branches. These functions return none
//! while recording.

use rustc_hash::FxHashSet;

use super::paths::Paths;
use super::recorder::{RecordError, Recorder, Replay, Site, Stop, error_at, error_of, run};
use crate::ir::{Inst, Op, SourceLoc};

/// No further path for pairs of sides is followed once the paths have passed this many instructions, and `MAX_WORK` times
/// as many as were recorded.
const MIN_STEPS: usize = 10_000;

/// Limit of the instructions on paths for pairs of sides, as a multiple of the kernel's size: see [`MIN_STEPS`].
const MAX_WORK: usize = 4;

/// Follows paths through the kernel that `recorder` has recorded from `body`.
pub(super) fn replay_paths(
    mut recorder: Recorder,
    recording: u32,
    body: &mut dyn FnMut(),
    site: Site,
) -> Result<Recorder, RecordError> {
    let single: FxHashSet<Inst> = recorder.intrinsic_branches.iter().copied().collect();
    let mut paths = Paths::new(&recorder.func, |branch| single.contains(&branch));
    if !paths.has_branches() {
        return Ok(recorder);
    }
    let func = &recorder.func;
    let size: usize = func.layout.iter().map(|&block| func.recorded_work(block)).sum();
    let name = func.name.clone();
    let mut steps = 0;
    let mut next = Some(Paths::first_goal());
    while let Some(goal) = next {
        let walk = paths.walk(goal);
        let jumps_left = 64 + 4 * recorder.func.layout.len() + paths.most_steps(goal);
        recorder.replay = Some(Replay::new(steps, jumps_left, paths, walk));
        recorder.block = recorder.func.layout[0];
        let outcome;
        (recorder, outcome) = run(recorder, recording, body);
        match outcome {
            Ok(()) => {
                if recorder.next_op() != Some(Op::Return) {
                    let message = recorder.difference("this is recorded, but not on every path");
                    let error = error_at(&name, site, message);
                    return Err(match recorder.next().and_then(|data| data.loc) {
                        Some(loc) => {
                            let SourceLoc { file, line, column, .. } = recorder.func.locs[loc].clone();
                            RecordError { file, line, column, ..error }
                        }
                        None => error,
                    });
                }
            }
            Err(payload) if matches!(payload.downcast_ref(), Some(Stop::PathEnds)) => {}
            Err(payload) => return Err(error_of(payload, &name, site)),
        }
        let replay = recorder.replay.take().expect("set above");
        (paths, steps) = (replay.paths, replay.steps);
        next = paths.next_goal(&replay.walk, steps > MIN_STEPS.max(MAX_WORK * size));
    }
    Ok(recorder)
}
