//! Inlined `#[device]` functions and early `return`.

use std::panic::Location;

use super::merge::MergePoint;
use super::slot::Slot;
use crate::dsl::recorder::{Call, fail, with};

/// Maximum depth of nested calls of `#[device]` functions.
const MAX_CALL_DEPTH: usize = 128;

/// Scope of the `#[device]` function being inlined; dropping the scope ends the call.
pub struct InlinedScope(());

/// Enters a `#[device]` function called at `site`.
pub fn enter_device(function: &'static str, site: &'static Location<'static>) -> InlinedScope {
    let depth = with(|r| {
        let call = Call { function, site: r.loc(site) };
        r.calls.push(call);
        r.calls.len()
    });
    if depth > MAX_CALL_DEPTH {
        with(|r| r.calls.pop());
        fail(
            site,
            format!(
                "`{function}` is called at a depth of more than {MAX_CALL_DEPTH} calls: `#[device]` functions are \
                 inlined, so a compile-time condition must end a recursion"
            ),
        );
    }
    InlinedScope(())
}

impl Drop for InlinedScope {
    fn drop(&mut self) {
        // While a failed recording unwinds, the recorder still exists and is not borrowed.
        with(|r| {
            r.calls.pop();
        });
    }
}

/// The body of a function with early returns.
pub struct Frame {
    depth: u32,
    exit: MergePoint,
}

impl Frame {
    /// Enters the body of a function.
    #[track_caller]
    pub fn enter() -> Frame {
        Frame { depth: with(|r| r.depth), exit: MergePoint::new(Location::caller()) }
    }

    /// Records a `return`. `slots` are the result and the `&mut` parameters. Returns true if the function returns while
    /// recording, false if a jump is recorded. A replay takes all jumps.
    #[track_caller]
    pub fn return_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        if with(|r| r.is_replay()) {
            self.exit.follow(slots, Location::caller());
            return true;
        }
        let leaves_now = with(|r| r.depth) == self.depth;
        if leaves_now {
            self.exit.arrive(slots, Location::caller());
        } else {
            self.exit.jump(slots, Location::caller());
        }
        leaves_now
    }

    /// Ends the body. The result and the `&mut` parameters in `slots` get their values from the paths that end here.
    #[track_caller]
    pub fn finish(mut self, slots: &mut [Slot<'_>]) {
        if with(|r| r.is_replay()) {
            return self.exit.follow(slots, Location::caller());
        }
        self.exit.arrive(slots, Location::caller());
    }
}
