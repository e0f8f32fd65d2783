//! Boxes of tensors that are copied to or from shared memory.

use crate::tensor_map::swizzled;

/// Bytes that a swizzle moves together.
const CHUNK: u64 = 16;

/// A box of a tensor.
pub(crate) struct Tile {
    pub(crate) parts: Vec<TilePart>,
    /// Chunks of 16 bytes in a row of the swizzle's pattern; 1 without swizzle.
    pub(crate) chunks: u64,
    /// 16 bytes of the elements outside the tensor.
    pub(crate) fill: [u8; 16],
}

/// Contiguous part of the tensor in global memory.
pub(crate) struct TilePart {
    pub(crate) host: *mut u8,
    /// Offset in the box before swizzling.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

// SAFETY: the pointers are to global memory, which all threads of a launch share.
unsafe impl Send for Tile {}
// SAFETY: as above; a tile does not change.
unsafe impl Sync for Tile {}

impl Tile {
    /// Copies the box to shared memory at `address`, whose `bytes` bytes are at `shared`.
    ///
    /// # Safety
    /// The parts' bytes in global memory and the box in shared memory must be allocated.
    pub(super) unsafe fn load(&self, shared: *mut u8, address: u64, bytes: u64) {
        for chunk in 0..bytes / CHUNK {
            // SAFETY: inside the box.
            let to = unsafe { shared.add((chunk * CHUNK) as usize) };
            // SAFETY: as above.
            unsafe { to.copy_from_nonoverlapping(self.fill.as_ptr(), CHUNK as usize) };
        }
        self.pieces(address, |part, from, at, count| {
            let to = shared.wrapping_add((at - address) as usize);
            // SAFETY: a piece is inside its part and, as swizzles do not leave their rows, inside the box.
            unsafe { to.copy_from_nonoverlapping(part.host.wrapping_add(from as usize), count as usize) };
        });
    }

    /// Calls `copy` for the pieces of the box in shared memory at `address`, at host address `shared`, that are in the
    /// tensor: source, target and size.
    pub(super) fn store(&self, shared: *const u8, address: u64, copy: impl Fn(*const u8, *mut u8, usize)) {
        self.pieces(address, |part, to, at, count| {
            let from = shared.wrapping_add((at - address) as usize);
            copy(from, part.host.wrapping_add(to as usize), count as usize);
        });
    }

    /// Calls `each` for the pieces of the parts that stay together: part, offset in the part, address in shared memory and
    /// size.
    pub(crate) fn pieces(&self, address: u64, mut each: impl FnMut(&TilePart, u64, u64, u64)) {
        for part in &self.parts {
            let mut done = 0;
            while done < part.bytes {
                let at = address + part.offset + done;
                let count = match self.chunks {
                    1 => part.bytes,
                    _ => (CHUNK - at % CHUNK).min(part.bytes - done),
                };
                each(part, done, swizzled(at, self.chunks), count);
                done += count;
            }
        }
    }
}
