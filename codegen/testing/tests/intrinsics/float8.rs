//! 8-bit floats: conversions of every value, and matrix products.

use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;

use crate::device::{Buffer, Launch, bytes, execute, listing, values};

/// A format, as its definition has it.
#[derive(Clone, Copy)]
struct Format {
    fraction_bits: u32,
    bias: i32,
    has_infinities: bool,
    /// The largest finite number.
    largest: u8,
}

const E4M3: Format = Format { fraction_bits: 3, bias: 7, has_infinities: false, largest: 0x7e };
const E5M2: Format = Format { fraction_bits: 2, bias: 15, has_infinities: true, largest: 0x7b };

impl Format {
    fn value(self, code: u8) -> f64 {
        let (exponent, fraction) =
            (i32::from((code & 0x7f) >> self.fraction_bits), code & ((1 << self.fraction_bits) - 1));
        let scale = |exponent: i32| 2f64.powi(exponent - self.bias - self.fraction_bits as i32);
        let magnitude = match code & 0x7f {
            code if code > self.largest && self.has_infinities && fraction == 0 => f64::INFINITY,
            code if code > self.largest => f64::NAN,
            _ if exponent == 0 => f64::from(fraction) * scale(1),
            _ => f64::from(fraction + (1 << self.fraction_bits)) * scale(exponent),
        };
        if code & 0x80 != 0 { -magnitude } else { magnitude }
    }

    /// The nearest finite number, ties to the even code; a NaN has the code 0x7f.
    fn nearest(self, x: f64) -> u8 {
        if x.is_nan() {
            return 0x7f;
        }
        let sign = u8::from(x.is_sign_negative()) << 7;
        let codes: Vec<u8> = (0..=self.largest).collect();
        let above = codes.partition_point(|&code| self.value(code) < x.abs()) as u8;
        if above > self.largest {
            return sign | self.largest;
        }
        let below = above.saturating_sub(1);
        let (down, up) = (x.abs() - self.value(below), self.value(above) - x.abs());
        let down = down < up || down == up && below.is_multiple_of(2);
        sign | if down { below } else { above }
    }
}

#[kernel(threads = 256)]
fn from_singles<P: Float8Pair>(x: Ptr<Global, f32>, y: Ptr<Global, P>) {
    let i = block_index() * 256 + thread_index();
    y.at(i).store(pack_float8::<P>(x.at(i * 2).load(), x.at(i * 2 + 1).load()));
}

#[kernel(threads = 256)]
fn from_halves<P: Float8Pair>(x: Ptr<Global, F16x2>, y: Ptr<Global, P>) {
    let i = block_index() * 256 + thread_index();
    y.at(i).store(x.at(i).load().to_float8::<P>());
}

#[kernel(threads = 64)]
fn to_halves<P: Float8Pair>(x: Ptr<Global, P::Element>, y: Ptr<Global, F16x2>) {
    let i = block_index() * 64 + thread_index();
    let pair = Val::<P>::pair(x.at(i * 2).load(), x.at(i * 2 + 1).load());
    // In pairs of the other order, and back.
    let [low, high] = pair.elements();
    let [high, low] = Val::<P>::pair(high, low).to_f16x2().unpack();
    y.at(i).store(Val::<F16x2>::pack(low, high));
}

fn launch(blocks: u32, threads: u32, buffers: &[Buffer]) -> Launch<'_> {
    // Conversions exist from sm_89 on; `execute` has no such target.
    let config = LaunchConfig::linear(blocks, threads);
    Launch { oldest: Target::Sm90, config, buffers, scalars: &[] }
}

fn conversions<P: Float8Pair>(format: Format) {
    // Every upper half of an f32, with lower halves around the middle between two values.
    let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    let singles = (0..=0xffffu32).flat_map(|upper| lower.map(|lower| upper << 16 | lower));
    let singles: Vec<u32> = singles.collect();
    let expected: Vec<u8> =
        singles.iter().map(|&bits| format.nearest(f64::from(f32::from_bits(bits)))).collect();
    let buffers = [Buffer::Holding(bytes(&singles)), Buffer::Empty(singles.len())];
    execute(from_singles::<P>(), &launch(singles.len() as u32 / 512, 256, &buffers), |after, _| {
        for ((&bits, &found), &expected) in singles.iter().zip(&after[1]).zip(&expected) {
            assert_eq!(found, expected, "{} ({bits:#x})", f32::from_bits(bits));
        }
    });

    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let buffers = [Buffer::Holding(bytes(&halves)), Buffer::Empty(halves.len())];
    execute(from_halves::<P>(), &launch(halves.len() as u32 / 512, 256, &buffers), |after, _| {
        for (&bits, &found) in halves.iter().zip(&after[1]) {
            let value = f16::from_bits(bits).to_f64();
            assert_eq!(found, format.nearest(value), "{value} ({bits:#x})");
        }
    });

    let codes: Vec<u8> = (0..=u8::MAX).collect();
    let buffers = [Buffer::Holding(codes.clone()), Buffer::Empty(512)];
    execute(to_halves::<P>(), &launch(2, 64, &buffers), |after, _| {
        for (&code, found) in codes.iter().zip(values::<f16>(&after[1])) {
            let value = format.value(code);
            let same = found.to_f64().to_bits() == value.to_bits();
            assert!(same || found.is_nan() && value.is_nan(), "{found}, not {value} ({code:#x})");
        }
    });
}

#[test]
fn every_value_is_converted() {
    conversions::<E4m3x2>(E4M3);
    conversions::<E5m2x2>(E5M2);
}

#[test]
fn text_of_conversions() {
    for (text, name) in [
        (listing(from_singles::<E4m3x2>(), Target::Sm89), "cvt.rn.satfinite.e4m3x2.f32"),
        (listing(from_halves::<E5m2x2>(), Target::Sm89), "cvt.rn.satfinite.e5m2x2.f16x2"),
        (listing(to_halves::<E5m2x2>(), Target::Sm89), "cvt.rn.f16x2.e5m2x2"),
    ] {
        assert_eq!(text.matches(name).count(), 1, "no {name} in {text}");
        assert!(text.starts_with(".version 8.1\n"), "{text}");
    }
}

/// The registers of A: rows of `R` · 8 bytes.
#[device]
fn left<A: MmaElement, const R: usize>(words: Ptr<Global, u32>) -> FragmentA<A, R> {
    FragmentA::from_registers(std::array::from_fn(|i| {
        let i = i as u32;
        let row = lane() / 4 + i % 2 * 8;
        words.at(row * (R as u32 * 2) + i / 2 * 4 + lane() % 4).load()
    }))
}

/// The registers of B: columns of `R` · 16 bytes.
#[device]
fn right<B: MmaElement, const R: usize>(words: Ptr<Global, u32>) -> FragmentB<B, R> {
    FragmentB::from_registers(std::array::from_fn(|i| {
        words.at(lane() / 4 * (R as u32 * 4) + i as u32 * 4 + lane() % 4).load()
    }))
}

/// C = A·B with f32 sums, and with f16 sums.
#[kernel(threads = 32)]
fn products<A, B, const RA: usize, const RB: usize>(
    a: Ptr<Global, u32>,
    b: Ptr<Global, u32>,
    singles: Ptr<Global, f32>,
    halves: Ptr<Global, F16x2>,
) where
    A: MmaWith<B> + MmaWith<B, F16x2> + MmaElement<Sum = f32>,
    B: MmaElement<Sum = f32>,
{
    let (left, right) = (left::<A, RA>(a), right::<B, RB>(b));
    let FragmentC(sums) = mma(left, right, FragmentC::<f32>::zero());
    for (i, sum) in (0u32..).zip(sums) {
        singles.at(FragmentC::<f32>::row(i) * 8 + FragmentC::<f32>::column(i)).store(sum);
    }
    let pairs = mma_f16_sums(left, right, [val(F16x2::default()); 2]);
    for (i, pair) in (0u32..).zip(pairs) {
        halves.at((lane() / 4 + i * 8) * 4 + lane() % 4).store(pair);
    }
}

fn check<A, B, const RA: usize, const RB: usize>(left: Format, right: Format, name: &str)
where
    A: MmaWith<B> + MmaWith<B, F16x2> + MmaElement<Sum = f32>,
    B: MmaElement<Sum = f32>,
{
    let depth = RB * 16;
    // Small integers, of which sums are exact in f16.
    let number = |i: usize| ((i * i * 31 + i * 7) % 15) as f64 - 7.0;
    let a: Vec<u8> = (0..16 * depth).map(|i| left.nearest(number(i))).collect();
    let b: Vec<u8> = (0..8 * depth).map(|i| right.nearest(number(i + 5))).collect();
    let expected: Vec<f64> = (0..128)
        .map(|i| {
            let (row, column) = (i / 8 * depth, i % 8 * depth);
            (0..depth).map(|k| number(row + k) * number(column + k + 5)).sum()
        })
        .collect();
    let buffers = [Buffer::Holding(a), Buffer::Holding(b), Buffer::Empty(512), Buffer::Empty(256)];
    execute(products::<A, B, RA, RB>(), &launch(1, 32, &buffers), |after, ptx| {
        let singles: Vec<f64> = values::<f32>(&after[2]).into_iter().map(f64::from).collect();
        let halves: Vec<f64> = values::<f16>(&after[3]).into_iter().map(f64::from).collect();
        assert_eq!(singles, expected, "{ptx}");
        assert_eq!(halves, expected, "{ptx}");
    });
    let text = listing(products::<A, B, RA, RB>(), Target::Sm89);
    for sum in ["f32", "f16"] {
        let name = format!("mma.sync.aligned.m16n8k{depth}.row.col.{sum}.{name}.{sum}");
        assert_eq!(text.matches(&name).count(), 1, "no {name} in {text}");
    }
    assert!(text.starts_with(".version 8.7\n"), "{text}");
}

#[test]
fn matrix_products() {
    check::<E4m3, E4m3, 4, 2>(E4M3, E4M3, "e4m3.e4m3");
    check::<E4m3, E5m2, 4, 2>(E4M3, E5M2, "e4m3.e5m2");
    check::<E5m2, E4m3, 2, 1>(E5M2, E4M3, "e5m2.e4m3");
    check::<E5m2, E5m2, 2, 1>(E5M2, E5M2, "e5m2.e5m2");
}
