//! An open file: its checked header, and its mapped or owned bytes.

use crate::cursor::Cursor;
use crate::{DEFAULT_ALIGNMENT, Error, GgmlType, Value};
use memmap2::Mmap;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// An open GGUF file. The [crate's documentation](crate) lists what has been checked.
pub struct Gguf {
    bytes: Bytes,
    version: u32,
    alignment: u64,
    /// Keys in file order, each with the byte range of its encoded value, which starts with the kind.
    keys: Vec<(String, Range<usize>)>,
    key_index: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    tensor_index: HashMap<String, usize>,
}

enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// Entry of the tensor directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the GGUF file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Elements along each dimension, innermost (contiguous) first: `[in, out]` for a weight matrix.
    pub dims: Vec<u64>,
    /// The element type.
    pub ty: GgmlType,
    /// Start of the tensor's data, in bytes from the start of the file.
    pub offset: u64,
    /// Length of the tensor's data, in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of elements per row: the innermost dimension.
    pub fn cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all outer dimensions; 1 for a vector.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }

    /// Number of elements of the tensor.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Creates an entry with offset 0; checks dimensions and byte length.
    pub(crate) fn new(name: &str, dims: Vec<u64>, ty: GgmlType) -> Result<Self, Error> {
        if let Some(index) = dims.iter().position(|&dim| dim == 0) {
            return Err(Error::ZeroDimension { name: name.into(), index });
        }
        let cols = dims.first().copied().unwrap_or(1);
        if !cols.is_multiple_of(ty.block_elements() as u64) {
            return Err(Error::PartialBlock { name: name.into(), cols, ty });
        }
        let bytes = dims
            .iter()
            .try_fold(1u64, |product, &dim| product.checked_mul(dim))
            .and_then(|elements| (elements / ty.block_elements() as u64).checked_mul(ty.block_bytes() as u64))
            .filter(|&bytes| bytes <= isize::MAX as u64);
        match bytes {
            Some(bytes) => Ok(Self { name: name.into(), dims, ty, offset: 0, bytes }),
            None => Err(Error::TooLarge { name: name.into(), dims, ty }),
        }
    }

    /// Reads a directory entry, whose offset is relative to the data section.
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        let name = cursor.string("a tensor's name")?;
        let at = cursor.offset();
        let rank = cursor.u32("a tensor's rank")?;
        if rank > MAX_RANK {
            return Err(Error::Rank { name: name.into(), rank, at });
        }
        let dims = (0..rank).map(|_| cursor.u64("a tensor's dimensions")).collect::<Result<_, _>>()?;
        let at = cursor.offset();
        let number = cursor.u32("a tensor's type")?;
        let ty =
            GgmlType::from_u32(number).ok_or_else(|| Error::UnknownType { name: name.into(), number, at })?;
        let offset = cursor.u64("a tensor's offset")?;
        Ok(Self { offset, ..Self::new(name, dims, ty)? })
    }
}

/// Fixed-size start of a file.
struct Header {
    version: u32,
    tensors: u64,
    keys: u64,
}

impl Header {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        let len = cursor.remaining();
        let magic = cursor.take(4.min(len), "the magic")?;
        if magic != MAGIC {
            return Err(Error::Magic { found: magic.escape_ascii().to_string() });
        }
        let version = cursor.u32("the version")?;
        if version.trailing_zeros() >= 16 && version != 0 {
            return Err(Error::BigEndian { version });
        }
        if !(2..=3).contains(&version) {
            return Err(Error::Version { version });
        }
        let tensors = cursor.u64("the tensor count")?;
        let keys = cursor.u64("the metadata count")?;
        for (what, count, least) in
            [("tensors", tensors, MIN_TENSOR_BYTES), ("metadata keys", keys, MIN_KEY_BYTES)]
        {
            if count > cursor.remaining() / least {
                return Err(Error::Count { what, count, len });
            }
        }
        Ok(Self { version, tensors, keys })
    }
}

/// First four bytes of every GGUF file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
/// Maximum number of dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_RANK: u32 = 4;
/// Minimum bytes of a key and its value: the length of an empty name, a kind, one byte.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
/// Minimum bytes of a tensor's entry: the length of an empty name, rank 0, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

impl Gguf {
    /// Maps a file and reads its header. Tensor data is not read.
    ///
    /// The file must not be changed while it is open.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.into(), source };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: the mapping is read only and private to this value, and the documentation requires that the file
        // is not changed.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Self::parse(Bytes::Mapped(map))
    }

    /// Reads a file from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::parse(Bytes::Owned(bytes))
    }

    fn parse(bytes: Bytes) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes.as_slice());
        let header = Header::read(&mut cursor)?;

        let mut keys = Vec::new();
        let mut key_index = HashMap::new();
        for _ in 0..header.keys {
            let at = cursor.offset();
            let key = cursor.string("a metadata key")?;
            let start = cursor.offset() as usize;
            Value::read(&mut cursor).map_err(Error::in_key(key))?;
            if key_index.insert(key.to_string(), keys.len()).is_some() {
                return Err(Error::DuplicateKey { key: key.into(), at });
            }
            keys.push((key.to_string(), start..cursor.offset() as usize));
        }

        let mut tensors: Vec<TensorInfo> = Vec::new();
        let mut tensor_index = HashMap::new();
        for index in 0..header.tensors {
            let at = cursor.offset();
            let info = TensorInfo::read(&mut cursor).map_err(|error| match error {
                Error::Truncated { .. } | Error::Utf8 { .. } => {
                    Error::InDirectory { index, source: Box::new(error) }
                }
                named => named,
            })?;
            if tensor_index.insert(info.name.clone(), tensors.len()).is_some() {
                return Err(Error::DuplicateTensor { name: info.name, at });
            }
            tensors.push(info);
        }

        let header_end = cursor.offset();
        let version = header.version;
        let mut file = Self { bytes, version, alignment: 0, keys, key_index, tensors, tensor_index };
        file.alignment = file.read_alignment()?;
        file.place_tensors(header_end)?;
        Ok(file)
    }

    fn read_alignment(&self) -> Result<u64, Error> {
        let value = self.opt_u32("general.alignment")?.map_or(DEFAULT_ALIGNMENT, u64::from);
        if value.is_power_of_two() { Ok(value) } else { Err(Error::Alignment { value }) }
    }

    /// Converts tensor offsets to offsets from the start of the file. Checks alignment, the end of the file and
    /// overlaps.
    fn place_tensors(&mut self, header_end: u64) -> Result<(), Error> {
        let data_start = header_end.next_multiple_of(self.alignment);
        let len = self.bytes.as_slice().len() as u64;
        for info in &mut self.tensors {
            let (name, offset) = (&info.name, info.offset);
            if !offset.is_multiple_of(self.alignment) {
                return Err(Error::Misaligned { name: name.clone(), offset, alignment: self.alignment });
            }
            let end = u128::from(data_start) + u128::from(offset) + u128::from(info.bytes);
            if end > u128::from(len) {
                return Err(Error::DataBeyondEnd { name: name.clone(), end, len });
            }
            info.offset += data_start;
        }
        let mut order: Vec<&TensorInfo> = self.tensors.iter().collect();
        order.sort_unstable_by_key(|info| info.offset);
        for pair in order.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.offset + first.bytes > second.offset {
                let (first, at) = (first.name.clone(), second.offset);
                return Err(Error::Overlap { first, second: second.name.clone(), at });
            }
        }
        Ok(())
    }

    /// Version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.bytes.as_slice().len() as u64
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

    /// Data of a tensor: [`TensorInfo::rows`] rows of blocks.
    ///
    /// # Panics
    ///
    /// May panic if `info` is from another file.
    pub fn data(&self, info: &TensorInfo) -> &[u8] {
        &self.bytes.as_slice()[info.offset as usize..][..info.bytes as usize]
    }

    /// Value of `general.architecture`, such as `llama`.
    pub fn architecture(&self) -> Result<&str, Error> {
        self.str("general.architecture")
    }

    /// All keys with their values, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.keys.iter().filter_map(|(key, range)| Some((key.as_str(), self.value(range)?)))
    }

    /// The value of a key, of any kind.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let &index = self.key_index.get(key)?;
        self.value(&self.keys[index].1)
    }

    /// Encoded value of a key, which starts with the kind.
    pub(crate) fn encoded(&self, key: &str) -> Option<&[u8]> {
        let &index = self.key_index.get(key)?;
        Some(&self.bytes.as_slice()[self.keys[index].1.clone()])
    }

    /// Decodes a value that was checked when the file was opened.
    fn value(&self, range: &Range<usize>) -> Option<Value<'_>> {
        Value::read(&mut Cursor::new(&self.bytes.as_slice()[range.clone()])).ok()
    }
}
