//! The steps, and their times.

use std::error::Error;

use bespoke::device::{Buffer, Device, Kind, Launch};
use bespoke_codegen::Kernel;
use bespoke_codegen::launch::{Argument, Swizzle, TensorDescription, params};
use bespoke_codegen::prelude::{MatrixSwizzle, Swizzle32, Swizzle64, Swizzle128, Target, f16};
use hopper_gemm::{
    C_TILE, DEPTH, NAIVE_THREADS, ROWS, Schedule, Shape, THREADS, TILE, naive, scheduled, span, specialised,
    tiled,
};

use crate::Result;

/// Measurements, of which the median counts.
const ROUNDS: usize = 9;
/// Least milliseconds of a measurement.
const MEASUREMENT: f64 = 20.0;
/// Elements of a result that are checked.
const CHECKED: usize = 512;

/// Square matrices on the device.
pub struct Matrices {
    size: usize,
    values: [Vec<f16>; 2],
    a: Buffer<f16>,
    b: Buffer<f16>,
    c: Buffer<f16>,
}

impl Matrices {
    /// Matrices of pseudo-random numbers between -1 and 1.
    pub fn new(device: &dyn Device, size: usize) -> Result<Matrices> {
        let values = [1u32, 2].map(|seed| {
            let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
            let all = std::iter::successors(Some(seed), next).skip(1);
            all.map(|state| f16::from_f32((state >> 8) as f32 / (1 << 23) as f32 - 1.0))
                .take(size * size)
                .collect()
        });
        let [a, b]: &[Vec<f16>; 2] = &values;
        let (a, b) = (device.buffer_of("a", a)?, device.buffer_of("b", b)?);
        let c = device.buffer("c", size * size)?;
        Ok(Matrices { size, values, a, b, c })
    }

    /// Fails if an element of C, of some, is not near the sum of products in f64.
    fn check(&self, device: &dyn Device) -> Result<()> {
        let (size, [a, b]) = (self.size, &self.values);
        let c = device.read(&self.c)?;
        // A prime distance reaches all columns and rows of tiles.
        for at in (0..CHECKED).map(|i| i * 1_000_003 % (size * size)) {
            let (row, column) = (at / size, at % size);
            let products = (0..size).map(|p| a[row * size + p].to_f64() * b[column * size + p].to_f64());
            let (sum, of) = (products.clone().sum::<f64>(), products.map(f64::abs).sum::<f64>());
            // A rounding to f16, and sums in f32 or by the tensor cores, which truncate.
            let bound = sum.abs() * 2f64.powi(-10) + of * 2f64.powi(-16);
            let found = c[at].to_f64();
            if (found - sum).abs() > bound || found.is_nan() {
                return Err(format!("element ({row}, {column}) is {found}, not {sum}").into());
            }
        }
        Ok(())
    }
}

/// Grid, block, dynamic shared memory and arguments of a launch.
struct Geometry {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    params: Vec<u8>,
}

type Record = Box<dyn Fn() -> Result<Kernel>>;
type Bind = Box<dyn Fn(&dyn Device, &Matrices) -> Result<Geometry>>;

/// One step of the ladder.
pub struct Step {
    pub name: String,
    record: Record,
    bind: Bind,
}

impl Step {
    fn new<E: Error + 'static>(
        name: impl Into<String>,
        record: impl Fn() -> std::result::Result<Kernel, E> + 'static,
        bind: impl Fn(&dyn Device, &Matrices) -> Result<Geometry> + 'static,
    ) -> Step {
        Step { name: name.into(), record: Box::new(move || Ok(record()?)), bind: Box::new(bind) }
    }

    /// The kernel's PTX.
    pub fn ptx(&self) -> Result<String> {
        Ok((self.record)()?.compile(Target::Sm90)?.ptx)
    }

    /// Checks the result, and returns the median time of a launch in milliseconds; 0 on the emulator.
    pub fn time(&self, device: &dyn Device, matrices: &Matrices) -> Result<f64> {
        let module = device.load(&self.name, &self.ptx()?)?;
        let kernel = module.kernels().next().ok_or("no kernel")?.clone();
        let Geometry { grid, block, dynamic_shared, params } = (self.bind)(device, matrices)?;
        let launch = Launch { kernel, grid, block, dynamic_shared, params, programmatic: false };
        device.fill(matrices.c.address(), (matrices.size * matrices.size * 2) as u64, 0xff)?;
        device.sequence(vec![launch.clone()])?.run_eager()?;
        device.wait()?;
        matrices.check(device).map_err(|error| format!("{}: {error}", self.name))?;
        if device.info().kind == Kind::Emulator {
            return Ok(0.0);
        }
        let mut sequence = device.sequence(vec![launch; 4])?;
        sequence.capture()?;
        let warm = sequence.time_replays(3)? / 4.0;
        let replays = (MEASUREMENT / warm / 4.0).ceil().clamp(1.0, 1000.0) as u32;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(sequence.time_replays(replays)? / 4.0);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[ROUNDS / 2])
    }
}

/// Tensor map of a square matrix with tiles of these columns and rows.
fn map(
    device: &dyn Device,
    of: &Buffer<f16>,
    size: usize,
    tile: [u32; 2],
    swizzle: Swizzle,
) -> Result<impl Argument> {
    let sizes = [size as u64; 2];
    Ok(device.tensor_map(&TensorDescription::dense(of.pointer(), sizes, tile).swizzle(swizzle))?)
}

fn with_swizzle<S: MatrixSwizzle>(name: &str, shape: Shape) -> Step {
    let record = move || specialised::<S>(shape);
    let bind = move |device: &dyn Device, matrices: &Matrices| {
        let (size, k) = (matrices.size, matrices.size as u32);
        let a = map(device, &matrices.a, size, [span::<S>(), ROWS], S::SWIZZLE)?;
        let b = map(device, &matrices.b, size, [span::<S>(), shape.columns], S::SWIZZLE)?;
        let c = map(device, &matrices.c, size, C_TILE, Swizzle::Bytes128)?;
        Ok(Geometry {
            grid: [k.div_ceil(shape.columns), k.div_ceil(ROWS), 1],
            block: [THREADS, 1, 1],
            dynamic_shared: shape.dynamic_shared(),
            params: params(&[&a, &b, &c, &k]),
        })
    };
    Step::new(name, record, bind)
}

fn of_schedule(shape: Shape, schedule: Schedule) -> Step {
    let record = move || scheduled(shape, schedule);
    let bind = move |device: &dyn Device, matrices: &Matrices| {
        let (size, k, cluster) = (matrices.size, matrices.size as u32, schedule.cluster);
        let a = map(device, &matrices.a, size, [DEPTH, ROWS], Swizzle::Bytes128)?;
        let b = map(device, &matrices.b, size, [DEPTH, shape.columns / cluster], Swizzle::Bytes128)?;
        let c = map(device, &matrices.c, size, C_TILE, Swizzle::Bytes128)?;
        Ok(Geometry {
            grid: [(device.info().multiprocessors / cluster).max(1) * cluster, 1, 1],
            block: [THREADS, 1, 1],
            dynamic_shared: shape.dynamic_shared(),
            params: params(&[&a, &b, &c, &k, &k, &k]),
        })
    };
    let name = match schedule.cluster {
        1 => format!("scheduled, groups of {}", schedule.group),
        cluster => format!("scheduled, groups of {}, clusters of {cluster}", schedule.group),
    };
    Step::new(name, record, bind)
}

/// All steps, the slowest first.
pub fn steps() -> Vec<Step> {
    let wide = Shape { columns: 256, stages: 3 };
    let mut steps = vec![
        Step::new("naive", naive, |_, matrices| {
            let k = matrices.size as u32;
            let [x, y] = NAIVE_THREADS;
            let pointers = [&matrices.a, &matrices.b, &matrices.c].map(Buffer::pointer);
            Ok(Geometry {
                grid: [k / x, k / y, 1],
                block: [x, y, 1],
                dynamic_shared: 0,
                params: params(&[&pointers[0], &pointers[1], &pointers[2], &k, &k]),
            })
        }),
        Step::new("tiled", tiled, |device, matrices| {
            let (size, k) = (matrices.size, matrices.size as u32);
            let a = map(device, &matrices.a, size, [TILE[2], TILE[0]], Swizzle::Bytes128)?;
            let b = map(device, &matrices.b, size, [TILE[2], TILE[1]], Swizzle::Bytes128)?;
            Ok(Geometry {
                grid: [k / TILE[1], k / TILE[0], 1],
                block: [128, 1, 1],
                dynamic_shared: 0,
                params: params(&[&a, &b, &matrices.c.pointer(), &k, &k]),
            })
        }),
        with_swizzle::<Swizzle32>(
            "specialised, 128 columns, swizzle of 32 bytes",
            Shape { columns: 128, stages: 4 },
        ),
        with_swizzle::<Swizzle32>("specialised, 256 columns, swizzle of 32 bytes", wide),
        with_swizzle::<Swizzle64>("specialised, 256 columns, swizzle of 64 bytes", wide),
        with_swizzle::<Swizzle128>("specialised, 256 columns, swizzle of 128 bytes", wide),
    ];
    for (cluster, group) in [(1, 1), (1, 16), (2, 8)] {
        steps.push(of_schedule(wide, Schedule { cluster, group }));
    }
    steps
}
