//! Kernels that were compiled when this binary was built.

use bespoke_codegen::launch::KernelSource;
use bespoke_codegen::ptx::Target;

use crate::device::ModuleSource;

/// Output of the build script: for each target a module with all kernels, and a typed launch stub for each kernel.
pub mod generated {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// PTX of a kernel, if it is built in for `target`.
pub fn ptx(target: Target, name: &str) -> Option<&'static str> {
    Some(kernel(target, name)?.ptx)
}

/// Source of a kernel: the built-in source, which may include machine code, else `ptx`.
pub fn source<'a>(target: Target, name: &'a str, ptx: &'a str) -> ModuleSource<'a> {
    match kernel(target, name) {
        Some(kernel) => ModuleSource::from(kernel),
        None => ModuleSource::ptx(name, ptx),
    }
}

/// Targets of the built-in kernels, oldest first.
pub fn targets() -> &'static [Target] {
    generated::TARGETS
}

/// Number of built-in kernels for `target`.
pub fn kernel_count(target: Target) -> usize {
    kernels(target).len()
}

/// Number of built-in kernels for `target` with machine code.
pub fn cubin_count(target: Target) -> usize {
    kernels(target).iter().filter(|kernel| kernel.cubin.is_some()).count()
}

fn kernel(target: Target, name: &str) -> Option<&'static KernelSource> {
    let kernels = kernels(target);
    let index = kernels.binary_search_by(|kernel| kernel.name.cmp(name)).ok()?;
    Some(kernels[index])
}

fn kernels(target: Target) -> &'static [&'static KernelSource] {
    generated::kernels(target)
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
            for kernel in kernels(target) {
                let text = ptx(target, kernel.name).expect("the kernel is listed");
                assert!(text.contains(&format!(".entry {}(", kernel.name)), "{}", kernel.name);
                assert!(text.contains(&format!(".target {target}")), "{}", kernel.name);
            }
        }
    }

    #[test]
    fn other_kernels_are_not_found() {
        let probe = KernelSpec::ReadProbe(ProbeShape::default()).name();
        for target in Target::ALL {
            assert_eq!(ptx(target, &probe).is_some(), targets().contains(&target), "{target}");
            assert!(ptx(target, "no_such_kernel").is_none());
        }
    }
}
