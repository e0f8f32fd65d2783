//! GPU targets and their features.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A PTX target: the compute capability that a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Target {
    /// Ampere, data centre (A100).
    Sm80,
    /// Ampere (RTX 30, A10, A40).
    Sm86,
    /// Ada (RTX 40, L4, L40).
    Sm89,
    /// Hopper (H100, H200).
    Sm90,
    /// Blackwell, data centre (B200).
    Sm100,
    /// Blackwell (RTX 50).
    Sm120,
}

/// A PTX ISA version, major and minor.
pub type IsaVersion = (u8, u8);

impl Target {
    /// Every target, oldest first.
    pub const ALL: [Target; 6] =
        [Target::Sm80, Target::Sm86, Target::Sm89, Target::Sm90, Target::Sm100, Target::Sm120];

    /// The compute capability times ten: 80 for sm_80.
    pub fn number(self) -> u32 {
        match self {
            Target::Sm80 => 80,
            Target::Sm86 => 86,
            Target::Sm89 => 89,
            Target::Sm90 => 90,
            Target::Sm100 => 100,
            Target::Sm120 => 120,
        }
    }

    /// The compute capability, major and minor: 8 and 0 for sm_80.
    pub fn compute(self) -> (u32, u32) {
        (self.number() / 10, self.number() % 10)
    }

    /// Newest target whose PTX runs on a device of compute capability `major.minor`, if there is one: PTX also runs on
    /// every later device.
    pub fn for_device(major: u32, minor: u32) -> Option<Target> {
        let device = major * 10 + minor;
        Target::ALL.into_iter().rev().find(|target| target.number() <= device)
    }

    /// The first PTX ISA version that supports the target (PTX ISA, "Release Notes").
    pub fn isa(self) -> IsaVersion {
        match self {
            Target::Sm80 => (7, 0),
            Target::Sm86 => (7, 1),
            Target::Sm89 | Target::Sm90 => (7, 8),
            Target::Sm100 => (8, 6),
            Target::Sm120 => (8, 7),
        }
    }

    /// Whether programmatic launch is supported: a kernel starts before its predecessor ends and waits for it on the
    /// device (`griddepcontrol`).
    pub fn has_programmatic_launch(self) -> bool {
        self >= Target::Sm90
    }

    /// Maximum shared memory of a CTA, static and dynamic, in bytes (CUDA C++ Programming Guide, table of compute
    /// capabilities).
    pub fn shared_memory_per_block(self) -> u32 {
        match self {
            Target::Sm80 => 163 << 10,
            Target::Sm86 | Target::Sm89 | Target::Sm120 => 99 << 10,
            Target::Sm90 | Target::Sm100 => 227 << 10,
        }
    }

    /// Number of multiprocessors of the largest common device of this target; plans are made for it.
    pub fn multiprocessors(self) -> u32 {
        match self {
            Target::Sm80 => 108,
            Target::Sm86 => 84,
            Target::Sm89 => 128,
            Target::Sm90 => 132,
            Target::Sm100 => 148,
            Target::Sm120 => 170,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number())
    }
}

/// Error for an unknown target name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown target `{0}`; expected one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120")]
pub struct UnknownTarget(String);

impl FromStr for Target {
    type Err = UnknownTarget;
    fn from_str(text: &str) -> Result<Target, UnknownTarget> {
        Target::ALL
            .into_iter()
            .find(|target| target.to_string() == text)
            .ok_or_else(|| UnknownTarget(text.to_owned()))
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

impl TryFrom<String> for Target {
    type Error = UnknownTarget;
    fn try_from(text: String) -> Result<Target, UnknownTarget> {
        text.parse()
    }
}
