//! A model: metadata and tensors, of one file, of the parts of a split model, or of another source.

use crate::part::Part;
use crate::{Error, TensorData, TensorInfo, Value, Writer, split};
use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::path::Path;

/// An open model. The [crate's documentation](crate) lists what has been checked.
///
/// The parts of a split model are seen as one file.
pub struct Gguf {
    /// The files; the first has the metadata.
    parts: Vec<Part>,
    /// Source of the data of all tensors, if it is not in the files.
    source: Option<Box<dyn TensorSource>>,
    /// Tensors of all parts, in order.
    tensors: Vec<TensorInfo>,
    tensor_index: HashMap<String, usize>,
}

/// Source of tensor data that is not in a GGUF file: data of other formats, or converted data.
pub trait TensorSource: Send + Sync {
    /// Returns the data of a tensor: exactly [`TensorInfo::bytes`] bytes, in GGUF's layout.
    ///
    /// Called when the data is needed, for a tensor more than once. Large data should be computed by all of rayon's
    /// threads, because the caller may ask for one tensor at a time.
    fn data(&self, info: &TensorInfo) -> Result<TensorData<'_>, Box<dyn StdError + Send + Sync>>;
}

impl Gguf {
    /// Opens a file and reads its header. Tensor data is read when it is asked for. All parts of a split model are
    /// opened, whichever is given.
    ///
    /// If a file is truncated while it is open, reading its data fails.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::join(split::open(path.as_ref())?, None)
    }

    /// Reads a file from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        let part = Part::from_bytes(bytes, true)?;
        split::refuse_part(&part)?;
        Self::join(vec![part], None)
    }

    /// Creates a model of the metadata and tensors that `header` declares; `source` has the tensors' data.
    pub fn with_source(header: &Writer, source: impl TensorSource + 'static) -> Result<Self, Error> {
        Self::join(vec![Part::from_bytes(header.header(), false)?], Some(Box::new(source)))
    }

    fn join(mut parts: Vec<Part>, source: Option<Box<dyn TensorSource>>) -> Result<Self, Error> {
        let mut tensors = Vec::new();
        let mut tensor_index = HashMap::new();
        for (index, part) in parts.iter_mut().enumerate() {
            for mut info in std::mem::take(&mut part.tensors) {
                info.part = index;
                if tensor_index.insert(info.name.clone(), tensors.len()).is_some() {
                    let path = part.path().unwrap_or(Path::new("")).to_owned();
                    return Err(Error::TensorInTwoParts { name: info.name, path });
                }
                tensors.push(info);
            }
        }
        Ok(Self { parts, source, tensors, tensor_index })
    }

    /// Version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.parts[0].version
    }

    /// Alignment of tensor data, in bytes.
    pub fn alignment(&self) -> u64 {
        self.parts[0].alignment
    }

    /// Paths of the files, in the order of [`TensorInfo::part`]; none for a model in memory.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter_map(Part::path)
    }

    /// Length in bytes of the file, or of all parts; of the header and the data of a model without a file.
    pub fn file_bytes(&self) -> u64 {
        let files: u64 = self.parts.iter().map(Part::len).sum();
        let made: u64 = self.source.iter().flat_map(|_| &self.tensors).map(|info| info.bytes).sum();
        files + made
    }

    /// Tensors in the order of the directory.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensor_index.get(name).map(|&index| &self.tensors[index])
    }

    /// The tensor called `name`, or an error that says that it is missing.
    pub fn require(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.tensor(name).ok_or_else(|| Error::MissingTensor { name: name.into() })
    }

    /// Data of a tensor as a whole: [`TensorInfo::rows`] rows of blocks. For large tensors, see [`Gguf::tensor_data`].
    ///
    /// # Errors
    /// If the file cannot be read, or the model's [`TensorSource`] fails.
    ///
    /// # Panics
    /// May panic if `info` is from another model.
    pub fn data(&self, info: &TensorInfo) -> Result<Cow<'_, [u8]>, Error> {
        self.tensor_data(info)?.into_bytes()
    }

    /// Data of a tensor, of which pieces can be read: in memory, in the file, or computed by the model's
    /// [`TensorSource`], whose failure is the only error.
    ///
    /// # Panics
    /// [`TensorData::read`] may panic if `info` is from another model.
    pub fn tensor_data(&self, info: &TensorInfo) -> Result<TensorData<'_>, Error> {
        let Some(source) = &self.source else { return Ok(self.parts[info.part].data(info)) };
        let failed = |source| Error::Source { name: info.name.clone(), source };
        let data = source.data(info).map_err(failed)?;
        if data.bytes() == info.bytes {
            Ok(data)
        } else {
            Err(failed(format!("{} bytes of data instead of {}", data.bytes(), info.bytes).into()))
        }
    }

    /// Value of `general.architecture`, such as `llama`.
    pub fn architecture(&self) -> Result<&str, Error> {
        self.str("general.architecture")
    }

    /// All keys with their values, in file order; without the keys that describe the parts of a split model.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.parts[0].metadata().filter(|(key, _)| !split::is_own_key(key))
    }

    /// The value of a key, of any kind.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.parts[0].get(key)
    }

    /// Encoded value of a key, which starts with the kind.
    pub(crate) fn encoded(&self, key: &str) -> Option<&[u8]> {
        self.parts[0].encoded(key)
    }
}
