//! Launches: validation, and results.

use crate::checks::numeric::NumericChecks;
use crate::checks::programmatic::LaunchOrder;
use crate::checks::races::GridDetector;
use crate::checks::read_only::ReadOnlyGrid;
use crate::context::tensor_maps::ChangedMaps;
use crate::context::{Counters, Launch, Printed};
use crate::exec::numeric::instrument;
use crate::exec::resolve::resolver;
use crate::exec::wgmma::operands::watch;
use crate::finding::FindingKind;
use crate::geometry::{Geometry, MAX_CLUSTER};
use crate::load::ast::Clusters;
use crate::memory::Memory;
use crate::module::Kernel;
use crate::options::{LaunchConfig, MAX_SHARED, Options};
use crate::outcome::{Finding, Stats};
use crate::profile::Profile;
use crate::schedule::grid::Grid;

/// Maximum CTAs of a grid along x, y and z.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Maximum bytes of statically sized shared memory per kernel; the assembler rejects more on every target.
const MAX_STATIC_SHARED: u64 = 48 * 1024;

/// Runs a kernel over `memory`.
///
/// `params` is the parameter block, laid out as [`Kernel::params`] describes. Of several findings the run returns the
/// one in the lowest CTA, whatever the number of worker threads. A race between two CTAs is a finding in the CTA that
/// ends later.
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

/// Implements [`run`]; if `order` is given, also checks the launch as one in programmatic order.
pub(crate) fn run_in(
    order: Option<&LaunchOrder>,
    kernel: &Kernel,
    memory: &Memory,
    config: &LaunchConfig,
    params: &[u8],
    options: &Options,
) -> Result<Stats, Box<Finding>> {
    validate(kernel, config, params, options)?;
    let module_base = kernel.module_base(memory);
    let workspace = config.cooperative.then(|| grid_workspace(memory));
    let cluster = config.cluster.or(kernel.required_cluster());
    let numeric = NumericChecks {
        values: options.checks.values,
        overflow: options.checks.overflow,
        effects: &kernel.numeric_effects,
    };
    let instrumented = instrument(&kernel.insts, numeric);
    let own = if instrumented.is_empty() { &kernel.insts } else { &instrumented };
    let watched = if options.checks.memory { watch(own, &kernel.program) } else { Vec::new() };
    let launch = Launch {
        program: &kernel.program,
        insts: &kernel.insts,
        instrumented,
        watched,
        numeric,
        table: memory.snapshot(),
        params,
        geometry: Geometry {
            grid: config.grid,
            block: config.block,
            cluster: cluster.unwrap_or([1; 3]),
            explicit_cluster: cluster.is_some(),
        },
        dynamic_shared: config.dynamic_shared,
        checks: options.checks,
        profile: options.profile.then_some(kernel.profile_traits.as_slice()),
        races: options.checks.races.then(GridDetector::default),
        read_only: (options.checks.races && kernel.program.loads_non_coherent).then(ReadOnlyGrid::default),
        resolver: resolver(),
        module_base,
        grid_workspace: workspace.unwrap_or(0),
        printed: Printed::default(),
        changed_maps: ChangedMaps::default(),
        order,
    };
    let threads = if options.threads == 0 { rayon::current_num_threads() } else { options.threads };
    let outcome = Grid::new(&launch, options).run(threads);
    let started = outcome.started * launch.geometry.cluster_size() as u64;
    let printed = launch.printed.into_text();
    if let Some(workspace) = workspace {
        let freed = memory.free(workspace);
        debug_assert_eq!(freed, Ok(()));
    }
    let threads = started * config.block.iter().map(|&n| u64::from(n)).product::<u64>();
    let profile = outcome
        .tally
        .map(|tally| Box::new(Profile::new(&kernel.program, &kernel.profile_traits, threads, &tally)));
    match outcome.finding {
        Some((_, finding)) => Err(Box::new(Finding { printed, profile, ..*finding })),
        None => {
            let Counters { lane_instructions, warp_instructions, global_bytes_loaded, global_bytes_stored } =
                outcome.counters;
            Ok(Stats {
                lane_instructions,
                warp_instructions,
                global_bytes_loaded,
                global_bytes_stored,
                printed,
                profile,
            })
        }
    }
}

/// Number of CTAs or threads along three axes; at most 2^64 - 1.
fn volume(axes: [u32; 3]) -> u64 {
    axes.iter().fold(1, |product: u64, &n| product.saturating_mul(n.into()))
}

/// Allocates the memory with which the CTAs of a cooperative launch synchronise: its size, and a counter of arrivals
/// that starts at 0 (`grid_workspace` of CUDA's cooperative groups).
fn grid_workspace(memory: &Memory) -> u64 {
    const BYTES: u32 = 8;
    let address = memory.alloc("workspace of the cooperative launch", BYTES.into());
    // Cannot fail: the range is the allocation.
    let written = memory.write(address, &u64::from(BYTES).to_le_bytes());
    debug_assert_eq!(written, Ok(()));
    address
}

fn validate(
    kernel: &Kernel,
    config: &LaunchConfig,
    params: &[u8],
    options: &Options,
) -> Result<(), Box<Finding>> {
    let LaunchConfig { grid, block, dynamic_shared, .. } = *config;
    let threads = volume(block);
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
    } else if kernel.maxntid().is_some_and(|max| threads > volume(max)) {
        format!(
            "block {block:?} is larger than the {:?} that the kernel allows",
            kernel.maxntid().unwrap_or_default()
        )
    } else if params.len() != kernel.param_bytes() as usize {
        format!(
            "the launch passes {} bytes of parameters, and the kernel takes {}",
            params.len(),
            kernel.param_bytes()
        )
    } else if kernel.static_shared_bytes() > MAX_STATIC_SHARED {
        let bytes = kernel.static_shared_bytes();
        format!(
            "{bytes} bytes of static shared memory are more than {MAX_STATIC_SHARED}; declare the rest as an \
             `.extern .shared` array, whose size is an option of the launch"
        )
    } else if shared > MAX_SHARED {
        format!("{shared} bytes of shared memory are more than {MAX_SHARED}")
    } else if let Some(detail) = refused_cluster(kernel, config) {
        detail
    } else if config.cooperative && volume(grid) > options.resident_ctas {
        format!(
            "a cooperative launch of {} CTAs, of which the device holds {} at once",
            volume(grid),
            options.resident_ctas
        )
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
        printed: String::new(),
        profile: None,
    }))
}

/// Description of why the launch's clusters are invalid; `None` if they are valid.
fn refused_cluster(kernel: &Kernel, config: &LaunchConfig) -> Option<String> {
    let Clusters { required, explicit, max_ctas: most } = kernel.clusters;
    let Some(cluster) = config.cluster.or(required) else {
        return explicit.then(|| "the kernel requires clusters, and the launch has none".to_string());
    };
    let ctas = volume(cluster);
    if required.is_some_and(|required| required != cluster) {
        let required = required.unwrap_or_default();
        Some(format!("clusters of {cluster:?} CTAs are not the {required:?} that the kernel requires"))
    } else if ctas == 0 || ctas > MAX_CLUSTER {
        Some(format!("clusters of {cluster:?} CTAs: their number is not between 1 and {MAX_CLUSTER}"))
    } else if let Some(most) = most.filter(|&most| ctas > most as u64) {
        Some(format!("clusters of {ctas} CTAs are larger than the {most} that the kernel allows"))
    } else if config.grid.iter().zip(cluster).any(|(&n, size)| !n.is_multiple_of(size)) {
        Some(format!("grid {:?} is not a multiple of clusters of {cluster:?} CTAs", config.grid))
    } else {
        None
    }
}
