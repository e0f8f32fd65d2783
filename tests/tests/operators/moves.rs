//! Waits at other places.

use std::ops::Range;

/// Lines that go to another place: in front of the line `before`.
pub struct Move {
    pub lines: Range<usize>,
    pub before: usize,
}

/// Where a wait at a line goes; `None` where there is none, or no place for it.
pub type Reorder = fn(&[&str], usize) -> Option<Move>;

/// What is done to waits of a kernel.
pub const MOVES: [(&str, Reorder); 3] = [
    ("barrier behind accesses", |lines, at| behind(lines, one(lines, at, "bar.sync")?, of_the_cta)),
    ("barrier ahead of accesses", |lines, at| ahead(lines, one(lines, at, "bar.sync")?, of_the_cta)),
    ("mbarrier's wait behind accesses", |lines, at| behind(lines, spin(lines, at)?, of_the_cta)),
];

/// What is done to waits for other launches.
pub const WAITS_FOR_LAUNCHES: [(&str, Reorder); 1] = [("wait for launches behind accesses", |lines, at| {
    behind(lines, one(lines, at, "griddepcontrol.wait")?, |code| code.contains(".global"))
})];

/// A wait that is one instruction.
fn one(lines: &[&str], at: usize, start: &str) -> Option<Range<usize>> {
    lines[at].trim().starts_with(start).then_some(at..at + 1)
}

/// A wait that is a loop around an instruction at `at`, with its label.
fn spin(lines: &[&str], at: usize) -> Option<Range<usize>> {
    if !lines[at].contains("mbarrier.try_wait") {
        return None;
    }
    let label = lines[..at].iter().rposition(|line| line.trim_end().ends_with(':'))?;
    let name = lines[label].trim().strip_suffix(':')?;
    let branch = at + lines[at..].iter().position(|line| line.contains(" bra "))?;
    lines[branch].contains(&format!(" {name};")).then_some(label..branch + 1)
}

fn of_the_cta(code: &str) -> bool {
    code.contains(".shared") || code.starts_with("ldmatrix") || code.starts_with("cp.async")
}

/// Behind the last access to which control surely comes.
fn behind(lines: &[&str], wait: Range<usize>, access: fn(&str) -> bool) -> Option<Move> {
    let run = (wait.end..lines.len()).take_while(|&at| passed(lines, at));
    let last = run.filter(|&at| access(lines[at].trim())).last()?;
    Some(Move { lines: wait, before: last + 1 })
}

/// Ahead of the first access from which control surely comes.
fn ahead(lines: &[&str], wait: Range<usize>, access: fn(&str) -> bool) -> Option<Move> {
    let run = (0..wait.start).rev().take_while(|&at| passed(lines, at));
    let first = run.filter(|&at| access(lines[at].trim())).last()?;
    Some(Move { lines: wait, before: first })
}

/// Whether control goes through a line and nowhere else, without another wait, in PTX as ours is printed.
fn passed(lines: &[&str], at: usize) -> bool {
    let code = lines[at].trim();
    let label = code.strip_suffix(':');
    let target = |name: &str| lines.iter().any(|line| line.contains(&format!("bra {name};")));
    let ends = code.contains("bra ") || code.starts_with("ret") || code.starts_with("exit");
    !ends && !code.contains("wait") && !code.starts_with("bar.") && !label.is_some_and(target)
}
