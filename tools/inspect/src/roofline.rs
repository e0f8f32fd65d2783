//! Rooflines: bytes and operations of a kernel, and the least time a GPU needs for them.

use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::gemv::{Arithmetic, GemvShape};
use bespoke_kernels::spec::KernelSpec;
use serde::Serialize;

/// Peak rates of a GPU from its data sheet.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gpu {
    /// Name of the GPU.
    pub name: &'static str,
    /// Newest target that the GPU runs.
    pub target: Target,
    /// Memory bandwidth in bytes per second.
    pub bandwidth: f64,
    /// Dense 8-bit integer operations per second of the tensor cores.
    pub int8: f64,
    /// Dense f16 operations per second of the tensor cores, with f32 accumulation.
    pub f16: f64,
    /// f32 operations per second.
    pub f32: f64,
    /// Data sheet from which the rates are.
    pub source: &'static str,
}

impl Gpu {
    /// GPUs that the page offers. If a data sheet has only figures with sparsity, the rates here are half of those
    /// figures.
    pub const ALL: [Gpu; 7] = [
        gpu(
            "H100 SXM",
            Target::Sm90,
            [3350.0, 1979.0, 989.4, 66.9],
            "NVIDIA H100 Tensor Core GPU data sheet",
        ),
        gpu(
            "H200 SXM",
            Target::Sm90,
            [4800.0, 1979.0, 989.4, 66.9],
            "NVIDIA H200 Tensor Core GPU data sheet",
        ),
        gpu(
            "A100 80GB SXM",
            Target::Sm80,
            [2039.0, 624.0, 312.0, 19.5],
            "NVIDIA A100 Tensor Core GPU data sheet",
        ),
        gpu("L40S", Target::Sm89, [864.0, 733.0, 362.0, 91.6], "NVIDIA L40S GPU data sheet"),
        gpu(
            "RTX 4090",
            Target::Sm89,
            [1008.0, 660.6, 165.2, 82.6],
            "NVIDIA Ada GPU architecture, appendix A",
        ),
        gpu(
            "RTX 5090",
            Target::Sm120,
            [1792.0, 838.0, 209.5, 104.8],
            "NVIDIA RTX Blackwell GPU architecture, appendix A",
        ),
        gpu(
            "B200",
            Target::Sm100,
            [8000.0, 4500.0, 2250.0, 80.0],
            "NVIDIA Blackwell architecture technical brief, HGX B200",
        ),
    ];
}

/// Creates a GPU from bandwidth in GB/s, 8-bit integer TOPS, and f16 and f32 TFLOPS.
const fn gpu(
    name: &'static str,
    target: Target,
    [bandwidth, int8, f16, f32]: [f64; 4],
    source: &'static str,
) -> Gpu {
    Gpu {
        name,
        target,
        bandwidth: bandwidth * 1e9,
        int8: int8 * 1e12,
        f16: f16 * 1e12,
        f32: f32 * 1e12,
        source,
    }
}

/// Execution unit that computes most of a kernel; its peak rate is the kernel's compute roof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Tensor cores with 8-bit integers.
    Int8,
    /// Tensor cores with f16.
    F16,
    /// f32 arithmetic.
    F32,
}

/// Bytes and operations of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Bytes of device memory: every input and output once.
    pub bytes: u64,
    /// Multiplications and additions of the launch's matrix products by the formula; 0 without a matrix product.
    pub operations: u64,
    /// Execution unit of the operations.
    pub unit: Unit,
}

impl Work {
    /// Work of one launch with `length` positions in the cache.
    pub fn of(spec: &KernelSpec, length: u64) -> Work {
        let (operations, unit) = match spec {
            KernelSpec::Gemv(s) if s.arithmetic == Arithmetic::F16 => (product(s), Unit::F16),
            KernelSpec::Gemv(s) => {
                let quantised = s.segments.iter().all(|segment| segment.ty.is_quantised());
                (product(s), if quantised { Unit::Int8 } else { Unit::F32 })
            }
            KernelSpec::Gemm(s) => (product(&s.product), Unit::F16),
            // Scores, then the weighted sum of the values.
            KernelSpec::Attention(s) => {
                (4 * u64::from(s.tokens) * u64::from(s.heads) * u64::from(s.head_dim) * length, Unit::F16)
            }
            // Each row attends to the positions before it and to half of the step's.
            KernelSpec::AttentionChunk(s) => {
                let s = &s.attention;
                let positions = length + u64::from(s.tokens) / 2;
                (4 * u64::from(s.tokens) * u64::from(s.heads * s.head_dim) * positions, Unit::F16)
            }
            _ => (0, Unit::F32),
        };
        Work { bytes: spec.bytes(length), operations, unit }
    }

    /// Arithmetic intensity: operations per byte.
    pub fn intensity(&self) -> f64 {
        if self.bytes == 0 { 0.0 } else { self.operations as f64 / self.bytes as f64 }
    }

    /// Least time on `gpu` in seconds: the time for the bytes or for the operations, whichever is longer.
    pub fn seconds(&self, gpu: &Gpu) -> f64 {
        let peak = match self.unit {
            Unit::Int8 => gpu.int8,
            Unit::F16 => gpu.f16,
            Unit::F32 => gpu.f32,
        };
        (self.bytes as f64 / gpu.bandwidth).max(self.operations as f64 / peak)
    }
}

/// Multiplications and additions of a matrix product.
fn product(s: &GemvShape) -> u64 {
    let weights: u64 = s.segments.iter().map(|segment| u64::from(segment.rows) * u64::from(s.cols)).sum();
    2 * u64::from(s.tokens) * weights
}

#[cfg(test)]
mod tests {
    use bespoke_kernels::kernels::gemv::Segment;
    use bespoke_kernels::weights::WeightType;

    use super::*;

    #[test]
    fn the_roof_is_the_slope_or_the_flat_part() {
        let h200 = Gpu::ALL.iter().find(|gpu| gpu.name == "H200 SXM").unwrap();
        let work = |bytes, operations, unit| Work { bytes, operations, unit }.seconds(h200);
        assert_eq!(work(4_800_000, 0, Unit::F32), 1e-6);
        assert_eq!(work(4_800_000, 66_900_000, Unit::F32), 1e-6);
        assert_eq!(work(1, 1_979_000_000, Unit::Int8), 1e-6);
    }

    #[test]
    fn the_arithmetic_of_a_product_decides_its_unit() {
        let unit = |ty, arithmetic| {
            let product = GemvShape::new(256, vec![Segment { ty, rows: 16 }]);
            Work::of(&KernelSpec::Gemv(GemvShape { arithmetic, ..product }), 0).unit
        };
        assert_eq!(unit(WeightType::Q4_K, Arithmetic::Integers), Unit::Int8);
        assert_eq!(unit(WeightType::F16, Arithmetic::Integers), Unit::F32);
        assert_eq!(unit(WeightType::Q4_K, Arithmetic::F16), Unit::F16);
    }
}
