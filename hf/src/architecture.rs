//! Table of the supported architectures: the names of their tensors in a folder and in GGUF.
//!
//! An architecture is added by a row of [`ALL`], a table of its layers' tensors if they differ, and, in `config.rs`,
//! the keys that no other architecture has.

use crate::HfError;
use crate::json::Document;

/// How an architecture's `config.json` and tensors become a GGUF model.
#[derive(Debug)]
pub struct Architecture {
    /// Names in `architectures` of `config.json`: classes of `transformers`.
    pub classes: &'static [&'static str],
    /// `general.architecture` in GGUF.
    pub name: &'static str,
    /// Tensors of every layer.
    pub layer: &'static [Row],
    /// Change to the weights of `norm`, the norm before the head.
    pub output_norm: Edit,
    /// Whether the embedding is also the output matrix if `tie_word_embeddings` is not set.
    pub tied: bool,
    /// Names of `hidden_act` that compute the activation that GGUF's architecture has.
    pub activations: &'static [&'static str],
    /// Sliding windows.
    pub windows: Windows,
    /// Key of the width of the feed-forward network.
    pub ffn: &'static str,
}

/// Sliding windows of a class of `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// None: a `sliding_window` is left over from another class.
    Ignored,
    /// Some models have them, which is not supported.
    Unsupported,
    /// In every layer, if `config.json` has a `sliding_window`.
    AllLayers,
    /// In all but every n-th layer, unless `layer_types` differs.
    AllBut(u32),
}

/// A tensor of a layer: its weight, and for matrices a bias if the folder has one.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name in the folder, after `layers.N.` and before `.weight`.
    pub from: &'static str,
    /// Name in GGUF, after `blk.N.` and before `.weight`.
    pub to: &'static str,
    /// Number of rows, or of elements of a vector.
    pub rows: Extent,
    /// Number of columns; `None` for a vector.
    pub cols: Option<Extent>,
    /// Change to the weights.
    pub edit: Edit,
}

/// Length of a dimension.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// Width of the residual stream.
    Hidden,
    /// Width of all query heads.
    Queries,
    /// Width of all key heads.
    Keys,
    /// Queries, keys and values, fused.
    Qkv,
    /// Elements of a head.
    Head,
    /// Width of the feed-forward network.
    Ffn,
    /// Gate and up, fused.
    GateUp,
}

/// Change to a tensor's values or rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// None.
    Keep,
    /// Rows of each query head in the order of adjacent RoPE pairs.
    PairQueries,
    /// Rows of each key head in the order of adjacent RoPE pairs.
    PairKeys,
    /// One is added to every value: Gemma's norms multiply by 1 + weight.
    PlusOne,
    /// The first half of the rows of a tensor that holds two matrices.
    FirstHalf,
    /// The second half of its rows.
    SecondHalf,
}

const fn matrix(from: &'static str, to: &'static str, rows: Extent, cols: Extent, edit: Edit) -> Row {
    Row { from, to, rows, cols: Some(cols), edit }
}

const fn vector(from: &'static str, to: &'static str, rows: Extent, edit: Edit) -> Row {
    Row { from, to, rows, cols: None, edit }
}

use Edit::{FirstHalf, Keep, PairKeys, PairQueries, PlusOne, SecondHalf};
use Extent::{Ffn, GateUp, Head, Hidden, Keys, Qkv, Queries};

const V: Row = matrix("self_attn.v_proj", "attn_v", Keys, Hidden, Keep);
const O: Row = matrix("self_attn.o_proj", "attn_output", Hidden, Queries, Keep);
const GATE: Row = matrix("mlp.gate_proj", "ffn_gate", Ffn, Hidden, Keep);
const UP: Row = matrix("mlp.up_proj", "ffn_up", Ffn, Hidden, Keep);
const DOWN: Row = matrix("mlp.down_proj", "ffn_down", Hidden, Ffn, Keep);
const Q: Row = matrix("self_attn.q_proj", "attn_q", Queries, Hidden, Keep);
const K: Row = matrix("self_attn.k_proj", "attn_k", Keys, Hidden, Keep);
const Q_PAIRED: Row = Row { edit: PairQueries, ..Q };
const K_PAIRED: Row = Row { edit: PairKeys, ..K };
const ATTN_NORM: Row = vector("input_layernorm", "attn_norm", Hidden, Keep);
const FFN_NORM: Row = vector("post_attention_layernorm", "ffn_norm", Hidden, Keep);
const Q_NORM: Row = vector("self_attn.q_norm", "attn_q_norm", Head, Keep);
const K_NORM: Row = vector("self_attn.k_norm", "attn_k_norm", Head, Keep);
const GEMMA_NORMS: [Row; 4] = [
    vector("input_layernorm", "attn_norm", Hidden, PlusOne),
    vector("post_attention_layernorm", "post_attention_norm", Hidden, PlusOne),
    vector("pre_feedforward_layernorm", "ffn_norm", Hidden, PlusOne),
    vector("post_feedforward_layernorm", "post_ffw_norm", Hidden, PlusOne),
];

/// Layers of Llama, whose RoPE rotates adjacent pairs in GGUF.
const LLAMA: &[Row] = &[ATTN_NORM, FFN_NORM, Q_PAIRED, K_PAIRED, V, O, GATE, UP, DOWN];
/// Layers of Granite 4 without experts.
const GRANITE4: &[Row] = &[
    ATTN_NORM,
    FFN_NORM,
    Q_PAIRED,
    K_PAIRED,
    V,
    O,
    matrix("shared_mlp.input_linear", "ffn_gate", Ffn, Hidden, FirstHalf),
    matrix("shared_mlp.input_linear", "ffn_up", Ffn, Hidden, SecondHalf),
    matrix("shared_mlp.output_linear", "ffn_down", Hidden, Ffn, Keep),
];
const QWEN2: &[Row] = &[ATTN_NORM, FFN_NORM, Q, K, V, O, GATE, UP, DOWN];
const QWEN3: &[Row] = &[ATTN_NORM, FFN_NORM, Q, K, V, O, GATE, UP, DOWN, Q_NORM, K_NORM];
const PHI3: &[Row] = &[
    ATTN_NORM,
    FFN_NORM,
    matrix("self_attn.qkv_proj", "attn_qkv", Qkv, Hidden, Keep),
    O,
    matrix("mlp.gate_up_proj", "ffn_up", GateUp, Hidden, Keep),
    DOWN,
];
const GEMMA2: &[Row] = &{
    let [a, b, c, d] = GEMMA_NORMS;
    [a, b, c, d, Q, K, V, O, GATE, UP, DOWN]
};
const GEMMA3: &[Row] = &{
    let [a, b, c, d] = GEMMA_NORMS;
    [a, b, c, d, Q, K, V, O, GATE, UP, DOWN, Row { edit: PlusOne, ..Q_NORM }, Row { edit: PlusOne, ..K_NORM }]
};
const OLMO2: &[Row] = &[
    vector("post_attention_layernorm", "post_attention_norm", Hidden, Keep),
    vector("post_feedforward_layernorm", "post_ffw_norm", Hidden, Keep),
    Q,
    K,
    V,
    O,
    GATE,
    UP,
    DOWN,
    Row { rows: Queries, ..Q_NORM },
    Row { rows: Keys, ..K_NORM },
];

const SILU: &[&str] = &["silu", "swish"];
const GELU_TANH: &[&str] = &["gelu_pytorch_tanh"];

const fn silu(classes: &'static [&'static str], name: &'static str, layer: &'static [Row]) -> Architecture {
    Architecture {
        classes,
        name,
        layer,
        output_norm: Keep,
        tied: false,
        activations: SILU,
        windows: Windows::Ignored,
        ffn: "intermediate_size",
    }
}

const fn gemma(
    classes: &'static [&'static str],
    name: &'static str,
    layer: &'static [Row],
    period: u32,
) -> Architecture {
    let windows = Windows::AllBut(period);
    let plain = silu(classes, name, layer);
    Architecture { output_norm: PlusOne, tied: true, activations: GELU_TANH, windows, ..plain }
}

/// `architecture` with windows.
const fn windowed(windows: Windows, architecture: Architecture) -> Architecture {
    Architecture { windows, ..architecture }
}

/// `architecture` whose embedding is the output matrix by default.
const fn tied(architecture: Architecture) -> Architecture {
    Architecture { tied: true, ..architecture }
}

use Windows::{AllBut, AllLayers, Unsupported};

/// All supported architectures.
pub static ALL: [Architecture; 14] = [
    silu(&["LlamaForCausalLM"], "llama", LLAMA),
    windowed(AllLayers, silu(&["MistralForCausalLM"], "llama", LLAMA)),
    windowed(
        AllLayers,
        silu(&["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"], "mistral3", LLAMA),
    ),
    windowed(Unsupported, silu(&["Qwen2ForCausalLM"], "qwen2", QWEN2)),
    windowed(Unsupported, silu(&["Qwen3ForCausalLM"], "qwen3", QWEN3)),
    windowed(AllLayers, silu(&["Phi3ForCausalLM"], "phi3", PHI3)),
    gemma(&["Gemma2ForCausalLM"], "gemma2", GEMMA2, 2),
    gemma(&["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"], "gemma3", GEMMA3, 6),
    silu(&["GraniteForCausalLM"], "granite", LLAMA),
    Architecture {
        ffn: "shared_intermediate_size",
        ..silu(&["GraniteMoeHybridForCausalLM"], "granite", GRANITE4)
    },
    windowed(Unsupported, tied(silu(&["SmolLM3ForCausalLM"], "smollm3", LLAMA))),
    windowed(Unsupported, silu(&["Olmo2ForCausalLM"], "olmo2", OLMO2)),
    windowed(AllBut(4), silu(&["Olmo3ForCausalLM"], "olmo2", OLMO2)),
    // RoPE rotates adjacent pairs, in the folder too.
    tied(silu(&["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"], "ernie4_5", QWEN2)),
];

impl Architecture {
    /// The architecture that `config.json` names.
    pub fn of(config: &Document<'_>) -> Result<&'static Architecture, HfError> {
        let names = config.array("architectures")?;
        let names = config.required("architectures", names)?;
        let found = names.first().and_then(|name| name.as_str());
        let found = found.ok_or_else(|| config.fault("architectures", "expected the name of a class"))?;
        let architecture = ALL.iter().find(|architecture| architecture.classes.contains(&found));
        architecture.ok_or_else(|| {
            let supported: Vec<&str> =
                ALL.iter().flat_map(|architecture| architecture.classes).copied().collect();
            HfError::Architecture { found: found.into(), supported: supported.join(", ") }
        })
    }

    /// Name of the class, for messages.
    pub fn class(&self) -> &'static str {
        self.classes[0]
    }
}
