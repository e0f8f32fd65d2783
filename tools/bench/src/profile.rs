//! Profile of a step: every launch alone, a replay of all, and the matrix kernels alone.

use std::collections::BTreeMap;

use bespoke::device::Kind;
use bespoke::engine::{EngineError, Matrix, StepRows, median};
use bespoke_kernels::plan::LaunchRole;
use serde::Serialize;

use crate::Subject;
use crate::step::{MeasuredStep, StepInfo};

/// One step of a model, launch by launch.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// Model, device and step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// Sum of the times of all launches, run one by one.
    pub kernels_microseconds: f64,
    /// Time of a graph replay of the step by the device's clock; `None` without a graph.
    pub replay_microseconds: Option<f64>,
    /// Read ceiling: bytes per second of a plain read of device memory; `None` on the emulator.
    pub ceiling_bytes_per_second: Option<f64>,
    /// Sums by kernel, the longest first.
    pub kernels: Vec<KernelTime>,
    /// Sums by kind of launch and kernel, the longest first.
    pub roles: Vec<RoleTime>,
    /// Sums by matrix shape, the longest first.
    pub matrices: Vec<MatrixTime>,
    /// The launches in order.
    pub launches: Vec<LaunchTime>,
}

/// Time and bytes of all launches of a kind in a step with the same kernel.
#[derive(Debug, Serialize)]
pub struct RoleTime {
    /// What the launches compute, such as `attn_qkv`.
    pub role: LaunchRole,
    /// The kernel's name.
    pub kernel: String,
    /// Number of launches.
    pub launches: usize,
    /// Time of the launches over that of all launches.
    pub share: f64,
    /// Time, bytes and rate.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// A launch of a step, with its time.
#[derive(Debug, Serialize)]
pub struct LaunchTime {
    /// Label of the launch in the plan.
    pub label: String,
    /// The kernel's name.
    pub kernel: String,
    /// CTAs of the grid along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub threads: u32,
    /// Time, bytes and rate.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// Time and bytes of all launches of a kernel in a step.
#[derive(Debug, Serialize)]
pub struct KernelTime {
    /// The kernel's name.
    pub kernel: String,
    /// Number of launches.
    pub launches: usize,
    /// Time, bytes and rate.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// Time and bytes of all launches in a step for matrices of one shape.
#[derive(Debug, Serialize)]
pub struct MatrixTime {
    /// Name of the matrix, such as `attn_qkv`.
    pub matrix: String,
    /// Types of the weights.
    pub types: String,
    /// Rows of the matrix.
    pub rows: u64,
    /// Columns of the matrix.
    pub cols: u32,
    /// Number of launches.
    pub launches: usize,
    /// Time, bytes and rate.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// A matrix kernel alone, with cold caches.
#[derive(Debug, Serialize)]
pub struct MatrixCeiling {
    /// The model's name.
    pub model: String,
    /// The kernel's name.
    pub kernel: String,
    /// Bytes of weights between two reads of the same weights.
    pub rotated_bytes: u64,
    /// Read ceiling: bytes per second of a plain read of device memory; `None` on the emulator.
    pub ceiling_bytes_per_second: Option<f64>,
    /// Matrix, time and bytes of all launches of the kernel in a step.
    #[serde(flatten)]
    pub time: MatrixTime,
}

/// Time and bytes moved.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Traffic {
    /// Time in microseconds.
    pub microseconds: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Bytes moved per second.
    pub bytes_per_second: f64,
    /// `bytes_per_second` divided by the read ceiling; `None` on the emulator.
    pub fraction_of_ceiling: Option<f64>,
}

impl Traffic {
    /// Computes the rate, and the rate divided by `ceiling`, which is in bytes per second.
    pub fn new(microseconds: f64, bytes: u64, ceiling: Option<f64>) -> Traffic {
        let rate = bytes as f64 / (microseconds * 1e-6);
        let fraction_of_ceiling = ceiling.map(|ceiling| rate / ceiling);
        Traffic { microseconds, bytes, bytes_per_second: rate, fraction_of_ceiling }
    }
}

/// Number of profiled steps; the time of a launch is the median over these steps.
const STEPS: usize = 9;
/// Number of timed graph replays, fewer if the cache has no room; the result is their mean time.
const REPLAYS: u32 = 32;

/// Times every launch of a step, eagerly, and graph replays of the step.
///
/// # Errors
/// If the cache is too small, or the device fails.
pub fn profile(subject: &mut Subject<'_>, step: MeasuredStep) -> Result<Profile, EngineError> {
    let info = StepInfo::new(subject, step);
    let rows = step.rows;
    let engine = &mut subject.engine;
    let depth = rows.depth();
    // The emulator's times are not a GPU's, and its steps of many rows are slow.
    let long = rows.count() > 1 && engine.device().info().kind == Kind::Emulator;
    let (passes, replays) = if long { (1, 1) } else { (STEPS, REPLAYS) };
    let mut steps = Vec::new();
    for _ in 0..passes {
        steps.push(engine.profile_step(rows)?);
    }
    let replays = match rows {
        StepRows::Decode { .. } => replays.min(engine.plan().params.context - depth),
        StepRows::Prompt { .. } | StepRows::FirstToken { .. } => replays,
    };
    let replay_microseconds = engine.time_step(rows, replays)?.map(|milliseconds| milliseconds * 1e3);

    let plan = engine.step_plan(rows)?;
    let launches: Vec<LaunchTime> = plan
        .launches
        .iter()
        .enumerate()
        .map(|(index, launch)| {
            let times: Vec<f64> = steps.iter().map(|step| step[index]).collect();
            let kernel = &plan.kernels[launch.kernel];
            let bytes = kernel.spec.bytes(u64::from(depth) + 1);
            LaunchTime {
                label: launch.label.to_string(),
                kernel: kernel.name.clone(),
                grid: launch.grid,
                threads: launch.threads,
                traffic: Traffic::new(median(&times), bytes, subject.ceiling),
            }
        })
        .collect();
    let matrices = plan.launches.iter().map(|launch| Matrix::of(plan, launch));
    let roles = plan.launches.iter().zip(&launches);
    let roles = roles.map(|(planned, launch)| ((planned.label.role, launch.kernel.clone()), launch));
    let sum: f64 = launches.iter().map(|launch| launch.traffic.microseconds).sum();
    Ok(Profile {
        info,
        kernels_microseconds: sum,
        replay_microseconds,
        ceiling_bytes_per_second: subject.ceiling,
        kernels: group(launches.iter().map(|launch| (launch.kernel.clone(), launch)), subject.ceiling)
            .into_iter()
            .map(|(kernel, launches, traffic)| KernelTime { kernel, launches, traffic })
            .collect(),
        roles: group(roles, subject.ceiling)
            .into_iter()
            .map(|((role, kernel), launches, traffic)| RoleTime {
                role,
                kernel,
                launches,
                share: traffic.microseconds / sum,
                traffic,
            })
            .collect(),
        matrices: group(
            matrices.zip(&launches).filter_map(|(matrix, launch)| Some((matrix?, launch))),
            subject.ceiling,
        )
        .into_iter()
        .map(|(matrix, launches, traffic)| matrix_time(matrix, launches, traffic))
        .collect(),
        launches,
    })
}

/// Times and bytes summed by key, with the number of launches; the longest first.
fn group<'a, K: Ord>(
    launches: impl Iterator<Item = (K, &'a LaunchTime)>,
    ceiling: Option<f64>,
) -> Vec<(K, usize, Traffic)> {
    let mut sums: BTreeMap<K, (usize, f64, u64)> = BTreeMap::new();
    for (key, launch) in launches {
        let (count, microseconds, bytes) = sums.entry(key).or_default();
        *count += 1;
        *microseconds += launch.traffic.microseconds;
        *bytes += launch.traffic.bytes;
    }
    let mut groups: Vec<_> = sums
        .into_iter()
        .map(|(key, (count, microseconds, bytes))| (key, count, Traffic::new(microseconds, bytes, ceiling)))
        .collect();
    groups.sort_by(|a, b| b.2.microseconds.total_cmp(&a.2.microseconds));
    groups
}

fn matrix_time(matrix: Matrix, launches: usize, traffic: Traffic) -> MatrixTime {
    let Matrix { name, rows, cols, types } = matrix;
    MatrixTime { matrix: name, types, rows, cols, launches, traffic }
}

/// Times every matrix kernel alone; times and bytes are sums over all launches of the kernel in a step.
pub fn matrix_ceilings(subject: &mut Subject<'_>) -> Result<Vec<MatrixCeiling>, EngineError> {
    let ceiling = subject.ceiling;
    let rates = subject.engine.matrix_rates()?;
    let row = |rate: bespoke::engine::MatrixRate| {
        let microseconds = rate.microseconds * rate.launches as f64;
        let traffic = Traffic::new(microseconds, rate.bytes * rate.launches as u64, ceiling);
        MatrixCeiling {
            model: subject.name.clone(),
            kernel: rate.kernel,
            rotated_bytes: rate.rotated_bytes,
            ceiling_bytes_per_second: ceiling,
            time: matrix_time(rate.matrix, rate.launches, traffic),
        }
    };
    Ok(rates.into_iter().map(row).collect())
}
