//! Inlined `#[device]` functions and early `return`.

use std::panic::Location;

use super::exit::Exit;
use super::slot::Slot;
use crate::dsl::record::{Call, fail, with};

/// Calls of `#[device]` functions within each other.
const DEEPEST: usize = 128;

/// Keeps the call site of the `#[device]` function being inlined; dropped at its end.
pub struct InlinedScope(());

/// Enters a `#[device]` function called at `site`.
pub fn enter_device(function: &'static str, site: &'static Location<'static>) -> InlinedScope {
    let depth = with(|r| {
        let call = Call { function, site: r.loc(site) };
        r.calls.push(call);
        r.calls.len()
    });
    if depth > DEEPEST {
        with(|r| r.calls.pop());
        fail(
            site,
            format!(
                "`{function}` is called inside of more than {DEEPEST} calls: a `#[device]` function is inlined where it is \
                 called, so a recursion must end on a compile-time condition"
            ),
        );
    }
    InlinedScope(())
}

impl Drop for InlinedScope {
    fn drop(&mut self) {
        // While unwinding out of a failed recording the recorder is still there; nothing else may hold it.
        with(|r| {
            r.calls.pop();
        });
    }
}

/// A function body with early returns.
pub struct Frame {
    depth: u32,
    exit: Exit,
}

impl Frame {
    /// Enters the body.
    pub fn enter() -> Frame {
        Frame { depth: with(|r| r.depth), exit: Exit::default() }
    }

    /// Records a `return`; the slots are the result and what else the caller sees. True if the function is to be
    /// left at recording time.
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

    /// Reaches the end of the body: the slots become what the paths that arrive here gave them.
    #[track_caller]
    pub fn finish(mut self, slots: &mut [Slot<'_>]) {
        self.exit.arrive(slots, Location::caller());
    }
}
