//! Append of the keys and values of all rows of a step to the cache, and preparation of their queries, in a launch of its
//! own.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::chunk::ROW_GROUP;
use super::kv::KvType;
use super::shape::{AttentionShape, CONSUMERS, PAGE, QkNorm, Rope};
use super::work::{CONSUMER_BARRIER, Operands, Token};
use super::{entry, heads, query};
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::kernels::state;

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
    /// Query heads per CTA: divides heads / kv_heads.
    pub heads_per_block: u32,
    /// Rotation of queries and keys.
    pub rope: Option<Rope>,
    /// RMSNorm of queries and keys before the rotation.
    pub qk_norm: Option<QkNorm>,
    /// Factor of the scores, which is multiplied into the queries.
    pub scale: f32,
    /// Bound of the scores, which enters the factor of the queries as well.
    pub softcap: Option<f32>,
    /// Element type of the cache.
    pub kv: KvType,
    /// Whether the launch writes the queries for [`super::attention_chunk()`].
    pub writes_queries: bool,
}

impl AppendShape {
    /// The append before an attention launch of this shape; with `writes_queries` before [`super::attention_chunk()`].
    pub fn of(attention: &AttentionShape, writes_queries: bool) -> AppendShape {
        let &AttentionShape { tokens, heads, kv_heads, head_dim, heads_per_block, .. } = attention;
        let &AttentionShape { rope, qk_norm, scale, softcap, kv, .. } = attention;
        AppendShape {
            tokens,
            heads,
            kv_heads,
            head_dim,
            heads_per_block,
            rope,
            qk_norm,
            scale,
            softcap,
            kv,
            writes_queries,
        }
    }

    /// Numbers of weights of the norms of queries and keys; `None` without QK norms.
    pub fn norm_widths(&self) -> Option<[u32; 2]> {
        self.as_attention().norm_widths()
    }

    /// The grid: blocks of query heads along x, rows along y.
    pub fn grid(&self) -> [u32; 3] {
        [self.heads / self.heads_per_block, self.tokens, 1]
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

    /// Size of the queries in bytes; 0 if the launch does not write them.
    pub fn query_bytes(&self) -> u64 {
        if self.writes_queries { super::chunk::query_bytes(&self.as_attention()) } else { 0 }
    }

    /// Attention shape for the functions that both kernels share (`query`, `norm`, `entry`). It has no stages: shared memory has no
    /// ring, and all heads have a row of f32.
    pub(super) fn as_attention(&self) -> AttentionShape {
        AttentionShape {
            tokens: self.tokens,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            rope: self.rope,
            qk_norm: self.qk_norm,
            window: None,
            scale: self.scale,
            softcap: self.softcap,
            kv: self.kv,
            heads_per_block: self.heads_per_block,
            splits: 1,
            run_blocks: 1,
            at_once: None,
            min_pages: 1,
            stages: 0,
            stage_tiles: AttentionShape::PAGE_TILES,
            copy: CopyEngine::Async,
            trigger: Trigger::Never,
            appended: true,
            output_layout: None,
        }
    }
}

/// Appends the key and value of each row to the cache, with the arithmetic of [`super::attention()`]: the key is
/// normalised and rotated, and both are rounded. If the shape says so, it writes the queries, normalised, rotated and scaled,
/// as f16. Rows that do not exist append nothing, and have queries of zero. A CTA has some query heads of a row, and their key head.
///
/// `qkv` f32 [rows, heads + 2·kv_heads, head_dim]: projected queries, keys and values; `q_norm`, `k_norm`, `rope_table`,
/// `keys`, `values`, `page_table` and `state`: as in [`super::attention()`]. `queries` has
/// [`AppendShape::query_bytes`] bytes: f16 `[group of 16 rows][head][16 elements][lane][8]`, the A fragments of
/// `mma.m16n8k16`.
#[kernel(threads = CONSUMERS)]
pub fn append(
    qkv: Ptr<Global, f32>,
    #[present(s.qk_norm.is_some())] q_norm: Option<Ptr<Global, f32>>,
    #[present(s.qk_norm.is_some())] k_norm: Option<Ptr<Global, f32>>,
    #[present(s.rope.is_some())] rope_table: Option<Ptr<Global, f32>>,
    #[present(s.writes_queries)] queries: Option<Ptr<Global, u8>>,
    keys: Ptr<Global, u8>,
    values: Ptr<Global, u8>,
    page_table: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    s: &AppendShape,
) {
    let shape = &s.as_attention();
    let operands = Operands { qkv, q_norm, k_norm, rope_table, keys, values, page_table };
    let row = block_index_y();
    let operands = operands.of_row(row, shape);
    let first_head = block_index() * s.heads_per_block;
    let token = Token::of_record(state::record(state, row, s.tokens), page_table, first_head, shape);
    let appends = first_head % shape.group() == 0;
    let works = if s.writes_queries { token.exists } else { token.exists && appends };
    if works {
        let page = token.page(token.position / PAGE);
        let rotation = query::Rotation::new(&operands, &token, shape);
        query::prepare(&operands, &rotation, &token, shape, |head, element, value| {
            heads::head(head, shape).at(element).store(value);
        });
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        if let Some(queries) = queries {
            store_queries(queries, true, shape);
        }
        if appends {
            entry::store_entry(page, &operands, &token, shape);
        }
    } else if let Some(queries) = queries {
        store_queries(queries, false, shape);
    }
}

/// Writes the queries of this CTA's row, which are in shared memory, in the order of fragments; zeros for a row that does not
/// exist.
#[device]
fn store_queries(queries: Ptr<Global, u8>, exists: bool, s: &AttentionShape) {
    let pairs = s.heads_per_block * (s.head_dim / 2);
    let (row, first_head) = (block_index_y(), block_index() * s.heads_per_block);
    let of_rows = queries.byte_add(mul_wide(row / ROW_GROUP * s.heads + first_head, s.steps() * 512));
    let within = row % ROW_GROUP;
    for pass in 0..pairs.div_ceil(CONSUMERS) {
        let index = thread_index() + pass * CONSUMERS;
        if index < pairs {
            let (head, element) = (index / (s.head_dim / 2), index % (s.head_dim / 2) * 2);
            let word = if exists {
                let [first, second] = heads::head(head, s).at(element).load_vector::<2>();
                pack_rounded::<F16x2>(first, second).bitcast::<u32>()
            } else {
                val(0u32)
            };
            // Lane 4g + t has elements 2t and 2t + 1 of rows g and g + 8, then elements 2t + 8 and 2t + 9.
            let lane = within % 8 * 4 + element % 8 / 2;
            let register = element / 8 % 2 * 2 + within / 8;
            let at = of_rows.byte_add((head * s.steps() + element / 16) * 512 + lane * 16 + register * 4);
            at.cast::<u32>().store(word);
        }
    }
}
