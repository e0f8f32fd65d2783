//! Result of a check as data: the JSON of `bespoke check --format json`, version 2.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bespoke::device::JournalEntries;
use bespoke_emulator as emulator;
use emulator::{Counts, SourceLine, Thresholds};
use serde::Serialize;

use super::Options;

/// Version of the JSON. The version increases when a field is removed or changes its meaning, not when a field is
/// added.
pub const REPORT_VERSION: u32 = 2;

/// Result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the JSON: [`REPORT_VERSION`].
    pub version: u32,
    /// What was checked: a file, a shape or a model.
    pub subject: String,
    /// Number of launches.
    pub launches: u64,
    /// Text that the kernels printed with `printf`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub printed: String,
    /// Findings in the order in which they occurred, each once.
    pub findings: Vec<Finding>,
    /// Lints of launches large enough to measure: [`Thresholds::measurable`].
    pub lints: Vec<Lint>,
    /// Number of lints omitted because their launches are too small to measure.
    pub lints_left_out: u64,
    /// Costs of every source line, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<KernelProfile>,
    /// PTX of every kernel, for the lines in messages.
    #[serde(skip)]
    pub texts: HashMap<String, Arc<str>>,
}

/// An error that the emulator found in a kernel, or a wrong result.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Kind in lower case with hyphens: `out-of-bounds`, `uninitialised` …; `wrong-result` for an output with
    /// unexpected content.
    pub kind: String,
    /// Name of the kernel; empty if unknown.
    pub kernel: String,
    /// Message in one sentence.
    pub message: String,
    /// Number of occurrences.
    pub times: u64,
    /// The access that failed the check, then the conflicting access, if there is one.
    pub sites: Vec<Site>,
    /// Address of the access, for findings about memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// State space `global`, `shared` or `param`, for findings about memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
}

/// A thread at an instruction, with the source line of the instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// The source line, if the PTX has `.loc` directives.
    pub source: Option<SourceLine>,
    /// Call sites of an inlined line, up to the line in the kernel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inlined_at: Vec<SourceLine>,
    /// The instruction in the PTX text.
    pub ptx: PtxLine,
    /// CTA of the thread: `%ctaid`.
    pub cta: [u32; 3],
    /// Index of the thread in its CTA: `%tid`; none for an asynchronous copy.
    pub thread: Option<[u32; 3]>,
}

/// An instruction in the PTX text: its line number and the text of the line.
#[derive(Clone, Debug, Serialize)]
pub struct PtxLine {
    /// Line, 1-based.
    pub line: u32,
    /// Text of the line, without white space around it.
    pub text: String,
}

/// A lint: a source line that probably wastes time.
#[derive(Clone, Debug, Serialize)]
pub struct Lint {
    /// `uncoalesced`, `bank-conflict` or `divergence`.
    pub kind: String,
    /// Name of the kernel.
    pub kernel: String,
    /// Message in one sentence, with the measured numbers.
    pub message: String,
    /// The source line, if the PTX has `.loc` directives.
    pub source: Option<SourceLine>,
    /// The instruction, or the first one of the source line.
    pub ptx: PtxLine,
    /// Measured value: sectors divided by the fewest possible, wavefronts divided by those without bank conflicts, or
    /// average active lanes.
    pub measured: f64,
    /// Fraction of the kernel's sectors, wavefronts or warp instructions that this line causes.
    pub share: f64,
}

/// Costs of a kernel's launches.
#[derive(Clone, Debug, Serialize)]
pub struct KernelProfile {
    /// Name of the kernel.
    pub kernel: String,
    /// Launches that completed; in a partial profile, launches that a finding stopped.
    pub launches: u64,
    /// Whether this profile is of launches that a finding stopped, with their costs up to the finding.
    pub partial: bool,
    /// Number of threads of all launches together.
    pub threads: u64,
    /// Lane instructions per thread.
    pub instructions_per_thread: f64,
    /// Lane instructions per byte moved to or from global memory; `None` without such bytes.
    pub instructions_per_byte: Option<f64>,
    /// Lane instructions by class of instruction.
    pub mix: BTreeMap<&'static str, u64>,
    /// Sum of the costs of all lines.
    pub total: Cost,
    /// Source lines, sorted by lane instructions in descending order; PTX instructions if the PTX has no source lines.
    pub lines: Vec<LineProfile>,
}

/// Costs of a source line.
#[derive(Clone, Debug, Serialize)]
pub struct LineProfile {
    /// Position of the line; `None` for instructions without a source line.
    pub source: Option<SourceLine>,
    /// The instruction, if the PTX has no source lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptx: Option<PtxLine>,
    /// Lane instructions of this line per global-memory byte of the whole kernel, so that the lines add up to
    /// [`KernelProfile::instructions_per_byte`]; `None` without global-memory bytes.
    pub instructions_per_byte: Option<f64>,
    /// Costs of the line.
    #[serde(flatten)]
    pub cost: Cost,
}

/// Counts, under the names of the emulator's [`Counts`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Executed instructions, counted once per warp.
    pub warp_instructions: u64,
    /// Executed instructions, counted once per active lane.
    pub lane_instructions: u64,
    /// Average number of active lanes per warp instruction.
    pub average_lanes: f64,
    /// Branches, counted once per warp.
    pub branches: u64,
    /// Branches at which the warp diverged.
    pub divergent_branches: u64,
    /// Requests of warps to global memory.
    pub global_requests: u64,
    /// Sectors of 32 bytes that the global-memory requests touched.
    pub sectors: u64,
    /// Fewest sectors that can hold the bytes of the global-memory requests.
    pub ideal_sectors: u64,
    /// Bytes loaded from global memory.
    pub bytes_loaded: u64,
    /// Bytes stored to global memory.
    pub bytes_stored: u64,
    /// Requests of warps to shared memory.
    pub shared_requests: u64,
    /// Wavefronts that served the shared-memory requests.
    pub wavefronts: u64,
    /// Wavefronts that the shared-memory requests would need without bank conflicts.
    pub ideal_wavefronts: u64,
    /// Worst bank conflict: n for an n-way conflict, 1 without conflicts.
    pub worst_ways: u64,
}

impl Report {
    /// Creates a report from the entries of a journal; wrong results are added later.
    pub(super) fn new(subject: &str, entries: JournalEntries, options: &Options) -> Report {
        let lints = |thresholds: &Thresholds| {
            entries.profiles.iter().flat_map(|profile| profile.lints(thresholds)).collect::<Vec<_>>()
        };
        let (every, lints) = match options.lints {
            true => (lints(&Thresholds::default()), lints(&Thresholds::measurable())),
            false => (Vec::new(), Vec::new()),
        };
        let whole = entries.profiles.iter().map(|profile| KernelProfile::new(profile, false));
        let profiles = whole.chain(entries.stopped.iter().map(|profile| KernelProfile::new(profile, true)));
        Report {
            version: REPORT_VERSION,
            subject: subject.to_owned(),
            launches: entries.launches,
            printed: entries.printed,
            findings: entries.findings.iter().map(|(finding, times)| Finding::new(finding, *times)).collect(),
            lints_left_out: (every.len() - lints.len()) as u64,
            lints: lints.into_iter().map(Lint::from).collect(),
            profiles: if options.profile { profiles.collect() } else { Vec::new() },
            texts: entries.texts,
        }
    }
}

impl Finding {
    fn new(finding: &emulator::Finding, times: u64) -> Finding {
        let emulator::Finding { kind, kernel, detail, nearest, address, space, .. } = finding;
        let mut message = detail.clone();
        if let Some(nearest) = nearest {
            message += &format!("; the access is {nearest}");
        }
        Finding {
            kind: hyphenated(&format!("{kind:?}")),
            kernel: kernel.clone(),
            message,
            times,
            sites: Site::of(finding),
            address: *address,
            space: space.map(|space| hyphenated(&format!("{space:?}"))),
        }
    }

    /// Finding for an output with unexpected content.
    pub(super) fn wrong_result(kernel: &str, message: String) -> Finding {
        Finding {
            kind: "wrong-result".to_owned(),
            kernel: kernel.to_owned(),
            message,
            times: 1,
            sites: Vec::new(),
            address: None,
            space: None,
        }
    }
}

impl Site {
    /// The site of a finding, then the conflicting access, if there is one; empty for a launch that never started.
    fn of(finding: &emulator::Finding) -> Vec<Site> {
        if finding.ptx_line == 0 {
            return Vec::new();
        }
        let own = Site {
            source: finding.source.clone(),
            inlined_at: finding.inlined_at.clone(),
            ptx: PtxLine { line: finding.ptx_line, text: finding.ptx_text.clone() },
            cta: finding.cta,
            thread: Some(finding.thread),
        };
        let other = finding.other.as_ref().map(|other| Site {
            source: other.source.clone(),
            inlined_at: other.inlined_at.clone(),
            ptx: PtxLine { line: other.ptx_line, text: other.ptx_text.clone() },
            cta: other.cta,
            thread: other.thread,
        });
        std::iter::once(own).chain(other).collect()
    }
}

impl From<emulator::Lint> for Lint {
    fn from(lint: emulator::Lint) -> Lint {
        Lint {
            kind: hyphenated(&format!("{:?}", lint.kind)),
            message: lint.to_string(),
            source: lint.source.clone(),
            ptx: PtxLine { line: lint.ptx_line, text: lint.ptx_text },
            kernel: lint.kernel,
            measured: lint.measured,
            share: lint.share,
        }
    }
}

impl KernelProfile {
    fn new(profile: &emulator::Profile, partial: bool) -> KernelProfile {
        KernelProfile {
            kernel: profile.kernel.clone(),
            launches: profile.launches,
            partial,
            threads: profile.threads,
            instructions_per_thread: profile.instructions_per_thread(),
            instructions_per_byte: profile.instructions_per_byte(),
            mix: profile.mix().into_iter().map(|(class, lanes)| (class.name(), lanes)).collect(),
            total: profile.total().into(),
            lines: lines(profile),
        }
    }
}

/// Costs of the executed source lines, or of instructions if the PTX has no source lines.
fn lines(profile: &emulator::Profile) -> Vec<LineProfile> {
    let bytes = profile.total().global.bytes();
    let per_byte = |counts: &Counts| (bytes > 0).then(|| counts.lane_instructions as f64 / bytes as f64);
    let by_line = profile.lines();
    if by_line.iter().any(|line| line.source.is_some()) {
        let ran = by_line.into_iter().filter(|line| line.counts.warp_instructions > 0);
        let line = |line: emulator::LineProfile| LineProfile {
            source: line.source.clone(),
            ptx: None,
            instructions_per_byte: per_byte(&line.counts),
            cost: line.counts.into(),
        };
        return ran.map(line).collect();
    }
    let mut ran: Vec<_> =
        profile.instructions.iter().filter(|one| one.counts.warp_instructions > 0).collect();
    ran.sort_by_key(|one| std::cmp::Reverse(one.counts.lane_instructions));
    let line = |one: &emulator::InstructionProfile| LineProfile {
        source: None,
        ptx: Some(PtxLine { line: one.ptx_line, text: one.ptx_text.clone() }),
        instructions_per_byte: per_byte(&one.counts),
        cost: one.counts.into(),
    };
    ran.into_iter().map(line).collect()
}

impl From<Counts> for Cost {
    fn from(counts: Counts) -> Cost {
        let Counts { global, shared, .. } = counts;
        Cost {
            warp_instructions: counts.warp_instructions,
            lane_instructions: counts.lane_instructions,
            average_lanes: counts.average_lanes(),
            branches: counts.branches,
            divergent_branches: counts.divergent_branches,
            global_requests: global.requests,
            sectors: global.sectors,
            ideal_sectors: global.ideal_sectors,
            bytes_loaded: global.bytes_loaded,
            bytes_stored: global.bytes_stored,
            shared_requests: shared.requests,
            wavefronts: shared.wavefronts,
            ideal_wavefronts: shared.ideal_wavefronts,
            worst_ways: shared.worst_ways,
        }
    }
}

/// Converts a name to lower case with hyphens: `OutOfBounds` to `out-of-bounds`.
fn hyphenated(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
