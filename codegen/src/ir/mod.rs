//! The intermediate representation: typed SSA in entity arenas.
//!
//! A [`Function`] is one kernel. Its blocks have parameters instead of phi nodes; a jump passes arguments. Every
//! instruction is an [`Op`] at a [`Type`], with operands, results and the source location it came from;
//! [`Op::signature`] is the one table of what operands an operation takes and what results it gives. Values are
//! defined once and used only where their definition dominates. Blocks outside [`Function::layout`] do not exist
//! for any pass.
//!
//! The text form ([`mod@print`], [`mod@parse`]) round-trips: printing what was parsed gives the same text, and parsing
//! what was printed gives the same function up to the numbering of entities.

pub mod dominators;
pub mod entities;
mod function;
mod kinds;
mod matrix;
mod names;
mod op;
pub mod parse;
pub mod print;
mod signature;
mod transfer;
mod types;
pub mod verify;

pub use entities::{Block, Inst, Loc, SharedVar, Value};
pub use function::{BlockCall, BlockData, Def, Function, InstData, Param, Shared, SourceLoc};
pub use kinds::{
    Access, Atomic, Binary, Cache, ClusterBarrier, Compare, Match, Order, Ordering, Reduce, Rounding, Scope,
    Shuffle, Unary, Vote,
};
pub use matrix::{Mma, MmaElement, MmaShape};
pub use op::Op;
pub use signature::Expect;
pub use transfer::{Eviction, FenceFor, Mbarrier, Transfer};
pub use types::{Special, Type};
