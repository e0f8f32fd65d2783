//! Matrix products by a warp: the text that they become, and what passes do with them.

use bespoke_codegen::prelude::*;
use expect_test::expect;

use crate::device::listing;

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

/// One product that nobody needs, one that is there twice, and one in a loop under a condition.
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

/// C += A·B of one tile through shared memory; A's rows and B's columns are 4·`RA` and 8·`RB` words.
#[kernel(threads = 32)]
fn through_shared<A, B, const RA: usize, const RB: usize>(c: Ptr<Global, A::Sum>, pitch: u32)
where
    A: MmaWith<B>,
    B: MmaElement<Sum = A::Sum>,
{
    let (left, right) = (shared_array::<A>(1024), shared_array::<B>(1024));
    let mut sums = FragmentC::<A::Sum>::zero();
    for i in 0..4u32 {
        sums.0[i as usize] = c.at(FragmentC::<A::Sum>::row(i) * 8 + FragmentC::<A::Sum>::column(i)).load();
    }
    let (a, b) = (FragmentA::<A, RA>::load(left, pitch), FragmentB::<B, RB>::load(right, pitch));
    sums = mma(a, b, sums);
    for i in 0..4u32 {
        c.at(FragmentC::<A::Sum>::row(i) * 8 + FragmentC::<A::Sum>::column(i)).store(sums.0[i as usize]);
    }
}

#[test]
fn products_of_fragments() {
    for (kernel, name) in [
        (through_shared::<u8, i8, 2, 1>(16), "m16n8k16.row.col.s32.u8.s8.s32"),
        (through_shared::<i8, i8, 4, 2>(48), "m16n8k32.row.col.s32.s8.s8.s32"),
        (through_shared::<f16, f16, 2, 1>(16), "m16n8k8.row.col.f32.f16.f16.f32"),
        (through_shared::<f16, f16, 4, 2>(48), "m16n8k16.row.col.f32.f16.f16.f32"),
        (through_shared::<bf16, bf16, 2, 1>(16), "m16n8k8.row.col.f32.bf16.bf16.f32"),
    ] {
        let text = listing(kernel, Target::Sm80);
        assert_eq!(text.matches(name).count(), 1, "no {name} in {text}");
    }
    let kernel = through_shared::<bf16, bf16, 4, 2>(48);
    expect![[r#"
        .version 7.0
        	mov.u32 %r1, shared0;
        	mov.u32 %r2, shared1;
        	mov.u32 %r3, %laneid;
        	shr.u32 %r4, %r3, 2;
        	shl.b32 %r5, %r4, 3;
        	and.b32 %r6, %r3, 3;
        	shl.b32 %r7, %r6, 1;
        	add.u32 %r8, %r5, %r7;
        	mul.wide.u32 %rd2, %r8, 4;
        	add.s64 %rd3, %rd1, %rd2;
        	ld.global.f32 %f1, [%rd3];
        	ld.global.f32 %f2, [%rd3+4];
        	ld.global.f32 %f3, [%rd3+256];
        	ld.global.f32 %f4, [%rd3+260];
        	and.b32 %r9, %r3, 15;
        	mul.lo.u32 %r10, %r9, 48;
        	add.s32 %r11, %r1, %r10;
        	shr.u32 %r12, %r3, 4;
        	shl.b32 %r13, %r12, 4;
        	add.s32 %r14, %r11, %r13;
        	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r15, %r16, %r17, %r18}, [%r14];
        	and.b32 %r19, %r3, 7;
        	mul.lo.u32 %r20, %r19, 48;
        	add.s32 %r21, %r2, %r20;
        	shr.u32 %r22, %r3, 3;
        	and.b32 %r23, %r22, 1;
        	shl.b32 %r24, %r23, 4;
        	add.s32 %r25, %r21, %r24;
        	ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r26, %r27}, [%r25];
        	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5, %f6, %f7, %f8}, {%r15, %r16, %r17, %r18}, {%r26, %r27}, {%f1, %f2, %f3, %f4};
        	st.global.f32 [%rd3], %f5;
        	st.global.f32 [%rd3+4], %f6;
        	st.global.f32 [%rd3+256], %f7;
        	st.global.f32 [%rd3+260], %f8;
        	ret;
    "#]].assert_eq(&listing(kernel, Target::Sm80));
}

#[kernel(threads = 32)]
fn loads(out: Ptr<Global, u32>) {
    let tile = shared_array::<f16>(1024);
    let [first, second] = FragmentB::load_pair(tile, 80);
    let third = FragmentB::load_transposed(tile, 16);
    let [one] = load_matrices_transposed(tile.cast());
    for (i, word) in
        first.registers().into_iter().chain(second.registers()).chain(third.registers()).enumerate()
    {
        out.at(i as u32 * 32 + lane()).store(word);
    }
    out.at(lane()).store(one);
    let _ = FragmentA::<f16, 4>::load(tile, 64);
}

#[test]
fn loads_of_matrices() {
    expect![[r#"
        .version 7.0
        	mov.u32 %r1, shared0;
        	mov.u32 %r2, %laneid;
        	and.b32 %r3, %r2, 7;
        	shr.u32 %r4, %r2, 4;
        	shl.b32 %r5, %r4, 3;
        	add.u32 %r6, %r3, %r5;
        	mul.lo.u32 %r7, %r6, 80;
        	add.s32 %r8, %r1, %r7;
        	shr.u32 %r9, %r2, 3;
        	and.b32 %r10, %r9, 1;
        	shl.b32 %r11, %r10, 4;
        	add.s32 %r12, %r8, %r11;
        	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r13, %r14, %r15, %r16}, [%r12];
        	and.b32 %r17, %r2, 15;
        	shl.b32 %r18, %r17, 4;
        	add.s32 %r19, %r1, %r18;
        	ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r20, %r21}, [%r19];
        	ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r22}, [%r1];
        	mul.wide.u32 %rd2, %r2, 4;
        	add.s64 %rd3, %rd1, %rd2;
        	st.global.u32 [%rd3], %r13;
        	st.global.u32 [%rd3+128], %r14;
        	st.global.u32 [%rd3+256], %r15;
        	st.global.u32 [%rd3+384], %r16;
        	st.global.u32 [%rd3+512], %r20;
        	st.global.u32 [%rd3+640], %r21;
        	st.global.u32 [%rd3], %r22;
        	ret;
    "#]]
    .assert_eq(&listing(loads(), Target::Sm80));
}

#[kernel(threads = 32)]
fn misaligned(byte: u32) {
    let tile = shared_array::<u8>(1024);
    let _: [Val<u32>; 1] = load_matrices(tile.bytes(byte));
}

#[test]
fn rows_are_aligned() {
    assert!(misaligned(16).is_ok());
    let error = misaligned(8).expect_err("a row of 16 bytes at byte 8").to_string();
    assert!(error.contains("accesses 16 bytes at byte 8"), "{error}");
}
