//! Decode speed, what the memory would allow, and where the time of a token goes.

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

/// All that was measured, as `-o json` prints it. Times are in microseconds, sizes in bytes, rates a second.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The binary.
    pub build: Build,
    /// The device of the first model; all run on the same.
    pub device: Option<DeviceInfo>,
    /// Every model at every depth.
    pub measurements: Vec<Measurement>,
    /// Steps launch by launch, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// Matrix kernels alone, where asked for.
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
    /// Targets that kernels are built in for.
    pub targets: &'static [Target],
}

/// What the parts of a benchmark have in common: a loaded model.
pub struct Subject<'a> {
    /// The model's name.
    pub name: String,
    /// The model's file.
    pub gguf: &'a Gguf,
    /// The loaded model.
    pub engine: Engine,
    /// Bytes a second of a plain read; none on the emulator, whose time says nothing about memory.
    pub ceiling: Option<f64>,
}

/// The value in the middle of the sorted ones.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
