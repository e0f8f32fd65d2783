//! Lints: counts of a profile that usually mean lost time.

use std::collections::HashMap;
use std::fmt;

use super::counts::Counts;
use super::kernel::{InstructionProfile, Profile, line_of};
use crate::finding::SourceLine;

/// Thresholds above (or below) which a count becomes a [`Lint`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// [`LintKind::Uncoalesced`] above this ratio of a global access's sectors to the minimum number of sectors.
    pub sectors: f64,
    /// [`LintKind::BankConflict`] above this ratio of a shared access's wavefronts to the wavefronts without conflicts.
    pub ways: f64,
    /// [`LintKind::Divergence`] below this average of active lanes of a source line's instructions.
    pub lanes: f64,
    /// Minimum share, between 0 and 1, of the kernel's sectors (uncoalesced accesses), wavefronts (bank conflicts) or
    /// warp instructions (divergence) for a lint.
    pub share: f64,
    /// Minimum number of warp instructions per launch of the kernel, on average, for any lint.
    pub warp_instructions: u64,
    /// Minimum number of bytes in the sectors accessed per launch, on average, for [`LintKind::Uncoalesced`].
    pub sector_bytes: u64,
}

impl Default for Thresholds {
    /// More than 1.5 times the fewest sectors, any bank conflict, or fewer than half of the lanes active, if the access
    /// or line has at least a twentieth of the kernel's counts. Kernels of any size get lints, because test kernels are
    /// small.
    fn default() -> Thresholds {
        Thresholds {
            sectors: 1.5,
            ways: 1.0,
            lanes: 16.0,
            share: 0.05,
            warp_instructions: 0,
            sector_bytes: 0,
        }
    }
}

impl Thresholds {
    /// The defaults, without lints for launches too small for an improvement to be measured: below 1024 warp
    /// instructions or, for uncoalesced accesses, below 16 KiB of sectors.
    pub fn measurable() -> Thresholds {
        Thresholds { warp_instructions: 1024, sector_bytes: 16 << 10, ..Thresholds::default() }
    }
}

/// Bytes of a sector of global memory.
const SECTOR_BYTES: u64 = 32;

/// Kind of a lint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LintKind {
    /// A warp's global access spans more sectors than its bytes need.
    Uncoalesced,
    /// Lanes of a warp access different words of the same bank of shared memory.
    BankConflict,
    /// Instructions are issued with few of a warp's lanes active.
    Divergence,
}

/// A place in a kernel that probably loses time. [`Display`](fmt::Display) gives a sentence with the counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Lint {
    /// Kind of the lint.
    pub kind: LintKind,
    /// The kernel's name.
    pub kernel: String,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// 1-based PTX line of the first instruction at this place.
    pub ptx_line: u32,
    /// Text of the PTX line.
    pub ptx_text: String,
    /// Counts of the instructions at this place.
    pub counts: Counts,
    /// The value compared with the threshold.
    pub measured: f64,
    /// Share of the kernel's sectors, wavefronts or warp instructions, between 0 and 1.
    pub share: f64,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lint { counts, measured, .. } = self;
        let share = 100.0 * self.share;
        match self.kind {
            LintKind::Uncoalesced => {
                let global = &counts.global;
                let (requests, sectors) = (global.requests, per(global.sectors, global.requests));
                let ideal = per(global.ideal_sectors, requests);
                write!(
                    f,
                    "uncoalesced: {sectors:.1} sectors per request where {ideal:.1} would do ({measured:.1} \
                     times as many), in {requests} requests; {share:.0} % of the kernel's sectors"
                )
            }
            LintKind::BankConflict => {
                let shared = &counts.shared;
                let (requests, worst) = (shared.requests, shared.worst_ways);
                let wavefronts = per(shared.wavefronts, requests);
                write!(
                    f,
                    "bank conflicts: {measured:.1}-way on average, {worst}-way at worst, {wavefronts:.1} \
                     wavefronts per request, in {requests} requests; {share:.0} % of the kernel's wavefronts"
                )
            }
            LintKind::Divergence => {
                let Counts { warp_instructions, branches, divergent_branches, .. } = counts;
                write!(
                    f,
                    "divergence: {measured:.1} of 32 lanes active on average, in {warp_instructions} warp \
                     instructions, {share:.0} % of the kernel's"
                )?;
                match branches {
                    0 => Ok(()),
                    _ => write!(f, "; {divergent_branches} of {branches} branches diverged"),
                }
            }
        }
    }
}

fn per(count: u64, requests: u64) -> f64 {
    count as f64 / requests.max(1) as f64
}

impl Profile {
    /// Places that probably lose time, according to `thresholds`.
    pub fn lints(&self, thresholds: &Thresholds) -> Vec<Lint> {
        lints(self, thresholds)
    }
}

/// Lints of a profile: first of accesses, in the order of the PTX text; then of source lines, by descending number of
/// lane instructions.
fn lints(profile: &Profile, thresholds: &Thresholds) -> Vec<Lint> {
    let total = profile.total();
    let launches = profile.launches.max(1);
    if total.warp_instructions < thresholds.warp_instructions * launches {
        return Vec::new();
    }
    let has_enough_bytes = total.global.sectors * SECTOR_BYTES >= thresholds.sector_bytes * launches;
    let mut lints = Vec::new();
    for SourcePosition { first, counts } in by_position(profile) {
        let Counts { global, shared, .. } = &counts;
        let candidates = [
            (
                LintKind::Uncoalesced,
                global.excess(),
                thresholds.sectors,
                [global.sectors, total.global.sectors],
            ),
            (
                LintKind::BankConflict,
                shared.ways(),
                thresholds.ways,
                [shared.wavefronts, total.shared.wavefronts],
            ),
        ];
        for (kind, measured, threshold, [part, whole]) in candidates {
            let share = per(part, whole);
            let is_large_enough = has_enough_bytes || kind != LintKind::Uncoalesced;
            if measured > threshold && share >= thresholds.share && is_large_enough {
                lints.push(lint(profile, first, kind, (counts, measured, share)));
            }
        }
    }
    for line in profile.lines() {
        let (lanes, share) =
            (line.counts.average_lanes(), per(line.counts.warp_instructions, total.warp_instructions));
        let at = |instruction: &&InstructionProfile| line_of(&instruction.source) == line_of(&line.source);
        if let Some(first) = profile.instructions.iter().find(at)
            && lanes < thresholds.lanes
            && share >= thresholds.share
        {
            lints.push(lint(profile, first, LintKind::Divergence, (line.counts, lanes, share)));
        }
    }
    lints
}

/// All instructions of one source position (unrolled code has several), or one instruction without a position.
struct SourcePosition<'p> {
    first: &'p InstructionProfile,
    counts: Counts,
}

fn by_position(profile: &Profile) -> Vec<SourcePosition<'_>> {
    let mut positions: Vec<SourcePosition<'_>> = Vec::new();
    let mut index = HashMap::new();
    for instruction in &profile.instructions {
        let place = instruction.source.as_ref().map(|source| (&source.file, source.line, source.column));
        match place.and_then(|place| index.get(&place)) {
            Some(&at) => {
                let position: &mut SourcePosition<'_> = &mut positions[at];
                // The lint shows the first access.
                if position.counts.global.requests + position.counts.shared.requests == 0 {
                    position.first = instruction;
                }
                position.counts.add(&instruction.counts);
            }
            None => {
                if let Some(place) = place {
                    index.insert(place, positions.len());
                }
                positions.push(SourcePosition { first: instruction, counts: instruction.counts });
            }
        }
    }
    positions
}

fn lint(
    profile: &Profile,
    instruction: &InstructionProfile,
    kind: LintKind,
    (counts, measured, share): (Counts, f64, f64),
) -> Lint {
    Lint {
        kind,
        kernel: profile.kernel.clone(),
        source: instruction.source.clone(),
        ptx_line: instruction.ptx_line,
        ptx_text: instruction.ptx_text.clone(),
        counts,
        measured,
        share,
    }
}
