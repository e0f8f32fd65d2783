//! The intermediate representation: typed SSA in entity arenas.
//!
//! A [`Function`] is one kernel. Its blocks have parameters instead of phi nodes; a jump passes arguments. Every
//! instruction is an [`Op`] at a [`Type`], with operands, results and its source location. The table in `op.rs` has one
//! row per opcode: name, members, signature, effect, convergence and lowest target. Values are defined once and used
//! only where their definition dominates. Passes ignore blocks outside [`Function::layout`].
//!
//! The text form ([`mod@print`], [`mod@parse`]) round-trips: printing what was parsed gives the same text, and parsing
//! what was printed gives the same function up to the numbering of entities.

mod arithmetic;
mod async_copy;
mod call;
pub mod dominators;
pub mod effect;
pub mod entities;
mod function;
mod inline;
mod intern;
mod lex;
mod matrix;
mod mbarrier;
mod members;
mod memory;
mod named;
mod op;
pub mod parse;
pub mod print;
mod reader;
mod rule;
mod table;
mod tensor;
mod threads;
mod types;
pub mod verify;

pub use arithmetic::{Binary, Compare, Fact, Float8, Rounding, Unary};
pub use async_copy::AsyncCopy;
pub use call::{Callee, FunctionSignature};
pub use effect::{Convergence, Effect, OpaqueEffect, Requirement};
pub use entities::{Block, Inst, Loc, LocalVar, SharedVar, TableVar, Value};
pub use function::{
    ARRAY_ALIGN, BlockCall, BlockData, CONSTANT_MEMORY, Def, Function, InstData, Local, Param, Predecessors,
    Shared, SourceLoc, TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES, Table,
};
pub use inline::{Inline, InlineText, Piece, pieces};
pub use matrix::{Mma, MmaElement, MmaShape, WgmmaOperands};
pub use mbarrier::{Eviction, FenceFor, Mbarrier};
pub use memory::{Access, Atomic, Cache, Order, Ordering, Scope};
pub use op::Op;
pub use rule::{Expect, Signature};
pub use tensor::{MAX_RANK, Swizzle, TensorLayout, TensorReduction};
pub use threads::{ClusterBarrier, Match, Reduce, Shuffle, Vote};
pub use types::{Special, Type};
