//! Tiles in shared memory: the mistakes that types show.

mod rows_shorter_than_the_swizzle {
    use bespoke_codegen::prelude::*;

    const TILE: TileShape<f16, 2, Swizzle128> = TileShape::new([24, 8]);
    //                                          ^^^^^^^^^^^^^^^^^^^^^^^ E0080

    #[kernel]
    fn cleared() {
        TILE.shared_tile().at((0, 0)).store(f16::ZERO);
    }
}

mod padding_of_half_an_element {
    use bespoke_codegen::prelude::*;

    const TILE: TileShape<f32, 2, Padded<2>> = TileShape::new([24, 8]);
    //                                         ^^^^^^^^^^^^^^^^^^^^^^^ E0080

    #[kernel]
    fn cleared() {
        TILE.shared_tile().at((0, 0)).store(0.0);
    }
}

mod no_layout {
    use bespoke_codegen::prelude::*;

    const TILE: TileShape<f32, 2, f32> = TileShape::new([24, 8]);
    //                                   ^^^^^^^^^^^^^^^^^^^^^^^ `f32` is not a layout of a tile: expected
    // `Unswizzled`, `Padded<BYTES>`, `Swizzle32`, `Swizzle64` or `Swizzle128`
}

mod padding_of_a_tensor_map {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn prefetched(#[tile([4, 4])] x: TensorMap<f32, 2, Padded<16>>) {
    //                               ^^^^^^^^^ a tensor map has no tiles with the layout `Padded<16>`: expected
    // `Unswizzled`, `Swizzle32`, `Swizzle64` or `Swizzle128`
        x.prefetch((0, 0), None);
       // ^^^^^^^^ E0599
    }
}

mod padding_of_a_warpgroups_operand {
    use bespoke_codegen::prelude::*;

    const TILE: TileShape<f16, 2, Padded<16>> = TileShape::new([64, 64]);

    #[kernel]
    fn product() {
        let tile = TILE.shared_tile();
        let _ = tile.operand(0, 0);
        //           ^^^^^^^ E0599
    }
}

mod fragment_of_f64 {
    use bespoke_codegen::prelude::*;

    const TILE: TileShape<f64, 2, Padded<16>> = TileShape::new([16, 16]);

    #[kernel]
    fn product() {
        let _ = TILE.shared_tile().fragment_a::<4>((0, 0));
        //                         ^^^^^^^^^^ E0599
    }
}

mod copy_of_another_element {
    use bespoke_codegen::prelude::*;

    const TILE: TileShape<f16, 2, Padded<16>> = TileShape::new([16, 16]);

    #[kernel]
    fn copied(x: Ptr<Global, f32>) {
        TILE.shared_tile().copy_async::<16>(x, 16, lane(), 32);
        //                                  ^ E0308
    }
}
// ^ E0601
