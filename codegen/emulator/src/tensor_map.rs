//! Tensor maps: descriptions of tensors in global memory for `cp.async.bulk.tensor`.
//!
//! On a device the driver encodes a tensor map (`cuTensorMapEncodeTiled`), in a format that is not public. The emulator
//! has a format of its own: [`TensorMap::encode`].

use crate::options::MAX_SHARED;

/// Size of an encoded tensor map in bytes, as that of `CUtensorMap`.
pub const TENSOR_MAP_BYTES: usize = 128;
/// Alignment of an encoded tensor map in bytes.
pub(crate) const TENSOR_MAP_ALIGNMENT: u64 = 64;
/// Largest number of dimensions.
const MAX_RANK: usize = 5;
/// Largest number of elements of a box along a dimension.
const MAX_BOX: u32 = 256;
/// Largest step between the elements of a box.
const MAX_STEP: u32 = 8;
/// Unit of strides, addresses and rows of a box, in bytes.
const UNIT: u64 = 16;
/// First bytes of an encoded tensor map.
const MAGIC: [u8; 8] = *b"bspk-tma";

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TensorType {
    U8,
    U16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl TensorType {
    const ALL: [TensorType; 10] = [
        TensorType::U8,
        TensorType::U16,
        TensorType::U32,
        TensorType::I32,
        TensorType::U64,
        TensorType::I64,
        TensorType::F16,
        TensorType::Bf16,
        TensorType::F32,
        TensorType::F64,
    ];

    /// Size of an element in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            TensorType::U8 => 1,
            TensorType::U16 | TensorType::F16 | TensorType::Bf16 => 2,
            TensorType::U32 | TensorType::I32 | TensorType::F32 => 4,
            TensorType::U64 | TensorType::I64 | TensorType::F64 => 8,
        }
    }

    /// Whether the elements are floats.
    pub fn is_float(self) -> bool {
        matches!(self, TensorType::F16 | TensorType::Bf16 | TensorType::F32 | TensorType::F64)
    }
}

/// Swizzle of a box in shared memory: the bytes within which chunks of 16 bytes change places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// Rows of the box follow each other.
    #[default]
    None,
    /// Within 32 bytes.
    Bytes32,
    /// Within 64 bytes.
    Bytes64,
    /// Within 128 bytes.
    Bytes128,
}

impl Swizzle {
    pub(crate) const ALL: [Swizzle; 4] =
        [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

    /// Chunks of 16 bytes in a row of the pattern: 1 without swizzle.
    pub(crate) fn chunks(self) -> u64 {
        1 << self as u64
    }
}

/// Interleaved layout of a tensor of at least 3 dimensions (PTX ISA, "Interleave layout"): its channels are in slices of 16 or 32
/// bytes, as in NC/8HWC8 and NC/16HWC16 for elements of two bytes.
///
/// The slices of neighbouring pixels follow each other. So a slice is the unit of dimension 0: sizes, boxes, steps and
/// coordinates along it count slices. The second to last dimension counts the slices of a pixel; a box has one of them, whatever
/// its size there. Observed on an H200; we know of no documentation of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interleave {
    /// Dimension 0 has elements.
    #[default]
    None,
    /// Dimension 0 has slices of 16 bytes.
    Bytes16,
    /// Dimension 0 has slices of 32 bytes.
    Bytes32,
}

impl Interleave {
    pub(crate) const ALL: [Interleave; 3] = [Interleave::None, Interleave::Bytes16, Interleave::Bytes32];

    /// Bytes of a slice.
    fn slice(self) -> Option<u32> {
        match self {
            Interleave::None => None,
            Interleave::Bytes16 => Some(16),
            Interleave::Bytes32 => Some(32),
        }
    }
}

/// Description of a tensor in global memory and of the boxes that instructions copy, with the arguments of
/// `cuTensorMapEncodeTiled`. Dimension 0 is contiguous. L2 promotion has no effect in the emulator; the types that round
/// (`FLOAT32_FTZ`, `TFLOAT32`, `TFLOAT32_FTZ`) are not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Type of the elements.
    pub element: TensorType,
    /// Address of the tensor in global memory: a multiple of 16, or of the slices of an interleaved tensor.
    pub address: u64,
    /// Elements along each of up to 5 dimensions; slices along dimension 0 of an interleaved tensor.
    pub sizes: Vec<u64>,
    /// Bytes between neighbours along the dimensions from 1 on: multiples as for the address.
    pub strides: Vec<u64>,
    /// Elements of a box along each dimension, up to 256.
    pub box_sizes: Vec<u32>,
    /// Steps between the elements of a box along each dimension, up to 8; dimension 0 ignores its step, unless the tensor is
    /// interleaved.
    pub steps: Vec<u32>,
    /// Interleaved layout of the tensor.
    pub interleave: Interleave,
    /// Swizzle of a box in shared memory.
    pub swizzle: Swizzle,
    /// Whether elements outside the tensor are NaN in a box that is loaded, and not zero.
    pub fills_nan: bool,
}

/// Arguments of `cuTensorMapEncodeTiled`, enumerations by their numbers in `cuda.h`; the L2 promotion, which has no effect in
/// the emulator, is not among them.
#[derive(Clone, Copy, Debug)]
pub struct DriverTensorMap<'a> {
    /// `tensorDataType`.
    pub data_type: u32,
    /// `globalAddress`.
    pub address: u64,
    /// `globalDim`, one for each dimension.
    pub sizes: &'a [u64],
    /// `globalStrides`, one for each dimension from 1 on.
    pub strides: &'a [u64],
    /// `boxDim`, one for each dimension.
    pub box_sizes: &'a [u32],
    /// `elementStrides`, one for each dimension.
    pub steps: &'a [u32],
    /// `interleave`.
    pub interleave: u32,
    /// `swizzle`.
    pub swizzle: u32,
    /// `oobFill`.
    pub fill: u32,
}

/// The types in the order of `CUtensorMapDataType`; the enumeration's remaining types round.
const DRIVER_TYPES: [TensorType; 10] = [
    TensorType::U8,
    TensorType::U16,
    TensorType::U32,
    TensorType::I32,
    TensorType::U64,
    TensorType::I64,
    TensorType::F16,
    TensorType::F32,
    TensorType::F64,
    TensorType::Bf16,
];

/// A tensor map that the ISA or the driver does not allow, or that the emulator does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TensorMapError(String);

impl TensorMap {
    /// Map of a tensor without gaps between its rows, with steps of 1, no swizzle, and zeros outside the tensor.
    pub fn dense(element: TensorType, address: u64, sizes: &[u64], box_sizes: &[u32]) -> TensorMap {
        let mut stride = u64::from(element.bytes());
        let strides = sizes.iter().map(|&size| {
            stride = stride.saturating_mul(size);
            stride
        });
        TensorMap {
            element,
            address,
            sizes: sizes.to_vec(),
            strides: strides.take(sizes.len().saturating_sub(1)).collect(),
            box_sizes: box_sizes.to_vec(),
            steps: vec![1; sizes.len()],
            interleave: Interleave::None,
            swizzle: Swizzle::None,
            fills_nan: false,
        }
    }

    /// Map with the arguments of `cuTensorMapEncodeTiled`, enumerations by their numbers in `cuda.h`.
    ///
    /// # Errors
    /// A number that its enumeration does not have, or that the emulator does not support. [`TensorMap::encode`] checks the
    /// other requirements.
    pub fn from_driver(arguments: &DriverTensorMap<'_>) -> Result<TensorMap, TensorMapError> {
        let &DriverTensorMap {
            data_type,
            address,
            sizes,
            strides,
            box_sizes,
            steps,
            interleave,
            swizzle,
            fill,
        } = arguments;
        let element = DRIVER_TYPES.get(data_type as usize).copied();
        let swizzle = Swizzle::ALL.get(swizzle as usize).copied();
        let interleave = Interleave::ALL.get(interleave as usize).copied();
        let error = |what: &str, number: u32| {
            Err(TensorMapError(format!(
                "the emulator supports no tensor maps with {what} {number} of `cuda.h`"
            )))
        };
        let (element, swizzle, interleave) = match (element, swizzle, interleave) {
            (None, ..) => return error("the data type", data_type),
            (_, None, _) => return error("the swizzle", arguments.swizzle),
            (.., None) => return error("the interleaved layout", arguments.interleave),
            _ if fill > 1 => return error("the fill", fill),
            (Some(element), Some(swizzle), Some(interleave)) => (element, swizzle, interleave),
        };
        let (sizes, strides) = (sizes.to_vec(), strides.to_vec());
        let (box_sizes, steps) = (box_sizes.to_vec(), steps.to_vec());
        let fills_nan = fill == 1;
        Ok(TensorMap { element, address, sizes, strides, box_sizes, steps, interleave, swizzle, fills_nan })
    }

    /// Encodes the map to the bytes that a kernel takes as a parameter or finds in memory, in the emulator's own format.
    ///
    /// # Errors
    /// The first requirement of `cuTensorMapEncodeTiled` that the map does not meet, or what the emulator does not support.
    pub fn encode(&self) -> Result<[u8; TENSOR_MAP_BYTES], TensorMapError> {
        self.check().map_err(TensorMapError)?;
        let mut bytes = [0; TENSOR_MAP_BYTES];
        put(&mut bytes, 0, &MAGIC);
        let mut set = |field: MapField, dimension: usize, value: u64| field.set(&mut bytes, dimension, value);
        set(MapField::Address, 0, self.address);
        set(MapField::Rank, 0, self.sizes.len() as u64 - 1);
        set(MapField::Element, 0, self.element as u64);
        set(MapField::Swizzle, 0, self.swizzle as u64);
        set(MapField::Fill, 0, self.fills_nan.into());
        set(MapField::Interleave, 0, self.interleave as u64);
        for dimension in 0..self.sizes.len() {
            set(MapField::Size, dimension, self.sizes[dimension]);
            set(MapField::BoxSize, dimension, self.box_sizes[dimension].into());
            set(MapField::Step, dimension, self.steps[dimension].into());
        }
        self.strides.iter().enumerate().for_each(|(at, &stride)| set(MapField::Stride, at, stride));
        Ok(bytes)
    }

    /// Decodes a map.
    ///
    /// # Errors
    /// If the bytes are no map, or the map does not meet a requirement of `cuTensorMapEncodeTiled`; the error names the
    /// requirement.
    pub(crate) fn decode(bytes: &[u8; TENSOR_MAP_BYTES]) -> Result<TensorMap, NoTensorMap> {
        if !bytes.starts_with(&MAGIC) {
            return Err(NoTensorMap::OtherBytes);
        }
        let get = |field: MapField, dimension: usize| field.get(bytes, dimension);
        let rank = get(MapField::Rank, 0) as usize + 1;
        if rank > MAX_RANK {
            let what = format!("a tensor of {rank} dimensions: there must be 1 to {MAX_RANK}");
            return Err(NoTensorMap::Invalid(what));
        }
        let known = (
            TensorType::ALL.get(get(MapField::Element, 0) as usize),
            Swizzle::ALL.get(get(MapField::Swizzle, 0) as usize),
            Interleave::ALL.get(get(MapField::Interleave, 0) as usize),
        );
        let (Some(&element), Some(&swizzle), Some(&interleave)) = known else {
            return Err(NoTensorMap::OtherBytes);
        };
        let list = |field: MapField, count: usize| (0..count).map(move |dimension| get(field, dimension));
        let map = TensorMap {
            element,
            address: get(MapField::Address, 0),
            sizes: list(MapField::Size, rank).collect(),
            strides: list(MapField::Stride, rank - 1).collect(),
            box_sizes: list(MapField::BoxSize, rank).map(|size| size as u32).collect(),
            steps: list(MapField::Step, rank).map(|step| step as u32).collect(),
            interleave,
            swizzle,
            fills_nan: get(MapField::Fill, 0) != 0,
        };
        map.check().map_err(NoTensorMap::Invalid).map(|()| map)
    }

    /// Step between the elements of a box along a dimension.
    fn step(&self, dimension: usize) -> u32 {
        if dimension == 0 && self.interleave == Interleave::None { 1 } else { self.steps[dimension] }
    }

    /// Number of elements of a box along a dimension.
    fn count(&self, dimension: usize) -> u64 {
        if self.interleave != Interleave::None && dimension + 2 == self.sizes.len() {
            return 1;
        }
        u64::from(self.box_sizes[dimension].div_ceil(self.step(dimension)))
    }

    /// Bytes of the unit of dimension 0: an element, or a slice of an interleaved tensor.
    pub(crate) fn unit_bytes(&self) -> u32 {
        self.interleave.slice().unwrap_or(self.element.bytes())
    }

    /// Bytes of a row of a box.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.count(0) * u64::from(self.unit_bytes())
    }

    /// Rows of a box.
    pub(crate) fn rows(&self) -> u64 {
        (1..self.sizes.len()).map(|dimension| self.count(dimension)).product()
    }

    /// Span of the swizzle in bytes, which rows of a box must not exceed; `None` without swizzle and for an interleaved
    /// tensor.
    fn span(&self) -> Option<u64> {
        let has_span = self.swizzle != Swizzle::None && self.interleave == Interleave::None;
        has_span.then_some(self.swizzle.chunks() * UNIT)
    }

    /// Bytes from a row of a box to the next one in shared memory. Rows shorter than the swizzle have gaps between them: an H200
    /// starts each row at a multiple of the swizzle span, and does not write the gap.
    pub(crate) fn row_stride(&self) -> u64 {
        self.span().unwrap_or(self.row_bytes())
    }

    /// Bytes of a box, without the gaps between rows shorter than the swizzle: what a load adds to the transaction count of its
    /// mbarrier.
    pub fn box_bytes(&self) -> u64 {
        self.rows() * self.row_bytes()
    }

    /// Bytes of shared memory from the beginning of a box to the end of its last row, before swizzling, with the gaps between rows
    /// shorter than the swizzle.
    pub fn shared_bytes(&self) -> u64 {
        (self.rows() - 1) * self.row_stride() + self.row_bytes()
    }

    /// 16 bytes of the elements that are outside the tensor.
    pub(crate) fn fill(&self) -> [u8; 16] {
        // An H100 fills with 0x7ff7, whatever the type: a quiet NaN of each.
        let pair = if self.fills_nan { [0xf7, 0x7f] } else { [0; 2] };
        std::array::from_fn(|at| pair[at % 2])
    }

    /// The runs of bytes that a box at some coordinates shares with the tensor. If it is stored (`stores`), runs are rounded up to
    /// multiples of 16 bytes: an H100 writes the last unit of a row whole, even if the row ends within it.
    pub(crate) fn parts(&self, coordinates: &[i32], stores: bool) -> Vec<BoxPart> {
        let inside = |dimension: usize, at: i64| (0..self.sizes[dimension] as i64).contains(&at);
        let unit = i64::from(self.unit_bytes());
        let first = i64::from(coordinates[0]);
        // Runs of neighbours along dimension 0: all of a row, or each by itself, with its position in the row.
        let (length, runs) = match self.step(0) {
            1 => (i64::from(self.box_sizes[0]), 1),
            _ => (1, self.count(0)),
        };
        let rows = self.rows();
        let part = |row: u64, run: u64| {
            let start = first + (run * u64::from(self.step(0))) as i64;
            let from = start.max(0);
            let to = (start + length).min(self.sizes[0] as i64);
            if from >= to {
                return None;
            }
            let bytes = ((to - from) * unit) as u64;
            let bytes = if stores { bytes.next_multiple_of(UNIT) } else { bytes };
            let (mut rest, mut address) = (row, self.address);
            for (dimension, &first) in coordinates.iter().enumerate().skip(1) {
                let count = self.count(dimension);
                let at = i64::from(first) + (rest % count * u64::from(self.steps[dimension])) as i64;
                rest /= count;
                if !inside(dimension, at) {
                    return None;
                }
                address = address.wrapping_add(at as u64 * self.strides[dimension - 1]);
            }
            Some(BoxPart {
                address: address.wrapping_add((from * unit) as u64),
                offset: row * self.row_stride() + (run as i64 * unit + (from - start) * unit) as u64,
                bytes,
            })
        };
        (0..rows).flat_map(|row| (0..runs).filter_map(move |run| part(row, run))).collect()
    }

    /// Checks the requirements of `cuTensorMapEncodeTiled`.
    fn check(&self) -> Result<(), String> {
        let rank = self.sizes.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return Err(format!("a tensor of {rank} dimensions: there must be 1 to {MAX_RANK}"));
        }
        for (what, found, needed) in [
            ("strides", self.strides.len(), rank - 1),
            ("box sizes", self.box_sizes.len(), rank),
            ("steps", self.steps.len(), rank),
        ] {
            if found != needed {
                return Err(format!("{found} {what} of a tensor of {rank} dimensions, which needs {needed}"));
            }
        }
        let unit = self.interleave.slice().map_or(UNIT, u64::from);
        if self.interleave != Interleave::None && rank < 3 {
            return Err(format!("an interleaved tensor of {rank} dimensions: it must have at least 3"));
        }
        if !self.address.is_multiple_of(unit) {
            return Err(format!("a tensor at {:#x}: the address must be a multiple of {unit}", self.address));
        }
        if let Some(size) = self.sizes.iter().find(|&&size| size == 0 || size > 1 << 32) {
            return Err(format!("a tensor of {size} elements along a dimension: there must be 1 to 2^32"));
        }
        if let Some(stride) =
            self.strides.iter().find(|&&stride| !stride.is_multiple_of(unit) || stride >= 1 << 40)
        {
            return Err(format!("a stride of {stride} bytes: it must be a multiple of {unit} below 2^40"));
        }
        if let Some(size) = self.box_sizes.iter().find(|&&size| size == 0 || size > MAX_BOX) {
            return Err(format!("a box of {size} elements along a dimension: there must be 1 to {MAX_BOX}"));
        }
        if let Some(step) = self.steps.iter().find(|&&step| step == 0 || step > MAX_STEP) {
            return Err(format!("a step of {step} elements: it must be 1 to {MAX_STEP}"));
        }
        if self.box_bytes() > MAX_SHARED {
            return Err(format!(
                "a box of {} bytes, which is more than the {MAX_SHARED} bytes of shared memory of a CTA",
                self.box_bytes()
            ));
        }
        let row = u64::from(self.box_sizes[0] * self.element.bytes());
        if !row.is_multiple_of(UNIT) {
            // The driver requires it of interleaved tensors, too, although their rows have whole slices.
            return Err(format!("rows of a box of {row} bytes: they must be multiples of {UNIT} bytes"));
        }
        if let Some(span) = self.span().filter(|&span| row > span) {
            return Err(format!(
                "rows of a box of {row} bytes, which is more than the {span} bytes of the swizzle"
            ));
        }
        if self.fills_nan && !self.element.is_float() {
            return Err("a tensor of integers cannot be filled with NaN".to_string());
        }
        Ok(())
    }
}

/// Why bytes cannot be used as a tensor map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoTensorMap {
    /// Neither [`TensorMap::encode`] nor `tensormap.replace` has written them.
    OtherBytes,
    /// The requirement that the map does not meet.
    Invalid(String),
}

/// A field of an encoded tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapField {
    Address,
    /// The number of dimensions less 1.
    Rank,
    /// A [`TensorType`] by its position in `TensorType::ALL`.
    Element,
    Swizzle,
    /// Whether elements outside the tensor are NaN.
    Fill,
    /// An [`Interleave`] by its number.
    Interleave,
    /// Elements of the tensor along a dimension.
    Size,
    /// Bytes between neighbours along the dimension after.
    Stride,
    /// Elements of a box along a dimension.
    BoxSize,
    /// Step between the elements of a box along a dimension.
    Step,
}

impl MapField {
    /// First byte of the field, and bytes for each dimension.
    fn place(self) -> (usize, usize) {
        match self {
            MapField::Address => (8, 8),
            MapField::Rank => (16, 1),
            MapField::Element => (17, 1),
            MapField::Swizzle => (18, 1),
            MapField::Fill => (19, 1),
            MapField::Interleave => (20, 1),
            MapField::Size => (24, 4),
            MapField::Stride => (48, 8),
            MapField::BoxSize => (80, 2),
            MapField::Step => (90, 1),
        }
    }

    /// Number of values that the field has.
    pub(crate) fn count(self) -> usize {
        match self {
            MapField::Size | MapField::BoxSize | MapField::Step => MAX_RANK,
            MapField::Stride => MAX_RANK - 1,
            _ => 1,
        }
    }

    fn get(self, bytes: &[u8; TENSOR_MAP_BYTES], dimension: usize) -> u64 {
        let (first, size) = self.place();
        let field = &bytes[first + dimension * size..][..size];
        let value = field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        // Sizes of up to 2^32 are stored less 1.
        if self == MapField::Size { value + 1 } else { value }
    }

    fn set(self, bytes: &mut [u8; TENSOR_MAP_BYTES], dimension: usize, value: u64) {
        let (first, size) = self.place();
        let value = if self == MapField::Size { value.wrapping_sub(1) } else { value };
        put(bytes, first + dimension * size, &value.to_le_bytes()[..size]);
    }

    /// Sets the field's value for a dimension in an encoded map, or in 128 zeros, which become a map.
    ///
    /// # Errors
    /// If the bytes are neither an encoded map nor zeros, or the value does not fit the field.
    pub(crate) fn replace(
        self,
        bytes: &mut [u8; TENSOR_MAP_BYTES],
        dimension: usize,
        value: u64,
    ) -> Result<(), NoTensorMap> {
        if *bytes == [0; TENSOR_MAP_BYTES] {
            put(bytes, 0, &MAGIC);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(NoTensorMap::OtherBytes);
        }
        self.set(bytes, dimension, value);
        match self.get(bytes, dimension) == value {
            true => Ok(()),
            false => Err(NoTensorMap::Invalid(format!("{value} does not fit"))),
        }
    }
}

fn put(bytes: &mut [u8; TENSOR_MAP_BYTES], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Contiguous part of a tensor in a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoxPart {
    pub(crate) address: u64,
    /// Offset in the box before swizzling.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Address in shared memory of a byte of a box, given its address without swizzle: the chunk's number in its row is
/// combined by exclusive or with the number of the 128-byte line.
pub(crate) fn swizzled(address: u64, chunks: u64) -> u64 {
    address ^ (address >> 7 & (chunks - 1)) << 4
}
