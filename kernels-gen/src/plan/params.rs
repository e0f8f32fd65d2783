//! Parameters of a plan: the kind of a step, its rows, slots, pages and arithmetic.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PlanError;
use crate::kernels::attention::{KvType, PAGE};
use crate::kernels::gemv::Arithmetic;

/// Parameters of a plan besides shape and target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanParams {
    /// Number of rows of a step: tokens that it processes.
    pub rows: u32,
    /// Number of first rows that have logits, and may choose a token.
    pub outputs: u32,
    /// The rows that a step may have.
    pub kind: StepKind,
    /// Number of slots: sequences whose tokens and pages the device knows.
    pub slots: u32,
    /// Number of pages in the pool of the KV cache.
    pub pages: u32,
    /// Largest number of positions of a sequence.
    pub context: u32,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Choice of the next token.
    pub sampling: Sampling,
    /// Operands of the products of steps of several rows other than prefill steps. Steps of one row always multiply integers.
    #[serde(default, skip_serializing_if = "Arithmetic::is_default")]
    pub arithmetic: Arithmetic,
}

/// The rows that a step may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Every row is the last token of another sequence. Attention appends the row's keys and values to the cache.
    #[default]
    Decode,
    /// Rows may be any tokens of any sequences; a row may read what other rows append in the same step. A launch of its
    /// own appends the keys and values of all rows before attention.
    Prefill,
    /// A decode step whose rows may also be consecutive tokens of a sequence, which need not be the last ones: rows that
    /// verify a draft. Every row chooses, with the bits of a decode step. The rows of a sequence are in the order of their
    /// positions. A launch of its own appends the keys and values of all rows before attention.
    Verify,
    /// The rest of a prefill step for the last tokens of prompts: the last layer from its inputs on, the LM head, and the
    /// choice of the first tokens of the answers. Every row is the last prompt token of another sequence, which the prefill
    /// step just before has processed. Its kernels are those of a decode step.
    FirstToken,
}

impl StepKind {
    /// Numbers of rows of an engine's steps of this kind, in ascending order. An engine has the decode steps up to the
    /// first one that holds all of its slots, as many first-token steps, and the prefill steps up to the first one that
    /// holds its context; with several slots also up to 512 rows, if their contexts together have so many.
    pub fn sizes(self) -> &'static [u32] {
        match self {
            StepKind::Decode | StepKind::FirstToken => &[1, 2, 4, 8, 16, 32, 64],
            StepKind::Prefill => &[64, 128, 256, 512, 2048],
            StepKind::Verify => &[2, 4, 8, 16, 32, 64],
        }
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StepKind::Decode => "decode",
            StepKind::Prefill => "prefill",
            StepKind::Verify => "verify",
            StepKind::FirstToken => "first-token",
        })
    }
}

/// Kind and number of rows of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepSize {
    /// The rows that the step may have.
    pub kind: StepKind,
    /// Number of rows.
    pub rows: u32,
}

impl StepSize {
    /// The decode step of one row.
    pub const ONE_ROW: StepSize = StepSize { kind: StepKind::Decode, rows: 1 };

    /// All steps of engines.
    pub fn all() -> impl Iterator<Item = StepSize> {
        let of_kind = |kind: StepKind| kind.sizes().iter().map(move |&rows| StepSize { kind, rows });
        [StepKind::Decode, StepKind::Verify, StepKind::FirstToken, StepKind::Prefill]
            .into_iter()
            .flat_map(of_kind)
    }
}

impl fmt::Display for StepSize {
    /// Formats as `decode step of 8 rows`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepSize { kind, rows } = self;
        write!(f, "{kind} step of {rows} row{}", if *rows == 1 { "" } else { "s" })
    }
}

/// How a step chooses the next token. Greedy plans have no launches for sampling, so greedy decoding does not pay for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// The most likely token.
    Greedy,
    /// A random token, drawn with parameters in device memory: see [`crate::kernels::sample`].
    Sampled,
}

impl PlanParams {
    /// Maximum number of positions of a KV cache: up to here, f32 represents every position exactly.
    pub const MAX_CONTEXT: u32 = 1 << 24;

    /// Largest number of rows of a decode step.
    pub const MAX_ROWS: u32 = 64;

    /// Largest number of rows of a prefill step.
    pub const MAX_PREFILL_ROWS: u32 = 2048;

    /// Parameters for decoding one sequence, with a KV cache of f16 and the greedy choice.
    pub fn single(context: u32) -> PlanParams {
        let (kv, sampling) = (KvType::F16, Sampling::Greedy);
        let (kind, pages) = (StepKind::Decode, context.div_ceil(PAGE));
        let arithmetic = Arithmetic::Integers;
        PlanParams { rows: 1, outputs: 1, kind, slots: 1, pages, context, kv, sampling, arithmetic }
    }

    /// These parameters, with `slots` sequences that share `pages` pages.
    #[must_use]
    pub fn with_slots(self, slots: u32, pages: u32) -> PlanParams {
        PlanParams { slots, pages, ..self }
    }

    /// These parameters, for decode steps of `rows` rows.
    #[must_use]
    pub fn decode(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: rows, kind: StepKind::Decode, ..self }
    }

    /// These parameters, for verify steps of `rows` rows.
    #[must_use]
    pub fn verify(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: rows, kind: StepKind::Verify, ..self }
    }

    /// These parameters, for prefill steps of `rows` rows.
    #[must_use]
    pub fn prefill(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: 0, kind: StepKind::Prefill, ..self }
    }

    /// These parameters, for first-token steps of `rows` rows.
    #[must_use]
    pub fn first_token(self, rows: u32) -> PlanParams {
        PlanParams { rows, outputs: rows, kind: StepKind::FirstToken, ..self }
    }

    /// These parameters, for steps of a size.
    #[must_use]
    pub fn with_step(self, step: StepSize) -> PlanParams {
        match step.kind {
            StepKind::Decode => self.decode(step.rows),
            StepKind::Prefill => self.prefill(step.rows),
            StepKind::Verify => self.verify(step.rows),
            StepKind::FirstToken => self.first_token(step.rows),
        }
    }

    /// Kind and number of rows of a step.
    pub fn step(&self) -> StepSize {
        StepSize { kind: self.kind, rows: self.rows }
    }

    /// Number of page table entries of a slot.
    pub fn slot_pages(&self) -> u32 {
        self.context.div_ceil(PAGE)
    }

    /// Number of tokens of a slot in the token buffers: one more than the context, for the token after the last
    /// position.
    pub fn slot_tokens(&self) -> u32 {
        self.context + 1
    }

    /// Checks rows, slots and pages.
    pub(super) fn check_rows(&self) -> Result<(), PlanError> {
        let entries = u64::from(self.slots) * u64::from(self.context);
        let most_rows = match self.kind {
            StepKind::Decode | StepKind::Verify | StepKind::FirstToken => PlanParams::MAX_ROWS,
            StepKind::Prefill => PlanParams::MAX_PREFILL_ROWS,
        };
        for (what, value, most) in [
            ("rows", self.rows, most_rows),
            ("slots", self.slots, PlanParams::MAX_SLOTS),
            ("pages", self.pages, u32::MAX / PAGE),
        ] {
            if !(1..=most).contains(&value) {
                return Err(PlanError::Unsupported(format!("{what} is {value}; 1 to {most} are supported")));
            }
        }
        let outputs = match self.kind {
            StepKind::Decode | StepKind::Verify | StepKind::FirstToken => self.rows,
            StepKind::Prefill => 0,
        };
        if self.outputs != outputs {
            return Err(PlanError::Unsupported(
                "the rows of prefill steps have no outputs, and those of other steps have".to_owned(),
            ));
        }
        if entries > u64::from(u32::MAX) / 2 {
            return Err(PlanError::Unsupported(format!(
                "{} sequences of {} positions are too many: choose fewer sequences or a smaller context",
                self.slots, self.context
            )));
        }
        Ok(())
    }

    /// Largest number of slots.
    pub const MAX_SLOTS: u32 = 1024;

    /// These parameters, with `kv` as the type of the KV cache.
    #[must_use]
    pub fn with_kv(self, kv: KvType) -> PlanParams {
        PlanParams { kv, ..self }
    }

    /// These parameters, with other operands of the products of several rows.
    #[must_use]
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> PlanParams {
        PlanParams { arithmetic, ..self }
    }

    /// These parameters, with `sampling` as the choice of the next token.
    #[must_use]
    pub fn with_sampling(self, sampling: Sampling) -> PlanParams {
        PlanParams { sampling, ..self }
    }
}
