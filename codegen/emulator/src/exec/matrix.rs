//! Warp-level matrix instructions: `mma`, `ldmatrix` and `stmatrix`.
//!
//! All shapes share one fragment layout. With `e` elements in a 32-bit register (4, 2 or 1), lane `l` holds, in
//! register `r` of `A`, row `l / 4 + 8 · (r mod 2)` and columns `4e · (r / 2) + e · (l mod 4) ..+ e`; in
//! register `r` of `B`, column `l / 4` and rows `4e · r + e · (l mod 4) ..+ e`. Of the 16 × 8
//! accumulators it holds rows `l / 4` and `l / 4 + 8`, columns `2 · (l mod 4)` and `2 · (l mod 4) + 1`.
//!
//! Integer sums are exact. Floating-point sums add the exact products and the accumulator in double precision and round
//! once to the result type; devices add in an unspecified order and precision.

#[cfg(target_arch = "x86_64")]
use super::lane_loop::lane_loop;
use super::load_store::{address_operand, take_space};
use super::races;
use super::resolve::resolve;
use super::rounding::{Bf16, F16, Format, canonical};
use crate::code::access::{Access, StateSpace};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::D;
use crate::context::{Exec, ExecutionContext, Flow, Inst, Resolved};
use crate::exec::bytes;
use crate::finding::FindingKind;
use crate::lanes::LANES;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

const ROWS: usize = 16;
pub(super) const COLUMNS: usize = 8;
/// Accumulator registers per lane, for 32-bit accumulators.
pub(super) const ACCUMULATORS: usize = 4;
/// Flag in `imm` of an integer `mma`: `.satfinite`. The other bits of `imm` are the index of the operand list.
const SATURATES: u64 = 1 << 63;

/// Whether all 32 lanes execute the instruction; reports a fault if not.
#[inline(always)]
pub(crate) fn whole_warp(m: &mut ExecutionContext<'_>) -> bool {
    m.active == u32::MAX || lanes_missing(m)
}

#[cold]
fn lanes_missing(m: &mut ExecutionContext<'_>) -> bool {
    let missing = (!m.active).trailing_zeros();
    let why = match (m.warp.launched >> missing & 1 != 0, m.warp.live >> missing & 1 != 0) {
        (true, true) => "has diverged and does not execute it",
        (true, false) => "has exited",
        (false, _) => "does not exist",
    };
    let detail = format!("all 32 lanes of the warp must execute it together, but lane {missing} {why}");
    m.fault(FindingKind::MemberMask, m.active.trailing_zeros(), detail);
    false
}

/// Type that products and sums are computed in.
pub(crate) trait Value: Copy + Default + 'static {
    fn multiply_add(self, a: Self, b: Self) -> Self;
}

// Not fused, because a fused multiply-add is slow on CPUs without the instruction. The products are exact either way.
impl Value for f32 {
    #[inline(always)]
    fn multiply_add(self, a: f32, b: f32) -> f32 {
        self + a * b
    }
}

impl Value for f64 {
    #[inline(always)]
    fn multiply_add(self, a: f64, b: f64) -> f64 {
        self + a * b
    }
}

/// Element type of `A` or `B`, packed into 32-bit registers.
pub(crate) trait Element: 'static {
    /// Elements per register.
    const COUNT: usize;
    type Value: Value;
    fn get(register: u32, index: usize) -> Self::Value;
}

macro_rules! elements {
    ($($name:ident $count:literal $value:ty: ($register:ident, $index:ident) $get:expr;)*) => { $(
        pub(crate) struct $name;
        impl Element for $name {
            const COUNT: usize = $count;
            type Value = $value;
            #[inline(always)]
            fn get($register: u32, $index: usize) -> $value { $get }
        }
    )* };
}
elements! {
    // A sum of 32 products of bytes is below 2^24, so an `f32` holds it exactly.
    Signed8 4 f32: (register, index) ((register as i32) << (24 - 8 * index) >> 24) as f32;
    Unsigned8 4 f32: (register, index) (register >> (8 * index) & 0xff) as i32 as f32;
    Half 2 f64: (register, index) F16::to_f32((register >> (16 * index)) as u16) as f64;
    Brain 2 f64: (register, index) Bf16::to_f32((register >> (16 * index)) as u16) as f64;
    // The instruction ignores the low 13 bits.
    Tf32 1 f64: (register, _index) f32::from_bits(register & !0x1fff) as f64;
}

/// Largest `k` of the shapes.
const MAX_DEPTH: usize = 32;

/// Reads `A` as a list of columns.
#[inline(always)]
fn gather_a<E: Element>(m: &ExecutionContext<'_>, slots: &[u32]) -> [[E::Value; ROWS]; MAX_DEPTH] {
    let mut a = [[E::Value::default(); ROWS]; MAX_DEPTH];
    for (pair, slots) in slots.chunks(2).enumerate() {
        let [upper, lower] = [0, 1].map(|half| m.warp.regs.lanes::<u32>(slots[half]));
        for t in 0..4 {
            let registers: [u32; ROWS] = std::array::from_fn(|row| match row / 8 {
                0 => upper[4 * row + t],
                _ => lower[4 * (row - 8) + t],
            });
            for element in 0..E::COUNT {
                let column = &mut a[E::COUNT * (4 * pair + t) + element];
                for row in 0..ROWS {
                    column[row] = E::get(registers[row], element);
                }
            }
        }
    }
    a
}

/// Reads `B` as a list of rows.
#[inline(always)]
fn gather_b<E: Element>(m: &ExecutionContext<'_>, slots: &[u32]) -> [[E::Value; COLUMNS]; MAX_DEPTH] {
    let mut b = [[E::Value::default(); COLUMNS]; MAX_DEPTH];
    for (r, &slot) in slots.iter().enumerate() {
        let values = m.warp.regs.lanes::<u32>(slot);
        for t in 0..4 {
            let registers: [u32; COLUMNS] = std::array::from_fn(|column| values[4 * column + t]);
            for element in 0..E::COUNT {
                let row = &mut b[E::COUNT * (4 * r + t) + element];
                for column in 0..COLUMNS {
                    row[column] = E::get(registers[column], element);
                }
            }
        }
    }
    b
}

/// `sums + A · B`.
#[inline(always)]
fn product<EA: Element<Value = V>, EB: Element<Value = V>, V: Value>(
    m: &ExecutionContext<'_>,
    (a, b): (&[u32], &[u32]),
    mut sums: [[V; COLUMNS]; ROWS],
) -> [[V; COLUMNS]; ROWS] {
    // Number of rows whose sums fit into the vector registers of the CPU.
    const BLOCK: usize = 8;
    let depth = EA::COUNT * 2 * a.len();
    let (a, b) = (gather_a::<EA>(m, a), gather_b::<EB>(m, b));
    for block in 0..ROWS / BLOCK {
        let rows: &mut [[V; COLUMNS]] = &mut sums[block * BLOCK..(block + 1) * BLOCK];
        let mut local: [[V; COLUMNS]; BLOCK] = std::array::from_fn(|row| rows[row]);
        for k in 0..depth {
            for row in 0..BLOCK {
                for column in 0..COLUMNS {
                    local[row][column] =
                        local[row][column].multiply_add(a[k][block * BLOCK + row], b[k][column]);
                }
            }
        }
        rows.copy_from_slice(&local);
    }
    sums
}

/// Row and column of accumulator `index` of a lane.
#[inline(always)]
fn place(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + 8 * (index >> 1), 2 * (lane % 4) + (index & 1))
}

/// 8-bit element type.
pub(crate) trait Bytes: Element<Value = f32> {
    const SIGNED: bool;
}

impl Bytes for Signed8 {
    const SIGNED: bool = true;
}

impl Bytes for Unsigned8 {
    const SIGNED: bool = false;
}

/// `D = A · B + C` of 8-bit integers, with `RA` registers of `A` per lane and half as many of `B`.
fn integer_mma<EA: Bytes, EB: Bytes, const RA: usize>() -> Exec {
    fn portable<EA: Bytes, EB: Bytes, const RA: usize>(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
        integer_sum::<RA>(m, i, |m, a, b| {
            let sums = product::<EA, EB, f32>(m, (a, b), Default::default());
            let sum = |index, lane| {
                let (row, column) = place(lane, index);
                sums[row][column] as i32
            };
            std::array::from_fn(|index| std::array::from_fn(|lane| sum(index, lane)))
        })
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn wide<EA: Bytes, EB: Bytes, const RA: usize>(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
        integer_sum::<RA>(m, i, |m, a, b| {
            let mut left = [m.warp.regs.lanes::<u32>(a[0]); RA];
            for (left, &slot) in left.iter_mut().zip(a) {
                *left = m.warp.regs.lanes(slot);
            }
            let right = [m.warp.regs.lanes(b[0]), m.warp.regs.lanes(b[b.len() - 1])];
            bytes::product((left, EA::SIGNED), (&right[..b.len()], EB::SIGNED))
        })
    }
    #[cfg(target_arch = "x86_64")]
    if crate::lanes::wide() {
        return wide::<EA, EB, RA>;
    }
    portable::<EA, EB, RA>
}

/// `D = product(A, B) + C`, where `product` gets the slots of `A` and `B`.
#[inline(always)]
fn integer_sum<const RA: usize>(
    m: &mut ExecutionContext<'_>,
    i: &Inst,
    product: impl Fn(&ExecutionContext<'_>, &[u32], &[u32]) -> [[i32; LANES]; ACCUMULATORS],
) -> Flow {
    if !whole_warp(m) {
        return Flow::Fault;
    }
    let list = m.launch.program.list(i.imm & !SATURATES);
    let (d, rest) = list.split_at(ACCUMULATORS);
    let (a, rest) = rest.split_at(RA);
    let (b, c) = rest.split_at(RA / 2);
    let mut totals = product(m, a, b);
    let saturates = i.imm & SATURATES != 0;
    for (totals, &c) in totals.iter_mut().zip(c) {
        let c = m.warp.regs.lanes::<i32>(c);
        for lane in 0..LANES {
            let (c, sum) = (c[lane], totals[lane]);
            totals[lane] = if saturates { c.saturating_add(sum) } else { c.wrapping_add(sum) };
        }
    }
    for (totals, &d) in totals.iter().zip(d) {
        *m.warp.regs.lanes_mut(d) = *totals;
    }
    Flow::Next
}

lane_loop! {
    /// `D = A · B + C` with single-precision accumulators.
    fn single_mma[E: Element<Value = f64>, const RA: usize][E, RA](m, i) {
        if !whole_warp(m) {
            return Flow::Fault;
        }
        let list = m.launch.program.list(i.imm);
        let (d, rest) = list.split_at(ACCUMULATORS);
        let (a, rest) = rest.split_at(RA);
        let (b, c) = rest.split_at(RA / 2);
        let mut sums = [[0.0; COLUMNS]; ROWS];
        for index in 0..ACCUMULATORS {
            let values = m.warp.regs.lanes::<f32>(c[index]);
            for lane in 0..LANES {
                let (row, column) = place(lane, index);
                sums[row][column] = values[lane] as f64;
            }
        }
        let sums = product::<E, E, f64>(m, (a, b), sums);
        for index in 0..ACCUMULATORS {
            let values = m.warp.regs.lanes_mut::<f32>(d[index]);
            for lane in 0..LANES {
                let (row, column) = place(lane, index);
                values[lane] = canonical(sums[row][column] as f32);
            }
        }
        Flow::Next
    }
}

lane_loop! {
    /// `D = A · B + C` with half-precision accumulators, two per register.
    fn half_mma[const RA: usize][RA](m, i) {
        if !whole_warp(m) {
            return Flow::Fault;
        }
        let list = m.launch.program.list(i.imm);
        let (d, rest) = list.split_at(ACCUMULATORS / 2);
        let (a, rest) = rest.split_at(RA);
        let (b, c) = rest.split_at(RA / 2);
        let mut sums = [[0.0; COLUMNS]; ROWS];
        for index in 0..ACCUMULATORS {
            let values = m.warp.regs.lanes::<u32>(c[index / 2]);
            for lane in 0..LANES {
                let (row, column) = place(lane, index);
                sums[row][column] = Half::get(values[lane], index & 1);
            }
        }
        let sums = product::<Half, Half, f64>(m, (a, b), sums);
        for half in 0..ACCUMULATORS / 2 {
            let values = m.warp.regs.lanes_mut::<u32>(d[half]);
            for lane in 0..LANES {
                let (row, column) = place(lane, 2 * half);
                let bits = |column: usize| F16::from_f64(sums[row][column]) as u32;
                values[lane] = bits(column) | bits(column + 1) << 16;
            }
        }
        Flow::Next
    }
}

lane_loop! {
    /// `mma.m8n8k4` of doubles. Lane `l` holds row `l / 4`, column `l mod 4` of `A`, row `l mod 4`, column `l / 4` of
    /// `B`, and two accumulators. Each sum is a chain of fused multiply-adds in the order of `k`.
    fn double_mma[][](m, i) {
        if !whole_warp(m) {
            return Flow::Fault;
        }
        let list = m.launch.program.list(i.imm);
        let a = *m.warp.regs.lanes::<f64>(list[2]);
        let b = *m.warp.regs.lanes::<f64>(list[3]);
        let mut totals = [4, 5].map(|c| *m.warp.regs.lanes::<f64>(list[c]));
        for (index, sums) in totals.iter_mut().enumerate() {
            for lane in 0..LANES {
                let (row, column) = (lane / 4, 2 * (lane % 4) + index);
                for k in 0..4 {
                    sums[lane] = a[4 * row + k].mul_add(b[4 * column + k], sums[lane]);
                }
            }
        }
        for index in 0..2 {
            *m.warp.regs.lanes_mut(list[index]) = totals[index];
        }
        Flow::Next
    }
}

/// Indices of the register slots of `ldmatrix` and `stmatrix`; slot 1 holds the address.
const ELEMENTS: [usize; 4] = [0, 2, 3, 4];
/// Rows of an 8 × 8 matrix, and bytes of a row.
const MATRIX_ROWS: usize = 8;
const ROW_BYTES: u64 = 16;

lane_loop! {
    /// `ldmatrix`: loads `N` matrices of 8 × 8 halves. Lane `8n + r` gives the address of row `r` of matrix `n`; lane
    /// `l` gets elements `2 · (l mod 4)` and `2 · (l mod 4) + 1` of row `l / 4`, or of column `l / 4` if
    /// [`TRANSPOSED`].
    fn load_matrix[const N: usize][N](m, i) {
        if !whole_warp(m) {
            return Flow::Fault;
        }
        let plain = Inst { imm: i.imm & !TRANSPOSED, ..*i };
        m.active = u32::MAX >> (LANES - N * MATRIX_ROWS);
        let resolved = resolve(m, &plain, ROW_BYTES, Access::Load);
        m.active = u32::MAX;
        let pointers: [*mut u8; LANES] = match resolved {
            Resolved::Run(start) => {
                std::array::from_fn(|lane| start.wrapping_add(lane * ROW_BYTES as usize))
            }
            Resolved::Same(start) => [start; LANES],
            Resolved::Lanes(pointers) => pointers,
            Resolved::Fault => return Flow::Fault,
        };
        for matrix in 0..N {
            let mut rows = [[0u16; MATRIX_ROWS]; MATRIX_ROWS];
            for row in 0..MATRIX_ROWS {
                // SAFETY: `resolve` checked 16 bytes at the pointer of each of the first `8 N` lanes.
                rows[row] = unsafe { pointers[matrix * MATRIX_ROWS + row].cast::<[u16; 8]>().read_unaligned() };
            }
            let mut d = [0u32; LANES];
            for lane in 0..LANES {
                let (outer, inner) = (lane / 4, 2 * (lane % 4));
                let (low, high) = if i.imm & TRANSPOSED != 0 {
                    (rows[inner][outer], rows[inner + 1][outer])
                } else {
                    (rows[outer][inner], rows[outer][inner + 1])
                };
                d[lane] = super::half::pack(low, high);
            }
            *m.warp.regs.lanes_mut(i.slots[ELEMENTS[matrix]]) = d;
        }
        Flow::Next
    }
}

lane_loop! {
    /// `stmatrix`: stores `N` matrices of 8 × 8 halves, the reverse of [`load_matrix`].
    fn store_matrix[const N: usize][N](m, i) {
        if !whole_warp(m) {
            return Flow::Fault;
        }
        let mut rows = [[0u16; MATRIX_ROWS]; LANES];
        for matrix in 0..N {
            let values = m.warp.regs.lanes::<u32>(i.slots[ELEMENTS[matrix]]);
            for lane in 0..LANES {
                let (outer, inner) = (lane / 4, 2 * (lane % 4));
                for (half, value) in [values[lane] as u16, (values[lane] >> 16) as u16].into_iter().enumerate() {
                    let (row, column) = match i.imm & TRANSPOSED {
                        0 => (outer, inner + half),
                        _ => (inner + half, outer),
                    };
                    rows[matrix * MATRIX_ROWS + row][column] = value;
                }
            }
        }
        let plain = Inst { imm: i.imm & !TRANSPOSED, ..*i };
        m.active = u32::MAX >> (LANES - N * MATRIX_ROWS);
        let pointers: [*mut u8; LANES] = match resolve(m, &plain, ROW_BYTES, Access::Store) {
            Resolved::Run(start) => {
                std::array::from_fn(|lane| start.wrapping_add(lane * ROW_BYTES as usize))
            }
            Resolved::Same(start) => [start; LANES],
            Resolved::Lanes(pointers) => pointers,
            Resolved::Fault => return Flow::Fault,
        };
        if m.cluster.races.is_some() && !races::collision(m, &pointers, &rows) {
            return Flow::Fault;
        }
        m.active = u32::MAX;
        for row in 0..N * MATRIX_ROWS {
            // SAFETY: `resolve` checked 16 bytes at the pointer of each of the first `8 N` lanes.
            unsafe { pointers[row].cast::<[u16; 8]>().write_unaligned(rows[row]) };
        }
        Flow::Next
    }
}

/// Flag in `imm` of `ldmatrix` and `stmatrix`: `.trans`. The other bits are the address offset; shared addresses do not
/// reach bit 63.
const TRANSPOSED: u64 = 1 << 63;

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if !op.take("sync") || !op.take("aligned") {
        return Err(op.unsupported());
    }
    match op.opcode() {
        "ldmatrix" => decode_rows(op, Access::Load),
        "stmatrix" => decode_rows(op, Access::Store),
        _ => decode_mma(op),
    }
}

/// Decodes `ldmatrix` and `stmatrix`.
fn decode_rows(op: &mut InstructionCursor<'_, '_>, access: Access) -> Result<Exec, ParseError> {
    let shape = op.take("m8n8");
    let count = op.take_any(&[("x1", 1), ("x2", 2), ("x4", 4)]);
    let transposed = op.take("trans");
    let space = take_space(op);
    let half = op.take_ty()? == Ty::B16;
    let (true, Some(count), true) = (shape, count, half) else { return Err(op.unsupported()) };
    if !matches!(space, StateSpace::Shared | StateSpace::Generic) {
        return Err(op.unsupported());
    }
    let loads = access == Access::Load;
    let registers = vector(op, !loads as usize)?;
    if registers.len() != count {
        return Err(op.error(format!("the vector of `{}` must have {count} registers", op.text())));
    }
    for (index, register) in registers.iter().enumerate() {
        op.slots[ELEMENTS[index]] = match register {
            Operand::Reg(register) if loads => op.write_register(*register, Width::W32)?,
            _ if loads => return Err(op.unsupported()),
            value => op.value(value, Ty::B32)?,
        };
    }
    address_operand(op, loads as usize, space, 0)?;
    op.imm = op.imm & !TRANSPOSED | if transposed { TRANSPOSED } else { 0 };
    Ok(match (access, count) {
        (Access::Load, 1) => load_matrix::<1>(),
        (Access::Load, 2) => load_matrix::<2>(),
        (Access::Load, _) => load_matrix::<4>(),
        (_, 1) => store_matrix::<1>(),
        (_, 2) => store_matrix::<2>(),
        _ => store_matrix::<4>(),
    })
}

/// Elements of operand `index`: those of `{a, b}`, or the operand itself.
pub(crate) fn vector<'f>(
    op: &mut InstructionCursor<'_, 'f>,
    index: usize,
) -> Result<&'f [Operand], ParseError> {
    Ok(match op.operand(index)? {
        Operand::Vector(elements) => elements,
        single => std::slice::from_ref(single),
    })
}

/// Decodes `mma.m8n8k4` of doubles.
fn decode_double(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let layouts = op.take("row") && op.take("col");
    op.take("rn");
    for _ in 0..4 {
        if op.take_ty()? != Ty::F64 || !layouts {
            return Err(op.unsupported());
        }
    }
    let mut list = Vec::new();
    for (index, count) in [2, 1, 1, 2].into_iter().enumerate() {
        let elements = vector(op, index)?;
        if elements.len() != count {
            return Err(op.error(format!(
                "operand {} of `{}` must have {count} registers",
                index + 1,
                op.text()
            )));
        }
        for element in elements {
            list.push(match element {
                Operand::Reg(register) if index == D => op.write_register(*register, Width::W64)?,
                _ if index == D => return Err(op.unsupported()),
                value => op.value(value, Ty::F64)?,
            });
        }
    }
    op.imm = op.list(list);
    Ok(double_mma())
}

fn decode_mma(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if op.take("m8n8k4") {
        return decode_double(op);
    }
    let shapes = [("m16n8k4", 4), ("m16n8k8", 8), ("m16n8k16", 16), ("m16n8k32", 32)];
    let depth = op.take_any(&shapes);
    let (true, true, Some(depth)) = (op.take("row"), op.take("col"), depth) else {
        return Err(op.unsupported());
    };
    let saturates = op.take("satfinite");
    let types = [op.take_ty()?, op.take_ty()?, op.take_ty()?, op.take_ty()?];
    use Ty::{Bf16, F16, F32, S8, S32, U8};
    let (exec, registers, accumulators) = match (depth, types) {
        (32, [S32, S8, S8, S32]) => (integer_mma::<Signed8, Signed8, 4>(), 4, 4),
        (32, [S32, S8, U8, S32]) => (integer_mma::<Signed8, Unsigned8, 4>(), 4, 4),
        (32, [S32, U8, S8, S32]) => (integer_mma::<Unsigned8, Signed8, 4>(), 4, 4),
        (32, [S32, U8, U8, S32]) => (integer_mma::<Unsigned8, Unsigned8, 4>(), 4, 4),
        (16, [S32, S8, S8, S32]) => (integer_mma::<Signed8, Signed8, 2>(), 2, 4),
        (16, [S32, S8, U8, S32]) => (integer_mma::<Signed8, Unsigned8, 2>(), 2, 4),
        (16, [S32, U8, S8, S32]) => (integer_mma::<Unsigned8, Signed8, 2>(), 2, 4),
        (16, [S32, U8, U8, S32]) => (integer_mma::<Unsigned8, Unsigned8, 2>(), 2, 4),
        (16, [F32, F16, F16, F32]) => (single_mma::<Half, 4>(), 4, 4),
        (8, [F32, F16, F16, F32]) => (single_mma::<Half, 2>(), 2, 4),
        (16, [F32, Bf16, Bf16, F32]) => (single_mma::<Brain, 4>(), 4, 4),
        (8, [F32, Bf16, Bf16, F32]) => (single_mma::<Brain, 2>(), 2, 4),
        (8, [F32, Ty::Tf32, Ty::Tf32, F32]) => (single_mma::<Tf32, 4>(), 4, 4),
        (4, [F32, Ty::Tf32, Ty::Tf32, F32]) => (single_mma::<Tf32, 2>(), 2, 4),
        (16, [F16, F16, F16, F16]) => (half_mma::<4>(), 4, 2),
        (8, [F16, F16, F16, F16]) => (half_mma::<2>(), 2, 2),
        _ => return Err(op.unsupported()),
    };
    if saturates && types[0] != S32 {
        return Err(op.unsupported());
    }
    let mut list = Vec::new();
    let counts = [accumulators, registers, registers / 2, accumulators];
    for (index, count) in counts.into_iter().enumerate() {
        let elements = vector(op, index)?;
        if elements.len() != count {
            return Err(op.error(format!(
                "operand {} of `{}` must have {count} registers",
                index + 1,
                op.text()
            )));
        }
        for element in elements {
            let slot = match element {
                Operand::Reg(register) if index == D => op.write_register(*register, Width::W32)?,
                _ if index == D => return Err(op.unsupported()),
                value => op.value(value, Ty::B32)?,
            };
            list.push(slot);
        }
    }
    op.imm = op.list(list) | if saturates { SATURATES } else { 0 };
    Ok(exec)
}
