//! Kernels with one damaged line, and what is found.

use std::fmt::Write;

use bespoke_emulator::Finding;

use crate::device::Device;

/// Result of a kernel that is compared with a float64 computation.
pub struct Run {
    pub got: Vec<f64>,
    pub expected: Vec<f64>,
    /// Largest difference, relative to the largest expected magnitude.
    pub tolerance: f64,
}

impl Run {
    pub fn difference(&self) -> f64 {
        let largest = self.expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        let pairs = self.got.iter().zip(&self.expected);
        // NaN is different, too.
        pairs
            .map(|(got, expected)| (got - expected).abs() / largest)
            .fold(0.0, |most, x| if x <= most { most } else { x })
    }

    pub fn is_right(&self) -> bool {
        self.got.len() == self.expected.len() && self.difference() <= self.tolerance
    }
}

/// Kernel with its launch: runs on a PTX text, which may be damaged.
pub struct Case {
    pub name: &'static str,
    pub ptx: &'static str,
    pub run: fn(&Device) -> Result<Run, Box<Finding>>,
}

/// Mutants that behave as the kernel does, and why. `numbers` are those of the damaged lines among those of their kind,
/// from 1 on.
pub struct Equivalent {
    case: &'static str,
    what: &'static str,
    numbers: &'static [usize],
    #[allow(dead_code, reason = "for the reader")]
    why: &'static str,
}

pub const fn equivalent(
    case: &'static str,
    what: &'static str,
    numbers: &'static [usize],
    why: &'static str,
) -> Equivalent {
    Equivalent { case, what, numbers, why }
}

/// The texts with one line damaged at a time, of those that contain `pattern`: `damage` gives the new line.
pub fn damaged(text: &str, pattern: &str, damage: impl Fn(&str) -> String) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let damaged = lines.iter().enumerate().filter(|(_, line)| line.contains(pattern)).map(|(at, line)| {
        let new = damage(line);
        let text: Vec<&str> =
            lines.iter().enumerate().map(|(i, line)| if i == at { &new } else { *line }).collect();
        text.join("\n")
    });
    damaged.collect()
}

/// Leaves a line out.
pub fn left_out(_: &str) -> String {
    String::new()
}

/// Lets a wait for groups end when one group more is in flight.
pub fn a_group_early(line: &str) -> String {
    let (rest, number) =
        line.trim_end_matches(';').trim_end().rsplit_once(char::is_whitespace).expect("a number");
    format!("{rest} {};", number.parse::<u32>().expect("a number of groups") + 1)
}

/// Replaces the last operand.
pub fn last_operand(new: &str) -> impl Fn(&str) -> String + use<'_> {
    move |line| {
        let statement = line.split_once(';').expect("a statement").0;
        let (rest, _) = statement.rsplit_once(", ").expect("operands");
        format!("{rest}, {new};")
    }
}

/// Mutants of kernels and what is found in each, in a table.
pub struct Mutants<'e> {
    equivalent: &'e [Equivalent],
    table: String,
    /// Mutants without a finding and with the right result: case, kind and number.
    survivors: Vec<(&'static str, String, usize)>,
}

impl<'e> Mutants<'e> {
    pub fn new(equivalent: &'e [Equivalent]) -> Mutants<'e> {
        Mutants { equivalent, table: String::new(), survivors: Vec::new() }
    }

    /// Runs the mutants of a case that have one line with `pattern` damaged. `what` names their kind.
    #[track_caller]
    pub fn add(&mut self, case: &Case, what: &str, pattern: &str, damage: impl Fn(&str) -> String) {
        let texts = damaged(case.ptx, pattern, damage);
        assert!(!texts.is_empty(), "{}: no line has `{pattern}`", case.name);
        let mut outcomes = Vec::new();
        for (number, text) in (1..).zip(&texts) {
            assert_ne!(text.lines().collect::<Vec<_>>(), case.ptx.lines().collect::<Vec<_>>(), "{what}");
            outcomes.push(match outcome(case, text) {
                Some(found) => found,
                None => {
                    self.survivors.push((case.name, what.to_string(), number));
                    match self.is_equivalent(case.name, what, number) {
                        true => "equivalent".to_string(),
                        false => "survives".to_string(),
                    }
                }
            });
        }
        let _ = writeln!(self.table, "{} {what}: {}", case.name, outcomes.join(", "));
    }

    fn is_equivalent(&self, case: &str, what: &str, number: usize) -> bool {
        self.equivalent
            .iter()
            .any(|one| (one.case, one.what) == (case, what) && one.numbers.contains(&number))
    }

    /// The table of outcomes, and the survivors that are not known to be equivalent.
    #[track_caller]
    pub fn finish(self) -> String {
        for Equivalent { case, what, numbers, .. } in self.equivalent {
            for number in *numbers {
                let survives =
                    self.survivors.iter().any(|one| (one.0, &*one.1, one.2) == (*case, what, *number));
                assert!(survives, "{case} {what} {number} does not survive");
            }
        }
        let unknown = self.survivors.iter().filter(|one| !self.is_equivalent(one.0, &one.1, one.2));
        let unknown: Vec<String> =
            unknown.map(|(case, what, number)| format!("{case} {what} {number}")).collect();
        match &unknown[..] {
            [] => self.table + "none survives\n",
            _ => format!("{}survivors: {}\n", self.table, unknown.join(", ")),
        }
    }
}

/// What is found in a damaged text; `None` if its result is right.
#[track_caller]
fn outcome(case: &Case, text: &str) -> Option<String> {
    match (case.run)(&Device::load(text)) {
        Err(finding) => Some(format!("{:?}", finding.kind)),
        Ok(run) if !run.is_right() => Some("wrong result".to_string()),
        Ok(_) => None,
    }
}
