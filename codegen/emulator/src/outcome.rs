//! Outcome of a run: statistics, or the finding that stopped it.

use std::fmt;

use crate::finding::{FindingKind, Neighbour, OtherAccess, SourceLine, Space, write_place};
use crate::profile::Profile;

/// Statistics of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lane instructions: each instruction counts once for every lane that executed it.
    pub lane_instructions: u64,
    /// Warp instructions: each instruction counts once for every warp that issued it.
    pub warp_instructions: u64,
    /// Bytes of global memory that lanes loaded and copies read.
    pub global_bytes_loaded: u64,
    /// Bytes of global memory that lanes stored and copies wrote.
    pub global_bytes_stored: u64,
    /// Text that the threads printed with `printf`: that of each CTA (of each cluster) in the order in which it was
    /// printed, in the order of the grid. A launch prints up to 1 MiB.
    pub printed: String,
    /// Profile of the launch, if [`Options::profile`](crate::Options::profile) is set.
    pub profile: Option<Box<Profile>>,
}

/// An error that stopped a run, and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// The kernel's name.
    pub kernel: String,
    /// Description of this finding, one sentence.
    pub detail: String,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// Call sites into which the source line was inlined, innermost first, up to a line of the kernel itself; empty if
    /// `source` is a line of the kernel itself. A PTX function counts as inlined at its call.
    pub inlined_at: Vec<SourceLine>,
    /// 1-based line of the PTX text; 0 for a launch that did not start.
    pub ptx_line: u32,
    /// Text of the PTX line.
    pub ptx_text: String,
    /// `%ctaid` of the thread at fault.
    pub cta: [u32; 3],
    /// `%tid` of the thread at fault.
    pub thread: [u32; 3],
    /// Address of the access, for findings about memory.
    pub address: Option<u64>,
    /// State space of the access.
    pub space: Option<Space>,
    /// Nearest allocation, for findings about memory.
    pub nearest: Option<Neighbour>,
    /// The earlier access, for findings about two accesses.
    pub other: Option<OtherAccess>,
    /// Text that the threads printed up to the finding, as [`Stats::printed`].
    pub printed: String,
    /// Profile of the launch up to the finding, its instruction included, if
    /// [`Options::profile`](crate::Options::profile) is set. The progress of other CTAs depends on how worker threads
    /// were scheduled.
    pub profile: Option<Box<Profile>>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FindingKind::OutOfBounds => "out of bounds",
            FindingKind::Misaligned => "misaligned",
            FindingKind::Uninitialised => "uninitialised",
            FindingKind::BarrierDivergence => "barrier divergence",
            FindingKind::Deadlock => "deadlock",
            FindingKind::Residency => "more CTAs than the device holds",
            FindingKind::InvalidLaunch => "invalid launch",
            FindingKind::Trap => "trap",
            FindingKind::Assumption => "false assumption",
            FindingKind::ShuffleFromInactiveLane => "shuffle from an inactive lane",
            FindingKind::MemberMask => "wrong member mask",
            FindingKind::AsyncCopy => "copy in flight",
            FindingKind::Mbarrier => "misused mbarrier",
            FindingKind::ProgrammaticDependency => "missing griddepcontrol.wait",
            FindingKind::Race => "race",
            FindingKind::NotFinite => "not finite",
            FindingKind::WrappedAddress => "wrapped address",
            FindingKind::ProxyFence => "missing proxy fence",
            FindingKind::Wgmma => "misused wgmma",
            FindingKind::Registers => "misused setmaxnreg",
            FindingKind::TensorMap => "misused tensor map",
            FindingKind::PeerNotRunning => "peer not running",
        };
        write!(f, "{kind} in kernel `{}`", self.kernel)?;
        write_place(f, self.source.as_ref(), &self.inlined_at)?;
        if self.ptx_line != 0 {
            write!(f, " (PTX line {}: `{}`)", self.ptx_line, self.ptx_text)?;
            let ([cx, cy, cz], [tx, ty, tz]) = (self.cta, self.thread);
            write!(f, " by thread ({tx}, {ty}, {tz}) of CTA ({cx}, {cy}, {cz})")?;
        }
        write!(f, ": {}", self.detail)?;
        if let Some(nearest) = &self.nearest {
            write!(f, "; the access is {nearest}")?;
        }
        if let Some(other) = &self.other {
            write!(f, "; the other is {other}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Finding {}
