//! Matrix descriptors: where the elements of an operand are in shared memory.
//!
//! An operand is made of core matrices of eight rows of 16 bytes. A row is contiguous along K, or along M or N for a
//! transposed operand. The 64 bits of a descriptor (PTX ISA, "Matrix Descriptor Format") have, in units of 16 bytes, the
//! start address (bits 0 to 13), the leading dimension's byte offset (16 to 29) and the stride dimension's (32 to 45); the
//! base offset (49 to 51); and the swizzle (62 and 63).

use crate::asynchronous::CHUNK;

/// Rows of a core matrix.
const CORE_ROWS: u64 = 8;
/// Bytes of the 14-bit address fields.
const ADDRESS_SPACE: u64 = 1 << 18;

/// A decoded matrix descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    /// Address in the cluster's shared memory.
    start: u64,
    leading: u64,
    stride: u64,
    base_offset: u64,
    /// Chunks of 16 bytes in a row of the swizzle pattern: 1 without swizzle, 2, 4 or 8.
    width: u64,
}

impl Descriptor {
    /// Decodes the descriptor of a matrix in the CTA whose shared memory starts at `base`.
    pub(super) fn new(bits: u64, base: u64) -> Descriptor {
        let field = |low: u32| (bits >> low & 0x3fff) << 4;
        let width = match bits >> 62 {
            0 => 1,
            1 => 8,
            2 => 4,
            _ => 2,
        };
        Descriptor {
            start: base + (field(0).wrapping_sub(base) & (ADDRESS_SPACE - 1)),
            leading: field(16),
            stride: field(32),
            base_offset: bits >> 49 & 7,
            width,
        }
    }

    /// Address of a chunk: 16 bytes along K of row (or column of `B`) `row`; `chunk` counts chunks along K.
    pub(super) fn along_k(&self, row: u64, chunk: u64) -> u64 {
        let between = if self.width == 1 { self.leading } else { CHUNK };
        let row_bytes = self.width * CHUNK;
        self.swizzled(row % CORE_ROWS * row_bytes + row / CORE_ROWS * self.stride + chunk * between)
    }

    /// Address of a chunk of a transposed operand: 16 bytes along M or N at position `k`; `chunk` counts chunks along M
    /// or N.
    pub(super) fn along_rows(&self, k: u64, chunk: u64) -> u64 {
        let (in_row, row) = (chunk % self.width, chunk / self.width);
        // Without swizzle, the offsets of the leading and of the stride dimension are exchanged.
        let (between_rows, between_cores) =
            if self.width == 1 { (self.stride, self.leading) } else { (self.leading, self.stride) };
        let row_bytes = self.width * CHUNK;
        let core = k % CORE_ROWS * row_bytes + k / CORE_ROWS * between_cores;
        self.swizzled(core + in_row * CHUNK + row * between_rows)
    }

    /// Address of an offset: the chunk's number in its row is combined by exclusive or with the row's number in the
    /// pattern, which repeats every eight rows of 128 bytes.
    fn swizzled(&self, offset: u64) -> u64 {
        let address = self.start + offset;
        let row = (address >> 7).wrapping_sub(self.base_offset);
        address ^ (row & (self.width - 1)) << 4
    }
}

#[cfg(test)]
mod tests {
    use super::Descriptor;

    fn descriptor(start: u64, leading: u64, stride: u64, swizzle: u64) -> Descriptor {
        Descriptor::new(start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62, 0)
    }

    #[test]
    fn chunks_are_where_the_canonical_layouts_have_them() {
        // (descriptor, [(row, chunk, address)] along K).
        let plain = descriptor(0x400, 128, 256, 0);
        let wide = descriptor(0x400, 0, 1024, 1);
        let half = descriptor(0x400, 0, 512, 2);
        let quarter = descriptor(0x400, 0, 256, 3);
        for (layout, row, chunk, address) in [
            (plain, 0, 0, 0x400),
            (plain, 7, 0, 0x470),
            (plain, 0, 1, 0x480),
            (plain, 8, 1, 0x580),
            (wide, 0, 1, 0x410),
            (wide, 1, 0, 0x490),
            (wide, 3, 1, 0x5a0),
            (wide, 9, 0, 0x890),
            (half, 1, 0, 0x440),
            (half, 2, 0, 0x490),
            (half, 7, 1, 0x5e0),
            (quarter, 3, 0, 0x460),
            (quarter, 4, 0, 0x490),
            (quarter, 8, 1, 0x510),
        ] {
            assert_eq!(layout.along_k(row, chunk), address, "{layout:?} row {row}, chunk {chunk}");
        }
        let transposed = descriptor(0x400, 2048, 1024, 1);
        for (k, chunk, address) in [(0, 0, 0x400), (1, 0, 0x490), (1, 1, 0x480), (8, 7, 0x870), (3, 9, 0xda0)]
        {
            assert_eq!(transposed.along_rows(k, chunk), address, "k {k}, chunk {chunk}");
        }
        let transposed = descriptor(0x400, 256, 128, 0);
        for (k, chunk, address) in [(0, 1, 0x480), (3, 0, 0x430), (8, 0, 0x500), (9, 2, 0x610)] {
            assert_eq!(transposed.along_rows(k, chunk), address, "k {k}, chunk {chunk}");
        }
    }

    #[test]
    fn addresses_wrap_into_the_shared_memory_of_the_cta() {
        let base = 0x48400;
        let bits = (base & 0x3ffff) >> 4;
        assert_eq!(Descriptor::new(bits, base).along_k(0, 0), base);
        assert_eq!(Descriptor::new(((base + 0x100) & 0x3ffff) >> 4, base).along_k(0, 0), base + 0x100);
    }

    #[test]
    fn a_pattern_may_start_off_its_alignment() {
        // The pattern starts at 0x480: the row at 0x480 is the first.
        let bits = 0x480 >> 4 | 1024 >> 4 << 32 | 1 << 49 | 1 << 62;
        let layout = Descriptor::new(bits, 0);
        assert_eq!([layout.along_k(0, 1), layout.along_k(1, 0), layout.along_k(7, 0)], [0x490, 0x510, 0x870]);
    }
}
