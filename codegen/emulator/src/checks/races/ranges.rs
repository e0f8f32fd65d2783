//! Ranges of memory.

/// Whether two ranges (address and size in bytes) have a byte in common.
pub(super) fn overlap((a, a_bytes): (u64, u64), (b, b_bytes): (u64, u64)) -> bool {
    a < b + b_bytes && b < a + a_bytes
}

/// Ranges of memory: address and size.
pub(super) enum Ranges<'a> {
    One((u64, u64)),
    Parts(&'a [(u64, u64)]),
}

impl Ranges<'_> {
    pub(super) fn as_slice(&self) -> &[(u64, u64)] {
        match self {
            Ranges::One(range) => std::slice::from_ref(range),
            Ranges::Parts(parts) => parts,
        }
    }
}
