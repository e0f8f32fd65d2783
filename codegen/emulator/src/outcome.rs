//! Outcomes of a run: its counts, or the finding that stopped it.

use std::fmt;

use crate::finding::{FindingKind, Neighbour, OtherAccess, SourceLine, Space, write_place};
use crate::profile::Profile;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions, counted once for every lane that executed them.
    pub lane_instructions: u64,
    /// Instructions, counted once a warp.
    pub warp_instructions: u64,
    /// Bytes that lanes loaded from global memory.
    pub global_bytes_loaded: u64,
    /// Bytes that lanes stored to global memory.
    pub global_bytes_stored: u64,
    /// What each instruction did, if [`Options::profile`](crate::Options::profile) asks for it.
    pub profile: Option<Box<Profile>>,
}

/// Why a run was stopped, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What went wrong.
    pub kind: FindingKind,
    /// The kernel's name.
    pub kernel: String,
    /// One sentence that says what this instance of `kind` is about.
    pub detail: String,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// Where that line was inlined, and where that was, up to the kernel's own line; empty for a line of the kernel.
    /// A function of the PTX counts as inlined where it is called.
    pub inlined_at: Vec<SourceLine>,
    /// 1-based line of the PTX text; 0 for a launch that never started.
    pub ptx_line: u32,
    /// The text of that line.
    pub ptx_text: String,
    /// `%ctaid` of the thread.
    pub cta: [u32; 3],
    /// `%tid` of the thread.
    pub thread: [u32; 3],
    /// The address accessed, for findings about memory.
    pub address: Option<u64>,
    /// The space it was accessed in.
    pub space: Option<Space>,
    /// The closest allocation, for findings about memory.
    pub nearest: Option<Neighbour>,
    /// The earlier access, for findings about two.
    pub other: Option<OtherAccess>,
    /// What ran until the finding, its instruction included, if [`Options::profile`](crate::Options::profile) asks for
    /// it. How far other CTAs came by then depends on how worker threads took turns.
    pub profile: Option<Box<Profile>>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            FindingKind::OutOfBounds => "out of bounds",
            FindingKind::Misaligned => "misaligned",
            FindingKind::Uninitialised => "uninitialised",
            FindingKind::BarrierDivergence => "barrier divergence",
            FindingKind::Deadlock => "deadlock",
            FindingKind::InvalidLaunch => "invalid launch",
            FindingKind::Trap => "trap",
            FindingKind::ShuffleFromInactiveLane => "shuffle from an inactive lane",
            FindingKind::MemberMask => "wrong member mask",
            FindingKind::AsyncCopy => "copy in flight",
            FindingKind::Mbarrier => "misused mbarrier",
            FindingKind::ProgrammaticDependency => "unawaited dependency",
            FindingKind::Race => "race",
            FindingKind::NotFinite => "not finite",
            FindingKind::WrappedAddress => "wrapped address",
            FindingKind::ProxyFence => "missing proxy fence",
            FindingKind::PeerNotRunning => "peer not running",
        };
        write!(f, "{what} in kernel `{}`", self.kernel)?;
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
