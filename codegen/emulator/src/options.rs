//! Options of a run: dimensions of the launch, checks, profiling and limits.

/// Maximum bytes of shared memory per CTA, as on sm_90.
pub(crate) const MAX_SHARED: u64 = 227 * 1024;

/// Dimensions of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA along x, y and z; at most 1024 in total.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per CTA.
    pub dynamic_shared: u32,
    /// CTAs per cluster along x, y and z, if the launch asks for clusters. The cluster size divides the grid size along
    /// each axis. A cluster has at most 16 CTAs; every device with clusters supports 8. `None` if there are no
    /// clusters, or if the kernel sets the cluster size itself (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
    /// Whether the launch is cooperative: its CTAs, which must all fit on the device at once
    /// ([`Options::resident_ctas`]), may synchronise as a grid. CUDA's `grid_group::sync` traps in other launches.
    pub cooperative: bool,
}

impl LaunchConfig {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn linear(ctas: u32, threads: u32) -> LaunchConfig {
        LaunchConfig {
            grid: [ctas, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared: 0,
            cluster: None,
            cooperative: false,
        }
    }
}

/// Optional checks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Reads of uninitialised memory and registers, uses of memory that asynchronous copies in flight write or read,
    /// and shuffles from lanes that do not take part.
    pub memory: bool,
    /// Data races. The next two checks need this one.
    pub races: bool,
    /// Lanes of one store that write different values to the same address.
    pub different_values: bool,
    /// Missing proxy fences: before bulk copies, `wgmma` and uses of tensor maps.
    pub proxy_fences: bool,
    /// `setmaxnreg` whose effect is undefined. Without this check the instruction has no effect.
    pub registers: bool,
    /// Bulk stores to global memory that nothing has waited for when the CTA ends. Without this check they complete then.
    pub unawaited_stores: bool,
    /// Infinite and NaN results of single and double precision arithmetic on finite operands. Some kernels compute such
    /// results on purpose.
    pub values: bool,
    /// Addresses computed from a 32-bit sum or product that has wrapped, both as an unsigned and as a signed number.
    /// Wrapping is followed through additions, multiplications and conversions only: numbers that are masked or shifted
    /// right, as hashes are, may wrap.
    pub overflow: bool,
}

impl Checks {
    /// The checks whose findings are errors in any kernel: all but `values` and `overflow`.
    pub const ALL: Checks = Checks {
        memory: true,
        races: true,
        different_values: true,
        proxy_fences: true,
        registers: true,
        unawaited_stores: true,
        values: false,
        overflow: false,
    };
    /// No optional checks.
    pub const NONE: Checks = Checks {
        memory: false,
        races: false,
        different_values: false,
        proxy_fences: false,
        registers: false,
        unawaited_stores: false,
        values: false,
        overflow: false,
    };
}

impl Default for Checks {
    fn default() -> Checks {
        Checks::ALL
    }
}

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of worker threads; 0 for one per core.
    pub threads: usize,
    /// Checks besides those of bounds, alignment, barriers and member masks, which are always on.
    pub checks: Checks,
    /// Whether to count each instruction's executions and memory traffic, for a [`Profile`](crate::Profile). Slows the
    /// run down.
    pub profile: bool,
    /// Maximum number of warp instructions that the CTAs which have not ended may have executed together; a launch that
    /// exceeds the limit is a finding of kind [`FindingKind::Deadlock`](crate::FindingKind::Deadlock). Instructions of
    /// CTAs that have ended do not count, so a grid may have any number of CTAs. A CTA that only polls is charged more
    /// instructions than it executes, because its turns cost more time.
    pub instruction_limit: u64,
    /// Maximum number of CTAs that the device holds at once. Further CTAs start when earlier ones end. A launch whose
    /// started CTAs all wait, while others cannot start, is a finding of kind
    /// [`FindingKind::Residency`](crate::FindingKind::Residency).
    pub resident_ctas: u64,
}

/// Default of [`Options::instruction_limit`]: some seconds on two cores.
const INSTRUCTION_LIMIT: u64 = 1 << 28;

/// Default of [`Options::resident_ctas`]: no device so far holds more (B200: 148 multiprocessors of 32 CTAs).
const RESIDENT_CTAS: u64 = 148 * 32;

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 0,
            checks: Checks::default(),
            profile: false,
            instruction_limit: INSTRUCTION_LIMIT,
            resident_ctas: RESIDENT_CTAS,
        }
    }
}
