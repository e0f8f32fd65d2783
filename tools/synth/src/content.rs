//! Contents of a file: hyper-parameters, and the tensors in the order in which they are written.

use bespoke_gguf::{GgmlType, Writer};
use bespoke_kernels::shape::mix::{self, Role};
use bespoke_random::blocks::{self, CHUNK_ELEMENTS};
use bespoke_random::rng::SplitMix64;

use super::{Arch, MIN_VOCAB, SynthError, SynthSpec};

/// A tensor to be written.
pub struct Planned {
    pub name: String,
    /// Innermost first.
    pub dims: Vec<u64>,
    pub ty: GgmlType,
    values: Values,
}

/// The distribution of a tensor's values.
enum Values {
    /// Mean and standard deviation.
    Random(f32, f32),
    /// RoPE divisors like those of Llama 3.1: 1 for the fast half of the frequencies, 8 for the slow half.
    RopeFactors,
}

impl Planned {
    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.dims.iter().product::<u64>() / self.ty.block_elements() as u64 * self.ty.block_bytes() as u64
    }

    /// Bytes filled by one generator.
    pub fn chunk_bytes(&self) -> usize {
        CHUNK_ELEMENTS / self.ty.block_elements() * self.ty.block_bytes()
    }

    /// Fills one chunk of the data.
    pub fn fill(&self, mut rng: SplitMix64, chunk: &mut [u8]) {
        match self.values {
            Values::Random(mean, std) => blocks::fill(self.ty, mean, std, &mut rng, chunk),
            Values::RopeFactors => {
                let (factors, _) = chunk.as_chunks_mut::<4>();
                let fast = factors.len() / 2;
                for (i, factor) in factors.iter_mut().enumerate() {
                    *factor = if i < fast { 1.0f32 } else { 8.0 }.to_le_bytes();
                }
            }
        }
    }
}

/// Plans the tensors of a model; fails for an invalid specification.
pub fn plan(spec: &SynthSpec) -> Result<Vec<Planned>, SynthError> {
    check(spec)?;
    let mut plan = Plan { spec, tensors: Vec::new() };
    plan.embedding();
    if spec.rope_factors {
        plan.push("rope_freqs.weight".into(), vec![spec.head_dim / 2], GgmlType::F32, Values::RopeFactors);
    }
    for layer in 0..spec.layers {
        plan.layer(layer);
    }
    plan.norm("output_norm", spec.hidden);
    if !spec.tied {
        plan.matrix("output", Role::Output, spec.vocab, spec.hidden);
    }
    Ok(plan.tensors)
}

fn check(spec: &SynthSpec) -> Result<(), SynthError> {
    let fail = |message: String| Err(SynthError::Spec(message));
    for (what, value) in [
        ("hidden", spec.hidden),
        ("layers", spec.layers),
        ("heads", spec.heads),
        ("kv_heads", spec.kv_heads),
        ("head_dim", spec.head_dim),
        ("ffn", spec.ffn),
        ("context", spec.context),
    ] {
        if value == 0 {
            return fail(format!("{what} must not be 0"));
        }
    }
    if !spec.heads.is_multiple_of(spec.kv_heads) {
        return fail(format!("{} heads cannot share {} KV heads evenly", spec.heads, spec.kv_heads));
    }
    if !spec.head_dim.is_multiple_of(2) {
        return fail(format!("head_dim {} must be even for RoPE", spec.head_dim));
    }
    if spec.heads.checked_mul(spec.head_dim).is_none() {
        return fail(format!("{} heads of {} elements overflow", spec.heads, spec.head_dim));
    }
    if spec.vocab < MIN_VOCAB {
        return fail(format!("a vocabulary of {} is too small: {MIN_VOCAB} is the least", spec.vocab));
    }
    for ty in spec.embedding.iter().chain(if let mix::Mix::Pure(ty) = &spec.mix { Some(ty) } else { None }) {
        if !mix::supported(*ty) {
            return fail(format!("tensors of type {ty} are not supported"));
        }
    }
    Ok(())
}

/// The list of tensors under construction.
struct Plan<'a> {
    spec: &'a SynthSpec,
    tensors: Vec<Planned>,
}

impl Plan<'_> {
    fn push(&mut self, name: String, dims: Vec<u32>, ty: GgmlType, values: Values) {
        let dims = dims.into_iter().map(u64::from).collect();
        self.tensors.push(Planned { name, dims, ty, values });
    }

    /// The embedding has standard deviation 1, or that of an output matrix if it is one.
    fn embedding(&mut self) {
        let spec = self.spec;
        let (role, std) = if spec.tied { (Role::Output, unit_gain(spec.hidden)) } else { (Role::Other, 1.0) };
        let ty = match spec.embedding {
            Some(ty) => mix::fitting(ty, spec.hidden),
            None => spec.mix.ty(role, spec.layers, spec.hidden),
        };
        self.push("token_embd.weight".into(), vec![spec.hidden, spec.vocab], ty, Values::Random(0.0, std));
    }

    fn matrix(&mut self, name: &str, role: Role, rows: u32, cols: u32) {
        let ty = self.spec.mix.ty(role, self.spec.layers, cols);
        self.push(format!("{name}.weight"), vec![cols, rows], ty, Values::Random(0.0, unit_gain(cols)));
    }

    fn norm(&mut self, name: &str, len: u32) {
        self.push(format!("{name}.weight"), vec![len], GgmlType::F32, Values::Random(1.0, 0.1));
    }

    fn bias(&mut self, name: &str, len: u32) {
        self.push(format!("{name}.bias"), vec![len], GgmlType::F32, Values::Random(0.0, 0.1));
    }

    fn layer(&mut self, layer: u32) {
        let spec = self.spec;
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let sensitive = Role::Sensitive { layer };
        let named = |name: &str| format!("blk.{layer}.{name}");
        self.norm(&named("attn_norm"), spec.hidden);
        self.norm(&named("ffn_norm"), spec.hidden);
        self.matrix(&named("attn_q"), Role::Other, q, spec.hidden);
        self.matrix(&named("attn_k"), Role::Other, kv, spec.hidden);
        self.matrix(&named("attn_v"), sensitive, kv, spec.hidden);
        self.matrix(&named("attn_output"), Role::Other, spec.hidden, q);
        self.matrix(&named("ffn_gate"), Role::Other, spec.ffn, spec.hidden);
        self.matrix(&named("ffn_up"), Role::Other, spec.ffn, spec.hidden);
        self.matrix(&named("ffn_down"), sensitive, spec.hidden, spec.ffn);
        match spec.arch {
            Arch::Llama => {}
            Arch::Qwen2 => {
                self.bias(&named("attn_q"), q);
                self.bias(&named("attn_k"), kv);
                self.bias(&named("attn_v"), kv);
            }
            Arch::Qwen3 => {
                self.norm(&named("attn_q_norm"), spec.head_dim);
                self.norm(&named("attn_k_norm"), spec.head_dim);
            }
        }
    }
}

/// Standard deviation of weights that preserves that of a vector of `cols` elements: 1/√cols.
fn unit_gain(cols: u32) -> f32 {
    (1.0 / cols as f32).sqrt()
}

/// Writes the hyper-parameters.
pub fn metadata(spec: &SynthSpec, writer: &mut Writer) -> Result<(), SynthError> {
    let arch = spec.arch.name();
    writer.set("general.architecture", arch)?;
    writer.set("general.name", &spec.name)?;
    writer.set("general.file_type", spec.mix.file_type())?;
    writer.set("general.quantization_version", 2u32)?; // GGML_QNT_VERSION
    for (key, value) in [
        ("context_length", spec.context),
        ("embedding_length", spec.hidden),
        ("block_count", spec.layers),
        ("feed_forward_length", spec.ffn),
        ("attention.head_count", spec.heads),
        ("attention.head_count_kv", spec.kv_heads),
        ("vocab_size", spec.vocab),
    ] {
        writer.set(&format!("{arch}.{key}"), value)?;
    }
    writer.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), spec.eps)?;
    writer.set(&format!("{arch}.rope.freq_base"), spec.rope_base)?;
    if spec.arch == Arch::Llama {
        writer.set(&format!("{arch}.rope.dimension_count"), spec.head_dim)?;
    }
    if spec.heads * spec.head_dim != spec.hidden || spec.arch == Arch::Qwen3 {
        writer.set(&format!("{arch}.attention.key_length"), spec.head_dim)?;
        writer.set(&format!("{arch}.attention.value_length"), spec.head_dim)?;
    }
    Ok(())
}
