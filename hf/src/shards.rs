//! Safetensors files of a folder: one file, or the shards that an index lists.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use bespoke_gguf::{RandomAccessFile, TensorData};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::{HfError, json};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Bytes of the header's size, before the header.
const SIZE_BYTES: u64 = 8;
/// Largest header that is read: the limit of the safetensors crate.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The files of a folder, and where each tensor is.
pub struct Shards {
    files: Vec<Shard>,
    tensors: BTreeMap<String, Stored>,
}

struct Shard {
    file: RandomAccessFile,
    /// Start of the data, after the header.
    data: u64,
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
    /// Opens the files of a folder and reads their headers.
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

    /// Data of a tensor, or of its first or second half, in its file.
    pub fn data(&self, tensor: &Stored, half: Option<usize>) -> TensorData<'_> {
        let Shard { file, data } = &self.files[tensor.file];
        let (start, bytes) = (data + tensor.range.start as u64, tensor.range.len() as u64);
        match half {
            Some(half) => TensorData::in_file(file, start + half as u64 * (bytes / 2), bytes / 2),
            None => TensorData::in_file(file, start, bytes),
        }
    }

    /// Path of the file that has a tensor.
    pub fn path(&self, tensor: &Stored) -> &Path {
        self.files[tensor.file].file.path()
    }
}

impl Shard {
    /// Opens a file and reads its header: its size as a u64, then JSON, of which the crate checks that the tensors follow
    /// each other without gaps.
    fn open(path: PathBuf) -> Result<(Self, BTreeMap<String, Stored>), HfError> {
        let io = |source| HfError::Io { path: path.clone(), source };
        let file = RandomAccessFile::open(&path).map_err(io)?;
        let len = file.len();
        let fault = |fault: String| HfError::Shard { path: path.clone(), fault };
        let mut size = [0; SIZE_BYTES as usize];
        if len >= SIZE_BYTES {
            file.read_exact_at(0, &mut size).map_err(io)?;
        }
        let size = u64::from_le_bytes(size);
        if len < SIZE_BYTES || size > len - SIZE_BYTES {
            return Err(fault(format!(
                "the header is longer than the file's {len} bytes (truncated download?)"
            )));
        }
        if size > MAX_HEADER_BYTES {
            return Err(fault(format!("a header of {size} bytes; at most {MAX_HEADER_BYTES} are read")));
        }
        let mut header = vec![0; size as usize];
        file.read_exact_at(SIZE_BYTES, &mut header).map_err(io)?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| fault(format!("invalid header: {error}")))?;
        let data = SIZE_BYTES + size;
        if metadata.data_len() as u64 != len - data {
            return Err(fault(format!(
                "the tensors do not end at the file's {len} bytes (truncated download?)"
            )));
        }
        let stored = |info: &safetensors::tensor::TensorInfo| Stored {
            file: 0,
            range: info.data_offsets.0..info.data_offsets.1,
            dtype: info.dtype,
            shape: info.shape.clone(),
        };
        let tensors = metadata.tensors().into_iter().map(|(name, info)| (name, stored(info))).collect();
        Ok((Self { file, data }, tensors))
    }
}
