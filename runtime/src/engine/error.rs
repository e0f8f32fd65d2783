//! Errors of the engine.

use std::path::PathBuf;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::plan::PlanError;
use bespoke_kernels::shape::ShapeError;

use super::SamplingError;
use super::memory_needs::MemoryNeeds;
use super::non_finite::NonFiniteLogits;
use crate::device::{self, Bytes};

/// Error of loading or decoding a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model's file is malformed.
    #[error(transparent)]
    Gguf(#[from] bespoke_gguf::Error),
    /// The model's shape is unsupported or inconsistent.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// No plan can be built for the model, the target and the options.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// The grammar of an answer failed: it is too complex, or it refused a token that it had allowed.
    #[error("the grammar failed: {0}")]
    Grammar(String),
    /// A kernel could not be compiled.
    #[error(transparent)]
    Specialise(#[from] bespoke_kernels::emit::EmitError),
    /// The threads that repack weights could not be started.
    #[error("cannot start threads to repack the weights: {0}; raise the limit of processes (`ulimit -u`)")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The device's compute capability is below every target.
    #[error("{name} has compute capability {major}.{minor}; 8.0 or newer is needed")]
    TooOld {
        /// Name of the device.
        name: String,
        /// Major number of the compute capability.
        major: u32,
        /// Minor number of the compute capability.
        minor: u32,
    },
    /// Kernels are not built in, and compilation is disabled ([`no_jit`](super::EngineOptions::no_jit)).
    #[error(
        "{missing} of {total} kernels for {target} are not built into this binary, and the options forbid compiling \
         them{}",
        never_built_in.map_or(String::new(), |setting| format!("; no build has those for {setting}"))
    )]
    NotBuiltIn {
        /// Number of missing kernels.
        missing: usize,
        /// Number of kernels in the plan.
        total: usize,
        /// Target of the kernels.
        target: Target,
        /// Path of the model's file.
        model: PathBuf,
        /// Whether the plan follows tuning rules.
        tuned: bool,
        /// The setting whose kernels no build has.
        never_built_in: Option<&'static str>,
    },
    /// The plan does not fit the device's memory.
    #[error(transparent)]
    DoesNotFit(Box<DoesNotFit>),
    /// The KV cache has too few positions.
    #[error("the context is full: {needed} positions are needed and the cache holds {context}")]
    ContextFull {
        /// Number of positions that the tokens need.
        needed: u64,
        /// Positions in the cache.
        context: u32,
    },
    /// More first tokens shall stay in a full context than it has room for, with another token.
    #[error("cannot keep {keep} tokens in a context of {context} positions: keep fewer")]
    KeepTooLarge {
        /// Number of first tokens to keep.
        keep: u32,
        /// Positions in the cache.
        context: u32,
    },
    /// A token is outside the vocabulary.
    #[error("token {token} is not in the vocabulary of {vocab} tokens")]
    NoSuchToken {
        /// Id of the token.
        token: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// Too little memory is free to measure the bandwidth.
    #[error("{free} of device memory is free: too little to measure its bandwidth without cache hits")]
    NoRoomForProbe {
        /// Free device memory, as text.
        free: String,
    },
    /// A launch needs more shared memory than the device has.
    #[error("{label} needs {needed} bytes of shared memory for each CTA, and {device} has {limit}")]
    SharedMemory {
        /// Label of the launch in the plan.
        label: String,
        /// Bytes of shared memory that a CTA needs.
        needed: u32,
        /// Name of the device.
        device: String,
        /// Largest shared memory per CTA on the device, in bytes.
        limit: u32,
    },
    /// The device is idle and has not written a token.
    #[error("the device is idle and has not written the token at position {position} (a bug)")]
    NoToken {
        /// The token's position.
        position: u32,
    },
    /// A step without a sequence: none was started, or the device failed since.
    #[error("there is no sequence to continue: start one, since none was started or an error ended it")]
    NotStarted,
    /// No step of the engine has as many rows as requested.
    #[error(
        "no step of this engine has {rows} rows: load the engine with as many slots, or with prefill steps"
    )]
    NoStep {
        /// Number of rows that the step must have.
        rows: u32,
    },
    /// The sampling parameters on the device are incomplete, because setting them failed.
    #[error("the sampling parameters are not set, because an error interrupted their upload: set them again")]
    SamplingNotSet,
    /// The device failed while a buffer was uploaded.
    #[error("cannot upload `{buffer}` ({}): {source}", Bytes(*bytes))]
    Upload {
        /// Name of the buffer in the plan.
        buffer: String,
        /// Size of the buffer in bytes.
        bytes: u64,
        /// Error of the device.
        source: Box<device::Error>,
    },
    /// A step's logits are NaN or infinite.
    #[error(transparent)]
    NonFinite(#[from] NonFiniteLogits),
    /// The KV cache would have fewer positions than one sequence may have.
    #[error(
        "{} for the KV cache hold {pages} of the {needed} pages that one sequence of {context} positions needs: give at least {}, \
         or choose a smaller context",
        Bytes(*bytes),
        Bytes(page * u64::from(*needed))
    )]
    KvMemory {
        /// Memory for the KV cache, in bytes.
        bytes: u64,
        /// Bytes of a page in all layers.
        page: u64,
        /// Number of pages that fit.
        pages: u64,
        /// Number of pages that a sequence needs.
        needed: u32,
        /// Positions of a sequence.
        context: u32,
    },
    /// More sequences than the engine was loaded for, or than its KV cache holds.
    #[error(
        "{sequences} sequences of this context need {needed} pages of the KV cache, and the engine has {slots} slots and \
         {pages} pages: choose fewer sequences, or smaller depths"
    )]
    TooManySequences {
        /// Number of sequences.
        sequences: u32,
        /// Number of slots of the engine.
        slots: u32,
        /// Number of pages that the sequences need.
        needed: u64,
        /// Number of pages of the KV cache.
        pages: u32,
    },
    /// The prompt has no tokens.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// The prompt needs more pages than the page pool has.
    #[error(
        "the prompt of {prompt} tokens needs {needed} pages of the KV cache, and the cache has {pages}: shorten the \
         prompt, or give the cache more memory"
    )]
    PoolTooSmall {
        /// Number of prompt tokens.
        prompt: u32,
        /// Number of pages that the prompt needs.
        needed: u32,
        /// Number of pages in the pool.
        pages: u32,
    },
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The engine was loaded for greedy decoding and cannot sample.
    #[error(
        "the model was loaded for greedy decoding; load it with a temperature above 0, a penalty or a logit bias to \
         sample"
    )]
    OnlyGreedy,
    /// The captured graph differs from the plan.
    #[error("the captured graph differs from the plan: {0} (a bug)")]
    GraphMismatch(String),
}

impl EngineError {
    /// Advice to the user, where there is any.
    pub fn advice(&self) -> Option<&str> {
        match self {
            EngineError::Device(error) => error.advice(),
            EngineError::Upload { source, .. } => source.advice(),
            EngineError::DoesNotFit(error) if error.fits.is_none() => {
                Some("choose a smaller quantisation or model, or free the device's memory")
            }
            EngineError::DoesNotFit(error) if error.needs.kv == KvType::F16 => Some(
                "choose a smaller context, a KV cache of q8_0 or a smaller quantisation, or free the device's memory",
            ),
            EngineError::DoesNotFit(_) => {
                Some("choose a smaller context or quantisation, or free the device's memory")
            }
            EngineError::SharedMemory { .. } => {
                Some("use the emulator, or a device with more shared memory for each CTA")
            }
            EngineError::NonFinite(_) => Some(
                "numbers of the model overflow: convert it again, or try another file or quantisation of it",
            ),
            EngineError::Shape(ShapeError::Architecture(_)) => {
                Some("use a model of a supported architecture: docs/architectures.md has a table")
            }
            EngineError::Shape(ShapeError::Dimensions { .. }) => {
                Some("the file is inconsistent: convert or download it again")
            }
            _ => None,
        }
    }
}

/// A plan that needs more than the free device memory.
#[derive(Debug, thiserror::Error)]
#[error("the model does not fit {device}: it needs {needs}, and {} is free; {}", Bytes(*free), proposal(*fits))]
pub struct DoesNotFit {
    /// Name of the device.
    pub device: String,
    /// Memory that the plan needs.
    pub needs: MemoryNeeds,
    /// Free bytes on the device.
    pub free: u64,
    /// Largest context that would fit; none if no context fits.
    pub fits: Option<u32>,
}

fn proposal(fits: Option<u32>) -> String {
    match fits {
        Some(context) => format!("a context of {context} positions would fit"),
        None => "no context would fit".to_owned(),
    }
}
