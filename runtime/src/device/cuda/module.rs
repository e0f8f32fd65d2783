//! Loads PTX through the driver's assembler and keeps what it says.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys;
use cudarc::driver::sys::CUfunction_attribute as Attribute;
use cudarc::driver::sys::CUjit_option as JitOption;

use super::super::assembly::{self, refusal};
use super::super::entries::entries;
use super::super::{Error, Module, Resources, Result};
use super::context::Context;
use super::driver::call;

/// Bytes for each of the assembler's two logs.
const LOG_BYTES: usize = 64 << 10;

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

/// Assembles `ptx` and looks up every kernel it declares.
pub(super) fn load(context: &Arc<Context>, name: &str, ptx: &str) -> Result<Module> {
    context.enter()?;
    let refused =
        |message: String, help: Option<String>| Error::Assembly { module: name.to_owned(), message, help };
    let text = CString::new(ptx)
        .map_err(|error| refused(format!("byte {} of the PTX is zero", error.nul_position()), None))?;
    let (raw, log) = assemble(context, name, ptx, &text)?;
    let loaded = Arc::new(LoadedModule { context: context.clone(), raw });

    let mut module = Module::new(name, log);
    for entry in entries(ptx).map_err(|message| refused(message, None))? {
        let symbol = CString::new(entry.name.as_str())
            .map_err(|_| refused(format!("`{}` is no kernel's name", entry.name), None))?;
        let mut function = ptr::null_mut();
        call!(
            context.driver,
            cuModuleGetFunction(&mut function, raw, symbol.as_ptr()),
            "looking up kernel `{}` in module `{name}`",
            entry.name
        )?;
        let resources = resources(context, function)?;
        let allowed = AtomicU32::new(DEFAULT_DYNAMIC_SHARED.saturating_sub(resources.static_shared));
        module.add(entry, Some(resources), CudaKernel { module: loaded.clone(), function, allowed });
    }
    Ok(module)
}

/// Runs the driver's assembler; returns the module and the assembler's remarks.
fn assemble(context: &Context, name: &str, ptx: &str, text: &CString) -> Result<(sys::CUmodule, String)> {
    let mut info = vec![0u8; LOG_BYTES];
    let mut errors = vec![0u8; LOG_BYTES];
    let pointer = |buffer: &mut Vec<u8>| buffer.as_mut_ptr().cast::<c_void>();
    // A number travels in the place of a pointer.
    let number = |value: usize| ptr::without_provenance_mut::<c_void>(value);
    let (mut options, mut values): (Vec<_>, Vec<_>) = [
        (JitOption::CU_JIT_INFO_LOG_BUFFER, pointer(&mut info)),
        (JitOption::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
        (JitOption::CU_JIT_ERROR_LOG_BUFFER, pointer(&mut errors)),
        (JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
        // Registers and spills in the log, source lines for profilers.
        (JitOption::CU_JIT_LOG_VERBOSE, number(1)),
        (JitOption::CU_JIT_GENERATE_LINE_INFO, number(1)),
    ]
    .into_iter()
    .unzip();
    let mut raw = ptr::null_mut();
    let outcome = call!(
        context.driver,
        cuModuleLoadDataEx(
            &mut raw,
            text.as_ptr().cast(),
            options.len() as c_uint,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        ),
        "assembling module `{name}`"
    );
    match outcome {
        Ok(()) => Ok((raw, logged(&info))),
        Err(failure) => Err(refusal_of(name, ptx, &logged(&errors), failure)),
    }
}

/// The error for PTX that did not load. A failure that is not about the PTX stays what it is.
fn refusal_of(name: &str, ptx: &str, log: &str, failure: Error) -> Error {
    let Error::Driver(driver) = &failure else { return failure };
    if log.is_empty() && !matches!(driver.code, 200 | 209 | 218 | 222) {
        return failure;
    }
    let said = format!("{} ({}): {}", driver.name, driver.code, driver.description);
    let asks = match (assembly::version(ptx), assembly::target(ptx)) {
        (Some(version), Some(target)) => format!("; it is PTX {version} for {target}"),
        _ => String::new(),
    };
    let message = match log {
        "" => format!("the driver refused the PTX: {said}{asks}"),
        log => format!("{}\n  the driver returned {said}{asks}", refusal(log, ptx)),
    };
    Error::Assembly { module: name.to_owned(), message, help: driver.help.clone() }
}

/// A log's text, up to its first zero byte.
fn logged(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
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
