//! The subcommands.

pub mod bench;
pub mod check;
pub mod devices;
pub mod inspect;
pub mod logits;
pub mod quantize;
pub mod run;
pub mod selftest;
pub mod specialize;
pub mod synth;
pub mod tune;
