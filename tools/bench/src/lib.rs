//! Decode speed, the memory's ceiling, and a profile of a token.

mod measure;
mod profile;
pub mod text;
mod trace;

use bespoke::device::DeviceInfo;
use bespoke::engine::Engine;
use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use serde::Serialize;

pub use measure::{Measurement, WARM_UP, Workload, measure};
pub use profile::{
    KernelTime, LaunchTime, MatrixCeiling, MatrixTime, Profile, Traffic, matrix_ceilings, profile,
};
pub use trace::trace;

/// All measurements, as `-o json` prints them. Times are in microseconds, sizes in bytes, rates per second.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The binary.
    pub build: Build,
    /// The device of all models.
    pub device: Option<DeviceInfo>,
    /// Every model at every depth.
    pub measurements: Vec<Measurement>,
    /// Profiles of a step, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// Ceilings of the matrix kernels, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matrices: Vec<MatrixCeiling>,
}

/// This binary.
#[derive(Debug, Serialize)]
pub struct Build {
    /// Version of the package.
    pub version: &'static str,
    /// Whether it was built without debug assertions.
    pub optimised: bool,
    /// Targets of the built-in kernels.
    pub targets: &'static [Target],
}

/// The loaded model of a benchmark.
pub struct Subject<'a> {
    /// The model's name.
    pub name: String,
    /// The model's file.
    pub gguf: &'a Gguf,
    /// The loaded model.
    pub engine: Engine,
    /// Bytes per second of a plain read; `None` on the emulator, whose time says nothing about memory.
    pub ceiling: Option<f64>,
}

/// Median: the middle one of the sorted values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
