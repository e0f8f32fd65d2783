//! The runtime of `bespoke`: decodes GGUF language models through kernels generated for one model's shape.
//!
//! [`engine`] binds a decode plan and a model's weights to a [`device`]; its kernels are [`builtin`], or made while
//! loading. [`tokenizer`] turns text into tokens and back.
//!
//! A program that launches kernels of its own needs [`device`] alone: `default-features = false` leaves out all else (the
//! feature `decoder`), and most dependencies.

#[cfg(feature = "decoder")]
pub mod builtin;
pub mod device;
#[cfg(feature = "decoder")]
pub mod engine;
#[cfg(feature = "decoder")]
pub mod generation;
#[cfg(feature = "decoder")]
pub mod tokenizer;
