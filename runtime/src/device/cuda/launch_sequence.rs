//! Launches bound to a GPU: enqueued one by one, or as a graph.

use std::ffi::{c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::super::{DeviceInfo, Error, GraphReport, Kernel, Launch, LaunchSequence, Result};
use super::context::{Context, Event, Stream};
use super::driver::call;
use super::graph::{CapturedGraph, Graph};
use super::module::CudaKernel;

/// The first compute capability with programmatic dependent launch.
const PROGRAMMATIC_COMPUTE: (u32, u32) = (9, 0);

/// Time limit of timed replays. The replays of the slowest model take one second in total.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(60);

/// A checked launch with its arguments as the driver takes them.
struct BoundLaunch {
    /// Kernel of the launch, which keeps the module loaded.
    kernel: Kernel,
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    /// A pointer into `_params` for each parameter, as `cuLaunchKernelEx` takes them.
    arguments: Box<[*mut c_void]>,
    _params: Box<[u8]>,
    programmatic: bool,
}

/// Launches in order, and their captured graph.
pub(super) struct CudaSequence {
    context: Arc<Context>,
    /// Captured graph. Declared before `launches`, so that the graph is dropped before the modules of its kernels.
    graph: Option<Graph>,
    launches: Vec<BoundLaunch>,
}

// SAFETY: the raw pointers are driver handles, which any thread may use, and pointers into boxes owned by `self`.
unsafe impl Send for CudaSequence {}

impl CudaSequence {
    /// Binds launches, after checking each against its kernel and the device.
    pub fn new(context: &Arc<Context>, info: &DeviceInfo, launches: Vec<Launch>) -> Result<CudaSequence> {
        context.enter()?;
        let bind = |(index, launch)| bind(context, info, index, launch);
        let launches = launches.into_iter().enumerate().map(bind).collect::<Result<_>>()?;
        Ok(CudaSequence { context: context.clone(), launches, graph: None })
    }

    /// Enqueues launch `index`.
    fn enqueue(&self, stream: &Stream, index: usize) -> Result<()> {
        let launch = &self.launches[index];
        let mut attribute = programmatic_attribute();
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.block[0],
            blockDimY: launch.block[1],
            blockDimZ: launch.block[2],
            sharedMemBytes: launch.dynamic_shared,
            hStream: stream.raw(),
            attrs: &mut attribute,
            numAttrs: c_uint::from(launch.programmatic),
        };
        // The driver does not write to the argument pointers.
        let arguments = launch.arguments.as_ptr().cast_mut();
        call!(
            self.context.driver,
            cuLaunchKernelEx(&config, launch.function, arguments, ptr::null_mut()),
            "launching `{}` (launch {index} of {}: grid {:?}, block {:?}, {} bytes of dynamic shared memory)",
            launch.kernel.name(),
            self.launches.len(),
            launch.grid,
            launch.block,
            launch.dynamic_shared
        )
    }

    /// Enqueues every launch.
    fn enqueue_all(&self, stream: &Stream) -> Result<()> {
        (0..self.launches.len()).try_for_each(|index| self.enqueue(stream, index))
    }

    /// Captures the launches. On an error the capture is ended, and the caller replaces the stream.
    fn record(&self, stream: &Stream) -> Result<CapturedGraph> {
        let driver = self.context.driver;
        // Relaxed, because the driver may load a kernel's code at its first launch, which stricter modes forbid.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        call!(driver, cuStreamBeginCapture_v2(stream.raw(), mode), "beginning a capture")?;
        let launched = self.enqueue_all(stream);
        let mut raw = ptr::null_mut();
        let ended = call!(driver, cuStreamEndCapture(stream.raw(), &mut raw), "ending a capture");
        let captured = CapturedGraph::new(&self.context, raw);
        // The error of a launch is more specific than that of the invalidated capture.
        launched.and(ended)?;
        Ok(captured)
    }
}

impl Drop for CudaSequence {
    fn drop(&mut self) {
        // A module must not be unloaded while its kernel runs. A fault is reported by another call.
        let _ = self.wait();
    }
}

impl LaunchSequence for CudaSequence {
    fn run_eager(&mut self) -> Result<()> {
        self.context.enter()?;
        self.enqueue_all(&self.context.stream())
    }

    fn capture(&mut self) -> Result<GraphReport> {
        if let Some(graph) = &self.graph {
            return Ok(graph.report().clone());
        }
        self.context.enter()?;
        let mut stream = self.context.stream();
        // Reports a fault of an earlier kernel here, not as a failed capture.
        stream.wait()?;
        let graph = self.record(&stream).and_then(|captured| captured.instantiate(&stream));
        match graph {
            Ok(graph) => {
                let report = graph.report().clone();
                drop(stream);
                self.graph = Some(graph);
                Ok(report)
            }
            Err(error) => {
                stream.recreate()?;
                Err(Error::Capture(Box::new(error)))
            }
        }
    }

    fn replay(&mut self) -> Result<()> {
        let graph = self.graph.as_ref().ok_or(Error::NotCaptured)?;
        self.context.enter()?;
        graph.launch(&self.context.stream())
    }

    fn wait(&mut self) -> Result<()> {
        self.context.enter()?;
        self.context.stream().wait()
    }

    fn profile(&mut self) -> Result<Vec<f64>> {
        self.context.enter()?;
        let events =
            (0..=self.launches.len()).map(|_| Event::new(&self.context, true)).collect::<Result<Vec<_>>>()?;
        let stream = self.context.stream();
        events[0].record(&stream)?;
        for index in 0..self.launches.len() {
            self.enqueue(&stream, index)?;
            events[index + 1].record(&stream)?;
        }
        stream.wait()?;
        events.windows(2).map(|pair| Ok(pair[1].milliseconds_since(&pair[0])? * 1e3)).collect()
    }

    fn time_replays(&mut self, count: u32) -> Result<f64> {
        let graph = self.graph.as_ref().ok_or(Error::NotCaptured)?;
        self.context.enter()?;
        let (start, end) = (Event::new(&self.context, true)?, Event::new(&self.context, true)?);
        let stream = self.context.stream();
        start.record(&stream)?;
        for _ in 0..count {
            graph.launch(&stream)?;
        }
        end.record(&stream)?;
        let started = Instant::now();
        while stream.busy()? {
            if started.elapsed() > REPLAY_TIMEOUT {
                self.context.abandon();
                let what = format!("{count} graph replays of {} launches", self.launches.len());
                return Err(Error::Hung { what, seconds: REPLAY_TIMEOUT.as_secs() });
            }
            std::thread::yield_now();
        }
        Ok(end.milliseconds_since(&start)? / f64::from(count.max(1)))
    }
}

/// Checks a launch and lays out its arguments.
fn bind(context: &Arc<Context>, info: &DeviceInfo, index: usize, launch: Launch) -> Result<BoundLaunch> {
    launch.check(index)?;
    let Some(kernel) = launch.kernel.handle::<CudaKernel>().filter(|kernel| kernel.belongs_to(context))
    else {
        return Err(launch.error(index, "the kernel was loaded on another device".to_owned()));
    };
    let resources = launch.kernel.resources().unwrap_or_default();
    let threads: u32 = launch.block.iter().product();
    if threads > resources.max_threads {
        return Err(launch.error(
            index,
            format!(
                "CTAs of {threads} threads; with {} registers for each thread and the kernel's launch bounds, {} is the maximum",
                resources.registers, resources.max_threads
            ),
        ));
    }
    let shared = u64::from(launch.dynamic_shared) + u64::from(resources.static_shared);
    if shared > u64::from(info.shared_per_block_optin) {
        return Err(launch.error(
            index,
            format!(
                "{shared} bytes of shared memory for each CTA ({} dynamic, {} static); {} has {}",
                launch.dynamic_shared, resources.static_shared, info.name, info.shared_per_block_optin
            ),
        ));
    }
    kernel.raise_dynamic_shared_limit(launch.dynamic_shared, launch.kernel.name())?;

    let mut params = launch.params.into_boxed_slice();
    let base = params.as_mut_ptr();
    let parameters = &launch.kernel.signature().parameters;
    // `Launch::check` has checked that every parameter is in bounds.
    let arguments = parameters.iter().map(|parameter| base.wrapping_add(parameter.offset).cast()).collect();
    Ok(BoundLaunch {
        function: kernel.function,
        grid: launch.grid,
        block: launch.block,
        dynamic_shared: launch.dynamic_shared,
        arguments,
        _params: params,
        programmatic: launch.programmatic && index > 0 && info.compute >= PROGRAMMATIC_COMPUTE,
        kernel: launch.kernel,
    })
}

/// Launch attribute of programmatic dependent launch.
fn programmatic_attribute() -> sys::CUlaunchAttribute {
    // SAFETY: a union of plain numbers and handles, for which zeroes are valid.
    let mut value: sys::CUlaunchAttributeValue = unsafe { MaybeUninit::zeroed().assume_init() };
    value.programmaticStreamSerializationAllowed = 1;
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value,
    }
}
