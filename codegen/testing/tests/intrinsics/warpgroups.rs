//! Products of warpgroups with operands in swizzled shared memory, and changes of their registers.

use bespoke_codegen::dsl::Recorded;
use bespoke_codegen::prelude::*;
use bespoke_testing::{Element, Launch};

/// Rows of A and columns of B.
const LINES: u32 = 64;

/// A·B for 64 rows of A and 64 columns of B, and as many elements along K as a row of the swizzle pattern holds. The operands
/// are contiguous along K, or transposed.
#[kernel(threads = 128)]
fn product<T: WarpgroupWith<T>, S: MatrixSwizzle>(
    transposed: [bool; 2],
    size: [[u32; 2]; 2],
    #[tile(size[0])] a: TensorMap<T, 2, S>,
    #[tile(size[1])] b: TensorMap<T, 2, S>,
    x: Ptr<Global, T::Sum>,
) where
    T::Sum: MatrixSum<Fragment = FragmentC<T::Sum>>,
{
    let counts = [0, 1].map(|i: usize| if transposed[i] { LINES / size[i][0] } else { 1 });
    let tiles = [a.shared_tiles(counts[0]), b.shared_tiles(counts[1])];
    let done = mbarrier_array(1).at(0);
    if thread_index() == 0 {
        done.init(1);
        fence_mbarrier_init();
        let bytes = counts[0] * tiles[0].at(0).size() + counts[1] * tiles[1].at(0).size();
        done.arrive_expect(bytes);
        for (map, tiles, count, size) in
            [(a, tiles[0], counts[0], size[0]), (b, tiles[1], counts[1], size[1])]
        {
            for tile in 0..count {
                map.load(tiles.at(tile), (tile * size[0], 0), done, None);
            }
        }
    }
    barrier();
    done.wait(0, Wait::Try);
    let depth = if transposed[0] { size[0][1] } else { size[0][0] };
    let step_depth = 32 / std::mem::size_of::<T>() as u32;
    let operand = |i: usize, step: u32| {
        let distance = [a.tile_distance(), b.tile_distance()][i];
        let tile = tiles[i].at(0);
        if transposed[i] {
            tile.transposed_operand(step * step_depth, distance)
        } else {
            tile.operand(0, step)
        }
    };
    let products: Vec<_> = (0..depth / step_depth).map(|step| (operand(0, step), operand(1, step))).collect();
    let sums = start_products(LINES, &products).wait();
    for part in 0..LINES / 8 {
        let FragmentC(values) = sums.fragments()[part as usize];
        for register in 0..4u32 {
            let row = warp_index() * 16 + FragmentC::<T::Sum>::row(register);
            let column = FragmentC::<T::Sum>::column(register) + part * 8;
            x.at(row * LINES + column).store(values[register as usize]);
        }
    }
}

/// Small integers.
fn number(seed: usize, line: usize, k: usize) -> i32 {
    ((seed * 7919 + line * 31 + k * 17) % 7) as i32
}

/// Multiplies with all combinations of `transpositions`, and compares with the product in integers.
fn check<T, S>(of: impl Fn(i32) -> T, sum: impl Fn(i32) -> T::Sum, transpositions: &[[bool; 2]])
where
    T: WarpgroupWith<T> + Element,
    S: MatrixSwizzle,
    T::Sum: Element + PartialEq + std::fmt::Debug + MatrixSum<Fragment = FragmentC<T::Sum>>,
{
    let depth = S::SWIZZLE.bytes() as usize / std::mem::size_of::<T>();
    for &transposed in transpositions {
        let size = transposed.map(|transposed| [depth as u32, if transposed { depth as u32 } else { LINES }]);
        let values = |i: usize| -> Vec<T> {
            let lines = LINES as usize;
            if transposed[i] {
                (0..depth * lines).map(|at| of(number(i, at % lines, at / lines))).collect()
            } else {
                (0..depth * lines).map(|at| of(number(i, at / depth, at % depth))).collect()
            }
        };
        let sizes =
            transposed.map(|transposed| if transposed { [64, depth as u64] } else { [depth as u64, 64] });
        let kernel = product::<T, S>(transposed, size).unwrap_or_else(|error| panic!("{error}"));
        let launch = Launch::of(&kernel).tensor(&values(0), sizes[0]).tensor(&values(1), sizes[1]);
        let done = launch.uninitialised::<T::Sum>(64 * 64).run().unwrap_or_else(|error| panic!("{error}"));
        let expected: Vec<T::Sum> = (0..64 * 64)
            .map(|at| sum((0..depth).map(|k| number(0, at / 64, k) * number(1, at % 64, k)).sum()))
            .collect();
        assert_eq!(done.buffer::<T::Sum>(2), expected, "{transposed:?}, {:?}", S::SWIZZLE);
        assert!(done.ptx().contains(".target sm_90a"));
    }
}

const ALL: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

#[test]
fn operands_of_halves_in_every_order_and_swizzle() {
    let half = |value: i32| f16::from_f32(value as f32);
    check::<f16, Swizzle128>(half, |sum| sum as f32, &ALL);
    check::<f16, Swizzle64>(half, |sum| sum as f32, &ALL);
    check::<f16, Swizzle32>(half, |sum| sum as f32, &ALL);
    check::<bf16, Swizzle128>(|value| bf16::from_f32(value as f32), |sum| sum as f32, &ALL);
}

#[test]
fn operands_of_bytes_along_k() {
    check::<u8, Swizzle128>(|value| value as u8, |sum| sum, &ALL[..1]);
    check::<i8, Swizzle64>(|value| value as i8, |sum| sum, &ALL[..1]);
}

/// The error of a kernel that cannot be recorded.
fn error(recorded: Recorded) -> String {
    recorded.err().map(|error| error.message).unwrap_or_default()
}

#[kernel]
fn operand_at(row: u32, step: u32, #[tile([32, 16])] x: TensorMap<f16, 2, Swizzle64>) {
    let _ = x.shared_tile().operand(row, step);
}

#[kernel]
fn transposed_bytes(#[tile([32, 16])] x: TensorMap<u8, 2, Swizzle32>) {
    let _ = x.shared_tile().transposed_operand(0, 512);
}

#[kernel]
fn long_rows() {
    let _ = TileShape::<f16, 2, Swizzle128>::new([128, 16]).shared_tile().operand(0, 0);
}

#[kernel(threads = 128, min_blocks = 1)]
fn registers(count: u32) {
    decrease_registers(count);
}

#[kernel(threads = 128)]
fn unlimited_registers() {
    increase_registers(232);
}

#[test]
fn wrong_operands_and_registers_cannot_be_recorded() {
    let outside = "rows are multiples of 8 below 16, steps are below 2";
    assert_eq!(error(operand_at(8, 1)), "");
    for (row, step) in [(4, 0), (16, 0), (0, 2)] {
        assert_eq!(
            error(operand_at(row, step)),
            format!("no operand begins at row {row} and step {step} of this tile: {outside}")
        );
    }
    assert_eq!(
        error(transposed_bytes()),
        "an operand of u8 cannot be transposed: only those of f16 and bf16"
    );
    assert_eq!(
        error(long_rows()),
        "rows of 256 bytes: an operand of a warpgroup's product has rows of 128 bytes, as long as the swizzle"
    );
    assert_eq!(error(registers(24)), "");
    for count in [16, 30, 264] {
        assert_eq!(
            error(registers(count)),
            format!("{count} registers per thread: write a multiple of 8 from 24 to 256")
        );
    }
    assert_eq!(
        error(unlimited_registers()),
        "registers can be redistributed only in a kernel with a limit: write `#[kernel(threads = …, min_blocks = 1)]`, or \
         `max_registers = …`"
    );
}
