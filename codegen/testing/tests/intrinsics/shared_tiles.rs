//! Tiles that threads fill: their layouts, bank conflicts, copies at edges, and errors of recording.

use bespoke_codegen::dsl::Recorded;
use bespoke_codegen::prelude::*;
use bespoke_testing::{Done, Launch};
use expect_test::expect;

/// Copies a tile of 16-byte pieces, and stores its elements by columns: each lane has a row, 4 or 16 bytes at a time.
#[kernel(threads = 32)]
fn by_columns<L: TileLayout>(x: Ptr<Global, u32>, y: Ptr<Global, u32>, columns: u32, vectors: bool) {
    let tile = TileShape::<u32, 2, L>::new([columns, 32]).shared_tile();
    tile.copy_async::<16>(x, columns, lane(), 32);
    commit_copies();
    wait_copies(0);
    barrier();
    if vectors {
        for column in (0..columns).step_by(4) {
            y.at(lane() * columns + column).store_vector(tile.at((column, lane())).load_vector::<4>());
        }
    } else {
        for column in 0..columns {
            y.at(lane() * columns + column).store(tile.at((column, lane())).load());
        }
    }
}

/// Runs a kernel that copies a tile, and returns the conflicts of the copies, and of the loads of the tile.
fn ways<L: TileLayout>(columns: u32, vectors: bool) -> [u64; 2] {
    let kernel = by_columns::<L>(columns, vectors).unwrap();
    let words: Vec<u32> = (0..columns * 32).collect();
    let launch = Launch::of(&kernel).buffer(&words).uninitialised::<u32>(words.len());
    let done = launch.profile().run().unwrap();
    assert_eq!(done.buffer::<u32>(1), words);
    let profile = done.profile().unwrap();
    ["cp.async.cg", "ld.shared"].map(|name| {
        let of_name = profile.instructions.iter().filter(|i| i.ptx_text.trim().starts_with(name));
        of_name.map(|i| i.counts.shared.worst_ways).max().unwrap()
    })
}

#[test]
fn bank_conflicts_by_layout() {
    let table = [
        ("Unswizzled, rows of 128 bytes, words", ways::<Unswizzled>(32, false)),
        ("Unswizzled, rows of 128 bytes, vectors", ways::<Unswizzled>(32, true)),
        ("Padded<16>, rows of 128 bytes, words", ways::<Padded<16>>(32, false)),
        ("Padded<16>, rows of 128 bytes, vectors", ways::<Padded<16>>(32, true)),
        ("Padded<16>, rows of 64 bytes, vectors", ways::<Padded<16>>(16, true)),
        ("Swizzle128, rows of 128 bytes, words", ways::<Swizzle128>(32, false)),
        ("Swizzle128, rows of 128 bytes, vectors", ways::<Swizzle128>(32, true)),
        ("Swizzle128, rows of 384 bytes, vectors", ways::<Swizzle128>(96, true)),
        ("Swizzle64, rows of 64 bytes, vectors", ways::<Swizzle64>(16, true)),
        ("Swizzle32, rows of 32 bytes, vectors", ways::<Swizzle32>(8, true)),
    ];
    let rows = table.map(|(layout, [copies, loads])| format!("{layout}: copies {copies}, loads {loads}\n"));
    expect![[r#"
        Unswizzled, rows of 128 bytes, words: copies 1, loads 8
        Unswizzled, rows of 128 bytes, vectors: copies 1, loads 8
        Padded<16>, rows of 128 bytes, words: copies 1, loads 1
        Padded<16>, rows of 128 bytes, vectors: copies 1, loads 1
        Padded<16>, rows of 64 bytes, vectors: copies 2, loads 1
        Swizzle128, rows of 128 bytes, words: copies 1, loads 4
        Swizzle128, rows of 128 bytes, vectors: copies 1, loads 1
        Swizzle128, rows of 384 bytes, vectors: copies 1, loads 1
        Swizzle64, rows of 64 bytes, vectors: copies 1, loads 1
        Swizzle32, rows of 32 bytes, vectors: copies 1, loads 1
    "#]]
    .assert_eq(&rows.concat());
}

#[test]
fn bank_conflicts_are_listed() {
    #[kernel(threads = 32)]
    fn column(x: Ptr<Global, u32>) {
        let tile = TileShape::<u32, 2>::new([32, 32]).shared_tile();
        tile.at((3, lane())).store(lane());
        warp_barrier(ALL_LANES);
        x.at(lane()).store(tile.at((3, lane())).load());
    }
    let done = Launch::of(&column().unwrap()).uninitialised::<u32>(32).profile().run().unwrap();
    expect![[r#"
        codegen/testing/tests/intrinsics/shared_tiles.rs:76:30: 32-way: st.shared.u32 [%r4+12], %r2;
        codegen/testing/tests/intrinsics/shared_tiles.rs:78:49: 32-way: ld.shared.u32 %r5, [%r4+12];"#]]
    .assert_eq(&done.bank_conflicts().join("\n"));
}

/// A tile at a position of a matrix of `width` × `height` elements whose rows are `stride` elements apart.
#[kernel(threads = 24)]
fn part<const BYTES: usize, L: TileLayout>(
    x: Ptr<Global, u32>,
    y: Ptr<Global, u32>,
    stride: Val<u32>,
    width: Val<u32>,
    height: Val<u32>,
    sizes: [u32; 2],
    first: [i32; 2],
) {
    let tile = TileShape::<u32, 2, L>::new(sizes).shared_tile();
    tile.copy_async_filled::<BYTES>(x, stride, first, (width, height), thread_index(), 24);
    commit_copies();
    wait_copies(0);
    barrier();
    for i in range(thread_index(), sizes[0] * sizes[1]).step_by(24) {
        y.at(i).store(tile.at((i % sizes[0], i / sizes[0])).load());
    }
}

/// The tile at `first` of a matrix of 13 × 5 numbers from 1 on, in rows of 16.
fn check_part<const BYTES: usize, L: TileLayout>(sizes: [u32; 2], first: [i32; 2]) {
    let x: Vec<u32> = (0..16 * 5).map(|i| if i % 16 < 13 { 1 + i } else { 999 }).collect();
    let count = (sizes[0] * sizes[1]) as usize;
    let kernel = part::<BYTES, L>(sizes, first).unwrap();
    let launch = Launch::of(&kernel).buffer(&x).uninitialised::<u32>(count);
    let done = launch.value(16u32).value(13u32).value(5u32).run();
    let found = done.unwrap_or_else(|failure| panic!("{failure:?}")).buffer::<u32>(1);
    let element = |i: usize| {
        let (column, row) = (first[0] + i as i32 % sizes[0] as i32, first[1] + i as i32 / sizes[0] as i32);
        let inside = (0..13).contains(&column) && (0..5).contains(&row);
        if inside { (1 + row * 16 + column) as u32 } else { 0 }
    };
    assert_eq!(found, (0..count).map(element).collect::<Vec<u32>>(), "{sizes:?} at {first:?}");
}

#[test]
fn elements_outside_of_a_matrix_are_zero() {
    check_part::<16, Unswizzled>([16, 3], [0, 3]);
    check_part::<16, Swizzle32>([8, 8], [8, -2]);
    check_part::<16, Padded<16>>([12, 7], [-4, -1]);
    check_part::<8, Swizzle64>([16, 5], [2, 1]);
    check_part::<4, Unswizzled>([17, 9], [-2, -2]);
    check_part::<4, Padded<4>>([3, 2], [11, 4]);
    check_part::<16, Swizzle128>([32, 16], [-8, -8]);
}

#[test]
fn wrong_tiles_are_errors_at_their_line() {
    fn message(recorded: Recorded) -> String {
        let error = recorded.expect_err("an error");
        assert!(error.file.ends_with("shared_tiles.rs"), "{error}");
        error.message
    }
    /// A tile whose sizes are known while recording.
    #[kernel(threads = 32)]
    fn of<L: TileLayout>(x: Ptr<Global, u32>, columns: u32) {
        let tile = TileShape::<u32, 2, L>::new([columns, 8]).shared_tile();
        x.store(tile.at((0, 0)).load());
    }
    #[kernel(threads = 32)]
    fn copied(x: Ptr<Global, u32>) {
        TileShape::<u32, 2, Padded<4>>::new([4, 8]).shared_tile().copy_async::<16>(x, 4, lane(), 32);
    }
    #[kernel(threads = 32)]
    fn multiplied() {
        TileShape::<f16, 2, Padded<4>>::new([16, 16]).shared_tile().fragment_a::<4>((0, 0));
    }
    let messages = [
        message(of::<Swizzle128>(12)),
        message(of::<Swizzle64>(32)),
        message(of::<Swizzle32>(4)),
        message(of::<Padded<2>>(4)),
        message(of::<Unswizzled>(0)),
        message(copied()),
        message(multiplied()),
    ];
    expect![[r#"
        a tile with `Swizzle128` has rows of 128 bytes or of a multiple
        a tile with `Swizzle64` has rows of 64 bytes
        a tile with `Swizzle32` has rows of 32 bytes
        the padding of a tile is a multiple of the size of its elements
        a tile has at least one element along each dimension
        rows of 16 bytes of u32, 20 bytes apart, cannot be copied by 32 threads, 16 bytes at a time: write at least one thread, and 4, 8 or 16 bytes of which rows and their distances are multiples
        rows that are 36 bytes apart: `ldmatrix` reads 16 aligned bytes of a row, so pad rows to a multiple of 16 bytes"#]].assert_eq(&messages.join("\n"));
}

/// Sums of the products of 16 × 32 bytes by 32 × 16 bytes, with both operands in tiles of a layout.
#[kernel(threads = 32)]
fn product<L: TileLayout>(a: Ptr<Global, u8>, b: Ptr<Global, u8>, c: Ptr<Global, i32>, columns: u32) {
    let shape = TileShape::<u8, 2, L>::new([columns, 16]);
    let (a_tile, b_tile) = (shape.shared_tile(), shape.shared_tile());
    a_tile.copy_async::<16>(a, columns, lane(), 32);
    b_tile.copy_async::<16>(b, columns, lane(), 32);
    commit_copies();
    wait_copies(0);
    barrier();
    let mut sums = [FragmentC::zero(); 2];
    for k in (0..columns).step_by(32) {
        let left = a_tile.fragment_a::<4>((k, 0));
        let [first, second] = b_tile.fragments_b((k, 0));
        sums = [mma(left, first, sums[0]), mma(left, second, sums[1])];
        // The same fragments one at a time.
        sums[1] = mma(left, b_tile.fragment_b::<2>((k, 8)), sums[1]);
    }
    for (half, FragmentC(values)) in sums.iter().enumerate() {
        for i in 0..4u32 {
            let column = FragmentC::<i32>::column(i) + 8 * half as u32;
            c.at(FragmentC::<i32>::row(i) * 16 + column).store(values[i as usize]);
        }
    }
}

fn check_product<L: TileLayout>(columns: usize) -> Done {
    let [a, b] = [7, 11].map(|seed| (0..16 * columns).map(|i| (i * seed % 13) as u8).collect::<Vec<u8>>());
    let kernel = product::<L>(columns as u32).unwrap();
    let launch = Launch::of(&kernel).buffer(&a).buffer(&b).uninitialised::<i32>(256);
    let done = launch.profile().run().unwrap();
    let element = |at: usize| {
        let rows = a[at / 16 * columns..].iter().zip(&b[at % 16 * columns..]).take(columns);
        let sum: i32 = rows.map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
        if at % 16 < 8 { sum } else { 2 * sum }
    };
    assert_eq!(done.buffer::<i32>(2), (0..256).map(element).collect::<Vec<i32>>());
    done
}

#[test]
fn fragments_of_swizzled_tiles_have_no_conflicts() {
    for done in [
        check_product::<Swizzle32>(32),
        check_product::<Swizzle64>(64),
        check_product::<Swizzle128>(128),
        check_product::<Swizzle128>(256),
        check_product::<Padded<16>>(256),
    ] {
        assert_eq!(done.bank_conflicts(), [""; 0]);
    }
    assert!(!check_product::<Unswizzled>(128).bank_conflicts().is_empty());
}
