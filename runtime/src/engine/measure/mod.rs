//! Measurements of an engine: times of its steps, launches and matrices, and of plans by other rules; and of a device: bandwidth
//! and tensor throughput.

mod matrix_rates;
mod read_bandwidth;
mod step_times;
mod tensor_throughput;
mod timeline;
mod variants;

pub use matrix_rates::{Matrix, MatrixRate};
pub use read_bandwidth::read_bandwidth;
pub use step_times::StepRows;
pub use tensor_throughput::tensor_throughput;
pub use timeline::LaunchSpan;
pub use variants::{Variant, Variants};
