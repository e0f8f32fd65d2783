//! What the comparisons share: the device, the emulator, and the choice of families.

use std::error::Error;

use bespoke::device::{Address, Device, Kernel, Launch, Module};

use super::report::Agreement;

/// The two sides of a comparison, and its options.
pub struct Comparison<'a> {
    pub device: &'a dyn Device,
    pub emulator: &'a dyn Device,
    /// Part of the names or headings of the families to compare; none for all.
    pub only: Option<&'a str>,
    /// Number of differences of each form to describe.
    pub show: usize,
}

impl Comparison<'_> {
    /// Whether a family is compared.
    pub fn wants(&self, group: &str, name: &str) -> bool {
        self.only.is_none_or(|only| group.contains(only) || name.contains(only))
    }

    /// Line of a family without results.
    pub fn line(&self, group: &'static str, name: &'static str) -> Agreement {
        Agreement::new(group, name, self.show)
    }

    /// Loads a module on the device and on the emulator.
    pub fn load(&self, name: &str, text: &str) -> Result<[Module; 2], Box<dyn Error>> {
        Ok([self.device.load(name, text)?, self.emulator.load(name, text)?])
    }

    /// Results of `run` with the kernel `kernel` on the device and on the emulator. Errors name the form.
    pub fn both<R>(
        &self,
        modules: &[Module; 2],
        (kernel, form): (&str, &str),
        run: impl Fn(&dyn Device, Kernel) -> Result<R, Box<dyn Error>>,
    ) -> Result<(R, R), Box<dyn Error>> {
        let side = |device: &dyn Device, module: &Module| -> Result<R, Box<dyn Error>> {
            let results = module.kernel(kernel).map_err(Into::into).and_then(|kernel| run(device, kernel));
            Ok(results.map_err(|error| format!("{form}: {error}"))?)
        };
        Ok((side(self.device, &modules[0])?, side(self.emulator, &modules[1])?))
    }
}

/// Runs a kernel and waits for it.
pub fn run(
    device: &dyn Device,
    kernel: Kernel,
    (grid, threads): (u32, u32),
    params: Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    let (grid, block) = ([grid, 1, 1], [threads, 1, 1]);
    let launch = Launch { kernel, grid, block, dynamic_shared: 0, params, programmatic: false };
    device.sequence(vec![launch])?.run_eager()?;
    Ok(())
}

/// Downloads `bytes` bytes.
pub fn download(device: &dyn Device, from: Address, bytes: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut content = vec![0; bytes];
    device.download(from, &mut content)?;
    Ok(content)
}

/// A little-endian word of `bytes` bytes.
pub fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}
