//! Products of `wgmma`: one warp's 16 rows of `D = A · B + D`.
//!
//! Floats are added as on Hopper ([`crate::exec::tensor_sum`]). Sums of integers are exact: they wrap, or saturate once, at the end.

use std::cell::Cell;

use crate::exec::element::Element;
use crate::exec::tensor_sum::{Addition, MAX_DEPTH, ROWS, add_products};
use crate::lanes::LANES;

/// Maximum number of columns of `B`.
pub(super) const MAX_COLUMNS: usize = 256;
/// Bytes along K of all types but `.b1`.
pub(super) const DEPTH_BYTES: usize = 32;

/// Matrices of one warp's part; a box, since they are large.
pub(super) struct Matrices {
    /// Columns of `A` by position along K.
    pub(super) a: [[f32; ROWS]; MAX_DEPTH],
    /// Rows of `B` by position along K.
    pub(super) b: [[f32; MAX_COLUMNS]; MAX_DEPTH],
    pub(super) sums: [[f64; MAX_COLUMNS]; ROWS],
}

thread_local! {
    /// Matrices of the thread's last operation, whose memory the next one takes.
    static UNUSED: Cell<Option<Box<Matrices>>> = const { Cell::new(None) };
}

impl Matrices {
    /// Takes the thread's unused matrices, or allocates new ones; their values are unspecified.
    pub(super) fn take() -> Box<Matrices> {
        UNUSED.take().unwrap_or_else(|| {
            Box::new(Matrices {
                a: [[0.0; ROWS]; MAX_DEPTH],
                b: [[0.0; MAX_COLUMNS]; MAX_DEPTH],
                sums: [[0.0; MAX_COLUMNS]; ROWS],
            })
        })
    }

    /// Keeps the memory for this thread's next [`Matrices::take`].
    pub(super) fn put(self: Box<Matrices>) {
        UNUSED.set(Some(self));
    }

    /// Adds the product of the first `depth` columns of `A` and rows of `B`, in the first `columns` columns (a multiple
    /// of 8): floats by an addition, integers exactly.
    #[inline(always)]
    pub(super) fn multiply(&mut self, depth: usize, columns: usize, addition: Option<Addition>) {
        match addition {
            Some(addition) => {
                add_products((&self.a[..depth], &self.b[..depth]), &mut self.sums, columns, addition);
            }
            None => self.multiply_integers(depth, columns),
        }
    }

    /// Products and sums of 32 products of bytes are exact in single precision.
    #[inline(always)]
    fn multiply_integers(&mut self, depth: usize, columns: usize) {
        // Rows and columns of sums that fit into the vector registers of the CPU.
        const HEIGHT: usize = 4;
        const WIDTH: usize = 8;
        for column in (0..columns).step_by(WIDTH) {
            for row in (0..ROWS).step_by(HEIGHT) {
                let mut local = [[0.0f32; WIDTH]; HEIGHT];
                for (a, b) in self.a[..depth].iter().zip(&self.b[..depth]) {
                    let b = &b[column..column + WIDTH];
                    for (local, &a) in local.iter_mut().zip(&a[row..row + HEIGHT]) {
                        for (sum, &b) in local.iter_mut().zip(b) {
                            *sum += a * b;
                        }
                    }
                }
                for (local, sums) in local.iter().zip(&mut self.sums[row..row + HEIGHT]) {
                    for (sum, &products) in sums[column..column + WIDTH].iter_mut().zip(local) {
                        *sum += products as f64;
                    }
                }
            }
        }
    }

    /// Reads `A` from four registers: register `r` of lane `l` has row `l / 4 + 8 · (r mod 2)`, and the 4 bytes of K at
    /// `16 · (r / 2) + 4 · (l mod 4)`.
    pub(super) fn set_a_registers<E: Element>(&mut self, registers: [&[u32; LANES]; 4]) {
        let count = 4 / E::BYTES;
        for (number, values) in registers.into_iter().enumerate() {
            for lane in 0..LANES {
                let row = lane / 4 + 8 * (number % 2);
                let first = (16 * (number / 2) + 4 * (lane % 4)) / E::BYTES;
                for element in 0..count {
                    self.a[first + element][row] = E::value(values[lane] >> (8 * E::BYTES * element));
                }
            }
        }
    }

    /// Sets 16 bytes along K of a row of `A` that start at position `k`.
    #[inline(always)]
    pub(super) fn set_a_chunk<E: Element>(&mut self, row: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.a[k + element][row] = element_of::<E>(chunk, element);
        }
    }

    /// Sets 16 bytes along M of `A` at position `k`, from row `row` on.
    #[inline(always)]
    pub(super) fn set_a_column<E: Element>(&mut self, row: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.a[k][row + element] = element_of::<E>(chunk, element);
        }
    }

    /// Sets 16 bytes along K of a column of `B` that start at position `k`.
    #[inline(always)]
    pub(super) fn set_b_chunk<E: Element>(&mut self, column: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.b[k + element][column] = element_of::<E>(chunk, element);
        }
    }

    /// Sets 16 bytes along N of `B` at position `k`, from column `column` on.
    #[inline(always)]
    pub(super) fn set_b_row<E: Element>(&mut self, column: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.b[k][column + element] = element_of::<E>(chunk, element);
        }
    }
}

/// Element number `index` of 16 bytes.
#[inline(always)]
fn element_of<E: Element>(chunk: &[u8; 16], index: usize) -> f32 {
    let mut bytes = [0; 4];
    bytes[..E::BYTES].copy_from_slice(&chunk[index * E::BYTES..(index + 1) * E::BYTES]);
    E::value(u32::from_le_bytes(bytes))
}
