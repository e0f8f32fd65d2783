//! Machine code of emitted kernels, and the error for spilled registers.

use super::{EmitError, Emitted};
use crate::kernel::Compiled;
use crate::ptxas::Ptxas;

/// Assembles the module of these kernels, and stores machine code and resource usage in each of them. A spill that a kernel
/// does not allow is an error.
pub(super) fn assemble(ptxas: &Ptxas, kernels: &mut [Emitted]) -> Result<(), EmitError> {
    let Some(Emitted { compiled: Compiled { ptx, target, .. }, .. }) = kernels.first() else { return Ok(()) };
    let names: Vec<&str> = kernels.iter().map(|kernel| &kernel.compiled.name[..]).collect();
    let assembled = ptxas.cubins(&names, ptx, *target)?;
    for (kernel, assembled) in kernels.iter_mut().zip(assembled) {
        let allowed = kernel.compiled.function.allow_spills;
        if assembled.usage.spills_beyond(allowed) {
            return Err(EmitError::Spills {
                kernel: kernel.compiled.name.clone(),
                target: kernel.compiled.target,
                usage: assembled.usage,
                allowed,
            });
        }
        kernel.assembled = Some(assembled);
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use tempfile::TempDir;

    use crate::emit::{Emission, EmitError, Entry, Geometry, Manifest};
    use crate::prelude::*;
    use crate::ptxas::tests::fake;

    #[kernel(threads = 32)]
    fn k(out: Ptr<Global, u32>) {
        out.store(thread_index());
    }

    #[kernel(threads = 32, allow_spills = 24)]
    fn k_may_spill(out: Ptr<Global, u32>) {
        out.store(thread_index());
    }

    const TIGHT: &str = "Used 255 registers, 16 bytes smem";
    const SPILLS: &str =
        "24 bytes stack frame, 20 bytes spill stores, 16 bytes spill loads\nUsed 255 registers";

    fn emit(kernel: Recorded, report: &str) -> (TempDir, Result<(), EmitError>) {
        let folder = TempDir::new().unwrap();
        let entry = Entry::new(kernel.map(|kernel| kernel.named("k")), Geometry::fixed([1, 1, 1]));
        let emission = Emission::new().target(Target::Sm90).entry(entry);
        let written = emission.assembler(fake(folder.path(), "1", report)).write(folder.path());
        (folder, written.map(|_| ()))
    }

    #[test]
    fn machine_code_lies_beside_the_text_and_in_the_module() {
        let (folder, written) = emit(k(), TIGHT);
        written.unwrap();
        let read = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap();
        assert_eq!(read("sm_90/k.cubin"), read("sm_90/k.ptx"), "the assembler of this test copies");
        assert!(read("kernels.rs").contains("cubin: Some(include_bytes!(\"sm_90/k.cubin\"))"));
        let manifest: Manifest = serde_json::from_str(&read("kernels.json")).unwrap();
        let module = &manifest.kernels[0].modules[0];
        assert_eq!(module.cubin.as_deref(), Some("sm_90/k.cubin"));
        let usage = module.usage.unwrap();
        assert_eq!((usage.registers, usage.static_shared, usage.stack), (255, 16, 0));

        let entry = Entry::new(k(), Geometry::fixed([1, 1, 1]));
        Emission::new().target(Target::Sm90).entry(entry).write(folder.path()).unwrap();
        assert!(!folder.path().join("sm_90/k.cubin").exists(), "of another emission");
        assert!(read("kernels.rs").contains("cubin: None"));
        assert!(!read("kernels.json").contains("cubin"));
    }

    #[test]
    fn a_spill_is_an_error_unless_the_kernel_allows_it() {
        let (_folder, written) = emit(k(), SPILLS);
        let message = written.expect_err("it spills").to_string();
        expect_test::expect![[r#"
            kernel `k` for sm_90 spills registers: 24 bytes of stack a thread, 20 bytes stored and 16 loaded, but 0 are allowed; it uses 255 registers: keep fewer values live, let each thread have more (`min_blocks`, `max_registers`), or allow the spill with `#[kernel(…, allow_spills = 24)]`"#]]
        .assert_eq(&message);
        let (folder, written) = emit(k_may_spill(), SPILLS);
        written.unwrap();
        let ptx = std::fs::read_to_string(folder.path().join("sm_90/k.ptx")).unwrap();
        assert_eq!(crate::ptxas::allowed_stack(&ptx, "k"), 24);
        let (_folder, written) = emit(k_may_spill(), &SPILLS.replace("24 bytes", "32 bytes"));
        assert!(written.expect_err("more than it may").to_string().contains("but 24 are allowed"));
    }
}
