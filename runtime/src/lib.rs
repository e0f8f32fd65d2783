//! The runtime of `bespoke`: decodes GGUF language models through kernels generated for one model's shape.
//!
//! [`engine`] binds a decode plan and a model's weights to a [`device`]; its kernels are [`builtin`], or made while
//! loading. [`check`] runs kernels under the emulator's checks, whoever made them; [`demo`] is a model that needs no
//! file. [`cli`] is the `bespoke` binary, and the only other user of [`selftest`], [`synth`], [`quantize`], [`inspect`] and
//! [`ptxas`].
//!
//! A program that launches kernels of its own needs [`device`] alone: `default-features = false` leaves out all else (the
//! feature `decoder`), and most dependencies.

#[cfg(feature = "decoder")]
pub mod builtin;
#[cfg(feature = "decoder")]
pub mod check;
#[cfg(feature = "decoder")]
pub mod cli;
#[cfg(feature = "decoder")]
pub mod demo;
pub mod device;
#[cfg(feature = "decoder")]
pub mod engine;
#[cfg(feature = "decoder")]
pub mod inspect;
#[cfg(feature = "decoder")]
mod partial;
#[cfg(feature = "decoder")]
pub mod quantize;
#[cfg(feature = "decoder")]
pub mod selftest;
#[cfg(feature = "decoder")]
pub mod synth;
#[cfg(feature = "decoder")]
pub mod tokenizer;

#[cfg(feature = "decoder")]
pub use bespoke_codegen::ptxas;
