//! Launches in programmatic order.

use crate::checks::programmatic::{LaunchHistory, LaunchOrder};
use crate::launch::run_in;
use crate::memory::Memory;
use crate::module::Kernel;
use crate::options::{LaunchConfig, Options};
use crate::outcome::{Finding, Stats};

/// Sequence of launches, some of them programmatically dependent on the previous one.
///
/// For each launch the sequence records which granules of 32 bytes of global memory were read and written, and by which
/// PTX line. A thread that has not executed `griddepcontrol.wait` must not read what a concurrent earlier launch
/// writes, nor write what that launch reads or writes: such an access is a finding of kind
/// [`FindingKind::ProgrammaticDependency`](crate::FindingKind::ProgrammaticDependency). So is a CTA of a
/// programmatically dependent launch that exits without the wait: later launches could not know when earlier launches
/// are complete.
///
/// Launch `k + 1` may run at the same time as launch `k`, and as every launch that may run at the same time as `k`,
/// unless some CTA of `k` executes `griddepcontrol.wait` before it lets `k + 1` start. A thread that has synchronised
/// with a thread that waited, at a barrier, an mbarrier or `bar.warp.sync`, counts as having waited.
#[derive(Default)]
pub struct ProgrammaticOrder {
    history: LaunchHistory,
}

impl ProgrammaticOrder {
    /// Sequence without launches.
    pub fn new() -> ProgrammaticOrder {
        ProgrammaticOrder::default()
    }

    /// Runs a launch that starts after all earlier launches are complete; see [`run`](crate::run).
    ///
    /// # Errors
    /// The [`Finding`] that stopped the run.
    pub fn run(
        &mut self,
        kernel: &Kernel,
        memory: &Memory,
        config: &LaunchConfig,
        params: &[u8],
        options: &Options,
    ) -> Result<Stats, Box<Finding>> {
        let order = self.begin(kernel, memory, false);
        self.run_in(order, kernel, memory, config, params, options)
    }

    /// Runs a launch that is programmatically dependent on the previous one; see [`run`](crate::run).
    ///
    /// # Errors
    /// The [`Finding`] that stopped the run.
    pub fn run_programmatic(
        &mut self,
        kernel: &Kernel,
        memory: &Memory,
        config: &LaunchConfig,
        params: &[u8],
        options: &Options,
    ) -> Result<Stats, Box<Finding>> {
        let order = self.begin(kernel, memory, true);
        self.run_in(order, kernel, memory, config, params, options)
    }

    fn begin(&mut self, kernel: &Kernel, memory: &Memory, programmatic: bool) -> LaunchOrder {
        // The history records the accesses of the memory that is allocated now: also of the module's variables.
        kernel.module_base(memory);
        self.history.begin(kernel.name(), memory, programmatic)
    }

    fn run_in(
        &mut self,
        order: LaunchOrder,
        kernel: &Kernel,
        memory: &Memory,
        config: &LaunchConfig,
        params: &[u8],
        options: &Options,
    ) -> Result<Stats, Box<Finding>> {
        let outcome = run_in(Some(&order), kernel, memory, config, params, options);
        self.history.end(order);
        outcome
    }
}
