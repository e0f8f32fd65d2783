//! Which device to open.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::cuda::{self, CudaDevice};
use super::emulator::{self, EmulatorDevice};
use super::{Checks, Device, DeviceInfo, Error, Result};

/// The device asked for on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selector {
    /// The first GPU that can be opened; the emulator where there is none.
    #[default]
    Auto,
    /// A GPU by its ordinal.
    Cuda(u32),
    /// The emulator.
    Emulator,
}

/// A text that names no device. `{:?}` is the message, too.
#[derive(Clone, Error, PartialEq, Eq)]
#[error("`{0}` is no device: say `auto`, `cuda`, `cuda:N` (N counts from 0) or `emulator`")]
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
            // `parse` would take a sign.
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

/// An open device, and why it is this one.
pub struct Opened {
    /// The device.
    pub device: Box<dyn Device>,
    /// Why it was chosen, for the log.
    pub reason: String,
}

/// Opens a device; the emulator with all of its checks.
pub fn open(selector: Selector) -> Result<Opened> {
    open_with(selector, Checks::ALL)
}

/// Opens a device, and lets the emulator look for so much. A GPU looks for nothing.
pub fn open_with(selector: Selector, checks: Checks) -> Result<Opened> {
    let opened = |device: Box<dyn Device>, reason: String| Opened { device, reason };
    match selector {
        Selector::Emulator => Ok(opened(Box::new(EmulatorDevice::new(checks)), "asked for".to_owned())),
        Selector::Cuda(ordinal) => Ok(opened(Box::new(CudaDevice::open(ordinal)?), "asked for".to_owned())),
        Selector::Auto => match CudaDevice::open(0) {
            Ok(device) => Ok(opened(Box::new(device), "the first GPU that the driver shows".to_owned())),
            Err(Error::Unavailable { what, .. }) => Ok(opened(Box::new(EmulatorDevice::new(checks)), what)),
            // A GPU that is there and fails: decoding a thousand times slower is no fallback for that.
            Err(error) => Err(error),
        },
    }
}

/// Every device here, the emulator last; what keeps GPUs from being used stands in their place.
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
    fn selectors_read_back_what_they_print() {
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
    fn what_names_no_device_is_refused_with_the_choices() {
        for text in
            ["", "gpu", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "cuda:99999999999", "emulator:0", "CUDA"]
        {
            let error = text.parse::<Selector>().expect_err("no device");
            assert!(error.to_string().starts_with(&format!("`{text}` is no device: say `auto`")), "{error}");
        }
    }

    #[test]
    fn auto_opens_something_and_the_list_ends_with_the_emulator() {
        let opened = open(Selector::Auto).expect("a device");
        assert!(!opened.reason.is_empty());
        let devices = list();
        let last = devices.last().expect("at least one").as_ref().expect("the emulator is always there");
        assert_eq!(last.kind, crate::device::Kind::Emulator);
    }
}
