//! Mutation operators that move waits.

use std::ops::Range;

/// Move of a range of lines to before the line `before`.
pub struct Move {
    pub lines: Range<usize>,
    pub before: usize,
}

/// Function that returns the move of the wait at a line; `None` if there is no wait, or nowhere to move it.
pub type Reorder = fn(&[&str], usize) -> Option<Move>;

/// Operators that move waits within a kernel, by name.
pub const MOVES: [(&str, Reorder); 3] = [
    ("move a barrier behind accesses", |lines, at| {
        behind(lines, one(lines, at, "bar.sync")?, accesses_shared_memory)
    }),
    ("move a barrier before accesses", |lines, at| {
        ahead(lines, one(lines, at, "bar.sync")?, accesses_shared_memory)
    }),
    ("move an mbarrier wait behind", |lines, at| behind(lines, spin(lines, at)?, accesses_shared_memory)),
];

/// Operators that move waits for earlier launches, by name.
pub const WAITS_FOR_LAUNCHES: [(&str, Reorder); 1] = [("move griddepcontrol.wait behind", |lines, at| {
    behind(lines, one(lines, at, "griddepcontrol.wait")?, |code| code.contains(".global"))
})];

/// Range of a wait of one instruction, which begins with `start`.
fn one(lines: &[&str], at: usize, start: &str) -> Option<Range<usize>> {
    lines[at].trim().starts_with(start).then_some(at..at + 1)
}

/// Range of a wait that is a loop around the instruction at `at`, including the label of the loop.
fn spin(lines: &[&str], at: usize) -> Option<Range<usize>> {
    if !lines[at].contains("mbarrier.try_wait") {
        return None;
    }
    let label = lines[..at].iter().rposition(|line| line.trim_end().ends_with(':'))?;
    let name = lines[label].trim().strip_suffix(':')?;
    let branch = at + lines[at..].iter().position(|line| line.contains(" bra "))?;
    lines[branch].contains(&format!(" {name};")).then_some(label..branch + 1)
}

fn accesses_shared_memory(code: &str) -> bool {
    code.contains(".shared") || code.starts_with("ldmatrix") || code.starts_with("cp.async")
}

/// Moves a wait behind the last memory access that control certainly reaches.
fn behind(lines: &[&str], wait: Range<usize>, access: fn(&str) -> bool) -> Option<Move> {
    let run = (wait.end..lines.len()).take_while(|&at| passed(lines, at));
    let last = run.filter(|&at| access(lines[at].trim())).last()?;
    Some(Move { lines: wait, before: last + 1 })
}

/// Moves a wait before the first memory access from which control certainly reaches the wait.
fn ahead(lines: &[&str], wait: Range<usize>, access: fn(&str) -> bool) -> Option<Move> {
    let run = (0..wait.start).rev().take_while(|&at| passed(lines, at));
    let first = run.filter(|&at| access(lines[at].trim())).last()?;
    Some(Move { lines: wait, before: first })
}

/// Whether a line of this compiler's PTX is neither a branch, a branch target, nor a wait.
fn passed(lines: &[&str], at: usize) -> bool {
    let code = lines[at].trim();
    let label = code.strip_suffix(':');
    let target = |name: &str| lines.iter().any(|line| line.contains(&format!("bra {name};")));
    let ends = code.contains("bra ") || code.starts_with("ret") || code.starts_with("exit");
    !ends && !code.contains("wait") && !code.starts_with("bar.") && !label.is_some_and(target)
}
