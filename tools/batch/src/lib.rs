//! Many prompts at once: lines of JSON in, lines of JSON out.
//!
//! [`InputLine`] is a line of the input, [`Job`] the request that it becomes, [`run()`] the loop over a scheduler, and
//! [`Record`] a line of the output. [`Kept`] has the records of an interrupted run.

mod input;
mod kept;
mod record;
mod run;

pub use input::{Defaults, InputError, InputLine, Job, Prompt, parse};
pub use kept::{Kept, KeptError};
pub use record::{Record, Timings};
pub use run::{Failure, run};
