//! The new key and value into the cache.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::state;

/// The append's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KvAppendShape {
    /// Elements of a key (and of a value) of one position: kv heads × head dimension; even.
    pub width: u32,
    /// Threads a CTA; the grid covers a key once.
    pub threads: u32,
}

impl KvAppendShape {
    /// CTAs.
    pub fn grid(&self) -> u32 {
        (self.width / 2).div_ceil(self.threads)
    }
}

/// keys[position, i] = f16(k[i]), values[position, i] = f16(v[i]), rounded to nearest even.
///
/// `k` and `v` f32 [width], `keys` and `values` f16 [context, width]: one layer's cache.
#[kernel(threads = s.threads)]
pub fn kv_append(
    k: Ptr<Global, f32>,
    v: Ptr<Global, f32>,
    keys: Ptr<Global, f16>,
    values: Ptr<Global, f16>,
    state: Ptr<Global, u32>,
    s: &KvAppendShape,
) {
    let pair = block_index() * s.threads + thread_index();
    if pair < s.width / 2 {
        let row = state::position(state);
        for (from, cache) in [(k, keys), (v, values)] {
            let [low, high] = from.at(pair * 2).load_vector::<2>();
            let packed = pack_half2(low.cast(), high.cast());
            cache.bytes(mul_wide(row, s.width * 2)).cast::<F16x2>().at(pair).store(packed);
        }
    }
}
