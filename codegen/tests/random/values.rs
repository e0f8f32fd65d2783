//! Results of instructions as defined by the IR and PTX, for the interpreter. Shares no code with the passes.

use bespoke_codegen::ir::{Binary, Compare, Op, Rounding, Type, Unary};
use half::{bf16, f16};

/// Integer value of the raw bits of type `ty`.
pub fn number(ty: Type, bits: u64) -> i128 {
    let value = i128::from(bits & ty.mask());
    if ty.is_signed() && value >> (ty.bits() - 1) == 1 { value - (1i128 << ty.bits()) } else { value }
}

/// Value of a scalar float, given its raw bits.
fn real(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::F16 => f16::from_bits(bits as u16).into(),
        Type::Bf16 => bf16::from_bits(bits as u16).into(),
        _ => f32::from_bits(bits as u32).into(),
    }
}

/// Properties of a float type: precision in bits, exponent of the least number, raw bits of the greatest number.
fn format(ty: Type) -> (i32, i32, u64) {
    match ty {
        Type::F16 => (11, -24, 0x7bff),
        Type::Bf16 => (8, -133, 0x7f7f),
        _ => (24, -149, 0x7f7f_ffff),
    }
}

/// Rounds a value, which is exact or rounded to odd, to a float type. A NaN becomes the NaN that arithmetic returns.
fn rounded(ty: Type, x: f64, rounding: Rounding) -> u64 {
    let (digits, least, greatest) = format(ty);
    let exact = |x: f64| -> u64 {
        match ty {
            Type::F16 => f16::from_f32(x as f32).to_bits().into(),
            Type::Bf16 => bf16::from_f32(x as f32).to_bits().into(),
            _ => (x as f32).to_bits().into(),
        }
    };
    if x.is_nan() {
        return ty.mask() >> 1;
    }
    if x == 0.0 || x.is_infinite() {
        return exact(x);
    }
    // Subnormal numbers are multiples of the least number.
    let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
    let unit = 2f64.powi((exponent + 1 - digits).max(least));
    let units = x / unit;
    let (units, away) = match rounding {
        Rounding::Nearest => (units.round_ties_even(), true),
        Rounding::Zero => (units.trunc(), false),
        Rounding::Down => (units.floor(), x < 0.0),
        Rounding::Up => (units.ceil(), x > 0.0),
    };
    let (result, greatest) = ((units * unit).copysign(x), real(ty, greatest));
    if result.abs() <= greatest {
        return exact(result);
    }
    exact(if away { f64::INFINITY } else { greatest }.copysign(x))
}

/// Rounds `sum` to odd: sets its last bit if the error is not zero.
fn odd(sum: f64, error: f64) -> f64 {
    if error == 0.0 || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// The sum `a + b`, rounded to odd.
fn sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    odd(sum, (a - (sum - part)) + (b - part))
}

fn nearest(ty: Type, x: f64) -> u64 {
    rounded(ty, x, Rounding::Nearest)
}

/// Results of an opcode on operands given by type and raw bits; none if they are undefined.
pub fn compute(op: Op, ty: Type, args: &[(Type, u64)]) -> Option<Vec<u64>> {
    if let (Some(half), Op::Unary(_) | Op::Binary(_) | Op::MulAdd) = (ty.half(), op) {
        let part = |shift: u32| {
            let parts: Vec<_> = args.iter().map(|&(_, bits)| (half, bits >> shift & 0xffff)).collect();
            Some(compute(op, half, &parts)?[0])
        };
        return Some(vec![part(16)? << 16 | part(0)?]);
    }
    let bits = |index: usize| args[index].1;
    let int = |index: usize| number(ty, bits(index));
    let word = |index: usize| bits(index) as u32;
    let result = match op {
        Op::Const(bits) => bits,
        Op::Select => bits(if bits(0) != 0 { 1 } else { 2 }),
        Op::Bitcast => bits(0),
        Op::Unary(unary) if ty.is_float() => float_unary(unary, ty, bits(0)),
        Op::Unary(unary) => int_unary(unary, ty, bits(0)),
        Op::Binary(binary) if ty.is_float() => float_binary(binary, ty, bits(0), bits(1))?,
        Op::Binary(binary) => int_binary(binary, ty, bits(0), bits(1)),
        Op::MulAdd if ty == Type::F32 => {
            let [a, b, c] = [0, 1, 2].map(|index| f32::from_bits(word(index)));
            nearest(ty, a.mul_add(b, c).into())
        }
        Op::MulAdd if ty.is_float() => {
            nearest(ty, sum(real(ty, bits(0)) * real(ty, bits(1)), real(ty, bits(2))))
        }
        Op::MulAdd => bits(0).wrapping_mul(bits(1)).wrapping_add(bits(2)),
        Op::MulWide => int(0).wrapping_mul(int(1)) as u64,
        Op::Compare(compare) if ty.is_float() => {
            test(compare, real(ty, bits(0)).partial_cmp(&real(ty, bits(1))))
        }
        Op::Compare(compare) => test(compare, Some(int(0).cmp(&int(1)))),
        Op::Convert { rounding, saturate } => convert(args[0], ty, rounding, saturate),
        Op::Lop3(table) => (0..32).fold(0, |result, bit| {
            let row = args.iter().fold(0, |row, (_, arg)| row << 1 | arg >> bit & 1);
            result | u64::from(table >> row & 1) << bit
        }),
        Op::Prmt => {
            let bytes = [word(0).to_le_bytes(), word(1).to_le_bytes()].concat();
            let pick = |index: u32| {
                let select = (word(2) >> (4 * index)) as usize;
                let byte = bytes[select & 7];
                if select & 8 == 0 { byte } else { [0, 255][usize::from(byte >> 7)] }
            };
            u32::from_le_bytes([0, 1, 2, 3].map(pick)).into()
        }
        Op::BitField => return bit_field(ty, bits(0), word(1), word(2)).map(|field| vec![field]),
        Op::BitInsert => {
            let (position, length) = (word(2), word(3));
            if ty.bits() == 64 && (position > 255 || length > 255) {
                return None;
            }
            let (position, length) = (position & 255, length & 255);
            (0..ty.bits()).fold(bits(1), |result, bit| match bit.checked_sub(position) {
                Some(from) if from < length => (result & !(1 << bit)) | ((bits(0) >> from & 1) << bit),
                _ => result,
            })
        }
        // The result is undefined for positions above the top bit.
        Op::NthSetBit if word(1) > 31 => return None,
        Op::NthSetBit => {
            let set = |bit: &u32| word(0) >> bit & 1 == 1;
            let found = match number(Type::I32, bits(2)) {
                0 => Some(word(1)).filter(set),
                n @ 1.. => (word(1)..32).filter(set).nth(n as usize - 1),
                n => (0..=word(1)).rev().filter(set).nth(n.unsigned_abs() as usize - 1),
            };
            found.unwrap_or(u32::MAX).into()
        }
        Op::Funnel { left } => {
            let (pair, by) = (bits(1) << 32 | bits(0), bits(2) & 31);
            if left { pair << by >> 32 } else { pair >> by }
        }
        Op::Dp4a { a_signed, b_signed } => dot(word(0), word(1), bits(2), 4, (8, a_signed), b_signed),
        Op::Dp2a { a_signed, b_signed, high } => {
            dot(word(0), word(1) >> if high { 16 } else { 0 }, bits(2), 2, (16, a_signed), b_signed)
        }
        Op::Pack => bits(1) << (ty.bits() / 2) | bits(0),
        Op::ConvertPack => {
            let half = ty.half()?;
            let part = |index| nearest(half, real(Type::F32, bits(index)));
            part(1) << 16 | part(0)
        }
        Op::Unpack => return Some(vec![bits(0) & ty.mask(), bits(0) >> ty.bits() & ty.mask()]),
        _ => return None,
    };
    Some(vec![result])
}

fn float_unary(unary: Unary, ty: Type, bits: u64) -> u64 {
    let x = real(ty, bits);
    // An approximation is the number nearest to the exact result.
    nearest(
        ty,
        match unary {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Rcp | Unary::RcpApprox => 1.0 / x,
            Unary::Sqrt | Unary::SqrtApprox => x.sqrt(),
            Unary::RoundEven => x.round_ties_even(),
            Unary::Trunc => x.trunc(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Exp2 => x.exp2(),
            Unary::Log2 => x.log2(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tanh => x.tanh(),
            Unary::Not | Unary::Popc | Unary::Clz | Unary::Brev => unreachable!("{unary} of a float"),
        },
    )
}

fn int_unary(unary: Unary, ty: Type, bits: u64) -> u64 {
    let unused = 64 - ty.bits();
    match unary {
        Unary::Neg => bits.wrapping_neg(),
        Unary::Not => !bits,
        Unary::Abs => number(ty, bits).unsigned_abs() as u64,
        Unary::Popc => bits.count_ones().into(),
        Unary::Clz => (bits.leading_zeros() - unused).into(),
        Unary::Brev => bits.reverse_bits() >> unused,
        _ => unreachable!("{unary} of an integer"),
    }
}

fn float_binary(binary: Binary, ty: Type, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (real(ty, a), real(ty, b));
    Some(match binary {
        Binary::Add => nearest(ty, sum(x, y)),
        Binary::Sub => nearest(ty, sum(x, -y)),
        Binary::Mul => nearest(ty, x * y),
        Binary::Div => nearest(ty, (f32::from_bits(a as u32) / f32::from_bits(b as u32)).into()),
        Binary::Min | Binary::Max => {
            let less = x < y || (x == y && x.is_sign_negative());
            let chosen = match (x.is_nan(), y.is_nan()) {
                (true, _) => b,
                (_, true) => a,
                _ => [b, a][usize::from(less == (binary == Binary::Min))],
            };
            nearest(ty, real(ty, chosen))
        }
        Binary::CopySign => {
            let sign = 1 << (ty.bits() - 1);
            a & !sign | b & sign
        }
        // The approximation of a quotient depends on the divisor.
        Binary::DivApprox => return None,
        _ => unreachable!("{binary} of floats"),
    })
}

fn int_binary(binary: Binary, ty: Type, a: u64, b: u64) -> u64 {
    let (x, y) = (number(ty, a), number(ty, b));
    match binary {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::MulHi => (x.wrapping_mul(y) >> ty.bits()) as u64,
        // Division by zero is unspecified; this is the result of devices.
        Binary::Div | Binary::Rem if y == 0 => u64::MAX,
        Binary::Div => (x / y) as u64,
        Binary::Rem => (x % y) as u64,
        Binary::Min => x.min(y) as u64,
        Binary::Max => x.max(y) as u64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a.checked_shl(b as u32).unwrap_or(0),
        Binary::Shr => (x >> b.min(100)) as u64,
        Binary::DivApprox | Binary::CopySign => unreachable!("{binary} of integers"),
    }
}

fn convert((from, bits): (Type, u64), to: Type, rounding: Rounding, saturate: bool) -> u64 {
    let limit = 1i128 << (to.bits() - u32::from(to.is_signed()));
    let (low, high) = (if to.is_signed() { -limit } else { 0 }, limit - 1);
    match (from.is_float(), to.is_float()) {
        (false, false) if saturate => number(from, bits).clamp(low, high) as u64,
        (false, false) => number(from, bits) as u64,
        // An integer out of range becomes the nearest representable integer.
        (true, false) => {
            let x = real(from, bits);
            let whole = match rounding {
                Rounding::Nearest => x.round_ties_even(),
                Rounding::Zero => x.trunc(),
                Rounding::Down => x.floor(),
                Rounding::Up => x.ceil(),
            };
            let of_nan = if to.bits() == 64 { 1 << 63 } else { 0 };
            if x.is_nan() { of_nan } else { (whole as i128).clamp(low, high) as u64 }
        }
        (false, true) => {
            let whole = number(from, bits);
            let near = whole as f64;
            let x = odd(near, (whole - near as i128) as f64);
            rounded(to, if saturate { x.clamp(0.0, 1.0) } else { x }, rounding)
        }
        (true, true) if saturate => {
            let x = real(from, bits);
            rounded(to, if x > 0.0 { x.min(1.0) } else { 0.0 }, rounding)
        }
        (true, true) if from == to => bits,
        // bf16 is the upper half of f32.
        (true, true) if (from, to) == (Type::Bf16, Type::F32) => bits << 16,
        (true, true) => rounded(to, real(from, bits), rounding),
    }
}

/// PTX `bfe` with position and length modulo 256; none for 64-bit fields where devices differ.
fn bit_field(ty: Type, value: u64, position: u32, length: u32) -> Option<u64> {
    if ty.bits() == 64 && (position > 255 || length > 255) {
        return None;
    }
    let (position, length) = (position & 255, length & 255);
    let value = number(ty, value);
    if length == 0 {
        return Some(0);
    }
    let field = value >> position.min(100);
    let unused = 128 - length.min(100);
    Some(if ty.is_signed() { field << unused >> unused } else { field & ((1 << length.min(100)) - 1) } as u64)
}

fn dot(a: u32, b: u32, c: u64, parts: u32, (width, a_signed): (u32, bool), b_signed: bool) -> u64 {
    let part = |word: u32, index: u32, width: u32, signed: bool| {
        let unused = 64 - width;
        let value = i64::from(word >> (width * index)) << unused;
        if signed { value >> unused } else { (value as u64 >> unused) as i64 }
    };
    (0..parts).fold(c, |sum, index| {
        let product = part(a, index, width, a_signed) * part(b, index, 8, b_signed);
        sum.wrapping_add(product as u64)
    })
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
