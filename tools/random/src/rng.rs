//! Random number generator, seeded per chunk, so that a file does not depend on the number of threads.

/// SplitMix64 (Steele, Lea and Flood 2014): a counter with step γ, whose values are mixed by Stafford's variant 13.
#[derive(Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in [0, 1) with 24 random bits.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// A number with mean 0 and standard deviation 1: the sum of four uniform ones (Irwin–Hall), close to normal and
    /// limited to ±√12.
    pub fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u32 = (0..4).map(|i| (bits >> (16 * i)) as u32 & 0xffff).sum();
        // Four uniform integers below n have the variance 4·(n² − 1)/12; n = 2^16.
        (sum as f32 - 2.0 * 65535.0) * (1.0 / (65536.0 * 0.577_350_26))
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for word in words {
            *word = self.bits().to_le_bytes();
        }
        rest.copy_from_slice(&self.bits().to_le_bytes()[..rest.len()]);
    }
}

/// The generator of one chunk of one tensor.
pub fn stream(seed: u64, tensor: u64, chunk: u64) -> SplitMix64 {
    SplitMix64(mix(mix(mix(seed) ^ tensor) ^ chunk))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_splitmix64() {
        // The first outputs for the state 1234567, as published with the reference implementation.
        let mut rng = SplitMix64(1_234_567);
        assert_eq!([rng.bits(), rng.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
