use bespoke_codegen::prelude::*;

/// Neither `Carry` nor comparable.
struct Plan {
    rows: Vec<u32>,
}

#[device]
fn planned(n: Val<u32>) -> Val<u32> {
    let mut plan = Plan { rows: vec![] };
    if n > 3 {
        plan.rows = vec![1];
        plan = Plan { rows: vec![2] };
    }
    n
}

fn main() {}
