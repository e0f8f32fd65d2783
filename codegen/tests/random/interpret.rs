//! A reference interpreter of one thread for what the generator writes. It shares no code with the passes.
//!
//! Memory that is read is a function of address and type, so that wrong addresses show as wrong values; stores are
//! recorded. NaNs are all one.

use std::collections::HashMap;

use bespoke_codegen::ir::{Binary, Block, Compare, Function, InstData, Op, Special, Type, Unary, Value};
use half::f16;

/// Address, type and bits of every store, in order.
pub type Trace = Vec<(u64, Type, u64)>;

/// Where the pointer parameter points.
const BASE: u64 = 0x7000_0000_0000;
/// No kernel of the generator runs for longer.
const MAX_STEPS: usize = 2_000_000;

/// Runs the kernel with `tid.x`, the scalar parameter and the seed of memory.
pub fn run(function: &Function, [tid, scalar, seed]: [u64; 3]) -> Trace {
    let mut thread = Thread { function, values: HashMap::new(), trace: Vec::new(), tid, scalar, seed };
    let mut block = function.layout[0];
    let mut steps = 0;
    loop {
        steps += function.block(block).insts.len();
        assert!(steps < MAX_STEPS, "the kernel does not end");
        match thread.block(block) {
            Some(next) => block = next,
            None => return thread.trace,
        }
    }
}

struct Thread<'a> {
    function: &'a Function,
    values: HashMap<Value, u64>,
    trace: Trace,
    tid: u64,
    scalar: u64,
    seed: u64,
}

impl Thread<'_> {
    fn block(&mut self, block: Block) -> Option<Block> {
        let function = self.function;
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            let taken = match data.op {
                Op::Return => return None,
                Op::Jump => 0,
                Op::Branch => usize::from(self.values[&data.args[0]] == 0),
                _ => {
                    self.step(data);
                    continue;
                }
            };
            let dest = &data.dests[taken];
            let args: Vec<u64> = dest.args.iter().map(|arg| self.values[arg]).collect();
            self.values.extend(function.block(dest.block).params.iter().copied().zip(args));
            return Some(dest.block);
        }
        panic!("{block} does not end")
    }

    fn step(&mut self, data: &InstData) {
        let args: Vec<u64> = data.args.iter().map(|arg| self.values[arg]).collect();
        if let Op::Store(access) = data.op {
            return self.trace.push((args[0].wrapping_add(access.offset as u64), data.ty, args[1]));
        }
        let from = data.args.first().map_or(Type::U32, |&arg| self.function.value_type(arg));
        let last = data.args.last().map_or(Type::U32, |&arg| self.function.value_type(arg));
        let bits = match data.op {
            Op::Param(0) => BASE,
            Op::Param(_) => self.scalar,
            Op::Special(Special::TidX) => self.tid,
            Op::Load(access) => self.memory(args[0].wrapping_add(access.offset as u64), data.ty),
            Op::PtrAdd if last.is_signed() => args[0].wrapping_add(signed(last, args[1]) as u64),
            Op::PtrAdd => args[0].wrapping_add(args[1]),
            Op::Convert { saturate, .. } => convert(from, data.ty, args[0], saturate),
            op => compute(op, data.ty, &args),
        };
        let ty = self.function.value_type(data.results[0]);
        self.values.insert(data.results[0], one_nan(ty, bits & mask(ty)));
    }

    fn memory(&self, address: u64, ty: Type) -> u64 {
        let mut z = address ^ self.seed << 56 ^ (ty as u64) << 50;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // Every other float is one of those that rules go wrong on: the zeros, infinity, NaN.
        let top = ty.bits() - 1;
        match z >> 60 {
            0..8 if ty.is_float() => {
                [1 << top, 0, 0x7f80 << top >> 15, 0x7fff << top >> 15][(z >> 60 & 3) as usize]
            }
            _ => z,
        }
    }
}

fn mask(ty: Type) -> u64 {
    if ty.bits() == 64 { u64::MAX } else { (1 << ty.bits()) - 1 }
}

fn one_nan(ty: Type, bits: u64) -> u64 {
    match ty {
        Type::F32 if f32::from_bits(bits as u32).is_nan() => 0x7fff_ffff,
        Type::F16 if f16::from_bits(bits as u16).is_nan() => 0x7fff,
        _ => bits,
    }
}

fn signed(ty: Type, bits: u64) -> i128 {
    let value = i128::from(bits & mask(ty));
    if ty.is_signed() && value >> (ty.bits() - 1) == 1 { value - (1i128 << ty.bits()) } else { value }
}

fn float(ty: Type, bits: u64) -> f32 {
    if ty == Type::F16 { f16::from_bits(bits as u16).to_f32() } else { f32::from_bits(bits as u32) }
}

/// Rounds what is exact in f32, or was rounded to it harmlessly.
fn bits_of(ty: Type, value: f32) -> u64 {
    if ty == Type::F16 { f16::from_f32(value).to_bits().into() } else { value.to_bits().into() }
}

fn convert(from: Type, to: Type, bits: u64, saturate: bool) -> u64 {
    if from.is_float() {
        return bits_of(to, float(from, bits));
    }
    let value = signed(from, bits);
    match to {
        Type::F32 => (value as f32).to_bits().into(),
        // All that does not overflow is exact in f32.
        Type::F16 => f16::from_f32(value.clamp(-100_000, 100_000) as f32).to_bits().into(),
        _ if saturate && to.is_signed() => {
            let limit = 1i128 << (to.bits() - 1);
            value.clamp(-limit, limit - 1) as u64
        }
        _ if saturate => value.clamp(0, i128::from(mask(to))) as u64,
        _ => value as u64,
    }
}

fn compute(op: Op, ty: Type, args: &[u64]) -> u64 {
    let n = |index: usize| signed(ty, args[index]);
    let f = |index: usize| float(ty, args[index]);
    match op {
        Op::Const(bits) => bits,
        Op::Select => args[if args[0] != 0 { 1 } else { 2 }],
        Op::MulAdd if ty == Type::F32 => f(0).mul_add(f(1), f(2)).to_bits().into(),
        Op::MulAdd => args[0].wrapping_mul(args[1]).wrapping_add(args[2]),
        Op::MulWide => n(0).wrapping_mul(n(1)) as u64,
        Op::Compare(compare) if ty.is_float() => test(compare, f(0).partial_cmp(&f(1))),
        Op::Compare(compare) => test(compare, Some(n(0).cmp(&n(1)))),
        Op::Unary(unary) => match unary {
            Unary::Neg if ty.is_float() => args[0] ^ 1 << (ty.bits() - 1),
            Unary::Neg => args[0].wrapping_neg(),
            Unary::Not => !args[0],
            Unary::Popc => args[0].count_ones().into(),
            Unary::Clz => (args[0] as u32).leading_zeros().into(),
            Unary::Brev => (args[0] as u32).reverse_bits().into(),
            _ => unreachable!("{unary}"),
        },
        Op::Binary(binary) if ty.is_float() => bits_of(ty, float_binary(binary, f(0), f(1))),
        Op::Binary(binary) => int_binary(binary, ty, args[0], args[1]),
        Op::Lop3(table) => (0..32).fold(0, |result, bit| {
            let index = args.iter().fold(0, |index, arg| index << 1 | arg >> bit & 1);
            result | u64::from(table >> index & 1) << bit
        }),
        Op::Prmt => {
            let bytes = [(args[0] as u32).to_le_bytes(), (args[1] as u32).to_le_bytes()].concat();
            let pick = |index: u32| {
                let select = (args[2] >> (4 * index)) as usize;
                let byte = bytes[select & 7];
                if select & 8 == 0 { byte } else { [0, 255][usize::from(byte >> 7)] }
            };
            u32::from_le_bytes([0, 1, 2, 3].map(pick)).into()
        }
        Op::Funnel { left: true } => {
            let (low, high, by) = (args[0] as u32, args[1] as u32, args[2] as u32 % 32);
            u64::from(high << by | low.checked_shr(32 - by).unwrap_or(0))
        }
        Op::Dp4a { .. } => (0..4).fold(args[2], |sum, i| {
            let (a, b) = ((args[0] >> (8 * i)) as i8, (args[1] >> (8 * i)) as u8);
            sum.wrapping_add((i64::from(a) * i64::from(b)) as u64)
        }),
        Op::BitField => {
            let (position, length) = (args[1] as u8, args[2] as u8);
            let value = signed(ty, args[0]) << 64 >> 64 >> position.min(100);
            match length {
                0 => 0,
                1..=63 => ((value << (128 - u32::from(length))) >> (128 - u32::from(length))) as u64,
                _ => value as u64,
            }
        }
        _ => unreachable!("{op:?}"),
    }
}

fn test(compare: Compare, ordering: Option<std::cmp::Ordering>) -> u64 {
    let Some(ordering) = ordering else { return u64::from(compare == Compare::Ne) };
    u64::from(match compare {
        Compare::Eq => ordering.is_eq(),
        Compare::Ne => ordering.is_ne(),
        Compare::Lt => ordering.is_lt(),
        Compare::Le => ordering.is_le(),
        Compare::Gt => ordering.is_gt(),
        Compare::Ge => ordering.is_ge(),
    })
}

fn float_binary(binary: Binary, a: f32, b: f32) -> f32 {
    let less = a < b || (a == b && a.is_sign_negative());
    match binary {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min | Binary::Max if a.is_nan() => b,
        Binary::Min | Binary::Max if b.is_nan() => a,
        Binary::Min => [b, a][usize::from(less)],
        Binary::Max => [a, b][usize::from(less)],
        _ => unreachable!("{binary}"),
    }
}

fn int_binary(binary: Binary, ty: Type, a: u64, b: u64) -> u64 {
    let (x, y) = (signed(ty, a), signed(ty, b));
    match binary {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div if y == 0 => u64::MAX,
        Binary::Rem if y == 0 => a,
        Binary::Div => (x / y) as u64,
        Binary::Rem => (x % y) as u64,
        Binary::Min => x.min(y) as u64,
        Binary::Max => x.max(y) as u64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a.checked_shl(b as u32).unwrap_or(0),
        Binary::Shr => (x >> b.min(100)) as u64,
        Binary::MulHi | Binary::DivApprox => unreachable!("{binary}"),
    }
}
