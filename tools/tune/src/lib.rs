//! Measures on a device which division of a model's work among CTAs, warps and stages is fastest.

mod meter;
mod search;
pub mod text;

pub use meter::{Confirmation, DeviceMeter, Effort};
pub use search::{Change, Comparison, Found, Meter, Search};
