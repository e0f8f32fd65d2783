//! Text of the remarks: one sentence each, which says what to do where there is something to do.

use std::fmt::{self, Display, Formatter};

use super::{
    AccessKind, BranchKept, DivisionKept, Done, LoopKept, Missed, NotWidened, Operation, Remark, What,
};
use crate::ir::{Binary, Function, Loc};

impl Remark {
    /// The remark as a sentence. `function` is the kernel that the locations belong to.
    pub fn message(&self, function: &Function) -> String {
        let line = |loc: Option<Loc>| Line { function, loc };
        match &self.what {
            What::Done(done) => done_text(done, line),
            What::Missed(missed) => missed_text(missed, line),
        }
    }
}

/// Location in parentheses, ` (FILE:LINE)`; empty if there is none.
struct Line<'a> {
    function: &'a Function,
    loc: Option<Loc>,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(loc) = self.loc else { return Ok(()) };
        let place = &self.function.locs[loc];
        write!(f, " ({}:{})", place.file, place.line)
    }
}

fn done_text<'a>(done: &Done, line: impl Fn(Option<Loc>) -> Line<'a>) -> String {
    match done {
        Done::Unrolled { iterations } => format!("unrolled fully: {}", counted(*iterations, "iteration")),
        Done::UnrolledPartially { factor, requested, remainder } => {
            let why = if *requested { "as requested" } else { "its loads can be in flight together" };
            let rest = if *remainder {
                "a second loop runs the remaining iterations"
            } else {
                "no iterations remain"
            };
            format!("unrolled {factor} times ({why}); {rest}")
        }
        Done::Hoisted { instructions, out_of } => {
            format!("moved {} out of the loop{}", counted(*instructions, "instruction"), line(*out_of))
        }
        Done::Widened { access, elements, ty } => {
            let bytes = u32::from(*elements) * ty.bytes();
            format!("joined {elements} {access} of {ty} into a vector of {bytes} bytes")
        }
        Done::Divided { divisor, remainder } => {
            let what = if *remainder { "remainder" } else { "quotient" };
            format!("computed the {what} by {divisor} by a product")
        }
        Done::IfConverted { selects } => {
            format!("replaced a branch by {}", counted(*selects, "selection"))
        }
        Done::Decided { outcome } => format!("the condition is always {outcome}"),
        Done::Narrowed { operation } => format!("computed a 64-bit {operation} in 32 bits"),
        Done::SharedRegisters { variables, registers } => {
            let registers = counted(*registers, "register");
            format!("{variables} variables of loops and branches share {registers}, without moves")
        }
    }
}

fn missed_text<'a>(missed: &Missed, line: impl Fn(Option<Loc>) -> Line<'a>) -> String {
    match missed {
        Missed::Loop { why } => format!("loop not unrolled: {}", loop_kept(why, line)),
        Missed::InvariantLoad { of } => format!(
            "load not moved out of the loop{}, although each iteration reads the same address: memory may change; load \
             before the loop if it does not",
            line(*of)
        ),
        Missed::Adjacent { access, accesses, ty, why } => {
            let why = match why {
                NotWidened::Alignment { known, needed } => format!(
                    "the address is known to be a multiple of {}, and a vector needs {needed}; promise more with \
                     `#[aligned(16)]` on the pointer",
                    counted(*known as usize, "byte")
                ),
                NotWidened::Between { at } => format!(
                    "an instruction between them{} may access the same memory, or orders them",
                    line(*at)
                ),
            };
            format!("{accesses} adjacent {access} of {ty} not joined: {why}")
        }
        Missed::Division { why: DivisionKept::NotConstant } => {
            "division not replaced: the divisor is not a compile-time constant".to_owned()
        }
        Missed::Division { why: DivisionKept::Type { ty } } => {
            format!("division by a constant not replaced: the type is {ty}, and only u32 is supported")
        }
        Missed::Branch { why } => {
            let why = match why {
                BranchKept::Effect { at } => {
                    format!("a side has a load, a store or another effect{}", line(*at))
                }
                BranchKept::Slow { at } => format!("a side has an instruction of many cycles{}", line(*at)),
                BranchKept::TooLong { instructions, most } => {
                    format!("its sides have {instructions} instructions, more than {most}")
                }
                BranchKept::TooManySelects { selects, most } => {
                    format!("it assigns {selects} variables, more than {most}")
                }
            };
            format!("branch not replaced by selections: {why}")
        }
    }
}

fn loop_kept<'a>(why: &LoopKept, line: impl Fn(Option<Loc>) -> Line<'a>) -> String {
    const REQUEST: &str = "`.unroll(N)` on the range of a `for` unrolls it nevertheless";
    match why {
        LoopKept::Requested => "`.unroll(1)` keeps it".to_owned(),
        LoopKept::SeveralExits { at } => format!("it can also end at a `break` or `return`{}", line(*at)),
        LoopKept::SeveralEntries => "several jumps lead to its start".to_owned(),
        LoopKept::NoCounter => {
            "its condition does not compare a counter with a limit that the loop leaves unchanged".to_owned()
        }
        LoopKept::IterationsUnknown => {
            "the number of iterations is unknown: start, limit or step is not a constant".to_owned()
        }
        LoopKept::TooLarge { instructions, most } => {
            format!(
                "too large: {} an iteration, and more than {most} in all iterations",
                counted(*instructions, "instruction")
            )
        }
        LoopKept::Branches { at } => format!("it contains a branch or a loop{}; {REQUEST}", line(*at)),
        LoopKept::Effect { at } => format!("it writes memory or waits{}; {REQUEST}", line(*at)),
        LoopKept::TooLong { instructions, most } => {
            let instructions = counted(*instructions, "instruction");
            format!("{instructions} an iteration, more than {most}; {REQUEST}")
        }
        LoopKept::NoLoads => format!("it reads no global memory; {REQUEST}"),
        LoopKept::FewIterations { iterations, factor } => {
            format!("it has {}, fewer than {factor}", counted(*iterations as usize, "iteration"))
        }
    }
}

/// Formats `1 byte` and `2 bytes`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Display for AccessKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessKind::Load => "loads",
            AccessKind::Store => "stores",
        })
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Binary(Binary::Div) => "division",
            Operation::Binary(Binary::Rem) => "remainder",
            Operation::Binary(Binary::Min | Binary::Max) => "minimum or maximum",
            Operation::Binary(_) => "operation",
            Operation::Compare => "comparison",
            Operation::Convert => "conversion",
        })
    }
}
