//! Loading of PTX text up to decoding: lexer, parser, syntax tree, inlining of calls, control-flow graph, data-flow
//! analysis and register layout.

pub(crate) mod addresses;
pub(crate) mod ast;
pub(crate) mod calls;
pub(crate) mod control_flow;
pub(crate) mod dataflow;
pub(crate) mod error;
pub(crate) mod layout;
pub(crate) mod lexer;
pub(crate) mod link;
pub(crate) mod parser;
pub(crate) mod requirement;
pub(crate) mod types;
pub(crate) mod unsupported;
