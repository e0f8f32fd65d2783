//! Why a model cannot be decoded.

use std::path::PathBuf;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::shape::ShapeError;

use super::SamplingError;
use super::needs::MemoryNeeds;
use crate::device::{self, Bytes};

/// Why a model cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The file.
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    /// The shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The device.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A kernel that is not built in cannot be made.
    #[error(transparent)]
    Specialise(#[from] bespoke_kernels::emit::EmitError),
    /// The device is older than every target.
    #[error("{name} has compute capability {major}.{minor}; 8.0 or newer is needed (or --device emulator)")]
    TooOld {
        /// The device.
        name: String,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// `--no-jit`, and kernels are missing.
    #[error(
        "{missing} of {total} kernels for {target} are not built into this binary, and --no-jit forbids making them \
         now; build for this model with:\n  BESPOKE_MODEL={} BESPOKE_TARGETS={target}{} cargo build --release",
        model.display(),
        if *tuned { " BESPOKE_TUNE=FILE" } else { "" }
    )]
    NotBuiltIn {
        /// Kernels that are missing.
        missing: usize,
        /// Kernels in the plan.
        total: usize,
        /// The target.
        target: Target,
        /// The model's file.
        model: PathBuf,
        /// The plan follows a file of rules.
        tuned: bool,
    },
    /// The plan does not fit the device.
    #[error(transparent)]
    DoesNotFit(Box<DoesNotFit>),
    /// No position left in the cache.
    #[error(
        "the context is full: {needed} positions are needed and the cache holds {context}; use --ctx {needed}"
    )]
    ContextFull {
        /// Positions needed.
        needed: u64,
        /// Positions there are.
        context: u32,
    },
    /// A token that the model does not have.
    #[error("token {token} is not in the vocabulary of {vocab} tokens")]
    NoSuchToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// Too little memory to measure the bandwidth of.
    #[error("{free} of device memory is free: too little to measure its bandwidth past the caches")]
    NoRoomForProbe {
        /// What is free, in words.
        free: String,
    },
    /// A launch that no CTA of the device can hold.
    #[error("{label} needs {needed} bytes of shared memory a CTA, and {device} has {limit}")]
    SharedMemory {
        /// The launch.
        label: String,
        /// Bytes it needs.
        needed: u32,
        /// The device.
        device: String,
        /// Bytes that a CTA may have.
        limit: u32,
    },
    /// The device is done, and a token that it should have made is not there.
    #[error("the device finished its work without the token at position {position} (a bug)")]
    NoToken {
        /// The token's position.
        position: u32,
    },
    /// Nothing to start from.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// A parameter of sampling.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Sampling by an engine without the launches for it.
    #[error("the model was loaded for greedy decoding; give a temperature when loading it")]
    OnlyGreedy,
    /// The captured graph is not the plan.
    #[error("the captured graph differs from the plan: {0} (a bug; --eager runs without a graph)")]
    GraphMismatch(String),
}

impl EngineError {
    /// What the reader can do about it, where that is known.
    pub fn advice(&self) -> Option<&str> {
        match self {
            EngineError::Device(error) => error.advice(),
            EngineError::DoesNotFit(error) if error.fits.is_none() => {
                Some("choose a smaller quantisation or model, or free the device's memory")
            }
            EngineError::DoesNotFit(_) => {
                Some("choose a smaller --ctx or a smaller quantisation, or free the device's memory")
            }
            EngineError::SharedMemory { .. } => {
                Some("use --device emulator, or a device with more shared memory a CTA")
            }
            EngineError::Shape(ShapeError::Architecture(_)) => {
                Some("`bespoke inspect` lists the shapes that kernels exist for")
            }
            EngineError::Shape(ShapeError::Dimensions { .. }) => {
                Some("the file is inconsistent: convert or download it again")
            }
            _ => None,
        }
    }
}

/// A plan that is larger than the memory that is free.
#[derive(Debug, thiserror::Error)]
#[error("the model does not fit {device}: it needs {needs}, and {} is free; {}", Bytes(*free), proposal(*fits))]
pub struct DoesNotFit {
    /// The device.
    pub device: String,
    /// What the plan needs.
    pub needs: MemoryNeeds,
    /// Bytes free on the device.
    pub free: u64,
    /// The largest context that would fit, if any does.
    pub fits: Option<u32>,
}

fn proposal(fits: Option<u32>) -> String {
    match fits {
        Some(context) => format!("--ctx {context} would fit"),
        None => "no --ctx would fit".to_owned(),
    }
}
