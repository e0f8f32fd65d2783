//! Checks kernels on the emulator: those of a PTX file, of a built-in shape, or of a model's decode plan.
//!
//! A finding ends its launch, and the next launch runs. A [`Report`] has each finding once, and profiles: of the
//! launches that completed, and of the stopped launches up to their finding.
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

mod arguments;
mod error;
mod expected;
mod failure;
mod kernels;
mod launches;
mod ptx;
mod report;
mod residency;
mod rows;
mod saved;
mod template;
mod tensor_map;
pub mod text;
mod triton;
mod values;

use std::num::NonZeroU32;

pub use bespoke_emulator::Checks;
pub use bespoke_emulator::SourceLine;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
pub use error::CheckError;
pub use failure::{Failure, Location, Problem, Reason};
pub use kernels::{Progress, model, shape};
pub use launches::{
    Argument, Buffer, Bytes, Content, Expectation, Extent, Function, Launch, Launches, Pointer, Pointers,
    Within,
};
pub use ptx::{Loaded, ptx};
pub use report::{Cost, Finding, KernelProfile, LineProfile, Lint, PtxLine, REPORT_VERSION, Report, Site};
pub use rows::model_rows;
pub use template::template;
pub use values::{Element, Number};

/// Options of a check: checks, limit, lints and profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Checks of the emulator in addition to out-of-bounds accesses.
    pub checks: Checks,
    /// Element type of the KV cache of a shape or a model.
    pub kv: KvType,
    /// Operands of the products of a model's steps of several rows.
    pub arithmetic: Arithmetic,
    /// Warp instructions after which a launch of a PTX file counts as hanging: those of its CTAs that have not ended
    /// ([`bespoke_emulator::Options::instruction_limit`]).
    pub instruction_limit: u64,
    /// Number of multiprocessors of the device on which a PTX file's launches must fit, and among which the work of a shape
    /// or a model is divided. By default that of the launch file ([`Launches::multiprocessors`]), else that of the
    /// largest common device of the target.
    pub multiprocessors: Option<NonZeroU32>,
    /// Whether to report what could be faster.
    pub lints: bool,
    /// Whether to report the costs of every source line.
    pub profile: bool,
}

impl Default for Options {
    /// All checks except those for behaviour that a kernel may intend; lints, and no profile. The limit is the
    /// emulator's: some seconds.
    fn default() -> Options {
        Options {
            checks: Checks::ALL,
            kv: KvType::F16,
            arithmetic: Arithmetic::default(),
            instruction_limit: bespoke_emulator::Options::default().instruction_limit,
            multiprocessors: None,
            lints: true,
            profile: false,
        }
    }
}
