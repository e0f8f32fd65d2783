//! Types of a model's weight matrices.

use bespoke_gguf::GgmlType;
use std::fmt;
use std::str::FromStr;

use super::Dimensions;
use super::tensors::{Form, Tensor, TensorName};

/// Error of parsing a [`Mix`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MixError(pub String);

/// Rule that assigns a type to every weight matrix. Names are those of llama.cpp's `llama-quantize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// `q4_k_m`: Q4_K, with Q6_K for the output and half of `attn_v` and `ffn_down`.
    Q4KM,
    /// `q5_k_m`: Q5_K, with Q6_K for the output and half of `attn_v` and `ffn_down`.
    Q5KM,
    /// The same type for all matrices.
    Pure(GgmlType),
}

/// Supported types, with the `general.file_type` of a file whose matrices have this type (`enum llama_ftype`).
const TYPES: [(GgmlType, u32); 16] = [
    (GgmlType::F32, 0),
    (GgmlType::F16, 1),
    (GgmlType::BF16, 32),
    (GgmlType::Q4_0, 2),
    (GgmlType::Q4_1, 3),
    (GgmlType::Q5_0, 8),
    (GgmlType::Q5_1, 9),
    (GgmlType::Q8_0, 7),
    (GgmlType::Q4_K, 14),
    (GgmlType::Q5_K, 16),
    (GgmlType::Q6_K, 18),
    (GgmlType::Q2_K, 21),
    (GgmlType::Q3_K, 11),
    (GgmlType::IQ4_NL, 25),
    (GgmlType::IQ4_XS, 30),
    (GgmlType::MXFP4, 38),
];

/// How much a matrix suffers from few bits; decides its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitivity {
    /// The output matrix, or the embedding that serves as one: always gets more bits.
    Output,
    /// `attn_v` or `ffn_down`: gets more bits in some layers.
    Layer(u32),
    /// `attn_qkv`, which contains `attn_v`: gets one bit more in all layers.
    Qkv,
    /// Any other matrix.
    Normal,
}

impl Sensitivity {
    /// The sensitivity of a tensor, in a model whose embedding is the output matrix if `tied`.
    pub fn of(name: TensorName, tied: bool) -> Sensitivity {
        match (name.tensor, name.layer) {
            (Tensor::Output, _) => Sensitivity::Output,
            (Tensor::TokenEmbd, _) if tied => Sensitivity::Output,
            (Tensor::AttnQkv, _) => Sensitivity::Qkv,
            (Tensor::AttnV | Tensor::FfnDown, Some(layer)) => Sensitivity::Layer(layer),
            _ => Sensitivity::Normal,
        }
    }
}

impl Mix {
    /// The type of a matrix with rows of `cols` elements, in a model of `layers` layers.
    pub fn ty(self, sensitivity: Sensitivity, layers: u32, cols: u32) -> GgmlType {
        let base = match self {
            Mix::Q4KM => GgmlType::Q4_K,
            Mix::Q5KM => GgmlType::Q5_K,
            Mix::Pure(ty) => return fitting(ty, cols),
        };
        let ty = match sensitivity {
            Sensitivity::Output => GgmlType::Q6_K,
            Sensitivity::Layer(layer) if use_more_bits(layer, layers) => GgmlType::Q6_K,
            Sensitivity::Qkv if base == GgmlType::Q4_K => GgmlType::Q5_K,
            Sensitivity::Qkv => GgmlType::Q6_K,
            Sensitivity::Layer(_) | Sensitivity::Normal => base,
        };
        fitting(ty, cols)
    }

    /// The type of a tensor in a model of dimensions `d`: F32 for vectors.
    pub fn tensor_type(self, name: TensorName, d: &Dimensions, tied: bool) -> GgmlType {
        match name.tensor.form() {
            Form::Vector(_) => GgmlType::F32,
            Form::Matrix(_, cols) => self.ty(Sensitivity::of(name, tied), d.layers, cols.of(d)),
        }
    }

    /// The mix with this `general.file_type`.
    pub fn from_file_type(number: u32) -> Option<Mix> {
        let pure = TYPES.iter().map(|(ty, _)| Mix::Pure(*ty));
        [Mix::Q4KM, Mix::Q5KM].into_iter().chain(pure).find(|mix| mix.file_type() == number)
    }

    /// Number of this mix as GGUF's `general.file_type`.
    pub fn file_type(self) -> u32 {
        match self {
            Mix::Q4KM => 15,
            Mix::Q5KM => 17,
            Mix::Pure(ty) => TYPES.iter().find(|(known, _)| *known == ty).map_or(0, |(_, number)| *number),
        }
    }
}

/// Whether a mix can consist of this type.
pub fn supported(ty: GgmlType) -> bool {
    TYPES.iter().any(|(known, _)| *known == ty)
}

/// llama.cpp's rule for layers with more bits: the first and the last eighth, and every third layer between them.
fn use_more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// `ty`, or llama.cpp's fallback type if a row of `cols` elements is not a whole number of `ty`'s blocks.
pub fn fitting(ty: GgmlType, cols: u32) -> GgmlType {
    let fits = |ty: GgmlType| cols.is_multiple_of(ty.block_elements() as u32);
    if fits(ty) {
        return ty;
    }
    let fallback = match ty {
        GgmlType::Q4_K => GgmlType::Q5_0,
        GgmlType::Q5_K => GgmlType::Q5_1,
        GgmlType::Q6_K => GgmlType::Q8_0,
        GgmlType::Q2_K | GgmlType::Q3_K | GgmlType::IQ4_XS => GgmlType::IQ4_NL,
        _ => GgmlType::F16,
    };
    if fits(fallback) { fallback } else { GgmlType::F16 }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mix::Q4KM => f.pad("q4_k_m"),
            Mix::Q5KM => f.pad("q5_k_m"),
            Mix::Pure(ty) => f.pad(&ty.name().to_lowercase()),
        }
    }
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(name: &str) -> Result<Self, MixError> {
        match name.to_lowercase().as_str() {
            "q4_k_m" => return Ok(Mix::Q4KM),
            "q5_k_m" => return Ok(Mix::Q5KM),
            _ => {}
        }
        match name.parse::<GgmlType>() {
            Ok(ty) if supported(ty) => Ok(Mix::Pure(ty)),
            _ => {
                let names = TYPES.map(|(ty, _)| ty.name().to_lowercase()).join(", ");
                Err(MixError(format!("mix `{name}` is not supported (q4_k_m, q5_k_m, {names} are)")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_with_more_bits() {
        let layers = |n| (0..n).filter(|&l| use_more_bits(l, n)).collect::<Vec<_>>();
        // The layers whose attn_v and ffn_down are Q6_K in published Q4_K_M files of these depths.
        assert_eq!(layers(16), [0, 1, 4, 7, 10, 13, 14, 15]);
        assert_eq!(layers(32), [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
        assert_eq!(layers(2), [1]);
    }

    #[test]
    fn fallbacks() {
        use GgmlType::*;
        for (ty, cols, expected) in [
            (Q4_K, 4096, Q4_K),
            (Q4_K, 896, Q5_0),
            (Q5_K, 896, Q5_1),
            (Q6_K, 4864, Q6_K),
            (Q6_K, 896, Q8_0),
            (Q6_K, 100, F16),
            (Q3_K, 896, IQ4_NL),
            (IQ4_XS, 100, F16),
            (Q8_0, 100, F16),
            (F32, 100, F32),
        ] {
            assert_eq!(fitting(ty, cols), expected, "{ty} {cols}");
        }
    }

    #[test]
    fn names_round_trip() {
        for name in ["q4_k_m", "q5_k_m", "q6_k", "bf16", "iq4_xs", "mxfp4"] {
            let mix = name.parse::<Mix>().unwrap();
            assert_eq!(mix.to_string(), name);
            assert_eq!(Mix::from_file_type(mix.file_type()), Some(mix));
        }
        assert_eq!(Mix::from_file_type(1000), None);
        assert!("iq3_s".parse::<Mix>().is_err());
    }
}
