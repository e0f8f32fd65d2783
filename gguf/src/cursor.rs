//! Bounds-checked reader of little-endian bytes.

use crate::Error;

/// Position in a file's bytes, or in its first bytes. A read past the end is an error that names `what` was read.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Length of the file in bytes.
    len: u64,
}

impl<'a> Cursor<'a> {
    /// A cursor over a whole file.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::of_prefix(bytes, bytes.len() as u64)
    }

    /// A cursor over the first bytes of a file of `len` bytes.
    pub fn of_prefix(bytes: &'a [u8], len: u64) -> Self {
        Self { bytes, at: 0, len }
    }

    /// Current offset in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.at as u64
    }

    /// Number of unread bytes of the file.
    pub fn remaining(&self) -> u64 {
        self.len - self.at as u64
    }

    /// Reads `count` bytes.
    pub fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], Error> {
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(Error::Truncated { at: self.offset(), what, need: count, len: self.len });
        }
        let start = self.at;
        self.at += count as usize;
        Ok(&self.bytes[start..self.at])
    }

    /// Reads `N` bytes.
    pub fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    /// Reads a `u32`.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.fixed(what).map(u32::from_le_bytes)
    }

    /// Reads a `u64`.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        self.fixed(what).map(u64::from_le_bytes)
    }

    /// Reads a length-prefixed UTF-8 string.
    pub fn string(&mut self, what: &'static str) -> Result<&'a str, Error> {
        let length = self.u64(what)?;
        let at = self.offset();
        std::str::from_utf8(self.take(length, what)?).map_err(|_| Error::Utf8 { at, what })
    }
}
