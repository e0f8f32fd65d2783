//! One file: its checked header, and the place of its data.

use crate::cursor::Cursor;
use crate::getters;
use crate::{DEFAULT_ALIGNMENT, Error, RandomAccessFile, TensorData, TensorInfo, Value};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

/// A checked file: a whole model, one part of a split model, or only the header of a model whose data is elsewhere.
pub(crate) struct Part {
    /// The header; of a file in memory, the whole file.
    bytes: Vec<u8>,
    /// The file that has the data; `None` for bytes in memory.
    file: Option<RandomAccessFile>,
    pub version: u32,
    pub alignment: u64,
    /// Keys in file order, each with the byte range of its encoded value, which starts with the kind.
    keys: Vec<(String, Range<usize>)>,
    key_index: HashMap<String, usize>,
    /// Tensors in the order of the directory.
    pub tensors: Vec<TensorInfo>,
    /// Length of the header in bytes.
    header: u64,
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
/// Minimum bytes of a key and its value: the length of an empty name, a kind, one byte.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
/// Minimum bytes of a tensor's entry: the length of an empty name, rank 0, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// Number of bytes that are read first; headers with a large vocabulary need more.
const FIRST_READ: u64 = 1 << 20;

impl Part {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io { path: path.into(), source };
        let file = RandomAccessFile::open(path).map_err(io)?;
        let mut bytes = Vec::new();
        let mut wanted = FIRST_READ;
        loop {
            let start = bytes.len();
            bytes.resize(wanted.min(file.len()) as usize, 0);
            file.read_exact_at(start as u64, &mut bytes[start..]).map_err(io)?;
            match Self::parse(bytes, file.len(), true) {
                Ok(part) => return Ok(Self { file: Some(file), ..part.without_data() }),
                Err((error, read)) if error.needs_more_than(read.len() as u64) => {
                    bytes = read;
                    wanted = wanted.saturating_mul(4);
                }
                Err((error, _)) => return Err(error),
            }
        }
    }

    /// Reads a file from memory. `has_data`: whether the tensors' data follows the header.
    pub fn from_bytes(bytes: Vec<u8>, has_data: bool) -> Result<Self, Error> {
        let len = bytes.len() as u64;
        Self::parse(bytes, len, has_data).map_err(|(error, _)| error)
    }

    /// Keeps the header alone.
    fn without_data(mut self) -> Self {
        self.bytes.truncate(self.header as usize);
        self.bytes.shrink_to_fit();
        self
    }

    /// Parses the header in the first bytes of a file of `len` bytes. An error comes with the bytes.
    fn parse(bytes: Vec<u8>, len: u64, has_data: bool) -> Result<Self, (Error, Vec<u8>)> {
        let mut part = match Self::parse_header(&bytes, len) {
            Ok(part) => part,
            Err(error) => return Err((error, bytes)),
        };
        part.bytes = bytes;
        let placed = part.read_alignment().and_then(|alignment| {
            part.alignment = alignment;
            if has_data { part.place_tensors(len) } else { Ok(()) }
        });
        match placed {
            Ok(()) => Ok(part),
            Err(error) => Err((error, part.bytes)),
        }
    }

    /// Parses the header; alignment and offsets are not read yet.
    fn parse_header(bytes: &[u8], len: u64) -> Result<Self, Error> {
        let mut cursor = Cursor::of_prefix(bytes, len);
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
        let mut names = HashSet::new();
        for index in 0..header.tensors {
            let at = cursor.offset();
            let info = TensorInfo::read(&mut cursor).map_err(|error| match error {
                Error::Truncated { .. } | Error::Utf8 { .. } => {
                    Error::InDirectory { index, source: Box::new(error) }
                }
                named => named,
            })?;
            if !names.insert(info.name.clone()) {
                return Err(Error::DuplicateTensor { name: info.name, at });
            }
            tensors.push(info);
        }

        Ok(Self {
            bytes: Vec::new(),
            file: None,
            version: header.version,
            alignment: DEFAULT_ALIGNMENT,
            keys,
            key_index,
            tensors,
            header: cursor.offset(),
        })
    }

    fn read_alignment(&self) -> Result<u64, Error> {
        let value = self.opt_u32("general.alignment")?.map_or(DEFAULT_ALIGNMENT, u64::from);
        if value.is_power_of_two() { Ok(value) } else { Err(Error::Alignment { value }) }
    }

    /// Converts tensor offsets to offsets from the start of the file. Checks alignment, the end of the file and
    /// overlaps.
    fn place_tensors(&mut self, len: u64) -> Result<(), Error> {
        let data_start = self.header.next_multiple_of(self.alignment);
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

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.file.as_ref().map_or(self.bytes.len() as u64, RandomAccessFile::len)
    }

    /// Path of the file; `None` for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(RandomAccessFile::path)
    }

    /// Data of one of this file's tensors.
    pub fn data(&self, info: &TensorInfo) -> TensorData<'_> {
        match &self.file {
            Some(file) => TensorData::in_file(file, info.offset, info.bytes),
            None => self.bytes[info.offset as usize..][..info.bytes as usize].into(),
        }
    }

    /// Keys with their values, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.keys.iter().filter_map(|(key, range)| Some((key.as_str(), self.value(range)?)))
    }

    /// The value of a key, of any kind.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let &index = self.key_index.get(key)?;
        self.value(&self.keys[index].1)
    }

    /// The integer of any kind at a key, that fits `u32`; `None` if the key is missing.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, Error> {
        getters::opt_u32(self.get(key), key)
    }

    /// Encoded value of a key, which starts with the kind.
    pub fn encoded(&self, key: &str) -> Option<&[u8]> {
        let &index = self.key_index.get(key)?;
        Some(&self.bytes[self.keys[index].1.clone()])
    }

    /// Decodes a value that was checked when the file was opened.
    fn value(&self, range: &Range<usize>) -> Option<Value<'_>> {
        Value::read(&mut Cursor::new(&self.bytes[range.clone()])).ok()
    }
}
