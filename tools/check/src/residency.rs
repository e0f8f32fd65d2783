//! Residency: how many CTAs of a launch a device holds at once.

use std::num::NonZeroU32;

use bespoke_codegen::ptx::Target;
use bespoke_emulator::{Kernel, LaunchConfig, Module};
use bespoke_kernels::plan::Gpu;
use bespoke_kernels::plan::occupancy::{Demand, Limit, Occupancy};

/// A device as far as residency depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Multiprocessors {
    target: Target,
    count: u32,
}

impl Multiprocessors {
    /// The multiprocessors of the device that a module is for: the newest known target that runs the module's PTX, and
    /// `count` multiprocessors, or those of the largest common device of the target.
    pub(super) fn of(module: &Module, count: Option<NonZeroU32>) -> Multiprocessors {
        let target = module.target().and_then(|number| Target::for_device(number / 10, number % 10));
        // Targets before the first known one run on all known ones.
        let target = target.unwrap_or(Target::ALL[0]);
        Multiprocessors { target, count: count.map_or(target.multiprocessors(), NonZeroU32::get) }
    }

    /// Residency of a launch; `None` if no device can run the launch.
    ///
    /// The number is an upper bound: registers are unknown before assembly, and the CTAs of a cluster also need
    /// multiprocessors of one group.
    pub(super) fn hold(self, kernel: &Kernel, config: &LaunchConfig) -> Option<Residency> {
        let threads = config.block.iter().try_fold(1, |product: u32, &n| product.checked_mul(n))?;
        let shared = kernel.static_shared_bytes().checked_add(u64::from(config.dynamic_shared))?;
        let gpu = Gpu::typical(self.target);
        let fits = (1..=gpu.threads_per_multiprocessor).contains(&threads)
            && shared <= u64::from(gpu.shared_per_cta);
        let demand = Demand { threads, registers: None, shared: shared as u32 };
        let occupancy = fits.then(|| Occupancy::of(self.target, demand))?;
        let ctas = u64::from(occupancy.ctas) * u64::from(self.count);
        Some(Residency { ctas, multiprocessors: self, occupancy })
    }
}

/// Residency of one launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Residency {
    /// CTAs that the device holds at once, at most.
    pub(super) ctas: u64,
    multiprocessors: Multiprocessors,
    occupancy: Occupancy,
}

impl Residency {
    /// Describes in a clause why the device holds no more CTAs.
    pub(super) fn reason(&self) -> String {
        let Residency { multiprocessors: Multiprocessors { target, count }, occupancy, .. } = self;
        let limit = match occupancy.limit {
            Limit::Ctas => "the number of CTAs",
            Limit::Threads => "threads",
            Limit::Registers => "registers",
            Limit::Shared => "shared memory",
        };
        format!(
            "a device of {target} with {count} multiprocessors (--multiprocessors) holds {} CTAs on each, limited by \
             {limit}",
            occupancy.ctas
        )
    }
}
