//! Report of the optimiser: what the passes did to a kernel and what they did not do, by Rust line.
//!
//! ```
//! use bespoke_codegen::prelude::*;
//!
//! /// The largest of each thread's 64 values.
//! #[kernel(threads = 128)]
//! fn largest(x: Ptr<Global, f32>, y: Ptr<Global, f32>, n: Val<u32>) {
//!     let first = x.at(thread_index() * n);
//!     let mut most = first.load();
//!     for i in 1..n {
//!         most = most.max(first.at(i).load());
//!     }
//!     y.at(thread_index()).store(most);
//! }
//!
//! let report = largest()?.compile(Target::Sm90)?.opt_report();
//! let unrolled = report.entries.iter().find(|entry| entry.pass == "unroll_partially").unwrap();
//! assert!(unrolled.done);
//! assert_eq!(
//!     unrolled.message,
//!     "unrolled 4 times (its loads can be in flight together); a second loop runs the remaining iterations"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use crate::ir::{Function, Loc};
use crate::kernel::Compiled;
use crate::passes::remarks::{Done, Missed, What};
use crate::passes::{LAST, ROUND, Remark, Remarks, Report};
use crate::ptx::shared_register_groups;

/// Optimisations of a kernel, applied and missed, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OptReport {
    /// Entries by Rust line: by the line in the kernel, then by the lines that were inlined there. Entries of the functions that
    /// the kernel calls follow, function by function.
    pub entries: Vec<Entry>,
}

/// A line of the report: equal remarks at the same Rust line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Name of the pass; `registers` for the assignment of virtual registers.
    pub pass: &'static str,
    /// Whether something was done; otherwise the entry says why it was not.
    pub done: bool,
    /// The called function that has the line; none for the kernel itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The Rust line, then the calls through which it was inlined, innermost first. Empty for the kernel or function as a whole.
    pub places: Vec<Place>,
    /// Number of equal remarks, for example in the copies of an unrolled loop.
    pub times: usize,
    /// The remark as a sentence.
    pub message: String,
    /// The remark as data.
    #[serde(flatten)]
    pub what: What,
}

/// A position in a Rust file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The file as rustc names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl Compiled {
    /// Optimisations of the kernel, applied and missed, with the reason.
    pub fn opt_report(&self) -> OptReport {
        OptReport::of(&self.function, &self.passes)
    }
}

impl OptReport {
    /// Report of passes that ran on a kernel; `kernel` is their result.
    pub fn of(kernel: &Function, passes: &Report) -> OptReport {
        let mut entries = entries(kernel, passes);
        for (function, passes) in kernel.functions.iter().zip(&passes.functions) {
            let name = Some(function.name.clone());
            entries.extend(
                self::entries(function, passes)
                    .into_iter()
                    .map(|entry| Entry { function: name.clone(), ..entry }),
            );
        }
        OptReport { entries }
    }

    /// Groups of entries with the same places, in order.
    pub fn by_line(&self) -> impl Iterator<Item = &[Entry]> {
        self.entries.chunk_by(|a, b| (&a.function, &a.places) == (&b.function, &b.places))
    }
}

/// The entries of one function.
fn entries(function: &Function, passes: &Report) -> Vec<Entry> {
    let mut remarks = passes.remarks.clone();
    remarks.extend(missed(function, passes));
    remarks.extend(shared_registers(function));
    let mut numbers: HashMap<(&'static str, Vec<Place>, String), usize> = HashMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    for remark in remarks {
        let (places, message) = (places(function, remark.loc), remark.message(function));
        let next = entries.len();
        let number = *numbers.entry((remark.pass, places.clone(), message.clone())).or_insert(next);
        if number < next {
            entries[number].times += 1;
            continue;
        }
        let done = matches!(remark.what, What::Done(_));
        let pass = remark.pass;
        entries.push(Entry { pass, done, function: None, places, times: 1, message, what: remark.what });
    }
    // From the outermost call to the innermost line; the sort is stable, so passes stay in order.
    entries.sort_by(|a, b| a.places.iter().rev().cmp(b.places.iter().rev()));
    entries
}

impl Entry {
    /// What the entry is about if it has no place: the kernel, or the called function.
    pub fn subject(&self) -> String {
        match &self.function {
            None => "the kernel".to_owned(),
            Some(function) => format!("the function {function}"),
        }
    }

    /// The entry without its place: whether it was done, the pass, the message.
    pub fn line(&self) -> impl Display + '_ {
        struct Line<'a>(&'a Entry);
        impl Display for Line<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                let Entry { pass, done, message, times, .. } = self.0;
                write!(f, "{:<6} {pass:<16} {message}", if *done { "done" } else { "missed" })?;
                if *times > 1 { write!(f, " ({times} times)") } else { Ok(()) }
            }
        }
        Line(self)
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Display for OptReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for entries in self.by_line() {
            match entries[0].places.as_slice() {
                [] => writeln!(f, "{}", entries[0].subject())?,
                [place, callers @ ..] => {
                    write!(f, "{place}")?;
                    callers.iter().try_for_each(|caller| write!(f, ", called at {caller}"))?;
                    writeln!(f)?;
                }
            }
            for entry in entries {
                writeln!(f, "  {}", entry.line())?;
            }
        }
        Ok(())
    }
}

/// Why the passes of a report left the rest of the function as it is.
fn missed(function: &Function, passes: &Report) -> Vec<Remark> {
    let ran: HashSet<&str> = passes.steps.iter().map(|step| step.pass).collect();
    let unrolled = |remark: &&Remark| {
        matches!(remark.what, What::Done(Done::Unrolled { .. } | Done::UnrolledPartially { .. }))
    };
    let unrolled: HashSet<Loc> =
        passes.remarks.iter().filter(unrolled).filter_map(|remark| remark.loc).collect();
    let mut remarks: Vec<Remark> = Vec::new();
    for pass in ROUND.iter().chain(LAST).filter(|pass| ran.contains(pass.name())) {
        let mut missed = Remarks::default();
        pass.missed(function, &mut missed);
        for remark in missed.of(pass.name()) {
            if matches!(remark.what, What::Missed(Missed::Loop { .. })) {
                // The loops that partial unrolling leaves, and a reason that holds for both kinds of unrolling.
                let rest = remark.loc.is_some_and(|loc| unrolled.contains(&loc));
                let known = |other: &Remark| (other.loc, &other.what) == (remark.loc, &remark.what);
                if rest || (pass.name() != "unroll" && remarks.iter().any(known)) {
                    continue;
                }
            }
            remarks.push(remark);
        }
    }
    remarks
}

/// The remark about variables that share registers, if some do.
fn shared_registers(function: &Function) -> Option<Remark> {
    let (variables, registers) = shared_register_groups(function);
    let what = What::Done(Done::SharedRegisters { variables, registers });
    (variables > 0).then_some(Remark { pass: "registers", loc: None, what })
}

fn places(function: &Function, mut loc: Option<Loc>) -> Vec<Place> {
    let mut places = Vec::new();
    while let Some(at) = loc {
        let at = &function.locs[at];
        places.push(Place { file: at.file.clone(), line: at.line, column: at.column });
        loc = at.inlined_at;
    }
    places
}
