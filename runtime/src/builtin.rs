//! The kernels that were emitted when this binary was built.

use bespoke_codegen::launch::KernelSource;
use bespoke_codegen::ptx::Target;

use crate::device::ModuleSource;

/// What `build.rs` emitted: for every target a module with all kernels and a typed launch stub for each.
pub mod generated {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// The PTX of the kernel `name`, if it was built in for `target`.
pub fn ptx(target: Target, name: &str) -> Option<&'static str> {
    Some(kernel(target, name)?.ptx)
}

/// What to load the kernel `name` from: what was built in, machine code included, or else the text that was made of it.
pub fn source<'a>(target: Target, name: &'a str, ptx: &'a str) -> ModuleSource<'a> {
    match kernel(target, name) {
        Some(kernel) => ModuleSource::from(kernel),
        None => ModuleSource::ptx(name, ptx),
    }
}

/// The targets that kernels were built in for, oldest first.
pub fn targets() -> &'static [Target] {
    generated::TARGETS
}

/// How many kernels were built in for `target`.
pub fn kernel_count(target: Target) -> usize {
    kernels(target).len()
}

/// How many of them were built in as machine code, too.
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
    fn every_kernel_is_found_by_its_name() {
        assert!(!targets().is_empty());
        for &target in targets() {
            assert!(kernel_count(target) > 0);
            for kernel in kernels(target) {
                let text = ptx(target, kernel.name).expect("it is in the list");
                assert!(text.contains(&format!(".entry {}(", kernel.name)), "{}", kernel.name);
                assert!(text.contains(&format!(".target {target}")), "{}", kernel.name);
            }
        }
    }

    #[test]
    fn what_was_not_built_in_is_not_found() {
        let probe = KernelSpec::ReadProbe(ProbeShape::default()).name();
        for target in Target::ALL {
            assert_eq!(ptx(target, &probe).is_some(), targets().contains(&target), "{target}");
            assert!(ptx(target, "no_such_kernel").is_none());
        }
    }
}
