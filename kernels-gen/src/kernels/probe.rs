//! A plain read of device memory. Its bandwidth is the ceiling that decoding is compared with.

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
