//! Entry points of the CUDA driver: their table, their look-up, and their errors.
//!
//! Types come from cudarc's bindings, and every signature is checked against the bindings at compile time. cudarc's own
//! functions are not used, for two reasons: they panic if the library or a symbol is missing, and they return error
//! codes as a Rust `enum`, so that an unknown code of a newer driver is undefined behaviour.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;

use super::super::{DriverFailure, Error, Result};

/// Result code of an entry point.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(c_uint);

impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const OUT_OF_MEMORY: Status = Status(2);
    pub const NOT_READY: Status = Status(600);
}

/// Oldest CUDA version whose driver has every entry point below: the first with programmatic edges in graphs.
const OLDEST: &str = "CUDA 12.3 (driver 545)";

/// Declares the table of entry points. Signatures under `checked` are compared with the bindings. Signatures under
/// `plain` are not compared, because they take a result code as an integer.
macro_rules! entry_points {
    (
        checked { $($checked:ident($($type:ty),*);)* }
        plain { $($plain:ident($($plain_type:ty),*);)* }
    ) => {
        $(const _: unsafe fn($($type),*) -> sys::CUresult = sys::$checked;)*
        entry_points! { table $($checked($($type),*);)* $($plain($($plain_type),*);)* }
    };
    (table $($name:ident($($type:ty),*);)*) => {
        /// The loaded CUDA driver with its entry points.
        #[allow(non_snake_case, reason = "the driver's own names")]
        pub(super) struct Driver {
            $(pub $name: unsafe extern "C" fn($($type),*) -> Status,)*
        }

        impl Driver {
            /// Looks up every entry point; the error lists the missing ones. The library must be present.
            fn look_up() -> Result<Driver, Vec<&'static str>> {
                // SAFETY: only loads the library; the caller has checked that it is present.
                let library = unsafe { sys::culib() };
                let mut missing = Vec::new();
                $(
                    // SAFETY: the type of the entry point is checked above; the library is never unloaded.
                    let found = unsafe {
                        library.get::<unsafe extern "C" fn($($type),*) -> Status>(stringify!($name).as_bytes())
                    };
                    if found.is_err() {
                        missing.push(stringify!($name));
                    }
                    #[allow(non_snake_case, reason = "the driver's own names")]
                    let $name = found.ok().map(|symbol| *symbol);
                )*
                match ($($name.ok_or(()),)*) {
                    #[allow(non_snake_case, reason = "the driver's own names")]
                    ($(Ok($name),)*) => Ok(Driver { $($name),* }),
                    _ => Err(missing),
                }
            }
        }
    };
}

entry_points! {
    checked {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);

        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut sys::CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
        cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
        cuDeviceGetPCIBusId(*mut c_char, c_int, sys::CUdevice);
        cuDeviceTotalMem_v2(*mut usize, sys::CUdevice);
        cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
        cuDevicePrimaryCtxRelease_v2(sys::CUdevice);
        cuCtxSetCurrent(sys::CUcontext);

        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut sys::CUdeviceptr, usize);
        cuMemFree_v2(sys::CUdeviceptr);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemHostGetDevicePointer_v2(*mut sys::CUdeviceptr, *mut c_void, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
        cuMemsetD8Async(sys::CUdeviceptr, c_uchar, usize, sys::CUstream);
        cuMemsetD32Async(sys::CUdeviceptr, c_uint, usize, sys::CUstream);

        cuModuleLoadDataEx(*mut sys::CUmodule, *const c_void, c_uint, *mut sys::CUjit_option, *mut *mut c_void);
        cuModuleUnload(sys::CUmodule);
        cuLinkCreate_v2(c_uint, *mut sys::CUjit_option, *mut *mut c_void, *mut sys::CUlinkState);
        cuLinkAddData_v2(
            sys::CUlinkState, sys::CUjitInputType, *mut c_void, usize, *const c_char, c_uint, *mut sys::CUjit_option,
            *mut *mut c_void
        );
        cuLinkComplete(sys::CUlinkState, *mut *mut c_void, *mut usize);
        cuLinkDestroy(sys::CUlinkState);
        cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
        cuFuncGetAttribute(*mut c_int, sys::CUfunction_attribute, sys::CUfunction);
        cuFuncSetAttribute(sys::CUfunction, sys::CUfunction_attribute, c_int);
        cuFuncGetName(*mut *const c_char, sys::CUfunction);
        cuKernelGetName(*mut *const c_char, sys::CUkernel);
        cuLaunchKernelEx(*const sys::CUlaunchConfig, sys::CUfunction, *mut *mut c_void, *mut *mut c_void);

        cuTensorMapEncodeTiled(
            *mut sys::CUtensorMap, sys::CUtensorMapDataType, c_uint, *mut c_void, *const sys::cuuint64_t,
            *const sys::cuuint64_t, *const c_uint, *const c_uint, sys::CUtensorMapInterleave,
            sys::CUtensorMapSwizzle, sys::CUtensorMapL2promotion, sys::CUtensorMapFloatOOBfill
        );

        cuStreamCreate(*mut sys::CUstream, c_uint);
        cuStreamDestroy_v2(sys::CUstream);
        cuStreamSynchronize(sys::CUstream);
        cuStreamQuery(sys::CUstream);
        cuStreamBeginCapture_v2(sys::CUstream, sys::CUstreamCaptureMode);
        cuStreamEndCapture(sys::CUstream, *mut sys::CUgraph);

        cuEventCreate(*mut sys::CUevent, c_uint);
        cuEventDestroy_v2(sys::CUevent);
        cuEventRecord(sys::CUevent, sys::CUstream);
        cuEventSynchronize(sys::CUevent);
        cuEventElapsedTime(*mut f32, sys::CUevent, sys::CUevent);

        cuGraphGetNodes(sys::CUgraph, *mut sys::CUgraphNode, *mut usize);
        cuGraphGetEdges_v2(
            sys::CUgraph, *mut sys::CUgraphNode, *mut sys::CUgraphNode, *mut sys::CUgraphEdgeData, *mut usize
        );
        cuGraphNodeGetType(sys::CUgraphNode, *mut sys::CUgraphNodeType);
        cuGraphKernelNodeGetParams_v2(sys::CUgraphNode, *mut sys::CUDA_KERNEL_NODE_PARAMS_v2);
        cuGraphInstantiateWithFlags(*mut sys::CUgraphExec, sys::CUgraph, c_ulonglong);
        cuGraphUpload(sys::CUgraphExec, sys::CUstream);
        cuGraphLaunch(sys::CUgraphExec, sys::CUstream);
        cuGraphExecDestroy(sys::CUgraphExec);
        cuGraphDestroy(sys::CUgraph);
    }
    plain {
        cuGetErrorName(Status, *mut *const c_char);
        cuGetErrorString(Status, *mut *const c_char);
    }
}

/// Calls an entry point: `call!(driver, cuInit(0), "starting the driver")`. The description of the operation is
/// formatted only on failure.
///
/// Safety of every use: the signatures are checked above, handles live as long as the guards that own them, and pointer
/// arguments point to locals or to buffers of the size passed with them.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?), $($doing:tt)+) => {{
        let driver: &$crate::device::cuda::driver::Driver = $driver;
        // SAFETY: see the macro's description.
        let status = unsafe { (driver.$name)($($argument),*) };
        if status == $crate::device::cuda::driver::Status::SUCCESS {
            Ok(())
        } else {
            Err(driver.failure(stringify!($name), status, format!($($doing)+)))
        }
    }};
}
pub(super) use call;

impl Driver {
    /// The initialised driver, shared by the whole process.
    pub fn get() -> Result<&'static Driver> {
        static DRIVER: OnceLock<Result<Driver, (String, String)>> = OnceLock::new();
        match DRIVER.get_or_init(Driver::start) {
            Ok(driver) => Ok(driver),
            Err((what, help)) => Err(Error::Unavailable { what: what.clone(), help: help.clone() }),
        }
    }

    /// Loads and initialises the driver. The error is a pair of reason and advice.
    fn start() -> Result<Driver, (String, String)> {
        // SAFETY: tries to load the library, which has no precondition.
        if !unsafe { sys::is_culib_present() } {
            return Err((
                "no NVIDIA driver found (libcuda.so.1)".to_owned(),
                "use the device `emulator`; or install the NVIDIA driver, and in a container pass the GPU through \
                 (`--gpus all`)"
                    .to_owned(),
            ));
        }
        let driver = Driver::look_up().map_err(|missing| {
            (
                format!("the NVIDIA driver is too old: it lacks {}", missing.join(", ")),
                format!("{OLDEST} or newer is needed: update the driver, or use the device `emulator`"),
            )
        })?;
        call!(&driver, cuInit(0), "starting the driver").map_err(|error| {
            let help = error.advice().unwrap_or("check it with `nvidia-smi`, or use the device `emulator`");
            (format!("the NVIDIA driver does not start: {error}"), help.to_owned())
        })?;
        Ok(driver)
    }

    /// CUDA version that the driver supports: major, minor.
    pub fn version(&self) -> (c_int, c_int) {
        let mut version = 0;
        // On failure the version stays 0.
        let _ = call!(self, cuDriverGetVersion(&mut version), "reading the driver's version");
        (version / 1000, version % 1000 / 10)
    }

    /// Error of a call that returned `status`.
    pub fn failure(&self, call: &'static str, status: Status, doing: String) -> Error {
        let text = |entry: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = ptr::null();
            // SAFETY: `text` is valid for the result, which is a static string of the driver or null.
            unsafe {
                if entry(status, &mut text) == Status::SUCCESS && !text.is_null() {
                    return CStr::from_ptr(text).to_string_lossy().into_owned();
                }
            }
            "unknown to this driver".to_owned()
        };
        Error::Driver(Box::new(DriverFailure {
            call: call.trim_end_matches("_v2"),
            doing,
            code: status.0,
            name: text(self.cuGetErrorName),
            description: text(self.cuGetErrorString),
            help: self.advice(status).map(|advice| advice.into_owned()),
        }))
    }

    /// Advice for an error code, by its number in `CUresult`.
    fn advice(&self, status: Status) -> Option<std::borrow::Cow<'static, str>> {
        let (major, minor) = self.version();
        Some(match status.0 {
            34 => "this libcuda is the toolkit's stub: remove its `stubs` folder from LD_LIBRARY_PATH".into(),
            46 => "another process holds the GPU exclusively: see `nvidia-smi`".into(),
            100 => "this process sees no GPU: check CUDA_VISIBLE_DEVICES and `nvidia-smi`, or use the emulator".into(),
            209 => "the PTX's .target is newer than this GPU: compile for this GPU's compute capability".into(),
            221 => "libnvidia-ptxjitcompiler.so.1 is missing: it is part of the driver; a container needs the `compute` \
                    driver capability"
                .into(),
            222 => format!(
                "the driver supports CUDA {major}.{minor}: compile for an older PTX .version, or update the driver"
            )
            .into(),
            223 => "the environment variable CUDA_DISABLE_PTX_JIT forbids assembling PTX: unset it".into(),
            701 => "a CTA of the kernel needs more registers or shared memory than the GPU has: use smaller CTAs".into(),
            700 | 702 | 710 | 714..=719 => "a kernel enqueued before this call faulted, and the GPU context is lost: run \
                    again on the device `emulator`, which reports the kernel, line, thread and address, or under \
                    compute-sanitizer"
                .into(),
            802 => "the GPU's fabric is not ready: wait for the NVIDIA fabric manager to start".into(),
            803 => "the kernel's driver and libcuda.so.1 have different versions: reboot, or restart the container".into(),
            804 => "the compatibility libcuda on LD_LIBRARY_PATH does not support this GPU: remove it from LD_LIBRARY_PATH".into(),
            _ => return None,
        })
    }
}
