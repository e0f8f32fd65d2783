//! The runtime of `bespoke`: decodes GGUF language models through kernels generated for one model's shape.

pub mod synth;
pub mod tokenizer;

pub mod device;
