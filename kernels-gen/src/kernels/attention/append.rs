//! Append of the keys and values of all rows of a step to the cache, in a launch of its own.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::cache::{self, KvType};
use super::query;
use super::shape::{AttentionShape, CONSUMERS, Entry, NormSpan, PAGE, QkNorm, Rope};
use super::work::{CONSUMER_BARRIER, Operands, Token};
use crate::kernels::launching::{CopyEngine, Trigger};

/// Compile-time parameters of [`append()`]. Fields are as in [`AttentionShape`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppendShape {
    /// Number of rows of the step.
    pub tokens: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key heads, and of value heads.
    pub kv_heads: u32,
    /// Number of elements per head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// Rotation of keys.
    pub rope: Option<Rope>,
    /// RMSNorm of keys before the rotation.
    pub qk_norm: Option<QkNorm>,
    /// Element type of the cache.
    pub kv: KvType,
}

impl AppendShape {
    /// The append before an attention launch of this shape.
    pub fn of(attention: &AttentionShape) -> AppendShape {
        let &AttentionShape { tokens, heads, kv_heads, head_dim, rope, qk_norm, kv, .. } = attention;
        AppendShape { tokens, heads, kv_heads, head_dim, rope, qk_norm, kv }
    }

    /// Number of weights of the norm of keys; `None` without QK norms.
    pub fn norm_width(&self) -> Option<u32> {
        self.qk_norm.map(|norm| match norm.span {
            NormSpan::Head => self.head_dim,
            NormSpan::Projection => self.kv_heads * self.head_dim,
        })
    }

    /// The grid: key heads along x, rows along y.
    pub fn grid(&self) -> [u32; 3] {
        [self.kv_heads, self.tokens, 1]
    }

    /// Threads per CTA: as many as attention's consumers, so that sums have the same order.
    pub fn threads(&self) -> u32 {
        CONSUMERS
    }

    /// Dynamic shared memory, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.as_attention().shared_bytes()
    }

    /// Bytes of a row's keys and values in the cache.
    pub fn entry_bytes(&self) -> u64 {
        2 * u64::from(self.kv_heads) * u64::from(self.as_attention().position_bytes())
    }

    /// The shape of an attention kernel that appends and has no queries. Parameters of the queries and of the ring do not
    /// matter.
    pub(super) fn as_attention(&self) -> AttentionShape {
        AttentionShape {
            tokens: self.tokens,
            entry: Entry::Append,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            rope: self.rope,
            qk_norm: self.qk_norm,
            window: None,
            scale: 1.0,
            softcap: None,
            kv: self.kv,
            heads_per_block: 0,
            splits: 1,
            run_blocks: 1,
            min_pages: 1,
            stages: 0,
            stage_tiles: AttentionShape::PAGE_TILES,
            copy: CopyEngine::Async,
            trigger: Trigger::Never,
        }
    }
}

/// Appends the key and value of each row to the cache, with the arithmetic of [`super::attention()`]: the key is
/// normalised and rotated, and both are rounded. Rows that do not exist append nothing. A CTA has a key head of a row.
///
/// `qkv` f32 [rows, heads + 2·kv_heads, head_dim]: projected queries, keys and values; `k_norm`, `rope_table`, `keys`,
/// `values`, `page_table` and `state`: as in [`super::attention()`].
#[kernel(threads = CONSUMERS)]
pub fn append(
    qkv: Ptr<Global, f32>,
    #[present(s.qk_norm.is_some())] k_norm: Option<Ptr<Global, f32>>,
    #[present(s.rope.is_some())] rope_table: Option<Ptr<Global, f32>>,
    keys: Ptr<Global, u8>,
    values: Ptr<Global, u8>,
    page_table: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    s: &AppendShape,
) {
    let shape = &s.as_attention();
    let operands = Operands { qkv, q_norm: None, k_norm, rope_table, keys, values, page_table, state };
    let operands = operands.of_row(block_index_y(), shape);
    let token = Token::of_row(&operands, val(0u32), block_index());
    if token.active {
        let page = token.page(token.position / PAGE);
        let rotation = query::Rotation::new(&operands, &token, shape);
        query::prepare(&operands, &rotation, &token, shape);
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        cache::store_entry(page, &operands, &token, shape);
    }
}
