//! Matrix products: PTX, results, and the effect of passes on them.

use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;
use expect_test::expect;

use crate::device::{Buffer, Launch, bytes, execute, listing, values};
use crate::host::{Exact, HostNumber, convert};

#[kernel(threads = 32)]
fn bytes_by_bytes(
    a: Ptr<Global, u32>,
    b: Ptr<Global, u32>,
    c: Ptr<Global, i32>,
    a_signed: bool,
    b_signed: bool,
) {
    let i = thread_index();
    let left = a.at(i * 4).load_vector();
    let right = b.at(i * 2).load_vector();
    let mut sums = c.at(i * 4).load_vector();
    sums = mma_m16n8k32_i8(left, a_signed, right, b_signed, sums);
    c.at(i * 4).store_vector(sums);
}

#[test]
fn products_of_bytes() {
    expect![[r#"
        .version 7.0
        	mov.u32 %r1, %tid.x;
        	shl.b32 %r2, %r1, 2;
        	mul.wide.u32 %rd4, %r2, 4;
        	add.s64 %rd5, %rd1, %rd4;
        	ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd5];
        	shl.b32 %r7, %r1, 1;
        	mul.wide.u32 %rd6, %r7, 4;
        	add.s64 %rd7, %rd2, %rd6;
        	ld.global.v2.u32 {%r8, %r9}, [%rd7];
        	add.s64 %rd8, %rd3, %rd4;
        	ld.global.v4.s32 {%r10, %r11, %r12, %r13}, [%rd8];
        	mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r14, %r15, %r16, %r17}, {%r3, %r4, %r5, %r6}, {%r8, %r9}, {%r10, %r11, %r12, %r13};
        	st.global.v4.s32 [%rd8], {%r14, %r15, %r16, %r17};
        	ret;
    "#]].assert_eq(&listing(bytes_by_bytes(true, true), Target::Sm80));
    for (kernel, name) in [
        (bytes_by_bytes(false, false), "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"),
        (bytes_by_bytes(false, true), "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32"),
        (bytes_by_bytes(true, false), "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32"),
    ] {
        let text = listing(kernel, Target::Sm80);
        assert_eq!(text.matches(name).count(), 1, "no {name} in {text}");
    }
}

/// An unused product, a repeated product, and one in a loop under a condition.
#[kernel(threads = 32)]
fn motion(c: Ptr<Global, i32>, word: Val<u32>, times: Val<u32>) {
    let zero = [val(0i32); 4];
    let product = |by: Val<u32>| mma_m16n8k32_i8([word; 4], true, [by; 2], true, zero);
    let _ = product(word + 1);
    let twice = product(word)[0] + product(word)[1];
    c.at(thread_index()).store(twice);
    let mut i = val(0);
    while i < times {
        if i == 3 {
            c.at(thread_index()).store(product(word + 2)[0]);
        }
        i += 1;
    }
}

#[test]
fn products_are_merged_and_removed_but_not_moved() {
    let text = listing(motion(), Target::Sm80);
    assert_eq!(text.matches("mma.sync").count(), 2, "{text}");
    let last = text.rfind("mma.sync").expect("as just counted");
    assert!(text[..last].contains("setp.eq"), "a product moved out of its condition:\n{text}");
}

/// C += A·B of one tile in shared memory; rows of A and columns of B are `pitch` bytes apart.
#[kernel(threads = 32)]
fn through_shared<A, B, const RA: usize, const RB: usize>(
    a: Ptr<Global, A>,
    b: Ptr<Global, B>,
    c: Ptr<Global, A::Sum>,
    pitch: u32,
) where
    A: MmaWith<B>,
    B: MmaElement<Sum = A::Sum>,
{
    let depth = RB as u32 * 16 / A::TYPE.bytes();
    let (left, right) = (shared_array::<A>(1024), shared_array::<B>(1024));
    for i in 0..depth / 2 {
        let (row, column) = ((lane() + i * 32) / depth, (lane() + i * 32) % depth);
        left.byte_add(row * pitch).at(column).store(a.at(lane() + i * 32).load());
    }
    for i in 0..depth / 4 {
        let (column, row) = ((lane() + i * 32) / depth, (lane() + i * 32) % depth);
        right.byte_add(column * pitch).at(row).store(b.at(lane() + i * 32).load());
    }
    warp_barrier(ALL_LANES);
    let mut sums = FragmentC::<A::Sum>::zero();
    for (i, sum) in sums.0.iter_mut().enumerate() {
        *sum = sum_at(c, i as u32).load();
    }
    let (left, right) = (FragmentA::<A, RA>::load(left, pitch), FragmentB::<B, RB>::load(right, pitch));
    sums = mma(left, right, sums);
    for (i, sum) in sums.0.iter().enumerate() {
        sum_at(c, i as u32).store(*sum);
    }
}

/// Position of the lane's i-th sum in a matrix with 8 columns.
#[device]
fn sum_at<S: Scalar + Default>(c: Ptr<Global, S>, i: u32) -> Ptr<Global, S> {
    c.at(FragmentC::<S>::row(i) * 8 + FragmentC::<S>::column(i))
}

/// Small numbers, of both signs if the type is signed, so that sums are exact.
fn numbers<T: HostNumber>(count: usize, seed: usize) -> Vec<T> {
    let low = if T::TYPE.is_unsigned() { 0 } else { -7 };
    let number = |i: usize| (i * i * 31 + i * 7 + seed) % 15;
    (0..count).map(|i| convert(Exact::Int(low + number(i) as i128), Rounding::Nearest)).collect()
}

fn whole<T: HostNumber>(value: T) -> i128 {
    match value.exact() {
        Exact::Int(value) => value,
        Exact::Float(value) => value as i128,
    }
}

fn check<A, B, const RA: usize, const RB: usize>(pitch: u32)
where
    A: MmaWith<B> + HostNumber,
    B: MmaElement<Sum = A::Sum> + HostNumber,
    A::Sum: HostNumber,
{
    let depth = RB * 16 / A::TYPE.bytes() as usize;
    let (a, b) = (numbers::<A>(16 * depth, 3), numbers::<B>(8 * depth, 5));
    let c: Vec<A::Sum> = numbers(128, 1);
    let buffers = [&bytes(&a), &bytes(&b), &bytes(&c)].map(|bytes| Buffer::Holding(bytes.clone()));
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    execute(through_shared::<A, B, RA, RB>(pitch), &launch, |after, ptx| {
        let found: Vec<A::Sum> = values(&after[2]);
        for (i, (&found, &before)) in found.iter().zip(&c).enumerate() {
            let (row, column) = (&a[i / 8 * depth..][..depth], &b[i % 8 * depth..][..depth]);
            let products = row.iter().zip(column).map(|(&x, &y)| whole(x) * whole(y));
            let expected = whole(before) + products.sum::<i128>();
            assert_eq!(whole(found), expected, "row {} column {}\n{ptx}", i / 8, i % 8);
        }
    });
}

#[test]
fn products_of_fragments() {
    check::<u8, i8, 2, 1>(16);
    check::<i8, u8, 2, 1>(48);
    check::<u8, u8, 4, 2>(32);
    check::<i8, i8, 4, 2>(48);
    check::<f16, f16, 2, 1>(16);
    check::<f16, f16, 4, 2>(48);
    check::<bf16, bf16, 2, 1>(16);
    check::<bf16, bf16, 4, 2>(80);
    check::<f32, f32, 2, 1>(16);
    check::<f32, f32, 4, 2>(48);
}

/// C += A·B of f16 with f16 sums, from registers.
#[kernel(threads = 32)]
fn halves<const RA: usize, const RB: usize>(a: Ptr<Global, u32>, b: Ptr<Global, u32>, c: Ptr<Global, F16x2>) {
    let left = FragmentA::<f16, RA>::from_registers(a.at(lane() * (RA as u32)).load_vector());
    let right = std::array::from_fn(|i| b.at(lane() * (RB as u32) + i as u32).load());
    let right = FragmentB::<f16, RB>::from_registers(right);
    let sums = mma_f16_sums(left, right, c.at(lane() * 2).load_vector());
    c.at(lane() * 2).store_vector(sums);
}

fn check_halves<const RA: usize, const RB: usize>(name: &str) {
    let depth = RB * 8;
    // Small numbers, so that sums of f16 are exact.
    let number = |i: usize| f32::from((i * i % 7) as u8) - 3.0;
    let (a, b) = (
        |row: usize, k: usize| number(row * depth + k),
        |k: usize, column: usize| number(k * 8 + column + 2),
    );
    let pair = |first: f32, second: f32| F16x2(f16::from_f32(first), f16::from_f32(second));
    let (mut left, mut right, mut before, mut expected) = (vec![], vec![], vec![], vec![]);
    for lane in 0..32 {
        let (group, index) = (lane / 4, lane % 4 * 2);
        for i in 0..RA {
            let (row, k) = (group + i % 2 * 8, index + i / 2 * 8);
            left.push(pair(a(row, k), a(row, k + 1)));
        }
        for i in 0..RB {
            let k = index + i * 8;
            right.push(pair(b(k, group), b(k + 1, group)));
        }
        for row in [group, group + 8] {
            let sum = |column: usize| (0..depth).map(|k| a(row, k) * b(k, column)).sum::<f32>();
            before.push(pair(row as f32, index as f32));
            expected.push(pair(row as f32 + sum(index), index as f32 + sum(index + 1)));
        }
    }
    let buffers = [&left, &right, &before].map(|pairs| Buffer::Holding(bytes(pairs)));
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    execute(halves::<RA, RB>(), &launch, |after, ptx| {
        assert_eq!(values::<F16x2>(&after[2]), expected, "{ptx}");
        assert_eq!(ptx.matches(name).count(), 1, "{ptx}");
    });
}

#[test]
fn products_with_sums_of_halves() {
    check_halves::<4, 2>("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16");
    check_halves::<2, 1>("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16");
}

/// C += A·B of f64: 16 rows of A by 8 columns of B.
#[kernel(threads = 32)]
fn doubles<const RA: usize, const RB: usize>(a: Ptr<Global, f64>, b: Ptr<Global, f64>, c: Ptr<Global, f64>) {
    let (group, index) = (lane() / 4, lane() % 4);
    let depth = RB as u32 * 4;
    let left = std::array::from_fn::<_, RA, _>(|i| {
        let i = i as u32;
        a.at((group + i % 2 * 8) * depth + index + i / 2 * 4).load()
    });
    let right = std::array::from_fn::<_, RB, _>(|i| b.at(group * depth + index + i as u32 * 4).load());
    let places = [0, 1, 2, 3].map(|i| sum_at(c, i));
    let FragmentC(sums) = mma_f64(left, right, FragmentC(places.map(|place| place.load())));
    for (place, sum) in places.into_iter().zip(sums) {
        place.store(sum);
    }
}

/// C += A·B of f64: 8 rows of A by 8 columns of B.
#[kernel(threads = 32)]
fn small_doubles(a: Ptr<Global, f64>, b: Ptr<Global, f64>, c: Ptr<Global, f64>) {
    let sums = c.at(lane() * 2);
    let product = mma_m8n8k4_f64(a.at(lane()).load(), b.at(lane()).load(), sums.load_vector());
    sums.store_vector(product);
}

#[test]
fn products_of_doubles() {
    let kernels = [
        (small_doubles(), Target::Sm80, 8, 4),
        (doubles::<2, 1>(), Target::Sm90, 16, 4),
        (doubles::<4, 2>(), Target::Sm90, 16, 8),
        (doubles::<8, 4>(), Target::Sm90, 16, 16),
    ];
    for (kernel, oldest, rows, depth) in kernels {
        let (a, b, c) =
            (numbers::<f64>(rows * depth, 3), numbers::<f64>(8 * depth, 5), numbers::<f64>(rows * 8, 1));
        let sum =
            |i: usize| (0..depth).fold(c[i], |sum, k| sum + a[i / 8 * depth + k] * b[i % 8 * depth + k]);
        let expected: Vec<f64> = (0..rows * 8).map(sum).collect();
        let buffers = [&a, &b, &c].map(|numbers| Buffer::Holding(bytes(numbers)));
        let launch = Launch { oldest, config: LaunchConfig::linear(1, 32), buffers: &buffers, scalars: &[] };
        let name = format!("mma.sync.aligned.m{rows}n8k{depth}.row.col.f64.f64.f64.f64");
        assert_eq!(listing(kernel.clone(), oldest).matches(&name).count(), 1, "no {name}");
        execute(kernel, &launch, |after, ptx| assert_eq!(values::<f64>(&after[2]), expected, "{ptx}"));
    }
}

#[test]
fn text_of_a_product() {
    let text = listing(through_shared::<bf16, bf16, 4, 2>(48), Target::Sm80);
    for name in [
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    ] {
        assert_eq!(text.matches(name).count(), 1, "no {name} in {text}");
    }
}

/// Loads B's registers for two blocks of eight columns, from column-major and from row-major memory.
#[kernel(threads = 32)]
fn loaded(from: Ptr<Global, f16>, by_columns: Ptr<Global, u32>, by_rows: Ptr<Global, u32>) {
    let tile = shared_array::<f16>(256);
    for i in 0..8u32 {
        tile.at(lane() + i * 32).store(from.at(lane() + i * 32).load());
    }
    warp_barrier(ALL_LANES);
    let [first, second] = FragmentB::load_pair(tile, 32);
    for (i, word) in first.registers().into_iter().chain(second.registers()).enumerate() {
        by_columns.at(lane() * 4 + i as u32).store(word);
    }
    let (first, second) =
        (FragmentB::load_transposed(tile, 32), FragmentB::load_transposed(tile.at(8u32), 32));
    for (i, word) in first.registers().into_iter().chain(second.registers()).enumerate() {
        by_rows.at(lane() * 4 + i as u32).store(word);
    }
}

#[test]
fn columns_from_rows() {
    // A matrix and its transpose; each is loaded with the fragment layout of the other.
    let tile: Vec<u16> = (0..256).collect();
    let buffers = [Buffer::Holding(bytes(&tile)), Buffer::Empty(512), Buffer::Empty(512)];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    let expected = |element: fn(u16, u16) -> u16| -> Vec<u16> {
        let lanes = (0..32).flat_map(|lane| (0..4).map(move |word| (lane, word)));
        let pairs = lanes.flat_map(|(lane, word)| [0, 1].map(|half| (lane, word, half)));
        let place = |(lane, word, half): (u16, u16, u16)| {
            (lane / 4 + word / 2 * 8, lane % 4 * 2 + word % 2 * 8 + half)
        };
        pairs.map(place).map(|(column, row)| element(row, column)).collect()
    };
    execute(loaded(), &launch, |after, ptx| {
        assert_eq!(values::<u16>(&after[1]), expected(|row, column| column * 16 + row), "{ptx}");
        assert_eq!(values::<u16>(&after[2]), expected(|row, column| row * 16 + column), "{ptx}");
    });
}

/// Loads B's registers for two blocks of eight columns from core matrices, of which those that follow each other along the
/// columns are 128 bytes apart.
#[kernel(threads = 32)]
fn loaded_from_core_matrices(from: Ptr<Global, f16>, to: Ptr<Global, u32>) {
    let tile = shared_array::<f16>(256);
    for i in 0..8u32 {
        tile.at(lane() + i * 32).store(from.at(lane() + i * 32).load());
    }
    warp_barrier(ALL_LANES);
    let [first, second] = FragmentB::load_core_matrices(tile, 256, 128);
    for (i, word) in first.registers().into_iter().chain(second.registers()).enumerate() {
        to.at(lane() * 4 + i as u32).store(word);
    }
}

#[test]
fn core_matrices() {
    let tile: Vec<u16> = (0..256).collect();
    let buffers = [Buffer::Holding(bytes(&tile)), Buffer::Empty(512)];
    let config = LaunchConfig::linear(1, 32);
    let launch = Launch { oldest: Target::Sm80, config, buffers: &buffers, scalars: &[] };
    let lanes = (0..32).flat_map(|lane| (0..4).map(move |word| (lane, word)));
    // Word 2i + j of a lane is of core matrix j along K and i along the columns.
    let first = |(lane, word): (u16, u16)| (word % 2 * 2 + word / 2) * 64 + lane * 2;
    let expected: Vec<u16> = lanes.map(first).flat_map(|at| [at, at + 1]).collect();
    execute(loaded_from_core_matrices(), &launch, |after, ptx| {
        assert_eq!(values::<u16>(&after[1]), expected, "{ptx}");
    });
}

#[kernel(threads = 32)]
fn misaligned(byte: u32) {
    let tile = shared_array::<u8>(1024);
    let _: [Val<u32>; 1] = load_matrices(tile.byte_add(byte));
}

#[test]
fn rows_are_aligned() {
    assert!(misaligned(16).is_ok());
    let error = misaligned(8).expect_err("a row of 16 bytes at byte 8").to_string();
    assert!(error.contains("accesses 16 bytes at byte 8"), "{error}");
}
