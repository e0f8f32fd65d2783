//! Kernels under the checks of the emulator: a PTX file's, a shape's, or a model's decode plan.
//!
//! Nothing stops at the first finding: the launch that made it ends there, and the next one runs. A [`Report`] has
//! the findings, each once, and what the emulator's profile says of the launches that ran to their end, and of the
//! others until then.
//!
//! ```no_run
//! use bespoke_check::{self as check, Launches, Options};
//!
//! let text = std::fs::read_to_string("kernels.ptx")?;
//! let launches = Launches::read("launches.toml".as_ref())?;
//! let report = check::ptx("kernels.ptx", &text, &launches, &Options::default())?;
//! assert!(report.findings.is_empty(), "{:#?}", report.findings);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod expected;
mod failure;
mod kernels;
mod launches;
mod ptx;
mod report;
mod template;
pub mod text;
mod values;

pub use bespoke_emulator::Checks;
pub use error::CheckError;
pub use failure::{Failure, Location, Problem, Reason};
pub use kernels::{Progress, model, shape};
pub use launches::{
    Argument, Buffer, Bytes, Content, Expectation, Extent, Function, Launch, Launches, Within,
};
pub use ptx::{Loaded, ptx};
pub use report::{
    Cost, Finding, KernelProfile, LineProfile, Lint, Place, PtxLine, REPORT_VERSION, Report, Site,
};
pub use template::template;
pub use values::{Element, Number};

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What makes a finding, besides what always does.
    pub checks: Checks,
    /// Instructions a warp, on average, after which a CTA of a PTX file's launch is taken to hang.
    pub instruction_limit: u64,
    /// Whether to report what could be faster.
    pub lints: bool,
    /// Whether to report the cost of every source line.
    pub profile: bool,
}

impl Default for Options {
    /// All that is wrong whatever the kernel is for, lints, and no profile. A CTA may run for some seconds.
    fn default() -> Options {
        Options { checks: Checks::ALL, instruction_limit: 1 << 26, lints: true, profile: false }
    }
}
