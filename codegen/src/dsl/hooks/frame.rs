//! Inlined `#[device]` functions and early `return`.

use std::panic::Location;

use super::merge::MergePoint;
use super::slot::Slot;
use crate::dsl::record::{Call, fail, with};

/// Greatest depth of calls of `#[device]` functions.
const MAX_CALL_DEPTH: usize = 128;

/// The call of the `#[device]` function being inlined; ends when dropped.
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
        // While a failed recording unwinds, the recorder still exists, and nothing else borrows it.
        with(|r| {
            r.calls.pop();
        });
    }
}

/// A function body with early returns.
pub struct Frame {
    depth: u32,
    exit: MergePoint,
}

impl Frame {
    /// Enters the body.
    pub fn enter() -> Frame {
        Frame { depth: with(|r| r.depth), exit: MergePoint::default() }
    }

    /// Records a `return`. The slots are the result and the `&mut` parameters. True if the function returns while
    /// recording.
    #[track_caller]
    pub fn return_(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let leaves_now = with(|r| r.depth) == self.depth;
        if leaves_now {
            self.exit.arrive(slots, Location::caller());
        } else {
            self.exit.jump(slots, Location::caller());
        }
        leaves_now
    }

    /// Ends the body; the slots get their values from the paths that end here.
    #[track_caller]
    pub fn finish(mut self, slots: &mut [Slot<'_>]) {
        self.exit.arrive(slots, Location::caller());
    }
}
