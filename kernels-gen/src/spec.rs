//! A kernel with its compile-time parameters: the unit of specialisation.

use bespoke_codegen::Recorded;
use bespoke_codegen::emit;
use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use crate::kernels::argmax::{self, ChooseShape};
use crate::kernels::attention::{self, AttentionShape};
use crate::kernels::cluster_probe::{self, ClusterProbeShape};
use crate::kernels::embed::{self, EmbedShape};
use crate::kernels::gemv::{self, GemvShape, Input, Output};
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::kernels::probe::{self, ProbeShape};
use crate::kernels::rope::RopeKind;
use crate::kernels::sample::{self, SampleShape};

/// A kernel and the values that are constants in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kernel", rename_all = "snake_case")]
pub enum KernelSpec {
    /// [`embed::embed`].
    Embed(EmbedShape),
    /// [`gemv::gemv`].
    Gemv(GemvShape),
    /// [`attention::attention`].
    Attention(AttentionShape),
    /// [`argmax::choose_greedy`].
    ChooseGreedy(ChooseShape),
    /// [`sample::sample_keys`].
    SampleKeys(SampleShape),
    /// [`sample::choose_sampled`].
    ChooseSampled(SampleShape),
    /// [`probe::read_probe`].
    ReadProbe(ProbeShape),
    /// [`cluster_probe::cluster_probe`].
    ClusterProbe(ClusterProbeShape),
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

impl From<Geometry> for emit::Geometry {
    fn from(geometry: Geometry) -> emit::Geometry {
        emit::Geometry::fixed(geometry.grid).dynamic_shared(geometry.dynamic_shared)
    }
}

impl KernelSpec {
    /// The kernel's name: its source's, then every compile-time parameter, so that equal names mean equal kernels.
    pub fn name(&self) -> String {
        match self {
            KernelSpec::Embed(s) => format!("embed_{}_v{}_c{}_t{}", s.ty.slug(), s.vocab, s.cols, s.threads),
            KernelSpec::Gemv(s) => gemv_name(s),
            KernelSpec::Attention(s) => attention_name(s),
            KernelSpec::ChooseGreedy(s) => format!("choose_greedy_n{}_t{}", s.candidates, s.threads),
            KernelSpec::SampleKeys(s) => format!("sample_keys_v{}_b{}_t{}", s.vocab, s.blocks, s.threads),
            KernelSpec::ChooseSampled(s) => format!("choose_sampled_v{}_t{}", s.vocab, s.choose_threads),
            KernelSpec::ReadProbe(s) => format!("read_probe_g{}_t{}", s.grid, s.threads),
            KernelSpec::ClusterProbe(s) => {
                format!("cluster_probe_c{}_b{}_t{}_s{}", s.clusters, s.blocks, s.tiles, s.stages)
            }
        }
    }

    /// What the kernel does, in a few words.
    pub fn summary(&self) -> &'static str {
        match self {
            KernelSpec::Embed(_) => "embedding row of the present token",
            KernelSpec::Gemv(_) => "matrix-vector product, with what comes before and after",
            KernelSpec::Attention(_) => "attention, with RoPE and the cache's new entry",
            KernelSpec::ChooseGreedy(_) => "next token and position",
            KernelSpec::SampleKeys(_) => "repetition penalty, and logits to keys",
            KernelSpec::ChooseSampled(_) => "next token, drawn, and position",
            KernelSpec::ReadProbe(_) => "plain read of device memory",
            KernelSpec::ClusterProbe(_) => "sums over clusters",
        }
    }

    /// Records the kernel under [`KernelSpec::name`].
    pub fn record(&self) -> Recorded {
        let kernel = match self {
            KernelSpec::Embed(s) => embed::embed(s),
            KernelSpec::Gemv(s) => gemv::gemv(s),
            KernelSpec::Attention(s) => attention::attention(s),
            KernelSpec::ChooseGreedy(s) => argmax::choose_greedy(s),
            KernelSpec::SampleKeys(s) => sample::sample_keys(s),
            KernelSpec::ChooseSampled(s) => sample::choose_sampled(s),
            KernelSpec::ReadProbe(s) => probe::read_probe(s),
            KernelSpec::ClusterProbe(s) => cluster_probe::cluster_probe(s),
        }?;
        Ok(kernel.named(self.name()))
    }

    /// The kernel as `target` launches it: where kernels can start before their predecessors end, it waits for them
    /// itself.
    pub fn kernel(&self, target: Target) -> Recorded {
        let kernel = self.record()?;
        let wait_first = target.has_programmatic_launch() && !self.waits();
        Ok(if wait_first { kernel.programmatic() } else { kernel })
    }

    /// The kernel itself says when it waits for the launches before it, and when the next may start.
    pub fn waits(&self) -> bool {
        matches!(self, KernelSpec::Gemv(_) | KernelSpec::Attention(_))
    }

    /// Static shared memory of products and attention, in bytes: two barriers of 8 bytes a stage, and in attention two
    /// more; where several
    /// warps search for the largest output, a candidate of 8 bytes each; in attention the number of runs that are done.
    pub fn static_shared(&self) -> u32 {
        match self {
            KernelSpec::Gemv(s) if s.output == Output::Argmax && s.schedule.warps > 1 => {
                16 * s.schedule.stages + 8 * s.schedule.warps
            }
            KernelSpec::Gemv(s) => 16 * s.schedule.stages,
            KernelSpec::Attention(s) => 16 * (s.stages + 1) + 4,
            _ => 0,
        }
    }

    /// Whether it may start before the launches ahead of it are over: it then waits for them itself.
    pub fn may_start_early(&self) -> bool {
        match self {
            KernelSpec::Gemv(s) => s.schedule.trigger != Trigger::Never,
            KernelSpec::Attention(s) => s.trigger != Trigger::Never,
            _ => true,
        }
    }

    /// Grid, CTA and dynamic shared memory.
    pub fn geometry(&self) -> Geometry {
        let flat = |blocks, threads| Geometry { grid: [blocks, 1, 1], threads, dynamic_shared: 0 };
        match self {
            KernelSpec::Embed(s) => flat(s.grid(), s.threads),
            KernelSpec::Gemv(s) => {
                Geometry { dynamic_shared: s.shared_bytes(), ..flat(s.schedule.grid, s.threads()) }
            }
            KernelSpec::Attention(s) => {
                Geometry { grid: s.grid(), dynamic_shared: s.shared_bytes(), ..flat(1, s.threads()) }
            }
            KernelSpec::ChooseGreedy(s) => flat(1, s.threads),
            KernelSpec::SampleKeys(s) => flat(s.blocks, s.threads),
            KernelSpec::ChooseSampled(s) => flat(1, s.choose_threads),
            KernelSpec::ReadProbe(s) => flat(s.grid, s.threads),
            KernelSpec::ClusterProbe(s) => flat(s.grid(), ClusterProbeShape::THREADS),
        }
    }

    /// Bytes of device memory that one launch must move at the least, each input and output once, with `length`
    /// positions in the cache. The size of what [`KernelSpec::ReadProbe`] reads is a run-time argument and not
    /// counted.
    pub fn bytes(&self, length: u64) -> u64 {
        let f32s = |n: u32| u64::from(n) * 4;
        match self {
            KernelSpec::Embed(s) => s.layout().file_row_bytes() as u64 + f32s(s.cols),
            KernelSpec::Gemv(s) => {
                let inputs = if s.normed() { 2 } else { 1 };
                let outputs = if s.output == Output::Residual { 2 } else { 1 };
                s.file_bytes() + inputs * f32s(s.cols) + outputs * f32s(s.outputs())
            }
            KernelSpec::Attention(s) => {
                let cache = 2 * length * u64::from(s.kv_heads * s.head_dim) * 2;
                cache + f32s((2 * s.heads + 2 * s.kv_heads) * s.head_dim)
            }
            KernelSpec::ChooseGreedy(s) => 2 * f32s(s.candidates),
            KernelSpec::SampleKeys(s) => f32s(s.vocab) + f32s(s.padded()) + f32s(s.groups()),
            KernelSpec::ChooseSampled(s) => f32s(s.groups()),
            KernelSpec::ReadProbe(_) => 0,
            KernelSpec::ClusterProbe(s) => f32s(s.clusters * (s.tiles + 1) * cluster_probe::TILE),
        }
    }
}

/// The name of a stack of matrices, as `q4kr5120_q6kr1024_c4096`: type and rows of each, then the columns.
pub fn matrix_name(s: &GemvShape) -> String {
    let segments: String =
        s.segments.iter().map(|segment| format!("{}r{}_", segment.ty.slug(), segment.rows)).collect();
    format!("{segments}c{}", s.cols)
}

/// A GEMV's name: the matrices, what comes before and after, and the schedule.
fn gemv_name(s: &GemvShape) -> String {
    let bias = if s.bias { "b" } else { "" };
    let input = match s.input {
        Input::Plain => String::new(),
        Input::Normed { eps } => format!("_e{:08x}", eps.to_bits()),
    };
    let output = match s.output {
        Output::Store => "",
        Output::Residual => "_add",
        Output::Swiglu => "_swiglu",
        Output::Argmax => "_argmax",
    };
    let schedule = &s.schedule;
    format!(
        "gemv_{}{bias}{input}{output}_g{}_w{}_d{}_i{}_s{}_f{}_m{}_h{}_{}",
        matrix_name(s),
        schedule.grid,
        schedule.warps,
        schedule.depth,
        schedule.groups,
        schedule.stages,
        schedule.in_flight,
        schedule.resident,
        schedule.reserve,
        launch_name(schedule.copy, schedule.trigger)
    )
}

/// Attention's name.
fn attention_name(s: &AttentionShape) -> String {
    let kind = match s.rope {
        RopeKind::Norm => "norm",
        RopeKind::Neox => "neox",
    };
    let norm = s.qk_norm.map_or(String::new(), |eps| format!("_e{:08x}", eps.to_bits()));
    format!(
        "attention_h{}_k{}_d{}_{kind}{}{norm}_b{}_r{}_p{}_s{}_{}",
        s.heads,
        s.kv_heads,
        s.head_dim,
        s.rotated,
        s.heads_per_block,
        s.splits,
        s.min_pages,
        s.stages,
        launch_name(s.copy, s.trigger)
    )
}

/// How data is loaded, and when the next launch may start.
fn launch_name(copy: CopyEngine, trigger: Trigger) -> String {
    let copy = match copy {
        CopyEngine::Bulk => "b",
        CopyEngine::Async => "a",
    };
    let trigger = match trigger {
        Trigger::Never => "n",
        Trigger::AtStart => "s",
        Trigger::AfterWait => "w",
    };
    format!("{copy}{trigger}")
}
