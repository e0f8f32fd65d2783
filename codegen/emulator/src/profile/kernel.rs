//! Profile of a kernel.

use std::collections::HashMap;

use super::counts::{Class, Counts, Tally, ratio};
use super::traffic::ProfileTraits;
use crate::code::program::Program;
use crate::finding::SourceLine;

/// Profile of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionProfile {
    /// 1-based line of the PTX text.
    pub ptx_line: u32,
    /// Text of the PTX line.
    pub ptx_text: String,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// Class of the instruction.
    pub class: Class,
    /// Counts of the instruction.
    pub counts: Counts,
}

/// Profile of all instructions of one source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineProfile {
    /// The source line, with the column of its first instruction; `None` for instructions before the first `.loc`.
    pub source: Option<SourceLine>,
    /// Counts of the line's instructions.
    pub counts: Counts,
}

/// Profile of one or several launches of a kernel; see [`Options::profile`](crate::Options::profile).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The kernel's name.
    pub kernel: String,
    /// Number of launches that the profile covers.
    pub launches: u64,
    /// Threads that the launches started.
    pub threads: u64,
    /// Profiles of all instructions, in the order of the PTX text.
    pub instructions: Vec<InstructionProfile>,
}

impl Profile {
    /// Profile of one launch.
    pub(crate) fn new(program: &Program, traits: &[ProfileTraits], threads: u64, tally: &Tally) -> Profile {
        let instruction = |(pc, &counts): (usize, &Counts)| {
            let place = program.place(pc);
            InstructionProfile {
                ptx_line: place.line,
                ptx_text: program.line_text(place.line),
                source: program.source_line(place),
                class: traits[pc].class,
                counts,
            }
        };
        Profile {
            kernel: program.name.clone(),
            launches: 1,
            threads,
            instructions: tally.iter().enumerate().map(instruction).collect(),
        }
    }

    /// Adds another profile of the same kernel. Returns false, and adds nothing, if `other` is of another kernel.
    #[must_use]
    pub fn merge(&mut self, other: &Profile) -> bool {
        let same = self.kernel == other.kernel
            && self.instructions.len() == other.instructions.len()
            && self.instructions.iter().zip(&other.instructions).all(|(a, b)| a.ptx_text == b.ptx_text);
        if same {
            self.launches += other.launches;
            self.threads += other.threads;
            for (mine, theirs) in self.instructions.iter_mut().zip(&other.instructions) {
                mine.counts.add(&theirs.counts);
            }
        }
        same
    }

    /// Sum of all instructions' counts.
    pub fn total(&self) -> Counts {
        sum(self.instructions.iter())
    }

    /// Lane instructions by [`Class`], in the order of [`Class::ALL`].
    pub fn mix(&self) -> [(Class, u64); 7] {
        Class::ALL.map(|class| {
            let of_class = self.instructions.iter().filter(|instruction| instruction.class == class);
            (class, sum(of_class).lane_instructions)
        })
    }

    /// Profiles of the source lines, by descending number of lane instructions.
    pub fn lines(&self) -> Vec<LineProfile> {
        let mut lines: Vec<LineProfile> = Vec::new();
        let mut index = HashMap::new();
        for InstructionProfile { source, counts, .. } in &self.instructions {
            let place = line_of(source);
            match index.get(&place) {
                Some(&at) => {
                    let line: &mut LineProfile = &mut lines[at];
                    line.counts.add(counts);
                }
                None => {
                    index.insert(place, lines.len());
                    lines.push(LineProfile { source: source.clone(), counts: *counts });
                }
            }
        }
        // A stable sort keeps lines with equal counts in the order of the text.
        lines.sort_by_key(|line| std::cmp::Reverse(line.counts.lane_instructions));
        lines
    }

    /// Lane instructions per thread.
    pub fn instructions_per_thread(&self) -> f64 {
        ratio(self.total().lane_instructions, self.threads).unwrap_or(0.0)
    }

    /// Lane instructions per byte moved to or from global memory; `None` if nothing was moved.
    pub fn instructions_per_byte(&self) -> Option<f64> {
        let total = self.total();
        ratio(total.lane_instructions, total.global.bytes())
    }
}

/// File and line of a source position.
pub(super) fn line_of(source: &Option<SourceLine>) -> Option<(&str, u32)> {
    source.as_ref().map(|source| (source.file.as_str(), source.line))
}

fn sum<'a>(instructions: impl Iterator<Item = &'a InstructionProfile>) -> Counts {
    instructions.fold(Counts::default(), |mut sum, instruction| {
        sum.add(&instruction.counts);
        sum
    })
}
