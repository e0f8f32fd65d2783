//! Execution of `wgmma`.

use super::descriptor::Descriptor;
use super::operands::{check_issue, list, misuse, registers};
use super::product::{DEPTH_BYTES, Matrices};
use crate::asynchronous::{CHUNK, CommonOperands, Operation, WARPS_PER_WARPGROUP as WARPGROUP};
use crate::code::access::Access;
use crate::code::operands::NONE;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::exec::element::Element;
use crate::exec::fragment::whole_warp;
use crate::exec::lane_loop::lane_loop;
use crate::exec::races;
use crate::exec::resolve::resolve_range;
use crate::exec::rounding::{F16, Format, canonical};
use crate::exec::tensor_sum::{ALL_BITS, Addition, CUT, CUT_FLOAT8, ROWS, SINGLE_BITS};
use crate::finding::Space;
use crate::lanes::LANES;

/// Type of the accumulators.
pub(crate) trait Accumulator: 'static {
    /// Elements per 32-bit register.
    const COUNT: usize;
    /// Exponent of the smallest normal number.
    const LOWEST_EXPONENT: i32;
    fn get(register: u32, index: usize) -> f64;
    /// The register with rounded sums.
    fn pack(sums: &[f64], saturates: bool) -> u32;
}

pub(crate) struct Single;
pub(crate) struct HalfPair;
pub(crate) struct Integer;

impl Accumulator for Single {
    const COUNT: usize = 1;
    const LOWEST_EXPONENT: i32 = -126;
    #[inline(always)]
    fn get(register: u32, _: usize) -> f64 {
        f32::from_bits(register) as f64
    }
    #[inline(always)]
    fn pack(sums: &[f64], _: bool) -> u32 {
        canonical(sums[0] as f32).to_bits()
    }
}

impl Accumulator for HalfPair {
    const COUNT: usize = 2;
    const LOWEST_EXPONENT: i32 = -14;
    #[inline(always)]
    fn get(register: u32, index: usize) -> f64 {
        F16::to_f32((register >> (16 * index)) as u16) as f64
    }
    #[inline(always)]
    fn pack(sums: &[f64], _: bool) -> u32 {
        F16::from_f64(sums[0]) as u32 | (F16::from_f64(sums[1]) as u32) << 16
    }
}

impl Accumulator for Integer {
    const COUNT: usize = 1;
    const LOWEST_EXPONENT: i32 = 0;
    #[inline(always)]
    fn get(register: u32, _: usize) -> f64 {
        register as i32 as f64
    }
    #[inline(always)]
    fn pack(sums: &[f64], saturates: bool) -> u32 {
        // A conversion of floats saturates.
        if saturates { sums[0] as i32 as u32 } else { sums[0] as i64 as u32 }
    }
}

lane_loop! {
    /// `wgmma.mma_async`.
    fn multiply[D: Accumulator, EA: Element, EB: Element][D, EA, EB](cx, i) {
        let list = cx.launch.program.list(i.imm);
        let Some((mut operation, common)) = begin(cx, list) else { return Flow::Fault };
        let (a, d) = registers(list);
        let (columns, flags) = (list[list::COLUMNS] as usize, list[list::FLAGS]);
        let base = cx.cluster.layout.base(cx.cluster.rank(cx.warp.index));
        let [descriptor_a, descriptor_b] = common.descriptors.map(|bits| Descriptor::new(bits, base));
        let row = (cx.warp.index % cx.cluster.warps % WARPGROUP * ROWS) as u64;
        let b = chunks_b(descriptor_b, columns as u64, EB::BYTES as u64, flags);
        let mut chunks = b.clone();
        let a_chunks = match a.is_empty() {
            true => chunks_a(descriptor_a, row, EA::BYTES as u64, flags),
            false => Vec::new(),
        };
        chunks.extend_from_slice(&a_chunks);
        if !read(cx, &mut operation, &chunks) {
            return Flow::Fault;
        }
        let mut matrices = Matrices::take();
        let bytes = |address: u64| {
            let mut chunk = [0u8; CHUNK as usize];
            // SAFETY: `read` checked the 16 bytes of every chunk.
            unsafe { cx.cluster.shared.pointer(address).copy_to_nonoverlapping(chunk.as_mut_ptr(), chunk.len()) };
            chunk
        };
        for &Chunk { address, line, k } in &b {
            match flags & list::TRANSPOSE_B {
                0 => matrices.set_b_chunk::<EB>(line, k, &bytes(address)),
                _ => matrices.set_b_row::<EB>(line, k, &bytes(address)),
            }
        }
        for &Chunk { address, line, k } in &a_chunks {
            match flags & list::TRANSPOSE_A {
                0 => matrices.set_a_chunk::<EA>(line, k, &bytes(address)),
                _ => matrices.set_a_column::<EA>(line, k, &bytes(address)),
            }
        }
        if let &[(r0, _), (r1, _), (r2, _), (r3, _)] = &a[..] {
            matrices.set_a_registers::<EA>([r0, r1, r2, r3].map(|slot| cx.warp.regs.lanes(slot)));
        }
        let depth = DEPTH_BYTES / EA::BYTES;
        let negate = (flags & list::NEGATE_A != 0) != (flags & list::NEGATE_B != 0);
        if negate {
            matrices.a[..depth].iter_mut().flatten().for_each(|a| *a = -*a);
        }
        for (index, &(slot, number)) in d.iter().enumerate() {
            let values = if common.scale_d { current(cx, slot, number) } else { [0; LANES] };
            for lane in 0..LANES {
                for element in 0..D::COUNT {
                    let (row, column) = position(lane, index * D::COUNT + element);
                    matrices.sums[row][column] = D::get(values[lane], element);
                }
            }
        }
        matrices.multiply(depth, columns, addition::<D, EA, EB>());
        let saturates = flags & list::SATURATE != 0;
        for (index, &(_, number)) in d.iter().enumerate() {
            let mut values = [0; LANES];
            for lane in 0..LANES {
                let (row, column) = position(lane, index * D::COUNT);
                values[lane] = D::pack(&matrices.sums[row][column..column + D::COUNT], saturates);
            }
            cx.cluster.asynchronous.wgmma.warp(cx.warp.index).register(number).result = values;
        }
        matrices.put();
        issue(cx, operation, list[list::SHAPE]);
        Flow::Next
    }
}

/// How floats are added; `None` for integers.
#[inline(always)]
fn addition<D: Accumulator, EA: Element, EB: Element>() -> Option<Addition> {
    let lowest = [EA::LOWEST_EXPONENT?, EB::LOWEST_EXPONENT?];
    let cut = if EA::BYTES == 1 { CUT_FLOAT8 } else { CUT };
    let kept = if D::COUNT == 1 { cut.min(SINGLE_BITS) } else { ALL_BITS };
    Some(Addition { lowest, lowest_accumulator: D::LOWEST_EXPONENT, cut, kept })
}

/// Row and column of element number `index` of a lane's accumulators. Column pairs alternate between two rows.
#[inline(always)]
fn position(lane: usize, index: usize) -> (usize, usize) {
    let (block, within) = (index / 4, index % 4);
    (lane / 4 + 8 * (within / 2), 8 * block + 2 * (lane % 4) + within % 2)
}

/// Value of an accumulator: the result of the operation in flight that writes it, else the register's.
fn current(cx: &mut ExecutionContext<'_>, slot: u32, number: u32) -> [u32; LANES] {
    let register = cx.cluster.asynchronous.wgmma.warp(cx.warp.index).register(number);
    match register.writers {
        0 => *cx.warp.regs.lanes(slot),
        _ => register.result,
    }
}

/// 16 bytes of an operand in shared memory.
#[derive(Clone, Copy)]
struct Chunk {
    address: u64,
    /// Row of `A` in the warp's part, or column of `B`: of the chunk, or for a transposed operand of its first element.
    line: usize,
    /// Position along K of the chunk, or of its first element.
    k: usize,
}

fn chunks(
    descriptor: Descriptor,
    (first, lines): (u64, u64),
    element: u64,
    transposed: bool,
) -> impl Iterator<Item = Chunk> {
    let per_chunk = CHUNK / element;
    let (outer, inner) = match transposed {
        true => (DEPTH_BYTES as u64 / element, lines / per_chunk),
        false => (lines, DEPTH_BYTES as u64 / CHUNK),
    };
    (0..outer).flat_map(move |outer| {
        (0..inner).map(move |inner| match transposed {
            true => Chunk {
                address: descriptor.along_rows(outer, first / per_chunk + inner),
                line: (inner * per_chunk) as usize,
                k: outer as usize,
            },
            false => Chunk {
                address: descriptor.along_k(first + outer, inner),
                line: outer as usize,
                k: (inner * per_chunk) as usize,
            },
        })
    })
}

fn chunks_b(descriptor: Descriptor, columns: u64, element: u64, flags: u32) -> Vec<Chunk> {
    chunks(descriptor, (0, columns), element, flags & list::TRANSPOSE_B != 0).collect()
}

fn chunks_a(descriptor: Descriptor, row: u64, element: u64, flags: u32) -> Vec<Chunk> {
    chunks(descriptor, (row, ROWS as u64), element, flags & list::TRANSPOSE_A != 0).collect()
}

/// Starts an operation: checks that the warpgroup executes it with the same operands, and the use of its registers.
fn begin(cx: &mut ExecutionContext<'_>, list: &[u32]) -> Option<(Operation, CommonOperands)> {
    if !whole_warp(cx) || !is_in_warpgroup(cx) {
        return None;
    }
    let (warp, pc) = (cx.warp.index, cx.warp.pc);
    if cx.launch.checks.memory && !check_issue(cx, list) {
        return None;
    }
    let common = common_operands(cx, list)?;
    let state = &mut cx.cluster.asynchronous.wgmma;
    let number = match state.number(warp, common) {
        Ok(number) => number,
        Err(other) => {
            warps_differ(cx, common, other);
            return None;
        }
    };
    let state = &mut cx.cluster.asynchronous.wgmma;
    let group = state.warp(warp).committed;
    let (a, d) = registers(list);
    let a = a.into_iter().map(|(_, number)| number).collect();
    Some((Operation { number, group, pc, reads: Vec::new(), writes: d, a }, common))
}

/// The operands that the threads of a warpgroup must agree on; `None` if lanes of the warp differ, which is reported.
fn common_operands(cx: &mut ExecutionContext<'_>, list: &[u32]) -> Option<CommonOperands> {
    let mut descriptors = [0; 2];
    for (index, &slot) in [list[list::DESCRIPTOR_A], list[list::DESCRIPTOR_B]].iter().enumerate() {
        if slot == NONE {
            continue;
        }
        let lanes = *cx.warp.regs.lanes::<u64>(slot);
        descriptors[index] = lanes[0];
        if let Some(lane) = lanes.iter().position(|&other| other != lanes[0]) {
            let values = [(lanes[0], "lane 0".to_string()), (lanes[lane], format!("lane {lane}"))];
            descriptors_differ(cx, index, values);
            return None;
        }
    }
    let scale_d = cx.mask(list[list::SCALE_D]);
    let first = scale_d & 1 != 0;
    let others = if first { !scale_d } else { scale_d };
    if others != 0 {
        scales_differ(cx, first, ["lane 0".to_string(), format!("lane {}", others.trailing_zeros())]);
        return None;
    }
    Some(CommonOperands { pc: cx.warp.pc, descriptors, scale_d: first })
}

/// Reports that the warp issues another operation than a warp of its warpgroup has issued.
#[cold]
fn warps_differ(cx: &mut ExecutionContext<'_>, own: CommonOperands, (warp, other): (usize, CommonOperands)) {
    if own.pc != other.pc {
        let line = cx.launch.program.place(other.pc).line;
        let detail = format!(
            "the warps of a warpgroup must issue the same operations: another warp has issued that of PTX line {line} here"
        );
        misuse(cx, detail);
        return;
    }
    let names = [warp, cx.warp.index].map(|warp| cx.cluster.warp_name(warp));
    match (0..2).find(|&index| own.descriptors[index] != other.descriptors[index]) {
        Some(index) => {
            let [first, second] = names;
            let values = [(other.descriptors[index], first), (own.descriptors[index], second)];
            descriptors_differ(cx, index, values);
        }
        None => scales_differ(cx, other.scale_d, names),
    }
}

fn descriptors_differ(cx: &mut ExecutionContext<'_>, index: usize, values: [(u64, String); 2]) {
    let [(first, by), (second, other)] = values;
    let operand = ["A", "B"][index];
    let detail = format!(
        "all threads of a warpgroup must have the same value for the descriptor of {operand}: {first:#x} in {by}, \
         {second:#x} in {other}"
    );
    misuse(cx, detail);
}

fn scales_differ(cx: &mut ExecutionContext<'_>, first: bool, [by, other]: [String; 2]) {
    let second = !first;
    let detail = format!(
        "all threads of a warpgroup must have the same value for `scale-d`: {first} in {by}, {second} in {other}"
    );
    misuse(cx, detail);
}

/// Whether the warp is in a warpgroup, four warps from a multiple of four on; reports a fault if not.
fn is_in_warpgroup(cx: &mut ExecutionContext<'_>) -> bool {
    let (warp, warps) = (cx.warp.index % cx.cluster.warps, cx.cluster.warps);
    if warp / WARPGROUP * WARPGROUP + WARPGROUP <= warps {
        return true;
    }
    let detail = format!(
        "a warpgroup has four warps, the first of which is a multiple of four: warp {warp} of a CTA of {warps} warps is \
         in none"
    );
    misuse(cx, detail);
    false
}

/// Checks and reserves the chunks that an operation reads; returns false if a check reports a finding.
fn read(cx: &mut ExecutionContext<'_>, operation: &mut Operation, chunks: &[Chunk]) -> bool {
    let mut addresses: Vec<u64> = chunks.iter().map(|chunk| chunk.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    for address in addresses {
        match operation.reads.last_mut() {
            Some((start, bytes)) if *start + *bytes == address => *bytes += CHUNK,
            _ => operation.reads.push((address, CHUNK)),
        }
    }
    let what = (Space::Shared, Access::Load);
    let ranges = &operation.reads;
    ranges.iter().all(|&range| resolve_range(cx, 0, what, range, CHUNK).is_some())
        && (cx.cluster.races.is_none() || races::read_by_wgmma(cx, ranges))
}

/// Puts an operation in flight, with its results in the states of its registers.
fn issue(cx: &mut ExecutionContext<'_>, operation: Operation, shape: u32) {
    let (warp, pc) = (cx.warp.index, cx.warp.pc);
    let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
    let merged = under_way.wgmma.warp(warp).merge(&operation);
    if !merged {
        for &range in &operation.reads {
            under_way.wgmma.read(range, |chunk| shared.reserve(chunk, CHUNK, false));
        }
    }
    let state = under_way.wgmma.warp(warp);
    for &(_, number) in &operation.writes {
        let register = state.register(number);
        register.writers += !merged as u32;
        (register.writer, register.shape) = (pc, shape);
    }
    for &number in &operation.a {
        let register = state.register(number);
        register.readers += !merged as u32;
        register.reader = pc;
    }
    if !merged {
        state.in_flight.push(operation);
    }
}

pub(super) fn fence(cx: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    if !whole_warp(cx) || !is_in_warpgroup(cx) {
        return Flow::Fault;
    }
    cx.cluster.asynchronous.wgmma.warp(cx.warp.index).fence();
    Flow::Next
}

pub(super) fn commit(cx: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    if !whole_warp(cx) || !is_in_warpgroup(cx) {
        return Flow::Fault;
    }
    cx.cluster.asynchronous.wgmma.warp(cx.warp.index).committed += 1;
    Flow::Next
}

/// `wgmma.wait_group`; `imm` is the number of groups that may stay in flight.
pub(super) fn wait(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !whole_warp(cx) || !is_in_warpgroup(cx) {
        return Flow::Fault;
    }
    let warp = cx.warp.index;
    let wgmma = &mut cx.cluster.asynchronous.wgmma;
    let complete = wgmma.warp(warp).complete_with(i.imm);
    let behind = wgmma.lagging_warp(warp, complete).is_some();
    wgmma.warp(warp).awaited_count = behind.then_some(complete);
    if behind {
        return Flow::Retry;
    }
    let reads = wgmma.complete_reads(warp, complete);
    if cx.cluster.races.is_some() {
        races::complete_wgmma(cx, &reads, complete);
    }
    let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
    let released: Vec<_> = reads.into_iter().flat_map(|read| read.ranges).collect();
    for &range in &released {
        under_way.wgmma.end_read(range, |chunk| shared.release(chunk, CHUNK, false));
    }
    under_way.reserve_read(&mut shared, &released);
    let state = under_way.wgmma.warp(warp);
    let done: Vec<Operation> = state.in_flight.extract_if(.., |one| one.number < complete).collect();
    for operation in done {
        for &number in &operation.a {
            state.register(number).readers -= 1;
        }
        for &(slot, number) in &operation.writes {
            let register = state.register(number);
            register.writers -= 1;
            if register.writers == 0 {
                cx.warp.regs.lanes_mut::<u32>(slot).copy_from_slice(&register.result);
            }
        }
    }
    Flow::Next
}
