//! Recording of kernels: their options, and the entry point of `#[kernel]`.

mod call;

use std::panic::Location;

use super::recorder::{RecordError, Recorder, error_at, error_of, new_recording, run};
use super::replay::replay_paths;
use crate::ir::Op;
use crate::kernel::Kernel;

pub(super) use call::{call_parameters, call_results, record_call};

/// The result of recording a kernel.
pub type Recorded = Result<Kernel, RecordError>;

/// Number of threads of a CTA: along x, or a tuple of the numbers along two or three axes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of threads",
    label = "expected a `u32`, or a tuple of two or three"
)]
pub trait CtaSize {
    /// The numbers along x, y and z.
    fn axes(self) -> [u32; 3];
}

impl CtaSize for u32 {
    fn axes(self) -> [u32; 3] {
        [self, 1, 1]
    }
}

impl CtaSize for (u32, u32) {
    fn axes(self) -> [u32; 3] {
        [self.0, self.1, 1]
    }
}

impl CtaSize for (u32, u32, u32) {
    fn axes(self) -> [u32; 3] {
        self.into()
    }
}

/// Options of a kernel, as given in `#[kernel(…)]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelOptions {
    /// Number of threads per CTA along x, y and z, if it is fixed.
    pub threads: Option<[u32; 3]>,
    /// Minimum number of CTAs that a multiprocessor should hold at a time; limits the registers per thread.
    pub min_blocks: Option<u32>,
    /// Largest number of registers per thread; 255, which is the most that a thread has, is no limit.
    pub max_registers: Option<u32>,
    /// Number of CTAs along x that form a cluster (sm_90).
    pub cluster: Option<u32>,
    /// Bytes of stack per thread that the assembler may spill registers to; no spills are allowed if absent.
    pub allow_spills: Option<u32>,
}

/// Maximum number of registers per thread on every target.
const NO_LIMIT: u32 = 255;

impl KernelOptions {
    /// The reason why no GPU can launch a kernel with these options, if there is one.
    fn error(&self) -> Option<String> {
        let out_of_range = |what: &str, value: Option<u32>, most: u32| {
            let value = value.filter(|value| !(1..=most).contains(value))?;
            Some(format!("`{what} = {value}` is out of range: write 1 to {most}"))
        };
        let without_threads = || {
            let alone = self.min_blocks.is_some() && self.threads.is_none();
            alone.then(|| {
                "`min_blocks` limits registers only together with `threads = …`: write both".to_owned()
            })
        };
        let threads = || {
            let [x, y, z] = self.threads?;
            if [y, z] == [1, 1] {
                return out_of_range("threads", Some(x), 1024);
            }
            let volume = [x, y, z].iter().map(|&axis| u64::from(axis)).fold(1, u64::saturating_mul);
            (!(1..=1024).contains(&volume) || z > 64).then(|| {
                format!(
                    "`threads = ({x}, {y}, {z})` is out of range: write 1 to 1024 threads together, at most 64 along z"
                )
            })
        };
        threads()
            .or_else(|| out_of_range("min_blocks", self.min_blocks, 32))
            .or_else(without_threads)
            .or_else(|| out_of_range("max_registers", self.max_registers, NO_LIMIT))
            .or_else(|| out_of_range("cluster", self.cluster, 8))
    }
}

/// Records the kernel whose body is `body`, and then follows paths through the recorded kernel with `body`, to find
/// state that the recording does not carry. `#[kernel]` expands to a call of this function.
#[track_caller]
pub fn record_kernel(name: &str, options: KernelOptions, mut body: impl FnMut()) -> Recorded {
    let site = Location::caller();
    let mut recorder = Recorder::new(name);
    if let Some([x, y, z]) = options.threads {
        recorder.func.threads = Some(x.saturating_mul(y).saturating_mul(z));
        recorder.func.threads_yz = [y, z];
    }
    recorder.func.min_blocks = options.min_blocks;
    recorder.func.max_registers = options.max_registers.filter(|&registers| registers < NO_LIMIT);
    recorder.func.cluster = options.cluster.filter(|&blocks| blocks > 1);
    recorder.func.allow_spills = options.allow_spills.unwrap_or(0);
    if let Some(message) = options.error() {
        return Err(error_at(name, site, message));
    }
    let recording = new_recording();
    let (mut recorder, outcome) = run(recorder, recording, &mut body);
    outcome.map_err(|payload| error_of(payload, name, site))?;
    recorder.terminate(Op::Return, &[], Vec::new(), site);
    let recorder = replay_paths(recorder, recording, &mut body, site)?;
    Ok(Kernel::new(recorder.func))
}
