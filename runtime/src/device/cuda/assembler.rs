//! The driver's assembler and linker: PTX to a loaded module, or to machine code that can be cached.

use std::ffi::{CString, c_uint, c_void};
use std::{ptr, slice};

use cudarc::driver::sys;
use cudarc::driver::sys::CUjit_option as JitOption;

use super::super::assembler_log;
use super::super::module_loader::{Assembled, Assembler, is_rejection};
use super::super::{Error, Result};
use super::context::Context;
use super::driver::{Driver, call};

/// Size of each of the assembler's two logs.
const LOG_BYTES: usize = 64 << 10;

/// Assembler of a context, for the module `name`. The context is current on this thread.
pub(super) struct DriverAssembler<'a> {
    pub context: &'a Context,
    pub name: &'a str,
}

impl DriverAssembler<'_> {
    /// PTX with a terminating zero byte.
    fn terminated(&self, ptx: &str) -> Result<CString> {
        CString::new(ptx).map_err(|error| Error::Assembly {
            module: self.name.to_owned(),
            message: format!("byte {} of the PTX is zero", error.nul_position()),
            help: None,
        })
    }

    /// Loads an image: a cubin, or PTX with a terminating zero byte.
    fn load_image(&self, image: *const c_void, options: &mut Options) -> Result<sys::CUmodule> {
        let mut raw = ptr::null_mut();
        call!(
            self.context.driver,
            cuModuleLoadDataEx(
                &mut raw,
                image,
                options.count(),
                options.names.as_mut_ptr(),
                options.values.as_mut_ptr()
            ),
            "loading module `{}`",
            self.name
        )?;
        Ok(raw)
    }
}

impl Assembler for DriverAssembler<'_> {
    type Module = sys::CUmodule;

    fn load(&self, cubin: &[u8]) -> Result<sys::CUmodule> {
        // The driver reads structures in place, and a slice may be unaligned.
        let mut aligned = vec![0u64; cubin.len().div_ceil(size_of::<u64>())];
        for (word, bytes) in aligned.iter_mut().zip(cubin.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        self.load_image(aligned.as_ptr().cast(), &mut Options::none())
    }

    /// Linked machine code differs from that of [`Assembler::assemble`] in one way: the linker inserts the addresses of
    /// static shared memory, which the assembler then does not know.
    fn link(&self, ptx: &str) -> Result<Assembled<Vec<u8>>> {
        let text = self.terminated(ptx)?;
        let name = CString::new(self.name).unwrap_or_default();
        let mut options = Options::assembling();
        let link = Link::new(self.context.driver, &mut options)?;
        let bytes = text.as_bytes_with_nul();
        call!(
            link.driver,
            cuLinkAddData_v2(
                link.raw,
                sys::CUjitInputType::CU_JIT_INPUT_PTX,
                // The driver does not write to the buffer; the C signature lacks a `const`.
                bytes.as_ptr().cast_mut().cast(),
                bytes.len(),
                name.as_ptr(),
                0,
                ptr::null_mut(),
                ptr::null_mut()
            ),
            "assembling `{}` for the linker",
            self.name
        )?;
        let (mut cubin, mut size) = (ptr::null_mut(), 0);
        call!(link.driver, cuLinkComplete(link.raw, &mut cubin, &mut size), "linking `{}`", self.name)?;
        // SAFETY: memory of the driver, valid until the link is destroyed.
        let result = unsafe { slice::from_raw_parts(cubin.cast::<u8>(), size) }.to_vec();
        drop(link);
        Ok(Assembled { result, log: logged(&options.info) })
    }

    fn assemble(&self, ptx: &str) -> Result<Assembled<sys::CUmodule>> {
        let text = self.terminated(ptx)?;
        let mut options = Options::assembling();
        match self.load_image(text.as_ptr().cast(), &mut options) {
            Ok(result) => Ok(Assembled { result, log: logged(&options.info) }),
            Err(failure) => Err(rejection(self.name, ptx, &logged(&options.errors), failure)),
        }
    }
}

/// A linker invocation. The driver uses `options` until the linker is destroyed.
struct Link<'a> {
    driver: &'static Driver,
    raw: sys::CUlinkState,
    _options: std::marker::PhantomData<&'a mut Options>,
}

impl<'a> Link<'a> {
    fn new(driver: &'static Driver, options: &'a mut Options) -> Result<Link<'a>> {
        let mut raw = ptr::null_mut();
        call!(
            driver,
            cuLinkCreate_v2(
                options.count(),
                options.names.as_mut_ptr(),
                options.values.as_mut_ptr(),
                &mut raw
            ),
            "starting the linker"
        )?;
        Ok(Link { driver, raw, _options: std::marker::PhantomData })
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        // A failure cannot be handled here.
        let _ = call!(self.driver, cuLinkDestroy(self.raw), "closing the linker");
    }
}

/// Options of the assembler, with the buffers that they refer to.
struct Options {
    names: Vec<JitOption>,
    values: Vec<*mut c_void>,
    info: Vec<u8>,
    errors: Vec<u8>,
}

impl Options {
    /// No options, for loading a cubin.
    fn none() -> Options {
        Options { names: Vec::new(), values: Vec::new(), info: Vec::new(), errors: Vec::new() }
    }

    /// Line information for profilers; registers, spills and errors in the logs.
    fn assembling() -> Options {
        let mut options = Options { info: vec![0; LOG_BYTES], errors: vec![0; LOG_BYTES], ..Options::none() };
        let pointer = |buffer: &mut Vec<u8>| buffer.as_mut_ptr().cast::<c_void>();
        // Numeric options are passed as pointers.
        let number = |value: usize| ptr::without_provenance_mut::<c_void>(value);
        (options.names, options.values) = [
            (JitOption::CU_JIT_INFO_LOG_BUFFER, pointer(&mut options.info)),
            (JitOption::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
            (JitOption::CU_JIT_ERROR_LOG_BUFFER, pointer(&mut options.errors)),
            (JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, number(LOG_BYTES)),
            (JitOption::CU_JIT_LOG_VERBOSE, number(1)),
            (JitOption::CU_JIT_GENERATE_LINE_INFO, number(1)),
        ]
        .into_iter()
        .unzip();
        options
    }

    fn count(&self) -> c_uint {
        self.names.len() as c_uint
    }
}

/// Error for PTX that did not load. A failure that is not about the PTX is returned unchanged.
fn rejection(name: &str, ptx: &str, log: &str, failure: Error) -> Error {
    let Error::Driver(driver) = &failure else { return failure };
    if log.is_empty() && !is_rejection(driver.code) {
        return failure;
    }
    let failed = format!("{} ({}): {}", driver.name, driver.code, driver.description);
    let version = match (assembler_log::version(ptx), assembler_log::target(ptx)) {
        (Some(version), Some(target)) => format!("; the module is PTX {version} for {target}"),
        _ => String::new(),
    };
    let message = match log {
        "" => format!("the driver rejected the PTX: {failed}{version}"),
        log => format!("{}\n  the driver returned {failed}{version}", assembler_log::message(log, ptx)),
    };
    Error::Assembly { module: name.to_owned(), message, help: driver.help.clone() }
}

/// Text of a log, up to its first zero byte.
fn logged(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}
