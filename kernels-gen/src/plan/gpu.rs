//! The GPU that a plan divides its work for.

use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

/// Constants of a GPU: its target, the number and the limits of its multiprocessors, and its memory bandwidth.
///
/// GPUs of one target differ in most of them, so an engine plans for the device that it runs on. Kernels that are made
/// without a device are for [`Gpu::typical`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Target of the kernels.
    pub target: Target,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Maximum resident threads per multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Shared memory per multiprocessor, in bytes.
    pub shared_per_multiprocessor: u32,
    /// Maximum shared memory per CTA, in bytes.
    pub shared_per_cta: u32,
    /// Bandwidth of device memory, in bytes per second.
    pub bandwidth: u64,
    /// Whether warpgroups multiply on tensor cores (`wgmma`): compute capability 9.0 alone.
    pub warpgroups: bool,
}

/// Shared memory that the system reserves per CTA, in bytes (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
const SYSTEM_SHARED: u32 = 1024;

/// Approximate latency of device memory under full load, in nanoseconds.
const LATENCY: u64 = 800;

impl Gpu {
    /// Largest number of multiprocessors of a plan: far more than any GPU has.
    pub const MAX_MULTIPROCESSORS: u32 = 1024;

    /// The largest common GPU of `target`.
    ///
    /// Limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Numbers of
    /// multiprocessors and bandwidths are from the data sheets of A100 80GB, RTX 3090, RTX 4090, H200, B200 and
    /// RTX 5090.
    pub fn typical(target: Target) -> Gpu {
        let (threads, shared, gigabytes) = match target {
            Target::Sm80 => (2048, 164, 2039),
            Target::Sm86 => (1536, 100, 936),
            Target::Sm89 => (1536, 100, 1008),
            Target::Sm90 => (2048, 228, 4800),
            Target::Sm100 => (2048, 228, 8000),
            Target::Sm120 => (1536, 100, 1792),
        };
        Gpu {
            target,
            multiprocessors: target.multiprocessors(),
            threads_per_multiprocessor: threads,
            shared_per_multiprocessor: shared * 1024,
            shared_per_cta: target.shared_memory_per_block(),
            bandwidth: gigabytes * 1_000_000_000,
            warpgroups: target == Target::Sm90,
        }
    }

    /// This GPU with another number of multiprocessors, each with the same share of the bandwidth.
    #[must_use]
    pub fn with_multiprocessors(self, multiprocessors: u32) -> Gpu {
        let bandwidth =
            self.bandwidth.saturating_mul(multiprocessors.into()) / u64::from(self.multiprocessors.max(1));
        Gpu { multiprocessors, bandwidth, ..self }
    }

    /// Whether kernels have programmatic dependent launch, and bulk copies.
    pub fn is_programmatic(&self) -> bool {
        self.target.has_programmatic_launch()
    }

    /// Bytes that a multiprocessor must have in flight to saturate memory: bandwidth per multiprocessor × latency.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bandwidth / u64::from(self.multiprocessors) * LATENCY / 1_000_000_000
    }

    /// Number of CTAs, with `threads` threads and `shared` bytes each, that are resident on a multiprocessor at once.
    /// Registers are ignored.
    pub fn resident(&self, threads: u32, shared: u32) -> u32 {
        let by_threads = self.threads_per_multiprocessor / threads;
        by_threads.min(self.shared_per_multiprocessor / (shared + SYSTEM_SHARED))
    }

    /// Dynamic shared memory per CTA, in bytes, such that `resident` CTAs fit a multiprocessor. One KiB is left for
    /// barriers and small arrays.
    pub(super) fn shared_budget(&self, resident: u32) -> u32 {
        let share = (self.shared_per_multiprocessor / resident).saturating_sub(SYSTEM_SHARED);
        share.min(self.shared_per_cta).saturating_sub(1024)
    }
}

impl From<Target> for Gpu {
    /// [`Gpu::typical`].
    fn from(target: Target) -> Gpu {
        Gpu::typical(target)
    }
}
