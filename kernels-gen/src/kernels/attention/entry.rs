//! The new key and value of the current position as an entry of the cache: in shared memory, rounded, and its append.

use bespoke_codegen::prelude::*;

use super::cache::{key_index, scale_indices, tile_index, value_index};
use super::heads::head;
use super::kv::{BIAS, BLOCK, KvType};
use super::shape::{AttentionShape, CONSUMERS, TILE, WARPS};
use super::work::{Operands, Run, Token};

/// Whether this CTA appends the new key and value to the cache: among the CTAs that have this key head and the last run
/// of pages, the one with the first query heads.
#[device]
fn appends(token: &Token, run: &Run, s: &AttentionShape) -> Val<bool> {
    if s.appended { val(false) } else { run.last && token.first_head % s.group() == 0 }
}

/// The new key and value as they are in the cache, in shared memory: elements `[key and value][head_dim]`, then f16
/// scales `[key and value][blocks]`.
#[derive(Clone, Copy)]
pub(super) struct NewEntry {
    elements: Ptr<Shared, u8>,
    scales: Ptr<Shared, f16>,
}

impl NewEntry {
    pub fn new(s: &AttentionShape) -> NewEntry {
        let elements = dynamic_shared::<u8>().byte_add(s.shared_map().entry);
        NewEntry { elements, scales: elements.byte_add(2 * s.head_dim * s.kv.element_bytes()).cast() }
    }

    /// Elements of type f16 of the key (0) or the value (1).
    pub fn halves(self, row: u32, s: &AttentionShape) -> Ptr<Shared, f16> {
        self.elements.cast::<f16>().at(row * s.head_dim)
    }

    /// Elements of type q8_0 of the key (0) or the value (1).
    pub fn bytes(self, row: u32, s: &AttentionShape) -> Ptr<Shared, u8> {
        self.elements.at(row * s.head_dim)
    }

    /// Scales of the key (0) or the value (1).
    pub fn scales(self, row: u32, s: &AttentionShape) -> Ptr<Shared, f16> {
        self.scales.at(row * s.scales())
    }
}

/// Rounds the current key and value, which are in shared memory as f32, as in a cache of type q8_0. A warp rounds a
/// block at a time.
#[device]
pub(super) fn quantise(s: &AttentionShape) {
    let entry = NewEntry::new(s);
    for first in (0..2 * s.scales()).step_by(WARPS as usize) {
        let index = warp_index() + first;
        if index < 2 * s.scales() {
            let (row, element) = (index / s.scales(), index % s.scales() * BLOCK + lane());
            let at = head(row + s.heads_per_block, s).at(element);
            let mut x = val(0.0f32);
            if element < s.head_dim {
                x = at.load();
            }
            let scale = warp_max(x.abs()) / 127.0;
            // The bound keeps the reciprocal of a scale of zero finite.
            let integer = (x * scale.max(1e-30).rcp()).cast_rounded::<i32>(Rounding::Nearest);
            if element < s.head_dim {
                let byte = integer + BIAS as i32;
                entry.elements.at(row * s.head_dim + element).store(byte.cast::<u8>());
            }
            if lane() == 0 {
                entry.scales.at(index).store(scale.cast::<f16>());
            }
        }
    }
}

/// In the CTA that appends: writes the new key and value to physical page `page` of the cache. The CTA's copies from the
/// cache must have completed, because they read whole tiles, including the entry of the current position.
#[device]
pub(super) fn append(page: Val<u32>, operands: &Operands, token: &Token, run: &Run, s: &AttentionShape) {
    if appends(token, run, s) {
        store_entry(page, operands, token, s);
    }
}

/// Writes the new key and value, which are in shared memory, to physical page `page` of the cache.
#[device]
pub(super) fn store_entry(page: Val<u32>, operands: &Operands, token: &Token, s: &AttentionShape) {
    for pass in 0..s.head_dim.div_ceil(CONSUMERS) {
        let element = thread_index() + pass * CONSUMERS;
        if element < s.head_dim {
            append_element(element, page, operands, token, s);
        }
    }
    if s.scales() > 0 {
        if thread_index() < s.scales() {
            let entry = NewEntry::new(s);
            let indices = scale_indices(token);
            for (row, cache) in [operands.keys, operands.values].into_iter().enumerate() {
                let scale = entry.scales(row as u32, s).at(thread_index()).load();
                let scales = cache.at(tile_index(page, token, s)).byte_add(s.element_bytes()).cast::<f16>();
                scales.at(thread_index() * TILE + indices[row]).store(scale);
            }
        }
    }
}

/// Writes one element of the current key and value to the cache.
fn append_element(element: Val<u32>, page: Val<u32>, operands: &Operands, token: &Token, s: &AttentionShape) {
    let entry = NewEntry::new(s);
    match s.kv {
        KvType::F16 => {
            let [key, value] = [0, 1].map(|row| entry.halves(row, s).at(element).load());
            let (keys, values) = (operands.keys.cast::<f16>(), operands.values.cast::<f16>());
            keys.at(key_index(element, page, token, s)).store(key);
            values.at(value_index(element, page, token, s)).store(value);
        }
        KvType::Q8_0 => {
            let [key, value] = [0, 1].map(|row| entry.bytes(row, s).at(element).load());
            operands.keys.at(key_index(element, page, token, s)).store(key);
            operands.values.at(value_index(element, page, token, s)).store(value);
        }
    }
}
