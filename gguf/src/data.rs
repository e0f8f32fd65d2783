//! Data of a tensor: in memory, or read from a file piece by piece.

use crate::{Error, RandomAccessFile};
use std::borrow::Cow;
use std::ops::Range;

/// Data of a tensor in GGUF's layout.
#[derive(Debug)]
pub struct TensorData<'a>(Storage<'a>);

#[derive(Debug)]
enum Storage<'a> {
    Memory(Cow<'a, [u8]>),
    File { file: &'a RandomAccessFile, offset: u64, bytes: u64 },
}

impl<'a> From<Cow<'a, [u8]>> for TensorData<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Self(Storage::Memory(bytes))
    }
}

impl<'a> From<&'a [u8]> for TensorData<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Storage::Memory(bytes.into()))
    }
}

impl From<Vec<u8>> for TensorData<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Storage::Memory(bytes.into()))
    }
}

impl<'a> TensorData<'a> {
    /// The `bytes` bytes of a file from `offset` on, which are read when they are asked for.
    pub fn in_file(file: &'a RandomAccessFile, offset: u64, bytes: u64) -> Self {
        Self(Storage::File { file, offset, bytes })
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Storage::Memory(bytes) => bytes.len() as u64,
            Storage::File { bytes, .. } => *bytes,
        }
    }

    /// The bytes of a range. They are read into `buffer` if they are in a file; its earlier content is lost.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// # Panics
    /// If the range ends past the end of the data.
    pub fn read<'b>(&'b self, range: Range<u64>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], Error> {
        assert!(
            range.start <= range.end && range.end <= self.bytes(),
            "{range:?} is no range of {} bytes",
            self.bytes()
        );
        match &self.0 {
            Storage::Memory(bytes) => Ok(&bytes[range.start as usize..range.end as usize]),
            Storage::File { file, offset, .. } => {
                buffer.resize((range.end - range.start) as usize, 0);
                file.read_exact_at(offset + range.start, buffer)
                    .map_err(|source| Error::Io { path: file.path().into(), source })?;
                Ok(buffer)
            }
        }
    }

    /// All bytes.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn into_bytes(self) -> Result<Cow<'a, [u8]>, Error> {
        match self.0 {
            Storage::Memory(bytes) => Ok(bytes),
            Storage::File { .. } => {
                let mut buffer = Vec::new();
                self.read(0..self.bytes(), &mut buffer)?;
                Ok(buffer.into())
            }
        }
    }
}
