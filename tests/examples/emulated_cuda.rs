//! A `libcuda` for machines without a GPU: the entry points of the CUDA driver that launch a kernel, on the emulator.
//! The library runs `examples/launch.py` and similar programs.
//!
//!     cargo build -p bespoke-tests --example emulated_cuda
//!     LIBCUDA=target/debug/examples/libemulated_cuda.so python3 examples/launch.py FOLDER
//!
//! One device, one context. Launches are synchronous: a finding is the launch's error, and `cuGetErrorString` returns
//! its text. Memory and modules are never freed.

// The names and the letter case are the driver's.
#![allow(non_snake_case)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::{ptr, slice};

use bespoke::device::{
    Address, Allocation, Device, Kernel, Launch, Module, Selector, TENSOR_MAP_BYTES, open,
};
use bespoke_codegen::launch::DriverArguments;

/// `CUDA_SUCCESS`, `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_UNKNOWN`.
const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const UNKNOWN: c_int = 999;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const COMPUTE_MAJOR: c_int = 75;
const COMPUTE_MINOR: c_int = 76;

/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;

struct State {
    device: Box<dyn Device>,
    memory: Vec<Allocation>,
    modules: HashMap<usize, Module>,
    kernels: HashMap<usize, Kernel>,
    /// Text of the last error.
    message: CString,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    let device = open(Selector::Emulator).expect("the emulator always opens").device;
    Mutex::new(State {
        device,
        memory: Vec::new(),
        modules: HashMap::new(),
        kernels: HashMap::new(),
        message: CString::default(),
    })
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call and stores its error message.
fn call(body: impl FnOnce(&mut State) -> Result<(), String>) -> c_int {
    let mut state = state();
    match body(&mut state) {
        Ok(()) => SUCCESS,
        Err(message) => {
            state.message = CString::new(message).unwrap_or_default();
            UNKNOWN
        }
    }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn write_out<T>(out: *mut T, value: T) -> c_int {
    if out.is_null() {
        return INVALID_VALUE;
    }
    unsafe { out.write(value) };
    SUCCESS
}

/// Initialises the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_int {
    if flags == 0 { SUCCESS } else { INVALID_VALUE }
}

/// Returns the device with that number.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    if ordinal == 0 { unsafe { write_out(device, 0) } } else { INVALID_VALUE }
}

/// Returns the compute capability; other attributes are invalid.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) -> c_int {
    let (major, minor) = state().device.info().compute;
    match attribute {
        COMPUTE_MAJOR => unsafe { write_out(value, major as c_int) },
        COMPUTE_MINOR => unsafe { write_out(value, minor as c_int) },
        _ => INVALID_VALUE,
    }
}

/// Returns the only context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) -> c_int {
    unsafe { write_out(context, 1) }
}

/// Accepts the only context.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    if context == 1 { SUCCESS } else { INVALID_VALUE }
}

/// Encodes a tensor map; its memory is one of the device's.
///
/// # Safety
/// As for the driver's function.
#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u8; TENSOR_MAP_BYTES],
    data_type: c_uint,
    rank: c_uint,
    address: u64,
    sizes: *const u64,
    strides: *const u64,
    tile: *const u32,
    steps: *const u32,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    fill: c_uint,
) -> c_int {
    if !(1..=5).contains(&rank) {
        return INVALID_VALUE;
    }
    let rank = rank as usize;
    // SAFETY: the caller passes as many numbers as the driver's function requires.
    let arguments = unsafe {
        DriverArguments {
            data_type,
            address,
            sizes: slice::from_raw_parts(sizes, rank).to_vec(),
            strides: if rank == 1 { Vec::new() } else { slice::from_raw_parts(strides, rank - 1).to_vec() },
            tile: slice::from_raw_parts(tile, rank).to_vec(),
            steps: slice::from_raw_parts(steps, rank).to_vec(),
            interleave,
            swizzle,
            l2_promotion,
            fill,
        }
    };
    call(|state| {
        let encoded = state.device.encode_tensor_map(&arguments).map_err(|error| error.to_string())?;
        unsafe { write_out(map, encoded) };
        Ok(())
    })
}

/// Loads PTX; the error message is written to the log buffer of the options.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *const *mut c_void,
) -> c_int {
    let option = |wanted| {
        let find = |&i: &usize| unsafe { *options.add(i) } == wanted;
        (0..count as usize).find(find).map(|i| unsafe { *values.add(i) })
    };
    let (log, bytes) = (option(ERROR_LOG), option(ERROR_LOG_BYTES).map_or(0, |bytes| bytes as usize));
    let ptx = unsafe { CStr::from_ptr(image) }.to_string_lossy();
    call(|state| match state.device.load("module", &ptx) {
        Ok(loaded) => {
            let number = state.modules.len() + 1;
            state.modules.insert(number, loaded);
            unsafe { write_out(module, number) };
            Ok(())
        }
        Err(error) => {
            let text = error.to_string();
            if let (Some(log), Some(room)) = (log, bytes.checked_sub(1)) {
                let log: *mut u8 = log.cast();
                let length = text.len().min(room);
                unsafe {
                    ptr::copy_nonoverlapping(text.as_ptr(), log, length);
                    log.add(length).write(0);
                }
            }
            Err(text)
        }
    })
}

/// Returns a kernel of a module.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    call(|state| {
        let module = state.modules.get(&module).ok_or("no such module")?;
        let kernel = module.kernel(&name).map_err(|error| error.to_string())?;
        let number = state.kernels.len() + 1;
        state.kernels.insert(number, kernel);
        unsafe { write_out(function, number) };
        Ok(())
    })
}

/// Allocates device memory.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    call(|state| {
        let name = format!("allocation {}", state.memory.len() + 1);
        let memory = state.device.alloc(&name, bytes as u64).map_err(|error| error.to_string())?;
        unsafe { write_out(address, memory.address().0) };
        state.memory.push(memory);
        Ok(())
    })
}

/// Copies from host to device.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) -> c_int {
    let from = unsafe { std::slice::from_raw_parts(from, bytes) };
    call(|state| state.device.upload(Address(to), from).map_err(|error| error.to_string()))
}

/// Copies from device to host.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) -> c_int {
    let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
    call(|state| state.device.download(Address(from), to).map_err(|error| error.to_string()))
}

/// Launches a kernel and waits; `params` has a pointer to the bytes of each parameter.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared: c_uint,
    _stream: *mut c_void,
    params: *const *const u8,
    _extra: *const *mut c_void,
) -> c_int {
    call(|state| {
        let kernel = state.kernels.get(&function).ok_or("no such kernel")?.clone();
        let mut bytes = vec![0; kernel.signature().parameter_bytes()];
        for (i, parameter) in kernel.signature().parameters.iter().enumerate() {
            let value = unsafe { std::slice::from_raw_parts(*params.add(i), parameter.bytes) };
            bytes[parameter.offset..parameter.offset + parameter.bytes].copy_from_slice(value);
        }
        let launch = Launch {
            kernel,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared,
            params: bytes,
            programmatic: false,
        };
        let mut sequence = state.device.sequence(vec![launch]).map_err(|error| error.to_string())?;
        sequence.run_eager().map_err(|error| error.to_string())
    })
}

/// Returns the text of the last error, for any code.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_code: c_int, text: *mut *const c_char) -> c_int {
    unsafe { write_out(text, state().message.as_ptr()) }
}
