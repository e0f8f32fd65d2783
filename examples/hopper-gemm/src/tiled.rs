//! A warpgroup for each tile of C; loads through tensor maps and products take turns.

use bespoke_codegen::prelude::*;

/// Rows and columns of C per CTA, and elements along K at a time.
pub const TILE: [u32; 3] = [64, 128, 64];

/// C = A·Bᵀ. The numbers of rows of A and B are multiples of [`TILE`]; the grid has a CTA for each tile of C.
#[kernel(threads = 128)]
pub fn tiled(
    #[tile([TILE[2], TILE[0]])] a: TensorMap<f16, 2, Swizzle128>,
    #[tile([TILE[2], TILE[1]])] b: TensorMap<f16, 2, Swizzle128>,
    c: Ptr<Global, f16>,
    n: Val<u32>,
    k: Val<u32>,
) {
    let (left, right) = (a.shared_tile(), b.shared_tile());
    let loaded = mbarrier_array(1).at(0);
    let (row, column) = (block_index_y() * TILE[0], block_index() * TILE[1]);
    if thread_index() == 0 {
        loaded.init(1);
        fence_mbarrier_init();
    }
    barrier();
    let mut sums = WarpgroupSums::zero(TILE[1]);
    for step in 0..(k + (TILE[2] - 1)) / TILE[2] {
        if thread_index() == 0 {
            loaded.arrive_expect(left.size() + right.size());
            a.load(left, (step * TILE[2], row), loaded, None);
            b.load(right, (step * TILE[2], column), loaded, None);
        }
        loaded.wait(step & 1, Wait::Try);
        let product = |part| (left.operand(0, part), right.operand(0, part));
        sums = sums.multiply(&[product(0), product(1), product(2), product(3)]).wait();
        // The tiles may be loaded again when all warps have read them.
        barrier();
    }
    for (fragment, FragmentC(values)) in sums.fragments().iter().enumerate() {
        for pair in [0, 2u32] {
            let row = row + warp_index() * 16 + FragmentC::<f32>::row(pair);
            let column = column + fragment as u32 * 8 + FragmentC::<f32>::column(pair);
            let [low, high] = [values[pair as usize], values[pair as usize + 1]];
            c.at(row * n + column).cast::<F16x2>().store(pack_rounded(low, high));
        }
    }
}
