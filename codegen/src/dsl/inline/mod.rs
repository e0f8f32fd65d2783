//! Inline PTX: instructions that the language has no intrinsic for.

mod check;
mod lex;
mod words;

use std::panic::Location;

use super::pointer::{Ptr, Space};
use super::recorder::{emit, fail};
use super::scalar::Scalar;
use super::value::Val;
use crate::ir::{self, Inline, InlineText, Op, OpaqueEffect, Piece, Type, pieces};
use crate::ptx::Target;

/// Inline PTX that is being described; see [`inline_ptx`].
#[must_use = "describe the results with `output` or `outputs`, or end with `run`"]
pub struct InlinePtx {
    ptx: String,
    inputs: Vec<(&'static str, Type, ir::Value)>,
    effect: OpaqueEffect,
    convergent: bool,
    needs: (Target, (u8, u8)),
    checked: bool,
}

/// A run-time value that inline PTX takes in a register: a scalar or a pointer.
pub trait InlineOperand: Copy {
    /// Type and SSA value of the operand.
    fn operand(self) -> (Type, ir::Value);
}

impl<T: Scalar> InlineOperand for Val<T> {
    fn operand(self) -> (Type, ir::Value) {
        (T::TYPE, self.id())
    }
}

impl<S: Space, T> InlineOperand for Ptr<S, T> {
    fn operand(self) -> (Type, ir::Value) {
        (S::POINTER, self.id())
    }
}

/// Scalars of several results of inline PTX: a tuple of two to four.
pub trait InlineOutputs<const N: usize> {
    /// The handles, as a tuple.
    type Handles;
    /// Types of the results.
    const TYPES: [Type; N];
    /// The handles of SSA values of these types.
    fn handles(values: &[ir::Value]) -> Self::Handles;
}

macro_rules! outputs {
    ($($count:literal: $($scalar:ident $index:literal)*;)*) => { $(
        impl<$($scalar: Scalar),*> InlineOutputs<$count> for ($($scalar,)*) {
            type Handles = ($(Val<$scalar>,)*);
            const TYPES: [Type; $count] = [$($scalar::TYPE),*];
            fn handles(values: &[ir::Value]) -> Self::Handles {
                ($(Val::<$scalar>::from_id(values[$index]),)*)
            }
        }
    )* };
}
outputs! {
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
}

/// PTX statements for which the language has no intrinsic. `{name}` stands for the register of the input or output with
/// this name, of the type of its handle; `bool` is a predicate, 8-bit integers are in 32-bit registers. Statements that
/// declare registers or labels must be in a block `{ … }`.
///
/// The text is checked when it is recorded: brackets and `;`, names of instructions, types, special registers and declared
/// registers, and the operand types of arithmetic, logic and `mov`. Other mistakes are found by the emulator and the driver.
///
/// Passes take inline PTX as it is. Without a declaration, it may read and write memory and wait for other threads:
/// it is never removed, merged or moved, and no load moves across it. [`InlinePtx::pure`] and others declare less.
///
/// - PTX: its text, for example `bfind.u32`
/// - Target: sm_80; with [`InlinePtx::needs`] a later one
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// fn highest_bit(x: Val<u32>) -> Val<u32> {
///     inline_ptx("bfind.u32 {y}, {x};").input("x", x).pure().output::<u32>("y")
/// }
/// assert_eq!(map(highest_bit, "bfind.u32 …;", [8u32, 0]), [3, u32::MAX]);
///
/// // The carry of a 64-bit sum.
/// fn carries(x: Val<u64>) -> Val<u64> {
///     let (_, high) = inline_ptx("add.cc.u64 {low}, {x}, {x};\naddc.u64 {high}, {zero}, {zero};")
///         .input("x", x)
///         .input("zero", val(0u64))
///         .pure()
///         .outputs::<(u64, u64), 2>(["low", "high"]);
///     high
/// }
/// assert_eq!(map(carries, "addc.u64 …;", [u64::MAX, 7]), [1, 0]);
/// ```
pub fn inline_ptx(ptx: impl Into<String>) -> InlinePtx {
    InlinePtx {
        ptx: ptx.into(),
        inputs: Vec::new(),
        effect: OpaqueEffect::Synchronises,
        convergent: false,
        needs: (Target::Sm80, (7, 0)),
        checked: true,
    }
}

impl InlinePtx {
    /// Adds an input, a handle or a pointer, as `{name}` in the text.
    ///
    /// - PTX: none: its register in the text
    pub fn input(mut self, name: &'static str, value: impl InlineOperand) -> InlinePtx {
        let (ty, value) = value.operand();
        self.inputs.push((name, ty, value));
        self
    }

    /// Declares that the results depend on the inputs only: the instruction may be removed, merged and moved.
    ///
    /// - PTX: none
    pub fn pure(self) -> InlinePtx {
        InlinePtx { effect: OpaqueEffect::Pure, ..self }
    }

    /// Declares that the inline PTX reads memory or state but has no other effect: it may be removed.
    ///
    /// - PTX: none
    pub fn reads_memory(self) -> InlinePtx {
        InlinePtx { effect: OpaqueEffect::Reads, ..self }
    }

    /// Declares that the inline PTX writes memory but does not wait for other threads: read-only loads may move
    /// across it.
    ///
    /// - PTX: none
    pub fn writes_memory(self) -> InlinePtx {
        InlinePtx { effect: OpaqueEffect::Writes, ..self }
    }

    /// Declares that all lanes of a warp must execute the inline PTX together: it is not moved under other
    /// conditions, and a divergent branch around it is an error.
    ///
    /// - PTX: none
    pub fn convergent(self) -> InlinePtx {
        InlinePtx { convergent: true, ..self }
    }

    /// Declares the lowest target and PTX version; without it, sm_80 and PTX 7.0.
    ///
    /// - PTX: none; the module gets at least this `.version`
    pub fn needs(self, target: Target, version: (u8, u8)) -> InlinePtx {
        InlinePtx { needs: (target, version), ..self }
    }

    /// Leaves the text unchecked, for PTX that is newer than this crate.
    ///
    /// - PTX: none
    pub fn unchecked(self) -> InlinePtx {
        InlinePtx { checked: false, ..self }
    }

    /// Records the instruction without results.
    ///
    /// - PTX: none of its own; the text given to [`inline_ptx`]
    #[track_caller]
    pub fn run(self) {
        self.record(&[], &[]);
    }

    /// Records the instruction; its result is `{name}` in the text.
    ///
    /// - PTX: none of its own; the text given to [`inline_ptx`]
    #[track_caller]
    pub fn output<T: Scalar>(self, name: &str) -> Val<T> {
        Val::from_id(self.record(&[name], &[T::TYPE])[0])
    }

    /// Records the instruction; its results have these names in the text.
    ///
    /// - PTX: none of its own; the text given to [`inline_ptx`]
    #[track_caller]
    pub fn outputs<R: InlineOutputs<N>, const N: usize>(self, names: [&str; N]) -> R::Handles {
        R::handles(&self.record(&names, &R::TYPES))
    }

    #[track_caller]
    fn record(self, outputs: &[&str], results: &[Type]) -> Vec<ir::Value> {
        let site = Location::caller();
        let names: Vec<&str> =
            outputs.iter().copied().chain(self.inputs.iter().map(|input| input.0)).collect();
        let text = numbered(&self.ptx, &names).unwrap_or_else(|message| fail(site, message));
        if self.checked {
            let types = results.iter().copied().chain(self.inputs.iter().map(|input| input.1));
            let operands: Vec<(&str, Type)> = names.iter().copied().zip(types).collect();
            check::check(&self.ptx, &operands).unwrap_or_else(|message| fail(site, message));
        }
        let inline = Inline::new(InlineText {
            ptx: text,
            results: results.to_vec(),
            operands: self.inputs.iter().map(|input| input.1).collect(),
            effect: self.effect,
            convergent: self.convergent,
            needs: self.needs,
        });
        let operands: Vec<ir::Value> = self.inputs.iter().map(|input| input.2).collect();
        emit(Op::Inline(inline), Type::U32, &operands, site).to_vec()
    }
}

/// The text with the names in its placeholders replaced by their numbers, or an error message.
fn numbered(ptx: &str, names: &[&str]) -> Result<String, String> {
    let ptx = ptx.trim();
    // A brace may close a block, or a placeholder without `;` after it.
    if !ptx.ends_with([';', '}']) || matches!(pieces(ptx).last(), Some(Piece::Name(_))) {
        return Err(format!("inline PTX `{ptx}` does not end in `;`"));
    }
    let mut unused: Vec<&str> = names.to_vec();
    unused.sort_unstable();
    if let Some(pair) = unused.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("inline PTX `{ptx}` has two operands called `{}`", pair[0]));
    }
    let mut text = String::new();
    for piece in pieces(ptx) {
        match piece {
            Piece::Ptx(ptx) => text.push_str(ptx),
            Piece::Name(name) => {
                let Some(index) = names.iter().position(|&known| known == name) else {
                    let known = if names.is_empty() { "none".into() } else { names.join(", ") };
                    return Err(format!("inline PTX `{ptx}` has no operand called `{name}`, only {known}"));
                };
                unused.retain(|&other| other != name);
                text.push_str(&format!("{{{index}}}"));
            }
        }
    }
    if let Some(name) = unused.first() {
        return Err(format!("inline PTX `{ptx}` does not use `{{{name}}}`"));
    }
    Ok(text)
}
