//! Speed of decoding, of speculation and of prompts, the ceilings by memory bandwidth and tensor cores, profiles and timelines of steps.

mod measure;
mod profile;
mod rows;
mod speculation;
mod step;
pub mod text;
mod timeline;
mod trace;

use bespoke::device::DeviceInfo;
use bespoke::engine::Engine;
use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use serde::Serialize;

pub use measure::{Measurement, WARM_UP, Workload, measure};
pub use profile::{
    KernelTime, LaunchTime, MatrixCeiling, MatrixTime, Profile, RoleTime, Traffic, matrix_ceilings, profile,
};
pub use rows::{BATCH_POSITIONS, RowsMeasurement, RowsTest, measure_batch, measure_prompt};
pub use speculation::{SpeculationError, SpeculationMeasurement, SpeculationWorkload, measure_speculation};
pub use step::{MeasuredStep, ProfiledStep, StepInfo};
pub use timeline::{RoleSpan, TimedLaunch, Timeline, timeline};
pub use trace::trace;

/// All measurements, as `-o json` prints them. Times are in microseconds, sizes in bytes, rates per second.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Version and build settings of this binary.
    pub build: Build,
    /// Device on which all models ran.
    pub device: Option<DeviceInfo>,
    /// Measurement of every model at every depth.
    pub measurements: Vec<Measurement>,
    /// Speed of steps of several rows, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RowsMeasurement>,
    /// Speed of speculation with synthetic drafts, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speculation: Vec<SpeculationMeasurement>,
    /// Profiles of steps, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// Timelines of steps, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timelines: Vec<Timeline>,
    /// Ceilings of the matrix kernels, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matrices: Vec<MatrixCeiling>,
}

/// Version and build settings of this binary.
#[derive(Debug, Serialize)]
pub struct Build {
    /// Version of the package.
    pub version: &'static str,
    /// Whether the binary was built without debug assertions.
    pub optimised: bool,
    /// Targets of the built-in kernels.
    pub targets: &'static [Target],
}

/// The loaded model of a benchmark.
pub struct Subject<'a> {
    /// The model's name.
    pub name: String,
    /// The model's opened GGUF file.
    pub gguf: &'a Gguf,
    /// Engine with the loaded model.
    pub engine: Engine,
    /// Read ceiling: bytes per second of a plain read of device memory; `None` on the emulator, whose time says nothing
    /// about memory.
    pub ceiling: Option<f64>,
    /// Tensor core ceiling: floating-point operations per second of dense matrix products; `None` on the emulator, and if
    /// no steps of several rows are measured.
    pub tensor_ceiling: Option<f64>,
}
