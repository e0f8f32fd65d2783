//! Pointers and stores.

mod float_index {
    use bespoke_codegen::prelude::*;

    #[device]
    fn element(x: Ptr<Global, f32>, i: Val<f32>) -> Val<f32> {
        x.at(i).load()
        //   ^ `Val<f32>` cannot index memory: expected a `Val` of u32, i32, u64 or i64, or a compile-time u32, i32,
        // usize or u64
    }
}

mod pointer_brackets {
    use bespoke_codegen::prelude::*;

    struct Row {
        items: Ptr<Global, f32>,
    }

    #[device]
    fn doubled(x: Ptr<Global, f32>, i: Val<u32>) {
        let own = x.at(i);
        x[i] = own[0] * 2.0;
       // ^ brackets do not access GPU memory: write `x.at(i).load()` for the value, `x.at(i).store(value)` to
       // assign it
        //         ^ brackets do not access GPU memory: write `x.at(i).load()` for the value, `x.at(i).store(value)`
        // to assign it
    }

    #[device]
    fn first(row: &Row) -> Val<f32> {
        row.items[0]
        //        ^ brackets do not access GPU memory: write `x.at(i).load()` for the value, `x.at(i).store(value)`
        // to assign it
    }
}

mod store_float {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn fill(x: Ptr<Global, u32>) {
        x.store(1.5);
        //      ^^^ `{float}` cannot be used as a run-time `u32`: expected `Val<u32>` or `u32`
    }
}

mod in_an_impl_block {
    use bespoke_codegen::prelude::*;

    struct Rows {
        length: u32,
    }

    impl Rows {
        #[kernel(threads = self.length)]
        fn clear(&self, x: Ptr<Global, u32>) {
            if thread_index() < self.length {
                x.store(1.5);
                //      ^^^ `{float}` cannot be used as a run-time `u32`: expected `Val<u32>` or `u32`
            }
        }
    }
}

mod usize_parameter {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn fill(x: Ptr<Global, f32>, value: Val<usize>) {
    //                           ^^^^^ `usize` is not a run-time scalar: expected bool, u8 to u64, i8 to i64, f16,
    // bf16, f32, f64, F16x2 or Bf16x2
        x.store(0.0);
    }
}

mod shared_parameter {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn sums(x: Ptr<Shared, f32>) {
    //      ^ `Ptr<Shared, f32>` cannot be a kernel's run-time parameter: a launch passes scalars and pointers to
    // global memory; shared memory is declared in the kernel, by `shared_array`
        x.store(1.0);
    }
}

fn main() {}
