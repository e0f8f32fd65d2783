//! Runs cases on a device.

use std::collections::HashMap;
use std::fmt;
use std::slice;

use bespoke::builtin;
use bespoke::device::{Allocation, Device, Error, Kernel, Kind, Launch, LaunchSequence};
use bespoke::engine::{EngineError, target_for};
use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::spec::KernelSpec;
use rayon::prelude::*;

use super::case::{Arg, Case, Content, Expected, POISON, Want};
use super::cases::cases;
use super::compare::compare;
use super::report::{Report, Row};

/// Number of guard bytes behind each buffer, which must not be written. The emulator checks bounds itself.
const GUARD: usize = 4096;
/// Largest size in bytes of an input that is read back, to check that the kernel did not change the input.
const READ_BACK: usize = 16 << 20;

/// Runs every case of every kernel and calls `on_row` with each result. Stops early only if the device is lost.
///
/// # Errors
/// If no target runs on the device.
pub fn run(
    device: &dyn Device,
    specs: &[KernelSpec],
    on_row: &mut dyn FnMut(&Row),
) -> Result<Report, EngineError> {
    run_with_progress(device, specs, on_row, &mut |_| ())
}

/// Like [`run`]; also calls `on_ended` with the number of completed kernels, starting with 0.
///
/// # Errors
/// If no target runs on the device.
pub fn run_with_progress(
    device: &dyn Device,
    specs: &[KernelSpec],
    on_row: &mut dyn FnMut(&Row),
    on_ended: &mut dyn FnMut(usize),
) -> Result<Report, EngineError> {
    let mut runner = Runner::new(device, target_for(device)?);
    runner.find(specs);
    let rows = runner.all_rows(specs, on_row, on_ended);
    let built_in = runner.ptx.keys().filter(|name| builtin::contains(runner.target, name)).count();
    Ok(Report {
        device: device.info().name.clone(),
        target: runner.target.to_string(),
        kernels: runner.ptx.len(),
        built_in,
        rows,
    })
}

/// Runs a kernel's cases up to the first failure, and returns the failed row.
///
/// # Errors
/// If no target runs on the device.
pub fn first_failure(device: &dyn Device, spec: &KernelSpec) -> Result<Option<Row>, EngineError> {
    let mut runner = Runner::new(device, target_for(device)?);
    let mut rows = cases(spec).into_iter().flat_map(|case| runner.rows(&case).0);
    Ok(rows.find(|row| row.failure.is_some()))
}

/// PTX of a kernel, or the error of its compilation.
type Text = Result<String, String>;

/// PTX of a kernel as the engine uses it: built in, or else compiled now.
pub(super) fn ptx_of(spec: &KernelSpec, target: Target) -> Text {
    if let Some(text) = builtin::ptx(target, &spec.name()) {
        return Ok(text);
    }
    let made = emit::compile(slice::from_ref(spec), target).map_err(|error| error.to_string())?;
    made.into_iter().next().map(|kernel| kernel.compiled.ptx).ok_or_else(|| "no PTX".to_owned())
}

/// Loads kernels and runs cases.
pub(super) struct Runner<'a> {
    device: &'a dyn Device,
    target: Target,
    ptx: HashMap<String, Text>,
    kernels: HashMap<String, Kernel>,
}

/// Launches of a case that ran, with their buffers.
struct Launched {
    sequence: Box<dyn LaunchSequence>,
    _allocations: Vec<Allocation>,
}

/// Reason why a case has no outputs.
pub(super) enum Failure {
    /// The kernel did not compile.
    Compile(String),
    /// Error of the device.
    Device(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Compile(text) => f.write_str(text),
            Failure::Device(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Device(error)
    }
}

impl<'a> Runner<'a> {
    pub fn new(device: &'a dyn Device, target: Target) -> Runner<'a> {
        Runner { device, target, ptx: HashMap::new(), kernels: HashMap::new() }
    }

    /// Finds the PTX of kernels that are built in, and compiles the other kernels, in parallel.
    fn find(&mut self, specs: &[KernelSpec]) {
        let target = self.target;
        self.ptx.par_extend(specs.par_iter().map(|spec| (spec.name(), ptx_of(spec, target))));
    }

    /// Runs every case of every kernel; stops early if the device is lost.
    fn all_rows(
        &mut self,
        specs: &[KernelSpec],
        on_row: &mut dyn FnMut(&Row),
        on_ended: &mut dyn FnMut(usize),
    ) -> Vec<Row> {
        let mut all = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            on_ended(index);
            for case in cases(spec) {
                let (mut rows, lost) = self.rows(&case);
                if lost && index + 1 < specs.len() {
                    let rest = specs.len() - index - 1;
                    let text = format!("not tested: the device was lost after {}", spec.name());
                    rows.push(Row::failed(format!("{rest} more kernels"), "-".to_owned(), text));
                }
                rows.iter().for_each(&mut *on_row);
                all.extend(rows);
                if lost {
                    return all;
                }
            }
        }
        on_ended(specs.len());
        all
    }

    fn kernel(&mut self, spec: &KernelSpec) -> Result<Kernel, Failure> {
        let name = spec.name();
        if let Some(kernel) = self.kernels.get(&name) {
            return Ok(kernel.clone());
        }
        let ptx = self.ptx.entry(name.clone()).or_insert_with(|| ptx_of(spec, self.target));
        let text = ptx.as_ref().map_err(|error| Failure::Compile(error.clone()))?;
        let source = builtin::source(self.target, &name, text);
        let kernel = self.device.load_source(&source)?.kernel(&name)?;
        self.kernels.insert(name, kernel.clone());
        Ok(kernel)
    }

    /// Runs a case; returns the rows, and whether the device is lost.
    fn rows(&mut self, case: &Case) -> (Vec<Row>, bool) {
        match self.run(case) {
            Ok(rows) => (rows, false),
            Err(failure) => {
                let lost = matches!(failure, Failure::Device(Error::Driver(_)));
                (vec![Row::failed(case.kernels(), case.what.clone(), failure.to_string())], lost)
            }
        }
    }

    /// Runs the launches of a case, and returns the content of its buffers, except large inputs.
    pub fn outputs(&mut self, case: &Case) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(self.launched(case)?.0)
    }

    /// Runs the launches of a case; returns the content of its buffers and the sequence of launches.
    fn launched(&mut self, case: &Case) -> Result<(Vec<Vec<u8>>, Launched), Failure> {
        let guard = if self.device.info().kind == Kind::Emulator { 0 } else { GUARD };
        let allocations = self.upload(case, guard)?;
        let mut launches = Vec::new();
        for (spec, args) in &case.launches {
            let kernel = self.kernel(spec)?;
            launches.push(launch(kernel, spec, args, &allocations));
        }
        let mut sequence = self.device.sequence(launches)?;
        sequence.run_eager()?;
        sequence.wait()?;
        let outputs = self.download(case, &allocations)?;
        Ok((outputs, Launched { sequence, _allocations: allocations }))
    }

    fn run(&mut self, case: &Case) -> Result<Vec<Row>, Failure> {
        let (outputs, mut launched) = self.launched(case)?;
        let mut rows = Vec::new();
        for expected in &case.expected {
            let (buffer, got) = (&case.buffers[expected.buffer], &outputs[expected.buffer]);
            let got = &got[..buffer.content.len()];
            let verdict = compare(got, &expected.place, &expected.want, &outputs);
            rows.push(Row {
                kernel: case.kernels(),
                what: case.what.clone(),
                output: buffer.name.clone(),
                nmse: verdict.nmse,
                max: verdict.max,
                limit: verdict.limit,
                reason: verdict.reason,
                microseconds: None,
                failure: verdict.failure,
            });
        }
        if let Some(text) = changed(case, &outputs) {
            rows.push(Row::failed(case.kernels(), case.what.clone(), text));
        }
        if let (Some(first), Some(time)) = (rows.first_mut(), self.time(&mut *launched.sequence)?) {
            first.microseconds = Some(time);
        }
        Ok(rows)
    }

    fn upload(&self, case: &Case, guard: usize) -> Result<Vec<Allocation>, Failure> {
        let mut allocations = Vec::new();
        for buffer in &case.buffers {
            let bytes = buffer.content.len();
            let allocation = self.device.alloc(&buffer.name, (bytes + guard) as u64)?;
            let poison_from = match &buffer.content {
                Content::Bytes(content) => {
                    self.device.upload(allocation.address(), content)?;
                    bytes
                }
                Content::Poison(_) => 0,
            };
            let poison = (bytes + guard - poison_from) as u64;
            if poison > 0 {
                self.device.fill(allocation.address().offset(poison_from as u64), poison, POISON)?;
            }
            allocations.push(allocation);
        }
        Ok(allocations)
    }

    /// Downloads every buffer with its guard bytes, except large inputs.
    fn download(&self, case: &Case, allocations: &[Allocation]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut outputs = Vec::new();
        for (index, (buffer, allocation)) in case.buffers.iter().zip(allocations).enumerate() {
            let is_read = |expected: &Expected| {
                expected.buffer == index || matches!(expected.want, Want::Same(other) if other == index)
            };
            let wanted = case.expected.iter().any(is_read);
            let mut out = Vec::new();
            if wanted || buffer.content.len() <= READ_BACK {
                out.resize(allocation.bytes() as usize, 0);
                self.device.download(allocation.address(), &mut out)?;
            }
            outputs.push(out);
        }
        Ok(outputs)
    }

    /// Time of the launches in microseconds; `None` on the emulator.
    fn time(&self, sequence: &mut dyn LaunchSequence) -> Result<Option<f64>, Failure> {
        if self.device.info().kind == Kind::Emulator {
            return Ok(None);
        }
        Ok(Some(sequence.profile()?.iter().sum()))
    }
}

/// Describes a write to an input or behind the end of a buffer; `None` if there is none.
fn changed(case: &Case, outputs: &[Vec<u8>]) -> Option<String> {
    for (index, (buffer, got)) in case.buffers.iter().zip(outputs).enumerate() {
        if got.is_empty() {
            continue;
        }
        let (got, guard) = got.split_at(buffer.content.len());
        if let Some(at) = guard.iter().position(|&byte| byte != POISON) {
            return Some(format!("a write {at} bytes behind the end of `{}`", buffer.name));
        }
        let is_output =
            case.expected.iter().any(|expected| expected.buffer == index) || case.scratch.contains(&index);
        if let (Content::Bytes(before), false) = (&buffer.content, is_output)
            && let Some(at) = (0..got.len()).find(|&at| got[at] != before[at])
        {
            return Some(format!("the input `{}` changed at byte {at}", buffer.name));
        }
    }
    None
}

/// Encodes a launch with the argument layout that the kernel declares.
fn launch(kernel: Kernel, spec: &KernelSpec, args: &[Arg], allocations: &[Allocation]) -> Launch {
    let mut params: Vec<u8> = Vec::new();
    for arg in args {
        let bytes = match arg {
            Arg::Buffer(index) => allocations[*index].address().0.to_le_bytes().to_vec(),
            Arg::Word(word) => word.to_le_bytes().to_vec(),
        };
        params.resize(params.len().next_multiple_of(bytes.len()), 0);
        params.extend(bytes);
    }
    let geometry = spec.geometry();
    Launch {
        kernel,
        grid: geometry.grid,
        block: [geometry.threads, 1, 1],
        dynamic_shared: geometry.dynamic_shared,
        params,
        programmatic: false,
    }
}
