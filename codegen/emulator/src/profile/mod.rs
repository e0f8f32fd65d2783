//! What a kernel did, instruction by instruction: how often, by how many lanes, and at what cost to memory.

mod lint;
pub(crate) mod requests;
pub(crate) mod role;

use std::collections::HashMap;

use crate::code::program::Program;
use crate::finding::SourceLine;

pub use lint::{Lint, LintKind, Thresholds};
use role::Role;

/// What kind of work an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Arithmetic, comparison and logic on integers and bits.
    Integer,
    /// Arithmetic and comparison of floating-point numbers.
    Float,
    /// Products of matrices: `mma`.
    Matrix,
    /// Loads, stores, atomics, `ldmatrix` and asynchronous copies.
    Memory,
    /// Branches, exits, barriers, fences, and waits for copies.
    Control,
    /// What lanes of a warp do together: shuffles, votes, reductions.
    Warp,
    /// Moves, conversions, selections and permutations of bytes.
    Move,
}

impl Class {
    /// All of them, in the order of [`Profile::mix`].
    pub const ALL: [Class; 7] = [
        Class::Integer,
        Class::Float,
        Class::Matrix,
        Class::Memory,
        Class::Control,
        Class::Warp,
        Class::Move,
    ];

    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Float => "float",
            Class::Matrix => "matrix",
            Class::Memory => "memory",
            Class::Control => "control",
            Class::Warp => "warp",
            Class::Move => "move",
        }
    }
}

/// Global memory: requests of warps, and the sectors of 32 bytes that serve them. A request stands alone:
/// that an earlier one has brought a sector into a cache does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalCounts {
    /// Instructions of warps that accessed global memory; of bulk copies, copies.
    pub requests: u64,
    /// Sectors touched, each once a request.
    pub sectors: u64,
    /// The fewest sectors that could hold the different bytes that each request touched.
    pub ideal_sectors: u64,
    /// Bytes that lanes loaded, and that copies read.
    pub bytes_loaded: u64,
    /// Bytes that lanes stored, atomics included, and that copies wrote.
    pub bytes_stored: u64,
}

impl GlobalCounts {
    /// Bytes moved in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_loaded + self.bytes_stored
    }

    /// Sectors over ideal sectors: 1 where every byte of every sector is used; 1 without any.
    pub fn excess(&self) -> f64 {
        ratio(self.sectors, self.ideal_sectors).unwrap_or(1.0)
    }
}

/// Shared memory: 32 banks of 4-byte words, each of which delivers one word a wavefront. A request of up to
/// 4 bytes a lane is served whole, one of 8 bytes by half-warps, one of 16 bytes by quarter-warps (by twice as
/// many lanes where each wants the same as its neighbour, or as the lane two on); a part takes as many
/// wavefronts as one bank has different words to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// Instructions of warps that accessed shared memory.
    pub requests: u64,
    /// Wavefronts that served them.
    pub wavefronts: u64,
    /// Wavefronts without a bank conflict: one for each part that has a lane.
    pub ideal_wavefronts: u64,
    /// The most words that a part wanted of one bank: 1 without a conflict.
    pub worst_ways: u64,
    /// Bytes that lanes, rows of matrices and grouped copies loaded or stored.
    pub bytes: u64,
}

impl SharedCounts {
    /// Wavefronts over those without conflicts: the average number of ways; 1 without any.
    pub fn ways(&self) -> f64 {
        ratio(self.wavefronts, self.ideal_wavefronts).unwrap_or(1.0)
    }
}

/// How often something ran and what it moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times a warp issued it, in vain (no lane's guard held) included.
    pub warps: u64,
    /// Lanes that were there when a warp issued it, whether their guard held or not: 32 a time unless the
    /// warp had diverged or is not full.
    pub together: u64,
    /// Lanes that executed it.
    pub lanes: u64,
    /// Times a warp came to a branch.
    pub branches: u64,
    /// Times some of its lanes took the branch and some did not.
    pub divergent_branches: u64,
    /// Traffic with global memory.
    pub global: GlobalCounts,
    /// Traffic with shared memory.
    pub shared: SharedCounts,
}

impl Counts {
    /// Adds what another has.
    pub fn add(&mut self, other: &Counts) {
        self.warps += other.warps;
        self.together += other.together;
        self.lanes += other.lanes;
        self.branches += other.branches;
        self.divergent_branches += other.divergent_branches;
        let (global, more) = (&mut self.global, &other.global);
        global.requests += more.requests;
        global.sectors += more.sectors;
        global.ideal_sectors += more.ideal_sectors;
        global.bytes_loaded += more.bytes_loaded;
        global.bytes_stored += more.bytes_stored;
        let (shared, more) = (&mut self.shared, &other.shared);
        shared.requests += more.requests;
        shared.wavefronts += more.wavefronts;
        shared.ideal_wavefronts += more.ideal_wavefronts;
        shared.worst_ways = shared.worst_ways.max(more.worst_ways);
        shared.bytes += more.bytes;
    }

    /// Lanes that were together, on average; 0 if it never ran.
    pub fn average_lanes(&self) -> f64 {
        ratio(self.together, self.warps).unwrap_or(0.0)
    }
}

fn ratio(over: u64, under: u64) -> Option<f64> {
    (under > 0).then(|| over as f64 / under as f64)
}

/// The counts of one worker: one an instruction.
pub(crate) type Tally = Box<[Counts]>;

/// One instruction of a kernel and what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionProfile {
    /// 1-based line of the PTX text.
    pub ptx_line: u32,
    /// The text of that line.
    pub ptx_text: String,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// What kind of work it is.
    pub class: Class,
    /// What it did.
    pub counts: Counts,
}

/// All instructions of one source line together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineProfile {
    /// The line, with the column of its first instruction; none for what stands before the first `.loc`, or a PTX text that has none.
    pub source: Option<SourceLine>,
    /// What they did.
    pub counts: Counts,
}

/// What the launches of one kernel did, for [`Options::profile`](crate::Options::profile).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The kernel's name.
    pub kernel: String,
    /// Launches counted.
    pub launches: u64,
    /// Threads that they started.
    pub threads: u64,
    /// Every instruction, in the order of the text.
    pub instructions: Vec<InstructionProfile>,
}

impl Profile {
    /// One launch of a kernel, counted by several workers.
    pub(crate) fn new(program: &Program, roles: &[Role], threads: u64, tally: &Tally) -> Profile {
        let instruction = |(pc, &counts): (usize, &Counts)| {
            let place = program.place(pc);
            InstructionProfile {
                ptx_line: place.line,
                ptx_text: program.line_text(place.line),
                source: program.source_line(place),
                class: roles[pc].class,
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

    /// Adds another profile of the same kernel; returns false, and adds nothing, if it is of another.
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

    /// Everything together.
    pub fn total(&self) -> Counts {
        sum(self.instructions.iter())
    }

    /// Lane instructions by [`Class`], in the order of [`Class::ALL`].
    pub fn mix(&self) -> [(Class, u64); 7] {
        Class::ALL.map(|class| {
            let of_class = self.instructions.iter().filter(|instruction| instruction.class == class);
            (class, sum(of_class).lanes)
        })
    }

    /// The source lines, the one with the most lane instructions first.
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
        // Stable, so that lines with equal counts stay in the order of the text.
        lines.sort_by_key(|line| std::cmp::Reverse(line.counts.lanes));
        lines
    }

    /// Lane instructions a thread.
    pub fn instructions_per_thread(&self) -> f64 {
        ratio(self.total().lanes, self.threads).unwrap_or(0.0)
    }

    /// Lane instructions a byte moved to or from global memory; none if nothing was.
    pub fn instructions_per_byte(&self) -> Option<f64> {
        let total = self.total();
        ratio(total.lanes, total.global.bytes())
    }

    /// What could be faster, by these thresholds.
    pub fn lints(&self, thresholds: &Thresholds) -> Vec<Lint> {
        lint::lints(self, thresholds)
    }
}

/// A place without its column.
fn line_of(source: &Option<SourceLine>) -> Option<(&str, u32)> {
    source.as_ref().map(|source| (source.file.as_str(), source.line))
}

fn sum<'a>(instructions: impl Iterator<Item = &'a InstructionProfile>) -> Counts {
    instructions.fold(Counts::default(), |mut sum, instruction| {
        sum.add(&instruction.counts);
        sum
    })
}
