//! `kernels.json`: the manifest from which programs in other languages launch the kernels of a folder.
//!
//! `docs/emitted.md` describes every field; a test of bespoke-kernels compares the page with an emitted manifest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Emitted, Variants};
use crate::ir::{Param, Type};
use crate::ptx::Target;
use crate::ptxas::Usage;

/// The manifest: all kernels of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version: [`Manifest::VERSION`]. Adding a field does not change the version.
    pub version: u32,
    /// Kernels, sorted by name.
    pub kernels: Vec<ManifestKernel>,
}

/// Manifest entry of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestKernel {
    /// Name of the kernel and of its entry point in every module.
    pub name: String,
    /// Purpose of the kernel in a few words; may be empty.
    pub summary: String,
    /// CTAs along x, y and z; null if the host chooses the grid at each launch.
    pub grid: Option<[u32; 3]>,
    /// Threads per CTA along x, y and z.
    pub block: [u32; 3],
    /// CTAs per cluster, along x; null without clusters. The PTX states the cluster too, so a plain launch suffices.
    pub cluster: Option<u32>,
    /// Dynamic shared memory per CTA, in bytes.
    pub dynamic_shared: u32,
    /// Run-time parameters, in order.
    pub parameters: Vec<ManifestParameter>,
    /// Size of all parameters together, in bytes.
    pub parameter_bytes: u32,
    /// The compile-time parameters, as named by the kernel's author; null if none were set.
    pub constants: Value,
    /// One module per target that the kernel was emitted for, oldest target first.
    pub modules: Vec<ManifestModule>,
}

/// Run-time parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestParameter {
    /// Name of the parameter in the kernel's source.
    pub name: String,
    /// Type of the parameter, or element type of a pointer: `u8` to `u64`, `i8` to `i64`, `f16`, `bf16`, `f32`,
    /// `f16x2`, `bf16x2`, or `bool`, a byte that is 0 or 1.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether the parameter is a pointer: a 64-bit address in device memory.
    pub pointer: bool,
    /// Offset from the first parameter, in bytes.
    pub offset: u32,
    /// Size of the parameter in bytes, which is also its alignment in the `.param` space; of a tensor map 128, with an
    /// alignment of 64.
    pub bytes: u32,
    /// Required alignment of the address in bytes, if larger than the element size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align: Option<u32>,
    /// Layout of a tensor map, whose element type is `type`; absent for other parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_map: Option<ManifestTensorMap>,
}

/// Layout that the host must give a tensor map: arguments of `cuTensorMapEncodeTiled`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestTensorMap {
    /// `boxDim`: elements of a tile along each of 1 to 5 dimensions, dimension 0 first.
    pub tile: Vec<u32>,
    /// Bytes of the swizzle: 0 without swizzle, 32, 64 or 128.
    pub swizzle: u32,
}

/// Files of a kernel for one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestModule {
    /// The lowest target that the PTX runs on.
    pub target: Target,
    /// The PTX file, relative to the manifest's folder. Kernels that share a module have the same file.
    pub ptx: String,
    /// The file with the IR before any pass, relative to the manifest's folder, if it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ir: Option<String>,
    /// Static shared memory per CTA, in bytes.
    pub static_shared: u32,
    /// The machine-code file, for GPUs of exactly the target's compute capability, if the module was assembled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubin: Option<String>,
    /// Resource usage that the assembler reported, if the module was assembled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Manifest {
    /// Format version of the manifests that this code writes.
    pub const VERSION: u32 = 1;

    pub(super) fn of(kernels: &BTreeMap<&str, Variants<'_>>, with_ir: bool) -> Manifest {
        Manifest {
            version: Manifest::VERSION,
            kernels: kernels.values().filter_map(|variants| ManifestKernel::of(variants, with_ir)).collect(),
        }
    }
}

impl ManifestKernel {
    fn of(variants: &Variants<'_>, with_ir: bool) -> Option<ManifestKernel> {
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
            modules: variants.iter().map(|kernel| ManifestModule::of(kernel, with_ir)).collect(),
        })
    }
}

impl ManifestModule {
    fn of(kernel: &Emitted, with_ir: bool) -> ManifestModule {
        let target = kernel.compiled.target;
        let file = |stem: &str, extension: &str| format!("{target}/{stem}.{extension}");
        ManifestModule {
            target,
            ptx: file(&kernel.module, "ptx"),
            ir: with_ir.then(|| file(&kernel.compiled.name, "ir")),
            static_shared: kernel.compiled.report.static_shared,
            cubin: kernel.assembled.is_some().then(|| file(&kernel.module, "cubin")),
            usage: kernel.assembled.as_ref().map(|assembled| assembled.usage),
        }
    }
}

/// Manifest entries of the parameters, with offsets in the `.param` space: each at the next multiple of its alignment.
fn parameters(params: &[Param]) -> Vec<ManifestParameter> {
    let mut end: u32 = 0;
    params
        .iter()
        .map(|param| {
            let bytes = param.bytes();
            let offset = end.next_multiple_of(param.space_alignment());
            end = offset + bytes;
            let tensor = param.tensor.as_ref();
            let element = param.element.or(tensor.map(|layout| layout.element));
            let ty = match element.unwrap_or(param.ty) {
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
                tensor_map: tensor.map(|layout| ManifestTensorMap {
                    tile: layout.tile.clone(),
                    swizzle: layout.swizzle.bytes(),
                }),
            }
        })
        .collect()
}
