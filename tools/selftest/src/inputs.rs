//! Random inputs of cases: the same on every machine, with the standard deviations of a model's tensors.

use bespoke_gguf::dequantize;
use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::weights::{Layout, WeightType, repack};
use bespoke_random::blocks;
use bespoke_random::rng::{SplitMix64, stream};
use rayon::prelude::*;

/// Random numbers that depend only on a name.
pub(super) struct Noise {
    seed: u64,
    rng: SplitMix64,
}

impl Noise {
    /// Creates the generator for a name.
    pub fn new(name: &str) -> Noise {
        // FNV-1a, 64 bits.
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Noise { seed, rng: stream(seed, 0, 0) }
    }

    /// `count` values of mean 0 and standard deviation `std`.
    pub fn normal(&mut self, count: usize, std: f32) -> Vec<f32> {
        (0..count).map(|_| self.rng.normal() * std).collect()
    }

    /// `count` values between `low` and `high`.
    pub fn uniform(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| low + (high - low) * self.rng.unit()).collect()
    }

    /// Input of a matrix product: standard deviation 1, with a chunk of zeros and an outlier elsewhere, if there is
    /// room for both, and an outlier in every further 256 columns.
    pub fn activations(&mut self, cols: usize) -> Vec<f32> {
        let mut x = self.normal(cols, 1.0);
        if cols >= 96 {
            x[32..64].fill(0.0);
            x[64] = 20.0;
        }
        x.iter_mut().skip(256 + 64).step_by(256).for_each(|x| *x = 20.0);
        x
    }

    /// `count` random words below `limit`.
    pub fn words(&mut self, count: usize, limit: u32) -> Vec<u32> {
        (0..count).map(|_| (self.rng.bits() % u64::from(limit)) as u32).collect()
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.rng.bits()
    }

    /// A matrix whose values have standard deviation 1/√cols.
    pub fn matrix(&mut self, layout: Layout) -> Matrix {
        let row_bytes = layout.file_row_bytes();
        let mut file = vec![0; row_bytes * layout.rows as usize];
        let (seed, tensor) = (self.seed, self.rng.bits());
        let rows_per_chunk = (1 << 20) / row_bytes.max(1) + 1;
        file.par_chunks_mut(row_bytes * rows_per_chunk).enumerate().for_each(|(chunk, out)| {
            let std = 1.0 / (layout.cols as f32).sqrt();
            blocks::fill(layout.ty.ggml(), 0.0, std, &mut stream(seed, tensor, chunk as u64), out);
        });
        Matrix { layout, file }
    }
}

/// A random weight matrix in the layout of a GGUF file.
pub(super) struct Matrix {
    layout: Layout,
    file: Vec<u8>,
}

impl Matrix {
    /// The weights' type.
    pub fn ty(&self) -> WeightType {
        self.layout.ty
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.layout.rows as usize
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.layout.cols as usize
    }

    /// Writes the matrix, repacked into the device's planes, to the start of `out`.
    pub fn repack_to(&self, out: &mut [u8]) {
        repack(&self.layout, &self.file, &mut out[..self.layout.bytes as usize]);
    }

    /// Dequantises a row from the bytes in the file's layout.
    pub fn row(&self, row: usize) -> Vec<f32> {
        let bytes = self.layout.file_row_bytes();
        let mut values = vec![0.0; self.cols()];
        dequantize(self.layout.ty.ggml(), &self.file[row * bytes..][..bytes], &mut values)
            .expect("a whole row of a type that has kernels");
        values
    }
}

/// Encodes f32 values as bytes.
pub(super) fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Encodes 32-bit words as bytes.
pub(super) fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Encodes the record of a row that chooses a token, of the first sequence: its position, and the length of the prompt.
pub(super) fn state_record(position: u32, prompt: u32) -> Vec<u8> {
    u32s(&Row { position, prompt, chooses: true, ..Row::default() }.words())
}
