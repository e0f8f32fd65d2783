//! Runtime of `bespoke`: decodes GGUF language models with kernels generated for one model's shape.
//!
//! | module | contents |
//! | --- | --- |
//! | [`device`] | NVIDIA GPUs and the PTX emulator: memory, modules, launches, graphs |
//! | [`engine`] | a model's decode plan and weights on a device, one graph launch per token |
//! | [`tokenizer`] | text to tokens and back, from the file's metadata |
//! | [`generation`] | requests and answers: stop tokens, stop strings, log-probabilities, grammars, the finish reason |
//! | [`speculation`] | several tokens of a sequence in one step, with the same bits |
//! | [`scheduler`] | decodes requests, one or many at once: slots, pages of the KV cache, prompts in chunks, events per sequence |
//! | [`builtin`] | the kernels that were compiled when the program was built |
//!
//! # Embedding
//!
//! A program that generates text opens a device, loads a model into an engine, and gives requests to a scheduler:
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use bespoke::device::{Selector, open};
//! use bespoke::engine::{Engine, EngineOptions, Slots};
//! use bespoke::generation::Request;
//! use bespoke::scheduler::{Event, Scheduler};
//! use bespoke::tokenizer::Tokenizer;
//! use bespoke_gguf::Gguf;
//! use bespoke_kernels::shape::ModelShape;
//!
//! let gguf = Gguf::open("model.gguf")?;
//! let shape = ModelShape::from_gguf(&gguf, "model")?;
//! let tokenizer = Tokenizer::from_gguf(&gguf)?;
//! // A GPU if there is one, else the emulator.
//! let device = open(Selector::Auto)?.device;
//! let mut engine = Engine::load(device, &gguf, &shape, &EngineOptions::default(), &|_done, _total| ())?;
//!
//! let prompt = tokenizer.encode("The quick brown fox")?;
//! let request = Request { stop_tokens: tokenizer.end_tokens(), ..Request::new(&prompt) };
//! let mut scheduler = Scheduler::new(Slots::new(&mut engine)?, Some(&tokenizer));
//! let summary = scheduler.generate(&request, |event| {
//!     if let Event::Token { token, .. } = event {
//!         print!("{}", token.text);
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! println!("{}\n{:?}", summary.rest, summary.reason);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Kernels that are not built in are compiled while the model is loaded. Building the program with
//! `BESPOKE_MODEL=FILE.gguf` builds in the kernels of that model.
//!
//! # Kernels of your own
//!
//! A program that only launches its own kernels needs [`device`] alone. With `default-features = false` the package has
//! no other module, and few dependencies; the feature `decoder` adds the others.

#[cfg(feature = "decoder")]
pub mod builtin;
pub mod device;
#[cfg(feature = "decoder")]
pub mod engine;
#[cfg(feature = "decoder")]
pub mod generation;
#[cfg(feature = "decoder")]
pub mod scheduler;
#[cfg(feature = "decoder")]
pub mod speculation;
#[cfg(feature = "decoder")]
pub mod tokenizer;
