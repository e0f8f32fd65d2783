//! Reduces a kernel to a small one that still makes a test succeed: the library of `bespoke reduce`.
//!
//! [`reduce`] proposes smaller kernels: without instructions, with values replaced by constants or operands, with a branch
//! that goes one way, without parameters and locations. The functions that it calls become smaller in the same ways. It keeps a proposal if the verifier accepts it and the test
//! succeeds. Proposals change many places at once first, then fewer, so that large kernels become small in few tests.

mod compact;
mod size;
mod steps;

use bespoke_codegen::ir::Function;
use bespoke_codegen::ir::verify::verify;

pub use size::Size;

/// State of a reduction after a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of tests so far.
    pub tests: usize,
    /// Size of the smallest kernel so far.
    pub size: Size,
}

/// Reduces a kernel while `interesting` accepts its text form. Returns the smallest kernel found, with its size and the
/// number of tests; none if `interesting` rejects the kernel itself. `progress` is called after each kernel that was
/// accepted. An error of `interesting` ends the reduction.
pub fn reduce<E>(
    function: &Function,
    mut interesting: impl FnMut(&str) -> Result<bool, E>,
    mut progress: impl FnMut(Progress),
) -> Result<Option<(Function, Progress)>, E> {
    let mut best = compact::compact(function);
    let mut state = Progress { tests: 1, size: Size::of(&best) };
    if !interesting(&best.to_string())? {
        return Ok(None);
    }
    loop {
        let before = state.size;
        for step in steps::ALL {
            let mut count = step.sites(&best);
            while count > 0 {
                let mut at = 0;
                while at < step.sites(&best) {
                    let mut candidate = best.clone();
                    let end = (at + count).min(step.sites(&best));
                    step.apply(&mut candidate, at..end);
                    let candidate = compact::compact(&candidate);
                    let size = Size::of(&candidate);
                    if size < state.size && verify(&candidate).is_ok() {
                        state.tests += 1;
                        if interesting(&candidate.to_string())? {
                            (best, state.size) = (candidate, size);
                            progress(state);
                            continue;
                        }
                    }
                    at += count;
                }
                count /= 2;
            }
        }
        if state.size == before {
            return Ok(Some((best, state)));
        }
    }
}

#[cfg(test)]
mod tests;
