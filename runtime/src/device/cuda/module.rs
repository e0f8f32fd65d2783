//! Loaded modules, and the kernels in them.

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

/// Dynamic shared memory a block may have without asking for more (CUDA C++ Programming Guide, shared memory).
const DEFAULT_DYNAMIC_SHARED: u32 = 48 << 10;

/// A loaded module, unloaded when the last kernel of it is gone.
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
            // Nothing is left to do about a failure.
            let _ = call!(self.context.driver, cuModuleUnload(self.raw), "unloading a module");
        }
    }
}

/// A kernel's handle, as [`super::super::Kernel`] carries it.
pub(super) struct CudaKernel {
    module: Arc<LoadedModule>,
    pub function: sys::CUfunction,
    /// Dynamic shared memory that the function is allowed so far.
    allowed: AtomicU32,
}

// SAFETY: driver handles may be used from any thread.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl CudaKernel {
    /// Whether the kernel lives in `context`.
    pub fn belongs_to(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.module.context, context)
    }

    /// Lets launches of the kernel have `bytes` of dynamic shared memory.
    pub fn allow_dynamic_shared(&self, bytes: u32, name: &str) -> Result<()> {
        if bytes <= self.allowed.load(Ordering::Relaxed) {
            return Ok(());
        }
        call!(
            self.module.context.driver,
            cuFuncSetAttribute(
                self.function,
                Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                bytes as c_int
            ),
            "allowing `{name}` {bytes} bytes of dynamic shared memory"
        )?;
        self.allowed.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Loads a module and looks up every kernel that its PTX declares.
pub(super) fn load(
    context: &Arc<Context>,
    images: &ModuleLoader,
    source: &ModuleSource<'_>,
) -> Result<Module> {
    context.enter()?;
    let &ModuleSource { name, ptx, .. } = source;
    let refused = |message: String| Error::Assembly { module: name.to_owned(), message, help: None };
    let Loaded { module: raw, log, origin } = images.load(&DriverAssembler { context, name }, source)?;
    let loaded = Arc::new(LoadedModule { context: context.clone(), raw });

    let mut module = Module::new(name, log, Some(origin));
    for entry in signatures(ptx).map_err(refused)? {
        let symbol = CString::new(entry.name.as_str())
            .map_err(|_| refused(format!("`{}` is no kernel's name", entry.name)))?;
        let mut function = ptr::null_mut();
        call!(
            context.driver,
            cuModuleGetFunction(&mut function, raw, symbol.as_ptr()),
            "looking up kernel `{}` in module `{name}`",
            entry.name
        )?;
        let resources = resources(context, function)?;
        let allowed_local = ptxas::allowed_stack(ptx);
        if resources.local > allowed_local {
            tracing::warn!(
                "`{}` spills: {} bytes of local memory a thread, where it allows {allowed_local}; it will be slow on \
                 this device",
                entry.name,
                resources.local
            );
        }
        let allowed = AtomicU32::new(DEFAULT_DYNAMIC_SHARED.saturating_sub(resources.static_shared));
        module.add(entry, Some(resources), CudaKernel { module: loaded.clone(), function, allowed });
    }
    Ok(module)
}

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
