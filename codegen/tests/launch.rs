//! `bespoke_testing::Launch`: the limit of instructions, the choice of checks, and grids of three axes.

use bespoke_codegen::prelude::*;
use bespoke_testing::{Checks, Launch};

const LOOP: u32 = line!() + 5;
/// Never ends unless `i` becomes 7.
#[kernel(threads = 32)]
fn endless(x: Ptr<Global, u32>, step: Val<u32>) {
    let mut i = val(1u32);
    while i != 7 {
        i += step;
    }
    x.at(lane()).store(i);
}

#[test]
fn an_endless_loop_is_a_finding_with_its_line() {
    let kernel = endless().expect("the kernel records");
    let launch = || Launch::of(&kernel).uninitialised::<u32>(32);
    let finding = launch().value(4u32).instruction_limit(10_000).run().err().expect("a finding").to_string();
    let lines = [LOOP, LOOP + 1].map(|line| format!("launch.rs:{line}"));
    assert!(lines.iter().any(|line| finding.contains(line)), "{finding}");
    assert!(finding.contains("10000"), "{finding}");
    assert!(launch().value(3u32).run().is_ok());
    // The default ends the launch too.
    assert!(launch().value(4u32).run().is_err());
}

/// A race between the lanes.
#[kernel(threads = 32)]
fn raced(x: Ptr<Global, u32>) {
    x.store(lane());
}

#[test]
fn checks_can_be_chosen() {
    let kernel = raced().expect("the kernel records");
    let launch = || Launch::of(&kernel).buffer(&[0u32]);
    assert!(launch().run().is_err());
    assert!(launch().checks(Checks::NONE).run().is_ok());
}

/// Each thread stores its coordinates, a digit each.
#[kernel]
fn coordinates(x: Ptr<Global, u32>) {
    let block = (block_index_z() * 3 + block_index_y()) * 2 + block_index();
    let thread = thread_index_y() * 4 + thread_index();
    let digits = block_index_z() * 10_000 + block_index_y() * 1000 + block_index() * 100;
    x.at(block * 8 + thread).store(digits + thread_index_y() * 10 + thread_index());
}

#[test]
fn grids_and_ctas_have_three_axes() {
    let kernel = coordinates().expect("the kernel records");
    let launch = Launch::of(&kernel).grid((2, 3, 2)).threads((4, 2)).uninitialised::<u32>(96);
    let expected = |i: u32| {
        let (block, thread) = (i / 8, i % 8);
        block / 6 * 10_000 + block / 2 % 3 * 1000 + block % 2 * 100 + thread / 4 * 10 + thread % 4
    };
    assert_eq!(
        launch.run().expect("no findings").buffer::<u32>(0),
        (0..96).map(expected).collect::<Vec<_>>()
    );
}
