//! Tensor maps on the host: descriptions of tensors in device memory, which a device encodes for its bulk tensor copies.

use std::marker::PhantomData;

use super::{Argument, DevicePointer};
use crate::dsl::Scalar;
pub use crate::ir::Swizzle;
use crate::ir::{TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES, TensorLayout, Type};

/// Largest step between the elements of a tile.
const MAX_STEP: u32 = 8;
/// Unit of addresses and strides, in bytes.
const UNIT: u64 = 16;

/// Size of the L2 transactions that load a tile. It changes the speed only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L2Promotion {
    /// Transactions are not enlarged.
    #[default]
    None,
    /// 64 bytes.
    Bytes64,
    /// 128 bytes.
    Bytes128,
    /// 256 bytes.
    Bytes256,
}

/// Description of a tensor in device memory and of the tiles that bulk tensor copies move, for a parameter
/// [`TensorMap<T, RANK>`](crate::dsl::TensorMap). A device encodes it to a [`TensorMap`].
///
/// ```
/// use bespoke_codegen::launch::{DevicePointer, Swizzle, TensorDescription, f16};
///
/// // 4,096 rows of 1,024 elements, in tiles of 128 rows of 64 elements.
/// let address = DevicePointer::<f16>::new(0x1_0000);
/// let a = TensorDescription::dense(address, [1024, 4096], [64, 128]).swizzle(Swizzle::Bytes128);
/// assert_eq!(a.driver_arguments()?.strides, [2048]);
///
/// let wide = TensorDescription::dense(address, [1024, 4096], [128, 64]).swizzle(Swizzle::Bytes128);
/// assert_eq!(
///     wide.driver_arguments().unwrap_err().to_string(),
///     "rows of a tile of 256 bytes with a swizzle of 128 bytes: write 64 elements along dimension 0",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TensorDescription<T, const RANK: usize> {
    pointer: DevicePointer<T>,
    sizes: [u64; RANK],
    /// Bytes between neighbours along each dimension; along dimension 0 the size of an element.
    strides: [u64; RANK],
    tile: [u32; RANK],
    steps: [u32; RANK],
    swizzle: Swizzle,
    l2_promotion: L2Promotion,
    fills_nan: bool,
}

/// Tensor map that no device can encode: the requirement of `cuTensorMapEncodeTiled` that it does not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TensorMapError(String);

/// Arguments of `cuTensorMapEncodeTiled` (CUDA Driver API, "Tensor Map Object Management"), enumerations by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverArguments {
    /// `tensorDataType`.
    pub data_type: u32,
    /// `globalAddress`.
    pub address: u64,
    /// `globalDim`: elements along each dimension. Their number is `tensorRank`.
    pub sizes: Vec<u64>,
    /// `globalStrides`: bytes between neighbours along the dimensions from 1 on.
    pub strides: Vec<u64>,
    /// `boxDim`: elements of a tile along each dimension.
    pub tile: Vec<u32>,
    /// `elementStrides`: steps between the elements of a tile along each dimension.
    pub steps: Vec<u32>,
    /// `interleave`. Descriptions of the language have none.
    pub interleave: u32,
    /// `swizzle`.
    pub swizzle: u32,
    /// `l2Promotion`.
    pub l2_promotion: u32,
    /// `oobFill`: what elements outside the tensor are in a tile.
    pub fill: u32,
}

impl<T: Scalar, const RANK: usize> TensorDescription<T, RANK> {
    /// Description of a tensor without gaps: `sizes` elements along each dimension, of which dimension 0 is contiguous, in
    /// tiles of `tile` elements. Elements of a tile outside the tensor are loaded as zeros and are not stored.
    pub fn dense(
        pointer: DevicePointer<T>,
        sizes: [u64; RANK],
        tile: [u32; RANK],
    ) -> TensorDescription<T, RANK> {
        let mut stride = u64::from(T::TYPE.bytes());
        let strides = sizes.map(|size| {
            let own = stride;
            stride = stride.saturating_mul(size);
            own
        });
        TensorDescription {
            pointer,
            sizes,
            strides,
            tile,
            steps: [1; RANK],
            swizzle: Swizzle::None,
            l2_promotion: L2Promotion::None,
            fills_nan: false,
        }
    }

    /// Sets the distance in bytes between neighbours along a dimension from 1 on: a multiple of 16 below 2⁴⁰.
    ///
    /// # Panics
    /// If the tensor has no such dimension, or it is dimension 0, which is contiguous.
    #[must_use]
    pub fn stride(mut self, dimension: usize, bytes: u64) -> Self {
        assert!(
            (1..RANK).contains(&dimension),
            "dimension {dimension} of a tensor of {RANK} dimensions has no stride: write 1 or more"
        );
        self.strides[dimension] = bytes;
        self
    }

    /// Sets the steps between the elements of a tile along each dimension, 1 to 8. With a step of 2, a tile has every
    /// second element. Dimension 0 ignores its step.
    #[must_use]
    pub fn steps(mut self, steps: [u32; RANK]) -> Self {
        self.steps = steps;
        self
    }

    /// Sets the swizzle of a tile in shared memory.
    #[must_use]
    pub fn swizzle(mut self, swizzle: Swizzle) -> Self {
        self.swizzle = swizzle;
        self
    }

    /// Sets the size of the L2 transactions that load a tile.
    #[must_use]
    pub fn l2_promotion(mut self, l2_promotion: L2Promotion) -> Self {
        self.l2_promotion = l2_promotion;
        self
    }

    /// Lets elements outside the tensor be NaN in a loaded tile, instead of zero.
    #[must_use]
    pub fn fill_with_nan(mut self) -> Self {
        self.fills_nan = true;
        self
    }

    /// Checks the description and returns the arguments of `cuTensorMapEncodeTiled`.
    ///
    /// # Errors
    /// The first requirement of that function that the description does not meet.
    pub fn driver_arguments(&self) -> Result<DriverArguments, TensorMapError> {
        self.check().map_err(TensorMapError)?;
        let data_type = match T::TYPE {
            Type::U8 | Type::I8 => 0,
            Type::U16 | Type::I16 => 1,
            Type::U32 => 2,
            Type::I32 => 3,
            Type::U64 => 4,
            Type::I64 => 5,
            Type::F16 => 6,
            Type::F32 => 7,
            Type::F64 => 8,
            _ => 9,
        };
        Ok(DriverArguments {
            data_type,
            address: self.pointer.address(),
            sizes: self.sizes.to_vec(),
            strides: self.strides[1..].to_vec(),
            tile: self.tile.to_vec(),
            steps: self.steps.to_vec(),
            interleave: 0,
            swizzle: self.swizzle as u32,
            l2_promotion: self.l2_promotion as u32,
            fill: self.fills_nan.into(),
        })
    }

    /// Checks the requirements of `cuTensorMapEncodeTiled`.
    fn check(&self) -> Result<(), String> {
        TensorLayout { element: T::TYPE, tile: self.tile.to_vec(), swizzle: self.swizzle }.check()?;
        let address = self.pointer.address();
        if !address.is_multiple_of(UNIT) {
            return Err(format!("a tensor at {address:#x}: its address must be a multiple of {UNIT}"));
        }
        if let Some(size) = self.sizes.iter().find(|&&size| size == 0 || size > 1 << 32) {
            return Err(format!("a tensor of {size} elements along a dimension: write 1 to 2^32"));
        }
        let strides = self.strides.iter().enumerate().skip(1);
        for (dimension, stride) in strides {
            if !stride.is_multiple_of(UNIT) || *stride >= 1 << 40 {
                return Err(format!(
                    "a stride of {stride} bytes along dimension {dimension}: it must be a multiple of {UNIT} below 2^40; \
                     pad the rows of the tensor"
                ));
            }
        }
        if let Some(step) = self.steps.iter().find(|step| !(1..=MAX_STEP).contains(*step)) {
            return Err(format!("a step of {step} elements: write 1 to {MAX_STEP}"));
        }
        if self.fills_nan && !T::TYPE.is_float() {
            return Err(format!("elements of type {} cannot be NaN: remove `fill_with_nan`", T::TYPE));
        }
        Ok(())
    }
}

/// Encoded tensor map, the argument of a parameter [`TensorMap<T, RANK>`](crate::dsl::TensorMap). It is valid on the device
/// that encoded it, as long as the tensor's memory is.
#[derive(Clone, Debug)]
pub struct TensorMap<T, const RANK: usize> {
    bytes: [u8; TENSOR_MAP_BYTES as usize],
    tile: [u32; RANK],
    swizzle: Swizzle,
    element: PhantomData<fn() -> T>,
}

impl<T: Scalar, const RANK: usize> TensorMap<T, RANK> {
    /// The tensor map that a device encoded from `description`.
    pub fn encoded(
        description: &TensorDescription<T, RANK>,
        bytes: [u8; TENSOR_MAP_BYTES as usize],
    ) -> TensorMap<T, RANK> {
        TensorMap { bytes, tile: description.tile, swizzle: description.swizzle, element: PhantomData }
    }

    /// Whether the tiles have these sizes along each dimension and this swizzle.
    pub fn has_layout(&self, tile: [u32; RANK], swizzle: Swizzle) -> bool {
        self.tile == tile && self.swizzle == swizzle
    }

    /// Layout that a kernel's parameter must state to take this tensor map: element type, tile and swizzle.
    pub fn layout(&self) -> TensorLayout {
        TensorLayout { element: T::TYPE, tile: self.tile.to_vec(), swizzle: self.swizzle }
    }
}

impl<T, const RANK: usize> Argument for TensorMap<T, RANK> {
    fn append(&self, params: &mut Vec<u8>) {
        params.resize(params.len().next_multiple_of(TENSOR_MAP_ALIGN as usize), 0);
        params.extend_from_slice(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::params;

    fn dense<T: Scalar>(address: u64) -> TensorDescription<T, 2> {
        TensorDescription::dense(DevicePointer::new(address), [64, 32], [16, 8])
    }

    #[test]
    fn arguments_have_the_numbers_of_the_driver() {
        let found = dense::<half::bf16>(0x100)
            .stride(1, 256)
            .steps([1, 2])
            .swizzle(Swizzle::Bytes32)
            .l2_promotion(L2Promotion::Bytes256)
            .fill_with_nan()
            .driver_arguments();
        let expected = DriverArguments {
            data_type: 9,
            address: 0x100,
            sizes: vec![64, 32],
            strides: vec![256],
            tile: vec![16, 8],
            steps: vec![1, 2],
            interleave: 0,
            swizzle: 1,
            l2_promotion: 3,
            fill: 1,
        };
        assert_eq!(found, Ok(expected));
    }

    #[test]
    fn a_requirement_that_is_not_met_is_named() {
        let message = |found: Result<DriverArguments, TensorMapError>| found.unwrap_err().to_string();
        for (found, expected) in [
            (dense::<f32>(8).driver_arguments(), "a tensor at 0x8: its address must be a multiple of 16"),
            (
                dense::<f32>(0).stride(1, 24).driver_arguments(),
                "a stride of 24 bytes along dimension 1: it must be a multiple of 16 below 2^40; pad the rows of the tensor",
            ),
            (dense::<f32>(0).steps([1, 9]).driver_arguments(), "a step of 9 elements: write 1 to 8"),
            (
                dense::<u32>(0).fill_with_nan().driver_arguments(),
                "elements of type u32 cannot be NaN: remove `fill_with_nan`",
            ),
            (
                TensorDescription::<f32, 1>::dense(DevicePointer::new(0), [0], [4]).driver_arguments(),
                "a tensor of 0 elements along a dimension: write 1 to 2^32",
            ),
        ] {
            assert_eq!(message(found), expected);
        }
    }

    #[test]
    fn a_tensor_map_is_aligned_to_64_bytes() {
        let map = TensorMap::encoded(&dense::<f32>(0), [7; 128]);
        let space = params(&[&1u32, &map, &2u32]);
        assert_eq!((space.len(), space[64], space[191], space[192]), (196, 7, 7, 2));
        assert!(map.has_layout([16, 8], Swizzle::None) && !map.has_layout([8, 16], Swizzle::None));
    }
}
