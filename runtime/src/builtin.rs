//! Kernels that were compiled when this binary was built. Their PTX is compressed.

use bespoke_codegen::ptx::Target;

use crate::device::{MachineCode, ModuleSource};

// Output of the build script: `TARGETS` and `kernels`.
include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The built-in kernels for a target.
struct BuiltInKernels {
    /// PTX of all kernels, each compressed by itself (DEFLATE).
    ptx: &'static [u8],
    /// The kernels, sorted by name.
    kernels: &'static [BuiltIn],
}

/// A built-in kernel.
struct BuiltIn {
    name: &'static str,
    /// Start and end of the compressed text in [`BuiltInKernels::ptx`].
    ptx: [usize; 2],
    /// Length of the text in bytes.
    length: usize,
    /// Machine code for the target's compute capability.
    cubin: Option<&'static [u8]>,
}

impl BuiltInKernels {
    /// Of a target without built-in kernels.
    const NONE: BuiltInKernels = BuiltInKernels { ptx: &[], kernels: &[] };

    fn find(&self, name: &str) -> Option<&BuiltIn> {
        let index = self.kernels.binary_search_by(|kernel| kernel.name.cmp(name)).ok()?;
        self.kernels.get(index)
    }
}

/// Whether a kernel is built in for `target`.
pub fn contains(target: Target, name: &str) -> bool {
    kernels(target).find(name).is_some()
}

/// PTX of a kernel, if it is built in for `target`. Decompresses the text, in a fraction of a millisecond.
pub fn ptx(target: Target, name: &str) -> Option<String> {
    let built_in = kernels(target);
    let kernel = built_in.find(name)?;
    let [start, end] = kernel.ptx;
    let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(&built_in.ptx[start..end], kernel.length);
    let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    Some(text.expect("the build script compressed the text"))
}

/// Source of a kernel: `ptx`, and machine code if the kernel is built in with machine code.
pub fn source<'a>(target: Target, name: &'a str, ptx: &'a str) -> ModuleSource<'a> {
    let cubin = kernels(target).find(name).and_then(|kernel| kernel.cubin);
    let machine_code = cubin.map(|cubin| MachineCode { compute: target.compute(), cubin });
    ModuleSource { name, ptx, machine_code }
}

/// Targets of the built-in kernels, oldest first.
pub fn targets() -> &'static [Target] {
    TARGETS
}

/// Number of built-in kernels for `target`.
pub fn kernel_count(target: Target) -> usize {
    kernels(target).kernels.len()
}

/// Number of built-in kernels for `target` with machine code.
pub fn cubin_count(target: Target) -> usize {
    kernels(target).kernels.iter().filter(|kernel| kernel.cubin.is_some()).count()
}

#[cfg(test)]
mod tests {
    use bespoke_kernels::kernels::probe::ProbeShape;
    use bespoke_kernels::spec::KernelSpec;

    use super::*;

    #[test]
    fn every_kernel_is_found_by_name() {
        assert!(!targets().is_empty());
        for &target in targets() {
            assert!(kernel_count(target) > 0);
            for kernel in kernels(target).kernels {
                let text = ptx(target, kernel.name).expect("the kernel is listed");
                assert_eq!(text.len(), kernel.length, "{}", kernel.name);
                assert!(text.contains(&format!(".entry {}(", kernel.name)), "{}", kernel.name);
                assert!(text.contains(&format!(".target {target}")), "{}", kernel.name);
            }
        }
    }

    #[test]
    fn other_kernels_are_not_found() {
        let probe = KernelSpec::ReadProbe(ProbeShape::default()).name();
        for target in Target::ALL {
            assert_eq!(contains(target, &probe), targets().contains(&target), "{target}");
            assert_eq!(ptx(target, &probe).is_some(), contains(target, &probe), "{target}");
            assert!(ptx(target, "no_such_kernel").is_none());
        }
    }
}
