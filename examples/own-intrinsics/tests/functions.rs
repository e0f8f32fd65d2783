//! The intrinsics on the emulator, beside what they should compute.

use bespoke_codegen::prelude::*;
use bespoke_testing::{LANES, Launch, map};
use own_intrinsics::*;

#[test]
fn bits_and_differences() {
    let numbers = [0, 1, -1, 1000, -1000, i32::MIN];
    let highest = |x: i32| (x ^ x >> 31).checked_ilog2().unwrap_or(u32::MAX);
    assert_eq!(map(highest_significant_bit, "bfind.s32", numbers), numbers.map(highest));

    let difference = |x: Val<u32>| absolute_difference(x, val(10), val(1));
    assert_eq!(map(difference, "sad.u32", [0u32, 10, 17]), [11, 1, 8]);
}

#[test]
fn lanes() {
    let below = |_: Val<u32>| lower_lanes();
    assert_eq!(map(below, "mov.u32 …, %lanemask_lt", LANES), LANES.map(|lane| (1 << lane) - 1));
}

#[test]
fn products_of_128_bits() {
    const FACTOR: u64 = 0xfedc_ba98_7654_3210;
    let numbers = [0, 1, u64::MAX, FACTOR, 0xffff_ffff, 1 << 32, 0x1234_5678_9abc_def1];
    let exact = |x: u64| u128::from(x) * u128::from(FACTOR);
    let low = |x| wide_product(x, val(FACTOR)).0;
    let high = |x| wide_product(x, val(FACTOR)).1;
    assert_eq!(map(low, "madc.hi.cc.u32", numbers), numbers.map(|x| exact(x) as u64));
    assert_eq!(map(high, "madc.hi.cc.u32", numbers), numbers.map(|x| (exact(x) >> 64) as u64));
}

#[test]
fn turns_of_a_counter_in_shared_memory() {
    #[kernel(threads = 32)]
    fn turns(x: Ptr<Global, u32>) {
        let counter = shared_array::<u32>(1);
        if lane() == 0 {
            counter.store(0);
        }
        warp_barrier(ALL_LANES);
        let turn = next_turn(counter, val(4));
        x.at(lane()).store(turn);
    }
    let kernel = turns().unwrap();
    let mut turns = Launch::of(&kernel).buffer(&[9u32; 32]).run().unwrap().buffer::<u32>(0);
    turns.sort_unstable();
    // 32 turns of 0 to 4: 0 and 1 occur seven times.
    assert_eq!(turns, [vec![0; 7], vec![1; 7], vec![2; 6], vec![3; 6], vec![4; 6]].concat());
}

#[test]
fn a_kernel_that_uses_them() {
    let numbers: [i32; 33] = std::array::from_fn(|i| (i as i32 * 37) % 64 - 30);
    let kernel = compact().unwrap();
    let done = Launch::of(&kernel).buffer(&numbers).value(0).run().unwrap().buffer::<i32>(0);
    let expected: Vec<i32> = numbers[..32].iter().copied().filter(|&x| x > 0).collect();
    assert_eq!(done[..expected.len()], expected);
    assert_eq!(done[32], expected.len() as i32);
}

/// PTX that does not exist is an error while recording, and names the Rust line and the place in the text.
#[test]
fn a_misspelt_instruction_names_its_line() {
    #[kernel(threads = 32)]
    fn misspelt(x: Ptr<Global, u32>) {
        let y: Val<u32> = inline_ptx("bfinds.u32 {y}, {x};").input("x", x.load()).pure().output("y");
        x.store(y);
    }
    let error = misspelt().unwrap_err();
    let line =
        1 + include_str!("functions.rs").lines().position(|line| line.contains("bfinds.u32 {y}")).unwrap();
    assert_eq!(error.line as usize, line);
    let expected = "inline PTX, line 1, column 1: PTX has no instruction `bfinds`; did you mean `bfind`?";
    assert!(error.message.starts_with(expected), "{error}");
}

/// What only an assembler knows is an error of the emulator; so is every mistake in unchecked text.
#[test]
fn a_form_that_does_not_exist_names_its_line() {
    #[kernel(threads = 32)]
    fn wrong(x: Ptr<Global, u32>, text: &str, checked: bool) {
        let ptx = inline_ptx(text).input("x", x.load()).pure();
        let ptx = match checked {
            true => ptx,
            false => ptx.unchecked(),
        };
        x.store(ptx.output::<u32>("y"));
    }
    for (text, checked) in [("bfind.f32 {y}, {x};", true), ("bfinds.u32 {y}, {x};", false)] {
        let kernel = wrong(text, checked).unwrap();
        let error = Launch::of(&kernel).buffer(&[0u32; 32]).run().err().unwrap().to_string();
        for part in ["bfind", "functions.rs:"] {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    }
}

/// Mistakes in the operands are errors of the recording.
#[test]
fn wrong_operands() {
    #[kernel(threads = 1)]
    fn wrong(x: Ptr<Global, u32>, text: &str) {
        x.store(inline_ptx(text).input("x", x.load()).output::<u32>("y"));
    }
    for (text, expected) in [
        ("bfind.u32 {y}, {z};", "has no operand called `z`, only y, x"),
        ("bfind.u32 {y}, 7;", "does not use `{x}`"),
        ("bfind.u32 {y}, {x}", "does not end in `;`"),
        ("add.u64 {y}, {x}, 1;", "`y` is a register of 32 bits, but the instruction is `.u64`"),
        ("mov.b32 {y}, {x}; mov.b32 t, {x};", "line 1, column 27: `t` is not declared"),
    ] {
        let error = wrong(text).err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains("functions.rs:"), "no {expected:?} in: {error}");
    }
}

/// `needs` is checked for every target.
#[test]
fn a_target_that_lacks_the_instruction() {
    #[kernel(threads = 32)]
    fn newer(x: Ptr<Global, u32>) {
        let text = "redux.sync.add.u32 {y}, {x}, -1;";
        x.store(
            inline_ptx(text).input("x", x.load()).convergent().needs(Target::Sm90, (7, 8)).output::<u32>("y"),
        );
    }
    let kernel = newer().unwrap();
    let error = kernel.compile(Target::Sm80).unwrap_err().to_string();
    assert!(error.contains("redux.sync.add.u32") && error.contains("needs sm_90"), "{error}");
    assert!(kernel.compile(Target::Sm90).unwrap().ptx.starts_with(".version 7.8"));
}
