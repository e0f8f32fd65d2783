//! Safetensors files of a folder: one file, or the shards that an index lists.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use crate::{HfError, json};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The mapped files of a folder, and where each tensor is.
pub struct Shards {
    files: Vec<Shard>,
    tensors: BTreeMap<String, Stored>,
}

struct Shard {
    path: PathBuf,
    map: Mmap,
    /// Start of the data, after the header.
    data: usize,
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub struct Stored {
    file: usize,
    /// Range of bytes in the data of the file.
    range: Range<usize>,
    /// Type of the values.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl Shards {
    /// Maps the files of a folder and reads their headers.
    pub fn open(folder: &Path) -> Result<Self, HfError> {
        let mut shards = Self { files: Vec::new(), tensors: BTreeMap::new() };
        let index = folder.join(INDEX);
        if index.exists() {
            shards.open_indexed(folder, &index)?;
        } else {
            let path = folder.join(SINGLE);
            if !path.exists() {
                let bin = folder.join("pytorch_model.bin").exists()
                    || folder.join("pytorch_model.bin.index.json").exists();
                let hint =
                    if bin { "; weights in pytorch_model.bin are not supported: convert them" } else { "" };
                return Err(HfError::NoWeights { path: folder.into(), hint });
            }
            let (file, stored) = Shard::open(path)?;
            shards.files.push(file);
            shards.tensors.extend(stored);
        }
        Ok(shards)
    }

    /// Opens the files that the index lists. Tensors that it does not list are not read.
    fn open_indexed(&mut self, folder: &Path, index: &Path) -> Result<(), HfError> {
        let file = json::read(index)?;
        let document = file.root();
        let map = document.object("weight_map")?;
        let map = document.required("weight_map", map)?;
        let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tensor, file) in map.entries() {
            let file = file.as_str().ok_or_else(|| map.fault(tensor, "expected the name of a file"))?;
            files.entry(file.to_owned()).or_default().push(tensor.clone());
        }
        for (name, tensors) in files {
            let mut components = Path::new(&name).components();
            if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
                let tensor = tensors[0].clone();
                return Err(HfError::Outside { path: index.into(), tensor, file: name });
            }
            let (file, mut stored) = Shard::open(folder.join(&name))?;
            for tensor in tensors {
                let Some(found) = stored.remove(&tensor) else {
                    return Err(HfError::NotInShard { path: index.into(), tensor, file: name });
                };
                self.tensors.insert(tensor, Stored { file: self.files.len(), ..found });
            }
            self.files.push(file);
        }
        Ok(())
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Stored> {
        self.tensors.get(name)
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of a tensor.
    pub fn data(&self, tensor: &Stored) -> &[u8] {
        let file = &self.files[tensor.file];
        &file.map[file.data..][tensor.range.clone()]
    }

    /// Path of the file that has a tensor.
    pub fn path(&self, tensor: &Stored) -> &Path {
        &self.files[tensor.file].path
    }
}

impl Shard {
    /// Maps a file and reads its header, which the crate checks: the size of the header, its JSON, and that the tensors
    /// fill the rest of the file without gaps.
    fn open(path: PathBuf) -> Result<(Self, BTreeMap<String, Stored>), HfError> {
        let io = |source| HfError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        // SAFETY: the mapping is read only and private to this value, and the documentation of `open` requires that
        // the file is not changed.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let fault = |error: safetensors::SafeTensorError| {
            use safetensors::SafeTensorError as E;
            let fault = match error {
                E::HeaderTooSmall | E::InvalidHeaderLength => {
                    format!("the header is longer than the file's {} bytes (truncated download?)", map.len())
                }
                E::MetadataIncompleteBuffer => {
                    format!("the tensors do not end at the file's {} bytes (truncated download?)", map.len())
                }
                other => other.to_string(),
            };
            HfError::Shard { path: path.clone(), fault }
        };
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(fault)?;
        let stored = |info: &safetensors::tensor::TensorInfo| Stored {
            file: 0,
            range: info.data_offsets.0..info.data_offsets.1,
            dtype: info.dtype,
            shape: info.shape.clone(),
        };
        let tensors = metadata.tensors().into_iter().map(|(name, info)| (name, stored(info))).collect();
        // The header follows its own length, a u64.
        Ok((Self { path, map, data: header + 8 }, tensors))
    }
}
