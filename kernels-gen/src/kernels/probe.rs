//! Kernels that measure a GPU's ceilings: the bandwidth of a plain read of device memory, with which decoding is compared,
//! and the throughput of tensor cores, with which steps of many rows are compared.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// Compile-time parameters of the probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProbeShape {
    /// Number of CTAs.
    pub grid: u32,
    /// Threads per CTA.
    pub threads: u32,
}

impl Default for ProbeShape {
    /// Eight CTAs for each of the 132 multiprocessors of an H200, which is enough for any smaller GPU.
    fn default() -> ProbeShape {
        ProbeShape { grid: 1056, threads: 512 }
    }
}

/// Reads `units` × 16 bytes of `data` once, with the whole grid. To keep the loads alive, a thread writes the XOR of
/// the words that it loaded to `out` if the XOR equals a magic number.
///
/// `data` u32 [4 · units], `out` u32 [1].
#[kernel(threads = s.threads)]
pub fn read_probe(data: Ptr<Global, u32>, units: Val<u32>, out: Ptr<Global, u32>, s: &ProbeShape) {
    let stride = s.grid * s.threads;
    let mut unit = block_index() * s.threads + thread_index();
    let mut mixed = val(0u32);
    // Four loads in flight per thread.
    while unit < units {
        let mut parts = Vec::new();
        for k in 0..4u32 {
            let at = unit + k * stride;
            let at = select(at < units, at, unit);
            parts.extend(data.at(at * 4).load_vector_cached::<4>(Cache::Streaming));
        }
        for part in parts {
            mixed ^= part;
        }
        unit += 4 * stride;
    }
    if mixed == 0x5EED_1E55u32 {
        out.store(mixed);
    }
}

/// Compile-time parameters of [`mma_probe`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MmaProbeShape {
    /// Number of CTAs.
    pub grid: u32,
    /// Threads per CTA.
    pub threads: u32,
}

impl Default for MmaProbeShape {
    /// The shape for the 132 multiprocessors of an H200.
    fn default() -> MmaProbeShape {
        MmaProbeShape::filling(132)
    }
}

impl MmaProbeShape {
    /// Operands A and B of a warp. Each A is multiplied by each B into a sum of its own, so that a warp always has several
    /// independent products in flight.
    pub const OPERANDS: [u32; 2] = [2, 4];
    /// Words of operands of a lane: four for each A, then two for each B.
    pub const LANE_WORDS: u32 = 4 * MmaProbeShape::OPERANDS[0] + 2 * MmaProbeShape::OPERANDS[1];
    /// Products of each A with each B in a round.
    pub const REPEATS: u32 = 4;

    /// Two CTAs of eight warps for each of `multiprocessors` multiprocessors.
    pub fn filling(multiprocessors: u32) -> MmaProbeShape {
        MmaProbeShape { grid: 2 * multiprocessors, threads: 256 }
    }

    /// Floating-point operations of all warps in a launch of `rounds` rounds: a multiplication and an addition for each of
    /// the 16 × 8 × 16 terms of a product.
    pub fn operations(&self, rounds: u32) -> u64 {
        let [a, b] = MmaProbeShape::OPERANDS.map(u64::from);
        let products = u64::from(MmaProbeShape::REPEATS) * a * b;
        let warps = u64::from(self.grid * self.threads / 32);
        warps * u64::from(rounds) * products * (2 * 16 * 8 * 16)
    }
}

/// Multiplies f16 fragments that stay in registers: `rounds` times, each A with each B, [`MmaProbeShape::REPEATS`] times. To
/// keep the products alive, a thread writes the sum of its sums to `out`.
///
/// `operands` u32 [32 · [`MmaProbeShape::LANE_WORDS`]], the words of each lane in turn; `out` f32 [grid · threads].
#[kernel(threads = s.threads)]
pub fn mma_probe(operands: Ptr<Global, u32>, rounds: Val<u32>, out: Ptr<Global, f32>, s: &MmaProbeShape) {
    let [count_a, count_b] = MmaProbeShape::OPERANDS;
    let words = operands.at(lane() * MmaProbeShape::LANE_WORDS);
    let mut a = Vec::new();
    for i in 0..count_a {
        a.push(FragmentA::<f16, 4>::from_registers(words.at(4 * i).load_vector::<4>()));
    }
    let mut b = Vec::new();
    for i in 0..count_b {
        b.push(FragmentB::<f16, 2>::from_registers(words.at(4 * count_a + 2 * i).load_vector::<2>()));
    }
    let mut sums = vec![FragmentC::<f32>::zero(); (count_a * count_b) as usize];
    let mut round = val(0u32);
    while round < rounds {
        for _ in 0..MmaProbeShape::REPEATS {
            for i in 0..count_a {
                for j in 0..count_b {
                    let sum = &mut sums[(i * count_b + j) as usize];
                    *sum = mma(a[i as usize], b[j as usize], *sum);
                }
            }
        }
        round += 1;
    }
    let mut total = val(0.0f32);
    for sum in sums {
        for part in sum.0 {
            total += part;
        }
    }
    out.at(block_index() * s.threads + thread_index()).store(total);
}
