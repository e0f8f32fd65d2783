//! Numbers of a profile that usually mean lost time.

use std::collections::HashMap;
use std::fmt;

use super::{Counts, InstructionProfile, Profile, line_of};
use crate::finding::SourceLine;

/// When a number is worth a [`Lint`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Sectors of a global access over the fewest possible: more than this is [`LintKind::Uncoalesced`].
    pub sectors: f64,
    /// Wavefronts of a shared access over those without conflicts: more than this is
    /// [`LintKind::BankConflict`].
    pub ways: f64,
    /// A source line whose warps have fewer lanes together than this, on average, is
    /// [`LintKind::Divergence`].
    pub lanes: f64,
    /// All of that only where it has at least this share of the kernel's sectors, wavefronts or warp
    /// instructions.
    pub share: f64,
    /// All of that only in a kernel whose launches issue so many instructions of warps each, on average.
    pub warp_instructions: u64,
    /// [`LintKind::Uncoalesced`] only in a kernel whose launches touch sectors of so many bytes each, on average.
    pub sector_bytes: u64,
}

impl Default for Thresholds {
    /// 1.5 times the sectors, any conflict, half the lanes; where it is a twentieth of the kernel's. However small the
    /// kernel is: a test's may be.
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
    /// The defaults, where mending could be measured: launches of 1024 instructions of warps and, for uncoalesced
    /// accesses, 16 KiB of sectors. A device is done with less before the launch after it has begun.
    pub fn where_it_matters() -> Thresholds {
        Thresholds { warp_instructions: 1024, sector_bytes: 16 << 10, ..Thresholds::default() }
    }
}

/// Bytes of a sector of global memory.
const SECTOR_BYTES: u64 = 32;

/// What kind of time is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LintKind {
    /// Lanes of a warp access global memory in more sectors than their bytes need.
    Uncoalesced,
    /// Lanes of a warp access different words of one bank of shared memory.
    BankConflict,
    /// Instructions are issued for few of a warp's lanes.
    Divergence,
}

/// A place where time is probably lost. [`Display`](fmt::Display) says it in a sentence, with the numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Lint {
    /// What kind.
    pub kind: LintKind,
    /// The kernel's name.
    pub kernel: String,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// 1-based line of the PTX text: the instruction, or the first of the place's.
    pub ptx_line: u32,
    /// The text of that line.
    pub ptx_text: String,
    /// What was counted there.
    pub counts: Counts,
    /// The number that was compared with the threshold.
    pub measured: f64,
    /// What of the kernel it concerns, between 0 and 1: of its sectors, wavefronts or warp instructions.
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
                    "uncoalesced: {sectors:.1} sectors a request where {ideal:.1} would do ({measured:.1} \
                     times as many), in {requests} requests; {share:.0} % of the kernel's sectors"
                )
            }
            LintKind::BankConflict => {
                let shared = &counts.shared;
                let (requests, worst) = (shared.requests, shared.worst_ways);
                let wavefronts = per(shared.wavefronts, requests);
                write!(
                    f,
                    "bank conflicts: {measured:.1} ways on average and {worst} at worst, {wavefronts:.1} \
                     wavefronts a request, in {requests} requests; {share:.0} % of the kernel's wavefronts"
                )
            }
            LintKind::Divergence => {
                let Counts { warps, branches, divergent_branches, .. } = counts;
                write!(
                    f,
                    "divergence: {measured:.1} of 32 lanes on average, in {warps} instructions of warps, \
                     {share:.0} % of the kernel's"
                )?;
                match branches {
                    0 => Ok(()),
                    _ => write!(f, "; {divergent_branches} of {branches} branches parted the lanes"),
                }
            }
        }
    }
}

fn per(count: u64, requests: u64) -> f64 {
    count as f64 / requests.max(1) as f64
}

/// Accesses in the order of the text, then source lines, the most work first.
pub(super) fn lints(profile: &Profile, thresholds: &Thresholds) -> Vec<Lint> {
    let total = profile.total();
    let launches = profile.launches.max(1);
    if total.warps < thresholds.warp_instructions * launches {
        return Vec::new();
    }
    let moves_enough = total.global.sectors * SECTOR_BYTES >= thresholds.sector_bytes * launches;
    let mut lints = Vec::new();
    for Spot { first, counts } in spots(profile) {
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
            let matters = moves_enough || kind != LintKind::Uncoalesced;
            if measured > threshold && share >= thresholds.share && matters {
                lints.push(lint(profile, first, kind, (counts, measured, share)));
            }
        }
    }
    for line in profile.lines() {
        let (lanes, share) = (line.counts.average_lanes(), per(line.counts.warps, total.warps));
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

/// The instructions of one place of the source, which unrolled code has many of; or one without a place.
struct Spot<'p> {
    first: &'p InstructionProfile,
    counts: Counts,
}

fn spots(profile: &Profile) -> Vec<Spot<'_>> {
    let mut spots: Vec<Spot<'_>> = Vec::new();
    let mut index = HashMap::new();
    for instruction in &profile.instructions {
        let place = instruction.source.as_ref().map(|source| (&source.file, source.line, source.column));
        match place.and_then(|place| index.get(&place)) {
            Some(&at) => {
                let spot: &mut Spot<'_> = &mut spots[at];
                // What the lint will show is an access.
                if spot.counts.global.requests + spot.counts.shared.requests == 0 {
                    spot.first = instruction;
                }
                spot.counts.add(&instruction.counts);
            }
            None => {
                if let Some(place) = place {
                    index.insert(place, spots.len());
                }
                spots.push(Spot { first: instruction, counts: instruction.counts });
            }
        }
    }
    spots
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
