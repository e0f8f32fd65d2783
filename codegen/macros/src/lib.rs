//! `#[kernel]`, `#[device]` and `#[derive(Carry)]`: the part of the DSL that needs syntax.
//!
//! A kernel function *records* IR when it is called. Values known only on the GPU are handles with
//! overloaded operators; everything else is ordinary Rust, evaluated while recording. These macros
//! rewrite what Rust cannot overload (`if`, loops, `break`, `continue`, `return`, comparisons, `&&`
//! and `||`) into calls of `bespoke_codegen::hooks`. The expansion is the same for compile-time and
//! run-time control flow: the types of the operands decide which of the two a hook performs. What takes no
//! handles at all (`as`, indices, `*`, `match` with numbers, assertions) passes through hooks that say so.
//!
//! | module     | its one job                                                          |
//! |------------|----------------------------------------------------------------------|
//! | `kernel`   | the function that `#[kernel]` leaves: options, parameters, recording |
//! | `device`   | the same for `#[device]`, which inlines into its caller              |
//! | `rewrite`  | rewrites a body, statement by statement                              |
//! | `control`  | the expansions of `if`, `&&`, the loops, and the jumps               |
//! | `asked`    | what takes no handles, each with the hook that says so               |
//! | `given`    | handles of another type than the one wanted, with a hook likewise    |
//! | `scope`    | which name means which variable, and which a jump must carry         |
//! | `assigned` | which places a region of code may assign                             |
//! | `tail`     | where a body ends: tail `return`s, branches that do not come back    |
//! | `diagnose` | constructs that cannot be recorded, each with what to write instead  |
//! | `carry`    | `#[derive(Carry)]`                                                   |
//!
//! Two rules hold for every rewritten node. It keeps the span of the token that it came from, because
//! hooks read the kernel's line from `Location::caller()` and because rustc's errors must point at the
//! kernel. And it names only absolute paths and numbered identifiers, because the kernel's own names
//! must not be able to capture it.
//!
//! # What is carried
//!
//! `let mut x` stays a Rust variable. At every branch, right side of `&&` or `||`, and loop the expansion
//! passes to the hook the places that the region may assign, and the hook makes block parameters of those
//! that hold handles. A closure runs where it is called, and what it assigns cannot be seen there: one that
//! may assign a variable of the function around it is an error.
//!
//! The analysis is syntactic and errs on the side of carrying too much: it takes any method call for an
//! assignment to its receiver. It cannot see through a `&mut` that reached a binding by pattern
//! matching on something that does not say `&mut` (`if let Some(t) = tiles.get_mut(0) { t.clear() }`
//! in a run-time branch); assign through it visibly (`*t = …`, `t.sum = …`, `f(&mut *t)`) instead.

mod asked;
mod assigned;
mod carry;
mod control;
mod device;
mod diagnose;
mod errors;
mod given;
mod kernel;
mod rewrite;
mod scope;
mod tail;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Turns a function into one that records a GPU kernel when it is called.
///
/// Parameters of type `Ptr<…>` and `Val<…>` are the kernel's run-time parameters; all others are
/// compile-time and remain parameters of the function, which returns a `bespoke_codegen::Recorded`; so is `self`.
/// `#[kernel(threads = N)]` fixes the number of threads of a CTA; `N` is a `u32` over the compile-time
/// parameters. So are `min_blocks = N`, the CTAs that a multiprocessor should hold at a time, `cluster = N`, the
/// CTAs along x that form a cluster (sm_90), and `allow_spills = N`, the bytes of stack a thread that the assembler may
/// spill registers to: without it a spill is an error wherever `ptxas` runs, and a warning when the driver assembles.
/// `#[aligned(N)]` before a `Ptr` parameter promises that it is a multiple of `N` bytes, a power of two.
/// `#[present(condition)]` before an `Option<Ptr<…>>` parameter says at compile time whether the kernel has it.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(arguments.into(), item.into()).into()
}

/// Lets a function or method hold recorded code; it is inlined where it is called, and the IR keeps the
/// chain of call sites.
///
/// A function of handles needs it where it compares or branches. Without it, an error says so at a comparison and
/// at a loop over `range(…)`; at an `if` of a `Val<bool>` rustc says that it expected a `bool`, at `0..n` that it
/// expected an integer.
#[proc_macro_attribute]
pub fn device(arguments: TokenStream, item: TokenStream) -> TokenStream {
    device::expand(arguments.into(), item.into()).into()
}

/// Lets a struct of handles live in a `let mut` that run-time branches and loops assign.
///
/// Every field must be `Carry`, except those marked `#[carry(skip)]`, which are compile-time values and
/// must not change at run time.
#[proc_macro_derive(Carry, attributes(carry))]
pub fn derive_carry(item: TokenStream) -> TokenStream {
    carry::expand(item.into()).into()
}
