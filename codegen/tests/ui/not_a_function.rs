//! Attributes on other items than functions.

mod not_a_function {
    use bespoke_codegen::prelude::*;

    #[kernel]
    struct Shape {
 // ^^^^^^ `#[kernel]` goes on a function with a body
 // ^^^^^^ expected `fn`
        rows: u32,
    }

    trait Row {
        #[device]
        fn row(&self) -> Val<u32>;
        //                       ^ `#[device]` goes on a function with a body
        //                       ^ expected curly braces
    }
}

fn main() {}
