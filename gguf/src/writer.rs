//! Writing of files: the header from memory, then tensor data as a stream.
//!
//! ```
//! use bespoke_gguf::{Gguf, GgmlType, Writer};
//!
//! let mut writer = Writer::new();
//! writer.set("general.architecture", "llama")?;
//! writer.set_array("tokenizer.ggml.tokens", &["a", "b"])?;
//! writer.tensor("token_embd.weight", &[4, 2], GgmlType::F32)?;
//!
//! let mut data = writer.start(Vec::new())?;
//! data.write(&[0; 32])?; // any number of pieces, in the order of the tensors
//! let file = Gguf::from_bytes(data.finish()?)?;
//! assert_eq!(file.strings("tokenizer.ggml.tokens")?, ["a", "b"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::part::MAGIC;
use crate::{DEFAULT_ALIGNMENT, Error, GgmlType, Gguf, Kind, TensorInfo};
use std::collections::HashSet;
use std::io::{self, Write};

/// Metadata value other than an array.
pub trait Scalar {
    /// Kind of the value.
    fn kind(&self) -> Kind;
    /// Appends the encoded value.
    fn encode(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($ty:ty => $kind:ident;)*) => {$(
        impl Scalar for $ty {
            fn kind(&self) -> Kind {
                Kind::$kind
            }
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )*};
}

numbers! {
    u8 => U8; i8 => I8; u16 => U16; i16 => I16; u32 => U32; i32 => I32; f32 => F32; u64 => U64; i64 => I64; f64 => F64;
}

impl Scalar for bool {
    fn kind(&self) -> Kind {
        Kind::Bool
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Scalar for str {
    fn kind(&self) -> Kind {
        Kind::String
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.len() as u64).to_le_bytes());
        out.extend(self.as_bytes());
    }
}

impl Scalar for String {
    fn kind(&self) -> Kind {
        Kind::String
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode(out);
    }
}

impl<T: Scalar + ?Sized> Scalar for &T {
    fn kind(&self) -> Kind {
        (**self).kind()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

/// Builder of a file's metadata and tensor directory; [`start`](Self::start) writes them.
#[derive(Default)]
pub struct Writer {
    keys: HashSet<String>,
    metadata: Vec<u8>,
    names: HashSet<String>,
    tensors: Vec<TensorInfo>,
    /// Offset of the next tensor in the data section, in bytes.
    next_offset: u64,
}

impl Writer {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a metadata key. Setting a key twice is an error.
    pub fn set(&mut self, key: &str, value: impl Scalar) -> Result<(), Error> {
        self.key(key)?;
        self.metadata.extend((value.kind() as u32).to_le_bytes());
        value.encode(&mut self.metadata);
        Ok(())
    }

    /// Sets a metadata key to an array. An empty array is written as an array of `u8`.
    pub fn set_array<T: Scalar>(&mut self, key: &str, values: &[T]) -> Result<(), Error> {
        self.key(key)?;
        let kind = values.first().map_or(Kind::U8, Scalar::kind);
        self.metadata.extend((Kind::Array as u32).to_le_bytes());
        self.metadata.extend((kind as u32).to_le_bytes());
        self.metadata.extend((values.len() as u64).to_le_bytes());
        for value in values {
            value.encode(&mut self.metadata);
        }
        Ok(())
    }

    /// Whether a metadata key is set.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Copies a metadata key from `file`.
    pub fn copy(&mut self, file: &Gguf, key: &str) -> Result<(), Error> {
        let encoded = file.encoded(key).ok_or_else(|| Error::MissingKey { key: key.into() })?;
        self.key(key)?;
        self.metadata.extend(encoded);
        Ok(())
    }

    fn key(&mut self, key: &str) -> Result<(), Error> {
        if !self.keys.insert(key.into()) {
            return Err(Error::DuplicateKey { key: key.into(), at: self.metadata.len() as u64 });
        }
        key.encode(&mut self.metadata);
        Ok(())
    }

    /// Appends a tensor to the directory, dimensions innermost first. Data is written later, in the same order.
    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: GgmlType) -> Result<(), Error> {
        let info = TensorInfo { offset: self.next_offset, ..TensorInfo::new(name, dims.to_vec(), ty)? };
        let end = info.offset.checked_add(info.bytes);
        let Some(next) = end.and_then(|end| end.checked_next_multiple_of(DEFAULT_ALIGNMENT)) else {
            return Err(Error::TooLarge { name: info.name, dims: info.dims, ty });
        };
        if !self.names.insert(name.into()) {
            return Err(Error::DuplicateTensor { name: name.into(), at: info.offset });
        }
        self.next_offset = next;
        self.tensors.push(info);
        Ok(())
    }

    /// The tensors so far, with offsets relative to the data section.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Length of the complete file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.header().len() as u64 + self.next_offset
    }

    /// The encoded header, padded to the start of the data.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.metadata.len() + 128 * self.tensors.len() + 64);
        out.extend(MAGIC);
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        out.extend(&self.metadata);
        for info in &self.tensors {
            info.name.encode(&mut out);
            out.extend((info.dims.len() as u32).to_le_bytes());
            for dim in &info.dims {
                out.extend(dim.to_le_bytes());
            }
            out.extend(info.ty.number().to_le_bytes());
            out.extend(info.offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
        out
    }

    /// Writes the header to `out` and returns the writer of the tensors' data.
    pub fn start<W: Write>(self, mut out: W) -> io::Result<DataWriter<W>> {
        out.write_all(&self.header())?;
        Ok(DataWriter { out, tensors: self.tensors, current: 0, written: 0 })
    }
}

/// Writer of the tensors' data, in the order of the directory and in pieces of any size.
pub struct DataWriter<W: Write> {
    out: W,
    tensors: Vec<TensorInfo>,
    /// Index of the first incomplete tensor.
    current: usize,
    /// Bytes written since the start of the data section.
    written: u64,
}

impl<W: Write> DataWriter<W> {
    /// The tensor whose data is written next, and the number of its missing bytes; `None` when all data is written.
    pub fn next(&self) -> Option<(&TensorInfo, u64)> {
        let info = self.tensors.get(self.current)?;
        Some((info, info.offset + info.bytes - self.written))
    }

    /// Appends data. A piece must not extend into the next tensor.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        let missing = self.next().map_or(0, |(_, missing)| missing);
        if piece.len() as u64 > missing {
            let tensor = self.next().map_or("after the last tensor".into(), |(info, _)| info.name.clone());
            let message = format!("{tensor}: {} bytes of data, but only {missing} are missing", piece.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.out.write_all(piece)?;
        self.written += piece.len() as u64;
        if piece.len() as u64 == missing {
            self.current += 1;
            self.pad()?;
        }
        Ok(())
    }

    /// Writes padding up to the alignment of tensor data.
    fn pad(&mut self) -> io::Result<()> {
        let padding = self.written.next_multiple_of(DEFAULT_ALIGNMENT) - self.written;
        self.out.write_all(&[0; DEFAULT_ALIGNMENT as usize][..padding as usize])?;
        self.written += padding;
        Ok(())
    }

    /// Flushes and returns the output. Missing data is an error.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some((info, missing)) = self.next() {
            let message = format!("{}: {missing} bytes of data are missing", info.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.out.flush()?;
        Ok(self.out)
    }
}
