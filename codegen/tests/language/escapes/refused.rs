//! Programs whose recording fails, with an error that names the lines.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use bespoke_codegen::prelude::*;

use super::Tile;

/// Checks that recording fails with this message, at a line with the comment `// here`, and that every other line in the
/// message has the comment `// other` or declares the parameters.
macro_rules! refuses {
    ($($name:ident($x:ident, $a:ident, $b:ident) $body:block says $message:literal)*) => { $(
        #[test]
        fn $name() {
            #[kernel(threads = 1)]
            fn refused($x: Ptr<Global, u32>, $a: Val<u32>, $b: Val<u32>) {
                program($x, $a, $b);
            }
            #[device]
            #[allow(unused_variables)]
            fn program($x: Ptr<Global, u32>, $a: Val<u32>, $b: Val<u32>) $body
            check_error(refused(), $message);
        }
    )* };
}

fn check_error(recorded: Recorded, message: &str) {
    let error = recorded.expect_err("recording must fail");
    assert!(error.message.contains(message), "{error}");
    let source: Vec<&str> = include_str!("refused.rs").lines().collect();
    let text = |line: u32| source[line as usize - 1];
    assert!(text(error.line).contains("// here"), "{error}: {}", text(error.line));
    let others = error.message.split("language/escapes/refused.rs:").skip(1);
    for other in others {
        let line: u32 = other.split(':').next().and_then(|line| line.parse().ok()).expect("a line");
        let marked = ["// other", "// here", "(x, a, b)"].iter().any(|mark| text(line).contains(mark));
        assert!(marked, "{error}: {}", text(line));
    }
}

static COUNTER: AtomicU32 = AtomicU32::new(0);
static RUNS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LAST: Cell<u32> = const { Cell::new(0) };
    static KEPT: Cell<Option<Val<u32>>> = const { Cell::new(None) };
}

/// A closure with state: 0, 1, 2, …
fn counter() -> impl FnMut() -> u32 {
    let mut next = 0;
    move || {
        next += 1;
        next - 1
    }
}

/// A closure with a handle as its state: returns the argument of the last call.
fn delayed(first: Val<u32>) -> impl Fn(Val<u32>) -> Val<u32> {
    let last = Cell::new(first);
    move |new| last.replace(new)
}

/// A plain function that keeps a handle behind a reference.
fn keep(at: &Cell<Val<u32>>, value: Val<u32>) {
    at.set(value);
}

enum Either {
    Word(Val<u32>),
    Byte(Val<u8>),
}

impl Carry for Either {
    fn leaves(&self, out: &mut Vec<bespoke_codegen::ir::Value>) {
        match self {
            Either::Word(value) => value.leaves(out),
            Either::Byte(value) => value.leaves(out),
        }
    }
    fn restore(&mut self, values: &mut dyn Iterator<Item = bespoke_codegen::ir::Value>) {
        match self {
            Either::Word(value) => value.restore(values),
            Either::Byte(value) => value.restore(values),
        }
    }
}

/// Keeps a handle for the tests of handles of earlier recordings.
#[kernel(threads = 1)]
fn keeps(x: Ptr<Global, u32>) {
    let value = x.load();
    KEPT.set(Some(value));
    x.store(value);
}

refuses! {
    a_cell_in_a_loop(x, a, b) {
        let total = Cell::new(a); // other
        for i in 0..b { // other
            let next = total.get() + x.at(i).load(); // here
            total.set(next);
            x.at(i).store(next);
        }
    } says "this uses the value of"

    a_cell_of_a_handle_that_a_branch_defines(x, a, b) {
        let kept = Cell::new(a);
        if b > 3 {
            kept.set(a * 7); // other
        }
        x.store(kept.get()); // here
    } says "in a run-time branch or loop that may not have run: declare `let mut x = val(…)`"

    a_cell_of_an_older_handle_in_a_branch(x, a, b) {
        let kept = Cell::new(a);
        if b > 3 { // other
            kept.set(b);
        }
        x.store(kept.get()); // here
    } says "this uses the value of"

    a_cell_from_one_side_of_a_branch_to_the_other(x, a, b) {
        let kept = Cell::new(a);
        if b > 3 { // other
            kept.set(b);
        } else {
            x.store(kept.get()); // here
        }
    } says "on one path"

    a_cell_of_an_older_handle_in_a_loop(x, a, b) {
        let kept = Cell::new(a);
        for _ in 0..b { // other
            kept.set(b);
        }
        x.store(kept.get()); // here
    } says "on one path"

    a_compile_time_cell_in_a_loop(x, a, b) {
        let count = Cell::new(0u32);
        for i in 0..b { // other
            x.at(i).store(count.get()); // here
            count.set(count.get() + 1);
        }
    } says "this is the constant 0x0 on one path, and 0x1"

    a_compile_time_cell_in_a_while(x, a, b) {
        let count = Cell::new(0u32);
        let mut i = a;
        while i < b { // other
            count.set(count.get() + 1);
            i += 1;
        }
        x.store(count.get()); // here
    } says "this is the constant"

    a_compile_time_cell_in_a_loop_without_condition(x, a, b) {
        let count = Cell::new(1u32);
        let mut i = a;
        loop {
            i += count.get(); // here
            count.set(count.get() + 1);
            if i > b { // other
                break;
            }
        }
        x.store(i);
    } says "this is the constant 0x1 on one path, and 0x2"

    a_compile_time_cell_in_a_branch(x, a, b) {
        let count = Cell::new(0u32);
        if b > 3 { // other
            count.set(1);
        }
        if count.get() == 1 {
            x.store(a); // here
        }
    } says "this is recorded, but not on every path"

    a_compile_time_cell_right_of_an_operator(x, a, b) {
        let count = Cell::new(0u32);
        let both = a > 3 && { // other
            count.set(1);
            b > 3
        };
        x.at(count.get()).store(select(both, val(1u32), 0)); // here
    } says "on one path"

    a_list_that_grows_in_a_branch(x, a, b) {
        let list = RefCell::new(vec![a]);
        if b > 3 { // other
            list.borrow_mut().push(b);
        }
        let now = list.borrow().clone();
        for value in now {
            x.store(value); // here
        }
    } says "this is recorded, but not on every path"

    an_assignment_through_the_guard_of_a_cell(x, a, b) {
        let last = RefCell::new(a); // other
        for i in 0..b { // other
            x.at(i).store(*last.borrow()); // here
            *last.borrow_mut() = i;
        }
    } says "on one path"

    a_shared_cell(x, a, b) {
        let kept = Rc::new(Cell::new(a));
        let other = Rc::clone(&kept);
        if b > 3 { // other
            other.set(b);
        }
        x.store(kept.get()); // here
    } says "on one path"

    a_static(x, a, b) {
        COUNTER.store(0, Ordering::Relaxed);
        if b > 3 { // other
            COUNTER.store(1, Ordering::Relaxed);
        }
        x.store(COUNTER.load(Ordering::Relaxed)); // here
    } says "this is the constant"

    a_thread_local(x, a, b) {
        LAST.set(0);
        for i in 0..b { // other
            x.at(i).store(LAST.get()); // here
            LAST.set(LAST.get() + 1);
        }
    } says "this is the constant 0x0 on one path, and 0x1"

    a_static_that_changes_with_every_run(x, a, b) {
        if b > 3 { // other
            x.store(RUNS.fetch_add(1, Ordering::Relaxed) + 100); // here
        }
    } says "this is the constant"

    a_closure_with_a_counter(x, a, b) {
        let mut next = counter();
        for i in 0..b { // other
            x.at(i).store(next()); // here
        }
    } says "this is the constant 0x0 on one path, and 0x1"

    a_closure_with_a_handle(x, a, b) {
        let last = delayed(a);
        for i in 0..b { // other
            let value = x.at(i).load(); // other
            x.at(i).store(last(value)); // here
        }
    } says "on one path"

    a_closure_that_two_sides_call(x, a, b) {
        let last = delayed(a);
        if b > 3 { // other
            x.store(last(b));
        } else {
            x.store(last(b)); // here
        }
    } says "on one path"

    an_iterator_in_a_cell(x, a, b) {
        let words = RefCell::new([a, b, a].into_iter());
        for i in 0..b { // other
            x.at(i).store(words.borrow_mut().next().unwrap_or(b)); // here
        }
    } says "on one path"

    a_swap_behind_a_reference(x, a, b) {
        let (one, other) = (RefCell::new(a), RefCell::new(b));
        if b > 3 { // other
            one.swap(&other);
        }
        x.store(*one.borrow()); // here
    } says "on one path"

    a_taken_option(x, a, b) {
        let first = Cell::new(Some(a));
        for i in 0..b { // other
            x.at(i).store(first.take().unwrap_or(b)); // here
        }
    } says "on one path"

    a_value_computed_once(x, a, b) {
        let cache = OnceCell::new();
        if b > 3 {
            x.store(*cache.get_or_init(|| a * 3)); // other
        }
        x.at(1).store(*cache.get_or_init(|| a * 3)); // here
    } says "that may not have run"

    a_plain_function_that_keeps_a_handle(x, a, b) {
        let kept = Cell::new(a);
        if b > 3 { // other
            keep(&kept, b);
        }
        x.store(kept.get()); // here
    } says "on one path"

    a_skipped_field(x, a, b) {
        let mut tile = Tile { sum: a, rows: 1 };
        if b > 3 { // other
            tile.set_rows(2);
        }
        x.at(tile.rows).store(tile.sum); // here
    } says "on one path"

    a_skipped_field_of_a_value(x, a, b) {
        let tile = if b > 3 { Tile { sum: a, rows: 1 } } else { Tile { sum: b, rows: 2 } }; // other
        x.at(tile.rows).store(tile.sum); // here
    } says "this is the constant"

    a_reference_from_a_pattern(x, a, b) {
        let mut tiles = [Tile { sum: a, rows: 1 }];
        if let Some(tile) = tiles.get_mut(0) {
            if b > 3 { // other
                tile.clear(b);
            }
        }
        x.store(tiles[0].sum); // here
    } says "on one path"

    an_early_return(x, a, b) {
        #[device]
        fn early(kept: &Cell<Val<u32>>, b: Val<u32>) {
            if b > 3 { // other
                kept.set(b);
                return;
            }
            kept.set(b + 1); // other
        }
        let kept = Cell::new(a);
        early(&kept, b);
        x.store(kept.get()); // here
    } says "in a run-time branch or loop that may not have run"

    an_early_return_of_older_handles(x, a, b) {
        #[device]
        fn early(kept: &Cell<Val<u32>>, a: Val<u32>, b: Val<u32>) {
            if b > 3 { // other
                kept.set(b);
                return;
            }
            kept.set(a);
        }
        let kept = Cell::new(a);
        early(&kept, a, b);
        x.store(kept.get()); // here
    } says "on one path"

    a_break_from_an_unrolled_loop(x, a, b) {
        let kept = Cell::new(0u32);
        for i in 0..3u32 {
            kept.set(i);
            if a == i { // other
                break;
            }
        }
        x.store(kept.get()); // here
    } says "this is the constant"

    a_break_from_a_loop_over_elements(x, a, b) {
        let mut elements = [a, b];
        for element in elements.iter_mut() {
            if *element == 0 { // other
                *element += 5;
                break;
            }
        }
        x.store(elements[0]); // here
    } says "in a run-time branch or loop that may not have run"

    a_continue_in_an_unrolled_loop(x, a, b) {
        let count = Cell::new(0u32);
        for i in 0..3u32 {
            if a == i { // other
                continue;
            }
            count.set(count.get() + 1);
        }
        x.store(count.get()); // here
    } says "this is the constant"

    a_register_of_three_cells(x, a, b) {
        let cells = [Cell::new(a), Cell::new(a), Cell::new(a)];
        for i in 0..b { // other
            x.at(i).store(cells[2].get()); // here
            cells[2].set(cells[1].get());
            cells[1].set(cells[0].get());
            cells[0].set(b);
        }
    } says "on one path"

    a_register_of_five_cells(x, a, b) {
        let cells = [Cell::new(a), Cell::new(a), Cell::new(a), Cell::new(a), Cell::new(a)];
        for i in 0..b { // other
            x.at(i).store(cells[4].get()); // here
            for to in (1..5usize).rev() {
                cells[to].set(cells[to - 1].get());
            }
            cells[0].set(b);
        }
    } says "on one path"

    a_queue_of_equal_handles(x, a, b) {
        let queue = RefCell::new(VecDeque::from([a; 8]));
        for i in 0..b { // other
            let oldest = queue.borrow_mut().pop_front().unwrap_or(b);
            x.at(i).store(oldest); // here
            queue.borrow_mut().push_back(b);
        }
    } says "on one path"

    a_queue_in_an_inner_loop(x, a, b) {
        let queue = RefCell::new(VecDeque::from([a; 8]));
        for i in 0..a { // other
            if i > 2 { // other
                for j in 0..b { // other
                    let oldest = queue.borrow_mut().pop_front().unwrap_or(b);
                    x.at(i + j).store(oldest); // here
                    queue.borrow_mut().push_back(b);
                }
            }
        }
    } says "on one path"

    a_counter_that_ends(x, a, b) {
        let count = Cell::new(0u32);
        for i in 0..b { // other
            count.set(count.get() + 1);
            if count.get() == 6 {
                x.at(i).store(a); // here
            }
        }
    } says "this is the constant"

    a_counter_of_every_eighth_iteration(x, a, b) {
        let count = Cell::new(1u32);
        for i in 0..b { // other
            if count.get() % 8 == 0 {
                x.at(i).store(a); // here
            }
            count.set(count.get() + 1);
        }
    } says "this is the constant"

    a_counter_in_a_branch_of_a_loop(x, a, b) {
        let count = Cell::new(0u32);
        for i in 0..b { // other
            if i > a { // other
                count.set(count.get() + 1);
            }
            x.at(i).store(count.get() / 8); // here
        }
    } says "this is the constant"

    a_cell_in_the_last_of_many_arms(x, a, b) {
        #[device]
        fn arm(number: u32, kept: &Cell<Val<u32>>, x: Ptr<Global, u32>, b: Val<u32>) {
            if b == number { // other
                if number == 40 { kept.set(b) } else { x.at(1).store(number) }
            } else if number < 40 {
                arm(number + 1, kept, x, b);
            }
        }
        let kept = Cell::new(a);
        arm(0, &kept, x, b);
        x.store(kept.get()); // here
    } says "on one path"

    a_cell_in_nested_loops(x, a, b) {
        let kept = Cell::new(a);
        for i in 0..a { // other
            for j in 0..b { // other
                x.at(i + j).store(kept.get()); // here
            }
            kept.set(b);
        }
    } says "on one path"

    a_cell_between_two_branches(x, a, b) {
        let kept = Cell::new(a);
        if a > 1 {
            x.store(1);
        }
        if b > 3 { // other
            kept.set(b);
        }
        if a > 4 { // other
            x.store(kept.get()); // here
        }
    } says "on one path"

    a_loop_variable_kept_by_a_cell(x, a, b) {
        let kept = Cell::new(a);
        for i in 0..b { // other: the value before the loop remains if b is 0
            kept.set(i);
        }
        x.store(kept.get()); // here
    } says "on one path"

    a_list_as_a_value(x, a, b) {
        let list = if b > 3 { vec![a] } else { vec![a, b] }; // here
        x.store(list[0]);
    } says "the handles in this value differ in number or type"

    an_option_as_a_value(x, a, b) {
        let some = if b > 3 { Some(a) } else { None }; // here
        x.store(some.unwrap_or(b));
    } says "the handles in this value differ in number or type"

    an_enum_of_handles(x, a, b) {
        let either = if b > 3 { Either::Word(a) } else { Either::Byte(a.cast()) }; // here
        match either {
            Either::Word(value) => x.store(value),
            Either::Byte(value) => x.store(value.cast::<u32>()),
        }
    } says "the handles in this value differ in number or type"

    a_handle_of_another_recording(x, a, b) {
        keeps().unwrap();
        x.store(KEPT.get().unwrap_or(a)); // here
    } says "this handle belongs to another kernel"

    a_handle_of_another_recording_in_a_variable(x, a, b) {
        keeps().unwrap();
        let mut sum = KEPT.get().unwrap_or(a);
        for i in 0..b { // here
            sum += i;
        }
        x.store(sum);
    } says "this handle belongs to another kernel"

    a_list_that_a_branch_clears(x, a, b) {
        let list = RefCell::new(vec![a]);
        if b > 3 { // other
            list.borrow_mut().clear();
        }
        x.store(list.borrow().len() as u32); // here
    } says "this is the constant"
}
