//! Valid programs in which places of declared type are used as values: `codegen/macros/src/expected_type.rs`.

#![deny(warnings)]

use bespoke_codegen::prelude::*;

#[derive(Clone, Copy, Carry)]
struct Pair {
    low: Val<u32>,
    high: Val<u32>,
}

struct Tiles<'a> {
    rows: Ptr<Shared, f32>,
    count: &'a mut Val<u32>,
    list: Vec<u32>,
}

fn sum<S: Space>(x: Ptr<S, f32>, n: impl IntoVal<u32>) -> Val<f32> {
    x.at(n.into_val()).load()
}

fn counted(list: &mut Vec<Val<u32>>, n: Val<u32>) -> &mut Vec<Val<u32>> {
    list.push(n);
    list
}

fn seen<'a, 'b>(tiles: &'a mut Tiles<'b>) -> &'a mut Tiles<'b> {
    tiles
}

fn longest(words: &[u32], boxed: Box<dyn Fn(u32) -> u32>) -> u32 {
    words.iter().map(|&word| boxed(word)).max().unwrap_or(0)
}

fn wide(n: usize) -> usize {
    n
}

fn both<T>(a: T, b: T) -> [T; 2] {
    [a, b]
}

fn each<T: Copy, R>(x: T, f: impl Fn(T) -> R) -> R {
    f(x)
}

#[device]
fn lent(list: &mut Vec<Val<u32>>, n: Val<u32>) -> Val<u32> {
    // `list` is reborrowed three times.
    counted(list, n);
    counted(counted(list, n + 1), n);
    let first = list[0];
    first
}

#[device]
fn open_types(n: Val<u32>, x: Ptr<Global, f32>) -> Val<u32> {
    // Generic parameters take the type of the handle.
    let kept = Some(n).map(|n| n + 1);
    let [a, b] = both(n, kept.unwrap_or(n));
    let pointers = Vec::from([x, x.at(1)]);
    let loaded = pointers.iter().map(|x| x.load()).reduce(|a, b| a + b);
    // The type of a number may be inferred from its use.
    let four = 4;
    let many = wide(four);
    let small = "7".parse().unwrap_or(0);
    let plain = longest(&[small], Box::new(|word| word + 1));
    let same = each(n, |n| n.count_ones()) + each(x, |x| x.load().cast::<u32>());
    let later = |x: Ptr<Global, f32>| sum(x, n);
    let summed = later(x) + sum(x, 3) + sum(x.at(n), n + 1) + loaded.unwrap_or(val(0.0));
    let mut chosen = None;
    chosen = chosen.or(Some(a));
    chosen.unwrap_or(b) + many as u32 + plain + same + summed.cast::<u32>()
}

impl Tiles<'_> {
    #[device]
    fn add(&mut self, n: Val<u32>) -> &mut Self {
        *self.count += n;
        seen(self);
        seen(self)
    }

    #[device]
    fn total(&mut self, n: Val<u32>, list: Vec<u32>) -> (Val<f32>, Val<u32>) {
        self.add(n).add(n + 1);
        self.list.extend(list);
        let taken = std::mem::take(&mut self.list);
        let rows = self.rows;
        let count = taken.len();
        (sum(rows, n) + sum(self.rows.at(n), count as u32), *self.count)
    }
}

#[device]
fn chosen(n: Val<u32>, pair: Pair, exact: bool) -> Pair {
    let Pair { low, high } = pair;
    if n > 3 {
        if exact {
            return Pair { low: n, high };
        }
        pair
    } else if n > 1 {
        Pair { low, high: n }
    } else {
        match exact {
            true => pair,
            false => Pair { low: high, ..pair },
        }
    }
}

struct Bound<'a> {
    least: &'a Val<u32>,
    most: &'a mut Val<u32>,
}

#[device]
fn bounded(bound: Bound<'_>, n: Val<u32>) -> Val<u32> {
    let least = bound.least;
    let most = bound.most;
    *most += *least;
    if n < *least {
        return *least;
    }
    fma_of(*most, *least) + *most
}

fn fma_of(a: Val<u32>, b: Val<u32>) -> Val<u32> {
    mul_add(a, b, 1)
}

#[device]
fn named(n: Val<u32>, pairs: &[Pair]) -> Option<Val<u32>> {
    let found = if pairs.is_empty() { None } else { Some(n) };
    found
}

#[device]
fn picked(n: Val<u32>, x: Val<u32>, left: &Val<u32>) -> [Val<u32>; 2] {
    let other = if n > x { n } else { x };
    let fixed: [Val<u32>; 2] = [n, other];
    if n > *left { fixed } else { [other; 2] }
}

#[kernel(threads = 32)]
fn all(x: Ptr<Global, f32>, n: Val<u32>, exact: bool) {
    let rows = shared_array(32);
    let mut count = val(0);
    let mut tiles = Tiles { rows, count: &mut count, list: Vec::new() };
    let (total, counted) = tiles.total(n, vec![1, 2]);
    let mut list = Vec::new();
    let first = lent(&mut list, counted);
    let pair = chosen(first, Pair { low: n, high: counted }, exact);
    let [low, high] = picked(pair.low, pair.high, &n);
    let mut most = low;
    let last = named(low, &[pair]).unwrap_or(high) + bounded(Bound { least: &high, most: &mut most }, n) + most;
    for (i, j) in (0..4u32).zip(0..list.len()) {
        x.at(i).store(total + (last + open_types(n, x) + j as u32).cast::<f32>());
    }
    for i in (0..n).step_by(2) {
        x.at(i).store(sum(x, i));
    }
}

fn main() {
    let compiled = all(true).expect("recorded").compile(Target::Sm80);
    assert!(compiled.is_ok());
}
