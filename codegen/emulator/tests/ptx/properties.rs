//! Properties of arithmetic, on random inputs.

use bespoke_emulator::{Memory, Module};
use proptest::prelude::*;

use crate::harness::{HEADER, evaluate};

/// Runs a two-operand instruction on pairs of 32-bit values and compares each result with `f`.
fn agrees(instruction: &str, values: &[(u32, u32)], f: impl Fn(u32, u32) -> u32) {
    let rows: Vec<[u64; 3]> = values.iter().map(|&(a, b)| [a as u64, b as u64, 0]).collect();
    let rows: Vec<&[u64]> = rows.iter().map(|row| row.as_slice()).collect();
    let (got, _) = evaluate(&format!("{instruction} %d, %a, %b;"), &[32; 3], &rows);
    for (&(a, b), got) in values.iter().zip(got) {
        assert_eq!(got as u32, f(a, b), "{instruction} {a:#x}, {b:#x}");
    }
}

/// Applies `f` to the bits of any two `f32`; a NaN result becomes the canonical NaN.
fn float(f: impl Fn(f32, f32) -> f32) -> impl Fn(u32, u32) -> u32 {
    move |a, b| {
        let result = f(f32::from_bits(a), f32::from_bits(b));
        if result.is_nan() { 0x7fff_ffff } else { result.to_bits() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn arithmetic_agrees_with_the_host(values in prop::collection::vec(any::<(u32, u32)>(), 100)) {
        agrees("add.u32", &values, u32::wrapping_add);
        agrees("mul.lo.u32", &values, u32::wrapping_mul);
        agrees("mul.hi.u32", &values, |a, b| ((a as u64 * b as u64) >> 32) as u32);
        agrees("div.u32", &values, |a, b| a.checked_div(b).unwrap_or(u32::MAX));
        agrees("min.s32", &values, |a, b| (a as i32).min(b as i32) as u32);
        agrees("add.rn.f32", &values, float(|a, b| a + b));
        agrees("mul.rn.f32", &values, float(|a, b| a * b));
        agrees("div.rn.f32", &values, float(|a, b| a / b));
    }

    #[test]
    fn directed_sums_bracket_the_nearest(values in prop::collection::vec(any::<(u32, u32)>(), 100)) {
        let exact = |a: u32, b: u32| f32::from_bits(a) as f64 + f32::from_bits(b) as f64;
        let side = |up: bool| move |a: u32, b: u32| {
            let (sum, nearest) = (exact(a, b), f32::from_bits(a) + f32::from_bits(b));
            // If the nearest `f32` is on the wrong side of the sum, the directed result is its neighbour in the
            // rounding direction.
            let other = if up { nearest.next_up() } else { nearest.next_down() };
            let wrong = if up { (nearest as f64) < sum } else { (nearest as f64) > sum };
            let rounded = if wrong && nearest.is_finite() { other } else { nearest };
            if rounded.is_nan() { 0x7fff_ffff } else { rounded.to_bits() }
        };
        // Similar exponents, so that the sum is exact in double precision.
        let near: Vec<_> = values.iter().map(|&(a, b)| (a & 0x83ff_ffff | 0x3c00_0000, b & 0x83ff_ffff | 0x3c00_0000)).collect();
        let nonzero: Vec<_> = near.into_iter().filter(|&(a, b)| exact(a, b) != 0.0).collect();
        agrees("add.rp.f32", &nonzero, side(true));
        agrees("add.rm.f32", &nonzero, side(false));
    }

    #[test]
    fn no_text_makes_the_loader_panic(text in "[ -~\n]{0,200}") {
        let _ = Module::parse(&text);
        let _ = Module::parse(&format!("{HEADER}.entry k() {{ .reg .b32 %r<4>; {text} }}"));
    }

    #[test]
    fn no_cut_or_changed_kernel_makes_the_loader_panic(cut in 0usize..1200, byte in 32u8..127) {
        let text = format!(
            "{HEADER}.visible .entry k(.param .u64 a, .param .align 4 .b8 b[12]) .reqntid 32 {{
            .reg .b32 %r<9>; .reg .pred %p; .reg .b64 %x<3>; .shared .align 8 .b8 s[64];
            ld.param.u64 %x0, [a+0]; mov.u32 %r0, %tid.x; @!%p bra L; ld.global.v2.b32 {{%r1, %r2}}, [%x0+-8];
            L: setp.lt.and.f32 %p|_, %r1, 0f3F800000, !%p; shfl.sync.bfly.b32 %r3|%p, %r1, 1, 31, -1;
            bar.red.popc.u32 %r4, 0, 64, %p; cvt.rn.f16x2.f32 %r5, %r1, %r2; mov.b64 {{%r1, _}}, %x1; bra L; }}"
        );
        let cut = cut % text.len();
        let _ = Module::parse(&text[..cut]);
        let mut changed = text.into_bytes();
        changed[cut] = byte;
        let _ = Module::parse(&String::from_utf8_lossy(&changed));
    }

    #[test]
    fn memory_keeps_what_is_written(writes in prop::collection::vec((0u64..9000, 1usize..5000, any::<u8>()), 1..20)) {
        let memory = Memory::new();
        let base = memory.alloc("m", 10_000);
        let mut model = vec![0u8; 10_000];
        for (at, len, byte) in writes {
            let fits = at as usize + len <= model.len();
            prop_assert_eq!(memory.write(base + at, &vec![byte; len]).is_ok(), fits);
            if fits {
                model[at as usize..at as usize + len].fill(byte);
            }
        }
        let mut read = vec![0; 10_000];
        memory.read(base, &mut read).expect("inside");
        prop_assert_eq!(read, model);
    }
}
