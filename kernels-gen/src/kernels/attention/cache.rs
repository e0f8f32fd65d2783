//! The KV cache: its layout, and the fragments of a tile.
//!
//! Keys and values are in pools of physical pages of 64 positions: [physical page][key head][tile of 16 positions].
//!
//! | type | element | order of a tile | after the elements of a tile |
//! | --- | --- | --- | --- |
//! | f16 | f16 | core matrices | |
//! | q8_0 | byte q + 128 | fragments | f16 [blocks of 32 elements][16 positions]: scales d |
//!
//! *Core matrices* are those of `wgmma` and `ldmatrix`, eight by eight elements. A tile of keys is
//! `[half of the positions][eight elements][position][element]`, a tile of values
//! `[half of the positions][eight elements][element][position]`. The distance between the halves is the same within a tile
//! and from tile to tile, so that the tiles of a page are one operand of `wgmma`.
//!
//! *Fragments* are the B fragments of `mma.m16n8k16` (PTX ISA, "Matrix Fragments for mma.m16n8k16"), eight elements per
//! lane for every 16 elements of the head dimension. Of a tile of keys, lane 4g + t has elements 2t, 2t+1, 2t+8 and 2t+9
//! of positions g and g+8; of a tile of values, elements g and g+8 of positions 2t, 2t+1, 2t+8 and 2t+9.
//!
//! A block is 32 consecutive elements of a head at one position; the last block has 16 if the head dimension is no
//! multiple of 32. An element of type q8_0 is f16(d·q) with the scale and the integers of GGML's Q8_0: d = max|x| / 127,
//! stored as f16, and q = x / d, rounded to the nearest integer. The scales of keys are in the order of positions 0, 8,
//! 1, 9, …; those of values in the order of positions 0, 1, 8, 9, 2, 3, 10, 11, …: one word per g, and two per t.
//!
//! Tiles are loaded whole, with the stale entries of earlier sequences after the end of the sequence. `last_tile` clears
//! these in shared memory, so that the contents of a page before its first append do not matter.

use std::cell::Cell;

use bespoke_codegen::prelude::*;
use half::f16;

use super::kv::{BIAS, BLOCK, KvType};
use super::shape::{AttentionShape, PAGE, TILE, WARPS};
use super::work::Token;

/// Layout of the cache.
impl AttentionShape {
    /// Scales of a position of keys (or values) of one key head.
    pub fn scales(&self) -> u32 {
        match self.kv {
            KvType::F16 => 0,
            KvType::Q8_0 => self.head_dim.div_ceil(BLOCK),
        }
    }

    /// Bytes of one position of keys (or values) of one key head.
    pub fn position_bytes(&self) -> u32 {
        self.head_dim * self.kv.element_bytes() + self.scales() * 2
    }

    /// Bytes of a tile of keys (or values) of one key head.
    pub fn tile_bytes(&self) -> u32 {
        TILE * self.position_bytes()
    }

    /// Bytes of the elements of a tile, after which its scales begin.
    pub(super) fn element_bytes(&self) -> u32 {
        TILE * self.head_dim * self.kv.element_bytes()
    }

    /// Bytes of the keys (or values) of one key head in a page.
    pub fn page_bytes(&self) -> u32 {
        WARPS * self.tile_bytes()
    }

    /// Bytes of the cache of keys (or values) for `positions` positions, rounded up to whole pages.
    pub fn cache_bytes(&self, positions: u32) -> u64 {
        u64::from(positions.div_ceil(PAGE)) * u64::from(self.kv_heads) * u64::from(self.page_bytes())
    }

    /// Bytes of keys and values that attention reads if `positions` positions are in the cache.
    pub fn read_bytes(&self, positions: u64) -> u64 {
        let positions = self.window.map_or(positions, |window| positions.min(u64::from(window.max(1) - 1)));
        2 * positions * u64::from(self.kv_heads) * u64::from(self.position_bytes())
    }

    /// Bytes from the core matrices of the first 8 positions of a tile of type f16 to those of the others, and from these to the
    /// next tile.
    pub(super) fn half_tile_bytes(&self) -> u32 {
        self.head_dim * 16
    }

    /// Offset in the cache of keys of element `element` of key head `head` at `position`, in bytes.
    pub fn key_offset(&self, position: u32, head: u32, element: u32) -> u64 {
        let within = match self.kv {
            KvType::F16 => self.core_matrix(position, element) * 64 + position % 8 * 8 + element % 8,
            KvType::Q8_0 => {
                let (group, quarter) = (position % 8, element % 8 / 2);
                element / 16 * 256
                    + (group * 4 + quarter) * 8
                    + position / 8 % 2 * 4
                    + element / 8 % 2 * 2
                    + element % 2
            }
        };
        self.tile_offset(position, head) + u64::from(within * self.kv.element_bytes())
    }

    /// Index in its tile of the core matrix that has an element of a position.
    fn core_matrix(&self, position: u32, element: u32) -> u32 {
        position / 8 % 2 * (self.head_dim / 8) + element / 8
    }

    /// Offset in the cache of values of element `element` of value head `head` at `position`, in bytes.
    pub fn value_offset(&self, position: u32, head: u32, element: u32) -> u64 {
        let within = match self.kv {
            KvType::F16 => self.core_matrix(position, element) * 64 + element % 8 * 8 + position % 8,
            KvType::Q8_0 => {
                let (group, quarter) = (element % 8, position % 8 / 2);
                element / 16 * 256
                    + (group * 4 + quarter) * 8
                    + element / 8 % 2 * 4
                    + position / 8 % 2 * 2
                    + position % 2
            }
        };
        self.tile_offset(position, head) + u64::from(within * self.kv.element_bytes())
    }

    /// Offset in the cache of keys of the scale of block `block` of key head `head` at `position`, in bytes.
    pub fn key_scale_offset(&self, position: u32, head: u32, block: u32) -> u64 {
        let within = block * TILE + position % 8 * 2 + position / 8 % 2;
        self.tile_offset(position, head) + u64::from(self.element_bytes() + within * 2)
    }

    /// Offset in the cache of values of the scale of block `block` of value head `head` at `position`, in bytes.
    pub fn value_scale_offset(&self, position: u32, head: u32, block: u32) -> u64 {
        let within = block * TILE + position % 8 / 2 * 4 + position / 8 % 2 * 2 + position % 2;
        self.tile_offset(position, head) + u64::from(self.element_bytes() + within * 2)
    }

    fn tile_offset(&self, position: u32, head: u32) -> u64 {
        let page = u64::from(position / PAGE) * u64::from(self.kv_heads) + u64::from(head);
        (page * u64::from(WARPS) + u64::from(position % PAGE / TILE)) * u64::from(self.tile_bytes())
    }
}

/// Offset in the cache of the current position's tile, in units of an element. `page` is the physical page.
pub(super) fn tile_index(page: Val<u32>, token: &Token, s: &AttentionShape) -> Val<u64> {
    let page = page * s.kv_heads + token.kv_head;
    mul_wide(page * WARPS + token.position % PAGE / TILE, s.tile_bytes() / s.kv.element_bytes())
}

/// Device version of [`AttentionShape::core_matrix`].
fn core_matrix(element: Val<u32>, position: Val<u32>, s: &AttentionShape) -> Val<u32> {
    ((position >> 3) & 1) * (s.head_dim / 8) + (element >> 3)
}

/// Device version of [`AttentionShape::key_offset`] for element `element` of the CTA's key head at the current
/// position, in units of an element.
pub(super) fn key_index(element: Val<u32>, page: Val<u32>, token: &Token, s: &AttentionShape) -> Val<u64> {
    let position = token.position;
    let within = match s.kv {
        KvType::F16 => core_matrix(element, position, s) * 64 + (position & 7) * 8 + (element & 7),
        KvType::Q8_0 => {
            (element >> 4) * 256
                + ((position & 7) * 4 + ((element >> 1) & 3)) * 8
                + ((position >> 3) & 1) * 4
                + ((element >> 3) & 1) * 2
                + (element & 1)
        }
    };
    tile_index(page, token, s) + within.cast::<u64>()
}

/// Device version of [`AttentionShape::value_offset`] for element `element` of the CTA's value head at the current
/// position, in units of an element.
pub(super) fn value_index(element: Val<u32>, page: Val<u32>, token: &Token, s: &AttentionShape) -> Val<u64> {
    let position = token.position;
    let within = match s.kv {
        KvType::F16 => core_matrix(element, position, s) * 64 + (element & 7) * 8 + (position & 7),
        KvType::Q8_0 => {
            (element >> 4) * 256
                + ((element & 7) * 4 + ((position >> 1) & 3)) * 8
                + ((element >> 3) & 1) * 4
                + ((position >> 3) & 1) * 2
                + (position & 1)
        }
    };
    tile_index(page, token, s) + within.cast::<u64>()
}

/// Indices of the current position's key scale and value scale among the scales of a block.
pub(super) fn scale_indices(token: &Token) -> [Val<u32>; 2] {
    let position = token.position;
    let half = (position >> 3) & 1;
    [(position & 7) * 2 + half, ((position >> 1) & 3) * 4 + half * 2 + (position & 1)]
}

/// A tile of keys or values in shared memory, as this lane reads it.
pub(super) struct TileReader {
    /// The tile, or of type q8_0 the lane's first fragments.
    at: Ptr<Shared, u8>,
    /// The lane's scales of the first block, if the type has scales.
    scales: Option<Ptr<Shared, u8>>,
    /// Bytes from a core matrix of a tile of type f16 to the next, along the positions.
    half_tile_bytes: u32,
    /// Whether the tile has keys.
    of_keys: bool,
    /// The lane's scales of the block that was read last: pairs for the first and the second register of a fragment,
    /// for the first and the second fragment of a step.
    block: Cell<Option<[[Val<F16x2>; 2]; 2]>>,
}

/// Bytes of the scales of a tile, per block.
pub(super) const BLOCK_SCALES: u32 = TILE * 2;

impl TileReader {
    /// Reader of the tile of keys at `at`.
    pub fn of_keys(at: Ptr<Shared, u8>, s: &AttentionShape) -> TileReader {
        let fragments = if s.kv == KvType::Q8_0 { at.byte_add(lane() * 8) } else { at };
        let scales = (s.scales() > 0).then(|| at.byte_add(lane() / 4 * 4).byte_add(s.element_bytes()));
        let half_tile_bytes = s.half_tile_bytes();
        TileReader { at: fragments, scales, half_tile_bytes, of_keys: true, block: Cell::new(None) }
    }

    /// Reader of the tile of values that belongs to a tile of keys; `at` is the address of the tile of keys.
    pub fn of_values(&self, at: Ptr<Shared, u8>, s: &AttentionShape) -> TileReader {
        let scales = (s.scales() > 0)
            .then(|| at.byte_add(lane() % 4 * 8).byte_add(s.part_bytes() + s.element_bytes()));
        let values = self.at.byte_add(s.part_bytes());
        TileReader { at: values, scales, of_keys: false, block: Cell::new(None), ..*self }
    }

    /// The lane's two B fragments for 16 elements of the head dimension: of keys for positions 0 to 7 and 8 to 15, of
    /// values for elements 0 to 7 and 8 to 15. Steps must be read in order.
    pub fn fragments(&self, step: u32) -> [FragmentB<f16, 2>; 2] {
        match self.scales {
            None => {
                let at = self.at.byte_add(step * 256).cast::<f16>();
                let (along_k, along_columns) =
                    if self.of_keys { (128, self.half_tile_bytes) } else { (self.half_tile_bytes, 128) };
                FragmentB::load_core_matrices(at, along_k, along_columns)
            }
            Some(scales) => {
                let words = self.at.byte_add(step * 256).cast::<u32>().load_vector::<2>();
                let (block, first) = (step * 16 / BLOCK, (step * 16).is_multiple_of(BLOCK));
                let loaded = match self.block.get() {
                    Some(loaded) if !first => loaded,
                    _ => load_scales(scales.byte_add(block * BLOCK_SCALES), self.of_keys),
                };
                self.block.set(Some(loaded));
                std::array::from_fn(|half| dequantise(words[half], loaded[half]))
            }
        }
    }
}

/// Loads the lane's scales of a block.
fn load_scales(at: Ptr<Shared, u8>, of_keys: bool) -> [[Val<F16x2>; 2]; 2] {
    if of_keys {
        // Positions g and g + 8: one for each fragment.
        let word = at.cast::<u32>().load();
        [0x1010u32, 0x3232].map(|twice| [permute_bytes(word, word, twice).bitcast(); 2])
    } else {
        // Positions 2t, 2t + 1, 2t + 8 and 2t + 9: the same for both fragments.
        [at.cast::<u32>().load_vector::<2>().map(|word| word.bitcast()); 2]
    }
}

/// Converts four bytes q + 128 to a B fragment of f16(d·q).
fn dequantise(word: Val<u32>, scales: [Val<F16x2>; 2]) -> FragmentB<f16, 2> {
    // The f16 with the bits 0x6400 + byte is 1024 + byte.
    const EXPONENT: u32 = 0x6400_6400;
    let offset = f16::from_f32((1024 + BIAS) as f32);
    let pairs = [(0x7150u32, scales[0]), (0x7352, scales[1])].map(|(bytes, scale)| {
        let pair = permute_bytes(word, EXPONENT, bytes).bitcast::<F16x2>();
        ((pair - F16x2(offset, offset)) * scale).bitcast()
    });
    FragmentB::from_registers(pairs)
}
