//! Operands of conditions, logic and comparisons.

mod and_of_a_number {
    use bespoke_codegen::prelude::*;

    #[device]
    fn flag(n: Val<u32>) -> Val<bool> {
        n > 3 && n & 1
        //       ^^^^^ `Val<u32>` cannot be an operand of `&&` or `||`: expected `bool` or `Val<bool>`; compare a
        // number with another, for example `x != 0`
    }
}

mod if_number {
    use bespoke_codegen::prelude::*;

    #[device]
    fn odd(n: Val<u32>) -> Val<u32> {
        let mut x = n;
        if n & 1 {
        // ^^^^^ `Val<u32>` is not a condition: expected `bool` or `Val<bool>`; compare a number with another, for
        // example `x != 0`
            x += 1;
        }
        x
    }
}

mod while_number {
    use bespoke_codegen::prelude::*;

    #[device]
    fn count(n: Val<u32>) -> Val<u32> {
        let mut x = n;
        while x {
        //    ^ `Val<u32>` is not a condition: expected `bool` or `Val<bool>`; compare a number with another, for
        // example `x != 0`
            x -= 1;
        }
        x
    }
}

mod add_predicates {
    use bespoke_codegen::prelude::*;

    #[device]
    fn both(a: Val<bool>, b: Val<bool>) -> Val<bool> {
        a + b
       // ^ `bool` is not a number: expected an integer or a float
    }
}

mod compare_predicates {
    use bespoke_codegen::prelude::*;

    #[device]
    fn same(a: Val<bool>, b: Val<bool>) -> Val<bool> {
        a == b
       // ^ `bool` is not a number: expected an integer or a float
    }
}

mod compare_signs {
    use bespoke_codegen::prelude::*;

    #[device]
    fn below(a: Val<u32>, b: Val<i32>) -> Val<bool> {
        a < b
       // ^ `Val<i32>` cannot be used as a run-time `u32`: expected `Val<u32>` or `u32`
    }
}

mod compare_types {
    use bespoke_codegen::prelude::*;

    #[device]
    fn below(a: Val<u32>, b: Val<f32>) -> Val<bool> {
        a < b
       // ^ `Val<f32>` cannot be used as a run-time `u32`: expected `Val<u32>` or `u32`
    }
}

mod compared_in_a_macro {
    use bespoke_codegen::prelude::*;

    #[device]
    fn named(a: Val<u32>, b: Val<u32>) -> String {
        format!("{:?}", a < b)
        //                ^ handles can be compared only in recorded code: write this in a function with
        // `#[device]`, whose name can be passed where a closure is; in a macro's arguments, compare in a `let`
        // before the macro
    }
}

mod without_device {
    use bespoke_codegen::prelude::*;

    fn smaller(a: Val<u32>, b: Val<u32>) -> Val<u32> {
        if a < b { a } else { b }
        //   ^ handles can be compared only in recorded code: write this in a function with `#[device]`, whose name
        // can be passed where a closure is; in a macro's arguments, compare in a `let` before the macro
    }

    fn sum(x: Ptr<Global, u32>, n: Val<u32>) -> Val<u32> {
        let mut sum = val(0);
        for i in range(val(0), n) {
        //       ^^^^^^^^^^^^^^^^ a run-time range can be a loop only in recorded code: put `#[device]` on this
        // function
            sum += x.at(i).load();
        }
        sum
    }

    fn larger(greater: Val<bool>, a: Val<u32>, b: Val<u32>) -> Val<u32> {
        if greater { a } else { b }
        // ^^^^^^^ E0308
    }

    fn both(a: Val<bool>, b: Val<bool>) -> Val<bool> {
        a && b
     // ^ E0308
     // ^^^^^^ E0308
        //   ^ E0308
    }

    fn sum_of_a_range(x: Ptr<Global, u32>, n: Val<u32>) -> Val<u32> {
        let mut sum = val(0);
        for i in 0..n {
        //          ^ E0308
            sum += x.at(i).load();
        }
        sum
    }
}

mod sides_of_an_if {
    use bespoke_codegen::prelude::*;

    #[device]
    fn of_two_types(c: Val<bool>, x: Val<u32>) -> Val<u32> {
        if c { x } else { 0.5 }
        //                ^^^ the sides of this `if` have the types `Val<u32>` and `{float}`: expected a constant
        // that can be a `Val<u32>`
    }

    #[device]
    fn of_signs(c: Val<bool>, x: Val<u32>) -> Val<u32> {
        if c { x } else { i32::MAX }
        //                ^^^^^^^^ the sides of this `if` have the types `Val<u32>` and `i32`: expected a constant
        // that can be a `Val<u32>`
    }

    #[device]
    fn of_constants(c: Val<bool>, x: Val<f32>) -> Val<f32> {
        let factor = if c { 1.0 } else { 0.5 };
        //           ^^ a compile-time `{float}` cannot depend on a run-time condition: this value is fixed while
        // recording, but the condition is known only on the GPU
        x * factor
    }
}

mod in_a_generic_kernel {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = N)]
    fn sums<T: Scalar, const N: u32>(x: Ptr<Global, T>) {
        for i in 0..N {
            x.store(x.at(i).load() + x.load());
            //                     ^ `T` is not a number: expected an integer or a float
        }
    }
}

fn main() {}
