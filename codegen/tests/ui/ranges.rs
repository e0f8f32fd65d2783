//! Ranges.

mod for_number {
    use bespoke_codegen::prelude::*;

    #[device]
    fn count(n: Val<u32>) -> Val<u32> {
        let mut sum = val(0);
        for i in n {
     // ^^^ a handle is not a range: write `0..n` to count to a run-time number
            sum += i;
        }
        sum
    }
}

mod range_inclusive {
    use bespoke_codegen::prelude::*;

    #[device]
    fn count(n: Val<u32>) -> Val<u32> {
        let mut sum = val(0);
        for i in 0..=n {
        //        ^ a run-time range is half open: write `..end + 1` instead of `..=end`; `end + 1` must not wrap
        //           ^ a run-time range is half open: write `..end + 1` instead of `..=end`; `end + 1` must not wrap
            sum += i;
        }
        sum
    }
}

mod range_types {
    use bespoke_codegen::prelude::*;

    #[device]
    fn count(n: Val<u32>, from: Val<i32>) -> Val<u32> {
        let mut sum = val(0);
        for i in from..n {
        //           ^ `Val<i32>` cannot be used as a run-time `u32`: expected `Val<u32>` or `u32`
        //             ^ `Val<i32>` cannot be used as a run-time `u32`: expected `Val<u32>` or `u32`
            sum += 1;
        }
        sum
    }
}

mod unroll_of_numbers {
    use bespoke_codegen::prelude::*;

    #[device]
    fn count(n: u32) -> Val<u32> {
        let mut sum = val(0);
        for i in (0..n).unroll(4) {
        //         ^ only a loop over a run-time range is unrolled by `unroll`: this loop has compile-time numbers
        // and is unrolled completely
            sum += i;
        }
        for i in (0..8).unroll(4) {
        //        ^^^^ only a loop over a run-time range is unrolled by `unroll`: this loop has compile-time numbers
        // and is unrolled completely
            sum += i;
        }
        sum
    }
}

fn main() {}
