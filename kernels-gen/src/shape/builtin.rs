//! Shapes of well-known models: `shapes/*.toml` of this package.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Architecture, Blueprint, Dimensions, Mix, MixError, ModelShape, Setting, ShapeError};

/// Contents of a shape file: one model and one or more mixes of types.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeFile {
    /// The model's name, in lower case with dashes.
    pub name: String,
    /// GGUF's `general.architecture`.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Number of layers.
    pub layers: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key heads, and of value heads.
    pub kv_heads: u32,
    /// Number of elements per head.
    pub head_dim: u32,
    /// Number of elements per head that RoPE rotates; all by default.
    pub rotated: Option<u32>,
    /// Width of the feed-forward network.
    pub ffn: u32,
    /// Number of tokens in the vocabulary.
    pub vocab: u32,
    /// Longest context that the model was trained for, in positions.
    pub context: u32,
    /// Base frequency of RoPE.
    pub rope_base: f32,
    /// Whether the model has tensors that divide RoPE's frequencies, as Llama 3.1's `rope_freqs.weight`.
    #[serde(default)]
    pub rope_factors: bool,
    /// ε of the norms.
    pub eps: f32,
    /// Whether the embedding serves as the output matrix.
    #[serde(default)]
    pub tied: bool,
    /// Metadata below the architecture's prefix, such as `"attention.sliding_window" = 4096`; by default that of a
    /// typical model.
    #[serde(default)]
    pub settings: BTreeMap<String, Setting>,
    /// Type of the embedding, if it differs from the mix's, such as `q8_0`.
    pub embedding: Option<String>,
    /// Names of the mixes of weight types that kernels are built for.
    pub mixes: Vec<String>,
}

impl ShapeFile {
    /// The shape whose weights have the types of `mix`. Its name is the model's for the first mix, and `NAME-MIX` for
    /// the others.
    pub fn with_mix(&self, mix: &str) -> Result<ModelShape, ShapeError> {
        let first = self.mixes.first().is_some_and(|first| first == mix);
        let name = if first { self.name.clone() } else { format!("{}-{mix}", self.name) };
        self.blueprint()?.shape(&name, mix.parse::<Mix>()?)
    }

    /// The model without the types of its weights.
    pub fn blueprint(&self) -> Result<Blueprint, ShapeError> {
        let embedding = match &self.embedding {
            Some(name) => Some(name.parse().map_err(|error| MixError(format!("embedding: {error}")))?),
            None => None,
        };
        Ok(Blueprint {
            architecture: Architecture::named(&self.architecture)?,
            dimensions: self.dimensions(),
            rope_base: self.rope_base,
            tied: self.tied,
            rope_factors: self.rope_factors,
            embedding,
            settings: self.settings.clone().into_iter().collect(),
        })
    }

    /// The model's dimensions.
    pub fn dimensions(&self) -> Dimensions {
        Dimensions {
            hidden: self.hidden,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            rotated: self.rotated.unwrap_or(self.head_dim),
            ffn: self.ffn,
            vocab: self.vocab,
            context: self.context,
            eps: self.eps,
        }
    }

    /// One shape per mix of the file.
    pub fn shapes(&self) -> Result<Vec<ModelShape>, ShapeError> {
        self.mixes.iter().map(|mix| self.with_mix(mix)).collect()
    }
}

/// Parses the text of a shape file.
pub fn parse_shape_file(text: &str) -> Result<ShapeFile, ShapeError> {
    Ok(toml::from_str(text)?)
}

macro_rules! files {
    ($($name:literal)*) => {
        &[$(include_str!(concat!("../../shapes/", $name, ".toml"))),*]
    };
}

/// The built-in shape files.
pub fn builtin() -> Vec<ShapeFile> {
    let files: &[&str] = files!(
        "llama-3.1-8b" "llama-3.2-1b" "llama-3.2-3b" "mistral-7b" "tinyllama-1.1b"
        "qwen2.5-0.5b" "qwen2.5-1.5b" "qwen2.5-7b" "qwen3-0.6b" "qwen3-4b" "qwen3-8b" "smollm2-135m"
    );
    files.iter().map(|text| parse_shape_file(text).expect("built-in shape files are valid")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_shape_is_valid() {
        for file in builtin() {
            for shape in file.shapes().unwrap() {
                shape.dimensions.check().unwrap();
            }
        }
    }

    #[test]
    fn a_shape_file_may_name_any_architecture_and_its_settings() {
        let text = r#"
            name = "gemma"
            architecture = "gemma2"
            hidden = 2304
            layers = 26
            heads = 8
            kv_heads = 4
            head_dim = 256
            ffn = 9216
            vocab = 256000
            context = 8192
            rope_base = 10000.0
            eps = 1e-06
            tied = true
            mixes = ["q4_k_m"]
            [settings]
            "attention.sliding_window" = 1024
            "final_logit_softcapping" = 20.0
        "#;
        let shape = parse_shape_file(text).unwrap().with_mix("q4_k_m").unwrap();
        assert_eq!(shape.layers[2].attention.window, Some(1024));
        assert_eq!((shape.layers[1].attention.window, shape.multipliers.softcap), (None, Some(20.0)));
        let error =
            parse_shape_file(&text.replace("gemma2", "gemma9")).unwrap().with_mix("q8_0").unwrap_err();
        assert!(error.to_string().contains("`gemma9` is not supported"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_named_in_the_error() {
        let error = parse_shape_file("name = 'x'\nhiden = 3").unwrap_err().to_string();
        assert!(error.contains("hiden"), "{error}");
    }
}
