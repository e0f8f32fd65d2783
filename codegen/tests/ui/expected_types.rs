//! Handles where another type is expected.

mod branch_types {
    use bespoke_codegen::prelude::*;

    #[device]
    fn either(a: Val<u32>, b: Val<f32>) -> Val<u32> {
        if a > 3 { b } else { a }
        //         ^ expected `Val<u32>`, found `Val<f32>`: convert with `.cast::<u32>()`; to reinterpret the bits,
        // `.bitcast::<u32>()`
    }
}

mod compile_time_variable {
    use bespoke_codegen::prelude::*;

    struct Ring {
        stages: u32,
    }

    #[kernel(threads = 1)]
    fn sum(x: Ptr<Global, f32>, n: Val<u32>) {
        let mut sum = 0.0;
        sum = sum + x.load();
        //    ^^^^^^^^^^^^^^ E0308
        let ring = Ring { stages: n + 1 };
        //                        ^^^^^ E0308
        let count: u32 = n;
        //               ^ expected `u32`, found `Val<u32>`: a `Val` is known only on the GPU; a compile-time value
        // is a constant or a kernel parameter that is not a `Val`. A variable for this value starts as `val(…)`
        x.store(sum);
        x.at(ring.stages).store(count as f32);
    }
}

mod element_type {
    use bespoke_codegen::prelude::*;

    #[device]
    fn doubled(x: Ptr<Global, f32>, n: Val<u32>) -> Val<f32> {
        x.at(n).load() * 2.0
    }

    #[kernel]
    fn sums(x: Ptr<Global, u32>, n: Val<i32>) {
        let y = doubled(x, n);
        //              ^ expected a pointer to `f32`, found a pointer to `u32`: `.cast::<f32>()` reinterprets the
        // memory; to convert an element, write `.load().cast::<f32>()`
        //                 ^ expected `Val<u32>`, found `Val<i32>`: convert with `.cast::<u32>()`; to reinterpret
        // the bits, `.bitcast::<u32>()`
        x.store(y.cast::<u32>());
    }
}

mod pointer_for_value {
    use bespoke_codegen::prelude::*;

    #[device]
    fn square(x: Val<f32>) -> Val<f32> {
        x * x
    }

    #[kernel]
    fn squares(x: Ptr<Global, f32>, n: Val<u32>) {
        x.store(square(x.at(n)));
        //             ^^^^^^^ E0308
    }
}

mod result_type {
    use bespoke_codegen::prelude::*;

    #[device]
    fn larger(a: Val<u32>, b: Val<f32>, exact: bool) -> Val<f32> {
        let chosen = if a > 3 { b } else { a };
        //                                 ^ E0308
        if exact {
            match a > 7 {
                _ => a * 2,
                //   ^^^^^ E0308
            }
        } else {
            chosen
        }
    }
}

mod return_type {
    use bespoke_codegen::prelude::*;

    #[device]
    fn first(a: Val<u32>, b: Val<f32>) -> Val<f32> {
        if a == 0 {
            return a;
            //     ^ expected `Val<f32>`, found `Val<u32>`: convert with `.cast::<f32>()`; to reinterpret the bits,
            // `.bitcast::<f32>()`
        }
        b
    }
}

mod run_time_for_compile_time {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn exchanged(x: Ptr<Global, f32>, n: Val<u32>) {
        let words = shared_array::<f32>(n);
        //                              ^ expected `u32`, found `Val<u32>`: a `Val` is known only on the GPU; a
        // compile-time value is a constant or a kernel parameter that is not a `Val`. A variable for this value
        // starts as `val(…)`
        x.store(words.load());
    }
}

mod shared_for_global {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(x: Ptr<Global, f32>) -> Val<f32> {
        x.load() + x.at(1).load()
    }

    #[kernel]
    fn sums(y: Ptr<Global, f32>) {
        let x = shared_array::<f32>(2);
        y.store(sum(x));
        //          ^ E0308
    }
}

mod shared_for_global_intrinsic {
    use bespoke_codegen::prelude::*;

    struct Tile {
        rows: Ptr<Shared, u8>,
    }

    #[device]
    fn fetched(tile: &Tile, from: Ptr<Global, u8>) {
        copy_async::<16>(from, tile.rows);
        //               ^^^^ expected a pointer to `Shared` memory, found a pointer to `Global` memory: copy the
        // elements to that memory first; a `#[device]` function for both spaces is `fn f<S: Space>(x: Ptr<S, f32>)`
        //                     ^^^^ expected a pointer to `Global` memory, found a pointer to `Shared` memory: copy
        // the elements to that memory first; a `#[device]` function for both spaces is `fn f<S: Space>(x: Ptr<S,
        // f32>)`
        prefetch_l2(tile.rows.at(16));
        //          ^^^^^^^^^^^^^^^^ E0308
    }
}

mod matrices_of_two_kinds {
    use bespoke_codegen::prelude::*;

    #[device]
    fn product(a: FragmentA<f16, 4>, b: FragmentB<bf16, 2>) -> FragmentC<f32> {
        mma(a, b, FragmentC::zero())
        //     ^ E0308
    }
}

fn main() {}
