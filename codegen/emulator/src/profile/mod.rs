//! Profiles: how often each instruction of a kernel ran, with how many lanes, and what its memory accesses cost.

mod lint;
pub(crate) mod requests;
pub(crate) mod traffic;

use std::collections::HashMap;

use crate::code::program::Program;
use crate::finding::SourceLine;

pub use lint::{Lint, LintKind, Thresholds};
use traffic::ProfileTraits;

/// Class of an instruction, by the kind of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Arithmetic, comparison and logic on integers and bits.
    Integer,
    /// Arithmetic and comparison of floating-point numbers.
    Float,
    /// Matrix products: `mma`.
    Matrix,
    /// Loads, stores, atomics, `ldmatrix` and asynchronous copies.
    Memory,
    /// Branches, exits, barriers, fences and waits for copies.
    Control,
    /// Warp-wide operations: shuffles, votes, reductions.
    Warp,
    /// Moves, conversions, selections and byte permutations.
    Move,
}

impl Class {
    /// All classes, in the order of [`Profile::mix`].
    pub const ALL: [Class; 7] = [
        Class::Integer,
        Class::Float,
        Class::Matrix,
        Class::Memory,
        Class::Control,
        Class::Warp,
        Class::Move,
    ];

    /// Name of the class, one word.
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

/// Traffic with global memory: requests of warps, and the sectors of 32 bytes that serve them. Each request is counted
/// alone, as if no sector were cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalCounts {
    /// Warp instructions that accessed global memory; of bulk copies, each lane's copy.
    pub requests: u64,
    /// Sectors accessed, each counted once per request.
    pub sectors: u64,
    /// The fewest sectors that could hold the distinct bytes of each request.
    pub ideal_sectors: u64,
    /// Bytes that lanes loaded and copies read.
    pub bytes_loaded: u64,
    /// Bytes that lanes stored (atomics included) and copies wrote.
    pub bytes_stored: u64,
}

impl GlobalCounts {
    /// Bytes loaded and stored.
    pub fn bytes(&self) -> u64 {
        self.bytes_loaded + self.bytes_stored
    }

    /// Ratio of sectors to ideal sectors: 1 if every byte of every sector is used, or without any request.
    pub fn excess(&self) -> f64 {
        ratio(self.sectors, self.ideal_sectors).unwrap_or(1.0)
    }
}

/// Traffic with shared memory: 32 banks of 4-byte words, each of which delivers one word per wavefront. A request of up
/// to 4 bytes per lane is served as a whole, one of 8 bytes in half-warps, one of 16 bytes in quarter-warps. The parts
/// are twice as large if each lane accesses the same address as its neighbour, or as the lane two further. A part takes
/// as many wavefronts as its busiest bank has distinct words to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// Warp instructions that accessed shared memory.
    pub requests: u64,
    /// Wavefronts that served them.
    pub wavefronts: u64,
    /// Wavefronts without bank conflicts: one for each part with an active lane.
    pub ideal_wavefronts: u64,
    /// The most words that a part accessed in one bank: n for an n-way conflict, 1 without conflicts.
    pub worst_ways: u64,
    /// Bytes that lanes, `ldmatrix` and `stmatrix` rows, and `cp.async` copies loaded or stored.
    pub bytes: u64,
}

impl SharedCounts {
    /// Ratio of wavefronts to ideal wavefronts: n for n-way conflicts on average, 1 without conflicts or requests.
    pub fn ways(&self) -> f64 {
        ratio(self.wavefronts, self.ideal_wavefronts).unwrap_or(1.0)
    }
}

/// Counts of one or several instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Warp instructions issued, those whose guard held in no lane included.
    pub warp_instructions: u64,
    /// Active lanes of all warp instructions, whether their guard held or not: 32 each, unless the warp had diverged or
    /// is not full.
    pub active_lanes: u64,
    /// Lane instructions: lanes that executed an instruction, their guard included.
    pub lane_instructions: u64,
    /// Branches among the warp instructions.
    pub branches: u64,
    /// Branches that some active lanes took and others did not.
    pub divergent_branches: u64,
    /// Traffic with global memory.
    pub global: GlobalCounts,
    /// Traffic with shared memory.
    pub shared: SharedCounts,
}

impl Counts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counts) {
        self.warp_instructions += other.warp_instructions;
        self.active_lanes += other.active_lanes;
        self.lane_instructions += other.lane_instructions;
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

    /// Average number of active lanes; 0 if nothing ran.
    pub fn average_lanes(&self) -> f64 {
        ratio(self.active_lanes, self.warp_instructions).unwrap_or(0.0)
    }
}

fn ratio(over: u64, under: u64) -> Option<f64> {
    (under > 0).then(|| over as f64 / under as f64)
}

/// Counts of each instruction, made by one worker.
pub(crate) type Tally = Box<[Counts]>;

/// Profile of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionProfile {
    /// 1-based line of the PTX text.
    pub ptx_line: u32,
    /// The text of that line.
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
    /// The line, with the column of its first instruction; `None` for instructions before the first `.loc`.
    pub source: Option<SourceLine>,
    /// Counts of the line's instructions.
    pub counts: Counts,
}

/// Profile of one or several launches of a kernel; see [`Options::profile`](crate::Options::profile).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The kernel's name.
    pub kernel: String,
    /// Number of launches.
    pub launches: u64,
    /// Threads that the launches started.
    pub threads: u64,
    /// All instructions, in the order of the text.
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

    /// Adds another profile of the same kernel. Returns false, and adds nothing, if it is of another kernel.
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

    /// Profiles of the source lines, those with the most lane instructions first.
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

    /// Places that probably lose time, by these thresholds.
    pub fn lints(&self, thresholds: &Thresholds) -> Vec<Lint> {
        lint::lints(self, thresholds)
    }
}

/// File and line of a source position.
fn line_of(source: &Option<SourceLine>) -> Option<(&str, u32)> {
    source.as_ref().map(|source| (source.file.as_str(), source.line))
}

fn sum<'a>(instructions: impl Iterator<Item = &'a InstructionProfile>) -> Counts {
    instructions.fold(Counts::default(), |mut sum, instruction| {
        sum.add(&instruction.counts);
        sum
    })
}
