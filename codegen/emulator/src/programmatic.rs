//! Runs of launches in programmatic order.

use crate::checks::programmatic::{LaunchHistory, Order};
use crate::launch::run_in;
use crate::memory::Memory;
use crate::module::Kernel;
use crate::options::{LaunchConfig, Options};
use crate::outcome::{Finding, Stats};

/// Kernels that run in order, some of them on programmatic edges.
///
/// Of each launch it remembers which bytes of global memory were read and written, in units of 32 bytes,
/// and by which line. A thread of a later launch that may run at the same time, and has not executed
/// `griddepcontrol.wait`, must not read what such a launch wrote, nor write what it read or wrote: that
/// is a finding of kind [`FindingKind::ProgrammaticDependency`]. So is a launch on a programmatic edge in
/// which a CTA ends without having waited: the launches after it could then not tell when the ones
/// before it are complete.
///
/// Launch `k + 1` may run at the same time as `k`. It may run at the same time as the launches before
/// that which `k` itself could not know to be complete, unless some CTA of `k` lets its successor start
/// only after having waited. A thread also counts as having waited when it has met one that has, at a
/// barrier, an mbarrier or `bar.warp.sync`.
#[derive(Default)]
pub struct ProgrammaticOrder {
    history: LaunchHistory,
}

impl ProgrammaticOrder {
    /// No launches so far.
    pub fn new() -> ProgrammaticOrder {
        ProgrammaticOrder::default()
    }

    /// [`run`](crate::run) as a launch that starts after all before it are complete.
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
        let order = self.history.begin(kernel.name(), memory, false);
        self.run_in(order, kernel, memory, config, params, options)
    }

    /// [`run`](crate::run) as a launch that is programmatically dependent on the one before it.
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
        let order = self.history.begin(kernel.name(), memory, true);
        self.run_in(order, kernel, memory, config, params, options)
    }

    fn run_in(
        &mut self,
        order: Order,
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
