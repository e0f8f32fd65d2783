//! The largest `K` numbers of each row, one warp per row.

use bespoke_codegen::prelude::*;

/// Stores the `K` largest of `length` finite numbers of each row, largest first, with their columns. Of equal numbers the
/// one in the lower column is first. `length` is at least `K` and a multiple of 4.
///
/// Each lane keeps the `K` best of its columns, sorted, in registers. Then the warp takes the best head of all lanes `K`
/// times.
#[kernel(threads = 32)]
pub fn top_k<const K: usize>(
    #[aligned(16)] x: Ptr<Global, f32>,
    values: Ptr<Global, f32>,
    columns: Ptr<Global, u32>,
    length: Val<u32>,
) {
    let row = x.at(block_index() * length);
    let (values, columns) = (values.at(block_index() * K as u32), columns.at(block_index() * K as u32));
    let mut best = [val(f32::NEG_INFINITY); K];
    let mut at = [val(u32::MAX); K];
    for column in range(lane() * 4, length).step_by(128) {
        for (mut number, mut own) in
            row.at(column).load_vector::<4>().into_iter().zip((0..4).map(|i| column + i))
        {
            if number > best[K - 1] {
                // A column never precedes an equal number of a lower column.
                for i in 0..K {
                    let larger = number > best[i];
                    let down = (select(larger, best[i], number), select(larger, at[i], own));
                    (best[i], at[i]) = (select(larger, number, best[i]), select(larger, own, at[i]));
                    (number, own) = down;
                }
            }
        }
    }
    for rank in 0..K {
        let (_, first) = warp_arg_max(best[0], at[0]);
        if at[0] == first {
            values.at(rank).store(best[0]);
            columns.at(rank).store(first);
            for i in 1..K {
                (best[i - 1], at[i - 1]) = (best[i], at[i]);
            }
            (best[K - 1], at[K - 1]) = (val(f32::NEG_INFINITY), val(u32::MAX));
        }
    }
}
