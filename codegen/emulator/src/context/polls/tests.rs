//! Loops that yield, and loops that do not.

use super::{LOOP, Polls};

/// The operations of a loop that end the warp's turn, as indices of `operations`, which are instructions and values.
fn yields(operations: &[(usize, u64)]) -> Vec<usize> {
    let mut polls = Polls::default();
    let yields = operations.iter().map(|&(pc, value)| polls.record(pc, value));
    yields.enumerate().filter_map(|(index, yields)| yields.then_some(index)).collect()
}

#[test]
fn a_load_that_returns_the_same_yields() {
    assert_eq!(yields(&[(0, 7), (0, 7), (0, 7), (0, 8), (0, 8)]), [1, 2, 4]);
}

#[test]
fn a_loop_of_several_loads_yields_once_an_iteration() {
    assert_eq!(yields(&[(0, 1), (1, 2), (0, 1), (1, 2), (0, 1), (1, 2), (0, 1), (1, 2)]), [3, 5, 7]);
}

#[test]
fn a_loop_in_which_a_value_changes_does_not_wait() {
    let progress: Vec<(usize, u64)> = (0..20).flat_map(|i| [(0, 1), (1, i)]).collect();
    assert_eq!(yields(&progress), []);
}

#[test]
fn a_long_loop_does_not_wait() {
    let operations: Vec<(usize, u64)> = (0..5).flat_map(|_| (0..LOOP + 1).map(|pc| (pc, 1))).collect();
    assert_eq!(yields(&operations), []);
}
