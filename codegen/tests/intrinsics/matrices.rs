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
