//! What generated launch stubs are written against: typed arguments and a device that launches.
//!
//! A stub is a function with one typed argument for each of the kernel's run-time parameters; it lays them out as
//! the kernel's `.param` space and hands them to a [`Launcher`]. A wrong type or count is a compile error on the
//! host.

use std::marker::PhantomData;

pub use half::{bf16, f16};

/// An address in device memory of elements of type `T`.
pub struct DevicePointer<T> {
    address: u64,
    element: PhantomData<*const T>,
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
    /// The pointer to a device address, which must be aligned for `T`.
    pub fn new(address: u64) -> DevicePointer<T> {
        DevicePointer { address, element: PhantomData }
    }

    /// The address.
    pub fn address(self) -> u64 {
        self.address
    }
}

/// The grid and the dynamic shared memory of a launch; the CTA's size is part of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads a CTA along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub dynamic_shared: u32,
}

/// A kernel as generated code holds it.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource {
    /// The entry point.
    pub name: &'static str,
    /// The module's text.
    pub ptx: &'static str,
}

/// A device that launches kernels.
pub trait Launcher {
    /// Why it could not.
    type Error;
    /// Launches `kernel` with its `.param` space as `params`, after the launches before it.
    fn launch(
        &mut self,
        kernel: &KernelSource,
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<(), Self::Error>;
}

/// A value that can be a kernel's argument.
pub trait Argument {
    /// Appends it to the `.param` space at its natural alignment.
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

macro_rules! argument {
    ($($ty:ty)*) => {
        $(impl Argument for $ty {
            fn append(&self, params: &mut Vec<u8>) { append_aligned(params, &self.to_le_bytes()); }
        })*
    };
}
argument!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f16 bf16);

/// The `.param` space of a launch with these arguments.
pub fn params(arguments: &[&dyn Argument]) -> Vec<u8> {
    let mut out = Vec::new();
    arguments.iter().for_each(|argument| argument.append(&mut out));
    out
}
