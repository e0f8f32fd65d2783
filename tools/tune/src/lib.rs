//! Measures on a device how a model's work is best divided.

mod meter;
mod search;
pub mod text;

pub use meter::{DeviceMeter, Effort};
pub use search::{Change, Comparison, Found, Meter, Search};
