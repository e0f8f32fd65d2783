//! Tables by page of global memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::unit::BLOCK;

/// Bytes of a page, the unit of global memory by which shadow memory is allocated.
pub(super) const PAGE: u64 = 4096;
/// Number of blocks per page.
pub(super) const BLOCKS: u64 = PAGE / BLOCK;

/// A table by the number of a page or block. The emulator chooses the addresses, so the hash need not resist an attacker.
pub(crate) type PageMap<T> = HashMap<u64, T, BuildHasherDefault<PageHasher>>;

/// A fast hash of one number.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte as u64));
    }

    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
