//! Producer warps: stream the weights, and the prepared inputs, through rings in shared memory.

use bespoke_codegen::prelude::*;

use super::inputs::GRANULE;
use super::{Rings, warpgroup};
use crate::kernels::gemv::operands::Operands;
use crate::kernels::gemv::ring::RingProducer;
use crate::kernels::gemv::shape::GemvShape;
use crate::weights::Layout;

/// Producer warp of the weights.
#[device]
pub(in crate::kernels::gemv) fn load_weights(
    operands: &Operands,
    rings: Rings,
    tiles: &[[Val<u32>; 2]],
    s: &GemvShape,
) {
    let (layouts, offsets) = (s.layouts(), s.offsets());
    let mut producer = RingProducer::new(rings.weights);
    for batch in s.batches() {
        let [mut first, end] = tiles[batch[0]];
        while first < end {
            let last = (first + s.schedule.several.tiles).min(end);
            let [mut slice, slices] = s.cta_slices();
            while slice < slices {
                for run in s.runs(&batch) {
                    let offsets: Vec<u64> = run.iter().map(|&segment| offsets.segments[segment]).collect();
                    let (layout, tiles) = (&layouts[run[0]], [first, last]);
                    if s.has_warpgroups() {
                        let weights = operands.w;
                        warpgroup::stream_slice(weights, &offsets, layout, tiles, slice, &mut producer, s);
                    } else {
                        let weights = operands.w.byte_add(offsets[0]);
                        stream_slice(weights, layout, tiles, slice, &mut producer, s);
                    }
                }
                slice += 1;
            }
            first = last;
        }
    }
    s.schedule.trigger.after_loads();
}

/// Number of units of a tile in slice `slice`.
pub(super) fn units_in(slice: Val<u32>, layout: &Layout, s: &GemvShape) -> Val<u32> {
    let (units, most) = (s.units(layout), s.slice_units(layout));
    if units % most == 0 && units / most == s.slices() {
        return val(most);
    }
    let before = slice * most;
    (before.max(units) - before).min(most)
}

/// Streams a slice of the columns of some tiles of a segment.
#[device]
fn stream_slice(
    weights: Ptr<Global, u8>,
    layout: &Layout,
    tiles: [Val<u32>; 2],
    slice: Val<u32>,
    producer: &mut RingProducer,
    s: &GemvShape,
) {
    let unit_bytes = s.depth() * layout.ty.block_bytes();
    let bytes = units_in(slice, layout, s) * unit_bytes;
    let strip = s.strip() * unit_bytes;
    let mut from = weights.byte_add(mul_wide(tiles[0], layout.tile_bytes()));
    from = from.byte_add(slice * (s.slice_units(layout) * unit_bytes));
    let mut tile = tiles[0];
    while tile < tiles[1] {
        let mut at = val(0u32);
        while at < bytes {
            let size = (bytes - at).min(strip);
            producer.copy_stage(from.byte_add(at), size, &s.schedule);
            at += strip;
        }
        from = from.byte_add(layout.tile_bytes());
        tile += 1;
    }
    if !s.accumulates() {
        return;
    }
    // Each group of warps gets the same number of stages, so that a warp always has the same tiles.
    let mut stage = (tiles[1] - tiles[0]) * ((bytes + (strip - 1)) / strip) % s.schedule.groups;
    if stage > 0 {
        while stage < s.schedule.groups {
            producer.skip_stage(&s.schedule);
            stage += 1;
        }
    }
}

/// Producer warp of the prepared inputs: streams all slices for each batch of tiles, or once if there is a single slice.
#[device]
pub(in crate::kernels::gemv) fn load_inputs(
    operands: &Operands,
    rings: Rings,
    tiles: &[[Val<u32>; 2]],
    s: &GemvShape,
) {
    let (ring, layout) = (rings.inputs.expect("the inputs are prepared"), s.input_layout());
    let granules = s.schedule.several.slice / GRANULE;
    let mut x = operands.x.cast::<u8>();
    if s.schedule.several.blocks > 1 {
        x = x.byte_add(mul_wide(block_index_y(), layout.block_bytes()));
    }
    s.schedule.trigger.wait();
    let mut producer = ring.producer(lane());
    if s.slices() == 1 {
        let count = tiles.iter().fold(val(0u32), |count, tiles| count + (tiles[1] - tiles[0]));
        if count > 0 {
            producer.acquire(layout.block_bytes());
            producer.copy(0, x, layout.block_bytes(), None);
            producer.commit();
        }
        return;
    }
    for batch in s.batches() {
        let [mut first, end] = tiles[batch[0]];
        while first < end {
            let [slice, slices] = s.cta_slices();
            let mut granule = slice * granules;
            let last = (slices * granules).min(layout.granules);
            while granule < last {
                let bytes = (last - granule).min(granules) * layout.granule_bytes();
                producer.acquire(bytes);
                let from = x.byte_add(mul_wide(granule, layout.granule_bytes()));
                producer.copy(0, from, bytes, None);
                producer.commit();
                producer.advance();
                granule += granules;
            }
            first += s.schedule.several.tiles;
        }
    }
}
