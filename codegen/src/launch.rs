//! Typed arguments and the launcher interface for generated launch stubs.
//!
//! A launch stub is a function with one typed argument for each run-time parameter of a kernel. The stub lays out the
//! arguments as the kernel's `.param` space and passes them to a [`Launcher`]. A wrong type or count is a compile error
//! on the host. `emit` writes stubs; the package `bespoke` has launchers for GPUs and for the emulator.
//!
//! | parameter in the kernel | argument on the host |
//! | --- | --- |
//! | `Ptr<Global, T>`, a present `Option<Ptr<Global, T>>` | [`DevicePointer<T>`] |
//! | `Val<T>` of an integer, `f32` or `f64` | `T` |
//! | `Val<f16>`, `Val<bf16>` | `f16`, `bf16` of the package half |
//! | `Val<F16x2>`, `Val<Bf16x2>` | [`F16x2`], [`Bf16x2`] |
//! | `Val<bool>` | `bool` |
//! | `TensorMap<T, RANK, …>` | [`&TensorMap<T, RANK>`](TensorMap), which the device encodes from a [`TensorDescription`] |

use std::marker::PhantomData;

mod tensor_map;

pub use half::{bf16, f16};

pub use crate::dsl::{Bf16x2, F16x2};
use crate::ptx::Target;
pub use tensor_map::{DriverArguments, L2Promotion, Swizzle, TensorDescription, TensorMap, TensorMapError};

/// Device address of an array of elements of type `T`.
pub struct DevicePointer<T> {
    address: u64,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for DevicePointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePointer<T> {}

impl<T> std::fmt::Debug for DevicePointer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

impl<T> DevicePointer<T> {
    /// Pointer to a device address, which must be aligned for `T`.
    pub fn new(address: u64) -> DevicePointer<T> {
        DevicePointer { address, element: PhantomData }
    }

    /// The device address.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Pointer to the element `index` elements after this one.
    #[must_use]
    pub fn at(self, index: u64) -> DevicePointer<T> {
        DevicePointer::new(self.address + index * size_of::<T>() as u64)
    }
}

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per CTA, in bytes.
    pub dynamic_shared: u32,
}

/// PTX and machine code of a kernel for one target, as embedded in generated code.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource {
    /// Name of the kernel and of its PTX entry point.
    pub name: &'static str,
    /// The lowest target that the PTX runs on.
    pub target: Target,
    /// PTX text of the module.
    pub ptx: &'static str,
    /// Machine code (an ELF file) for devices of exactly the target's compute capability, if the module was assembled.
    pub cubin: Option<&'static [u8]>,
}

/// The source with the newest target that a device of compute capability `compute` (major, minor) can run; none if
/// every target is too new.
pub fn newest(sources: &[&'static KernelSource], compute: (u32, u32)) -> Option<&'static KernelSource> {
    let number = compute.0 * 10 + compute.1;
    sources
        .iter()
        .copied()
        .filter(|source| {
            let specific = crate::ptx::architecture(source.ptx).is_some();
            let own = source.target.number();
            if specific { own == number } else { own <= number }
        })
        .max_by_key(|source| source.target)
}

/// A device that launches kernels.
pub trait Launcher {
    /// Error of a launch.
    type Error;
    /// Launches a kernel after all earlier launches. `params` is the kernel's `.param` space. `sources` holds the
    /// kernel once per target, at least one; [`newest`] selects one.
    fn launch(
        &mut self,
        sources: &[&'static KernelSource],
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<(), Self::Error>;
}

/// A value that can be an argument of a kernel.
pub trait Argument {
    /// Appends the value to the `.param` space at its natural alignment.
    fn append(&self, params: &mut Vec<u8>);
}

fn append_aligned(params: &mut Vec<u8>, bytes: &[u8]) {
    params.resize(params.len().next_multiple_of(bytes.len()), 0);
    params.extend_from_slice(bytes);
}

impl<T> Argument for DevicePointer<T> {
    fn append(&self, params: &mut Vec<u8>) {
        append_aligned(params, &self.address.to_le_bytes());
    }
}

impl<A: Argument + ?Sized> Argument for &A {
    fn append(&self, params: &mut Vec<u8>) {
        (**self).append(params);
    }
}

macro_rules! argument {
    ($($ty:ty)*) => {
        $(impl Argument for $ty {
            fn append(&self, params: &mut Vec<u8>) { append_aligned(params, &self.to_le_bytes()); }
        })*
    };
}
argument!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 f16 bf16);

impl Argument for bool {
    fn append(&self, params: &mut Vec<u8>) {
        u8::from(*self).append(params);
    }
}

macro_rules! pair {
    ($($ty:ty)*) => {
        $(impl Argument for $ty {
            fn append(&self, params: &mut Vec<u8>) {
                let bits = u32::from(self.0.to_bits()) | u32::from(self.1.to_bits()) << 16;
                bits.append(params);
            }
        })*
    };
}
pair!(F16x2 Bf16x2);

/// The `.param` space of a launch with these arguments.
pub fn params(arguments: &[&dyn Argument]) -> Vec<u8> {
    let mut out = Vec::new();
    arguments.iter().for_each(|argument| argument.append(&mut out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_at_their_own_alignment() {
        let pair = F16x2(f16::from_f32(1.0), f16::from_f32(-2.0));
        let pointer = DevicePointer::<f32>::new(0x1_0000).at(3);
        assert_eq!(
            params(&[&true, &0x0203u16, &pair, &7u8, &pointer, &1.0f32]),
            [
                1, 0, 3, 2, 0x00, 0x3c, 0x00, 0xc0, 7, 0, 0, 0, 0, 0, 0, 0, 12, 0, 1, 0, 0, 0, 0, 0, 0, 0,
                0x80, 0x3f,
            ]
        );
    }

    #[test]
    fn a_device_gets_the_newest_kernel_that_it_runs() {
        static OLD: KernelSource = KernelSource { name: "k", target: Target::Sm80, ptx: "", cubin: None };
        static NEW: KernelSource = KernelSource { name: "k", target: Target::Sm90, ptx: "", cubin: None };
        let chosen = |compute| newest(&[&OLD, &NEW], compute).map(|source| source.target);
        assert_eq!(chosen((7, 5)), None);
        assert_eq!(chosen((8, 0)), Some(Target::Sm80));
        assert_eq!(chosen((8, 9)), Some(Target::Sm80));
        assert_eq!(chosen((9, 0)), Some(Target::Sm90));
        assert_eq!(chosen((12, 0)), Some(Target::Sm90));
        static OWN: KernelSource = KernelSource {
            name: "k",
            target: Target::Sm90,
            ptx: ".version 8.0\n.target sm_90a\n",
            cubin: None,
        };
        let chosen = |compute| newest(&[&OLD, &OWN], compute).map(|source| source.target);
        assert_eq!(chosen((9, 0)), Some(Target::Sm90));
        assert_eq!(chosen((10, 0)), Some(Target::Sm80));
    }
}
