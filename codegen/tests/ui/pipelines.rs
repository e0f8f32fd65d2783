//! Pipelines of tiles: the mistakes that types show.

mod position_missing {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 256)]
    fn filled(#[tile([8, 8])] a: TensorMap<f32, 2>, #[tile([8])] b: TensorMap<f32, 1>) {
        let ring = Pipeline::of_tiles((a, b), 2, WarpgroupRoles { consumers: 1 }, dynamic_shared());
        ring.producer(0).fill(((0, 0),), None);
        //                    ^^^^^^^^^ `(({integer}, {integer}),)` does not give a position for each of the tiles
        // `(TensorMap<f32, 2>, TensorMap<f32, 1>)`: expected a tuple with a position for each tensor map of the
        // pipeline
    }
}

mod position_of_another_rank {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 256)]
    fn filled(#[tile([8, 8])] a: TensorMap<f32, 2>, #[tile([8])] b: TensorMap<f32, 1>) {
        let ring = Pipeline::of_tiles((a, b), 2, WarpgroupRoles { consumers: 1 }, dynamic_shared());
        ring.producer(0).fill(((0, 0), (0, 0)), None);
        //                             ^^^^^^ `({integer}, {integer})` is not a position in 1 dimensions: expected a
        // tuple or an array of 1 indices, dimension 0 first
    }
}

mod no_tensor_map {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 256)]
    fn filled(a: Ptr<Global, f32>) {
        let _ = Pipeline::of_tiles((a,), 2, WarpgroupRoles { consumers: 1 }, dynamic_shared());
        //                         ^^^^ `(Ptr<Global, f32>,)` does not describe the tiles of a stage: expected a
        // tuple of one to four tensor maps
    }
}

mod sums_read_early {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 128)]
    fn product(#[tile([64, 64])] a: TensorMap<f16, 2, Swizzle128>, x: Ptr<Global, f32>) {
        let tile = a.shared_tile().operand(0, 0);
        let sums = start_products(64, &[(tile, tile)]);
        x.store(sums.fragments()[0].0[0]);
        //           ^^^^^^^^^ E0599
    }
}

mod floats_of_8_bits_by_bytes {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 32)]
    fn product(x: Ptr<Global, f32>) {
        let a = FragmentA::<E4m3, 4>::from_registers([val(0u32); 4]);
        let b = FragmentB::<u8, 2>::from_registers([val(0u32); 2]);
        x.store(mma(a, b, FragmentC::zero()).0[0]);
        //          ^ a matrix of `E4m3` cannot be multiplied by one of `u8`: expected fragments of bytes, of 8-bit
        // floats, of f16, of bf16 or of f32
        //             ^ E0271
    }
}

mod f16_sums_of_bf16 {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 128)]
    fn product(#[tile([64, 64])] a: TensorMap<bf16, 2, Swizzle128>) {
        let tile = a.shared_tile().operand(0, 0);
        let _ = start_products_f16_sums(64, &[(tile, tile)]);
        //                                  ^^^^^^^^^^^^^^^ a warpgroup has no product of `bf16` and `_` with sums
        // of type `F16x2`: expected bytes with i32 sums, or floats of one type with f32 sums
    }
}
// ^ E0601
