//! Constructs that cannot be recorded.

mod async_code {
    use bespoke_codegen::prelude::*;

    #[device]
    async fn later(x: Val<u32>) -> Val<u32> {
 // ^^^^^ a recorded function cannot be `async`: a kernel runs to its end
        let y = async { x };
        //      ^^^^^ `async` cannot be recorded: a kernel runs to its end
        y.await
       // ^^^^^ `.await` cannot be recorded: a kernel runs to its end
    }
}

mod break_value {
    use bespoke_codegen::prelude::*;

    #[device]
    fn first_above(n: Val<u32>) -> Val<u32> {
        let mut i = val(0);
        let found = loop {
        //          ^^^^ a recorded `loop` has no value: `break` out of it, and write the value after it
            i += 1;
            if i > n {
                break i;
                //    ^ a recorded loop has no value: assign to a `let mut` variable, then `break`
            }
        };
        found
    }
}

mod closure_assigns {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(x: Ptr<Global, f32>) -> Val<f32> {
        let mut sum = val(0.0f32);
        (0..4u32).for_each(|i| sum += x.at(i).load());
        //                     ^^^ a closure cannot assign `sum` of the function around it: return the new value, or
        // write a `#[device]` function that takes `&mut sum`
        sum
    }
}

mod closure_may_assign {
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
        //            ^^^^^^^ this may assign `counter` of the function around the closure: write a `#[device]`
        // function that takes `&mut counter`; if the closure only reads it, write `let counter = &counter;` before
        let both = |n: &mut Val<u32>| {
            add(n);
            add(total);
            //  ^^^^^ this may assign `total` of the function around the closure: write a `#[device]` function that
            // takes `&mut total`; if the closure only reads it, write `let total = &total;` before
        };
        if x > 3 {
            bump();
            both(&mut counter.n);
        }
        counter.n
    }
}

mod dereferenced {
    use bespoke_codegen::prelude::*;

    #[device]
    fn first(x: Ptr<Global, f32>) -> Val<f32> {
        let second = x.at(1);
        *second = *x;
        //        ^ `*` does not access GPU memory: write `x.load()` for the value, `x.store(value)` to assign it
        *x.at(2)
    }
}

mod inline_const {
    use bespoke_codegen::prelude::*;

    #[device]
    fn scaled(x: Val<u32>) -> Val<u32> {
        x * const { 3 * 7 }
        //  ^^^^^ inline `const` cannot be recorded: declare a `const` item, or a `let` of the compile-time value
    }
}

mod jump_in_an_expression {
    use bespoke_codegen::prelude::*;

    #[device]
    fn first(x: Val<u32>) -> Val<u32> {
        let y = x + return val(1);
        //          ^^^^^^ `return` must be a statement of its own
        y
    }

    #[device]
    fn second(x: Val<u32>) {
        break;
     // ^^^^^ `break` outside of a loop
        for _ in 0..x {
            continue 'rows;
            //       ^^^^^ no loop here has the label `'rows`
        }
    }
}

mod labelled_block {
    use bespoke_codegen::prelude::*;

    #[device]
    fn find(x: Val<u32>) -> Val<u32> {
        let mut found = val(0);
        'search: {
     // ^^^^^^^ labelled blocks cannot be recorded: use `if` and `else`, or a `#[device]` function with `return`
            if x == 3 {
                break 'search;
            }
            found += 1;
        }
        found
    }
}

mod let_else {
    use bespoke_codegen::prelude::*;

    #[device]
    fn bias(x: Val<f32>, bias: Option<f32>) -> Val<f32> {
        let Some(bias) = bias else { return x };
        //                    ^^^^ `let … else` cannot be recorded: use `match`, or `if let` around the rest
        x + bias
    }
}

mod let_without_value {
    use bespoke_codegen::prelude::*;

    #[device]
    fn larger(a: Val<u32>, b: Val<u32>) -> Val<u32> {
        let most;
     // ^^^ `let` without a value cannot be recorded: write `let mut x = val(0)`, and assign to it
        if a > b {
            most = a;
        } else {
            most = b;
        }
        most
    }
}

mod loop_as_value {
    use bespoke_codegen::prelude::*;

    #[device]
    fn forever(mut x: Val<u32>) -> Val<u32> {
        loop {
     // ^^^^ a recorded `loop` has no value: `break` out of it, and write the value after it
            x += 1;
            if x > 7 {
                return x;
            }
        }
    }
}

mod printed {
    use bespoke_codegen::prelude::*;

    #[device]
    fn shown(x: Val<u32>) -> Val<u32> {
        println!("{}", x);
     // ^^^^^^^ `println!` would print while recording, not on the GPU: write `printf(…)` for run-time values; print
     // compile-time values outside of the kernel
        x
    }
}

mod question_mark {
    use bespoke_codegen::prelude::*;

    #[device]
    fn parsed(x: Val<u32>, text: &str) -> Val<u32> {
        x + text.parse::<u32>()?
        //                     ^ `?` cannot be recorded: a kernel returns no error; check compile-time values with
        // `expect` or `match`
    }
}

mod return_in_closure {
    use bespoke_codegen::prelude::*;

    #[device]
    fn clamp(x: Val<u32>, most: u32) -> Val<u32> {
        let at_most = |x: Val<u32>| {
            if x > most {
                return val(most);
             // ^^^^^^ `return` in a closure cannot be recorded: end the closure with its value, or write a
             // `#[device]` function
            }
            x
        };
        at_most(x)
    }
}

mod static_item {
    use bespoke_codegen::prelude::*;

    #[device]
    fn count(x: Val<u32>) -> Val<u32> {
        static CALLS: u32 = 0;
     // ^^^^^^ a `static` is host memory, which the GPU cannot access: use `const` or `shared_array`
        x + CALLS
    }
}

mod unknown_macro {
    use bespoke_codegen::prelude::*;

    macro_rules! twice {
        ($x:expr) => {
            if $x > 2 { $x } else { $x * 2 }
        };
    }

    #[device]
    fn doubled(x: Val<u32>) -> Val<u32> {
        println!("recording");
     // ^^^^^^^ `println!` would print while recording, not on the GPU: write `printf(…)` for run-time values; print
     // compile-time values outside of the kernel
        twice!(x)
     // ^^^^^ `twice!` could hide code that has to be recorded: write a `#[device]` function, or compute a
     // compile-time value outside of the kernel
    }
}

mod unsafe_code {
    use bespoke_codegen::prelude::*;

    #[device]
    unsafe fn read(x: Ptr<Global, u32>, table: *const u32) -> Val<u32> {
 // ^^^^^^ a recorded function cannot be `unsafe`: recording accesses no memory
        x.load() + unsafe { *table }
        //         ^^^^^^ `unsafe` cannot be recorded: access GPU memory through `Ptr`, and compute compile-time
        // values outside of the kernel
    }
}

mod unsupported_in_an_impl_block {
    use bespoke_codegen::prelude::*;

    struct Rows(u32);

    impl Rows {
        #[kernel]
        fn clear(&self, x: Ptr<Global, u32>) {
            let Some(length) = Some(self.0) else { return };
            //                              ^^^^ `let … else` cannot be recorded: use `match`, or `if let` around
            // the rest
            x.store(length);
        }
    }
}

mod while_let {
    use bespoke_codegen::prelude::*;

    #[device]
    fn drain(mut rows: Vec<Val<u32>>) -> Val<u32> {
        let mut sum = val(0);
        while let Some(row) = rows.pop() {
        //    ^^^ `while let` cannot be recorded: use `for` over a Rust iterator, or `while` with a condition
            sum += row;
        }
        sum
    }
}

mod several_errors {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn all_at_once(x: Ptr<Global, u32>, n: u32) -> u32 {
    //                                             ^^^ a kernel returns nothing: store results through a pointer
        let y;
     // ^^^ `let` without a value cannot be recorded: write `let mut x = val(0)`, and assign to it
        let z = n.checked_sub(1)?;
        //                      ^ `?` cannot be recorded: a kernel returns no error; check compile-time values with
        // `expect` or `match`
        dbg!(z);
     // ^^^ `dbg!` would print while recording, not on the GPU: write `printf(…)` for run-time values; print
     // compile-time values outside of the kernel
        x.store(y);
    }

    /// Callers of a function with errors see its signature, and no more errors.
    fn caller() -> Kernel {
        all_at_once(3).unwrap()
    }
}

mod shadowed_loop_variable {
    use bespoke_codegen::prelude::*;

    #[device]
    fn sum(n: Val<u32>) -> Val<u32> {
        let mut sum = val(0);
        for i in 0..n {
            sum += i;
            let sum = sum * 2;
            //  ^^^ `sum` shadows a variable that a loop or `return` around it carries: rename one of them
            if sum > 100 {
                break;
            }
        }
        sum
    }
}

mod shadowed_parameter {
    use bespoke_codegen::prelude::*;

    #[device]
    fn advance(x: &mut Val<u32>, n: Val<u32>) {
        *x += 1;
        let x = *x;
        //  ^ `x` shadows a variable that a loop or `return` around it carries: rename one of them
        if x > n {
            return;
        }
        assert!(n.is_ok());
    }
}

fn main() {}
