//! Loaded modules and their kernels.

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bespoke_codegen::ptxas;
use cudarc::driver::sys;
use cudarc::driver::sys::CUfunction_attribute as Attribute;

use super::super::module_loader::{Loaded, ModuleLoader};
use super::super::signature::signatures;
use super::super::{Error, Module, ModuleSource, Resources, Result};
use super::assembler::DriverAssembler;
use super::context::Context;
use super::driver::call;

/// Largest shared memory per CTA in bytes without `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` (CUDA C++
/// Programming Guide, shared memory).
const DEFAULT_SHARED: u32 = 48 << 10;

/// A loaded module, unloaded when its last kernel is dropped.
struct LoadedModule {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

// SAFETY: driver handles may be used from any thread.
unsafe impl Send for LoadedModule {}
// SAFETY: as above.
unsafe impl Sync for LoadedModule {}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // A failure cannot be handled here.
            let _ = call!(self.context.driver, cuModuleUnload(self.raw), "unloading a module");
        }
    }
}

/// The handle in a [`super::super::Kernel`].
pub(super) struct CudaKernel {
    module: Arc<LoadedModule>,
    pub function: sys::CUfunction,
    /// Current limit of the function's dynamic shared memory in bytes.
    dynamic_shared_limit: AtomicU32,
}

// SAFETY: driver handles may be used from any thread.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl CudaKernel {
    /// Whether the kernel is loaded in `context`.
    pub fn belongs_to(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.module.context, context)
    }

    /// Raises the limit of the kernel's dynamic shared memory to `bytes`, if it is lower.
    pub fn raise_dynamic_shared_limit(&self, bytes: u32, name: &str) -> Result<()> {
        if bytes <= self.dynamic_shared_limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        call!(
            self.module.context.driver,
            cuFuncSetAttribute(
                self.function,
                Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                bytes as c_int
            ),
            "raising the dynamic shared memory of `{name}` to {bytes} bytes"
        )?;
        self.dynamic_shared_limit.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Loads a module, and looks up the kernels that the PTX declares.
pub(super) fn load(
    context: &Arc<Context>,
    loader: &ModuleLoader,
    source: &ModuleSource<'_>,
) -> Result<Module> {
    context.enter()?;
    let &ModuleSource { name, ptx, .. } = source;
    let rejected = |message: String| Error::Assembly { module: name.to_owned(), message, help: None };
    let Loaded { module: raw, log, origin } = loader.load(&DriverAssembler { context, name }, source)?;
    let loaded = Arc::new(LoadedModule { context: context.clone(), raw });

    let mut module = Module::new(name, log, Some(origin));
    for entry in signatures(ptx).map_err(rejected)? {
        let symbol = CString::new(entry.name.as_str())
            .map_err(|_| rejected(format!("`{}` is not a valid kernel name", entry.name)))?;
        let mut function = ptr::null_mut();
        call!(
            context.driver,
            cuModuleGetFunction(&mut function, raw, symbol.as_ptr()),
            "looking up kernel `{}` in module `{name}`",
            entry.name
        )?;
        let resources = resources(context, function)?;
        let allowed_local = ptxas::allowed_stack(ptx, &entry.name);
        if resources.local > allowed_local + FEW_BYTES {
            tracing::warn!(
                "`{}` spills: {} bytes of local memory for each thread, expected at most {allowed_local}; it will be slow \
                 on this device",
                entry.name,
                resources.local
            );
        }
        let dynamic_shared_limit = AtomicU32::new(DEFAULT_SHARED.saturating_sub(resources.static_shared));
        module.add(
            entry,
            Some(resources),
            CudaKernel { module: loaded.clone(), function, dynamic_shared_limit },
        );
    }
    Ok(module)
}

/// Spilled bytes for each thread that are not worth a warning: a few values outside of loops.
const FEW_BYTES: u32 = 64;

/// Reads the resources of a kernel.
fn resources(context: &Context, function: sys::CUfunction) -> Result<Resources> {
    let attribute = |attribute: Attribute| {
        let mut value = 0;
        call!(
            context.driver,
            cuFuncGetAttribute(&mut value, attribute, function),
            "reading a kernel's {attribute:?}"
        )?;
        Ok::<_, Error>(value.max(0) as u32)
    };
    Ok(Resources {
        registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        static_shared: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        local: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        max_threads: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
    })
}
