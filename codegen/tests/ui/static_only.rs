//! Handles in constructs that take compile-time values only.

mod as_cast {
    use bespoke_codegen::prelude::*;

    #[device]
    fn widened(x: Val<u32>) -> Val<f32> {
        x as f32
       // ^^ `as` does not convert handles: write `.cast::<…>()`, which converts on the GPU; to reinterpret the
       // bits, `.bitcast::<…>()`
    }
}

mod cast_for_arithmetic {
    use bespoke_codegen::prelude::*;

    #[device]
    fn scaled(x: Val<u32>, scale: Val<f32>) -> Val<f32> {
        let y = x as f32 * scale;
        //        ^^ `as` does not convert handles: write `.cast::<…>()`, which converts on the GPU; to reinterpret
        // the bits, `.bitcast::<…>()`
        y.sqrt()
    }
}

mod asserted {
    use bespoke_codegen::prelude::*;

    #[device]
    fn checked(x: Val<u32>) -> Val<u32> {
        assert!(x < 4);
        //      ^ assertions are checked while recording, and this value is known only on the GPU: assert
        // compile-time values only; for a run-time value write `trap()` in an `if`, or store it through a pointer
        // and check it on the host
        x
    }
}

mod asserted_equal {
    use bespoke_codegen::prelude::*;

    #[device]
    fn checked(x: Val<u32>, n: u32) -> Val<u32> {
        assert_eq!(n, 4);
        debug_assert_ne!(x, n, "{n}");
        //               ^ assertions are checked while recording, and this value is known only on the GPU: assert
        // compile-time values only; for a run-time value write `trap()` in an `if`, or store it through a pointer
        // and check it on the host
        x
    }
}

mod dereferenced_element {
    use bespoke_codegen::prelude::*;

    struct Row {
        items: Ptr<Global, f32>,
    }

    #[device]
    fn second(row: &Row) -> Val<f32> {
        *row.items.at(1)
     // ^ `*` does not access GPU memory: write `x.load()` for the value, `x.store(value)` to assign it; `x.at(i)`
     // is another element
    }
}

mod let_chain {
    use bespoke_codegen::prelude::*;

    #[device]
    fn biased(x: Val<f32>, bias: Option<f32>) -> Val<f32> {
        if let Some(bias) = bias
            && x > 0.0
            // ^ a condition beside `let` is decided while recording, and this one is known only on the GPU: write
            // it as an `if` of its own inside of the `if let`: that becomes a branch
        {
            x + bias
        } else {
            x
        }
    }
}

mod match_number {
    use bespoke_codegen::prelude::*;

    #[device]
    fn named(x: Val<u32>) -> Val<u32> {
        match x {
        //    ^ `match` is decided while recording, and this value is known only on the GPU: compare it with each
        // number: `if x == 0`, `else if x == 1` and so on become branches
            0 => val(3),
            _ => val(4),
        }
    }
}

mod match_number_of_a_call {
    use bespoke_codegen::prelude::*;

    #[device]
    fn named(x: Ptr<Global, u32>) -> Val<u32> {
        match x.load() {
        //    ^ `match` is decided while recording, and this value is known only on the GPU: compare it with each
        // number: `if x == 0`, `else if x == 1` and so on become branches
            0 => val(3),
            _ => val(4),
        }
    }
}

mod match_of_a_comparison {
    use bespoke_codegen::prelude::*;

    #[device]
    fn named(x: Val<u32>) -> Val<u32> {
        match x == 3 {
        //      ^ `match` is decided while recording, and this value is known only on the GPU: compare it with each
        // number: `if x == 0`, `else if x == 1` and so on become branches
            true => val(3),
            false => val(4),
        }
    }
}

mod if_let_number {
    use bespoke_codegen::prelude::*;

    #[device]
    fn named(x: Val<u32>) -> Val<u32> {
        let mut y = x;
        if let 3 = x {
        //         ^ `match` is decided while recording, and this value is known only on the GPU: compare it with
        // each number: `if x == 0`, `else if x == 1` and so on become branches
            y += 1;
        }
        y
    }
}

mod run_time_array_index {
    use bespoke_codegen::prelude::*;

    #[device]
    fn one_of(x: [Val<f32>; 4], i: Val<u32>) -> Val<f32> {
        x[i]
      // ^^^ a handle cannot index a Rust array: its value is known only on the GPU: put the elements in memory, for
      // example `shared_array`, and write `.at(i)`; or `select` among them
    }
}

mod run_time_vec_index {
    use bespoke_codegen::prelude::*;

    #[device]
    fn moved(x: &mut Vec<Val<f32>>, i: Val<u32>) {
        x[i + 1] = x[0];
      // ^^^^^^^ a handle cannot index a Rust array: its value is known only on the GPU: put the elements in memory,
      // for example `shared_array`, and write `.at(i)`; or `select` among them
    }
}

mod printed_handle {
    use bespoke_codegen::prelude::*;

    #[device]
    fn shown(x: Val<u32>, n: u32) -> String {
        assert!(n < 4, "{x}");
        //              ^^^ a handle cannot be printed: its value is known only on the GPU: store it through a
        // pointer and print it on the host; `{:?}` prints the number of the handle in the IR
        format!("{n} {}", x)
        //                ^ a handle cannot be printed: its value is known only on the GPU: store it through a
        // pointer and print it on the host; `{:?}` prints the number of the handle in the IR
    }
}

mod iterator_sum {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(x: [Val<f32>; 4]) -> Val<f32> {
        x.iter().copied().sum()
        //                ^^^ `sum` and `product` do not take handles: write `.reduce(|a, b| a + b)`, or a `for`
        // over the items and a `let mut sum = val(0.0f32)`
    }
}

mod compile_time_sum {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 1)]
    fn sum(x: Ptr<Global, f32>, n: Val<u32>) {
        let mut sum = 0.0;
        let mut count = 0u32;
        for i in 0..n {
            sum += x.at(i).load();
            //  ^^ a compile-time variable cannot take a run-time value: start the variable as a handle of the same
            // type: `let mut sum = val(0.0f32)`
            count += i;
            //    ^^ a compile-time variable cannot take a run-time value: start the variable as a handle of the
            // same type: `let mut sum = val(0.0f32)`
        }
        x.store(sum);
        x.at(1).store(count as f32);
    }
}

fn main() {}
