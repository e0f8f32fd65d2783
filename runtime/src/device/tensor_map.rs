//! Tensor maps of device memory.

use bespoke_codegen::dsl::Scalar;
use bespoke_codegen::launch::{TensorDescription, TensorMap};

use super::{Device, Error, Result};

impl dyn Device + '_ {
    /// Encodes a tensor map, the argument of a kernel parameter `TensorMap<T, RANK, …>`. The tensor's memory must outlive the
    /// launches that use the map.
    ///
    /// ```
    /// use bespoke::device::{self, Launch, Selector};
    /// use bespoke_codegen::launch::{Swizzle, TensorDescription, params};
    /// use bespoke_codegen::prelude::*;
    ///
    /// /// Sums each column of a tile of 16 rows of 32 elements.
    /// #[kernel(threads = 32)]
    /// fn sums(#[tile([32, 16])] x: TensorMap<f32, 2, Swizzle128>, out: Ptr<Global, f32>) {
    ///     let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
    ///     if thread_index() == 0 {
    ///         done.init(1);
    ///         fence_mbarrier_init();
    ///         done.arrive_expect(tile.size());
    ///         x.load(tile, (0, 0), done, None);
    ///     }
    ///     barrier();
    ///     done.wait(0, Wait::Try);
    ///     let mut sum = val(0.0);
    ///     for row in 0..16u32 {
    ///         sum += tile.at((thread_index(), row)).load();
    ///     }
    ///     out.at(thread_index()).store(sum);
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = device::open(Selector::Emulator)?.device;
    /// let module = device.load("sums", &sums()?.compile(Target::Sm90)?.ptx)?;
    /// let x = device.buffer_of("x", &[0.5f32; 32 * 16])?;
    /// let out = device.buffer::<f32>("out", 32)?;
    /// let tensor = TensorDescription::dense(x.pointer(), [32, 16], [32, 16]).swizzle(Swizzle::Bytes128);
    /// let launch = Launch {
    ///     kernel: module.kernel("sums")?,
    ///     grid: [1, 1, 1],
    ///     block: [32, 1, 1],
    ///     dynamic_shared: 0,
    ///     params: params(&[&device.tensor_map(&tensor)?, &out.pointer()]),
    ///     programmatic: false,
    /// };
    /// device.sequence(vec![launch])?.run_eager()?;
    /// assert_eq!(device.read(&out)?, [8.0; 32]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TensorMap`] if no device can encode the description, or this device has no tensor maps.
    pub fn tensor_map<T: Scalar, const RANK: usize>(
        &self,
        description: &TensorDescription<T, RANK>,
    ) -> Result<TensorMap<T, RANK>> {
        let arguments =
            description.driver_arguments().map_err(|error| Error::TensorMap(error.to_string()))?;
        let (major, minor) = self.info().compute;
        if major < 9 {
            return Err(Error::TensorMap(format!(
                "{} has compute capability {major}.{minor}; tensor maps need 9.0 or later",
                self.info().name
            )));
        }
        Ok(TensorMap::encoded(description, self.encode_tensor_map(&arguments)?))
    }
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::launch::{DevicePointer, TensorDescription};

    use crate::device::{Selector, open};

    #[test]
    fn a_map_that_cannot_be_encoded_is_an_error() {
        let device = open(Selector::Emulator).unwrap().device;
        let message =
            |description: TensorDescription<f32, 2>| device.tensor_map(&description).unwrap_err().to_string();
        let dense = TensorDescription::dense(DevicePointer::<f32>::new(0x400), [30, 16], [16, 8]);
        assert_eq!(
            message(dense),
            "tensor map: a stride of 120 bytes along dimension 1: it must be a multiple of 16 below 2^40; pad the rows of \
             the tensor"
        );
        assert!(device.tensor_map(&dense.stride(1, 128)).is_ok());
    }
}
