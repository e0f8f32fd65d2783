//! LU decomposition of a batch of small f64 matrices with partial pivoting.

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 128;
/// Rows and columns of a matrix, and lanes that share it.
pub const N: usize = 16;
const LANES: u32 = N as u32;

/// Factors of each of `count` row-major matrices: U in the upper triangle, L below the diagonal, rows in the order of the
/// pivots. `pivots[k]` of a matrix is the original row of pivot k.
///
/// A lane holds a row in registers. Rows do not move: the lane of a pivot is told its final place.
#[kernel(threads = THREADS)]
pub fn lu(
    #[aligned(16)] matrices: Ptr<Global, f64>,
    #[aligned(16)] factors: Ptr<Global, f64>,
    pivots: Ptr<Global, u32>,
    count: Val<u32>,
) {
    let group = lanes(ALL_LANES).in_groups_of(LANES);
    let (matrix, row) = (block_index() * (THREADS / LANES) + thread_index() / LANES, thread_index() % LANES);
    // The lanes of absent matrices work on the last one and store nothing.
    let rows = matrices.at(matrix.min(count - 1) * (LANES * LANES));
    let factors = factors.at(matrix * (LANES * LANES));
    let mut a = [val(0.0f64); N];
    for i in (0..N).step_by(2) {
        [a[i], a[i + 1]] = rows.at(row * LANES).at(i).load_vector();
    }
    let (mut place, mut is_free) = (val(0u32), row < LANES);
    for k in 0..N {
        let (mut size, mut pivot) = (select(is_free, a[k].abs(), -1.0), row);
        for step in [8, 4, 2, 1] {
            let (other, other_row) = (group.shuffle_xor(size, step), group.shuffle_xor(pivot, step));
            let better = other > size || (other == size && other_row < pivot);
            (size, pivot) = (select(better, other, size), select(better, other_row, pivot));
        }
        place = select(row == pivot, k as u32, place);
        is_free &= row != pivot;
        let reciprocal = group.shuffle_lane(a[k], pivot).rcp();
        let factor = select(is_free, a[k] * reciprocal, 0.0);
        a[k] = select(is_free, factor, a[k]);
        for j in k + 1..N {
            a[j] = fma(-factor, group.shuffle_lane(a[j], pivot), a[j]);
        }
    }
    if matrix < count {
        pivots.at(matrix * LANES + place).store(row);
        for i in (0..N).step_by(2) {
            factors.at(place * LANES).at(i).store_vector([a[i], a[i + 1]]);
        }
    }
}
