//! Programs that keep state outside of variables and give right results.

use std::cell::{Cell, OnceCell, RefCell};

use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

use super::Tile;

/// Results of `program` for n = 0 to 5: x[8 n] and the following words.
macro_rules! gives {
    ($($name:ident($x:ident, $n:ident) $body:block like $host:expr;)*) => { $(
        #[test]
        fn $name() {
            #[kernel(threads = 1)]
            fn recorded($x: Ptr<Global, u32>, $n: Val<u32>) $body
            let kernel = recorded().unwrap_or_else(|error| panic!("{error}"));
            let host: fn(u32) -> u32 = $host;
            for n in 0..6u32 {
                let done = Launch::of(&kernel).buffer(&[5u32, 6, 7, 8, 9, 10]).value(n).run().unwrap();
                assert_eq!(done.buffer::<u32>(0)[0], host(n), "n = {n}");
            }
        }
    )* };
}

gives! {
    closures_that_read_handles(x, n) {
        let scaled = |i: Val<u32>| x.at(i).load() * n;
        let mut sum = val(0);
        for i in 0..n {
            sum += scaled(i);
        }
        x.store(sum);
    } like |n| (0..n).map(|i| (i + 5) * n).sum();

    a_cell_of_one_iteration(x, n) {
        let current = Cell::new(n);
        let mut sum = val(0);
        for i in 0..n {
            current.set(x.at(i).load());
            sum += current.get();
        }
        x.store(sum);
    } like |n| (0..n).map(|i| i + 5).sum();

    a_cell_that_every_way_out_of_a_loop_sets(x, n) {
        let kept = Cell::new(n);
        let mut i = n;
        loop {
            kept.set(i * 2);
            if i > 3 {
                break;
            }
            i += 1;
        }
        x.store(kept.get());
    } like |n| n.max(4) * 2;

    a_counter_of_an_unrolled_loop(x, n) {
        let count = Cell::new(0u32);
        let mut sum = val(0);
        for i in 0..4u32 {
            count.set(count.get() + i);
            if n > i {
                sum += count.get();
            }
        }
        x.store(sum + count.get());
    } like |n| 6 + [0, 1, 3, 6].iter().zip(0..n).map(|(sum, _)| *sum).sum::<u32>();

    a_stack_that_regions_leave_as_it_was(x, n) {
        let scopes = RefCell::new(vec![1u32]);
        let mut sum = val(0);
        for i in 0..n {
            scopes.borrow_mut().push(10);
            if i > 1 {
                scopes.borrow_mut().push(100);
                sum += scopes.borrow().iter().sum::<u32>();
                scopes.borrow_mut().pop();
            }
            scopes.borrow_mut().pop();
        }
        x.store(sum + scopes.borrow().iter().sum::<u32>());
    } like |n| n.saturating_sub(2) * 111 + 1;

    compile_time_values_through_the_guard_of_a_cell(x, n) {
        let widest = RefCell::new([0u32, 0]);
        let mut sum = val(0);
        for i in 0..n {
            widest.borrow_mut()[1] = 7;
            *widest.borrow_mut() = [5, 7];
            sum += i;
        }
        x.store(sum);
    } like |n| (0..n).sum::<u32>();

    a_value_computed_before_the_loop(x, n) {
        let cache = OnceCell::new();
        let mut sum = *cache.get_or_init(|| n * 3);
        for i in 0..n {
            sum += *cache.get_or_init(|| n * 3) + i;
        }
        x.store(sum);
    } like |n| n * 3 + (0..n).map(|i| n * 3 + i).sum::<u32>();

    swaps_and_replacements_of_variables(x, n) {
        let (mut low, mut high) = (n, x.load());
        let mut list = [n, n + 1];
        for i in 0..n {
            std::mem::swap(&mut low, &mut high);
            let old = std::mem::replace(&mut list[1], i);
            list[0] += old;
        }
        if n > 3 {
            list.swap(0, 1);
        }
        x.store(low * 1000 + high * 100 + list[0] * 10 + list[1]);
    } like |n| {
        let (low, high) = if n % 2 == 0 { (n, 5) } else { (5, n) };
        let mut list = [n, n + 1];
        for i in 0..n {
            list[0] += std::mem::replace(&mut list[1], i);
        }
        if n > 3 {
            list.swap(0, 1);
        }
        low * 1000 + high * 100 + list[0] * 10 + list[1]
    };

    fields_behind_methods_and_functions(x, n) {
        fn grow(tile: &mut Tile, by: Val<u32>) {
            tile.sum += by;
        }
        let mut tile = Tile { sum: val(0), rows: 3 };
        for i in 0..n {
            grow(&mut tile, i);
            if i == 2 {
                tile.clear(n);
            }
        }
        x.store(tile.sum * tile.rows);
    } like |n| 3 * (0..n).fold(0, |sum, i| if i == 2 { n } else { sum + i });
}

/// Compile-time parameters that the function consumes or changes.
#[kernel(threads = 1)]
fn consumes<F: Fn(Val<u32>) -> Val<u32>>(
    x: Ptr<Global, u32>,
    list: Vec<u32>,
    mut factor: u32,
    change: F,
    mut names: String,
    (first, second): (u32, u32),
) {
    names.push('x');
    factor += names.len() as u32;
    let mut sum = val(first * second);
    for word in list {
        if x.at(1).load() > word {
            sum += change(val(word * factor));
        }
    }
    x.store(sum);
}

#[test]
fn compile_time_parameters_are_the_same_on_every_path() {
    struct NotClone(u32);
    let offset = NotClone(1);
    let kernel = consumes(vec![1, 2, 3], 2, move |value| value + offset.0, "a".into(), (2, 3)).unwrap();
    let done = Launch::of(&kernel).buffer(&[0u32, 3]).run().unwrap();
    assert_eq!(done.buffer::<u32>(0)[0], 6 + (4 + 1) + (8 + 1));
}
