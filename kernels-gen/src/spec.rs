//! Kernels with their compile-time parameters: the unit of specialisation.

mod check;

use bespoke_codegen::Recorded;
use bespoke_codegen::emit;
use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use crate::kernels::argmax::{self, ChooseShape};
use crate::kernels::attention::{
    self, AppendShape, AttentionShape, ChunkShape, KvType, NormSpan, QkNorm, Rope, SharesShape,
};
use crate::kernels::embed::{self, EmbedShape};
use crate::kernels::gemm::{self, ConvertShape, GemmShape};
use crate::kernels::gemv::tokens::{self, InputForms, InputLayout, PrepareShape};
use crate::kernels::gemv::{self, GemvShape, Input, Output};
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::kernels::norm_add::{self, NormAddShape};
use crate::kernels::probe::{self, MmaProbeShape, ProbeShape};
use crate::kernels::rope::RopeKind;
use crate::kernels::sample::{self, SampleShape};
use crate::kernels::select_rows::{self, SelectRowsShape};
use crate::kernels::state;

/// A kernel with its compile-time parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kernel", rename_all = "snake_case")]
pub enum KernelSpec {
    /// Embedding of the current token: [`embed::embed`].
    Embed(EmbedShape),
    /// Rows of a prefill step whose next tokens are chosen: [`select_rows::select_rows`].
    SelectRows(SelectRowsShape),
    /// Matrix-vector product: [`gemv::gemv`].
    Gemv(GemvShape),
    /// Preparation of the inputs of a matrix product of several tokens: [`gemv::tokens::prepare`].
    Prepare(PrepareShape),
    /// Matrix product of many tokens: [`gemm::gemm`].
    Gemm(GemmShape),
    /// Inputs of a matrix product of many tokens: [`gemm::convert`].
    Convert(ConvertShape),
    /// Normalisation added to the residual stream: [`norm_add::norm_add`].
    NormAdd(NormAddShape),
    /// Attention: [`attention::attention()`].
    Attention(AttentionShape),
    /// Division of a step's rows among the CTAs of attention: [`attention::attention_shares()`].
    AttentionShares(SharesShape),
    /// Append of keys and values to the KV cache: [`attention::append()`].
    Append(AppendShape),
    /// Attention of the rows of a prefill step: [`attention::attention_chunk()`].
    AttentionChunk(ChunkShape),
    /// Choice of the most likely token: [`argmax::choose_greedy`].
    ChooseGreedy(ChooseShape),
    /// Conversion of logits to sort keys: [`sample::sample_keys`].
    SampleKeys(SampleShape),
    /// Random choice of a token: [`sample::choose_sampled`].
    ChooseSampled(SampleShape),
    /// Bandwidth measurement: [`probe::read_probe`].
    ReadProbe(ProbeShape),
    /// Measurement of the throughput of tensor cores: [`probe::mma_probe`].
    MmaProbe(MmaProbeShape),
}

/// Launch geometry of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA.
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
    /// Name of the kernel: that of its Rust function and every compile-time parameter. Equal names mean equal kernels.
    pub fn name(&self) -> String {
        match self {
            KernelSpec::Embed(s) => {
                let scale = scale_name(s.scale);
                let rows = rows_name(s.tokens);
                format!("embed_{}_v{}_c{}{scale}{rows}_t{}", s.ty.slug(), s.vocab, s.cols, s.threads)
            }
            KernelSpec::SelectRows(s) => {
                format!("select_rows_c{}{}_t{}", s.cols, rows_name(s.tokens), s.threads)
            }
            KernelSpec::Gemv(s) => gemv_name(s),
            KernelSpec::Prepare(s) => prepare_name(s),
            KernelSpec::Gemm(s) => gemm_name(s),
            KernelSpec::Convert(s) => convert_name(s),
            KernelSpec::NormAdd(s) => {
                let (eps, scale) = (s.eps.to_bits(), scale_name(s.scale));
                let rows = rows_name(s.tokens);
                let existing = if s.only_existing { "_x" } else { "" };
                format!("norm_add_c{}_e{eps:08x}{scale}{rows}{existing}_t{}", s.cols, s.threads)
            }
            KernelSpec::Attention(s) => attention_name(s),
            KernelSpec::AttentionShares(s) => {
                let window = s.window.map(|window| format!("_w{window}")).unwrap_or_default();
                let splits = splits_name(s.splits, s.run_blocks);
                format!(
                    "attention_shares{window}{splits}_o{}_p{}{}",
                    s.at_once,
                    s.min_pages,
                    rows_name(s.tokens)
                )
            }
            KernelSpec::Append(s) => append_name(s),
            KernelSpec::AttentionChunk(s) => chunk_name(s),
            KernelSpec::ChooseGreedy(s) => {
                // `n` is the number of candidates here, and of rows in other names; the number of rows gets `r`
                // instead.
                let rows = if s.tokens == 1 { String::new() } else { format!("_r{}", s.tokens) };
                format!("choose_greedy_n{}{rows}_t{}", s.candidates, s.threads)
            }
            KernelSpec::SampleKeys(s) => {
                format!("sample_keys_v{}{}_b{}_t{}", s.vocab, rows_name(s.tokens), s.blocks, s.threads)
            }
            KernelSpec::ChooseSampled(s) => {
                format!("choose_sampled_v{}{}_t{}", s.vocab, rows_name(s.tokens), s.choose_threads)
            }
            KernelSpec::ReadProbe(s) => format!("read_probe_g{}_t{}", s.grid, s.threads),
            KernelSpec::MmaProbe(s) => format!("mma_probe_g{}_t{}", s.grid, s.threads),
        }
    }

    /// Summary in words of what the kernel computes.
    pub fn summary(&self) -> &'static str {
        match self {
            KernelSpec::Embed(_) => "embedding row of the current token",
            KernelSpec::SelectRows(_) => "rows of a prefill step whose next tokens are chosen",
            KernelSpec::Gemv(_) => "matrix-vector product with norm and epilogue",
            KernelSpec::Prepare(_) => "quantised inputs of a matrix product of several tokens",
            KernelSpec::Gemm(_) => "matrix product of many tokens with epilogue",
            KernelSpec::Convert(_) => "inputs of a matrix product of many tokens as f16",
            KernelSpec::NormAdd(_) => "RMSNorm of a block's output, added to the residual stream",
            KernelSpec::Attention(s) if s.appended => "attention with RoPE, after the append to the KV cache",
            KernelSpec::Attention(_) => "attention with RoPE and the append to the KV cache",
            KernelSpec::AttentionShares(_) => "division of the rows among the CTAs of attention",
            KernelSpec::Append(s) if !s.writes_queries => {
                "append of keys, with RoPE, and values to the KV cache"
            }
            KernelSpec::Append(_) => {
                "append of keys, with RoPE, and values to the KV cache; queries with RoPE"
            }
            KernelSpec::AttentionChunk(_) => "attention of the rows of a prompt",
            KernelSpec::ChooseGreedy(_) => "greedy choice of the next token",
            KernelSpec::SampleKeys(_) => "logit bias, penalties, and sort keys of the logits",
            KernelSpec::ChooseSampled(_) => "sampled choice of the next token",
            KernelSpec::ReadProbe(_) => "streaming read of device memory",
            KernelSpec::MmaProbe(_) => "matrix products from registers",
        }
    }

    /// Records the kernel under [`KernelSpec::name`].
    pub fn record(&self) -> Recorded {
        let kernel = match self {
            KernelSpec::Embed(s) => embed::embed(s),
            KernelSpec::SelectRows(s) => select_rows::select_rows(s),
            KernelSpec::Gemv(s) => gemv::gemv(s),
            KernelSpec::Prepare(s) => tokens::prepare(s),
            KernelSpec::Gemm(s) => gemm::gemm(s),
            KernelSpec::Convert(s) => gemm::convert(s),
            KernelSpec::NormAdd(s) => norm_add::norm_add(s),
            KernelSpec::Attention(s) => attention::attention(s),
            KernelSpec::AttentionShares(s) => attention::attention_shares(s),
            KernelSpec::Append(s) => attention::append(s),
            KernelSpec::AttentionChunk(s) => attention::attention_chunk(s),
            KernelSpec::ChooseGreedy(s) => argmax::choose_greedy(s),
            KernelSpec::SampleKeys(s) => sample::sample_keys(s),
            KernelSpec::ChooseSampled(s) => sample::choose_sampled(s),
            KernelSpec::ReadProbe(s) => probe::read_probe(s),
            KernelSpec::MmaProbe(s) => probe::mma_probe(s),
        }?;
        Ok(kernel.named(self.name()))
    }

    /// Records the kernel for `target`. On targets with programmatic dependent launch, a kernel that does not wait for
    /// its predecessors itself waits at its start.
    pub fn kernel(&self, target: Target) -> Recorded {
        let kernel = self.record()?;
        let wait_first = target.has_programmatic_launch() && !self.waits();
        Ok(if wait_first { kernel.programmatic() } else { kernel })
    }

    /// Whether the kernel itself executes `griddepcontrol.wait` and `griddepcontrol.launch_dependents`.
    pub fn waits(&self) -> bool {
        match self {
            KernelSpec::Gemv(_) | KernelSpec::Attention(_) => true,
            KernelSpec::Prepare(s) => s.trigger != Trigger::Never,
            KernelSpec::Gemm(s) => s.waits(),
            KernelSpec::Convert(s) => s.waits(),
            _ => false,
        }
    }

    /// Static shared memory of GEMV and attention, in bytes: two mbarriers of 8 bytes per stage, and one for each warpgroup that
    /// takes turns; for an argmax over several warps, a candidate of 8 bytes per warp; in attention, a word for the number of
    /// splits that are done.
    pub fn static_shared(&self) -> u32 {
        match self {
            KernelSpec::Gemv(s) if s.is_sliced() => {
                let inputs = if s.is_prepared() { s.schedule.several.buffers } else { 0 };
                let turns = if s.has_turns() { s.schedule.groups } else { 0 };
                16 * (s.schedule.stages + inputs) + 8 * turns
            }
            KernelSpec::Gemv(s) if s.output == Output::Argmax && s.schedule.warps > 1 => {
                16 * s.schedule.stages + 8 * s.schedule.warps * s.token_slots()
            }
            KernelSpec::Gemv(s) => 16 * s.schedule.stages,
            KernelSpec::Gemm(s) => s.static_shared(),
            KernelSpec::Convert(s) => s.static_shared(),
            KernelSpec::Attention(s) => 16 * s.stages + 4,
            KernelSpec::AttentionChunk(s) => s.static_shared(),
            _ => 0,
        }
    }

    /// Whether a launch may start before its predecessors complete: the kernel waits for them on the device.
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
            KernelSpec::Embed(s) => Geometry { grid: s.grid(), ..flat(1, s.threads) },
            KernelSpec::SelectRows(s) => Geometry { grid: s.grid(), ..flat(1, s.threads) },
            KernelSpec::Gemv(s) => {
                let grid = [s.schedule.grid * s.cluster(), s.schedule.several.blocks, 1];
                Geometry { grid, dynamic_shared: s.shared_bytes(), ..flat(1, s.threads()) }
            }
            KernelSpec::Prepare(s) => flat(s.grid(), s.threads()),
            KernelSpec::Gemm(s) => {
                Geometry { grid: s.grid(), dynamic_shared: s.shared_bytes(), ..flat(1, s.threads()) }
            }
            KernelSpec::Convert(s) => flat(s.grid(), s.threads()),
            KernelSpec::NormAdd(s) => flat(s.tokens, s.threads),
            KernelSpec::Attention(s) => {
                Geometry { grid: s.grid(), dynamic_shared: s.shared_bytes(), ..flat(1, s.threads()) }
            }
            KernelSpec::AttentionShares(s) => flat(s.grid(), s.threads()),
            KernelSpec::Append(s) => {
                Geometry { grid: s.grid(), dynamic_shared: s.shared_bytes(), ..flat(1, s.threads()) }
            }
            KernelSpec::AttentionChunk(s) => {
                Geometry { grid: s.grid(), dynamic_shared: s.shared_bytes(), ..flat(1, s.threads()) }
            }
            KernelSpec::ChooseGreedy(s) => flat(s.tokens, s.threads),
            KernelSpec::SampleKeys(s) => Geometry { grid: [s.blocks, s.tokens, 1], ..flat(1, s.threads) },
            KernelSpec::ChooseSampled(s) => flat(s.tokens, s.choose_threads),
            KernelSpec::ReadProbe(s) => flat(s.grid, s.threads),
            KernelSpec::MmaProbe(s) => flat(s.grid, s.threads),
        }
    }

    /// Minimum traffic of a launch in bytes of device memory: each input and output once, with `length` positions in
    /// the cache. 0 for [`KernelSpec::ReadProbe`], whose size is a run-time argument, and [`KernelSpec::MmaProbe`], which
    /// measures no memory.
    pub fn bytes(&self, length: u64) -> u64 {
        let f32s = |n: u32| u64::from(n) * 4;
        match self {
            KernelSpec::Embed(s) => u64::from(s.tokens) * (s.layout().file_row_bytes() as u64 + f32s(s.cols)),
            KernelSpec::SelectRows(s) => 2 * u64::from(s.tokens) * f32s(s.cols),
            KernelSpec::Gemv(s) => {
                let outputs = if s.output == Output::Residual { 2 } else { 1 };
                let norm = if s.normed() && !s.is_prepared() { f32s(s.cols) } else { 0 };
                let inputs = match s.prepare() {
                    Some(prepare) => prepare.bytes(),
                    None if s.received => s.input_layout().bytes().into(),
                    None => f32s(s.tokens * s.cols),
                };
                let outputs = if s.stores_outputs() { outputs * f32s(s.tokens * s.outputs()) } else { 0 };
                let next_norm = if s.next_is_normed() { f32s(s.outputs()) } else { 0 };
                let next = next_norm + s.next.map_or(0, |next| next.bytes());
                s.file_bytes() + norm + inputs + outputs + next
            }
            KernelSpec::Prepare(s) => {
                let norm = if s.normed { f32s(s.cols) } else { 0 };
                norm + f32s(s.layout.tokens * s.cols) + s.bytes()
            }
            KernelSpec::Gemm(s) => {
                let outputs = if s.product.output == Output::Residual { 2 } else { 1 };
                let product = &s.product;
                product.file_bytes()
                    + s.convert().bytes()
                    + outputs * f32s(product.tokens * product.outputs())
            }
            KernelSpec::Convert(s) => {
                let norm = if s.eps.is_some() { f32s(s.cols) } else { 0 };
                norm + f32s(s.tokens * s.cols) + s.bytes()
            }
            // Two inputs, and the residual stream read and written.
            KernelSpec::NormAdd(s) => f32s(s.cols) + 3 * f32s(s.tokens * s.cols),
            KernelSpec::Attention(s) => {
                let output = f32s(s.tokens * s.heads * s.head_dim);
                let output = s.output_layout.map_or(output, |layout| layout.bytes().into());
                let inputs = f32s((s.heads + 2 * s.kv_heads) * s.head_dim);
                u64::from(s.tokens) * (s.read_bytes(length) + inputs) + output
            }
            KernelSpec::AttentionShares(s) => f32s(s.tokens * state::WORDS + s.words()),
            KernelSpec::Append(s) => {
                let inputs = f32s((s.heads + 2 * s.kv_heads) * s.head_dim);
                u64::from(s.tokens) * (s.entry_bytes() + inputs) + s.query_bytes()
            }
            KernelSpec::AttentionChunk(s) => {
                // Rows of one sequence read the same pages.
                let s = &s.attention;
                let outputs = u64::from(s.tokens) * f32s(s.heads * s.head_dim);
                s.read_bytes(length) + AppendShape::of(s, true).query_bytes() + outputs
            }
            KernelSpec::ChooseGreedy(s) => 2 * f32s(s.tokens * s.candidates),
            KernelSpec::SampleKeys(s) => {
                u64::from(s.tokens) * (f32s(s.vocab) + f32s(s.padded()) + f32s(s.groups()))
            }
            KernelSpec::ChooseSampled(s) => f32s(s.tokens * s.groups()),
            KernelSpec::ReadProbe(_) | KernelSpec::MmaProbe(_) => 0,
        }
    }
}

/// Name of a stack of matrices: type and rows of each, then the columns, as in `q4kr5120_q6kr1024_c4096`.
pub fn matrix_name(s: &GemvShape) -> String {
    let segments: String =
        s.segments.iter().map(|segment| format!("{}r{}_", segment.ty.slug(), segment.rows)).collect();
    format!("{segments}c{}", s.cols)
}

/// Name of a GEMV: matrices, bias, input, output, scale, soft cap and schedule.
fn gemv_name(s: &GemvShape) -> String {
    let schedule = &s.schedule;
    format!(
        "gemv_{}{}_g{}_w{}_i{}_s{}_f{}_m{}_h{}_{}",
        product_name(s),
        several_name(s),
        schedule.grid,
        schedule.warps,
        schedule.groups,
        schedule.stages,
        schedule.in_flight,
        schedule.resident,
        schedule.reserve,
        launch_name(schedule.copy, schedule.trigger)
    )
}

/// Part of a product's name: matrices, bias, input, output, scale and soft cap.
fn product_name(s: &GemvShape) -> String {
    let bias = if s.bias { "b" } else { "" };
    let input = match s.input {
        Input::Plain => String::new(),
        Input::Normed { eps } => format!("_e{:08x}", eps.to_bits()),
    };
    let output = match s.output {
        Output::Store => String::new(),
        Output::Residual => "_add".to_owned(),
        Output::Glu(activation) => format!("_{}", activation.gated_name()),
        Output::Argmax => "_argmax".to_owned(),
    };
    let scale = scale_name(s.scale);
    let softcap = s.softcap.map_or(String::new(), |cap| format!("_cap{:08x}", cap.to_bits()));
    format!("{}{bias}{input}{output}{scale}{softcap}", matrix_name(s))
}

/// Name of a matrix product of many tokens: matrices, bias, input, output, scale, soft cap, tokens and tiling.
fn gemm_name(s: &GemmShape) -> String {
    let (tiling, [weights, inputs]) = (&s.tiling, s.tiling.stages);
    let warpgroups = if tiling.warpgroups { "g" } else { "" };
    let tiles = if tiling.warp_tiles == 2 { String::new() } else { format!("r{}", tiling.warp_tiles) };
    let halved = if tiling.halved == 0 { String::new() } else { format!("h{}", tiling.halved) };
    format!(
        "gemm_{}_n{}_w{}x{}{warpgroups}{tiles}_t{}{halved}_s{weights}_i{inputs}x{}_{}",
        product_name(&s.product),
        s.product.tokens,
        tiling.warps[0],
        tiling.warps[1],
        tiling.warp_tokens,
        tiling.stage_cols,
        copy_name(tiling.copy)
    )
}

/// Name of the inputs of a matrix product of many tokens.
fn convert_name(s: &ConvertShape) -> String {
    let norm = s.eps.map_or(String::new(), |eps| bits_name('e', eps));
    let forms = [(s.short_runs, 's'), (s.long_runs, 'l')];
    let forms: String = forms.into_iter().filter_map(|(present, letter)| present.then_some(letter)).collect();
    let order = if s.core_matrices { "g" } else { "" };
    format!("convert_c{}_p{}{norm}_n{}_b{}_{forms}{order}", s.cols, s.padded_cols, s.tokens, s.block_tokens)
}

/// Part of a GEMV's name for the tokens and their schedule; empty for one token.
fn several_name(s: &GemvShape) -> String {
    if s.tokens == 1 && !s.is_f16() {
        return String::new();
    }
    if s.is_few() {
        return format!("_n{}", s.tokens);
    }
    let halves = if s.is_f16() { "_half" } else { "" };
    let several = &s.schedule.several;
    let slices =
        if several.prepared { format!("_c{}_b{}", several.slice, several.buffers) } else { String::new() };
    let held = if several.holds { "_h" } else { "" };
    let received = if s.received { "_r" } else { "" };
    let factors = if s.stores_factors { "_f" } else { "" };
    let next = s.next.map_or(String::new(), |next| {
        let norm = if next.normed { "n" } else { "" };
        format!("_next{norm}{}_{}", block_name(&next.layout), forms_name(next.layout.forms))
    });
    let warpgroups = if s.has_warpgroups() {
        format!("_g{}x{}", several.warpgroups, several.blocks)
    } else {
        String::new()
    };
    let (parts, tiles) = (several.parts, several.tiles);
    format!("{halves}{received}{factors}{next}_n{}{slices}{held}_p{parts}_t{tiles}{warpgroups}", s.tokens)
}

/// Name of a preparation: inputs, tokens, and the forms in which products need the inputs.
fn prepare_name(s: &PrepareShape) -> String {
    let norm = if s.normed { "_norm" } else { "" };
    let trigger = trigger_name(s.trigger);
    let block = block_name(&s.layout);
    let forms = forms_name(s.layout.forms);
    format!("prepare_c{}{norm}_n{}{block}_g{}_{forms}_{trigger}", s.cols, s.layout.tokens, s.layout.granules)
}

/// Part of a name for the forms in which products need their inputs.
fn forms_name(forms: InputForms) -> String {
    let forms = [
        (forms.chunks, 'c'),
        (forms.mins, 'm'),
        (forms.sums, 's'),
        (forms.half_sums, 'h'),
        (forms.floats, 'f'),
        (forms.short_halves, 'k'),
        (forms.long_halves, 'l'),
    ];
    forms.into_iter().filter_map(|(present, letter)| present.then_some(letter)).collect()
}

/// Part of a name for the blocks of tokens of warpgroups.
fn block_name(layout: &InputLayout) -> String {
    if layout.block_tokens > 0 { format!("_b{}", layout.block_tokens) } else { String::new() }
}

/// Part of a name for the rows of a step; empty for one.
fn rows_name(tokens: u32) -> String {
    if tokens == 1 { String::new() } else { format!("_n{tokens}") }
}

/// Part of a name for a factor; empty for 1.
fn scale_name(scale: f32) -> String {
    if scale == 1.0 { String::new() } else { format!("_x{:08x}", scale.to_bits()) }
}

/// Part of a name for a number, by its bits.
fn bits_name(letter: char, value: f32) -> String {
    format!("_{letter}{:08x}", value.to_bits())
}

/// Part of a name for RoPE.
fn rope_name(rope: Option<Rope>) -> String {
    match rope {
        None => "nope".to_owned(),
        Some(Rope { kind, rotated, magnitude }) => {
            let kind = match kind {
                RopeKind::Norm => "norm",
                RopeKind::Neox => "neox",
            };
            let magnitude = if magnitude == 1.0 { String::new() } else { bits_name('m', magnitude) };
            format!("{kind}{rotated}{magnitude}")
        }
    }
}

/// Part of a name for a QK norm.
fn qk_norm_name(norm: QkNorm) -> String {
    match norm.span {
        NormSpan::Head => bits_name('e', norm.eps),
        NormSpan::Projection => bits_name('q', norm.eps),
    }
}

/// Part of a name for a cache that is not of type f16.
fn kv_name(kv: KvType) -> Option<String> {
    (kv != KvType::F16).then(|| format!("_{kv}"))
}

/// Name of an append to the cache.
fn append_name(s: &AppendShape) -> String {
    let options = [s.qk_norm.map(qk_norm_name), scores_name(s.scale, s.softcap, s.head_dim), kv_name(s.kv)];
    format!(
        "append_h{}_k{}_d{}_{}{}_b{}{}{}",
        s.heads,
        s.kv_heads,
        s.head_dim,
        rope_name(s.rope),
        options.into_iter().flatten().collect::<String>(),
        s.heads_per_block,
        if s.writes_queries { "" } else { "_kv" },
        rows_name(s.tokens),
    )
}

/// Part of a name for a scale of the scores that is not the usual one, and their bound.
fn scores_name(scale: f32, softcap: Option<f32>, head_dim: u32) -> Option<String> {
    let scale = (scale != AttentionShape::default_scale(head_dim)).then(|| bits_name('a', scale));
    let cap = softcap.map(|cap| bits_name('c', cap));
    Some([scale, cap].into_iter().flatten().collect())
}

/// Name of an attention kernel of prefill steps.
fn chunk_name(chunk: &ChunkShape) -> String {
    let s = &chunk.attention;
    let options = [
        s.window.map(|window| format!("_w{window}")),
        s.softcap.map(|cap| bits_name('c', cap)),
        kv_name(s.kv),
    ];
    format!(
        "attention_chunk_h{}_k{}_d{}{}_b{}_g{}{}_s{}_{}{}",
        s.heads,
        s.kv_heads,
        s.head_dim,
        options.into_iter().flatten().collect::<String>(),
        s.heads_per_block,
        chunk.row_groups,
        if chunk.warpgroups { "w" } else { "" },
        s.stages,
        copy_name(s.copy),
        rows_name(s.tokens)
    )
}

/// Name of an attention kernel. Parameters with their usual values are left out.
fn attention_name(s: &AttentionShape) -> String {
    let options = [
        s.qk_norm.map(qk_norm_name),
        s.window.map(|window| format!("_w{window}")),
        scores_name(s.scale, s.softcap, s.head_dim),
        kv_name(s.kv),
    ];
    let parts = if s.stage_tiles == AttentionShape::PAGE_TILES {
        String::new()
    } else {
        format!("_t{}", s.stage_tiles)
    };
    let splits = splits_name(s.splits, s.run_blocks);
    let by_length = if s.at_once.is_some() { "_l" } else { "" };
    let appended = if s.appended { "_e" } else { "" };
    let output =
        s.output_layout.map(|layout| format!("_q{}{}", forms_name(layout.forms), block_name(&layout)));
    format!(
        "attention_h{}_k{}_d{}_{}{}_b{}{splits}_p{}_s{}{parts}_{}{by_length}{appended}{}{}",
        s.heads,
        s.kv_heads,
        s.head_dim,
        rope_name(s.rope),
        options.into_iter().flatten().collect::<String>(),
        s.heads_per_block,
        s.min_pages,
        s.stages,
        launch_name(s.copy, s.trigger),
        rows_name(s.tokens),
        output.unwrap_or_default()
    )
}

/// Part of a name for the splits of the context and the CTAs of a row.
fn splits_name(splits: u32, run_blocks: u32) -> String {
    if run_blocks == splits { format!("_r{splits}") } else { format!("_r{splits}g{run_blocks}") }
}

/// Part of a name for the copy engine.
fn copy_name(copy: CopyEngine) -> &'static str {
    match copy {
        CopyEngine::Bulk => "b",
        CopyEngine::Async => "a",
    }
}

/// Suffix of a name: copy engine and trigger.
fn launch_name(copy: CopyEngine, trigger: Trigger) -> String {
    format!("{}{}", copy_name(copy), trigger_name(trigger))
}

fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Never => "n",
        Trigger::AtStart => "s",
        Trigger::AfterWait => "w",
        Trigger::AfterLoads => "l",
    }
}
