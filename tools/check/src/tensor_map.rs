//! Tensor maps as arguments of a launch file.

use bespoke_emulator::{Interleave, Swizzle, TensorMap, TensorType};
use serde::Deserialize;

use super::values::Element;

/// A tensor map, with the arguments of `cuTensorMapEncodeTiled` (CUDA Driver API). Dimension 0 is contiguous.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorArgument {
    /// Name of the buffer that has the tensor.
    pub tensor: String,
    /// Offset of the tensor from the start of the buffer in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Type of the elements.
    #[serde(rename = "type")]
    pub element: Element,
    /// Elements along each dimension.
    pub sizes: Vec<u64>,
    /// Bytes between neighbours along the dimensions from 1 on; by default without gaps.
    pub strides: Option<Vec<u64>>,
    /// Elements of a box along each dimension.
    #[serde(rename = "box")]
    pub box_sizes: Vec<u32>,
    /// Steps between the elements of a box along each dimension; by default 1.
    pub steps: Option<Vec<u32>>,
    /// Bytes of the swizzle: 0 for none, 32, 64 or 128.
    #[serde(default)]
    pub swizzle: u32,
    /// Bytes of a slice of an interleaved tensor, 16 or 32; 0 if it is not interleaved.
    #[serde(default)]
    pub interleave: u32,
    /// What elements outside the tensor are in a box that is loaded.
    #[serde(default)]
    pub fill: Fill,
}

/// What elements outside a tensor are in a box that is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Zeros.
    #[default]
    Zeros,
    /// NaN, for floats.
    Nan,
}

impl TensorArgument {
    /// The bytes of the map, of a tensor at `address`.
    ///
    /// # Errors
    /// The first requirement of `cuTensorMapEncodeTiled` that the map does not meet, or what the emulator does not support.
    pub(super) fn encode(&self, address: u64) -> Result<Vec<u8>, String> {
        let swizzle = match self.swizzle {
            0 => Swizzle::None,
            32 => Swizzle::Bytes32,
            64 => Swizzle::Bytes64,
            128 => Swizzle::Bytes128,
            other => return Err(format!("`swizzle` is {other}, not 0, 32, 64 or 128")),
        };
        let interleave = match self.interleave {
            0 => Interleave::None,
            16 => Interleave::Bytes16,
            32 => Interleave::Bytes32,
            other => return Err(format!("`interleave` is {other}, not 0, 16 or 32")),
        };
        let dense = TensorMap::dense(tensor_type(self.element)?, address, &self.sizes, &self.box_sizes);
        let strides = match &self.strides {
            Some(strides) => strides.clone(),
            // Dimension 0 of an interleaved tensor counts slices.
            None if self.interleave > 0 => {
                let unit = u64::from(self.interleave) / self.element.bytes() as u64;
                dense.strides.iter().map(|stride| stride.saturating_mul(unit)).collect()
            }
            None => dense.strides.clone(),
        };
        let steps = self.steps.clone().unwrap_or_else(|| vec![1; self.sizes.len()]);
        let fills_nan = self.fill == Fill::Nan;
        let map = TensorMap { strides, steps, swizzle, interleave, fills_nan, ..dense };
        map.encode().map(Vec::from).map_err(|error| error.to_string())
    }
}

/// The type of a tensor's elements.
fn tensor_type(element: Element) -> Result<TensorType, String> {
    Ok(match element {
        Element::U8 => TensorType::U8,
        Element::U16 => TensorType::U16,
        Element::U32 => TensorType::U32,
        Element::U64 => TensorType::U64,
        Element::I32 => TensorType::I32,
        Element::I64 => TensorType::I64,
        Element::F16 => TensorType::F16,
        Element::Bf16 => TensorType::Bf16,
        Element::F32 => TensorType::F32,
        Element::F64 => TensorType::F64,
        Element::I8 | Element::I16 => {
            return Err("tensor maps have no i8 and i16: write u8 or u16, which are copied alike".to_owned());
        }
    })
}

#[cfg(test)]
mod tests {
    use bespoke_emulator::{Interleave, Swizzle, TensorMap, TensorType};

    use super::TensorArgument;

    /// Address of the tensors below.
    const ADDRESS: u64 = 0x1000;

    /// The bytes of the map that a launch file describes, in the words of TOML.
    fn described(text: &str) -> Result<Vec<u8>, String> {
        let argument: TensorArgument = toml::from_str(text).map_err(|error| error.to_string())?;
        argument.encode(ADDRESS)
    }

    /// The map of 8 × 4 × 2 halves without gaps, of boxes of 8 × 2 × 1.
    fn halves() -> TensorMap {
        TensorMap::dense(TensorType::F16, ADDRESS, &[8, 4, 2], &[8, 2, 1])
    }

    /// Asserts that `fields` beside those of [`halves`] describe `expected`.
    fn assert_describes(fields: &str, expected: &TensorMap) {
        let text = format!("tensor = 'x'\ntype = 'f16'\nsizes = [8, 4, 2]\nbox = [8, 2, 1]\n{fields}");
        assert_eq!(described(&text), Ok(Vec::from(expected.encode().unwrap())), "{fields}");
    }

    #[test]
    fn each_field_is_in_the_map() {
        assert_describes("", &halves());
        assert_describes("fill = 'nan'", &TensorMap { fills_nan: true, ..halves() });
        assert_describes("steps = [1, 2, 1]", &TensorMap { steps: vec![1, 2, 1], ..halves() });
        assert_describes("strides = [32, 256]", &TensorMap { strides: vec![32, 256], ..halves() });
    }

    #[test]
    fn swizzles_are_in_the_map() {
        let swizzles =
            [(0, Swizzle::None), (32, Swizzle::Bytes32), (64, Swizzle::Bytes64), (128, Swizzle::Bytes128)];
        for (bytes, swizzle) in swizzles {
            let map = TensorMap::dense(TensorType::F16, ADDRESS, &[16, 4], &[16, 2]);
            let text =
                format!("tensor = 'x'\ntype = 'f16'\nsizes = [16, 4]\nbox = [16, 2]\nswizzle = {bytes}");
            assert_eq!(
                described(&text),
                Ok(Vec::from(TensorMap { swizzle, ..map }.encode().unwrap())),
                "{bytes}"
            );
        }
    }

    #[test]
    fn dimension_0_of_interleaved_tensors_counts_slices() {
        for (bytes, interleave, swizzle) in
            [(16, Interleave::Bytes16, Swizzle::None), (32, Interleave::Bytes32, Swizzle::Bytes32)]
        {
            let expected =
                TensorMap { strides: vec![8 * bytes, 32 * bytes], interleave, swizzle, ..halves() };
            let swizzle = if swizzle == Swizzle::None { 0 } else { 32 };
            assert_describes(&format!("interleave = {bytes}\nswizzle = {swizzle}"), &expected);
        }
    }

    #[test]
    fn other_swizzles_and_interleaves_are_refused() {
        let text = "tensor = 'x'\ntype = 'u8'\nsizes = [16]\nbox = [16]\n";
        assert_eq!(
            described(&format!("{text}swizzle = 16")),
            Err("`swizzle` is 16, not 0, 32, 64 or 128".to_owned())
        );
        assert_eq!(
            described(&format!("{text}interleave = 8")),
            Err("`interleave` is 8, not 0, 16 or 32".to_owned())
        );
    }
}
