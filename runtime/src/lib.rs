//! The runtime of `bespoke`: decodes GGUF language models through kernels generated for one model's shape.
//!
//! [`engine`] binds a decode plan and a model's weights to a [`device`]; its kernels are [`builtin`], or made while
//! loading. [`check`] runs kernels under the emulator's checks, whoever made them; [`demo`] is a model that needs no
//! file. [`cli`] is the `bespoke` binary, and the only other user of [`selftest`], [`synth`], [`quantize`] and [`ptxas`].

pub mod builtin;
pub mod check;
pub mod cli;
pub mod demo;
pub mod device;
pub mod engine;
mod partial;
pub mod quantize;
pub mod selftest;
pub mod synth;
pub mod tokenizer;

pub use bespoke_codegen::ptxas;
