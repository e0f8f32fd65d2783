//! Matrices in shared memory, and their transposition.

use std::panic::Location;

use crate::dsl::pointer::{Ptr, Shared};
use crate::dsl::recorder::emit;
use crate::dsl::value::Val;
use crate::ir::{Op, Type};

#[track_caller]
fn load_rows<const N: usize>(row: Ptr<Shared, u8>, transposed: bool) -> [Val<u32>; N] {
    const { assert!(matches!(N, 1 | 2 | 4), "an `ldmatrix` loads 1, 2 or 4 matrices") };
    let op = Op::LoadMatrix { matrices: N as u8, transposed };
    let words = emit(op, Type::U32, &[row.id()], Location::caller());
    std::array::from_fn(|i| Val::from_id(words[i]))
}

/// Loads `N` (1, 2 or 4) matrices of 8 rows of 16 bytes from shared memory.
/// Lane l gives the address, aligned to 16, of row l mod 8 of matrix l / 8; addresses of lanes from 8·`N` on are not
/// used. Word i of lane l is the four bytes at 4·(l mod 4) in row l / 4 of matrix i.
///
/// - PTX: `ldmatrix.sync.aligned.m8n8.x1.shared.b16`, also `.x2`, `.x4`
/// - Target: sm_80
/// - Requires: all lanes; addresses aligned to 16
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // A matrix of 8 rows of 4 words.
/// #[kernel(threads = 32)]
/// fn loaded(x: Ptr<Global, u32>) {
///     let matrix = shared_array::<u32>(32);
///     matrix.at(lane()).store(lane());
///     warp_barrier(ALL_LANES);
///     let [word] = load_matrices::<1>(matrix.at((lane() & 7) * 4).cast());
///     x.at(lane()).store(word);
/// }
/// assert_eq!(run(loaded(), "ldmatrix.sync.aligned.m8n8.x1.shared.b16", [0u32; 32]), LANES);
/// ```
#[track_caller]
pub fn load_matrices<const N: usize>(row: Ptr<Shared, u8>) -> [Val<u32>; N] {
    load_rows(row, false)
}

/// As [`load_matrices`], with each matrix transposed as 8×8 16-bit elements.
///
/// - PTX: `ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16`, also `.x2`, `.x4`
/// - Target: sm_80
/// - Requires: all lanes; addresses aligned to 16
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // A matrix of 8 rows of 4 words.
/// #[kernel(threads = 32)]
/// fn loaded(x: Ptr<Global, u32>) {
///     let matrix = shared_array::<u32>(32);
///     matrix.at(lane()).store(lane());
///     warp_barrier(ALL_LANES);
///     let [word] = load_matrices_transposed::<1>(matrix.at((lane() & 7) * 4).cast());
///     x.at(lane()).store(word);
/// }
/// // Lane 1 has the first elements of rows 2 and 3.
/// let words = run(loaded(), "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16", [0u32; 32]);
/// assert_eq!(words[1], 8 | 12 << 16);
/// ```
#[track_caller]
pub fn load_matrices_transposed<const N: usize>(row: Ptr<Shared, u8>) -> [Val<u32>; N] {
    load_rows(row, true)
}

/// Transposes an 8 × 8 matrix of 16-bit elements that the lanes of a warp hold. Lane l holds elements 2·(l mod 4) and
/// 2·(l mod 4) + 1 of row l / 4, as in [`load_matrices`], and gets these elements of column l / 4.
///
/// - PTX: `movmatrix.sync.aligned.m8n8.trans.b16`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // The matrix of the numbers from 0, in row-major order.
/// #[kernel(threads = 32)]
/// fn transposed(x: Ptr<Global, u32>) {
///     let word = (lane() * 2 + 1) << 16 | lane() * 2;
///     x.at(lane()).store(transpose_matrix(word));
/// }
/// let column_major = |i: u32| i % 8 * 8 + i / 8;
/// let words = std::array::from_fn(|l| column_major(2 * l as u32 + 1) << 16 | column_major(2 * l as u32));
/// assert_eq!(run(transposed(), "movmatrix.sync.aligned.m8n8.trans.b16", [0u32; 32]), words);
/// ```
#[track_caller]
pub fn transpose_matrix(fragment: Val<u32>) -> Val<u32> {
    Val::from_id(emit(Op::TransposeMatrix, Type::U32, &[fragment.id()], Location::caller())[0])
}
