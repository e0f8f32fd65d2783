//! A kernel with its compile-time parameters: the unit of specialisation.

use bespoke_codegen::Recorded;
use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use crate::kernels::argmax::{self, ArgmaxShape};
use crate::kernels::attention::{self, AttentionShape};
use crate::kernels::embed::{self, EmbedShape};
use crate::kernels::gemv::{self, GemvShape};
use crate::kernels::kv_append::{self, KvAppendShape};
use crate::kernels::probe::{self, ProbeShape};
use crate::kernels::residual_add::{self, ResidualAddShape};
use crate::kernels::rms_norm::{self, RmsNormShape};
use crate::kernels::rope::{self, RopeKind, RopeShape};
use crate::kernels::swiglu::{self, SwigluShape};

/// A kernel and the values that are constants in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kernel", rename_all = "snake_case")]
pub enum KernelSpec {
    /// [`embed::embed`].
    Embed(EmbedShape),
    /// [`rms_norm::rms_norm`].
    RmsNorm(RmsNormShape),
    /// [`gemv::gemv`].
    Gemv(GemvShape),
    /// [`rope::rope`].
    Rope(RopeShape),
    /// [`kv_append::kv_append`].
    KvAppend(KvAppendShape),
    /// [`attention::attention`].
    Attention(AttentionShape),
    /// [`attention::attention_combine`].
    AttentionCombine(AttentionShape),
    /// [`swiglu::swiglu`].
    Swiglu(SwigluShape),
    /// [`residual_add::residual_add`].
    ResidualAdd(ResidualAddShape),
    /// [`argmax::argmax`].
    Argmax(ArgmaxShape),
    /// [`argmax::choose_greedy`].
    ChooseGreedy(ArgmaxShape),
    /// [`probe::read_probe`].
    ReadProbe(ProbeShape),
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads a CTA.
    pub threads: u32,
    /// Dynamic shared memory, in bytes.
    pub dynamic_shared: u32,
}

impl KernelSpec {
    /// The kernel's name: its source's, then every compile-time parameter, so that equal names mean equal kernels.
    pub fn name(&self) -> String {
        match self {
            KernelSpec::Embed(s) => format!("embed_{}_v{}_c{}_t{}", s.ty.slug(), s.vocab, s.cols, s.threads),
            KernelSpec::RmsNorm(s) => {
                format!("rms_norm_r{}_c{}_e{:08x}_t{}", s.rows, s.cols, s.eps.to_bits(), s.threads)
            }
            KernelSpec::Gemv(s) => {
                let segments: String = s
                    .segments
                    .iter()
                    .map(|segment| {
                        let bias = if segment.bias { "b" } else { "" };
                        format!("{}r{}{bias}_", segment.ty.slug(), segment.rows)
                    })
                    .collect();
                format!(
                    "gemv_{segments}c{}_t{}_l{}_n{}_g{}",
                    s.cols, s.threads, s.lanes_per_row, s.rows_per_group, s.grid
                )
            }
            KernelSpec::Rope(s) => {
                let kind = match s.kind {
                    RopeKind::Norm => "norm",
                    RopeKind::Neox => "neox",
                };
                format!("rope_{kind}_h{}_d{}_n{}_t{}", s.heads, s.head_dim, s.rotated, s.threads)
            }
            KernelSpec::KvAppend(s) => format!("kv_append_w{}_t{}", s.width, s.threads),
            KernelSpec::Attention(s) => format!(
                "attention_h{}_k{}_d{}_b{}_s{}_m{}_t{}",
                s.heads, s.kv_heads, s.head_dim, s.heads_per_block, s.splits, s.min_run, s.threads
            ),
            KernelSpec::AttentionCombine(s) => format!(
                "attention_combine_h{}_d{}_s{}_m{}_t{}",
                s.heads, s.head_dim, s.splits, s.min_run, s.combine_threads
            ),
            KernelSpec::Swiglu(s) => format!("swiglu_w{}_t{}", s.width, s.threads),
            KernelSpec::ResidualAdd(s) => format!("residual_add_w{}_t{}", s.width, s.threads),
            KernelSpec::Argmax(s) => format!("argmax_v{}_b{}_t{}", s.vocab, s.blocks, s.threads),
            KernelSpec::ChooseGreedy(s) => format!("choose_greedy_b{}_t{}", s.blocks, s.threads),
            KernelSpec::ReadProbe(s) => format!("read_probe_g{}_t{}", s.grid, s.threads),
        }
    }

    /// What the kernel does, in a few words.
    pub fn summary(&self) -> &'static str {
        match self {
            KernelSpec::Embed(_) => "embedding row of the present token",
            KernelSpec::RmsNorm(_) => "RMSNorm",
            KernelSpec::Gemv(_) => "matrix-vector product",
            KernelSpec::Rope(_) => "rotary position embedding",
            KernelSpec::KvAppend(_) => "key and value into the cache",
            KernelSpec::Attention(_) => "attention over runs of the context",
            KernelSpec::AttentionCombine(_) => "joins the runs of attention",
            KernelSpec::Swiglu(_) => "SwiGLU",
            KernelSpec::ResidualAdd(_) => "residual connection",
            KernelSpec::Argmax(_) => "most likely token of each CTA's share",
            KernelSpec::ChooseGreedy(_) => "next token and position",
            KernelSpec::ReadProbe(_) => "plain read of device memory",
        }
    }

    /// Records the kernel under [`KernelSpec::name`].
    pub fn record(&self) -> Recorded {
        let kernel = match self {
            KernelSpec::Embed(s) => embed::embed(s),
            KernelSpec::RmsNorm(s) => rms_norm::rms_norm(s),
            KernelSpec::Gemv(s) => gemv::gemv(s),
            KernelSpec::Rope(s) => rope::rope(s),
            KernelSpec::KvAppend(s) => kv_append::kv_append(s),
            KernelSpec::Attention(s) => attention::attention(s),
            KernelSpec::AttentionCombine(s) => attention::attention_combine(s),
            KernelSpec::Swiglu(s) => swiglu::swiglu(s),
            KernelSpec::ResidualAdd(s) => residual_add::residual_add(s),
            KernelSpec::Argmax(s) => argmax::argmax(s),
            KernelSpec::ChooseGreedy(s) => argmax::choose_greedy(s),
            KernelSpec::ReadProbe(s) => probe::read_probe(s),
        }?;
        Ok(kernel.named(self.name()))
    }

    /// The kernel as `target` launches it: where kernels can start before their predecessors end, it waits for them
    /// itself.
    pub fn kernel(&self, target: Target) -> Recorded {
        let kernel = self.record()?;
        Ok(if target.has_programmatic_launch() { kernel.programmatic() } else { kernel })
    }

    /// Grid, CTA and dynamic shared memory.
    pub fn geometry(&self) -> Geometry {
        let flat = |blocks, threads| Geometry { grid: [blocks, 1, 1], threads, dynamic_shared: 0 };
        match self {
            KernelSpec::Embed(s) => flat(s.grid(), s.threads),
            KernelSpec::RmsNorm(s) => flat(s.rows, s.threads),
            KernelSpec::Gemv(s) => Geometry { dynamic_shared: s.shared_bytes(), ..flat(s.grid, s.threads) },
            KernelSpec::Rope(s) => flat(s.grid(), s.threads),
            KernelSpec::KvAppend(s) => flat(s.grid(), s.threads),
            KernelSpec::Attention(s) => Geometry { grid: s.grid(), ..flat(1, s.threads) },
            KernelSpec::AttentionCombine(s) => flat(s.heads, s.combine_threads),
            KernelSpec::Swiglu(s) => flat(s.grid(), s.threads),
            KernelSpec::ResidualAdd(s) => flat(s.grid(), s.threads),
            KernelSpec::Argmax(s) => flat(s.blocks, s.threads),
            KernelSpec::ChooseGreedy(s) => flat(1, s.threads),
            KernelSpec::ReadProbe(s) => flat(s.grid, s.threads),
        }
    }

    /// Bytes of device memory that one launch must move at the least, each input and output once, with `length`
    /// positions in the cache. The size of what [`KernelSpec::ReadProbe`] reads is a run-time argument and not
    /// counted.
    pub fn bytes(&self, length: u64) -> u64 {
        let f32s = |n: u32| u64::from(n) * 4;
        match self {
            KernelSpec::Embed(s) => s.layout().file_row_bytes() as u64 + f32s(s.cols),
            KernelSpec::RmsNorm(s) => 2 * f32s(s.rows) * u64::from(s.cols) + f32s(s.cols),
            KernelSpec::Gemv(s) => {
                let (offsets, _) = s.offsets();
                let weights: u64 = offsets
                    .iter()
                    .map(|segment| segment.layout.file_row_bytes() as u64 * u64::from(segment.layout.rows))
                    .sum();
                weights + f32s(s.cols) + f32s(s.rows())
            }
            KernelSpec::Rope(s) => 2 * f32s(s.heads * s.head_dim),
            KernelSpec::KvAppend(s) => 2 * (f32s(s.width) + u64::from(s.width) * 2),
            KernelSpec::Attention(s) => {
                2 * length * u64::from(s.kv_heads * s.head_dim) * 2 + f32s(s.heads * s.head_dim)
            }
            KernelSpec::AttentionCombine(s) => {
                let runs = length.div_ceil(u64::from(s.min_run)).min(u64::from(s.splits));
                runs * f32s(s.heads * (s.head_dim + 2)) + f32s(s.heads * s.head_dim)
            }
            KernelSpec::Swiglu(s) => 3 * f32s(s.width),
            KernelSpec::ResidualAdd(s) => 3 * f32s(s.width),
            KernelSpec::Argmax(s) => f32s(s.vocab) + 2 * f32s(s.blocks),
            KernelSpec::ChooseGreedy(s) => 2 * f32s(s.blocks),
            KernelSpec::ReadProbe(_) => 0,
        }
    }
}
