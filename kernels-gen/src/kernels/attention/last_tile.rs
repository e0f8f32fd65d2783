//! The staged tile of the token's position, before it is attended to.
//!
//! The copy of this tile in shared memory has the entries of earlier positions, and stale data from the token's position
//! on, which may be infinite or NaN. Attention gives positions after the token's the weight zero, and zero times NaN is
//! NaN. So the warp that attends to the tile writes the token's entry into it, and clears the values of later positions.
//! The scores of stale keys are replaced, so these keys may have any value.
//!
//! The tile is in the last stage that the CTA loads. No later copy overwrites it, so no proxy fence is needed.

use bespoke_codegen::prelude::*;

use super::cache::BLOCK_SCALES;
use super::entry::NewEntry;
use super::kv::{BIAS, KvType};
use super::shape::{AttentionShape, TILE};

/// Positions of a tile that keep their values, and the place of the new value, for a register with the values of two
/// consecutive positions.
struct Pair {
    /// Bits of the values before the new one.
    keep: Val<u32>,
    /// Factor that moves a 16-bit value to the place of the new one; 0 if that is in another register.
    insert: Val<u32>,
}

impl Pair {
    /// The register with positions `first` and `first + 1`, for a token at `position`. All are counted from the start of
    /// the tile.
    #[device]
    fn new(first: Val<u32>, position: Val<u32>) -> Pair {
        let kept = position - position.min(first);
        let keep = select(kept == 0, 0u32, select(kept == 1, 0xFFFFu32, u32::MAX));
        let is_here = (position >> 1) == (first >> 1);
        let insert = select(is_here, select(kept == 1, 0x1_0000u32, 1u32), 0u32);
        Pair { keep, insert }
    }

    /// The register with the new value at its position, and zeros at later positions.
    fn replace(&self, word: Val<u32>, value: Val<u32>) -> Val<u32> {
        (word & self.keep) + value * self.insert
    }
}

/// Writes the new key and value into the staged tile at `keys`, at `position` of the tile, and clears the values of later
/// positions. The tile's values start one part after its keys ([`AttentionShape::part_bytes`]). Called by the warp that
/// attends to the tile.
#[device]
pub(super) fn complete(keys: Ptr<Shared, u8>, position: Val<u32>, s: &AttentionShape) {
    let values = keys.byte_add(s.part_bytes());
    match s.kv {
        KvType::F16 => {
            complete_keys(keys, position, s);
            complete_values(values, position, s);
        }
        KvType::Q8_0 => {
            complete_key_bytes(keys, position, s);
            complete_value_bytes(values, position, s);
            complete_scales(
                keys.byte_add(s.element_bytes()),
                values.byte_add(s.element_bytes()),
                position,
                s,
            );
        }
    }
    warp_barrier(ALL_LANES);
}

/// Writes the new key of type f16: a lane writes a row of a core matrix, which has eight elements.
#[device]
fn complete_keys(keys: Ptr<Shared, u8>, position: Val<u32>, s: &AttentionShape) {
    let rows = s.head_dim / 8;
    for pass in 0..rows.div_ceil(WARP) {
        let row = lane() + pass * WARP;
        if row < rows {
            let from = NewEntry::new(s).halves(0, s).cast::<u32>().at(row * 4);
            let to = keys.byte_add((position >> 3) * s.half_tile_bytes() + (position & 7) * 16);
            to.byte_add(row * 128).cast::<u32>().store_vector(from.load_vector::<4>());
        }
    }
}

/// Writes the new value of type f16, and zeros at later positions: a lane writes rows of core matrices, which have an
/// element of eight positions.
#[device]
fn complete_values(values: Ptr<Shared, u8>, position: Val<u32>, s: &AttentionShape) {
    for half in 0..2u32 {
        let pairs: [Pair; 4] = std::array::from_fn(|i| Pair::new(val(half * 8 + 2 * i as u32), position));
        for pass in 0..s.head_dim.div_ceil(WARP) {
            let element = lane() + pass * WARP;
            if element < s.head_dim {
                let new = NewEntry::new(s).halves(1, s).cast::<u16>().at(element).load().cast::<u32>();
                let at = values.byte_add(half * s.half_tile_bytes()).byte_add(element * 16).cast::<u32>();
                let words = at.load_vector::<4>();
                at.store_vector::<4>(std::array::from_fn(|i| pairs[i].replace(words[i], new)));
            }
        }
    }
}

/// Writes the new key of type q8_0: lane 4g + t has the elements 2t, 2t+1, 2t+8 and 2t+9 of positions g and g + 8.
#[device]
fn complete_key_bytes(keys: Ptr<Shared, u8>, position: Val<u32>, s: &AttentionShape) {
    if (lane() >> 2) == (position & 7) {
        let from = NewEntry::new(s).bytes(0, s).cast::<u16>().at(lane() & 3);
        let to = keys.byte_add(lane() * 8 + (position >> 3) * 4).cast::<u32>();
        for step in 0..s.steps() {
            let pairs = [0u32, 4].map(|at| from.at(step * 8 + at).load().cast::<u32>());
            to.byte_add(step * 256).store(pairs[0] + (pairs[1] << 16));
        }
    }
}

/// Writes the new value of type q8_0, and the byte of zero at later positions. Lane 4g + t has the elements g and g + 8 of
/// positions 2t, 2t+1, 2t+8 and 2t+9.
#[device]
fn complete_value_bytes(values: Ptr<Shared, u8>, position: Val<u32>, s: &AttentionShape) {
    let first = (lane() & 3) * 2;
    let pairs = [Pair::new(first, position), Pair::new(first + 8, position)];
    // A register has both pairs: a byte for each position.
    let keep = permute_bytes(pairs[0].keep, pairs[1].keep, 0x6420u32);
    let zeros = !keep & (BIAS * 0x0101_0101);
    let insert = pairs[0].insert.min(0x100u32) + (pairs[1].insert.min(0x100u32) << 16);
    let zeros = zeros - insert * BIAS;
    let from = NewEntry::new(s).bytes(1, s).at(lane() >> 2);
    let at = values.byte_add(lane() * 8).cast::<u32>();
    for step in 0..s.steps() {
        let words = at.byte_add(step * 256).load_vector::<2>();
        let replaced = [(0, 0u32), (1, 8)].map(|(i, half): (usize, u32)| {
            (words[i] & keep) + zeros + from.at(step * 16 + half).load().cast::<u32>() * insert
        });
        at.byte_add(step * 256).store_vector::<2>(replaced);
    }
}

/// Writes the scales of the new key and value, and zeros as scales of the values of later positions.
#[device]
fn complete_scales(keys: Ptr<Shared, u8>, values: Ptr<Shared, u8>, position: Val<u32>, s: &AttentionShape) {
    let entry = NewEntry::new(s);
    if lane() < s.scales() {
        let scale = entry.scales(0, s).at(lane()).load();
        let to = keys.cast::<f16>().at(lane() * TILE + ((position & 7) * 2 + (position >> 3)));
        to.store(scale);
    }
    // Words of two positions: for each block in the order of positions 0, 8, 2, 10, …
    let words = s.scales() * (BLOCK_SCALES / 4);
    for pass in 0..words.div_ceil(WARP) {
        let index = lane() + pass * WARP;
        if index < words {
            let (block, word) = (index / (BLOCK_SCALES / 4), index % (BLOCK_SCALES / 4));
            let pair = Pair::new((word >> 1) * 2 + (word & 1) * 8, position);
            let new = entry.scales(1, s).cast::<u16>().at(block).load().cast::<u32>();
            let at = values.cast::<u32>().at(index);
            at.store(pair.replace(at.load(), new));
        }
    }
}
