//! Hyper-parameters: `config.json` to GGUF's `{arch}.*` keys.

use bespoke_gguf::Writer;
use serde_json::Value;

use crate::HfError;
use crate::architecture::{Architecture, Extent, Windows};
use crate::json::{Document, File};

/// A checked `config.json`.
pub struct Config {
    file: File,
    pub architecture: &'static Architecture,
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub ffn: u32,
    pub vocab: u32,
    pub context: u32,
    eps: f64,
    /// Whether the embedding is also the output matrix; `None` if the file does not say.
    pub tied: Option<bool>,
}

/// Values that `transformers` does not write to the `text_config` of a Gemma 3 with vision, because they are defaults.
const GEMMA3_DEFAULTS: [(&str, u32); 5] = [
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("max_position_embeddings", 131_072),
    ("vocab_size", 262_208),
];

/// Largest width, and largest number of heads, layers and tokens: far above any model.
const LIMIT: u32 = 1 << 24;

impl Config {
    /// Checks a `config.json` and reads the dimensions.
    pub fn read(mut file: File, architecture: &'static Architecture) -> Result<Self, HfError> {
        file.lift("text_config")?;
        let document = file.root();
        let default = |key: &str| {
            let defaults = if architecture.name == "gemma3" { &GEMMA3_DEFAULTS[..] } else { &[] };
            defaults.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
        };
        let optional = |key: &str| Ok::<_, HfError>(document.u32(key)?.or(default(key)));
        let positive = |key: &str| {
            let value = document.required(key, optional(key)?)?;
            if (1..=LIMIT).contains(&value) {
                Ok(value)
            } else {
                Err(document.fault(key, format!("{value} is not supported: 1 to {LIMIT} are")))
            }
        };
        let (hidden, heads) = (positive("hidden_size")?, positive("num_attention_heads")?);
        let head_dim = match optional("head_dim")? {
            Some(_) => positive("head_dim")?,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                let fault = format!("{hidden} is not a multiple of num_attention_heads, {heads}");
                return Err(document.fault("hidden_size", fault));
            }
        };
        let default_eps = (architecture.name == "gemma3").then_some(1e-6);
        let eps = document.f64("rms_norm_eps")?.or(default_eps);
        let config = Self {
            layers: positive("num_hidden_layers")?,
            hidden,
            heads,
            kv_heads: match optional("num_key_value_heads")? {
                Some(_) => positive("num_key_value_heads")?,
                None => heads,
            },
            head_dim,
            ffn: positive(architecture.ffn)?,
            vocab: positive("vocab_size")?,
            context: positive("max_position_embeddings")?,
            eps: document.required("rms_norm_eps", eps)?,
            tied: document.bool("tie_word_embeddings")?,
            architecture,
            file,
        };
        config.refuse_unsupported()?;
        Ok(config)
    }

    /// The document, for keys of one purpose.
    pub fn document(&self) -> Document<'_> {
        self.file.root()
    }

    /// Length of a dimension.
    pub fn extent(&self, extent: Extent) -> u64 {
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let (queries, keys) = (product(self.heads, self.head_dim), product(self.kv_heads, self.head_dim));
        match extent {
            Extent::Hidden => self.hidden.into(),
            Extent::Queries => queries,
            Extent::Keys => keys,
            Extent::Qkv => queries + 2 * keys,
            Extent::Head => self.head_dim.into(),
            Extent::Ffn => self.ffn.into(),
            Extent::GateUp => 2 * u64::from(self.ffn),
        }
    }

    fn is(&self, name: &str) -> bool {
        self.architecture.name == name
    }

    /// Refuses values for which GGUF has no key and which the architecture in GGUF does not have.
    fn refuse_unsupported(&self) -> Result<(), HfError> {
        let document = self.document();
        if let Some(quantization) = document.object("quantization_config")? {
            let method = quantization.str("quant_method")?.unwrap_or("unknown");
            let fault = format!(
                "weights quantised by the method {method} are not supported; use the original folder"
            );
            return Err(document.fault("quantization_config", fault));
        }
        for key in ["num_local_experts", "num_experts", "n_routed_experts"] {
            if document.u32(key)?.unwrap_or(0) > 0 {
                return Err(
                    document.fault(key, "a mixture of experts is not supported: only dense models are")
                );
            }
        }
        if document.bool("use_sliding_window")? == Some(true) {
            return Err(document.fault("use_sliding_window", "sliding windows are not supported here"));
        }
        for key in ["hidden_act", "hidden_activation"] {
            // Gemma 2 and 3 have both keys, and `hidden_activation` is the one that counts.
            let overridden = key == "hidden_act" && document.get("hidden_activation").is_some();
            let activations = self.architecture.activations;
            if let Some(found) = document.str(key)?.filter(|name| !overridden && !activations.contains(name))
            {
                let fault = format!("{found} is not supported: the models use {}", activations.join(", "));
                return Err(document.fault(key, fault));
            }
        }
        if self.architecture.windows == Windows::Unsupported {
            if self.is("olmo2") && document.get("sliding_window").is_some() {
                return Err(document.fault("sliding_window", "sliding windows are not supported here"));
            }
            let windowed =
                self.layer_windows()?.and_then(|layers| layers.iter().position(|&windowed| windowed));
            if let Some(layer) = windowed {
                let fault =
                    format!("layer {layer} must be full_attention in {} models", self.architecture.class());
                return Err(document.fault("layer_types", fault));
            }
        }
        if let Some(types) = document.array("layer_types")?.filter(|_| self.is("granite"))
            && let Some(layer) = types.iter().position(|ty| ty != "attention")
        {
            let fault = format!("layer {layer} is {}: only attention is supported", types[layer]);
            return Err(document.fault("layer_types", fault));
        }
        self.check_unrotated_layers()
    }

    /// Whether each layer has a sliding window, if `layer_types` says so.
    fn layer_windows(&self) -> Result<Option<Vec<bool>>, HfError> {
        let document = self.document();
        let Some(types) = document.array("layer_types")? else { return Ok(None) };
        let windowed = |layer: u32| match types.get(layer as usize).and_then(Value::as_str) {
            Some("sliding_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => {
                let fault = format!("layer {layer} must be sliding_attention or full_attention");
                Err(document.fault("layer_types", fault))
            }
        };
        (0..self.layers).map(windowed).collect::<Result<_, _>>().map(Some)
    }

    /// Checks that every fourth layer has no RoPE in SmolLM3.
    fn check_unrotated_layers(&self) -> Result<(), HfError> {
        if self.is("smollm3") {
            let uses = |layer: u32| u32::from(!(layer + 1).is_multiple_of(4));
            let layers = self.document().array("no_rope_layers")?;
            if layers.is_some_and(|layers| {
                (0..self.layers).any(|at| layers.get(at as usize) != Some(&uses(at).into()))
            }) {
                return Err(self
                    .document()
                    .fault("no_rope_layers", "only every fourth layer without RoPE is supported"));
            }
            if self
                .document()
                .u32("no_rope_layer_interval")?
                .is_some_and(|interval| layers.is_none() && interval != 4)
            {
                return Err(self.document().fault("no_rope_layer_interval", "only 4 is supported"));
            }
        }
        Ok(())
    }

    /// A key of the architecture.
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name)
    }

    /// Writes the dimensions, and the keys that only some architectures have.
    pub fn write(&self, header: &mut Writer) -> Result<(), HfError> {
        for (name, value) in [
            ("block_count", self.layers),
            ("context_length", self.context),
            ("embedding_length", self.hidden),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("vocab_size", self.vocab),
        ] {
            header.set(&self.key(name), value)?;
        }
        header.set(&self.key("attention.layer_norm_rms_epsilon"), self.eps as f32)?;
        self.write_windows(header)?;
        // Granite 4 may have no RoPE.
        if self.architecture.class() == "GraniteMoeHybridForCausalLM" {
            let rotated = self.document().str("position_embedding_type")? == Some("rope");
            header.set(&self.key("rope.scaling.finetuned"), rotated)?;
        }
        for (name, from, to) in [
            ("gemma2", "attn_logit_softcapping", "attn_logit_softcapping"),
            ("gemma2", "final_logit_softcapping", "final_logit_softcapping"),
            ("gemma3", "final_logit_softcapping", "final_logit_softcapping"),
            ("granite", "attention_multiplier", "attention.scale"),
            ("granite", "embedding_multiplier", "embedding_scale"),
            ("granite", "residual_multiplier", "residual_scale"),
            ("granite", "logits_scaling", "logit_scale"),
        ] {
            if let Some(value) = self.document().f64(from)?.filter(|_| self.is(name)) {
                header.set(&self.key(to), value as f32)?;
            }
        }
        // GGUF's gemma2 has soft caps by default.
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if self.is("gemma2") && self.document().is_null(key) {
                header.set(&self.key(key), 0.0f32)?;
            }
        }
        if self.is("gemma3") && self.document().get("attn_logit_softcapping").is_some() {
            return Err(self.document().fault("attn_logit_softcapping", "is not supported for Gemma 3"));
        }
        // GGUF's gemma2 and gemma3 scale scores by 1/sqrt(head_dim) unless told otherwise.
        if let Some(scalar) = self.document().f64("query_pre_attn_scalar")?
            && self.architecture.name.starts_with("gemma")
            && scalar != f64::from(self.head_dim)
        {
            header.set(&self.key("attention.scale"), scalar.powf(-0.5) as f32)?;
        }
        Ok(())
    }

    fn write_windows(&self, header: &mut Writer) -> Result<(), HfError> {
        let document = self.document();
        let window = document.u32("sliding_window")?;
        let (key, pattern) =
            (self.key("attention.sliding_window"), self.key("attention.sliding_window_pattern"));
        match self.architecture.windows {
            Windows::Ignored | Windows::Unsupported => {}
            // 0 for none, as in llama.cpp.
            Windows::AllLayers if self.is("phi3") => header.set(&key, window.unwrap_or(0))?,
            // Mistral 7B v0.1. llama.cpp's converter leaves the window out.
            Windows::AllLayers => {
                if let Some(window) = window.filter(|&window| window < self.context) {
                    header.set(&key, window)?;
                }
            }
            Windows::AllBut(usual) => {
                let window = document.required("sliding_window", window)?;
                let period = if self.is("gemma3") { self.window_period()?.unwrap_or(usual) } else { usual };
                let layers = self.layer_windows()?;
                if layers.is_none() && period == 1 {
                    return Ok(());
                }
                header.set(&key, window)?;
                let at =
                    |period: u32| (0..self.layers).map(|layer| !(layer + 1).is_multiple_of(period)).collect();
                let usual_layers: Vec<bool> = at(usual);
                match layers {
                    // The architecture has the patterns of Gemma by default.
                    Some(layers) if layers == usual_layers && !self.is("olmo2") => {}
                    Some(layers) => header.set_array(&pattern, &layers)?,
                    None if self.is("olmo2") => header.set_array(&pattern, &usual_layers)?,
                    None if period != usual => header.set(&pattern, period)?,
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Every how manieth layer of a Gemma 3 has no window.
    fn window_period(&self) -> Result<Option<u32>, HfError> {
        for key in ["sliding_window_pattern", "_sliding_window_pattern"] {
            match self.document().u32(key)? {
                Some(0) => return Err(self.document().fault(key, "0 is not supported")),
                None => {}
                period => return Ok(period),
            }
        }
        Ok(None)
    }
}
