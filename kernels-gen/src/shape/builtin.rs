//! Shapes of well-known models: `shapes/*.toml` of this package.

use serde::Deserialize;

use super::{Architecture, Dimensions, Mix, ModelShape, ShapeError};

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
    /// Width of the feed-forward network.
    pub ffn: u32,
    /// Number of tokens in the vocabulary.
    pub vocab: u32,
    /// Longest context that the model was trained for, in positions.
    pub context: u32,
    /// Base frequency of RoPE.
    pub rope_base: f32,
    /// Whether the model has divisors of RoPE's frequencies: `rope_freqs.weight`.
    #[serde(default)]
    pub rope_factors: bool,
    /// ε of the norms.
    pub eps: f32,
    /// Whether the embedding serves as the output matrix.
    #[serde(default)]
    pub tied: bool,
    /// Names of the mixes of weight types that kernels are built for.
    pub mixes: Vec<String>,
}

impl ShapeFile {
    /// The shape whose weights have the types of `mix`. Its name is the model's for the first mix, and `NAME-MIX` for
    /// the others.
    pub fn with_mix(&self, mix: &str) -> Result<ModelShape, ShapeError> {
        let first = self.mixes.first().is_some_and(|first| first == mix);
        let name = if first { self.name.clone() } else { format!("{}-{mix}", self.name) };
        let architecture = Architecture::named(&self.architecture)?;
        ModelShape::from_mix(&name, architecture, self.dimensions(), mix.parse::<Mix>()?, self.tied)
    }

    /// The model's dimensions; RoPE rotates whole heads.
    pub fn dimensions(&self) -> Dimensions {
        Dimensions {
            hidden: self.hidden,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            rotated: self.head_dim,
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
        "qwen2.5-0.5b" "qwen2.5-1.5b" "qwen2.5-7b" "qwen3-0.6b" "qwen3-4b" "qwen3-8b"
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
    fn an_unknown_key_is_named_in_the_error() {
        let error = parse_shape_file("name = 'x'\nhiden = 3").unwrap_err().to_string();
        assert!(error.contains("hiden"), "{error}");
    }
}
