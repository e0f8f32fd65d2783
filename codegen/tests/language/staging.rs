//! Recording: compile-time control flow, structs, methods and generics, source lines of instructions.

use bespoke_codegen::ir::{Function, Op};
use bespoke_codegen::prelude::*;

use crate::interpret;

fn count(function: &Function, wanted: impl Fn(&Op) -> bool) -> usize {
    let insts = function.layout.iter().flat_map(|&block| &function.block(block).insts);
    insts.filter(|&&inst| wanted(&function.inst(inst).op)).count()
}

fn is_store(op: &Op) -> bool {
    matches!(op, Op::Store(_))
}

fn is_branch(op: &Op) -> bool {
    matches!(op, Op::Branch)
}

/// Runs the kernel and returns `out[0]`. The parameters are the pointer `out`, then `arguments`.
fn result(kernel: Recorded, arguments: &[u32]) -> u32 {
    let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
    let mut memory = [0; 16];
    interpret::run(kernel.function(), &[&[0], arguments].concat(), &mut memory);
    memory[0]
}

#[kernel(threads = rows * 32)]
fn decided_while_recording(out: Ptr<Global, u32>, mut n: Val<u32>, rows: u32, twice: bool) {
    for row in 0..rows {
        n += 1;
        if row == 1 && !twice {
            continue;
        }
        out.at(row).store(n);
    }
    if twice {
        out.store(n * 2);
    }
}

#[test]
fn compile_time_control_flow_leaves_no_branch() {
    let kernel = decided_while_recording(3, false).unwrap();
    assert_eq!(count(kernel.function(), is_store), 2);
    assert_eq!(count(kernel.function(), is_branch), 0);
    assert_eq!(count(decided_while_recording(5, true).unwrap().function(), is_store), 6);
}

#[test]
fn a_kernel_knows_its_name_threads_and_parameters() {
    let kernel = decided_while_recording(3, false).unwrap();
    assert_eq!(kernel.name(), "decided_while_recording");
    assert_eq!(kernel.threads(), Some(96));
    let names: Vec<&str> = kernel.params().iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["out", "n"]);
}

/// Counts in `count` the right sides of `&&` and `||` that are evaluated while recording.
#[kernel]
fn right_sides_of_compile_time_operands(out: Ptr<Global, u32>, n: Val<u32>, flag: bool) {
    let mut count = 0u32;
    let both = flag && {
        count += 1;
        n > 3
    };
    let either = flag || {
        count += 10;
        n < 3
    };
    let neither = !flag && {
        count += 100;
        true
    };
    if both {
        out.at(1).store(1);
    }
    if either {
        out.at(2).store(1);
    }
    if neither {
        out.at(3).store(1);
    }
    out.store(count);
}

#[test]
fn a_compile_time_left_side_decides_whether_the_right_side_is_evaluated() {
    assert_eq!(result(right_sides_of_compile_time_operands(true), &[7]), 1);
    assert_eq!(result(right_sides_of_compile_time_operands(false), &[7]), 110);
}

/// A `&&` whose right side has a compile-time value, but stores to memory when it is recorded.
#[kernel]
fn store_on_a_right_side(out: Ptr<Global, u32>, n: Val<u32>) {
    let stored = n > 3 && {
        out.store(n);
        true
    };
    if !stored {
        out.store(100);
    }
}

#[test]
fn a_right_side_with_effects_is_conditional() {
    assert_eq!(result(store_on_a_right_side(), &[7]), 7);
    assert_eq!(result(store_on_a_right_side(), &[2]), 100);
}

#[kernel]
fn run_time_range(out: Ptr<Global, u32>, n: Val<u32>) {
    for i in 0..n {
        out.at(i).store(i);
    }
}

#[test]
fn a_run_time_range_is_recorded_once() {
    let kernel = run_time_range().unwrap();
    assert_eq!(count(kernel.function(), is_store), 1);
    assert_eq!(count(kernel.function(), is_branch), 1);
}

/// A struct of handles: sums by row, and a count.
#[derive(Clone, Copy, Carry)]
struct Tile<T: Scalar, const N: usize> {
    sums: [Val<T>; N],
    last: Step,
}

#[derive(Clone, Copy, Carry)]
struct Step(Val<u32>, #[carry(skip)] u32);

trait Accumulate {
    fn add(&mut self, row: usize, amount: Val<u32>) -> Val<bool>;
    fn total(&self) -> Val<u32>;
}

impl<const N: usize> Accumulate for Tile<u32, N> {
    #[device]
    fn add(&mut self, row: usize, amount: Val<u32>) -> Val<bool> {
        if amount > 5 {
            return val(false);
        }
        self.sums[row] += amount * self.last.1;
        self.last.0 = amount;
        amount == 5
    }

    #[device]
    fn total(&self) -> Val<u32> {
        let mut total = self.last.0;
        for sum in self.sums {
            total = total * 100 + sum;
        }
        total
    }
}

impl<T: Scalar, const N: usize> Tile<T, N> {
    /// A device function that returns a borrow of its parameter.
    #[device]
    fn first(&mut self) -> &mut Val<T> {
        &mut self.sums[0]
    }
}

/// Calls `step` with 0, 1, … until `step` returns true.
#[device]
fn repeat<F>(tile: &mut Tile<u32, 2>, n: Val<u32>, step: F)
where
    F: Fn(&mut Tile<u32, 2>, Val<u32>) -> Val<bool>,
{
    for i in 0..n {
        if step(tile, i) {
            break;
        }
    }
}

#[kernel]
fn structs(out: Ptr<Global, u32>, n: Val<u32>) {
    let mut tile = Tile { sums: [val(0); 2], last: Step(val(9), 3) };
    repeat(&mut tile, n, |tile, i| tile.add(0, i) | tile.add(1, i * 2));
    *tile.first() += 1;
    out.store(tile.total());
}

#[test]
fn structs_are_carried_by_field() {
    let host = |n: u32| {
        let (mut sums, mut last) = ([0, 0], 9);
        for i in 0..n {
            let mut enough = false;
            for (sum, amount) in sums.iter_mut().zip([i, i * 2]).filter(|(_, amount)| *amount <= 5) {
                *sum += amount * 3;
                last = amount;
                enough |= amount == 5;
            }
            if enough {
                break;
            }
        }
        (last * 100 + sums[0] + 1) * 100 + sums[1]
    };
    for n in 0..9 {
        assert_eq!(result(structs(), &[n]), host(n), "{n}");
    }
}

#[device]
fn clear_above(xs: &mut [Val<u32>], limit: Val<u32>) {
    for x in xs.iter_mut() {
        if *x > limit {
            *x = val(0);
        }
    }
    if limit == 4 {
        xs[0] += 10;
    }
}

#[kernel]
fn slices(out: Ptr<Global, u32>, a: Val<u32>, b: Val<u32>) {
    let mut xs = vec![a, b, a + b];
    clear_above(&mut xs, val(4));
    if a > 1 {
        clear_above(&mut xs[1..], a);
    }
    out.store(xs[0] * 100 + xs[1] * 10 + xs[2]);
}

#[test]
fn slices_are_carried() {
    assert_eq!(result(slices(), &[1, 2]), 1123);
    assert_eq!(result(slices(), &[2, 3]), 1200);
    assert_eq!(result(slices(), &[3, 1]), 1310);
}

#[rustfmt::skip]
mod placed {
    use super::*;
    pub const FIRST_LINE: u32 = line!();
    #[device]
    pub fn doubled(x: Val<u32>) -> Val<u32> {
        let sum = x
            + x;
        if sum != 6 {
            sum * 1
        } else {
            val(6)
        }
    }
    #[kernel]
    pub fn lines(out: Ptr<Global, u32>, x: Val<u32>) {
        for _ in 0..x {
            out.store(doubled(x));
        }
    }
}

/// Source lines, innermost first, of the instructions for which `wanted` is true, relative to [`placed::FIRST_LINE`].
fn lines_of(function: &Function, wanted: impl Fn(&Op) -> bool) -> Vec<Vec<u32>> {
    let insts = function.layout.iter().flat_map(|&block| &function.block(block).insts);
    insts
        .map(|&inst| function.inst(inst))
        .filter(|data| wanted(&data.op))
        .map(|data| {
            let mut next = data.loc;
            let mut chain = Vec::new();
            while let Some(loc) = next {
                assert!(function.locs[loc].file.ends_with("language/staging.rs"));
                chain.push(function.locs[loc].line - placed::FIRST_LINE);
                next = function.locs[loc].inlined_at;
            }
            chain
        })
        .collect()
}

#[test]
#[rustfmt::skip]
fn instructions_have_their_line_and_their_call_site() {
    let kernel = placed::lines().unwrap();
    let function = kernel.function();
    use bespoke_codegen::ir::{Binary, Compare};
    assert_eq!(lines_of(function, |op| *op == Op::Binary(Binary::Mul)), [[6, 14]]);
    assert_eq!(lines_of(function, |op| *op == Op::Compare(Compare::Ne)), [[5, 14]]);
    assert_eq!(lines_of(function, |op| *op == Op::Compare(Compare::Lt)), [[13]]);
    assert_eq!(lines_of(function, is_store), [[14]]);
    assert_eq!(lines_of(function, |op| *op == Op::Return), [[12]]);
    assert_eq!(lines_of(function, is_branch), [vec![13], vec![5, 14]]);
}

/// Sum of a list, by recursion on its halves.
#[device]
fn by_halves(list: &[Val<u32>]) -> Val<u32> {
    if list.len() == 1 {
        return list[0];
    }
    let (left, right) = list.split_at(list.len() / 2);
    by_halves(left) + by_halves(right)
}

#[kernel]
fn recursive(out: Ptr<Global, u32>, n: Val<u32>, last: u32) {
    let mut list = Vec::new();
    for i in 0..=last {
        list.push(n * i);
    }
    for i in 2..=last {
        list.push(n + i);
    }
    out.store(by_halves(&list));
}

#[test]
fn compile_time_recursion_and_inclusive_ranges() {
    let kernel = recursive(4).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = [0];
    interpret::run(kernel.function(), &[0, 10], &mut memory);
    assert_eq!(memory, [10 * (1 + 2 + 3 + 4) + 3 * 10 + 2 + 3 + 4]);
}

/// A compile-time value of a generic type is a run-time value, too.
#[test]
fn generic_code_takes_compile_time_values() {
    #[kernel(threads = 1)]
    fn cleared<T: Number + Default>(x: Ptr<Global, T>) {
        if x.load() > T::default() {
            x.store(T::default());
        }
    }
    let done = bespoke_testing::Launch::of(&cleared::<f32>().unwrap()).buffer(&[2.0f32]).run().unwrap();
    assert_eq!(done.buffer::<f32>(0), [0.0]);
}

#[test]
fn a_cta_has_threads_along_three_axes() {
    #[kernel(threads = (8, rows, 2))]
    fn block(x: Ptr<Global, u32>, y: Ptr<Global, u32>, rows: u32) {
        let index = (thread_index_z() * rows + thread_index_y()) * 8 + thread_index();
        x.at(index).store(thread_index_y() * 100 + thread_index_z() * 10 + warp_index());
        y.at(index).store(block_size() * 100 + block_size_y() * 10 + block_size_z());
    }
    let kernel = block(6).unwrap();
    assert_eq!((kernel.threads(), kernel.block()), (Some(96), Some([8, 6, 2])));
    let launch = bespoke_testing::Launch::of(&kernel);
    let done = launch.uninitialised::<u32>(96).uninitialised::<u32>(96).run().unwrap();
    assert!(done.ptx().contains(".reqntid 8, 6, 2"), "{}", done.ptx());
    let expected: Vec<u32> = (0..96).map(|i| i / 8 % 6 * 100 + i / 48 * 10 + i / 32).collect();
    assert_eq!(done.buffer::<u32>(0), expected);
    assert_eq!(done.buffer::<u32>(1), [862; 96]);

    // Also as a constant.
    const PLANE: (u32, u32) = (32, 8);
    #[kernel(threads = PLANE)]
    fn plane(x: Ptr<Global, u32>) {
        // One warp has each row, so this branch does not divide a warp.
        if thread_index_y() < 4 {
            warp_barrier(ALL_LANES);
            x.at(thread_index_y() * 32 + lane()).store(warp_index());
        }
    }
    let kernel = plane().unwrap();
    assert_eq!(kernel.block(), Some([32, 8, 1]));
    let done = bespoke_testing::Launch::of(&kernel).uninitialised::<u32>(128).run().unwrap();
    assert_eq!(done.buffer::<u32>(0), (0..128).map(|i| i / 32).collect::<Vec<u32>>());

    #[kernel(threads = (32, y, z))]
    fn sized(x: Ptr<Global, u32>, y: u32, z: u32) {
        x.store(1);
    }
    for (y, z) in [(64, 1), (0, 1), (1, 65), (u32::MAX, u32::MAX)] {
        let error = sized(y, z).unwrap_err();
        assert!(error.message.contains(&format!("`threads = (32, {y}, {z})` is out of range")), "{error}");
    }
    assert!(sized(16, 2).is_ok());
}
