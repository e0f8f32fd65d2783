//! RoPE: base frequencies and scaling, as keys and as tensors of divisors.
//!
//! `transformers` 5 has them in `rope_parameters`, earlier versions in `rope_theta` and `rope_scaling`.

use bespoke_gguf::Writer;

use crate::HfError;
use crate::config::Config;
use crate::json::Document;

/// RoPE of a model.
pub struct Rope {
    /// Number of elements of a head that are rotated.
    dims: u32,
    base: f64,
    /// Base of layers with a sliding window, if they have their own.
    local_base: Option<f64>,
    scaling: Scaling,
    /// Growth of the queries' temperature behind the original context (Ministral 3).
    temperature: Option<f64>,
    /// Divisors of the frequencies: names of tensors with their values.
    pub factors: Vec<(&'static str, Vec<f32>)>,
}

/// Scaling that GGUF describes by keys.
enum Scaling {
    None,
    Linear {
        factor: f64,
    },
    Yarn {
        factor: f64,
        original: u32,
        optional: Vec<(&'static str, f64)>,
    },
    /// Long and short factors, which multiply sines and cosines by `magnitude`; none for a model with a short context.
    Longrope {
        original: u32,
        magnitude: Option<f64>,
    },
}

/// YaRN's optional parameters, with their keys in GGUF.
const YARN: [(&str, &str); 3] = [
    ("attention_factor", "yarn_attn_factor"),
    ("beta_fast", "yarn_beta_fast"),
    ("beta_slow", "yarn_beta_slow"),
];

impl Rope {
    /// Reads RoPE's parameters.
    pub fn read(config: &Config) -> Result<Self, HfError> {
        let document = config.document();
        let all = match document.object("rope_parameters")? {
            Some(parameters) => Some(parameters),
            None => document.object("rope_scaling")?,
        };
        let inner = |key| all.as_ref().map_or(Ok(None), |all| all.object(key));
        let local = inner("sliding_attention")?;
        let parameters = inner("full_attention")?.or_else(|| all.clone()).unwrap_or_else(|| document.clone());
        let default_base = match config.architecture.name {
            "gemma3" => 1e6,
            "ernie4_5" => 5e5,
            _ => 1e4,
        };
        let base = parameters.f64("rope_theta")?.or(document.f64("rope_theta")?).unwrap_or(default_base);
        let local_base = match &local {
            Some(local) => local.f64("rope_theta")?,
            None => document.f64("rope_local_base_freq")?,
        };
        let nested: Vec<&Document<'_>> = [local.as_ref(), all.as_ref()].into_iter().flatten().collect();
        let share = rotated_share(config, &parameters, &nested)?;
        let mut rope = Self {
            dims: (f64::from(config.head_dim) * share) as u32,
            base,
            local_base,
            scaling: Scaling::None,
            temperature: parameters.f64("llama_4_scaling_beta")?.filter(|&scale| scale != 0.0),
            factors: Vec::new(),
        };
        if let Some(parameters) = all.as_ref().map(|_| &parameters) {
            rope.read_scaling(config, parameters)?;
        }
        if config.architecture.name == "phi3" && matches!(rope.scaling, Scaling::None) {
            let original = original_context(config, &parameters)?.unwrap_or(config.context);
            rope.scaling = Scaling::Longrope { original, magnitude: None };
        }
        Ok(rope)
    }

    fn read_scaling(&mut self, config: &Config, parameters: &Document<'_>) -> Result<(), HfError> {
        let ty = match parameters.str("rope_type")? {
            Some(ty) => Some(ty),
            None => parameters.str("type")?,
        };
        let factor = || {
            let factor = parameters.f64("factor")?;
            parameters.required("factor", factor)
        };
        match ty {
            None | Some("default") => {}
            Some("linear") => self.scaling = Scaling::Linear { factor: factor()? },
            Some("llama3") => self.factors.push(("rope_freqs.weight", self.llama3(config, parameters)?)),
            Some("yarn") => {
                let mut optional: Vec<(&str, f64)> = Vec::new();
                for (from, to) in YARN {
                    if let Some(value) = parameters.f64(from)? {
                        optional.push((to, value));
                    }
                }
                let scales = (parameters.f64("mscale")?, parameters.f64("mscale_all_dim")?);
                if let (Some(mscale), Some(of_all)) = scales
                    && mscale != 0.0
                    && of_all != 0.0
                    && parameters.get("attention_factor").is_none()
                {
                    if mscale != 1.0 {
                        return Err(parameters.fault("mscale", "only 1 is supported"));
                    }
                    optional.push(("yarn_log_multiplier", of_all));
                }
                let original = original_context(config, parameters)?.unwrap_or(config.context);
                self.scaling = Scaling::Yarn { factor: factor()?, original, optional };
            }
            Some("longrope" | "su") if config.architecture.name == "phi3" => {
                self.longrope(config, parameters)?
            }
            Some(other) => {
                let fault = format!(
                    "{other} is not supported for {}: default, linear, llama3 and yarn are",
                    config.architecture.class()
                );
                return Err(parameters.fault("rope_type", fault));
            }
        }
        Ok(())
    }

    /// Divisors of Llama 3.1's scaling: wavelengths beyond `old / low` are scaled by `factor`, those below `old / high`
    /// are not, and those between are interpolated (`_compute_llama3_parameters` of `transformers`).
    fn llama3(&self, config: &Config, parameters: &Document<'_>) -> Result<Vec<f32>, HfError> {
        let value = |key: &str, default: f64| Ok::<_, HfError>(parameters.f64(key)?.unwrap_or(default));
        let (factor, low, high) =
            (value("factor", 8.0)?, value("low_freq_factor", 1.0)?, value("high_freq_factor", 4.0)?);
        let old = f64::from(original_context(config, parameters)?.unwrap_or(8192));
        let divisor = |pair: u32| {
            let frequency = self.base.powf(-f64::from(2 * pair) / f64::from(self.dims));
            let wavelength = 2.0 * std::f64::consts::PI / frequency;
            if wavelength < old / high {
                1.0
            } else if wavelength > old / low {
                factor
            } else {
                let smooth = (old / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        Ok((0..self.dims / 2).map(|pair| divisor(pair) as f32).collect())
    }

    /// Phi-3's factors for contexts up to the original length and beyond it.
    fn longrope(&mut self, config: &Config, parameters: &Document<'_>) -> Result<(), HfError> {
        let original = original_context(config, parameters)?;
        let original = config.document().required("original_max_position_embeddings", original)?;
        for (key, name) in
            [("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")]
        {
            let factors = parameters.f64s(key)?;
            let factors = parameters.required(key, factors)?;
            if factors.len() as u32 != self.dims / 2 {
                let fault = format!("{} values for {} rotated pairs", factors.len(), self.dims / 2);
                return Err(parameters.fault(key, fault));
            }
            self.factors.push((name, factors.iter().map(|&factor| factor as f32).collect()));
        }
        let scale = f64::from(config.context) / f64::from(original);
        let magnitude = match parameters.f64("attention_factor")? {
            Some(magnitude) => magnitude,
            None if scale > 1.0 => (1.0 + scale.ln() / f64::from(original).ln()).sqrt(),
            None => 1.0,
        };
        self.scaling = Scaling::Longrope { original, magnitude: Some(magnitude) };
        Ok(())
    }

    /// Writes the keys.
    pub fn write(&self, config: &Config, header: &mut Writer) -> Result<(), HfError> {
        let key = |name: &str| config.key(&format!("rope.{name}"));
        header.set(&key("dimension_count"), self.dims)?;
        header.set(&key("freq_base"), self.base as f32)?;
        if let Some(base) = self.local_base {
            header.set(&key("freq_base_swa"), base as f32)?;
        }
        if let Some(scale) = self.temperature {
            header.set(&config.key("attention.temperature_scale"), scale as f32)?;
        }
        match &self.scaling {
            Scaling::None => {}
            Scaling::Linear { factor } => {
                header.set(&key("scaling.type"), "linear")?;
                header.set(&key("scaling.factor"), *factor as f32)?;
            }
            Scaling::Yarn { factor, original, optional } => {
                header.set(&key("scaling.type"), "yarn")?;
                header.set(&key("scaling.factor"), *factor as f32)?;
                header.set(&key("scaling.original_context_length"), *original)?;
                for (name, value) in optional {
                    header.set(&key(&format!("scaling.{name}")), *value as f32)?;
                }
            }
            Scaling::Longrope { original, magnitude } => {
                header.set(&key("scaling.original_context_length"), *original)?;
                if let Some(magnitude) = magnitude {
                    header.set(&key("scaling.attn_factor"), *magnitude as f32)?;
                }
            }
        }
        Ok(())
    }
}

/// Share of a head's elements that are rotated. Only phi3 may have another than 1: the pairs of llama's heads are reordered as a
/// whole, and other architectures were not tried. `others` are further places where a folder may have the key, after `parameters` and the
/// document itself.
fn rotated_share(
    config: &Config,
    parameters: &Document<'_>,
    others: &[&Document<'_>],
) -> Result<f64, HfError> {
    const KEY: &str = "partial_rotary_factor";
    let document = config.document();
    let mut found = None;
    for &place in [parameters, &document].iter().chain(others) {
        let Some(share) = place.f64(KEY)? else { continue };
        if config.architecture.name != "phi3" && share != 1.0 {
            return Err(place.fault(KEY, "only 1 is supported"));
        }
        if !(share > 0.0 && share <= 1.0) {
            return Err(place.fault(KEY, "must be above 0 and at most 1"));
        }
        // The first place counts.
        found.get_or_insert(share);
    }
    Ok(found.unwrap_or(1.0))
}

/// Context length of the training before it was extended.
fn original_context(config: &Config, parameters: &Document<'_>) -> Result<Option<u32>, HfError> {
    let key = "original_max_position_embeddings";
    match parameters.u32(key)? {
        Some(original) => Ok(Some(original)),
        None => config.document().u32(key),
    }
}
