//! Tensors of a folder in GGUF's names, dimensions and layouts.

use std::collections::{HashMap, HashSet};
use std::error::Error;

use bespoke_gguf::{GgmlType, TensorData, TensorInfo, TensorSource, Writer};
use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::Dtype;

use crate::HfError;
use crate::architecture::Edit;
use crate::config::Config;
use crate::rope::Rope;
use crate::shards::{Shards, Stored};

/// Prefixes of the text model's tensors: of plain models, and of models with vision (`transformers` 4 and 5).
const PREFIXES: [&str; 3] = ["model.", "language_model.model.", "model.language_model."];
/// Parts of tensor names that text generation does not use: vision, and constants of old files.
const IGNORED: [&str; 4] =
    ["vision_tower.", "multi_modal_projector.", "rotary_emb.inv_freq", "vision_model."];

/// Tensors of a folder, converted when their data is asked for.
pub struct Tensors {
    shards: Shards,
    /// In the order of GGUF's directory.
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
}

struct Entry {
    name: String,
    /// Dimensions, innermost first.
    dims: Vec<u64>,
    ty: GgmlType,
    recipe: Recipe,
}

/// How a tensor's data is made.
enum Recipe {
    /// From a tensor of the folder. `half`: index of the half that it is. `heads`: number of heads whose rows are
    /// reordered.
    Stored { tensor: Stored, half: Option<usize>, plus_one: bool, heads: Option<u32> },
    /// Values that are computed from `config.json`.
    Values(Vec<f32>),
}

impl Tensors {
    /// No tensors yet.
    pub fn new(shards: Shards) -> Self {
        Self { shards, entries: Vec::new(), index: HashMap::new() }
    }

    /// Finds every tensor of the architecture. Missing, unused and misshapen tensors are errors.
    pub fn collect(&mut self, config: &Config, rope: &Rope) -> Result<(), HfError> {
        let architecture = config.architecture;
        let embedding = |prefix: &&&str| self.shards.get(&format!("{prefix}embed_tokens.weight")).is_some();
        let prefix = PREFIXES.iter().find(embedding).copied().unwrap_or(PREFIXES[0]);
        let (hidden, vocab) = (u64::from(config.hidden), u64::from(config.vocab));
        let mut used = HashSet::new();

        let from = format!("{prefix}embed_tokens.weight");
        self.take(config, &mut used, from, "token_embd.weight".into(), &[vocab, hidden], Edit::Keep)?;
        for (name, values) in &rope.factors {
            self.push(Entry {
                name: (*name).into(),
                dims: vec![values.len() as u64],
                ty: GgmlType::F32,
                recipe: Recipe::Values(values.clone()),
            });
        }
        for layer in 0..config.layers {
            for row in architecture.layer {
                let rows = config.extent(row.rows);
                let shape: Vec<u64> =
                    [Some(rows), row.cols.map(|cols| config.extent(cols))].into_iter().flatten().collect();
                let (from, to) =
                    (format!("{prefix}layers.{layer}.{}", row.from), format!("blk.{layer}.{}", row.to));
                self.take(
                    config,
                    &mut used,
                    format!("{from}.weight"),
                    format!("{to}.weight"),
                    &shape,
                    row.edit,
                )?;
                let bias = format!("{from}.bias");
                if self.shards.get(&bias).is_some() {
                    self.take(config, &mut used, bias, format!("{to}.bias"), &[rows], row.edit)?;
                }
            }
        }
        let from = format!("{prefix}norm.weight");
        self.take(config, &mut used, from, "output_norm.weight".into(), &[hidden], architecture.output_norm)?;

        let heads = ["lm_head.weight", "language_model.lm_head.weight"];
        let head = heads.into_iter().find(|name| self.shards.get(name).is_some());
        let tied = config.tied.unwrap_or(architecture.tied || head.is_none());
        if !tied {
            let from = head.unwrap_or(heads[0]).to_owned();
            self.take(config, &mut used, from, "output.weight".into(), &[vocab, hidden], Edit::Keep)?;
        }
        let ignored =
            |name: &str| (tied && heads.contains(&name)) || IGNORED.iter().any(|part| name.contains(part));
        if let Some(other) = self.shards.names().find(|name| !used.contains(*name) && !ignored(name)) {
            return Err(HfError::UnusedTensor {
                path: self
                    .shards
                    .get(other)
                    .map(|tensor| self.shards.path(tensor).into())
                    .unwrap_or_default(),
                tensor: other.into(),
                architecture: architecture.class(),
            });
        }
        Ok(())
    }

    /// Adds the tensor `from` of the folder as `name`. `shape`: outermost dimension first, as in the folder.
    fn take(
        &mut self,
        config: &Config,
        used: &mut HashSet<String>,
        from: String,
        name: String,
        shape: &[u64],
        edit: Edit,
    ) -> Result<(), HfError> {
        let Some(tensor) = self.shards.get(&from) else {
            return Err(HfError::MissingTensor { tensor: from });
        };
        let path = || self.shards.path(tensor).to_owned();
        let half = match edit {
            Edit::FirstHalf => Some(0),
            Edit::SecondHalf => Some(1),
            _ => None,
        };
        let mut expected = shape.to_vec();
        expected[0] *= if half.is_some() { 2 } else { 1 };
        if !tensor.shape.iter().map(|&dim| dim as u64).eq(expected.iter().copied()) {
            let found = tensor.shape.clone();
            return Err(HfError::Shape { path: path(), tensor: from, found, expected });
        }
        let Some(stored) = ggml_type(tensor.dtype) else {
            return Err(HfError::Dtype { path: path(), tensor: from, found: tensor.dtype.to_string() });
        };
        // Norms and biases are F32 in GGUF.
        let ty = if shape.len() == 1 { GgmlType::F32 } else { stored };
        let heads = match edit {
            Edit::PairQueries => Some(config.heads),
            Edit::PairKeys => Some(config.kv_heads),
            _ => None,
        };
        let recipe = Recipe::Stored { tensor: tensor.clone(), half, plus_one: edit == Edit::PlusOne, heads };
        used.insert(from);
        self.push(Entry { name, dims: shape.iter().rev().copied().collect(), ty, recipe });
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        self.index.insert(entry.name.clone(), self.entries.len());
        self.entries.push(entry);
    }

    /// Number of tokens: rows of the embedding.
    pub fn vocabulary(&self) -> usize {
        self.entries.first().map_or(0, |embedding| embedding.dims[1] as usize)
    }

    /// `general.file_type`: that of the embedding's type.
    pub fn file_type(&self) -> u32 {
        match self.entries.first().map(|embedding| embedding.ty) {
            Some(GgmlType::F16) => 1,
            Some(GgmlType::BF16) => 32,
            _ => 0,
        }
    }

    /// Writes the directory.
    pub fn declare(&self, header: &mut Writer) -> Result<(), HfError> {
        for entry in &self.entries {
            header.tensor(&entry.name, &entry.dims, entry.ty)?;
        }
        Ok(())
    }
}

impl TensorSource for Tensors {
    fn data(&self, info: &TensorInfo) -> Result<TensorData<'_>, Box<dyn Error + Send + Sync>> {
        let entry =
            self.index.get(&info.name).map(|&index| &self.entries[index]).ok_or("there is no such tensor")?;
        Ok(match &entry.recipe {
            Recipe::Values(values) => bytes_of(values).into(),
            Recipe::Stored { tensor, half, plus_one, heads } => {
                let stored = self.shards.data(tensor, *half);
                let mut data = match (ggml_type(tensor.dtype) == Some(entry.ty)) && !plus_one {
                    true => stored,
                    false => {
                        let mut values = floats(tensor.dtype, &stored.into_bytes()?);
                        if *plus_one {
                            values.iter_mut().for_each(|value| *value += 1.0);
                        }
                        bytes_of(&values).into()
                    }
                };
                if let Some(heads) = *heads {
                    let rows = entry.dims.last().map_or(0, |&rows| rows as usize);
                    data = paired(&data.into_bytes()?, rows, heads as usize).into();
                }
                data
            }
        })
    }
}

/// The GGUF type with the same bytes.
fn ggml_type(dtype: Dtype) -> Option<GgmlType> {
    match dtype {
        Dtype::F32 => Some(GgmlType::F32),
        Dtype::F16 => Some(GgmlType::F16),
        Dtype::BF16 => Some(GgmlType::BF16),
        _ => None,
    }
}

fn floats(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let halves = || bytes.as_chunks::<2>().0.iter().copied();
    match dtype {
        Dtype::F16 => halves().map(|bytes| f16::from_le_bytes(bytes).to_f32()).collect(),
        Dtype::BF16 => halves().map(|bytes| bf16::from_le_bytes(bytes).to_f32()).collect(),
        _ => bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
    }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Reorders the rows of each head so that the pairs that RoPE rotates are adjacent: row `i` of a head's first half and
/// row `i` of its second half become rows `2i` and `2i + 1`. `transformers` stores Llama's Q and K in halves, GGUF in
/// pairs.
fn paired(data: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let row_bytes = data.len() / rows.max(1);
    let head = rows / heads.max(1);
    let mut out = vec![0; data.len()];
    out.par_chunks_mut(row_bytes).enumerate().with_min_len(64).for_each(|(row, to)| {
        let (start, at) = (row / head * head, row % head);
        let from = start + at % 2 * (head / 2) + at / 2;
        to.copy_from_slice(&data[from * row_bytes..][..row_bytes]);
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_paired_within_heads() {
        let rows: Vec<u8> = (0..12).flat_map(|row| [row, 100 + row]).collect();
        let rows = paired(&rows, 12, 2);
        let firsts: Vec<u8> = rows.iter().step_by(2).copied().collect();
        assert_eq!(firsts, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert!(rows.as_chunks::<2>().0.iter().all(|[a, b]| *b == 100 + a));
    }
}
