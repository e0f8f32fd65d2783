//! Element types of buffers, and conversion of numbers to them.

use half::{bf16, f16};
use serde::Deserialize;

/// Element type of a buffer; little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// 8 bits, unsigned.
    #[default]
    U8,
    /// 16 bits, unsigned.
    U16,
    /// 32 bits, unsigned.
    U32,
    /// 64 bits, unsigned.
    U64,
    /// 8 bits, signed.
    I8,
    /// 16 bits, signed.
    I16,
    /// 32 bits, signed.
    I32,
    /// 64 bits, signed.
    I64,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of binary32.
    Bf16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

/// A number in a TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a number of at most 64 bits")]
pub enum Number {
    /// A number without a decimal point.
    Integer(i64),
    /// A number with a decimal point.
    Float(f64),
}

impl Number {
    /// Converts the number to the nearest f64.
    pub fn value(self) -> f64 {
        match self {
            Number::Integer(integer) => integer as f64,
            Number::Float(float) => float,
        }
    }
}

impl Element {
    /// Size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 | Element::F16 | Element::Bf16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    /// Whether elements are floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }

    /// Encodes a number as an element. Floats are rounded to nearest; negative integers wrap, so that -1 is all ones.
    /// `None` for a fraction if the elements are integers, for an integer that does not fit, and for a finite number
    /// that would be infinite.
    pub fn encode(self, number: Number) -> Option<Vec<u8>> {
        let bytes = match (self, number) {
            (Element::F16, _) => f16::from_f64(number.value()).to_le_bytes().to_vec(),
            (Element::Bf16, _) => bf16::from_f64(number.value()).to_le_bytes().to_vec(),
            (Element::F32, _) => (number.value() as f32).to_le_bytes().to_vec(),
            (Element::F64, _) => number.value().to_le_bytes().to_vec(),
            (_, Number::Integer(integer)) => {
                let bits = 8 * self.bytes() as u32;
                let fits = bits == 64 || (-(1i64 << (bits - 1))..1i64 << bits).contains(&integer);
                fits.then(|| integer.to_le_bytes()[..self.bytes()].to_vec())?
            }
            (_, Number::Float(_)) => return None,
        };
        let overflows = self.is_float() && number.value().is_finite() && !self.decode(&bytes).is_finite();
        (!overflows).then_some(bytes)
    }

    /// Value of an element's bytes; 64-bit integers are rounded to the nearest f64.
    pub fn decode(self, bytes: &[u8]) -> f64 {
        let mut wide = [0u8; 8];
        let count = bytes.len().min(self.bytes());
        wide[..count].copy_from_slice(&bytes[..count]);
        let bits = u64::from_le_bytes(wide);
        match self {
            Element::U8 | Element::U16 | Element::U32 | Element::U64 => bits as f64,
            Element::I8 => f64::from(bits as i8),
            Element::I16 => f64::from(bits as i16),
            Element::I32 => f64::from(bits as i32),
            Element::I64 => bits as i64 as f64,
            Element::F16 => f16::from_bits(bits as u16).to_f64(),
            Element::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Element::F32 => f64::from(f32::from_bits(bits as u32)),
            Element::F64 => f64::from_bits(bits),
        }
    }

    /// Decodes the values of a whole buffer.
    pub fn decode_all(self, bytes: &[u8]) -> Vec<f64> {
        bytes.chunks_exact(self.bytes()).map(|element| self.decode(element)).collect()
    }

    /// The value as a number that [`Element::encode`] accepts: rounded for integer elements.
    pub fn nearest(self, value: f64) -> Number {
        if self.is_float() { Number::Float(value) } else { Number::Integer(value.round() as i64) }
    }
}

/// Numbers in `low .. high` that depend only on the seed: the upper bits of SplitMix64 (Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
pub fn random(seed: u64, count: usize, [low, high]: [f64; 2]) -> impl Iterator<Item = f64> {
    let mut state = seed;
    let next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let fraction = ((bits ^ bits >> 31) >> 11) as f64 / (1u64 << 53) as f64;
        low + fraction * (high - low)
    };
    std::iter::repeat_with(next).take(count)
}

/// Parses pairs of hexadecimal digits; spaces are skipped.
pub fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '_')
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_bytes_and_back() {
        for (element, number, bytes) in [
            (Element::U8, Number::Integer(255), Some(vec![0xff])),
            (Element::U8, Number::Integer(256), None),
            (Element::I8, Number::Integer(-1), Some(vec![0xff])),
            (Element::I16, Number::Integer(-32768), Some(vec![0x00, 0x80])),
            (Element::U32, Number::Float(1.5), None),
            (Element::F32, Number::Integer(1), Some(vec![0, 0, 0x80, 0x3f])),
            (Element::Bf16, Number::Float(1.0), Some(vec![0x80, 0x3f])),
            (Element::U64, Number::Integer(-1), Some(vec![0xff; 8])),
            (Element::F16, Number::Float(70000.0), None),
            (Element::F32, Number::Float(1e39), None),
            (Element::F32, Number::Float(f64::INFINITY), Some(vec![0, 0, 0x80, 0x7f])),
        ] {
            assert_eq!(element.encode(number), bytes, "{element:?} {number:?}");
        }
        for (element, value) in
            [(Element::I8, -1.0), (Element::F16, 0.5), (Element::F64, 1e300), (Element::I64, -7.0)]
        {
            let bytes = element.encode(element.nearest(value)).expect("it fits");
            assert_eq!(element.decode(&bytes), value);
        }
    }

    #[test]
    fn random_numbers_stay_in_their_range_and_repeat() {
        let random = |seed| random(seed, 1000, [-2.0, 3.0]).collect::<Vec<_>>();
        let numbers = random(7);
        assert!(numbers.iter().all(|number| (-2.0..3.0).contains(number)));
        assert_eq!(numbers, random(7));
        assert_ne!(numbers, random(8));
        let mean = numbers.iter().sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.2, "{mean}");
    }

    #[test]
    fn hexadecimal_digits() {
        assert_eq!(hex("00 ff\n7F"), Some(vec![0, 0xff, 0x7f]));
        assert_eq!(hex("0"), None);
        assert_eq!(hex("0g"), None);
    }
}
