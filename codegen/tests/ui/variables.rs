//! Variables that run-time code assigns.

mod carry_compile_time_field {
    use bespoke_codegen::prelude::*;

    #[derive(Carry)]
    struct Tile {
        sum: Val<f32>,
        rows: u32,
        //    ^^^ a compile-time `u32` cannot depend on a run-time condition: this value is fixed while recording,
        // but the condition is known only on the GPU
    }

    #[derive(Carry)]
    struct Step(#[carry(ignore)] u32);
    //                  ^^^^^^ `#[carry]` takes `skip` only

    #[derive(Carry)]
    struct Sink<'a>(&'a mut Val<f32>);
    //              ^ a field that is a `&mut` is not carried: hold the value itself, or pass the `&mut` beside the
    // struct
}

mod compile_time_value_of_run_time_branch {
    use bespoke_codegen::prelude::*;

    #[device]
    fn rows(n: Val<u32>) -> u32 {
        if n > 3 { 1 } else { 2 }
     // ^^ a compile-time `u32` cannot depend on a run-time condition: this value is fixed while recording, but the
     // condition is known only on the GPU
    }
}

mod iterator_in_a_loop {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(words: &[Val<u32>], n: Val<u32>) -> Val<u32> {
        let mut words = words.iter();
        let mut sum = val(0);
        for _ in 0..n {
     // ^^^ a `std::slice::Iter<'_, Val<u32>>` cannot be carried through recorded control flow: this region may
     // assign it: derive `Carry` if it holds handles, else `Clone` and `PartialEq`
            sum += words.next().copied().unwrap_or(n);
        }
        sum
    }
}

mod uncarriable_variable {
    use bespoke_codegen::prelude::*;

    /// Neither `Carry` nor comparable.
    struct Plan {
        rows: Vec<u32>,
    }

    #[device]
    fn planned(n: Val<u32>) -> Val<u32> {
        let mut plan = Plan { rows: vec![] };
        if n > 3 {
     // ^^ a `Plan` cannot be carried through recorded control flow: this region may assign it: derive `Carry` if it
     // holds handles, else `Clone` and `PartialEq`
            plan.rows = vec![1];
            plan = Plan { rows: vec![2] };
        }
        n
    }
}

fn main() {}
