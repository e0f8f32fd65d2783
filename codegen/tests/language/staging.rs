//! Recording: compile-time control flow, structs, methods and generics, source lines of instructions, and errors.

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

#[kernel(threads = threads, cluster = cluster)]
fn sized(out: Ptr<Global, u32>, threads: u32, cluster: u32) {
    out.store(0u32);
}

#[test]
fn sizes_out_of_range_are_errors() {
    let error = |threads, cluster| sized(threads, cluster).err().map(|error| error.message);
    assert_eq!(error(1024, 8), None);
    assert_eq!(error(0, 1).unwrap(), "`threads = 0` is out of range: write 1 to 1024");
    assert_eq!(error(2048, 1).unwrap(), "`threads = 2048` is out of range: write 1 to 1024");
    assert_eq!(error(32, 9).unwrap(), "`cluster = 9` is out of range: write 1 to 8");
}

#[kernel(min_blocks = 2)]
fn crowded(out: Ptr<Global, u32>) {
    out.store(0u32);
}

#[kernel(threads = 32)]
fn größe(out: Ptr<Global, u32>) {
    out.store(0u32);
}

#[kernel(threads = 32)]
fn of_type(r#type: Ptr<Global, u32>) {
    r#type.store(0u32);
}

#[test]
fn signatures_without_ptx_are_errors() {
    let message = crowded().err().map(|error| error.message);
    assert_eq!(
        message.unwrap(),
        "`min_blocks` limits registers only together with `threads = …`: write both"
    );
    let message = of_type().err().map(|error| error.message);
    assert_eq!(
        message.unwrap(),
        "PTX has no name for the parameter `r#type`: write ASCII letters, digits and `_`"
    );
    let kernel = größe().unwrap_or_else(|error| panic!("{error}"));
    let error = kernel.compile(Target::Sm90).err().map(|error| error.to_string());
    assert_eq!(
        error.unwrap(),
        "kernel `größe`: PTX has no such name: write ASCII letters, digits and `_`, a letter first"
    );
}

/// Checks that recording fails at the line of `// here`, with a message that contains `message`.
macro_rules! refuses {
    ($($name:ident($($parameters:tt)*) $body:block says $message:literal)*) => { $(
        #[test]
        fn $name() {
            #[kernel]
            fn refused($($parameters)*) $body
            let error = refused().expect_err("recording must fail");
            assert!(error.message.contains($message), "{error}");
            assert!(error.file.ends_with("language/staging.rs"), "{error}");
        }
    )* };
}

refuses! {
    a_compile_time_variable_in_a_run_time_branch(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        if n == 3 { count += 1; }
        out.store(count);
    } says "`count` is a compile-time variable, and this run-time branch changes it"

    a_compile_time_variable_right_of_a_run_time_operand(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        if n == 3 || { count += 1; n == 4 } { out.store(count); }
    } says "`count` is a compile-time variable, and this run-time `||` changes it"

    a_compile_time_variable_in_a_run_time_loop(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        for i in 0..n { out.at(i).store(count); count += 1; }
    } says "`count` is a compile-time variable, and this run-time loop changes it"

    a_compile_time_variable_after_a_run_time_continue(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        for i in 0..4u32 {
            if n == i { continue; }
            count += 1;
        }
        out.store(count);
    } says "`count` is a compile-time variable, and it differs between run-time paths that join here"

    a_compile_time_variable_after_a_run_time_break(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        while count < 4 {
            if n == count { break; }
            count += 1;
        }
        out.store(count);
    } says "`count` is a compile-time variable, and it differs between run-time paths that join here"

    a_list_that_grows_in_a_run_time_branch(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut list = vec![n];
        if n > 2 { list.push(n + 1); }
        out.store(list[0]);
    } says "the number of handles in `list` is a compile-time value, and this run-time branch changes it"

    a_run_time_jump_in_place_of_a_value(out: Ptr<Global, u32>, n: Val<u32>) {
        for kind in [None, Some(2u32)] {
            if n > 3 { let k = match kind { Some(k) => k, None => continue }; out.store(k); }
        }
    } says "a run-time `continue` cannot take the place of a value"

    a_recursion_without_end(out: Ptr<Global, u32>, n: Val<u32>) {
        #[device]
        fn endless(n: Val<u32>) -> Val<u32> {
            let next = endless(n + 1);
            next + 1
        }
        out.store(endless(n));
    } says "`endless` is called at a depth of more than 128 calls"

    more_static_shared_memory_than_there_is(out: Ptr<Global, u32>, n: Val<u32>) {
        let first = shared_array::<u32>(12 * 1024);
        first.store(n);
        let second = shared_array::<u8>(1);
        out.store(first.load() + second.load().cast::<u32>());
    } says "49153 bytes of static shared memory exceed the limit of 49152 bytes per CTA"

    a_shared_array_of_no_elements(out: Ptr<Global, u32>, n: Val<u32>) {
        out.store(shared_array::<u32>(0).load() + n);
    } says "a shared array cannot be of no elements: write at least 1"

    a_shared_array_of_conditions(out: Ptr<Global, u32>, n: Val<u32>) {
        let conditions = shared_array::<bool>(4).cast::<u8>();
        conditions.store(n.cast::<u8>());
        out.store(n);
    } says "a shared array cannot be of `bool`: store `u8` instead"

    a_panic(out: Ptr<Global, u32>, n: Val<u32>) {
        out.store(n);
        assert!(size_of::<u32>() == 5, "five bytes");
    } says "five bytes"

    an_assertion_without_a_message(out: Ptr<Global, u32>, n: Val<u32>) {
        let rows = 3u32;
        debug_assert_ne!(rows, 4);
        assert!(rows < 9 && rows % 4 == 0);
        out.store(n);
    } says "assertion failed: rows < 9 && rows % 4 == 0"

    an_assertion_of_equality(out: Ptr<Global, u32>, n: Val<u32>) {
        let rows = [3u32];
        assert_eq!(rows[0] + 1, 5);
        out.store(n);
    } says "assertion `left == right` failed"
}

/// Checks that recording fails with a message that contains `part`, `lines` lines after `from`.
fn fails_at(recorded: Recorded, part: &str, (from, lines): (u32, u32)) {
    let error = recorded.expect_err("recording must fail");
    assert!(error.message.contains(part), "{error}");
    assert!(error.file.ends_with("language/staging.rs"), "{error}");
    assert_eq!(error.line, from + lines, "{error}");
}

#[test]
fn a_panic_is_an_error_at_its_line() {
    const HERE: u32 = line!();
    #[allow(clippy::diverging_sub_expression)]
    #[kernel(threads = 32)]
    fn panics(x: Ptr<Global, u32>, widths: &[u32]) {
        if lane() < 16 {
            let width = *widths.first().expect("at least one width");
            assert!(width < 8, "the width {width} is too large");
            if width == 5 {
                panic!("no width is {width}");
            }
            x.at(widths[1]).store(width);
        }
    }
    fails_at(panics(&[]), "at least one width", (HERE, 5));
    fails_at(panics(&[9]), "the width 9 is too large", (HERE, 6));
    fails_at(panics(&[5]), "no width is 5", (HERE, 8));
    fails_at(panics(&[1]), "index out of bounds", (HERE, 10));
    assert!(panics(&[1, 2]).is_ok());
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
fn the_step_of_a_range_is_positive() {
    const HERE: u32 = line!();
    #[kernel(threads = 1)]
    fn steps(x: Ptr<Global, i32>, n: Val<i32>, step: i32) {
        for i in (0..n).step_by(step) {
            x.at(i).store(i);
        }
    }
    #[kernel(threads = 1)]
    fn reverses_steps(x: Ptr<Global, u8>, n: Val<u8>) {
        for i in (0..n).step_by(255).rev() {
            x.store(i);
        }
    }
    fails_at(steps(0), "the step of a range must be positive", (HERE, 3));
    fails_at(steps(-1), "write `(a..b).rev()`", (HERE, 3));
    fails_at(reverses_steps(), "write `.rev().step_by(n)`", (HERE, 9));
    assert!(steps(1).is_ok());
}

#[test]
fn a_loop_is_unrolled_at_least_once_and_not_too_often() {
    const HERE: u32 = line!();
    #[kernel(threads = 1)]
    fn unrolls(x: Ptr<Global, u32>, n: Val<u32>, factor: u32) {
        for i in (0..n).unroll(factor) {
            x.at(i).store(i);
        }
    }
    #[kernel(threads = 1)]
    fn unrolls_twice(x: Ptr<Global, u32>, n: Val<u32>, factor: u32) {
        for i in (0..n).unroll(factor) {
            for j in (0..n).unroll(factor) {
                x.at(i + j).store(i);
            }
        }
    }
    fails_at(unrolls(0), "cannot be unrolled 0 times", (HERE, 3));
    fails_at(unrolls(u32::MAX), "more than 65536", (HERE, 3));
    fails_at(unrolls(20_000), "more than 65536", (HERE, 3));
    fails_at(unrolls_twice(200), "more than 65536", (HERE, 9));
    assert!(unrolls(8).is_ok() && unrolls_twice(8).is_ok());
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

#[test]
fn a_barrier_that_some_rows_skip_is_an_error() {
    #[kernel(threads = (16, 4))]
    fn skips(x: Ptr<Global, u32>) {
        if thread_index_y() < 3 {
            barrier();
        }
        x.store(1);
    }
    let error = skips().unwrap().compile(Target::Sm80).unwrap_err().to_string();
    assert!(error.contains("takes thread 32 to it and thread 48 past it"), "{error}");
}

#[kernel(threads = 32)]
fn prints(x: Ptr<Global, f32>, n: Val<u32>, wrong: u32) {
    if lane() == 3 {
        match wrong {
            0 => printf("100%%\n", ()),
            1 => printf("%d\n", (x.load(),)),
            2 => printf("%f %f\n", (x.load(),)),
            3 => printf("%s\n", (lane(),)),
            4 => printf("%u\n", (n.cast::<u64>(),)),
            5 => printf("%f\n", (n,)),
            6 => printf("%", ()),
            7 => printf("%lf\n", (x.load(),)),
            8 => printf("%u", [n; 33]),
            _ => {}
        }
    }
    for i in 0..n {
        let half = x.load().cast::<f16>();
        if lane() == i {
            printf("%u: %5.1f %d %c ", (i, half, n > 1, val(b'a') + i.cast::<u8>()));
            printf("%lld|%-4d|%x\n", (val(-1i64) << 40, val(-7i8), val(0xabcu16)));
        }
    }
}

#[test]
fn kernels_print() {
    let kernel = prints(0).unwrap_or_else(|error| panic!("{error}"));
    let launch = || bespoke_testing::Launch::of(&kernel).buffer(&[2.5f32]).value(2u32);
    let lines = |i: u32| {
        let letter = char::from(b'a' + i as u8);
        format!("{i}:   2.5 1 {letter} -1099511627776|-7  |abc\n")
    };
    assert_eq!(launch().run().unwrap().printed(), format!("100%\n{}{}", lines(0), lines(1)));
    let without = prints(9).unwrap();
    let done = bespoke_testing::Launch::of(&without).buffer(&[2.5f32]).value(0u32).run().unwrap();
    assert_eq!(done.printed(), "");
}

#[test]
fn a_format_that_does_not_fit_its_arguments_is_an_error() {
    let messages = [
        (
            1,
            "`%d` prints an integer of up to 32 bits or a `bool`, but argument 1 of `printf` is a float: write `%f`",
        ),
        (2, "has 2 conversions, but there are 1 arguments"),
        (3, "no conversion `%s`"),
        (4, "but argument 1 of `printf` is a 64-bit integer or a pointer: write `%lld`"),
        (5, "`%f` prints a float"),
        (6, "no conversion `%`"),
        (7, "no conversion `%lf`"),
        (8, "has 1 conversions, but there are 33 arguments"),
    ];
    for (wrong, message) in messages {
        let error = prints(wrong).expect_err("an error");
        assert!(error.message.contains(message) && error.file.ends_with("staging.rs"), "{wrong}: {error}");
    }
}

#[test]
fn a_printed_table_may_be_read_too() {
    #[kernel(threads = 1)]
    fn both(x: Ptr<Global, u8>) {
        printf("ab", ());
        x.store(constant_table(b"ab\0").at(1).load());
    }
    let kernel = both().unwrap();
    let done = bespoke_testing::Launch::of(&kernel).uninitialised::<u8>(1).run().unwrap();
    assert_eq!((done.printed(), done.buffer::<u8>(0)), ("ab", vec![b'b']));
    assert!(done.ptx().contains(".global .align 1 .b8 both_format0[3]"), "{}", done.ptx());
}

#[test]
fn a_trap_is_a_finding_at_its_line() {
    const HERE: u32 = line!();
    #[kernel(threads = 32)]
    fn stops(x: Ptr<Global, u32>) {
        if x.at(lane()).load() == 7 {
            printf("before\n", ());
            trap();
        }
        x.at(lane()).store(1);
    }
    let kernel = stops().unwrap();
    let run = |value: u32| bespoke_testing::Launch::of(&kernel).buffer(&[value; 32]).run();
    assert_eq!(run(6).unwrap().buffer::<u32>(0), [1; 32]);
    match run(7) {
        Err(bespoke_testing::Failure::Finding(finding)) => {
            assert_eq!(finding.kind, bespoke_emulator::FindingKind::Trap);
            assert_eq!(finding.source.as_ref().map(|source| source.line), Some(HERE + 5));
            assert_eq!(finding.printed, "before\n".repeat(32));
        }
        other => panic!("a trap, not {}", other.map(|_| "a result").unwrap_or("another error")),
    }
}
