//! Typed device memory.

use std::fmt;
use std::marker::PhantomData;

use bespoke_codegen::launch::{Bf16x2, DevicePointer, F16x2, bf16, f16};

use super::{Address, Allocation, Bytes, Device, Error, Result};

/// Element type of device memory: a fixed-size little-endian value.
pub trait Element: Copy + 'static {
    /// Size and alignment in bytes.
    const BYTES: usize;
    /// Appends the value's little-endian bytes to `bytes`.
    fn append(self, bytes: &mut Vec<u8>);
    /// Reads a value from [`Element::BYTES`] bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($ty:ty)*) => {
        $(impl Element for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn from_bytes(bytes: &[u8]) -> $ty {
                let mut own = [0; size_of::<$ty>()];
                own.copy_from_slice(bytes);
                <$ty>::from_le_bytes(own)
            }
        })*
    };
}
element!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 f16 bf16);

macro_rules! pair {
    ($($pair:ident of $half:ty;)*) => {
        $(impl Element for $pair {
            const BYTES: usize = 4;
            fn append(self, bytes: &mut Vec<u8>) {
                self.0.append(bytes);
                self.1.append(bytes);
            }
            fn from_bytes(bytes: &[u8]) -> $pair {
                $pair(<$half>::from_bytes(&bytes[..2]), <$half>::from_bytes(&bytes[2..]))
            }
        })*
    };
}
pair! {
    F16x2 of f16;
    Bf16x2 of bf16;
}

/// Device memory for elements of type `T`, freed on drop. The content is undefined until the buffer is written.
///
/// Created by `buffer` and `buffer_of` of [`dyn Device`](Device).
pub struct Buffer<T> {
    memory: Allocation,
    elements: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Buffer<T> {
    /// Argument for a kernel parameter of type `Ptr<Global, T>`. The buffer must outlive the launch.
    pub fn pointer(&self) -> DevicePointer<T> {
        DevicePointer::new(self.memory.address().0)
    }

    /// Device address of the first element.
    pub fn address(&self) -> Address {
        self.memory.address()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether the buffer is empty: has no elements.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}, {:?}", self.elements, std::any::type_name::<T>(), self.memory)
    }
}

impl dyn Device + '_ {
    /// Allocates a buffer of `elements` elements. `name` appears in errors and findings.
    pub fn buffer<T: Element>(&self, name: &str, elements: usize) -> Result<Buffer<T>> {
        let Some(bytes) = elements.checked_mul(T::BYTES) else {
            return Err(Error::Access(format!("`{name}`: {elements} elements exceed the address space")));
        };
        Ok(Buffer { memory: self.alloc(name, bytes as u64)?, elements, element: PhantomData })
    }

    /// Allocates a buffer and writes `values` to it.
    pub fn buffer_of<T: Element>(&self, name: &str, values: &[T]) -> Result<Buffer<T>> {
        let buffer = self.buffer(name, values.len())?;
        self.write(&buffer, values)?;
        Ok(buffer)
    }

    /// Writes the whole buffer, ordered after all enqueued work.
    pub fn write<T: Element>(&self, to: &Buffer<T>, values: &[T]) -> Result<()> {
        if values.len() != to.len() {
            return Err(Error::Access(format!(
                "write of {} elements to a buffer of {} ({})",
                values.len(),
                to.len(),
                Bytes(to.memory.bytes())
            )));
        }
        let mut bytes = Vec::with_capacity(values.len() * T::BYTES);
        values.iter().for_each(|value| value.append(&mut bytes));
        self.upload(to.address(), &bytes)
    }

    /// Reads the whole buffer, ordered after all enqueued work.
    pub fn read<T: Element>(&self, from: &Buffer<T>) -> Result<Vec<T>> {
        let mut bytes = vec![0; from.len() * T::BYTES];
        self.download(from.address(), &mut bytes)?;
        Ok(bytes.chunks_exact(T::BYTES).map(T::from_bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Selector, open};

    #[test]
    fn written_values_are_read_back() {
        let device = open(Selector::Emulator).unwrap().device;
        let same = |values: &[i16]| {
            let buffer = device.buffer_of("values", values).unwrap();
            assert_eq!(device.read(&buffer).unwrap(), values);
        };
        same(&[i16::MIN, -1, 0, 1, i16::MAX]);
        let pairs = [F16x2(f16::ONE, f16::NEG_ONE), F16x2(f16::MAX, f16::MIN)];
        let buffer = device.buffer_of("pairs", &pairs).unwrap();
        assert_eq!(device.read(&buffer).unwrap(), pairs);
        let words: Vec<u32> = pairs
            .iter()
            .map(|pair| u32::from(pair.0.to_bits()) | u32::from(pair.1.to_bits()) << 16)
            .collect();
        let mut bytes = [0; 8];
        device.download(buffer.address(), &mut bytes).unwrap();
        assert_eq!(bytes[..], words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn a_write_of_another_size_is_an_error() {
        let device = open(Selector::Emulator).unwrap().device;
        let buffer = device.buffer::<f32>("x", 4).unwrap();
        let error = device.write(&buffer, &[1.0; 5]).unwrap_err().to_string();
        assert_eq!(error, "write of 5 elements to a buffer of 4 (16 bytes)");
        assert!(device.buffer::<u64>("x", usize::MAX).unwrap_err().to_string().contains("`x`"));
        device.write(&buffer, &[1.0; 4]).unwrap();
        assert_eq!(device.read(&buffer).unwrap(), [1.0; 4]);
    }
}
