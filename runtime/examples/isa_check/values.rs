//! Operand values: edge values of each type, and random values.

use super::forms::Form;

/// Number of rows of operands for each form; a multiple of the warp size.
pub const ROWS: usize = 4096;

/// Floating-point formats: name, bits of the exponent, bits of the fraction.
const FORMATS: [(&str, u32, u32); 4] = [("f16", 5, 10), ("bf16", 8, 7), ("f32", 8, 23), ("f64", 11, 52)];

/// A generator of random bits (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn unit(&mut self) -> f64 {
        self.next() as i64 as f64 / 2f64.powi(63)
    }
}

fn integer_edges(bits: u32) -> Vec<u64> {
    let mask = u64::MAX >> (64 - bits);
    let top = 1u64 << (bits - 1);
    let mut edges = vec![0, 1, 2, 3, 7, 10, 31, 32, 33, 63, 64, 100, 127, 128, 255, 256];
    edges.extend([u64::MAX, u64::MAX - 1, u64::MAX - 2, u64::MAX - 9, top, top - 1, top + 1, top / 2]);
    edges.extend([0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa, 0x0123_4567_89ab_cdef, 0x80, 0x7f80, 0x8000]);
    edges.extend([0x7fff, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1_0000_0000]);
    let mut edges: Vec<u64> = edges.into_iter().map(|edge| edge & mask).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn float_edges(exponent: u32, fraction: u32) -> Vec<u64> {
    let bias = (1u64 << (exponent - 1)) - 1;
    let power = |e: i64| ((bias as i64 + e) as u64) << fraction;
    let (one, infinity) = (power(0), ((1u64 << exponent) - 1) << fraction);
    let quiet = 1u64 << (fraction - 1);
    let mut edges = vec![0, 1, 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1, quiet];
    edges.extend([
        one,
        one - 1,
        one + 1,
        one | quiet,
        power(-1),
        power(-1) + 1,
        power(-1) - 1,
        power(1) | (quiet / 2),
    ]);
    edges.extend([
        infinity - 1,
        infinity,
        infinity | quiet,
        infinity | 1,
        infinity | quiet | 0x5,
        power(-3),
        power(4) | 5,
    ]);
    // Around the limits of integer types that are in range.
    let largest = bias as i64;
    for e in [7, 8, 11, 15, 16, 23, 24, 31, 32, 52, 63, 64] {
        if e < largest {
            edges.extend([power(e), power(e) - 1, power(e) + 1]);
        }
    }
    // Ties when rounding to narrower formats: 10, 7, 3 and 2 fraction bits.
    for kept in [10, 7, 3, 2] {
        if kept < fraction {
            let tie = 1u64 << (fraction - kept - 1);
            edges.extend([one | tie, one | (3 * tie), one | (tie + 1), power(-2) | tie]);
        }
    }
    let sign = 1u64 << (exponent + fraction);
    let negative: Vec<u64> = edges.iter().map(|edge| edge | sign).collect();
    edges.extend(negative);
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn format(kind: &str) -> Option<(u32, u32)> {
    FORMATS.iter().find(|&&(name, ..)| name == kind).map(|&(_, exponent, fraction)| (exponent, fraction))
}

/// Edge values of a kind of operand.
fn edges(kind: &str) -> Vec<u64> {
    match kind {
        "n" => (0..70).chain([127, 128, 255, 256, 257, 0xffff, 0x8000_0000, u32::MAX as u64]).collect(),
        "n32" => (0..32).collect(),
        "so" => (-34i32..34).map(|x| x as u32 as u64).collect(),
        "f16x2" => pairs(&float_edges(5, 10)),
        "bf16x2" => pairs(&float_edges(8, 7)),
        "fq" => edges("f32"),
        // Trigonometric functions: up to 100 π, where the ISA bounds their error.
        "fp" => {
            let quarters = (-8..=8).map(|k| (k as f32 * std::f32::consts::FRAC_PI_4).to_bits() as u64);
            let bounded = |bits: &u64| {
                let x = f32::from_bits(*bits as u32);
                x.is_nan() || x.abs() <= 100.0 * std::f32::consts::PI
            };
            edges("f32").into_iter().filter(bounded).chain(quarters).collect()
        }
        "uf" | "uh" | "ub" | "ud" | "ue" => Vec::new(),
        _ => match format(kind) {
            Some((exponent, fraction)) => float_edges(exponent, fraction),
            None => integer_edges(super::forms::bits(kind).min(64)),
        },
    }
}

fn pairs(halves: &[u64]) -> Vec<u64> {
    let other = halves.iter().cycle().skip(halves.len() / 3);
    halves.iter().zip(other).map(|(low, high)| low | high << 16).collect()
}

/// A byte made of random bits: as e4m3 a number from -1 to 1, as e5m2 from -0.5 to 0.5, of all magnitudes.
fn float8(bits: u64) -> u64 {
    ((bits & 0xff) % 0x39) | (((bits >> 8) & 1) << 7)
}

/// Random value of a kind. Half of the floats have a moderate exponent.
pub fn random(kind: &str, random: &mut Random) -> u64 {
    let bits = random.next();
    let half = |x: f64| half::f16::from_f64(x).to_bits() as u64;
    let brain = |x: f64| half::bf16::from_f64(x).to_bits() as u64;
    match kind {
        "n" => bits >> 58,
        "n32" => bits >> 59,
        "so" => ((bits >> 58) as i32 - 32) as u32 as u64,
        "uf" => (random.unit() as f32).to_bits() as u64,
        "ud" => random.unit().to_bits(),
        "uh" => half(random.unit()) | half(random.unit()) << 16,
        "ub" => brain(random.unit()) | brain(random.unit()) << 16,
        "ue" => (0..4).fold(0, |word, i| word | float8(bits >> (16 * i)) << (8 * i)),
        "fp" => ((random.unit() * std::f64::consts::PI * if bits & 3 == 0 { 100.0 } else { 1.0 }) as f32)
            .to_bits() as u64,
        "fq" | "f32" if bits & 1 == 0 => {
            ((random.unit() * 2f64.powi((bits >> 58) as i32 - 32)) as f32).to_bits() as u64
        }
        "f64" if bits & 1 == 0 => (random.unit() * 2f64.powi((bits >> 57) as i32 - 64)).to_bits(),
        "f16" if bits & 1 == 0 => half(random.unit() * 2f64.powi((bits >> 61) as i32 - 4)),
        "bf16" if bits & 1 == 0 => brain(random.unit() * 2f64.powi((bits >> 60) as i32 - 8)),
        "f16x2" | "bf16x2" => {
            let of = &kind[..kind.len() - 2];
            self::random(of, random) | self::random(of, random) << 16
        }
        _ => {
            let width = super::forms::bits(kind).min(64);
            // Integers of all magnitudes.
            let shift = if bits & 6 == 0 && format(kind).is_none() { bits >> 32 & 63 } else { 0 };
            (random.next() >> shift) & (u64::MAX >> (64 - width))
        }
    }
}

/// Rows of operands of a form: all combinations of edge values, or random combinations if there are too many, then
/// random values.
pub fn rows(form: &Form, generator: &mut Random) -> Vec<Vec<u64>> {
    let kinds = &form.operands;
    let edges: Vec<Vec<u64>> = kinds.iter().map(|kind| edges(kind)).collect();
    let combinations = edges.iter().map(|edges| edges.len()).try_fold(1usize, |all, n| all.checked_mul(n));
    let mut rows = Vec::with_capacity(ROWS);
    if edges.iter().all(|edges| !edges.is_empty()) {
        match combinations {
            Some(count) if count <= 3 * ROWS / 4 => {
                for mut index in 0..count {
                    let row = edges.iter().map(|edges| {
                        let value = edges[index % edges.len()];
                        index /= edges.len();
                        value
                    });
                    rows.push(row.collect());
                }
            }
            _ => {
                let pick =
                    |edges: &Vec<u64>, generator: &mut Random| edges[generator.next() as usize % edges.len()];
                for _ in 0..ROWS / 2 {
                    rows.push(edges.iter().map(|edges| pick(edges, generator)).collect());
                }
            }
        }
    }
    while rows.len() < ROWS {
        rows.push(kinds.iter().map(|kind| random(kind, generator)).collect());
    }
    rows
}
