//! Operands of arithmetic.

mod add_assign_types {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(a: Val<u32>, b: Val<f32>) -> Val<f32> {
        let mut x = b;
        x += a;
       // ^^ `Val<u32>` cannot be used as a run-time `f32`: expected `Val<f32>` or `f32`
        x
    }
}

mod add_signs {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(a: Val<u32>, b: Val<i32>) -> Val<u32> {
        a + b
       // ^ `Val<i32>` cannot be used as a run-time `u32`: expected `Val<u32>` or `u32`
    }
}

mod half_division {
    use bespoke_codegen::prelude::*;

    #[device]
    fn halved(x: Val<f16>) -> Val<f16> {
        x / f16::from_f32(2.0)
       // ^ `/` is not available for `f16`: expected an integer, f32 or f64; convert halves with `.cast::<f32>()`,
       // and convert the result back
    }
}

mod half_literal {
    use bespoke_codegen::prelude::*;

    #[device]
    fn doubled(x: Val<f16>) -> Val<f16> {
        x * 2.0
       // ^ `{float}` cannot be used as a run-time `f16`: expected `Val<f16>` or `f16`
    }
}

mod float_remainder {
    use bespoke_codegen::prelude::*;

    #[device]
    fn angle(x: Val<f32>) -> Val<f32> {
        x % 6.28
       // ^ `%` is not available for `f32`: expected an integer; for f32 write `x - (x /
       // y).cast::<i32>().cast::<f32>() * y`, if the quotient fits an i32
    }
}

mod float_bits {
    use bespoke_codegen::prelude::*;

    #[device]
    fn magnitude(x: Val<f32>) -> Val<f32> {
        x & 0x7fff_ffff
       // ^ `f32` has no bitwise operators: expected an integer or bool
    }
}

mod shifted_float {
    use bespoke_codegen::prelude::*;

    #[device]
    fn exponent(x: Val<f32>) -> Val<f32> {
        x >> 23
       // ^^ `f32` is not an integer: expected u8 to u64 or i8 to i64
    }
}

mod fused_integers {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(x: Val<u32>) -> Val<u32> {
        fma(x, x, x)
     // ^^^^^^^^^^^^ `u32` is not a float: expected f16, bf16, f32, f64, F16x2 or Bf16x2
    }
}

mod usize_value {
    use bespoke_codegen::prelude::*;

    #[device]
    fn one() -> Val<f32> {
        let x = val(1usize);
        //          ^^^^^^ `usize` is not a run-time scalar: expected bool, u8 to u64, i8 to i64, f16, bf16, f32,
        // f64, F16x2 or Bf16x2
        x.cast()
       // ^^^^ E0599
    }
}

mod reduced_float {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(x: Val<f32>) -> Val<f32> {
        redux_add(x)
        //        ^ `redux` takes `u32` or `i32`, not `f32`: expected u32 or i32
    }
}

mod shuffled_half {
    use bespoke_codegen::prelude::*;

    #[device]
    fn next(x: Val<u16>) -> Val<u16> {
        shuffle_down(x, 1)
        //           ^ a shuffle takes words of 32 or 64 bits, not `u16`: expected u32, i32, f32, F16x2, Bf16x2,
        // u64, i64 or f64
    }
}

fn main() {}
