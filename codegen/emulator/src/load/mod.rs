//! From PTX text to functions ready to be decoded: lexer, parser, syntax tree, expansion of calls, control flow, data
//! flow and register layout.

pub(crate) mod ast;
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
