//! Signatures, options and attributes.

mod function_qualifiers {
    use bespoke_codegen::prelude::*;

    #[device]
    const fn one() -> Val<u32> {
 // ^^^^^ a recorded function cannot be `const`: recording has side effects
        val(1)
    }

    #[kernel]
    extern "C" fn clear(x: Ptr<Global, u32>) {
 // ^^^^^^ a recorded function has no ABI: remove `extern`
        x.store(0);
    }
}

mod kernel_arguments {
    use bespoke_codegen::prelude::*;

    #[kernel(thread = 32)]
    //       ^^^^^^ `#[kernel]` takes `threads = …`, `min_blocks = …`, `max_registers = …`, `cluster = …` and
    // `allow_spills = …`, not `thread`
    fn clear(x: Ptr<Global, u32>) {
        x.store(0);
    }

    #[kernel(threads = 32, threads = 64)]
    //                     ^^^^^^^^^^^^ `threads` is given twice
    fn set(x: Ptr<Global, u32>) {
        x.store(1);
    }

    #[device(inline)]
    //       ^^^^^^ `#[device]` takes `call` or nothing: `#[device(call)]` is called, not inlined
    fn one() -> Val<u32> {
        val(1)
    }
}

mod kernel_pattern {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn clear((x): Ptr<Global, u32>, _: Val<u32>) {
    //       ^^^ a run-time parameter must be a plain name, which the launch uses
    //                              ^ a run-time parameter must be a plain name, which the launch uses
        x.store(0);
    }
}

mod kernel_changes {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn clear(x: &mut [f32]) {
    //          ^ these numbers are the host's while the kernel is recorded: write `Ptr<Global, T>` for memory that
    // the kernel changes
        x[0] = 0.0;
    }
}

mod kernel_returns {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn sum(x: Ptr<Global, f32>) -> Val<f32> {
    //                             ^^^ a kernel returns nothing: store results through a pointer
        x.load() + x.at(1).load()
    }
}

mod return_value_of_kernel {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn first(x: Ptr<Global, u32>) {
        if thread_index() > 3 {
            return x.load();
            //     ^ a kernel returns nothing: store results through a pointer, and leave with `return;`
        }
        x.store(1);
    }
}

mod impl_trait_parameter {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn copy(from: Ptr<Global, u32>, to: Ptr<impl Space, u32>) {
    //                                      ^^^^ a run-time parameter cannot be `impl Trait`: name a type, or make
    // the kernel generic over it
        to.store(from.load());
    }
}

mod option_run_time {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = n)]
    //                 ^ `n` is known only on the GPU: write an expression of compile-time parameters and constants
    fn clear(x: Ptr<Global, u32>, n: Val<u32>) {
        x.at(thread_index()).store(n);
    }
}

mod option_of_another_type {
    use bespoke_codegen::prelude::*;

    #[kernel(threads = 1.5f32)]
    //                 ^^^^^^ `f32` is not a number of threads: expected a `u32`, or a tuple of two or three
    fn clear(x: Ptr<Global, u32>) {
        x.store(0);
    }
}

mod option_without_value {
    use bespoke_codegen::prelude::*;

    #[kernel(threads)]
    //       ^^^^^^^ `threads` needs a value: `threads = …`
    fn clear(x: Ptr<Global, u32>) {
        x.store(0);
    }
}

mod optional_pointer {
    use bespoke_codegen::prelude::*;

    #[kernel]
    fn no_condition(x: Ptr<Global, f32>, bias: Option<Ptr<Global, f32>>) {
    //                                         ^^^^^^ an optional pointer needs a compile-time condition that says
    // when the kernel has it: write `#[present(condition)]` before the parameter
        x.store(0.0);
    }

    #[kernel]
    fn empty_condition(x: Ptr<Global, f32>, #[present] bias: Option<Ptr<Global, f32>>) {
    //                                        ^^^^^^^ `present` needs a compile-time condition:
    // `#[present(shape.has_bias)]`
        x.store(0.0);
    }

    #[kernel]
    fn run_time_condition(n: Val<bool>, #[present(n)] x: Option<Ptr<Global, f32>>) {}
    //                                            ^ `n` is known only on the GPU: write an expression of
    // compile-time parameters and constants

    #[kernel]
    fn plain_pointer(#[present(on)] x: Ptr<Global, f32>, on: bool) {
    //                 ^^^^^^^ `#[present(…)]` goes on a parameter of type `Option<Ptr<Global, T>>`
        x.store(0.0);
    }

    #[kernel]
    fn number(#[present(on)] x: Val<f32>, on: bool) {}
    //          ^^^^^^^ `#[present(…)]` goes on a parameter of type `Option<Ptr<Global, T>>`

    #[kernel]
    fn optional_number(#[present(on)] x: Option<Val<f32>>, on: bool) {}
    //                   ^^^^^^^ `#[present(…)]` goes on a parameter of type `Option<Ptr<Global, T>>`

    #[kernel]
    fn aligned_number(x: Ptr<Global, f32>, #[aligned(16)] n: u32) {
    //                                       ^^^^^^^ `#[aligned(…)]` goes on a parameter of type `Ptr<Global, T>`
        x.store(0.0);
    }
}

mod structs_of_handles {
    use bespoke_codegen::prelude::*;

    #[derive(Clone, Copy)]
    struct Plain {
        data: Ptr<Global, f32>,
        length: Val<u32>,
    }

    #[kernel]
    fn no_attribute(image: Plain) {
    //                     ^^^^^ `Plain` has handles, so it cannot be a compile-time parameter: write
    // `#[parameters]` before it, and `#[derive(Parameters)]` on the struct
        image.data.at(image.length).store(0.0);
    }

    #[kernel]
    fn no_derive(#[parameters] image: Plain) {
    //                                ^^^^^ a launch cannot pass `Plain`: expected handles, or a struct of handles
    // with `#[derive(Parameters)]`
        image.data.at(image.length).store(0.0);
    }

    #[derive(Clone, Copy, Parameters)]
    struct Image {
        data: Ptr<Global, f32>,
        length: Val<u32>,
    }

    #[kernel]
    fn derive_alone(image: Image) {
    //                     ^^^^^ `Image` has handles, so it cannot be a compile-time parameter: write
    // `#[parameters]` before it, and `#[derive(Parameters)]` on the struct
        image.data.at(image.length).store(0.0);
    }

    #[kernel]
    fn attribute_of_the_whole(#[parameters] #[aligned(16)] image: Image, #[parameters(1)] other: Image) {
    //                                        ^^^^^^^ `#[aligned(…)]` does not go with `#[parameters]`: write it
    // before a field
    //                                                                     ^^^^^^^^^^ `#[parameters]` takes no
    // arguments
        image.data.at(other.length).store(0.0);
    }

    #[kernel]
    fn compile_time_value(x: Ptr<Global, f32>, #[parameters] n: u32) {
    //                                                          ^^^ a launch cannot pass `u32`: expected handles, or
    // a struct of handles with `#[derive(Parameters)]`
        x.at(n).store(0.0);
    }

    #[derive(Clone, Copy, Parameters)]
    struct Mixed {
        data: Ptr<Global, f32>,
        rows: u32,
        //    ^^^ a launch cannot pass `u32`: expected handles, or a struct of handles with `#[derive(Parameters)]`
        tile: Ptr<Shared, f32>,
        //    ^^^ a launch cannot pass `Ptr<Shared, f32>`: expected handles, or a struct of handles with
        // `#[derive(Parameters)]`
    }

    #[derive(Clone, Copy, Parameters)]
    struct Maps {
        map: TensorMap<f32, 2>,
        //   ^^^^^^^^^ a tensor map needs the sizes of its tiles: write `#[tile([64, 128])]`, with the elements
        // along each dimension, before the field
        #[aligned]
       // ^^^^^^^ `aligned` needs a number of bytes: `#[aligned(16)]`
        data: Ptr<Global, f32>,
    }

    #[derive(Clone, Copy, Parameters)]
    struct Lengths {
        #[aligned(16)]
        length: Val<u32>,
        //      ^^^ `Val<u32>` is not a pointer and has no alignment: remove `#[aligned(…)]`, or make this a
        // `Ptr<Global, …>`
    }

    #[derive(Parameters)]
    enum Either {
 // ^^^^ `Parameters` is for structs: a launch passes no variants; use a struct with a `Val` as discriminant
        Left(Val<u32>),
        Right(Val<f32>),
    }
}

mod called {
    use bespoke_codegen::prelude::*;

    #[device(calls)]
    //       ^^^^^ `#[device]` takes `call` or nothing: `#[device(call)]` is called, not inlined
    fn misspelled(x: Val<u32>) -> Val<u32> {
        x
    }

    #[device(call)]
    fn changes(x: &mut Val<u32>) {
    //            ^ a function with `#[device(call)]` takes handles, structs of them and compile-time values, not
    // references and closures: return what it changes, or write `#[device]`, which is inlined
        *x += 1u32;
    }

    #[device(call)]
    fn destructures((x, y): (Val<u32>, Val<u32>)) -> Val<u32> {
    //              ^^^^^^ a parameter of a function with `#[device(call)]` is a name
        x + y
    }

    #[device(call)]
    fn returns_closure(x: Val<u32>) -> impl Fn() -> Val<u32> {
    //                              ^ a function with `#[device(call)]` returns handles: write their type
    //                                 ^^^^^^^^^^^^^^^^^^^^^ expected a `Fn()` closure, found `!`: expected an
    // `Fn()` closure, found `!`
        move || x
    }

    struct Table(Val<u32>);

    impl Table {
        #[device(call)]
        fn first(self) -> Val<u32> {
        //       ^^^^ a function with `#[device(call)]` has no `self`: pass the fields that it uses
            self.0
        }
    }
}

mod carry_enum {
    use bespoke_codegen::prelude::*;

    #[derive(Carry)]
    enum Either {
 // ^^^^ `Carry` is for structs: a run-time branch cannot choose between variants; use a struct with a `Val` as
 // discriminant
        Left(Val<u32>),
        Right(Val<f32>),
    }
}

fn main() {}
