//! What findings are about: their kinds, source lines, memory spaces, and accesses.

use std::fmt;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// An access outside every allocation, or outside shared memory or the parameters.
    OutOfBounds,
    /// An address that is not a multiple of the access's size.
    Misaligned,
    /// A read of bytes, or of a register, that nothing wrote.
    Uninitialised,
    /// Threads of one CTA, or of one warp, that do not meet at the same barrier.
    BarrierDivergence,
    /// Nothing can proceed, or the instruction limit was reached.
    Deadlock,
    /// A launch that the kernel does not allow.
    InvalidLaunch,
    /// The kernel executed `trap`.
    Trap,
    /// A shuffle that reads a lane which does not take part in it.
    ShuffleFromInactiveLane,
    /// A `.sync` instruction whose members (those of its mask, or all of the warp) do not execute it
    /// together.
    MemberMask,
    /// Memory that an asynchronous copy in flight writes or reads is used before the copy was waited
    /// for, or a CTA ends before its copies do.
    AsyncCopy,
    /// An mbarrier used in a way that has no meaning, or its memory used as anything else.
    Mbarrier,
    /// Two accesses of one place, one of them a write, that nothing orders.
    Race,
    /// A result that is infinite or not a number, of operands that are all finite.
    NotFinite,
    /// An access at an address made of a 32-bit number that has wrapped.
    WrappedAddress,
    /// A bulk copy of what an instruction wrote, without the fence that the two need between them.
    ProxyFence,
    /// The shared memory of another CTA of the cluster, which has exited, or may have, or may not have started.
    PeerNotRunning,
    /// A launch in programmatic order that touches what a launch before it may still be using, or that
    /// never waits for it.
    ProgrammaticDependency,
}

/// A place in the kernel's own source, as its `.loc` directives name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Path from the `.file` directive.
    pub file: String,
    /// 1-based line.
    pub line: u32,
    /// 1-based column; 0 where the directive gives none.
    pub column: u32,
}

/// `file:line:column`, without a column that is not known.
impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceLine { file, line, column } = self;
        write!(f, "{file}:{line}")?;
        if *column > 0 { write!(f, ":{column}") } else { Ok(()) }
    }
}

/// The address space that a faulty access went to.
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

/// The allocation closest to a faulty access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The name given to `Memory::alloc`, or the variable's own.
    pub name: String,
    /// Its first address.
    pub base: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes that the access starts before the allocation (negative), or that it reaches past its end
    /// (positive); zero if it lies inside.
    pub outside: i64,
    /// Size of the access.
    pub access: u64,
    /// Whether it was freed.
    pub freed: bool,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Neighbour { name, base, bytes, outside, access, freed } = self;
        let freed = if *freed { "freed " } else { "" };
        match outside {
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

/// The earlier of two accesses that a finding is about.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherAccess {
    /// Whether it is a write.
    pub writes: bool,
    /// The kernel's own source line, if the PTX carries `.loc` directives.
    pub source: Option<SourceLine>,
    /// Where that line was inlined, as [`Finding::inlined_at`](crate::Finding::inlined_at).
    pub inlined_at: Vec<SourceLine>,
    /// 1-based line of the PTX text.
    pub ptx_line: u32,
    /// The text of that line.
    pub ptx_text: String,
    /// `%ctaid` of the thread.
    pub cta: [u32; 3],
    /// `%tid` of the thread; `None` for an asynchronous copy.
    pub thread: Option<[u32; 3]>,
}

/// ` at file:line`, and where that was inlined.
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
