//! Builds a model's description from an architecture's facts, metadata, and the model's tensors.

use bespoke_gguf::{Error, GgmlType, Gguf, Writer};

use super::architecture::Architecture;
use super::description::{
    Attention, FeedForward, Layer, LayerQkNorm, Matrix, Multipliers, Norms, TensorSlice,
};
use super::rope::{RopeTable, Ropes};
use super::settings::{Setting, Settings, is_harmless};
use super::tensors::{Tensor, TensorName};
use super::{Dimensions, Mix, ModelShape, ShapeError, mix, rope, weight_type};
use crate::kernels::attention::{AttentionShape, NormSpan};

/// Type of each tensor; `None` for a tensor that the model does not have.
type Types<'a> = dyn Fn(TensorName) -> Option<GgmlType> + 'a;

/// Describes a model of known dimensions. Fails for a tensor that the architecture needs and `types` lacks.
pub(super) fn describe(
    name: &str,
    architecture: Architecture,
    mut dimensions: Dimensions,
    settings: &Settings<'_>,
    types: &Types<'_>,
) -> Result<ModelShape, ShapeError> {
    let max_context = max_context(settings, &architecture, &dimensions)?;
    let has = |tensor: Tensor| types(tensor.of_model()).is_some();
    let multipliers = multipliers(settings, &architecture, &dimensions)?;
    let ropes = Ropes::read(settings, &architecture, &dimensions, has)?;
    let facts = LayerFacts::read(settings, &architecture, &dimensions)?;
    let tensors = LayerTensors { architecture: &architecture, d: &dimensions, types };
    let head = match types(Tensor::Output.of_model()) {
        Some(ty) => Some(weight_type(Tensor::Output.of_model(), ty)?),
        None => None,
    };
    let embedding = tensors.ty(Tensor::TokenEmbd.of_model())?;
    let mut tables: Vec<RopeTable> = Vec::new();
    let mut layers = Vec::new();
    // The number of layers is not trusted: the loop fails at the first missing tensor.
    for index in 0..dimensions.layers {
        let rope = facts.rotated(index).then(|| {
            let table = if facts.window(index).is_some() { &ropes.local } else { &ropes.global };
            tables.iter().position(|known| known == table).unwrap_or_else(|| {
                tables.push(table.clone());
                tables.len() - 1
            })
        });
        let norms = tensors.norms(index, Tensor::AttnNorm, Tensor::AttnPostNorm);
        let [q, k, v] = tensors.qkv(index)?;
        let attention = Attention {
            norms,
            q,
            k,
            v,
            output: tensors.matrix(index, Tensor::AttnOutput, 0, dimensions.hidden)?,
            qk_norm: tensors.qk_norm(index),
            rope,
            window: facts.window(index),
            scale: facts.scale,
            softcap: facts.softcap,
        };
        layers.push(Layer { attention, feed_forward: tensors.feed_forward(index)? });
    }
    dimensions.context = dimensions.context.min(max_context.unwrap_or(u32::MAX));
    let shape = ModelShape {
        name: name.to_owned(),
        architecture,
        dimensions,
        max_context,
        multipliers,
        ropes: tables,
        embedding,
        head,
        layers,
    };
    Ok(shape)
}

fn multipliers(
    settings: &Settings<'_>,
    architecture: &Architecture,
    d: &Dimensions,
) -> Result<Multipliers, ShapeError> {
    let [mut embedding, mut residual, mut logits] = [1.0; 3];
    if architecture.scaled_embedding {
        embedding = (d.hidden as f32).sqrt();
    }
    if architecture.multipliers {
        embedding = settings.opt_nonzero("embedding_scale")?.unwrap_or(1.0);
        residual = settings.opt_nonzero("residual_scale")?.unwrap_or(1.0);
        logits = 1.0 / settings.opt_nonzero("logit_scale")?.unwrap_or(1.0);
    }
    let softcap = softcap(settings, "final_logit_softcapping", architecture.logit_softcap)?;
    Ok(Multipliers { embedding, residual, logits, softcap })
}

/// Longest context without the temperature of the queries, in positions: the temperature is 1 + scale · ln(1 + ⌊position /
/// original context⌋), which is 1 up to there.
fn max_context(
    settings: &Settings<'_>,
    architecture: &Architecture,
    d: &Dimensions,
) -> Result<Option<u32>, ShapeError> {
    if !architecture.query_temperature || settings.opt_nonzero("attention.temperature_scale")?.is_none() {
        return Ok(None);
    }
    Ok(Some(rope::original_context(settings)?.unwrap_or(d.context)))
}

/// A soft cap: the metadata's, or else the architecture's; 0 for none.
fn softcap(settings: &Settings<'_>, name: &str, default: Option<f32>) -> Result<Option<f32>, ShapeError> {
    match settings.opt_f32(name)? {
        Some(_) => settings.opt_nonzero(name),
        None => Ok(default),
    }
}

/// Facts about layers from attention's metadata.
struct LayerFacts {
    /// Width of the window, and whether each layer has one.
    window: Option<(u32, Vec<bool>)>,
    /// Whether each layer has RoPE.
    rotated: Vec<bool>,
    scale: f32,
    softcap: Option<f32>,
}

impl LayerFacts {
    fn read(
        settings: &Settings<'_>,
        architecture: &Architecture,
        d: &Dimensions,
    ) -> Result<LayerFacts, ShapeError> {
        let period = |period: u32| move |layer: u32| period == 0 || layer % period < period - 1;
        let layers = |has: &dyn Fn(u32) -> bool| (0..d.layers).map(has).collect::<Vec<bool>>();

        let width = settings.opt_u32("attention.sliding_window")?.or(architecture.window);
        let pattern = "attention.sliding_window_pattern";
        let windowed = match settings.layer_flags(pattern, d.layers)? {
            Some(flags) => flags,
            None => match width {
                // An array has been read; a number is the period.
                Some(_) => layers(&period(settings.opt_u32(pattern)?.unwrap_or(architecture.window_period))),
                None => Vec::new(),
            },
        };
        let switched_off =
            architecture.rope_switch && settings.opt_bool("rope.scaling.finetuned")? == Some(false);
        let pattern = "attention.rope_pattern";
        let rotated = match settings.layer_flags(pattern, d.layers)? {
            _ if switched_off => vec![false; d.layers as usize],
            Some(flags) => flags,
            None if settings.has(pattern) => {
                return Err(ShapeError::Unsupported(format!(
                    "metadata key {}: only an array with an element for each layer is supported",
                    settings.key(pattern)
                )));
            }
            None => layers(&|layer| architecture.unrotated_period.is_none_or(|n| period(n)(layer))),
        };
        let wide = architecture.wide_scale_layers == Some(d.layers);
        let usual = AttentionShape::default_scale(if wide { d.hidden / d.heads } else { d.head_dim });
        Ok(LayerFacts {
            window: width.filter(|width| *width > 0).map(|width| (width, windowed)),
            rotated,
            scale: settings.opt_nonzero("attention.scale")?.unwrap_or(usual),
            softcap: softcap(settings, "attn_logit_softcapping", architecture.attention_softcap)?,
        })
    }

    fn window(&self, layer: u32) -> Option<u32> {
        let (width, layers) = self.window.as_ref()?;
        layers[layer as usize].then_some(*width)
    }

    fn rotated(&self, layer: u32) -> bool {
        self.rotated[layer as usize]
    }
}

/// Finds the tensors of layers.
struct LayerTensors<'a> {
    architecture: &'a Architecture,
    d: &'a Dimensions,
    types: &'a Types<'a>,
}

impl LayerTensors<'_> {
    fn ty(&self, name: TensorName) -> Result<crate::weights::WeightType, ShapeError> {
        let found = (self.types)(name).ok_or_else(|| Error::MissingTensor { name: name.to_string() })?;
        weight_type(name, found)
    }

    /// A matrix: `rows` rows of a tensor, and the bias, if there is one.
    fn matrix(&self, layer: u32, tensor: Tensor, first_row: u32, rows: u32) -> Result<Matrix, ShapeError> {
        let name = tensor.of_layer(layer);
        let bias = tensor.bias().map(|bias| bias.of_layer(layer)).filter(|bias| {
            let of_qkv = matches!(tensor, Tensor::AttnQ | Tensor::AttnK | Tensor::AttnV | Tensor::AttnQkv);
            let required = self.architecture.qkv_bias && of_qkv;
            required || (self.types)(*bias).is_some()
        });
        Ok(Matrix { slice: TensorSlice { tensor: name, first_row, rows }, ty: self.ty(name)?, bias })
    }

    /// Queries, keys and values: three tensors, or one.
    fn qkv(&self, layer: u32) -> Result<[Matrix; 3], ShapeError> {
        let (q, kv) = (self.d.q_width(), self.d.kv_width());
        let fused = (self.types)(Tensor::AttnQkv.of_layer(layer)).is_some();
        let [of_q, of_k, of_v] = if fused {
            [(Tensor::AttnQkv, 0), (Tensor::AttnQkv, q), (Tensor::AttnQkv, q + kv)]
        } else {
            [(Tensor::AttnQ, 0), (Tensor::AttnK, 0), (Tensor::AttnV, 0)]
        };
        let matrix = |(tensor, first), rows| self.matrix(layer, tensor, first, rows);
        Ok([matrix(of_q, q)?, matrix(of_k, kv)?, matrix(of_v, kv)?])
    }

    fn qk_norm(&self, layer: u32) -> Option<LayerQkNorm> {
        self.architecture.qk_norm.map(|span| {
            let (q, k) = match span {
                NormSpan::Head => (Tensor::AttnQNorm, Tensor::AttnKNorm),
                NormSpan::Projection => (Tensor::AttnQWideNorm, Tensor::AttnKWideNorm),
            };
            LayerQkNorm { span, q: q.of_layer(layer), k: k.of_layer(layer) }
        })
    }

    fn norms(&self, layer: u32, before: Tensor, after: Tensor) -> Norms {
        let placement = self.architecture.norms;
        Norms {
            before: placement.before.then(|| before.of_layer(layer)),
            after: placement.after.then(|| after.of_layer(layer)),
        }
    }

    fn feed_forward(&self, layer: u32) -> Result<FeedForward, ShapeError> {
        let ffn = self.d.ffn;
        let [gate, up] = if self.architecture.fused_gate_up {
            [(Tensor::FfnGateUp, 0), (Tensor::FfnGateUp, ffn)]
        } else {
            [(Tensor::FfnGate, 0), (Tensor::FfnUp, 0)]
        };
        Ok(FeedForward::Dense {
            norms: self.norms(layer, Tensor::FfnNorm, Tensor::FfnPostNorm),
            activation: self.architecture.activation,
            gate: self.matrix(layer, gate.0, gate.1, ffn)?,
            up: self.matrix(layer, up.0, up.1, ffn)?,
            down: self.matrix(layer, Tensor::FfnDown, 0, self.d.hidden)?,
        })
    }
}

/// Specification of a model without a file: what shape files describe and `bespoke synth` writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Blueprint {
    /// The architecture.
    pub architecture: Architecture,
    /// The dimensions.
    pub dimensions: Dimensions,
    /// RoPE's base frequency.
    pub rope_base: f32,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
    /// Whether the model has tensors that divide RoPE's frequencies (Llama 3.1; Phi-3 for long contexts).
    pub rope_factors: bool,
    /// Type of the embedding, if it differs from the mix's type.
    pub embedding: Option<GgmlType>,
    /// Metadata below the architecture's prefix, in addition to that of a typical model, or instead of it.
    pub settings: Vec<(String, Setting)>,
}

impl Blueprint {
    /// A model with RoPE's usual base, untied, without divisors and with the architecture's typical metadata.
    pub fn new(architecture: Architecture, dimensions: Dimensions) -> Blueprint {
        Blueprint {
            architecture,
            dimensions,
            rope_base: 10_000.0,
            tied: false,
            rope_factors: false,
            embedding: None,
            settings: Vec::new(),
        }
    }

    /// The model of a file with shape `shape`.
    pub fn of(gguf: &Gguf, shape: &ModelShape) -> Result<Blueprint, ShapeError> {
        let prefix = format!("{}.", shape.architecture.name);
        let own = Blueprint::new(shape.architecture, shape.dimensions.clone()).own_settings();
        let mut settings = Vec::new();
        for (key, value) in gguf.metadata() {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            if own.iter().any(|(own, _)| *own == name) || is_harmless(name, value) {
                continue;
            }
            let setting = Setting::of(value).ok_or_else(|| {
                ShapeError::Unsupported(format!(
                    "metadata key {key} is no bool, number or string, and no array of bools"
                ))
            })?;
            settings.push((name.to_owned(), setting));
        }
        let divisors =
            [Tensor::RopeFreqs, Tensor::RopeFactorsLong].map(|tensor| tensor.of_model().to_string());
        Ok(Blueprint {
            architecture: shape.architecture,
            dimensions: shape.dimensions.clone(),
            rope_base: rope::base(&Settings::new(gguf, shape.architecture.name))?,
            tied: shape.head.is_none(),
            embedding: None,
            rope_factors: divisors.iter().any(|name| gguf.tensor(name).is_some()),
            settings,
        })
    }

    /// The keys that fields give, and their values.
    fn own_settings(&self) -> [(&'static str, Setting); 12] {
        let d = &self.dimensions;
        [
            ("context_length", Setting::Integer(d.context)),
            ("embedding_length", Setting::Integer(d.hidden)),
            ("block_count", Setting::Integer(d.layers)),
            ("feed_forward_length", Setting::Integer(d.ffn)),
            ("attention.head_count", Setting::Integer(d.heads)),
            ("attention.head_count_kv", Setting::Integer(d.kv_heads)),
            ("vocab_size", Setting::Integer(d.vocab)),
            ("attention.layer_norm_rms_epsilon", Setting::Float(d.eps)),
            ("rope.freq_base", Setting::Float(self.rope_base)),
            ("rope.dimension_count", Setting::Integer(d.rotated)),
            ("attention.key_length", Setting::Integer(d.head_dim)),
            ("attention.value_length", Setting::Integer(d.head_dim)),
        ]
    }

    /// Writes the hyper-parameters: the keys below the architecture's prefix.
    pub fn metadata(&self, writer: &mut Writer) -> Result<(), Error> {
        let own = self.own_settings();
        let typical = self.architecture.typical.iter();
        let typical = typical.filter(|(key, _)| self.settings.iter().all(|(own, _)| own != key));
        let settings = self.settings.iter().map(|(key, value)| (key.as_str(), value));
        let fields = own.iter().chain(typical).map(|(key, value)| (*key, value));
        for (key, value) in fields.chain(settings) {
            value.write(&format!("{}.{key}", self.architecture.name), writer)?;
        }
        Ok(())
    }

    /// The type of a tensor in a file whose matrices have the types of `mix`.
    pub fn tensor_type(&self, name: TensorName, mix: Mix) -> GgmlType {
        match (name.tensor, self.embedding) {
            (Tensor::TokenEmbd, Some(ty)) => mix::fitting(ty, self.dimensions.hidden),
            _ => mix.tensor_type(name, &self.dimensions, self.tied),
        }
    }

    /// The shape of a model whose matrices have the types of `mix`, as in the files of `llama-quantize` and
    /// `bespoke synth`.
    pub fn shape(&self, name: &str, mix: Mix) -> Result<ModelShape, ShapeError> {
        let (d, architecture) = (&self.dimensions, self.architecture);
        d.check()?;
        let mut writer = Writer::new();
        self.metadata(&mut writer)?;
        let in_memory = |source| Error::Io { path: "metadata".into(), source };
        let header = writer.start(Vec::new()).and_then(|data| data.finish()).map_err(in_memory)?;
        let header = Gguf::from_bytes(header)?;
        let types = |name: TensorName| {
            let has = architecture.has(name.tensor, self.tied, self.rope_factors);
            has.then(|| self.tensor_type(name, mix))
        };
        describe(name, architecture, d.clone(), &Settings::new(&header, architecture.name), &types)
    }
}
