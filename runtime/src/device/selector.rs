//! Selection of a device.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::cuda::{self, CudaDevice};
use super::emulator::{self, EmulatorDevice};
use super::{Checks, Device, DeviceInfo, Error, Result};

/// Selector of a device, as the command line spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selector {
    /// The first GPU; the emulator where there is none.
    #[default]
    Auto,
    /// The GPU with this ordinal of the driver.
    Cuda(u32),
    /// The emulator.
    Emulator,
}

/// Error of parsing a [`Selector`]. `Debug` shows the message.
#[derive(Clone, Error, PartialEq, Eq)]
#[error("`{0}` is not a device: use `auto`, `cuda`, `cuda:N` (N counts from 0) or `emulator`")]
pub struct SelectorError(String);

impl fmt::Debug for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Selector, SelectorError> {
        let unknown = || SelectorError(text.to_owned());
        match text.split_once(':') {
            None => match text {
                "auto" => Ok(Selector::Auto),
                "cuda" => Ok(Selector::Cuda(0)),
                "emulator" => Ok(Selector::Emulator),
                _ => Err(unknown()),
            },
            // Only digits, because `parse` would also accept a sign.
            Some(("cuda", ordinal)) if ordinal.bytes().all(|byte| byte.is_ascii_digit()) => {
                ordinal.parse().map(Selector::Cuda).map_err(|_| unknown())
            }
            Some(_) => Err(unknown()),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Auto => f.write_str("auto"),
            Selector::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Selector::Emulator => f.write_str("emulator"),
        }
    }
}

/// An open device, with the reason for the selection.
pub struct Opened {
    /// The device.
    pub device: Box<dyn Device>,
    /// Reason for the selection, for the log.
    pub reason: String,
}

/// Opens a device; an emulator gets all checks.
pub fn open(selector: Selector) -> Result<Opened> {
    open_with(selector, Checks::ALL)
}

/// Opens a device. `checks` apply to the emulator only.
pub fn open_with(selector: Selector, checks: Checks) -> Result<Opened> {
    let opened = |device: Box<dyn Device>, reason: String| Opened { device, reason };
    match selector {
        Selector::Emulator => Ok(opened(Box::new(EmulatorDevice::new(checks)), "selected".to_owned())),
        Selector::Cuda(ordinal) => Ok(opened(Box::new(CudaDevice::open(ordinal)?), "selected".to_owned())),
        Selector::Auto => match CudaDevice::open(0) {
            Ok(device) => Ok(opened(Box::new(device), "the first GPU".to_owned())),
            Err(Error::Unavailable { what, .. }) => Ok(opened(Box::new(EmulatorDevice::new(checks)), what)),
            // The emulator, a thousand times slower, is no fallback for a GPU that fails to open.
            Err(error) => Err(error),
        },
    }
}

/// All devices, the emulator last. If GPUs cannot be used, the list has the error in place of the GPUs.
pub fn list() -> Vec<Result<DeviceInfo>> {
    let mut devices = match cuda::devices() {
        Ok(devices) => devices.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    };
    devices.push(Ok(emulator::info()));
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_round_trip() {
        for (text, selector) in [
            ("auto", Selector::Auto),
            ("cuda:0", Selector::Cuda(0)),
            ("cuda:7", Selector::Cuda(7)),
            ("emulator", Selector::Emulator),
        ] {
            assert_eq!(text.parse(), Ok(selector));
            assert_eq!(selector.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Selector::Cuda(0)));
    }

    #[test]
    fn an_unknown_selector_is_an_error_with_the_choices() {
        for text in
            ["", "gpu", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "cuda:99999999999", "emulator:0", "CUDA"]
        {
            let error = text.parse::<Selector>().expect_err("not a device");
            assert!(
                error.to_string().starts_with(&format!("`{text}` is not a device: use `auto`")),
                "{error}"
            );
        }
    }

    #[test]
    fn auto_opens_a_device_and_the_list_ends_with_the_emulator() {
        let opened = open(Selector::Auto).expect("a device");
        assert!(!opened.reason.is_empty());
        let devices = list();
        let last = devices.last().expect("at least one").as_ref().expect("the emulator is always there");
        assert_eq!(last.kind, crate::device::Kind::Emulator);
    }
}
