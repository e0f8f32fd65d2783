//! Random numbers, with a preference for edge cases.

use bespoke_codegen::ir::Type;

/// SplitMix64 random number generator (Steele, Lea and Flood, 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n.max(1))) as u32
    }

    /// True with probability 1 / n.
    pub fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }
}

/// Raw bits of a random number of the type, often an edge case.
pub fn bits(random: &mut Random, ty: Type) -> u64 {
    if let Some(half) = ty.half() {
        return (bits(random, half) << 16) | bits(random, half);
    }
    let (top, any) = (ty.bits() - 1, random.next());
    let bits = if ty.is_float() {
        // Non-negative bit patterns: zero, subnormal numbers, one and its neighbours, infinity, NaNs, small whole
        // numbers.
        let one: u64 = match ty {
            Type::F16 => 0x3c00,
            Type::Bf16 => 0x3f80,
            _ => 0x3f80_0000,
        };
        let infinity: u64 = match ty {
            Type::F16 => 0x7c00,
            Type::Bf16 => 0x7f80,
            _ => 0x7f80_0000,
        };
        let unit = match ty {
            Type::F16 => 1 << 10,
            Type::Bf16 => 1 << 7,
            _ => 1u64 << 23,
        };
        let few = u64::from(random.below(9));
        let edges = [
            0,
            0,
            1,
            unit - 1,
            unit,
            one,
            one,
            one + 1,
            one - 1,
            one + unit,
            one + unit / 2,
            one + unit * few + unit / 4,
            one - unit * few,
            infinity,
            infinity - 1,
            infinity | 1,
            infinity | (unit / 2) | 5,
            any,
            any,
        ];
        random.pick(&edges) ^ (u64::from(random.once_in(3)) << top)
    } else {
        let power = 1 << random.below(top + 1);
        let mask = ty.mask();
        let few = u64::from(random.below(20));
        let edges = [
            0,
            1,
            2,
            3,
            few,
            few,
            few.wrapping_neg(),
            31,
            32,
            255,
            power,
            power - 1,
            mask,
            mask >> 1,
            1 << top,
            any,
        ];
        random.pick(&edges)
    };
    bits & ty.mask()
}

/// `count` random bytes that are edge cases of many types at many offsets.
pub fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    const TYPES: [Type; 7] =
        [Type::U64, Type::I64, Type::U32, Type::F32, Type::F16x2, Type::Bf16x2, Type::U8];
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        let ty = random.pick(&TYPES);
        for _ in 0..8 / ty.bytes() {
            bytes.extend(&self::bits(random, ty).to_le_bytes()[..ty.bytes() as usize]);
        }
    }
    bytes.truncate(count);
    bytes
}
