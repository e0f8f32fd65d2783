//! Running a kernel: CTAs over worker threads, warps within a CTA.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::checks::programmatic::Order;
use crate::checks::races::Grid;
use crate::context::cluster::MAX_CLUSTER;
use crate::context::cta::CtaState;
use crate::exec::lanes::LANES;
use crate::exec::{Launch, Worker};
use crate::finding::{Finding, FindingKind};
use crate::load::ast::{Clusters, Special};
use crate::load::layout::Uniform;
use crate::memory::Memory;
use crate::module::Kernel;
use crate::profile::{Counts, Profile, Tally};
use crate::schedule::{Cta, Slice};

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
    /// What each instruction did, if [`Options::profile`] asks for it.
    pub profile: Option<Box<Profile>>,
}

impl Stats {
    fn add(&mut self, other: &Stats) {
        self.lane_instructions += other.lane_instructions;
        self.warp_instructions += other.warp_instructions;
        self.global_bytes_loaded += other.global_bytes_loaded;
        self.global_bytes_stored += other.global_bytes_stored;
    }
}

/// The largest grid and the most shared memory of a CTA, as on all targets from sm_80.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const MAX_SHARED: u64 = 227 * 1024;

/// Of it, what a kernel may declare with a size: the assembler refuses more for every target.
const MAX_STATIC_SHARED: u64 = 48 * 1024;

/// Runs `kernel` over `memory` to its end.
///
/// `params` is the parameter block, laid out as [`Kernel::params`] says. Of several findings the one
/// in the lowest CTA is returned, whatever the number of threads; of two CTAs that race with each other, the one that ends
/// later counts.
///
/// # Errors
/// The [`Finding`] that stopped the run.
pub fn run(
    kernel: &Kernel,
    memory: &Memory,
    config: &LaunchConfig,
    params: &[u8],
    options: &Options,
) -> Result<Stats, Box<Finding>> {
    run_in(None, kernel, memory, config, params, options)
}

/// [`run`], at a place in programmatic order.
pub(crate) fn run_in<'a>(
    order: impl Into<Option<&'a Order>>,
    kernel: &Kernel,
    memory: &Memory,
    config: &LaunchConfig,
    params: &[u8],
    options: &Options,
) -> Result<Stats, Box<Finding>> {
    validate(kernel, config, params)?;
    let module_base = kernel.module_base(memory);
    let launch = Launch {
        kernel,
        table: memory.snapshot(),
        params,
        grid: config.grid,
        block: config.block,
        cluster: config.cluster.or(kernel.required_cluster()).unwrap_or([1; 3]),
        explicit_cluster: config.cluster.or(kernel.required_cluster()).is_some(),
        dynamic_shared: config.dynamic_shared,
        checks: options.checks.memory,
        profile: options.profile,
        watches: options.checks,
        watched: crate::checks::numeric::instructions(kernel, options.checks),
        races: options.checks.races.then(Grid::default),
        instruction_limit: options.instruction_limit,
        resolver: crate::exec::resolve::resolver(),
        module_base,
        order: order.into(),
    };
    let ctas = config.grid.iter().map(|&n| n as u64).product::<u64>();
    let clusters = ctas / launch.cluster_size() as u64;
    let threads = if options.threads == 0 { rayon::current_num_threads() } else { options.threads };
    let threads = (threads as u64).min(clusters).max(1);
    let shared = Shared {
        launch: &launch,
        clusters,
        next: AtomicU64::new(0),
        limit: AtomicU64::new(u64::MAX),
        outcome: Mutex::default(),
    };
    if threads == 1 {
        shared.work();
    } else {
        rayon::scope(|scope| (0..threads).for_each(|_| scope.spawn(|_| shared.work())));
    }
    let outcome = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    let started = outcome.started * launch.cluster_size() as u64;
    let threads = started * config.block.iter().map(|&n| u64::from(n)).product::<u64>();
    let profile = outcome.tally.map(|tally| Box::new(Profile::new(kernel, threads, &tally)));
    match outcome.finding {
        Some((_, finding)) => Err(Box::new(Finding { profile, ..*finding })),
        None => Ok(Stats { profile, ..outcome.stats }),
    }
}

fn validate(kernel: &Kernel, config: &LaunchConfig, params: &[u8]) -> Result<(), Box<Finding>> {
    let LaunchConfig { grid, block, dynamic_shared, .. } = *config;
    let threads = block.iter().map(|&n| n as u64).product::<u64>();
    let shared = kernel.static_shared_bytes() + dynamic_shared as u64;
    let detail = if grid.contains(&0) || block.contains(&0) {
        format!("grid {grid:?} of blocks {block:?} has no threads")
    } else if grid.iter().zip(MAX_GRID).any(|(&n, max)| n > max) {
        format!("grid {grid:?} is larger than {MAX_GRID:?}")
    } else if threads > 1024 || block[2] > 64 {
        format!("block {block:?} is larger than 1024 threads, or than 64 along z")
    } else if kernel.reqntid().is_some_and(|required| required != block) {
        format!(
            "block {block:?} is not the {:?} that the kernel requires",
            kernel.reqntid().unwrap_or_default()
        )
    } else if kernel.maxntid().is_some_and(|max| threads > max.iter().map(|&n| n as u64).product()) {
        format!(
            "block {block:?} is larger than the {:?} that the kernel allows",
            kernel.maxntid().unwrap_or_default()
        )
    } else if params.len() != kernel.param_bytes() as usize {
        format!("{} bytes of parameters where the kernel takes {}", params.len(), kernel.param_bytes())
    } else if kernel.static_shared_bytes() > MAX_STATIC_SHARED {
        let bytes = kernel.static_shared_bytes();
        format!(
            "{bytes} bytes of shared memory declared with a size, which may be {MAX_STATIC_SHARED} at most; the rest \
             is for an `.extern .shared` array, whose size the launch says"
        )
    } else if shared > MAX_SHARED {
        format!("{shared} bytes of shared memory are more than {MAX_SHARED}")
    } else if let Some(detail) = refused_cluster(kernel, config) {
        detail
    } else {
        return Ok(());
    };
    Err(Box::new(Finding {
        kind: FindingKind::InvalidLaunch,
        kernel: kernel.name().to_string(),
        detail,
        source: None,
        inlined_at: Vec::new(),
        ptx_line: 0,
        ptx_text: String::new(),
        cta: [0; 3],
        thread: [0; 3],
        address: None,
        space: None,
        nearest: None,
        other: None,
        profile: None,
    }))
}

/// Why a launch's clusters are not possible, if so.
fn refused_cluster(kernel: &Kernel, config: &LaunchConfig) -> Option<String> {
    let Clusters { required, explicit, most } = kernel.clusters;
    let Some(cluster) = config.cluster.or(required) else {
        return explicit.then(|| "the kernel demands clusters, and the launch has none".to_string());
    };
    let ctas = cluster.iter().map(|&n| n as u64).product::<u64>();
    if required.is_some_and(|required| required != cluster) {
        let required = required.unwrap_or_default();
        Some(format!("clusters of {cluster:?} CTAs are not the {required:?} that the kernel requires"))
    } else if ctas == 0 || ctas > MAX_CLUSTER {
        Some(format!("clusters of {cluster:?} CTAs: not from 1 to {MAX_CLUSTER}"))
    } else if let Some(most) = most.filter(|&most| ctas > most as u64) {
        Some(format!("clusters of {ctas} CTAs are larger than the {most} that the kernel allows"))
    } else if config.grid.iter().zip(cluster).any(|(&n, size)| !n.is_multiple_of(size)) {
        Some(format!("grid {:?} is not a multiple of clusters of {cluster:?} CTAs", config.grid))
    } else {
        None
    }
}

#[derive(Default)]
struct Outcome {
    stats: Stats,
    /// Clusters that ran, to their end or not.
    started: u64,
    /// The finding of the lowest cluster so far.
    finding: Option<(u64, Box<Finding>)>,
    /// What the instructions did, if somebody wants to know.
    tally: Option<Tally>,
}

/// What the workers of a launch share.
struct Shared<'a> {
    launch: &'a Launch<'a>,
    clusters: u64,
    /// The next cluster to start.
    next: AtomicU64,
    /// Clusters from here on need not run: one below has a finding.
    limit: AtomicU64,
    outcome: Mutex<Outcome>,
}

impl Shared<'_> {
    /// Runs clusters until none is left. One that has run for long makes room for others, so that CTAs
    /// may wait for one another even with fewer workers than CTAs.
    fn work(&self) {
        let mut worker = Worker {
            hints: vec![0; self.launch.kernel.instruction_count()],
            fault: None,
            stats: Stats::default(),
            profile: self.launch.profile.then(|| self.tally()),
            clock: 0,
        };
        let mut started = 0;
        let mut paused = std::collections::VecDeque::new();
        let mut spare: Option<Cta> = None;
        loop {
            let fresh = self.next.load(Ordering::Relaxed) < self.clusters;
            let mut cta = if fresh && let Some(index) = self.claim() {
                let mut cta = spare.take().unwrap_or_else(|| Cta::new(self.launch));
                cta.start(self.launch, index);
                started += 1;
                cta
            } else if let Some(cta) = paused.pop_front() {
                cta
            } else {
                break;
            };
            if cta.state.index >= self.limit.load(Ordering::Relaxed) {
                continue;
            }
            match cta.run(self.launch, &mut worker) {
                Slice::Finished => spare = Some(cta),
                Slice::Paused => paused.push_back(cta),
                Slice::Fault(warp) => self.report(&cta, warp, &mut worker),
            }
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.stats.add(&worker.stats);
        outcome.started += started;
        if let Some(mine) = worker.profile.take() {
            let tally = outcome.tally.get_or_insert_with(|| self.tally());
            tally.iter_mut().zip(&mine).for_each(|(sum, counts)| sum.add(counts));
        }
    }

    fn tally(&self) -> Tally {
        vec![Counts::default(); self.launch.kernel.instruction_count()].into_boxed_slice()
    }

    fn claim(&self) -> Option<u64> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.clusters && index < self.limit.load(Ordering::Relaxed)).then_some(index)
    }

    fn report(&self, cta: &Cta, warp: usize, worker: &mut Worker) {
        let Some(fault) = worker.fault.take() else { return };
        let kernel = self.launch.kernel;
        let place = kernel.place(fault.pc.unwrap_or(cta.warps[warp].pc));
        let (at, thread) = self.launch.thread_at(cta.state.index, warp * LANES + fault.lane as usize % LANES);
        let finding = Finding {
            kind: fault.kind,
            kernel: kernel.name().to_string(),
            detail: fault.detail,
            source: kernel.source_line(place),
            inlined_at: kernel.inlined_at(place),
            ptx_line: place.line,
            ptx_text: kernel.line_text(place.line),
            cta: at,
            thread,
            address: fault.address,
            space: fault.space,
            nearest: fault.nearest,
            other: fault.other,
            profile: None,
        };
        let index = cta.state.index;
        self.limit.fetch_min(index, Ordering::Relaxed);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.finding.as_ref().is_none_or(|&(known, _)| index < known) {
            outcome.finding = Some((index, Box::new(finding)));
        }
    }
}

/// The value of a uniform in a thread, by its number in its CTA, which has that rank in its cluster.
pub(crate) fn uniform_value(
    launch: &Launch<'_>,
    cta: &CtaState,
    uniform: Uniform,
    (rank, thread): (usize, u32),
) -> u64 {
    let [x, y, _] = launch.block;
    let tid = [thread % x, thread / x % y, thread / x / y];
    let special = match uniform {
        Uniform::ModuleAddress(offset) => return launch.module_base.wrapping_add_signed(offset),
        Uniform::SharedAddress(offset) => return offset.wrapping_add(cta.cluster.base(rank)),
        Uniform::Special(special) => special,
    };
    let value = match special {
        Special::Tid(axis) => tid[axis as usize],
        Special::Ntid(axis) => launch.block[axis as usize],
        Special::Ctaid(axis) => cta.at[rank][axis as usize],
        Special::Nctaid(axis) => launch.grid[axis as usize],
        Special::Warpid => thread / LANES as u32,
        Special::Nwarpid => cta.warps as u32,
        Special::Nsmid => 1,
        Special::DynamicSharedSize => launch.dynamic_shared,
        Special::TotalSharedSize => cta.cluster.bytes as u32,
        Special::Clusterid(axis) => launch.cluster_at(cta.index)[axis as usize],
        Special::Nclusterid(axis) => launch.clusters()[axis as usize],
        Special::ClusterCtaid(axis) => launch.place_in_cluster(rank)[axis as usize],
        Special::ClusterNctaid(axis) => launch.cluster[axis as usize],
        Special::ClusterCtarank => rank as u32,
        Special::ClusterNctarank => cta.cluster.size as u32,
        Special::IsExplicitCluster => launch.explicit_cluster as u32,
        _ => 0,
    };
    value as u64
}

impl Special {
    /// Whether the kernel's register image already holds it.
    pub(crate) fn is_lane_constant(self) -> bool {
        matches!(
            self,
            Special::Laneid
                | Special::LanemaskEq
                | Special::LanemaskLe
                | Special::LanemaskLt
                | Special::LanemaskGe
                | Special::LanemaskGt
                | Special::WarpSize
        )
    }
}
