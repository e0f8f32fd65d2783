use bespoke_codegen::prelude::*;

#[derive(Clone, Copy, Carry)]
struct Counter {
    n: Val<u32>,
}

impl Counter {
    #[device]
    fn bump(&mut self) {
        self.n += 1;
    }
}

#[device]
fn add(n: &mut Val<u32>) {
    *n += 1;
}

#[device]
fn count(x: Val<u32>, total: &mut Val<u32>) -> Val<u32> {
    let mut counter = Counter { n: val(0) };
    let bump = || counter.bump();
    let both = |n: &mut Val<u32>| {
        add(n);
        add(total);
    };
    if x > 3 {
        bump();
        both(&mut counter.n);
    }
    counter.n
}

fn main() {}
