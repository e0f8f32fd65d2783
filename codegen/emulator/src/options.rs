//! Options of a run: the launch's dimensions, and the checks.

/// A kernel launch's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y and z: at most 1024 together.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// CTAs of a cluster along x, y and z, if the launch says so; they divide the grid, and are at most 16 together (8,
    /// where every device with clusters is to have room for them).
    /// A kernel may demand some itself (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
}

impl LaunchConfig {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn linear(ctas: u32, threads: u32) -> LaunchConfig {
        LaunchConfig { grid: [ctas, 1, 1], block: [threads, 1, 1], dynamic_shared: 0, cluster: None }
    }

    /// The same launch in clusters of so many CTAs along x.
    pub fn clustered(self, ctas: u32) -> LaunchConfig {
        LaunchConfig { cluster: Some([ctas, 1, 1]), ..self }
    }
}

/// What to look for in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Reads of memory and registers that nothing wrote, copies in flight that are not waited for, and
    /// shuffles from lanes that do not take part.
    pub memory: bool,
    /// Accesses that race.
    pub races: bool,
    /// Single and double precision results that are infinite or not a number, of finite operands: whatever first makes
    /// one. Kernels may mean it.
    pub values: bool,
    /// Addresses made of 32-bit sums and products that have wrapped: that fit neither as an unsigned number nor as a
    /// signed one, and went into the address by additions, multiplications and conversions alone. What has been
    /// masked or shifted right, as hashes are, may wrap.
    pub overflow: bool,
}

impl Checks {
    /// All that is wrong whatever the kernel is for: memory and races.
    pub const ALL: Checks = Checks { memory: true, races: true, values: false, overflow: false };
    /// Only what is always checked.
    pub const NONE: Checks = Checks { memory: false, races: false, values: false, overflow: false };
}

impl Default for Checks {
    fn default() -> Checks {
        Checks::ALL
    }
}

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Worker threads; 0 for one a core.
    pub threads: usize,
    /// What to look for besides bounds, alignment, barriers and member masks, which are always checked.
    pub checks: Checks,
    /// Whether to count, instruction by instruction, what [`Profile`] tells. Slows a run down.
    pub profile: bool,
    /// A CTA that executes more than this many instructions a warp, on average, is taken to hang.
    pub instruction_limit: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { threads: 0, checks: Checks::default(), profile: false, instruction_limit: 1 << 30 }
    }
}
