//! `kernels.json`: the manifest from which programs in other languages launch the kernels of a folder.
//!
//! `docs/emitted.md` describes every field; a test of bespoke-kernels compares both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Emitted, Variants};
use crate::ir::{Param, Type};
use crate::ptx::Target;
use crate::ptxas::Usage;

/// All kernels of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version: [`Manifest::VERSION`]. New fields do not change it.
    pub version: u32,
    /// Sorted by name.
    pub kernels: Vec<ManifestKernel>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestKernel {
    /// Its name: the entry point of every module.
    pub name: String,
    /// Its purpose in a few words; may be empty.
    pub summary: String,
    /// CTAs along x, y and z; null if the host chooses at each launch.
    pub grid: Option<[u32; 3]>,
    /// Threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// CTAs along x that form a cluster. The module states it too, so a plain launch suffices.
    pub cluster: Option<u32>,
    /// Dynamic shared memory of a launch, in bytes.
    pub dynamic_shared: u32,
    /// The parameters, in order.
    pub parameters: Vec<ManifestParameter>,
    /// Size of all parameters together, in bytes.
    pub parameter_bytes: u32,
    /// The compile-time parameters, as named by the kernel's author; null if none were set.
    pub constants: Value,
    /// The kernel for each target that it was emitted for, oldest first.
    pub modules: Vec<ManifestModule>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestParameter {
    /// Its name in the kernel's source.
    pub name: String,
    /// Its type, or the type of the elements that it points to: `u8` to `u64`, `i8` to `i64`, `f16`, `bf16`, `f32`,
    /// `f16x2`, `bf16x2`, or `bool`, a byte that is 0 or 1.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether it is the 64-bit address of such elements in device memory.
    pub pointer: bool,
    /// Byte offset from the first parameter.
    pub offset: u32,
    /// Size, in bytes; also the alignment.
    pub bytes: u32,
    /// Required alignment of the address in bytes, if it is larger than the elements' size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align: Option<u32>,
}

/// A kernel for one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestModule {
    /// The lowest target that it runs on.
    pub target: Target,
    /// The PTX file, relative to the manifest's folder.
    pub ptx: String,
    /// Static shared memory, in bytes.
    pub static_shared: u32,
    /// The file of machine code, for GPUs of exactly the target's compute capability, if it was assembled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin: Option<String>,
    /// The assembler's report, if it was assembled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Manifest {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    pub(super) fn of(kernels: &BTreeMap<&str, Variants<'_>>) -> Manifest {
        Manifest {
            version: Manifest::VERSION,
            kernels: kernels.values().filter_map(|variants| ManifestKernel::of(variants)).collect(),
        }
    }
}

impl ManifestKernel {
    fn of(variants: &Variants<'_>) -> Option<ManifestKernel> {
        let first = variants.first()?;
        let parameters = parameters(&first.params);
        Some(ManifestKernel {
            name: first.compiled.name.clone(),
            summary: first.summary.clone(),
            grid: first.grid,
            block: first.block,
            cluster: first.cluster,
            dynamic_shared: first.dynamic_shared,
            parameter_bytes: parameters.last().map_or(0, |last| last.offset + last.bytes),
            parameters,
            constants: first.constants.clone(),
            modules: variants.iter().map(|kernel| ManifestModule::of(kernel)).collect(),
        })
    }
}

impl ManifestModule {
    fn of(kernel: &Emitted) -> ManifestModule {
        let target = kernel.compiled.target;
        let file = |extension: &str| format!("{target}/{}.{extension}", kernel.compiled.name);
        ManifestModule {
            target,
            ptx: file("ptx"),
            static_shared: kernel.compiled.report.static_shared,
            cubin: kernel.assembled.is_some().then(|| file("cubin")),
            usage: kernel.assembled.as_ref().map(|assembled| assembled.usage),
        }
    }
}

/// The parameters at their offsets in the `.param` space: each at the next multiple of its size.
fn parameters(params: &[Param]) -> Vec<ManifestParameter> {
    let mut end: u32 = 0;
    params
        .iter()
        .map(|param| {
            let bytes = param.ty.bytes();
            let offset = end.next_multiple_of(bytes);
            end = offset + bytes;
            let ty = match param.element.unwrap_or(param.ty) {
                Type::Pred => "bool".to_owned(),
                ty => ty.to_string(),
            };
            ManifestParameter {
                name: param.name.clone(),
                ty,
                pointer: param.element.is_some(),
                offset,
                bytes,
                align: param.align,
            }
        })
        .collect()
}
