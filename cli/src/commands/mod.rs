//! The subcommands.

pub mod batch;
pub mod bench;
pub mod chat;
pub mod check;
pub mod compare;
pub mod devices;
pub mod inspect;
pub mod logits;
pub mod perplexity;
pub mod quantize;
pub mod run;
pub mod selftest;
pub mod specialize;
pub mod synth;
pub mod tokenize;
pub mod tune;
