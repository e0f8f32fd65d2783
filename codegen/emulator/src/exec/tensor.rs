//! `cp.async.bulk.tensor`: copies of boxes of tensors between global memory and shared memory.

use std::sync::Arc;

use super::bulk::{BULK_ALIGNMENT, BulkPart, TensorBox, issue};
use super::operand_list::{ADDRESS, listed, push_address, take_cache};
use super::reduction;
use super::refused_access::{RefusedAccess, refuse};
use super::resolve::resolve_range;
use super::tensor_maps;
use crate::asynchronous::{Tile, TilePart};
use crate::code::access::{Access, classify};
use crate::code::cursor::{AddressWidth, InstructionCursor, quantity};
use crate::code::operands::NONE;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::Ty;
use crate::profile::Counts;
use crate::profile::requests::sectors_of_range;
use crate::tensor_map::{BoxPart, NoTensorMap, TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap, swizzled};

/// What an instruction does with a box.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transfer {
    Load,
    Store,
    Prefetch,
}

/// Alignment of a box in shared memory.
const BOX_ALIGNMENT: u64 = 128;

/// Required alignment in bytes of the start of a box along dimension 0.
const START_ALIGNMENT: i64 = 16;

const TRANSFERS: [Transfer; 3] = [Transfer::Load, Transfer::Store, Transfer::Prefetch];

/// Positions in the operand list, after the address of the tensor map: number of the transfer, whether the target must be
/// the CTA's own, slot of the mask of ranks, number of the reduction, number of coordinates, coordinates; then the
/// addresses of the box and the mbarrier.
const TRANSFER: usize = ADDRESS;
const OWN_TARGET: usize = TRANSFER + 1;
const MASK: usize = TRANSFER + 2;
const REDUCTION: usize = TRANSFER + 3;
const RANK: usize = TRANSFER + 4;
const COORDINATES: usize = TRANSFER + 5;

fn copy(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let list = cx.launch.program.list(i.imm);
    let transfer = TRANSFERS[list[TRANSFER] as usize];
    let (maps, rank) = (listed(cx, list), list[RANK] as usize);
    let after = &list[COORDINATES + rank..];
    let boxes: [u64; LANES] = if after.is_empty() { [0; LANES] } else { listed(cx, after) };
    let mbarriers = (transfer == Transfer::Load).then(|| listed(cx, &after[ADDRESS..]));
    let masks = (list[MASK] != NONE).then(|| *cx.warp.regs.lanes::<u16>(list[MASK]));
    for lane in cx.active_lanes() {
        let Some(map) = read_map(cx, lane, maps[lane], rank) else { return Flow::Fault };
        let coordinates: Vec<i32> = list[COORDINATES..COORDINATES + rank]
            .iter()
            .map(|&slot| cx.warp.regs.lanes::<u32>(slot)[lane] as i32)
            .collect();
        if let Some(detail) = refused(&map, &coordinates, transfer) {
            return cx.fault(FindingKind::TensorMap, lane as u32, detail);
        }
        let reduction = match list[REDUCTION] {
            0 => None,
            operation => match reduction::of_elements(operation, map.element) {
                Ok(reduction) => Some(reduction),
                Err(name) => {
                    let detail =
                        format!("the emulator has no reduction `{name}` of {:?} elements", map.element);
                    return cx.fault(FindingKind::TensorMap, lane as u32, detail);
                }
            },
        };
        let access = match transfer {
            Transfer::Load => Access::Load,
            Transfer::Store if reduction.is_some() => Access::Atomic,
            Transfer::Store => Access::Store,
            Transfer::Prefetch => Access::Prefetch,
        };
        let parts = map.parts(&coordinates, transfer == Transfer::Store);
        let Some(tile) = resolve_parts(cx, lane, access, &map, &parts) else { return Flow::Fault };
        if transfer == Transfer::Prefetch {
            continue;
        }
        profile(cx, transfer, &parts);
        let address = boxes[lane];
        let pieces = if map.row_stride() == map.row_bytes() {
            vec![Piece { address, bytes: map.box_bytes(), alignment: BOX_ALIGNMENT, tile, parts }]
        } else if address.is_multiple_of(BOX_ALIGNMENT) {
            pieces_between_gaps(&map, address, &tile, &parts)
        } else {
            let refused =
                RefusedAccess { lane, address, bytes: map.shared_bytes(), alignment: BOX_ALIGNMENT };
            let access = if transfer == Transfer::Load { Access::Store } else { Access::Load };
            return refuse(cx, FindingKind::Misaligned, refused, (Space::Shared, access));
        };
        for Piece { address, bytes, alignment, tile, parts } in pieces {
            let ranges = joined(&parts);
            let global = (Space::Global, ranges.first().map_or(map.address, |range| range.0));
            let part = BulkPart {
                lane,
                from: global,
                source: std::ptr::null_mut(),
                size: bytes,
                target: address,
                alignment,
                mbarrier: mbarriers.map(|mbarriers| mbarriers[lane]),
                own: list[OWN_TARGET] != 0,
                tile: Some(TensorBox { tile: Arc::new(tile), ranges: ranges.into() }),
                reduction,
            };
            let part = match transfer {
                Transfer::Store => {
                    let source = (address, bytes, alignment);
                    let Some(source) = resolve_source(cx, lane, source, part.tile.as_ref()) else {
                        return Flow::Fault;
                    };
                    BulkPart { from: (Space::Shared, address), source, target: global.1, ..part }
                }
                _ => part,
            };
            if !issue(cx, part, masks.map(|masks| masks[lane])) {
                return Flow::Fault;
            }
        }
    }
    Flow::Next
}

/// Part of a box without gaps in shared memory.
struct Piece {
    /// Address and size in shared memory.
    address: u64,
    bytes: u64,
    alignment: u64,
    tile: Tile,
    /// The parts of `tile` by their addresses in global memory.
    parts: Vec<BoxPart>,
}

/// The chunks of 16 bytes of a box at `address` whose rows are shorter than the swizzle. Each is copied by
/// itself, so that checks leave out the gaps between rows.
fn pieces_between_gaps(map: &TensorMap, address: u64, tile: &Tile, parts: &[BoxPart]) -> Vec<Piece> {
    let rows = (0..map.rows()).map(|row| row * map.row_stride());
    let chunks = rows.flat_map(|row| (row..row + map.row_bytes()).step_by(BULK_ALIGNMENT as usize));
    let piece = |chunk: u64| {
        // Parts are in order, and none has bytes of two rows.
        let at = parts.partition_point(|part| part.offset + part.bytes <= chunk);
        let found = parts.get(at).filter(|part| part.offset < chunk + BULK_ALIGNMENT);
        let inside = found.map(|part| {
            let start = chunk.max(part.offset);
            let bytes = (part.offset + part.bytes).min(chunk + BULK_ALIGNMENT) - start;
            let (skipped, offset) = (start - part.offset, start - chunk);
            let host = tile.parts[at].host.wrapping_add(skipped as usize);
            let in_memory = BoxPart { address: part.address + skipped, offset, bytes };
            (TilePart { host, offset, bytes }, in_memory)
        });
        let (copied, parts) = inside.into_iter().unzip();
        Piece {
            address: swizzled(address + chunk, tile.chunks),
            bytes: BULK_ALIGNMENT,
            alignment: BULK_ALIGNMENT,
            tile: Tile { parts: copied, chunks: 1, fill: tile.fill },
            parts,
        }
    };
    chunks.map(piece).collect()
}

/// Reason why devices refuse a box at these coordinates, if they do (an H100 raises the error "illegal instruction").
fn refused(map: &TensorMap, coordinates: &[i32], transfer: Transfer) -> Option<String> {
    let bytes = i64::from(map.unit_bytes());
    let at = i64::from(coordinates[0]) * bytes;
    if transfer != Transfer::Prefetch && at % START_ALIGNMENT != 0 {
        return Some(format!(
            "the box begins at byte {at} of dimension 0 (element {} of {}): devices refuse boxes that do not begin at a \
             multiple of {START_ALIGNMENT} bytes, here {} elements",
            coordinates[0],
            quantity(bytes as usize, "byte"),
            START_ALIGNMENT / bytes
        ));
    }
    let dimension = coordinates.iter().position(|&at| at < 0).filter(|_| transfer == Transfer::Store)?;
    Some(format!(
        "the box begins at element {} of dimension {dimension}: devices refuse stores and reductions with a negative \
         coordinate, while loads fill what is outside the tensor",
        coordinates[dimension]
    ))
}

/// Reads the tensor map at a generic address; `None` if a check reports a finding.
fn read_map(cx: &mut ExecutionContext<'_>, lane: usize, address: u64, rank: usize) -> Option<TensorMap> {
    let (space, at) = classify(address);
    let mut bytes = [0; TENSOR_MAP_BYTES];
    if matches!(space, Space::Global | Space::Param) {
        let range = (at, TENSOR_MAP_BYTES as u64);
        let from = resolve_range(cx, lane, (space, Access::Load), range, TENSOR_MAP_ALIGNMENT)?;
        // SAFETY: the range has been checked.
        unsafe { from.cast_const().copy_to_nonoverlapping(bytes.as_mut_ptr(), TENSOR_MAP_BYTES) };
    }
    if space == Space::Global
        && cx.launch.checks.proxy_fences
        && let Some(detail) = tensor_maps::unordered_change(cx, at)
    {
        cx.fault(FindingKind::ProxyFence, lane as u32, detail);
        return None;
    }
    let detail = match TensorMap::decode(&bytes) {
        Ok(map) if map.sizes.len() == rank => return Some(map),
        Ok(map) => format!(
            "the tensor map at {address:#x} has {}, and the instruction {rank}",
            quantity(map.sizes.len(), "dimension")
        ),
        Err(NoTensorMap::Invalid(what)) => format!("the tensor map at {address:#x} is invalid: {what}"),
        Err(NoTensorMap::OtherBytes) => format!(
            "no tensor map is at {address:#x}: the address must be that of a parameter, constant or global variable that \
             holds a tensor map"
        ),
    };
    cx.fault(FindingKind::TensorMap, lane as u32, detail);
    None
}

/// Checks the accesses of a box in global memory; `None` if a check reports a finding.
fn resolve_parts(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    access: Access,
    map: &TensorMap,
    parts: &[BoxPart],
) -> Option<Tile> {
    let mut resolved = Vec::with_capacity(parts.len());
    for &BoxPart { address, offset, bytes } in parts {
        let host = resolve_range(cx, lane, (Space::Global, access), (address, bytes), 1)?;
        resolved.push(TilePart { host, offset, bytes });
    }
    Some(Tile { parts: resolved, chunks: map.swizzle.chunks(), fill: map.fill() })
}

/// Checks the reads of the source in shared memory, for a box only of the elements inside the tensor. `None` if a check
/// reports a finding.
fn resolve_source(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    (address, bytes, alignment): (u64, u64, u64),
    tile: Option<&TensorBox>,
) -> Option<*mut u8> {
    let load = (Space::Shared, Access::Load);
    let layout = &cx.cluster.layout;
    let own = cx.cluster.rank(cx.warp.index) == layout.locate(address).0 && layout.contains(address, bytes);
    let tile = tile.map(|tile| &tile.tile);
    match tile.filter(|tile| tile.parts.iter().map(|part| part.bytes).sum::<u64>() < bytes) {
        Some(tile) if own && address.is_multiple_of(alignment) => {
            let mut pieces = Vec::new();
            tile.pieces(address, |_, _, at, count| pieces.push((at, count)));
            pieces.into_iter().try_for_each(|piece| resolve_range(cx, lane, load, piece, 1).map(drop))?;
            Some(cx.cluster.shared.pointer(address))
        }
        _ => resolve_range(cx, lane, load, (address, bytes), alignment),
    }
}

/// Ranges of global memory of the parts; parts that follow each other are one range.
fn joined(parts: &[BoxPart]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for part in parts {
        match ranges.last_mut() {
            Some((start, bytes)) if *start + *bytes == part.address => *bytes += part.bytes,
            _ => ranges.push((part.address, part.bytes)),
        }
    }
    ranges
}

/// Counts the traffic of a box in global memory.
fn profile(cx: &mut ExecutionContext<'_>, transfer: Transfer, parts: &[BoxPart]) {
    let Some(tally) = &mut cx.worker.profile else { return };
    let mut counts = Counts::default();
    for part in parts {
        counts.global.add_request(sectors_of_range(part.address, part.bytes));
        match transfer {
            Transfer::Load => counts.global.bytes_loaded += part.bytes,
            _ => counts.global.bytes_stored += part.bytes,
        }
    }
    tally[cx.warp.pc].add(&counts);
}

/// Appends the address of a tensor map to an operand list; returns the slots of the coordinates.
fn push_map(
    op: &mut InstructionCursor<'_, '_>,
    index: usize,
    list: &mut Vec<u32>,
) -> Result<Vec<u32>, ParseError> {
    let (slot, width, coordinates) = op.tensor(index)?;
    if width == AddressWidth::W32 {
        return Err(op.error(format!("`{}` needs a 64-bit address of the tensor map", op.text())));
    }
    list.extend([slot, 0, op.imm as u32, (op.imm >> 32) as u32]);
    Ok(coordinates)
}

pub(super) fn decode(op: &mut InstructionCursor<'_, '_>, reduces: bool) -> Result<Exec, ParseError> {
    let rank = op.take_any(&[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)]);
    let Some(rank) = rank else { return Err(op.unsupported()) };
    let prefetches = op.take("prefetch");
    let level = prefetches && op.take("L2");
    let policy = take_cache(op);
    let (cluster, cta, global) = (op.take("shared::cluster"), op.take("shared::cta"), op.take("global"));
    let operation = if reduces { reduction::take_operation(op) } else { None };
    op.take("tile");
    let grouped = op.take("bulk_group");
    let signals = op.take("mbarrier::complete_tx::bytes");
    let multicast = op.take("multicast::cluster");
    let stores = grouped && cta && !cluster && !signals && !multicast;
    let loads = signals && cluster != cta && !grouped && !(multicast && cta);
    let plain = !(cluster || cta || grouped || signals || multicast);
    let (transfer, map) = match (prefetches, global) {
        (true, true) if level && plain => (Transfer::Prefetch, 0),
        (false, true) if stores => (Transfer::Store, 0),
        (false, true) if loads => (Transfer::Load, 1),
        _ => return Err(op.unsupported()),
    };
    if reduces != operation.is_some() || reduces && transfer != Transfer::Store {
        return Err(op.unsupported());
    }
    let mut list = Vec::new();
    let coordinates = push_map(op, map, &mut list)?;
    if coordinates.len() != rank {
        return Err(op.error(format!("`{}` takes {}", op.text(), quantity(rank, "coordinate"))));
    }
    let mut next = match transfer {
        Transfer::Load => 3,
        Transfer::Store => 2,
        Transfer::Prefetch => 1,
    };
    let mask = if multicast { op.src(next, Ty::B16)? } else { NONE };
    next += multicast as usize;
    let operation = operation.map_or(0, reduction::operation_number);
    list.extend([transfer as u32, cta as u32, mask, operation, rank as u32]);
    list.extend(coordinates);
    match transfer {
        Transfer::Load => {
            push_address(op, 0, &mut list, true)?;
            push_address(op, 2, &mut list, true)?;
        }
        Transfer::Store => push_address(op, 1, &mut list, true)?,
        Transfer::Prefetch => {}
    }
    if policy {
        op.src(next, Ty::B64)?;
    }
    op.imm = op.list(list);
    Ok(copy)
}
