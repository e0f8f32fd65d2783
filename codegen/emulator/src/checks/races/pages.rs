//! Tables by page of global memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::pieces::LINE;

/// Global memory is looked at in pieces of this many bytes.
pub(super) const PAGE: u64 = 4096;
/// Lines of a page.
pub(super) const LINES: u64 = PAGE / LINE;

/// A table by number of a page, or by address: numbers of the emulator's own making, which need no protection from
/// whoever would choose them badly.
pub(super) type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<Mixer>>;

/// A hash of one number.
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
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
