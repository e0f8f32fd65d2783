//! Occupancy: how many CTAs of a kernel fit on a multiprocessor, and which resource limits the number.

use bespoke_codegen::ptx::Target;
use serde::Serialize;

use super::Gpu;

/// Registers per multiprocessor, the same for every target so far (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
const REGISTERS: u32 = 64 << 10;

/// Allocation unit of a warp's registers, and the number of register banks, one for each scheduler (as in CUDA's
/// `cuda_occupancy.h`).
const REGISTER_UNIT: u32 = 256;
const BANKS: u32 = 4;

/// Allocation unit of shared memory in bytes, and the bytes that the system reserves for each CTA (`cuda_occupancy.h`).
const SHARED_UNIT: u32 = 128;
const SYSTEM_SHARED: u32 = 1024;

/// Resources that a CTA needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Threads per CTA.
    pub threads: u32,
    /// Registers per thread, if known.
    pub registers: Option<u32>,
    /// Shared memory per CTA, static and dynamic, in bytes.
    pub shared: u32,
}

/// The resource that limits the number of CTAs on a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The number of CTAs per multiprocessor.
    Ctas,
    /// Threads per multiprocessor.
    Threads,
    /// Registers per multiprocessor.
    Registers,
    /// Shared memory per multiprocessor.
    Shared,
}

/// CTAs and warps of a kernel on a multiprocessor at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    /// Target whose limits apply.
    pub target: Target,
    /// CTAs per multiprocessor.
    pub ctas: u32,
    /// Warps per multiprocessor.
    pub warps: u32,
    /// Largest number of warps per multiprocessor of the target.
    pub most_warps: u32,
    /// The resource that limits the number of CTAs on a multiprocessor.
    pub limit: Limit,
}

impl Occupancy {
    /// Computes the occupancy of CTAs with this demand. Unknown registers are ignored.
    pub fn of(target: Target, demand: Demand) -> Occupancy {
        let gpu = Gpu::typical(target);
        let warps = demand.threads.div_ceil(32);
        let most_warps = gpu.threads_per_multiprocessor / 32;
        let shared = (demand.shared + SYSTEM_SHARED).next_multiple_of(SHARED_UNIT);
        let by_registers = demand.registers.map(|registers| {
            let a_warp = (registers.max(1) * 32).next_multiple_of(REGISTER_UNIT);
            let resident = REGISTERS / BANKS / a_warp * BANKS;
            // A CTA is admitted as if its warps were spread evenly over the banks.
            let fits = a_warp * warps.next_multiple_of(BANKS) <= REGISTERS;
            (if fits { resident / warps } else { 0 }, Limit::Registers)
        });
        let limits = [
            (most_ctas(target), Limit::Ctas),
            (most_warps / warps, Limit::Threads),
            (gpu.shared_per_multiprocessor / shared, Limit::Shared),
        ];
        let (ctas, limit) =
            limits.into_iter().chain(by_registers).min_by_key(|(ctas, _)| *ctas).unwrap_or((0, Limit::Ctas));
        Occupancy { target, ctas, warps: ctas * warps, most_warps, limit }
    }
}

/// Largest number of CTAs per multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability").
fn most_ctas(target: Target) -> u32 {
    match target {
        Target::Sm86 => 16,
        Target::Sm89 | Target::Sm120 => 24,
        Target::Sm80 | Target::Sm90 | Target::Sm100 => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(target: Target, threads: u32, registers: Option<u32>, shared: u32) -> Occupancy {
        Occupancy::of(target, Demand { threads, registers, shared })
    }

    /// Results of `cudaOccMaxActiveBlocksPerMultiprocessor` of CUDA 13.0, for the targets in order.
    #[test]
    fn results_equal_cuda_s() {
        for (threads, registers, shared, ctas) in [
            (32, 16, 0, [32, 16, 24, 32, 32, 24]),
            (1024, 32, 0, [2, 1, 1, 2, 2, 1]),
            (256, 255, 0, [1, 1, 1, 1, 1, 1]),
            (256, 128, 0, [2, 2, 2, 2, 2, 2]),
            (288, 102, 0, [1, 1, 1, 1, 1, 1]),
            (96, 200, 0, [2, 2, 2, 2, 2, 2]),
            (224, 72, 12_345, [4, 4, 4, 4, 4, 4]),
            (1, 10, 48 << 10, [3, 2, 2, 4, 4, 2]),
            (160, 191, 77_200, [1, 1, 1, 1, 1, 1]),
            (288, 32, 114 << 10, [1, 0, 0, 1, 1, 0]),
            (288, 32, 113 << 10, [1, 0, 0, 2, 2, 0]),
            (288, 32, 81 << 10, [2, 1, 1, 2, 2, 1]),
        ] {
            let found = Target::ALL.map(|target| of(target, threads, Some(registers), shared).ctas);
            assert_eq!(found, ctas, "{threads} threads of {registers} registers, {shared} bytes");
        }
    }

    #[test]
    fn the_limiting_resource() {
        for (threads, registers, shared, limit) in [
            (32, Some(16), 0, Limit::Ctas),
            (1024, Some(32), 0, Limit::Threads),
            (256, Some(255), 0, Limit::Registers),
            (288, None, 114 << 10, Limit::Shared),
        ] {
            let found = of(Target::Sm90, threads, registers, shared);
            assert_eq!(
                (found.limit, found.warps),
                (limit, found.ctas * threads / 32),
                "{threads} {registers:?}"
            );
        }
    }
}
