//! Quantises model files: converts every matrix of a float file to the type that a [`Mix`] assigns.
//!
//! As in llama.cpp, some matrices get more bits than others (see [`Mix`]), and vectors (norms, biases) are unchanged.
//! The rest of the file is kept: hyper-parameters, tokenizer, the order of tensors.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};

use bespoke_gguf::dequant::QUANTIZATION_VERSION;
use bespoke_gguf::{
    GgmlType, Gguf, TensorData, TensorInfo, TensorSource, Writer, check_finite, dequantize, quantize,
};
use bespoke_kernels::shape::Mix;
use bespoke_kernels::shape::mix::Sensitivity;
use bespoke_kernels::shape::tensors::{Tensor, TensorName};
use rayon::prelude::*;

/// A file with the type of each tensor after quantisation.
pub struct Quantization<'a> {
    gguf: &'a Gguf,
    header: Writer,
    /// Type of every tensor, in the file's order.
    types: Vec<GgmlType>,
    /// Matrices that got another type than the mix gives them: that type and theirs, with their number.
    fallbacks: BTreeMap<(GgmlType, GgmlType), usize>,
}

/// Error of quantisation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// The file is incomplete, or has a value that a block cannot represent.
    #[error("{}{source}", .tensor.as_ref().map_or(String::new(), |name| format!("tensor {name}: ")))]
    Gguf {
        /// The tensor, if the error concerns one.
        tensor: Option<String>,
        /// The cause.
        source: bespoke_gguf::Error,
    },
    /// A matrix is already quantised.
    #[error("tensor {tensor} is already {ty}; quantising it again would increase its error")]
    Quantized {
        /// Name of the tensor.
        tensor: String,
        /// Type of the tensor.
        ty: GgmlType,
    },
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<bespoke_gguf::Error> for QuantizeError {
    fn from(source: bespoke_gguf::Error) -> Self {
        QuantizeError::Gguf { tensor: None, source }
    }
}

/// Metadata that is not copied from the source file.
const OWN_KEYS: [&str; 3] = ["general.file_type", "general.quantization_version", "general.alignment"];

/// Elements of a row that is a whole number of blocks of every type.
const ANY_TYPE: u32 = 256;

/// Number of elements that a thread converts at once: whole blocks of every type.
const CHUNK: usize = 1 << 16;
/// Number of chunks that are converted in parallel before they are written.
const BATCH: usize = 64;

impl<'a> Quantization<'a> {
    /// Chooses a type for every tensor. Quantised matrices are refused unless `again` is set.
    pub fn new(gguf: &'a Gguf, mix: Mix, again: bool) -> Result<Self, QuantizeError> {
        let layers = gguf.u32(&format!("{}.block_count", gguf.architecture()?))?;
        let tied = gguf.tensor(&Tensor::Output.of_model().to_string()).is_none();
        let mut header = Writer::new();
        for (key, _) in gguf.metadata().filter(|(key, _)| !OWN_KEYS.contains(key)) {
            header.copy(gguf, key)?;
        }
        header.set("general.file_type", mix.file_type())?;
        header.set("general.quantization_version", QUANTIZATION_VERSION)?;
        let mut types = Vec::new();
        let mut fallbacks = BTreeMap::new();
        let sensitivity = |name: &str| match name.parse::<TensorName>() {
            Ok(name) => Sensitivity::of(name, tied),
            Err(_) => Sensitivity::Normal,
        };
        for info in gguf.tensors() {
            let ty = match u32::try_from(info.cols()) {
                Ok(cols) if info.dims.len() > 1 => {
                    let ty_of = |cols| mix.ty(sensitivity(&info.name), layers, cols);
                    let (wanted, ty) = (ty_of(ANY_TYPE), ty_of(cols));
                    if ty != wanted {
                        *fallbacks.entry((wanted, ty)).or_default() += 1;
                    }
                    ty
                }
                _ => info.ty,
            };
            if ty != info.ty && !again && !matches!(info.ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16) {
                return Err(QuantizeError::Quantized { tensor: info.name.clone(), ty: info.ty });
            }
            header.tensor(&info.name, &info.dims, ty)?;
            types.push(ty);
        }
        Ok(Quantization { gguf, header, types, fallbacks })
    }

    /// Matrices whose rows are not whole blocks of the type that the mix gives them: that type, the type that they get,
    /// and their number.
    pub fn fallbacks(&self) -> BTreeMap<(GgmlType, GgmlType), usize> {
        self.fallbacks.clone()
    }

    /// Every tensor, with the type after quantisation.
    pub fn tensors(&self) -> impl Iterator<Item = (&TensorInfo, GgmlType)> {
        self.gguf.tensors().iter().zip(self.types.iter().copied())
    }

    /// Number of tensors of each new type.
    pub fn counts(&self) -> BTreeMap<GgmlType, usize> {
        let mut counts = BTreeMap::new();
        for ty in &self.types {
            *counts.entry(*ty).or_default() += 1;
        }
        counts
    }

    /// Returns a small file as bytes.
    pub fn to_bytes(self) -> Result<Vec<u8>, QuantizeError> {
        self.write(Vec::new(), &|_, _| ())
    }

    /// Writes the file to `out` and returns `out`. `progress` is called with the bytes read and their total.
    pub fn write<W: Write>(self, out: W, progress: &dyn Fn(u64, u64)) -> Result<W, QuantizeError> {
        let total = self.gguf.tensors().iter().map(|info| info.bytes).sum();
        let mut done = 0;
        let mut buffer = Vec::new();
        let mut data = self.header.start(out)?;
        for (info, &ty) in self.gguf.tensors().iter().zip(&self.types) {
            let from = self.gguf.tensor_data(info)?;
            for start in (0..info.bytes).step_by(step(info.ty) * BATCH) {
                let end = info.bytes.min(start + (step(info.ty) * BATCH) as u64);
                let batch = from.read(start..end, &mut buffer)?;
                if ty == info.ty {
                    check_finite(info, start, batch)?;
                    data.write(batch)?;
                } else {
                    let in_tensor = |source| QuantizeError::Gguf { tensor: Some(info.name.clone()), source };
                    data.write(&converted(info.ty, ty, batch).map_err(in_tensor)?)?;
                }
                done += batch.len() as u64;
                progress(done, total);
            }
        }
        Ok(data.finish()?)
    }
}

/// Quantises a model while it is loaded: each tensor is converted when its data is asked for. Quantised matrices are
/// refused.
pub fn on_load(gguf: Gguf, mix: Mix) -> Result<Gguf, QuantizeError> {
    let Quantization { header, .. } = Quantization::new(&gguf, mix, false)?;
    Ok(Gguf::with_source(&header, OnLoad(gguf))?)
}

/// A float model as the source of a quantised one.
struct OnLoad(Gguf);

impl TensorSource for OnLoad {
    fn data(&self, info: &TensorInfo) -> Result<TensorData<'_>, Box<dyn Error + Send + Sync>> {
        let float = self.0.require(&info.name)?;
        let data = self.0.tensor_data(float)?;
        if info.ty == float.ty {
            return Ok(data);
        }
        Ok(converted(float.ty, info.ty, &data.into_bytes()?)?.into())
    }
}

/// Bytes of [`CHUNK`] elements.
fn step(ty: GgmlType) -> usize {
    CHUNK / ty.block_elements() * ty.block_bytes()
}

/// Converts blocks of one type to another with all threads. Rows and chunks are whole blocks of both types.
fn converted(from: GgmlType, to: GgmlType, bytes: &[u8]) -> Result<Vec<u8>, bespoke_gguf::Error> {
    let mut out = vec![
        0;
        bytes.len() / from.block_bytes() * from.block_elements() / to.block_elements()
            * to.block_bytes()
    ];
    bytes.par_chunks(step(from)).zip(out.par_chunks_mut(step(to))).try_for_each(|(bytes, out)| {
        let mut values = vec![0.0; bytes.len() / from.block_bytes() * from.block_elements()];
        dequantize(from, bytes, &mut values)?;
        quantize(to, &values, out)
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use bespoke_kernels::shape::{Dimensions, ModelShape};
    use bespoke_synth::{self as synth, SynthSpec, TINY};

    use super::*;

    fn synthetic(mix: Mix, tied: bool) -> Gguf {
        synthetic_of("llama", mix, tied)
    }

    fn synthetic_of(architecture: &str, mix: Mix, tied: bool) -> Gguf {
        let spec = SynthSpec {
            architecture: architecture.parse().unwrap(),
            mix,
            tied,
            dimensions: Dimensions { layers: 9, ffn: 256, vocab: 300, ..TINY },
            ..SynthSpec::default()
        };
        Gguf::from_bytes(synth::to_bytes(&spec).unwrap()).unwrap()
    }

    #[test]
    fn types_are_those_of_the_mix() {
        for (architecture, tied) in [("llama", false), ("llama", true), ("phi3", false), ("olmo2", false)] {
            let float = synthetic_of(architecture, Mix::Pure(GgmlType::F32), tied);
            for mix in [Mix::Q4KM, Mix::Q5KM, Mix::Pure(GgmlType::Q8_0), Mix::Pure(GgmlType::F16)] {
                let made = Quantization::new(&float, mix, false).unwrap().to_bytes().unwrap();
                let made = Gguf::from_bytes(made).unwrap();
                let expected =
                    ModelShape::from_gguf(&synthetic_of(architecture, mix, tied), "model").unwrap();
                assert_eq!(ModelShape::from_gguf(&made, "model").unwrap(), expected, "{mix}");
                assert_eq!(made.u32("general.file_type").unwrap(), mix.file_type());
                // Everything but the types of matrices is unchanged.
                let kept = |file: &Gguf| {
                    let metadata = file.metadata().filter(|(key, _)| !OWN_KEYS.contains(key));
                    metadata.map(|(key, value)| format!("{key} {value:?}")).collect::<Vec<_>>()
                };
                assert_eq!(kept(&made), kept(&float));
                assert_eq!(
                    made.strings("tokenizer.ggml.tokens").unwrap(),
                    float.strings("tokenizer.ggml.tokens").unwrap()
                );
                let norm =
                    |file: &Gguf| file.data(file.require("output_norm.weight").unwrap()).unwrap().to_vec();
                assert_eq!(norm(&made), norm(&float));
            }
        }
    }

    #[test]
    fn values_are_close_and_in_order() {
        let float = synthetic(Mix::Pure(GgmlType::F32), false);
        let made = Quantization::new(&float, Mix::Q4KM, false).unwrap().to_bytes().unwrap();
        let made = Gguf::from_bytes(made).unwrap();
        for (info, quantized) in float.tensors().iter().zip(made.tensors()) {
            assert_eq!((&info.name, &info.dims), (&quantized.name, &quantized.dims));
            let values = |file: &Gguf, info: &TensorInfo| {
                let mut values = vec![0.0; info.elements() as usize];
                dequantize(info.ty, &file.data(info).unwrap(), &mut values).unwrap();
                values
            };
            let (a, b) = (values(&float, info), values(&made, quantized));
            let energy: f32 = a.iter().map(|x| x * x).sum();
            let lost: f32 = a.iter().zip(&b).map(|(x, y)| (x - y) * (x - y)).sum();
            assert!(lost < 0.006 * energy, "{}: {lost} of {energy}", info.name);
        }
    }

    #[test]
    fn quantising_on_load_gives_the_bytes_of_the_file() {
        let float = || synthetic(Mix::Pure(GgmlType::F32), false);
        let file = Quantization::new(&float(), Mix::Q4KM, false).unwrap().to_bytes().unwrap();
        let (file, loaded) = (Gguf::from_bytes(file).unwrap(), on_load(float(), Mix::Q4KM).unwrap());
        for (a, b) in file.tensors().iter().zip(loaded.tensors()) {
            assert_eq!((&a.name, a.ty, &a.dims, a.bytes), (&b.name, b.ty, &b.dims, b.bytes));
            assert!(file.data(a).unwrap() == loaded.data(b).unwrap(), "{}", a.name);
        }
        let quantized = on_load(synthetic(Mix::Pure(GgmlType::Q8_0), false), Mix::Q4KM).err().unwrap();
        assert!(quantized.to_string().contains("is already Q8_0"), "{quantized}");
    }

    #[test]
    fn quantised_matrices_are_refused_by_default() {
        let rounded = synthetic(Mix::Pure(GgmlType::Q8_0), false);
        let error = Quantization::new(&rounded, Mix::Q4KM, false).err().unwrap();
        assert_eq!(
            error.to_string(),
            "tensor token_embd.weight is already Q8_0; quantising it again would increase its error"
        );
        let again = Quantization::new(&rounded, Mix::Q4KM, true).unwrap().to_bytes().unwrap();
        assert!(Gguf::from_bytes(again).is_ok());
        // A file without a change is not an error.
        assert!(Quantization::new(&rounded, Mix::Pure(GgmlType::Q8_0), false).is_ok());
    }

    #[test]
    fn an_unrepresentable_value_is_an_error_that_names_the_tensor() {
        let mut bytes =
            synth::to_bytes(&SynthSpec { mix: Mix::Pure(GgmlType::F32), ..SynthSpec::default() }).unwrap();
        let info = Gguf::from_bytes(bytes.clone()).unwrap().require("blk.1.attn_k.weight").unwrap().clone();
        bytes[info.offset as usize..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        let file = Gguf::from_bytes(bytes).unwrap();
        let error = Quantization::new(&file, Mix::Q4KM, false).unwrap().to_bytes().err().unwrap();
        assert_eq!(error.to_string(), "tensor blk.1.attn_k.weight: NaN cannot be written as Q4_K");
    }
}
