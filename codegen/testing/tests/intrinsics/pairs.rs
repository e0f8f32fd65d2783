//! Packed pairs of 16-bit floats: PTX and targets.

use bespoke_codegen::prelude::*;
use expect_test::expect;

use crate::device::listing;

/// Operations on pairs that every target supports.
#[kernel(threads = 32)]
fn fused<P: FloatPair>(data: Ptr<Global, P>, x: Ptr<Global, f32>) {
    let (a, b) = (data.load(), data.at(1u32).load());
    let [low, high] = a.unpack();
    let rounded = pack_rounded::<P>(x.load(), x.at(1u32).load());
    data.at(2u32).store(fma::<P>(a, b, rounded).max(-a).min(b.abs()));
    data.at(3u32).store(Val::<P>::pack(high, low));
}

#[test]
fn of_bfloat16() {
    expect![[r#"
        .version 7.0
        	ld.global.b32 %r1, [%rd1];
        	ld.global.b32 %r2, [%rd1+4];
        	mov.b32 {%h1, %h2}, %r1;
        	ld.global.f32 %f1, [%rd2];
        	ld.global.f32 %f2, [%rd2+4];
        	cvt.rn.bf16x2.f32 %r3, %f2, %f1;
        	fma.rn.bf16x2 %r4, %r1, %r2, %r3;
        	neg.bf16x2 %r5, %r1;
        	max.bf16x2 %r6, %r4, %r5;
        	abs.bf16x2 %r7, %r2;
        	min.bf16x2 %r8, %r6, %r7;
        	st.global.b32 [%rd1+8], %r8;
        	mov.b32 %r9, {%h2, %h1};
        	st.global.b32 [%rd1+12], %r9;
        	ret;
    "#]]
    .assert_eq(&listing(fused::<Bf16x2>(), Target::Sm80));
}

#[test]
fn of_binary16() {
    let (text, other) = (listing(fused::<F16x2>(), Target::Sm80), listing(fused::<Bf16x2>(), Target::Sm80));
    assert_eq!(text, other.replace("bf16x2", "f16x2"));
}

#[kernel(threads = 32)]
fn sums<P: FloatPair>(data: Ptr<Global, P>) {
    let (a, b) = (data.load(), data.at(1u32).load());
    data.at(2u32).store((a + b) * (a - b));
}

#[test]
fn sums_of_bfloat16_came_later() {
    for (text, name) in [
        (listing(sums::<F16x2>(), Target::Sm80), "mul.rn.f16x2"),
        (listing(sums::<Bf16x2>(), Target::Sm90), "mul.rn.bf16x2"),
    ] {
        assert_eq!(text.matches(name).count(), 1, "no {name} in {text}");
    }
}

/// Operations on constants, which the compiler folds.
#[kernel(threads = 32)]
fn folded(data: Ptr<Global, Bf16x2>) {
    let x = data.load();
    let one = Bf16x2(bf16::ONE, bf16::ONE);
    let pair = pack_rounded::<Bf16x2>(1.0, -2.5);
    data.at(1u32).store(fma::<Bf16x2>(x, one, pair));
    data.at(2u32).store(fma::<Bf16x2>(val(one), val(one), pair));
}

#[test]
fn constants_are_folded() {
    let text = listing(folded(), Target::Sm80);
    assert!(!text.contains("cvt.rn"), "{text}");
    // 1 · 1 + 1 and 1 · 1 - 2.5, the first in the low half.
    assert!(text.contains("0xBFC04000"), "{text}");
}
