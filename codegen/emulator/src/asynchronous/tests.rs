//! Tests of the operations of `wgmma` in flight.

use super::wgmma::{CHUNK, Operation, WgmmaOperations};

#[test]
fn a_chunk_has_more_than_65535_readers() {
    let (mut wgmma, chunk) = (WgmmaOperations::default(), (64, CHUNK));
    let (mut reserved, mut released) = (Vec::new(), Vec::new());
    (0..70_000).for_each(|_| wgmma.read(chunk, |address| reserved.push(address)));
    (0..70_000).for_each(|_| wgmma.end_read(chunk, |address| released.push(address)));
    assert_eq!((reserved, released), (vec![64], vec![64]));
}

#[test]
fn equal_operations_of_a_group_are_one_in_flight() {
    let mut wgmma = WgmmaOperations::default();
    let warp = wgmma.warp(0);
    // Group, instruction and address, and the number of operations in flight after them.
    for (number, (group, pc, address, in_flight)) in
        (0..).zip([(0, 1, 0, 1), (0, 1, 0, 1), (0, 1, 64, 2), (0, 2, 0, 3), (0, 1, 0, 3), (1, 1, 0, 4)])
    {
        let reads = vec![(address, CHUNK)];
        let operation = Operation { number, group, pc, reads, writes: Vec::new(), a: Vec::new() };
        if !warp.merge(&operation) {
            warp.in_flight.push(operation);
        }
        assert_eq!(warp.in_flight.len(), in_flight, "operation {number}");
    }
    warp.committed = 1;
    assert_eq!(warp.complete_with(0), 5);
}
