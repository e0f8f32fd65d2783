//! The largest `K` numbers of each row, one warp per row.

use super::*;

/// Stores the `K` largest of `length` finite numbers of each row, largest first, with their columns. Of equal numbers the
/// one in the lower column is first. `length` is at least `K`.
///
/// Each lane keeps the `K` best of its columns, sorted, in registers. Then the warp takes the best head of all lanes `K`
/// times.
#[kernel(threads = 32)]
pub fn top_k<const K: usize>(
    x: Ptr<Global, f32>,
    length: Val<u32>,
    values: Ptr<Global, f32>,
    columns: Ptr<Global, u32>,
) {
    let row = x.at(block_index() * length);
    let mut best = [val(f32::NEG_INFINITY); K];
    let mut at = [val(u32::MAX); K];
    for column in range(lane(), length).step_by(32) {
        let (mut number, mut own) = (row.at(column).load(), column);
        // An insertion that pushes smaller numbers down; a column never precedes an equal number of a lower column.
        for i in 0..K {
            let larger = number > best[i];
            let (down, column_down) = (select(larger, best[i], number), select(larger, at[i], own));
            best[i] = select(larger, number, best[i]);
            at[i] = select(larger, own, at[i]);
            (number, own) = (down, column_down);
        }
    }
    for rank in 0..K {
        let largest = warp_max(best[0]);
        let first = redux_min(select(best[0] == largest, at[0], u32::MAX));
        if at[0] == first {
            values.at(block_index() * (K as u32) + (rank as u32)).store(best[0]);
            columns.at(block_index() * (K as u32) + (rank as u32)).store(first);
            for i in 1..K {
                (best[i - 1], at[i - 1]) = (best[i], at[i]);
            }
            (best[K - 1], at[K - 1]) = (val(f32::NEG_INFINITY), val(u32::MAX));
        }
    }
}

#[test]
fn the_largest_numbers_come_first() {
    const K: usize = 5;
    let (rows, length) = (4, 333);
    // Few different numbers, so that equal ones occur.
    let x: Vec<f32> = numbers(rows * length).map(|n| (n % 97) as f32 - 48.5).collect();
    let mut expected: Vec<(f32, u32)> = Vec::new();
    for row in x.chunks(length) {
        let mut ranked: Vec<(f32, u32)> = row.iter().copied().zip(0..).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        expected.extend(&ranked[..K]);
    }
    let kernel = top_k::<K>().unwrap();
    let launch = Launch::of(&kernel).grid(rows as u32).buffer(&x).value(length as u32);
    let done = launch.uninitialised::<f32>(rows * K).uninitialised::<u32>(rows * K).run().unwrap();
    let found: Vec<(f32, u32)> = done.buffer::<f32>(1).into_iter().zip(done.buffer::<u32>(2)).collect();
    assert_eq!(found, expected);
}
