//! Tensor maps: the mistakes that types and attributes show.

mod without_tile {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn prefetched(x: TensorMap<f32, 2>) {
    //               ^^^^^^^^^ a tensor map needs the sizes of its tiles: write `#[tile([64, 128])]`, with the
    // elements along each dimension, before the parameter
        x.prefetch((0, 0), None);
    }
}

mod tile_of_a_pointer {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn cleared(#[tile([4, 4])] x: Ptr<Global, f32>) {
    //                ^^^^^^ `Ptr<Global, f32>` is not a tensor map and has no tiles: remove `#[tile(…)]`, or make
    // this a `TensorMap<T, RANK, …>`
    //                            ^^^ `Ptr<Global, f32>` is not a tensor map and has no tiles: remove `#[tile(…)]`,
    // or make this a `TensorMap<T, RANK, …>`
        x.store(0.0);
    }

    #[kernel]
    fn compile_time(#[tile([4, 4])] n: u32, x: Ptr<Global, u32>) {
    //                ^^^^ `#[tile(…)]` goes on a parameter of type `TensorMap<T, RANK, …>`
        x.store(n);
    }
}

mod tile_of_another_rank {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn prefetched(#[tile([4, 4, 4])] x: TensorMap<f32, 2>) {
    //                                  ^^^^^^^^^ E0271
        x.prefetch((0, 0), None);
    }
}

mod tile_known_on_the_gpu {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn prefetched(rows: Val<u32>, #[tile([4, rows])] x: TensorMap<f32, 2>) {
    //                                       ^^^^ `rows` is known only on the GPU: write an expression of
    // compile-time parameters and constants
        x.prefetch((0, 0), None);
    }
}

mod position_of_another_rank {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn prefetched(#[tile([4, 4])] x: TensorMap<f32, 2>) {
        x.prefetch((0, 0, 0), None);
        //         ^^^^^^^^^ `({integer}, {integer}, {integer})` is not a position in 2 dimensions: expected a tuple
        // or an array of 2 indices, dimension 0 first
    }
}

mod other_element {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn copied(#[tile([8])] x: TensorMap<f16, 1>, #[tile([8])] y: TensorMap<bf16, 1>) {
        x.store((0,), y.shared_tile(), None);
        //            ^^^^^^^^^^^^^^^ E0308
    }
}

mod other_swizzle {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn copied(#[tile([8])] x: TensorMap<f32, 1, Swizzle32>, #[tile([8])] y: TensorMap<f32, 1>) {
        x.store((0,), y.shared_tile(), None);
        //            ^^^^^^^^^^^^^^^ E0308
    }
}
// ^ E0601
