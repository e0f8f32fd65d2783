//! Opaque handles into a function's arenas. Their `Display` is their name in the text form.

use cranelift_entity::entity_impl;

/// An SSA value: a result of an instruction or a parameter of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(u32);
entity_impl!(Value, "v");

/// A basic block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u32);
entity_impl!(Block, "block");

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inst(u32);
entity_impl!(Inst, "inst");

/// A statically sized shared-memory variable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedVar(u32);
entity_impl!(SharedVar, "shared");

/// An array in a thread's local memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalVar(u32);
entity_impl!(LocalVar, "local");

/// A table of constants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableVar(u32);
entity_impl!(TableVar, "table");

/// A source location, with the chain of calls that it was inlined through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loc(u32);
entity_impl!(Loc, "loc");
