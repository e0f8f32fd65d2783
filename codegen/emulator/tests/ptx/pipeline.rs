//! A matrix product with double buffering: `cp.async` prefetches tiles, `ldmatrix` loads them, and `mma` multiplies
//! them.

use bespoke_emulator::{Finding, FindingKind, LaunchConfig};
use half::f16;

use crate::harness::{kernel, launch};

const ROWS: usize = 16;
const COLUMNS: usize = 8;
const DEPTH: usize = 64;
/// Sizes in words of `A`, `B` and the product, which are row-major and stored one after the other.
const A_WORDS: usize = ROWS * DEPTH / 2;
const B_WORDS: usize = DEPTH * COLUMNS / 2;

/// Kernel of one warp with two buffers, each for 16 columns of `A` and 16 rows of `B`.
const PRODUCT: &str = "
    .shared .align 16 .b8 a[1024];\n.shared .align 16 .b8 b[512];
    mov.u32 %r0, %laneid; setp.lt.u32 %q, %r0, 16;
    shr.u32 %r1, %r0, 1; and.b32 %r2, %r0, 1; mul.lo.u32 %r1, %r1, 128; mad.lo.u32 %r1, %r2, 16, %r1;
    cvt.u64.u32 %x0, %r1; add.u64 %x0, %x0, %data; mad.wide.u32 %x1, %r0, 16, %data;
    mov.u32 %r3, a; mad.lo.u32 %r3, %r0, 16, %r3; mov.u32 %r4, b; mad.lo.u32 %r4, %r0, 16, %r4;
    and.b32 %r5, %r0, 15; shr.u32 %r6, %r0, 4; mov.u32 %r7, a; mad.lo.u32 %r7, %r5, 32, %r7; mad.lo.u32 %r7, %r6, 16, %r7;
    mov.u32 %r8, b; mad.lo.u32 %r8, %r5, 16, %r8;
    mov.b32 %f0, 0f00000000; mov.b32 %f1, 0f00000000; mov.b32 %f2, 0f00000000; mov.b32 %f3, 0f00000000;
    cp.async.cg.shared.global [%r3], [%x0], 16; @%q cp.async.cg.shared.global [%r4], [%x1+2048], 16;
    cp.async.commit_group;
    mov.u32 %r9, 0;
    STEP: add.u32 %r10, %r9, 1; setp.ge.u32 %p, %r10, 4; @%p bra LOADED;
    and.b32 %r11, %r10, 1; mad.lo.u32 %r12, %r11, 512, %r3; mad.lo.u32 %r13, %r11, 256, %r4;
    mad.wide.u32 %x2, %r10, 32, %x0; mad.wide.u32 %x3, %r10, 256, %x1;
    cp.async.cg.shared.global [%r12], [%x2], 16; @%q cp.async.cg.shared.global [%r13], [%x3+2048], 16;
    LOADED: cp.async.commit_group; cp.async.wait_group 1; bar.warp.sync -1;
    and.b32 %r11, %r9, 1; mad.lo.u32 %r12, %r11, 512, %r7; mad.lo.u32 %r13, %r11, 256, %r8;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r14, %r15, %r16, %r17}, [%r12];
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r18, %r19}, [%r13];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r14, %r15, %r16, %r17}, {%r18, %r19}, {%f0, %f1, %f2, %f3};
    bar.warp.sync -1;
    mov.u32 %r9, %r10; setp.lt.u32 %p, %r9, 4; @%p bra STEP;
    shr.u32 %r1, %r0, 2; and.b32 %r2, %r0, 3; mul.lo.u32 %r1, %r1, 32; mad.lo.u32 %r1, %r2, 8, %r1;
    cvt.u64.u32 %x0, %r1; add.u64 %x0, %x0, %data; add.u64 %x0, %x0, 3072;
    st.global.v2.f32 [%x0], {%f0, %f1}; st.global.v2.f32 [%x0+256], {%f2, %f3};";

fn a(row: usize, k: usize) -> f32 {
    ((row * 7 + k * 3) % 11) as f32 - 5.0
}

fn b(k: usize, column: usize) -> f32 {
    ((k * 5 + column * 2) % 13) as f32 - 6.0
}

fn run(from: &str, to: &str) -> Result<Vec<f32>, Box<Finding>> {
    assert!(PRODUCT.contains(from), "{from}");
    let left = (0..ROWS * DEPTH).map(|index| a(index / DEPTH, index % DEPTH));
    let right = (0..DEPTH * COLUMNS).map(|index| b(index / COLUMNS, index % COLUMNS));
    let halves: Vec<u32> = left.chain(right).map(|x| f16::from_f32(x).to_bits() as u32).collect();
    let mut data: Vec<u32> = halves.chunks(2).map(|pair| pair[0] | pair[1] << 16).collect();
    data.resize(A_WORDS + B_WORDS + ROWS * COLUMNS, 0);
    launch(&kernel("", &PRODUCT.replace(from, to)), LaunchConfig::linear(1, 32), &mut data)?;
    Ok(data[A_WORDS + B_WORDS..].iter().map(|&bits| f32::from_bits(bits)).collect())
}

#[test]
fn the_product_is_exact() {
    let sums = run("", "").unwrap_or_else(|finding| panic!("{finding}"));
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let want: f32 = (0..DEPTH).map(|k| a(row, k) * b(k, column)).sum();
            assert_eq!(sums[row * COLUMNS + column], want, "row {row}, column {column}");
        }
    }
}

#[test]
fn mistakes_are_found() {
    let kind = |from: &str, to: &str| run(from, to).expect_err(to).kind;
    assert_eq!(kind("cp.async.wait_group 1;", "cp.async.wait_group 2;"), FindingKind::AsyncCopy);
    assert_eq!(kind("cp.async.wait_group 1;", ""), FindingKind::AsyncCopy);
    // The last group of copies is not waited for.
    assert_eq!(kind("LOADED: cp.async.commit_group;", "LOADED:"), FindingKind::AsyncCopy);
    // With a single buffer, the next copy overwrites data that has not been read.
    assert_eq!(kind("and.b32 %r11, %r10, 1;", "and.b32 %r11, %r10, 0;"), FindingKind::AsyncCopy);
    assert_eq!(kind("[%x0], 16;", "[%x0+8], 16;"), FindingKind::Misaligned);
    assert_eq!(kind("[%x2], 16;", "[%x2+2000000], 16;"), FindingKind::OutOfBounds);
}
