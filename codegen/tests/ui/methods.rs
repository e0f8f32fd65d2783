//! Methods that the handle does not have.

mod atomic_of_floats {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn most(x: Ptr<Global, f32>) {
        x.atomic_max(1.0, Scope::Gpu);
       // ^^^^^^^^^^ `f32` is not an integer: expected u8 to u64 or i8 to i64
    }
}

mod atomic_of_bytes {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 32)]
    fn counts(x: Ptr<Global, u8>) {
        x.atomic_add(1, Scope::Gpu);
       // ^^^^^^^^^^ there is no atomic sum of `u8`: expected u32, i32, u64, i64, f16, bf16, f32, f64, F16x2 or
       // Bf16x2
    }
}

mod atomic_of_halves {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn claimed(x: Ptr<Global, f32>) {
        let words = shared_array::<f16>(1);
        words.atomic_exchange(f16::ONE, Scope::Cta);
        //    ^^^^^^^^^^^^^^^ this operation takes words of 32 or 64 bits, not `f16`: expected u32, i32, f32, F16x2,
        // Bf16x2, u64, i64 or f64
        if x.atomic_cas(0.0, 1.0, Scope::Gpu) == 0.0 {
        //   ^^^^^^^^^^ `f32` is not an integer: expected u8 to u64 or i8 to i64
            x.at(1).store(1.0);
        }
    }
}

mod global_of_block {
    use bespoke_codegen::prelude::*;

    #[device]
    fn theirs(x: Ptr<Global, f32>) -> Val<f32> {
        x.of_block(1).load()
       // ^^^^^^^^ E0599
    }
}

mod integer_root {
    use bespoke_codegen::prelude::*;

    #[device]
    fn root(x: Val<u32>) -> Val<u32> {
        x.sqrt()
       // ^^^^ E0599
    }
}

fn main() {}
