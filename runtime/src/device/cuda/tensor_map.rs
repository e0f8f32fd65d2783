//! Tensor maps, which the driver encodes.

use std::ptr;

use bespoke_codegen::launch::DriverArguments;
use cudarc::driver::sys;
use sys::{
    CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
    CUtensorMapL2promotion as L2Promotion, CUtensorMapSwizzle as Swizzle,
};

use super::super::{Error, Result, TENSOR_MAP_BYTES};
use super::driver::{Driver, call};

/// Data types by their numbers.
const DATA_TYPES: [DataType; 10] = [
    DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
    DataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
    DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
    DataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
    DataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
    DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
];

/// Swizzles by their numbers.
const SWIZZLES: [Swizzle; 4] = [
    Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
    Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
    Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
    Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
];

/// Interleaved layouts by their numbers.
const INTERLEAVES: [Interleave; 3] = [
    Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
    Interleave::CU_TENSOR_MAP_INTERLEAVE_16B,
    Interleave::CU_TENSOR_MAP_INTERLEAVE_32B,
];

/// L2 promotions by their numbers.
const L2_PROMOTIONS: [L2Promotion; 4] = [
    L2Promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
    L2Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    L2Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    L2Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
];

/// Fills by their numbers.
const FILLS: [Fill; 2] =
    [Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA];

// The position of a variant is its number.
const _: () = {
    let mut number = 0;
    while number < DATA_TYPES.len() {
        assert!(DATA_TYPES[number] as usize == number);
        number += 1;
    }
    number = 0;
    while number < SWIZZLES.len() {
        assert!(SWIZZLES[number] as usize == number && L2_PROMOTIONS[number] as usize == number);
        number += 1;
    }
    number = 0;
    while number < INTERLEAVES.len() {
        assert!(INTERLEAVES[number] as usize == number);
        number += 1;
    }
    assert!(FILLS[0] as usize == 0 && FILLS[1] as usize == 1);
    assert!(size_of::<sys::CUtensorMap>() == TENSOR_MAP_BYTES);
};

/// The variant with a number.
fn variant<V: Copy>(variants: &[V], number: u32, what: &str) -> Result<V> {
    let variant = variants.get(number as usize).copied();
    variant.ok_or_else(|| Error::TensorMap(format!("the driver has no {what} {number}")))
}

/// Encodes a tensor map.
pub(super) fn encode(driver: &Driver, arguments: &DriverArguments) -> Result<[u8; TENSOR_MAP_BYTES]> {
    let rank = arguments.sizes.len();
    let lengths = [arguments.strides.len() + 1, arguments.tile.len(), arguments.steps.len()];
    if rank == 0 || lengths != [rank; 3] {
        let message = "strides, tile and steps must have one number for each dimension";
        return Err(Error::TensorMap(message.to_owned()));
    }
    let mut map = sys::CUtensorMap_st { opaque: [0; TENSOR_MAP_BYTES / 8] };
    call!(
        driver,
        cuTensorMapEncodeTiled(
            &mut map,
            variant(&DATA_TYPES, arguments.data_type, "data type")?,
            rank as u32,
            ptr::without_provenance_mut(arguments.address as usize),
            arguments.sizes.as_ptr(),
            arguments.strides.as_ptr(),
            arguments.tile.as_ptr(),
            arguments.steps.as_ptr(),
            variant(&INTERLEAVES, arguments.interleave, "interleaved layout")?,
            variant(&SWIZZLES, arguments.swizzle, "swizzle")?,
            variant(&L2_PROMOTIONS, arguments.l2_promotion, "L2 promotion")?,
            variant(&FILLS, arguments.fill, "fill")?,
        ),
        "encoding a tensor map of {rank} dimensions at {:#x}",
        arguments.address
    )?;
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}
