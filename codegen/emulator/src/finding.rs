//! Parts of findings: kinds, source positions, state spaces, allocations and accesses.

use std::fmt;

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// An access that is not inside one allocation, or outside shared memory or the parameters.
    OutOfBounds,
    /// An access at an address that is not a multiple of its size.
    Misaligned,
    /// A read of uninitialised memory, or of an uninitialised register.
    Uninitialised,
    /// A barrier that only some of the participating threads reach.
    BarrierDivergence,
    /// No warp can make progress, or the instruction limit was reached.
    Deadlock,
    /// All CTAs that the device holds at once wait, and further CTAs of the launch cannot start.
    Residency,
    /// A launch configuration that the kernel or the ISA does not allow.
    InvalidLaunch,
    /// The kernel executed `trap`.
    Trap,
    /// An assumption of the kernel (`//@ assume.le.u32 …`) that does not hold.
    Assumption,
    /// A shuffle that reads a lane that does not execute the shuffle.
    ShuffleFromInactiveLane,
    /// A `.sync` instruction that the lanes of its member mask (or all lanes of the warp) do not execute together.
    MemberMask,
    /// Memory of an asynchronous copy used before the copy was waited for, or a CTA that exits before its copies were
    /// waited for.
    AsyncCopy,
    /// An invalid operation on an mbarrier, or an ordinary access of the mbarrier's memory.
    Mbarrier,
    /// A data race: two accesses of the same byte, at least one a write, without a happens-before relation.
    Race,
    /// An infinite or NaN result of finite operands.
    NotFinite,
    /// An access at an address computed from a 32-bit result that overflowed.
    WrappedAddress,
    /// A missing proxy fence: between ordinary writes and a bulk copy or `wgmma` of the written bytes, between the
    /// initialisation of an mbarrier and a bulk copy that signals it, or between a change and a use of a tensor map.
    ProxyFence,
    /// An access of the shared memory of another CTA of the cluster that may not have started, or may have exited.
    PeerNotRunning,
    /// An operand of a `wgmma` in flight used before `wgmma.wait_group`, a missing `wgmma.fence`, or warps of a
    /// warpgroup that issue different operations.
    Wgmma,
    /// A `setmaxnreg` whose effect is undefined: an `.inc` to fewer or a `.dec` to more registers than the warp has, or one
    /// that not all warps of the warpgroup execute.
    Registers,
    /// An operand that is not a tensor map, a tensor map whose rank differs from the instruction's, an invalid
    /// `tensormap.replace`, or a box or reduction that devices or the emulator refuse.
    TensorMap,
    /// A programmatically dependent launch that accesses memory before `griddepcontrol.wait`, though an earlier launch
    /// may still access it, or that never executes `griddepcontrol.wait`.
    ProgrammaticDependency,
}

/// Position in the kernel's source, from `.loc` directives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SourceLine {
    /// Path in the `.file` directive.
    pub file: String,
    /// 1-based line.
    pub line: u32,
    /// 1-based column; 0 if the directive gives none.
    pub column: u32,
}

/// `file:line:column`, or `file:line` if the column is unknown.
impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceLine { file, line, column } = self;
        write!(f, "{file}:{line}")?;
        if *column > 0 { write!(f, ":{column}") } else { Ok(()) }
    }
}

/// State space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.global` and `.const`.
    Global,
    /// `.shared`.
    Shared,
    /// `.param`.
    Param,
    /// `.local`.
    Local,
}

/// Allocation nearest to an invalid access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Name given to [`Memory::alloc`](crate::Memory::alloc), or name of the variable.
    pub name: String,
    /// First address of the allocation; for a local variable its offset in the thread's local memory.
    pub base: u64,
    /// Size of the allocation in bytes.
    pub bytes: u64,
    /// Bytes by which the access starts before the allocation (negative) or ends after it (positive), at most
    /// `i64::MAX`; zero if the access is inside.
    pub outside: i64,
    /// Size of the access in bytes.
    pub access: u64,
    /// Whether the allocation was freed.
    pub freed: bool,
}

impl Neighbour {
    /// The allocation `name` of `bytes` bytes at `base` as a neighbour of an access of `access` bytes at `address`.
    pub(crate) fn new(name: &str, (base, bytes): (u64, u64), (address, access): (u64, u64)) -> Neighbour {
        let end = base.saturating_add(bytes);
        let outside = match address < base {
            true => -i64::try_from(base - address).unwrap_or(i64::MAX),
            // An access may reach past the last address.
            false => i64::try_from(address.saturating_add(access).saturating_sub(end)).unwrap_or(i64::MAX),
        };
        Neighbour { name: name.to_string(), base, bytes, outside, access, freed: false }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Neighbour { name, base, bytes, outside, access, freed } = self;
        let freed = if *freed { "freed " } else { "" };
        match outside {
            &i64::MAX => write!(f, "far past the end of {freed}`{name}`")?,
            0 => write!(f, "inside {freed}`{name}`")?,
            1.. if *outside as u64 == *access => write!(f, "just past the end of {freed}`{name}`")?,
            1.. if *outside as u64 > *access => {
                write!(f, "{} bytes past the end of {freed}`{name}`", *outside as u64 - access)?;
            }
            1.. => write!(f, "its last {outside} bytes past the end of {freed}`{name}`")?,
            _ => write!(f, "{} bytes before {freed}`{name}`", outside.unsigned_abs())?,
        }
        write!(f, " ({base:#x}, {bytes} bytes)")
    }
}

/// The earlier of the two accesses of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherAccess {
    /// Whether the access is a write.
    pub writes: bool,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// Call sites into which the source line was inlined; see [`Finding::inlined_at`](crate::Finding::inlined_at).
    pub inlined_at: Vec<SourceLine>,
    /// 1-based line of the PTX text.
    pub ptx_line: u32,
    /// Text of the PTX line.
    pub ptx_text: String,
    /// `%ctaid` of the thread.
    pub cta: [u32; 3],
    /// `%tid` of the thread; `None` for an asynchronous copy.
    pub thread: Option<[u32; 3]>,
}

/// Writes ` at file:line`, and the call sites into which the line was inlined.
pub(crate) fn write_place(
    f: &mut fmt::Formatter<'_>,
    source: Option<&SourceLine>,
    inlined_at: &[SourceLine],
) -> fmt::Result {
    if let Some(SourceLine { file, line, .. }) = source {
        write!(f, " at {file}:{line}")?;
    }
    inlined_at.iter().try_for_each(|caller| write!(f, ", inlined at {caller}"))
}

/// Source line and its call sites, displayed as [`write_place`] writes them.
pub(crate) struct PlaceText<'a>(pub(crate) Option<&'a SourceLine>, pub(crate) &'a [SourceLine]);

impl fmt::Display for PlaceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.0, self.1)
    }
}

impl fmt::Display for OtherAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.writes { "the write" } else { "the read" })?;
        write_place(f, self.source.as_ref(), &self.inlined_at)?;
        let [cx, cy, cz] = self.cta;
        write!(f, " (PTX line {}: `{}`) by ", self.ptx_line, self.ptx_text)?;
        match self.thread {
            Some([tx, ty, tz]) => write!(f, "thread ({tx}, {ty}, {tz}) of CTA ({cx}, {cy}, {cz})"),
            None => write!(f, "an asynchronous copy of CTA ({cx}, {cy}, {cz})"),
        }
    }
}
