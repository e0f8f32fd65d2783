//! Products of warpgroups with elements of every type of float, sums of f32 and of f16, and A in registers and in shared
//! memory, against float64.

use bespoke_codegen::dsl::Recorded;
use bespoke_codegen::prelude::*;
use bespoke_testing::{Element, Launch};

use crate::device::remarks;

/// Rows of A, and of B: the columns of the product.
const LINES: u32 = 64;
/// Bytes of a row of A and of B: four products.
const ROW: u32 = 128;

/// The tiles of A and B in shared memory, loaded.
#[device]
fn loaded<A: WarpgroupElement, B: WarpgroupElement>(
    a: TensorMap<A, 2, Swizzle128>,
    b: TensorMap<B, 2, Swizzle128>,
) -> (SharedTile<A, 2, Swizzle128>, SharedTile<B, 2, Swizzle128>) {
    let (left, right, done) = (a.shared_tile(), b.shared_tile(), mbarrier_array(1).at(0));
    if thread_index() == 0 {
        done.init(1);
        fence_mbarrier_init();
        done.arrive_expect(left.size() + right.size());
        a.load(left, (0, 0), done, None);
        b.load(right, (0, 0), done, None);
    }
    barrier();
    done.wait(0, Wait::Try);
    (left, right)
}

/// The registers of A for product `part`, from the rows of A in global memory.
#[device]
fn registers<A: WarpgroupElement>(words: Ptr<Global, u32>, part: u32) -> FragmentA<A, 4> {
    let row = warp_index() * 16 + lane() / 4;
    FragmentA::from_registers(std::array::from_fn(|i| {
        let i = i as u32;
        words.at((row + i % 2 * 8) * (ROW / 4) + part * 8 + i / 2 * 4 + lane() % 4).load()
    }))
}

/// A·Bᵀ with f32 sums.
#[kernel(threads = 128)]
fn single_sums<A: WarpgroupWith<B, f32> + MmaElement<Sum = f32>, B: WarpgroupElement>(
    in_registers: bool,
    #[tile([ROW / A::TYPE.bytes(), LINES])] a: TensorMap<A, 2, Swizzle128>,
    #[tile([ROW / B::TYPE.bytes(), LINES])] b: TensorMap<B, 2, Swizzle128>,
    words: Ptr<Global, u32>,
    x: Ptr<Global, f32>,
) {
    let (left, right) = loaded(a, b);
    let sums = if in_registers {
        let products = [0, 1, 2, 3].map(|part| (registers::<A>(words, part), right.operand(0, part)));
        start_products(LINES, &products)
    } else {
        start_products(LINES, &[0, 1, 2, 3].map(|part| (left.operand(0, part), right.operand(0, part))))
    };
    let sums = sums.wait();
    for (part, FragmentC(values)) in (0u32..).zip(sums.fragments()) {
        for i in 0..4u32 {
            let row = warp_index() * 16 + FragmentC::<f32>::row(i);
            x.at(row * LINES + part * 8 + FragmentC::<f32>::column(i)).store(values[i as usize]);
        }
    }
}

/// A·Bᵀ with f16 sums.
#[kernel(threads = 128)]
fn half_sums<A: WarpgroupWith<B, F16x2>, B: WarpgroupElement>(
    in_registers: bool,
    #[tile([ROW / A::TYPE.bytes(), LINES])] a: TensorMap<A, 2, Swizzle128>,
    #[tile([ROW / B::TYPE.bytes(), LINES])] b: TensorMap<B, 2, Swizzle128>,
    words: Ptr<Global, u32>,
    x: Ptr<Global, F16x2>,
) {
    let (left, right) = loaded(a, b);
    // The first product starts from zero, the others continue its sums in a second group.
    let sums = if in_registers {
        let product = |part| (registers::<A>(words, part), right.operand(0, part));
        let sums = start_products_f16_sums(LINES, &[product(0)]);
        sums.multiply_f16_sums(&[product(1), product(2), product(3)])
    } else {
        let product = |part| (left.operand(0, part), right.operand(0, part));
        let sums = WarpgroupSums::<F16x2>::zero(LINES).multiply_f16_sums(&[product(0)]);
        sums.multiply_f16_sums(&[product(1), product(2), product(3)])
    };
    let sums = sums.wait();
    for (part, pairs) in (0u32..).zip(sums.fragments()) {
        for half in 0..2u32 {
            let row = warp_index() * 16 + FragmentC::<f32>::row(half * 2);
            x.at((row * LINES + part * 8 + FragmentC::<f32>::column(0)) / 2).store(pairs[half as usize]);
        }
    }
}

/// An element with its value in float64.
trait Exact: Element {
    fn value(self) -> f64;
    /// A finite element with bits that look random, of magnitude at most 8.
    fn random(bits: u32) -> Self;
}

impl Exact for f32 {
    fn value(self) -> f64 {
        // tf32: the lower 13 bits are ignored.
        f64::from(f32::from_bits(self.to_bits() & !0x1fff))
    }
    fn random(bits: u32) -> f32 {
        bits as i32 as f32 / (1u32 << 28) as f32
    }
}

impl Exact for f16 {
    fn value(self) -> f64 {
        self.to_f64()
    }
    fn random(bits: u32) -> f16 {
        f16::from_f32(f32::random(bits))
    }
}

/// Value of a float of 8 bits with `fraction` bits of fraction and an exponent biased by `bias`.
fn small_float(bits: u8, fraction: u32, bias: i32) -> f64 {
    let exponent = i32::from(bits & 0x7f) >> fraction;
    let below = f64::from(bits & ((1 << fraction) - 1)) / f64::from(1 << fraction);
    let magnitude = match exponent {
        0 => below * 2f64.powi(1 - bias),
        _ => (1.0 + below) * 2f64.powi(exponent - bias),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

impl Exact for E4m3 {
    fn value(self) -> f64 {
        small_float(self.0, 3, 7)
    }
    fn random(bits: u32) -> E4m3 {
        // Exponents up to 9: magnitudes below 8.
        E4m3(((bits >> 24) as u8 & 0x80) | ((bits >> 8) as u8 % 0x50))
    }
}

impl Exact for E5m2 {
    fn value(self) -> f64 {
        small_float(self.0, 2, 15)
    }
    fn random(bits: u32) -> E5m2 {
        // Exponents up to 17.
        E5m2(((bits >> 24) as u8 & 0x80) | ((bits >> 8) as u8 % 0x48))
    }
}

fn random<T: Exact>(seed: u32) -> Vec<T> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let states = std::iter::successors(Some(seed), next).skip(1);
    states.map(T::random).take((LINES * ROW) as usize / std::mem::size_of::<T>()).collect()
}

/// Runs the product `recorded`, with sums of type `S`, and compares it with float64: the error of each sum is at most
/// `tolerance` times the sum of the products' magnitudes. `name` is the instruction.
fn check<A: Exact, B: Exact, S: Element>(
    recorded: Recorded,
    sums: impl Fn(&[S]) -> Vec<f64>,
    tolerance: f64,
    name: &str,
) {
    let kernel = recorded.unwrap_or_else(|error| panic!("{error}"));
    let (a, b) = (random::<A>(1), random::<B>(2));
    let depth = ROW as usize / std::mem::size_of::<A>();
    let bytes: Vec<u8> =
        a.iter().flat_map(|x| x.bits().to_le_bytes()[..std::mem::size_of::<A>()].to_vec()).collect();
    let words: Vec<u32> =
        bytes.chunks(4).map(|word| u32::from_le_bytes([0, 1, 2, 3].map(|i| word[i]))).collect();
    let size = [depth as u64, u64::from(LINES)];
    let launch = Launch::of(&kernel).tensor(&a, size).tensor(&b, size).buffer(&words);
    let pairs = if S::TYPE == F16x2::TYPE { 2 } else { 1 };
    let done = launch
        .uninitialised::<S>((LINES * LINES) as usize / pairs)
        .run()
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(done.has(&format!("wgmma.mma_async.sync.aligned.m64n64{name} ")), "{name}\n{}", done.ptx());
    let found = sums(&done.buffer::<S>(3));
    let lines = LINES as usize;
    for at in 0..lines * lines {
        let products =
            (0..depth).map(|k| a[at / lines * depth + k].value() * b[at % lines * depth + k].value());
        let (sum, magnitude) = products.fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()));
        let error = (found[at] - sum).abs();
        assert!(error <= tolerance * magnitude, "{name}: {} at {at}, not {sum}", found[at]);
    }
    if let Some(remarks) = remarks(done.ptx(), Target::Sm90) {
        assert!(!remarks.contains("serialized"), "{remarks}");
    }
}

fn check_single<A, B>(name: &str)
where
    A: Exact + WarpgroupWith<B, f32> + MmaElement<Sum = f32>,
    B: Exact + WarpgroupElement,
{
    for in_registers in [false, true] {
        let sums = |found: &[f32]| found.iter().map(|&sum| f64::from(sum)).collect();
        // Each of the four products cuts sums to 24 bits, of 8-bit floats their terms 13 bits below the largest.
        let tolerance = if std::mem::size_of::<A>() == 1 { 2f64.powi(-10) } else { 2f64.powi(-21) };
        check::<A, B, f32>(single_sums::<A, B>(in_registers), sums, tolerance, name);
    }
}

fn check_half<A: Exact + WarpgroupWith<B, F16x2>, B: Exact + WarpgroupElement>(name: &str) {
    for in_registers in [false, true] {
        let sums =
            |found: &[F16x2]| found.iter().flat_map(|pair| [pair.0.to_f64(), pair.1.to_f64()]).collect();
        check::<A, B, F16x2>(half_sums::<A, B>(in_registers), sums, 4.0 * 2f64.powi(-11), name);
    }
}

#[test]
fn floats_with_single_sums() {
    check_single::<f32, f32>("k8.f32.tf32.tf32");
    check_single::<f16, f16>("k16.f32.f16.f16");
    check_single::<E4m3, E4m3>("k32.f32.e4m3.e4m3");
    check_single::<E4m3, E5m2>("k32.f32.e4m3.e5m2");
    check_single::<E5m2, E4m3>("k32.f32.e5m2.e4m3");
    check_single::<E5m2, E5m2>("k32.f32.e5m2.e5m2");
}

#[test]
fn floats_with_half_sums() {
    check_half::<f16, f16>("k16.f16.f16.f16");
    check_half::<E4m3, E4m3>("k32.f16.e4m3.e4m3");
    check_half::<E4m3, E5m2>("k32.f16.e4m3.e5m2");
    check_half::<E5m2, E4m3>("k32.f16.e5m2.e4m3");
    check_half::<E5m2, E5m2>("k32.f16.e5m2.e5m2");
}

#[kernel]
fn transposed_singles(#[tile([8, 16])] x: TensorMap<f32, 2, Swizzle32>) {
    let _ = x.shared_tile().transposed_operand(0, 512);
}

#[test]
fn only_halves_are_transposed() {
    let message = transposed_singles().err().map(|error| error.message);
    let expected = "an operand of f32 cannot be transposed: only those of f16 and bf16";
    assert_eq!(message.as_deref(), Some(expected));
}
