//! `#[kernel]`, `#[device]`, `#[derive(Carry)]` and `#[derive(Parameters)]`: the macros of the kernel language.
//!
//! A kernel function *records* IR when it is called. Values known only on the GPU are handles with overloaded
//! operators; everything else is ordinary Rust, evaluated while recording. These macros rewrite the constructs that
//! Rust cannot overload (`if`, loops, `break`, `continue`, `return`, comparisons, `&&` and `||`) into calls of
//! `bespoke_codegen::hooks`. Compile-time and run-time control flow have the same expansion; the operands' types
//! choose the hook's implementation. Operands of constructs that take no handles (`as`, indices, `*`, `match` with
//! numbers, assertions) pass through hooks whose error names an alternative.
//!
//! | module          | content                                                                   |
//! |-----------------|---------------------------------------------------------------------------|
//! | `kernel`        | `#[kernel]`: options, and the call that records                           |
//! | `parameters`    | run-time and compile-time parameters of a kernel                          |
//! | `fields`        | `#[derive(Parameters)]`                                                   |
//! | `device`        | `#[device]`: a function that is inlined into its caller                   |
//! | `call`          | `#[device(call)]`: a function that is called                              |
//! | `carry`         | `#[derive(Carry)]`                                                        |
//! | `rewrite`       | the traversal of a body, statement by statement                           |
//! | `control`       | the expansions of `if`, `&&`, `\|\|`, the loops and the jumps             |
//! | `sides`         | constants as values of an `if`                                            |
//! | `static_only`   | constructs that take compile-time values only, each with a hook           |
//! | `expected_type` | handles where another type is expected, with a hook                       |
//! | `unsupported`   | constructs that cannot be recorded, and the errors that name alternatives |
//! | `rewriter`      | the state of rewriting one function                                       |
//! | `scope`         | names in scope, and the slots of a region                                 |
//! | `assigned`      | the places that a region may assign                                       |
//! | `bindings`      | the names that patterns and parameters bind                               |
//! | `returns`       | tail `return`s, and blocks that end in a jump                             |
//! | `syntax`        | questions about the spelling of types, patterns and expressions           |
//! | `errors`        | all errors of one function                                                |
//!
//! Two rules hold for every rewritten node. It keeps the span of its source token: hooks read the kernel's line from
//! `Location::caller()`, and rustc's errors must point at the kernel. It uses only absolute paths and numbered
//! identifiers, which the kernel's names cannot shadow.
//!
//! # Carried variables
//!
//! `let mut x` stays a Rust variable. At every branch, loop, and right side of `&&` or `||`, the expansion passes to
//! the hook the places that the region may assign. The hook turns places that hold handles into block parameters. A
//! closure runs where it is called, and its assignments are not visible there; a closure that may assign a variable of
//! the function around it is an error.
//!
//! The analysis is syntactic and conservative: a method call counts as an assignment of its receiver. One case is
//! missed: a `&mut` in a binding of a pattern whose source does not spell `&mut`, such as
//! `if let Some(t) = tiles.get_mut(0) { t.clear() }` in a run-time branch. Assign through it visibly instead: `*t = …`,
//! `t.sum = …`, `f(&mut *t)`.

mod assigned;
mod bindings;
mod call;
mod carry;
mod control;
mod device;
mod errors;
mod expected_type;
mod fields;
mod kernel;
mod parameters;
mod returns;
mod rewrite;
mod rewriter;
mod scope;
mod sides;
mod static_only;
mod syntax;
#[cfg(test)]
mod tests;
mod unsupported;

use proc_macro::TokenStream;

/// Turns a function into one that records a GPU kernel when it is called.
///
/// Parameters of type `Ptr<…>` and `Val<…>`, and structs marked `#[parameters]`, are the kernel's run-time parameters. All
/// others, and `self`, are compile-time parameters: they remain parameters of the function, which returns a
/// `bespoke_codegen::Recorded`.
///
/// Options, each a `u32` expression over the compile-time parameters:
/// - `threads = N`: threads per CTA.
/// - `min_blocks = N`: minimum number of resident CTAs per multiprocessor.
/// - `max_registers = N`: largest number of registers per thread; 255 for no limit.
/// - `cluster = N`: CTAs per cluster, along x (sm_90); 1 for none.
/// - `allow_spills = N`: bytes of stack per thread for spilled registers. Without it, a spill is an error wherever
///   `ptxas` runs, and a warning when the driver assembles.
///
/// Attributes of parameters:
/// - `#[aligned(N)]` on a `Ptr`: the launch guarantees an alignment of `N` bytes, a power of two.
/// - `#[parameters]` on a struct with `#[derive(Parameters)]`: each field is a parameter.
/// - `#[present(condition)]` on an `Option<Ptr<…>>`: the kernel has the parameter if the compile-time condition holds.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(arguments.into(), item.into()).into()
}

/// Lets a function or method contain recorded control flow. It is inlined where it is called, and the IR keeps the
/// chain of call sites.
///
/// `#[device(call)]` makes it a function of the PTX module that is called, not inlined. Its parameters and its result are
/// handles, structs of handles with `#[derive(Clone, Carry)]`, arrays and tuples of them, and compile-time values.
///
/// A function that compares handles or branches on them needs `#[device]`. Without it, a comparison and a loop over
/// `range(…)` get an error that says so; an `if` of a `Val<bool>` and `0..n` get rustc's "mismatched types".
#[proc_macro_attribute]
pub fn device(arguments: TokenStream, item: TokenStream) -> TokenStream {
    device::expand(arguments.into(), item.into()).into()
}

/// Lets run-time branches and loops assign a variable of a struct of handles.
///
/// Every field must be `Carry`, except fields marked `#[carry(skip)]`: compile-time values, which run-time code must
/// not change.
#[proc_macro_derive(Carry, attributes(carry))]
pub fn derive_carry(item: TokenStream) -> TokenStream {
    carry::expand(item.into()).into()
}

/// Lets a launch pass a struct of handles, field by field, to a parameter marked `#[parameters]`.
///
/// Every field must be `Parameters`: a handle, an array of these or another struct. `#[aligned(N)]` and `#[tile([…])]` go
/// before fields as before parameters of a kernel, with constants.
#[proc_macro_derive(Parameters, attributes(aligned, tile))]
pub fn derive_parameters(item: TokenStream) -> TokenStream {
    fields::expand(item.into()).into()
}
