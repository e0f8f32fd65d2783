//! Timeline of a step: when the CTAs of its launches start, continue after their wait, and end, while its graph is replayed.
//!
//! The graph is captured anew with [timed kernels](bespoke_codegen::Kernel::timed), so the step's own kernels are not slower.

use bespoke_codegen::CtaTimes;
use bespoke_kernels::emit;
use bespoke_kernels::plan::Plan;
use rayon::prelude::*;

use super::step_times::StepRows;
use crate::device::{self, Kernel, Launch};
use crate::engine::{Engine, EngineError, bind, capture};

/// Times of a launch in a replayed step, in nanoseconds of the device's clock. Each event has the earliest and the latest time
/// of all CTAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSpan {
    /// The first instruction of a CTA.
    pub start: [u64; 2],
    /// The first return of a CTA's wait for earlier launches (`griddepcontrol.wait`); none if the kernel does not wait.
    pub resumed: Option<[u64; 2]>,
    /// The last instruction of a CTA.
    pub end: [u64; 2],
}

impl LaunchSpan {
    /// The earliest and the latest of the times of all CTAs; none without CTAs.
    fn of(ctas: &[CtaTimes]) -> Option<LaunchSpan> {
        let range = |times: &dyn Fn(&CtaTimes) -> Option<u64>| {
            let times = || ctas.iter().filter_map(times);
            Some([times().min()?, times().max()?])
        };
        Some(LaunchSpan {
            start: range(&|cta| Some(cta.start))?,
            resumed: range(&|cta| cta.resumed),
            end: range(&|cta| Some(cta.end))?,
        })
    }
}

impl Engine {
    /// Times of each launch of a step, in the order of [`Engine::step_plan`], in each of `replays` replays of its graph; without
    /// a graph, of runs launch by launch. A decode step advances its sequences. Ends the sequence.
    ///
    /// The kernels are compiled for this, as [timed kernels](bespoke_codegen::Kernel::timed). On the emulator launches do not overlap, and the times
    /// are those of the emulation.
    ///
    /// # Errors
    /// If the engine has fewer slots, no such step, or too small a KV cache for one more replay, or the device fails.
    pub fn timeline(&mut self, rows: StepRows, replays: u32) -> Result<Vec<Vec<LaunchSpan>>, EngineError> {
        // The first replay warms up.
        let step = self.write_step(rows, replays + 1)?;
        let plan = self.plan_of(step);
        let addresses = self.addresses_of(plan);
        let kernels = self.timed_kernels(plan)?;
        let mut launches = bind::launches_at(plan, &addresses, &kernels);
        let bytes: Vec<u64> = launches.iter().map(bytes_of_times).collect();
        let total = bytes.iter().sum();
        let times = self.device.alloc("times of CTAs", total)?;
        let mut at = times.address();
        for (launch, bytes) in launches.iter_mut().zip(&bytes) {
            launch.params.extend(at.0.to_le_bytes());
            at = at.offset(*bytes);
        }
        let mut sequence = self.device.sequence(launches)?;
        let captured = !self.options.eager && capture(&mut *sequence, &timed(plan))?.is_some();
        let mut found = Vec::new();
        for _ in 0..=replays {
            self.device.fill(times.address(), total, 0)?;
            if captured {
                sequence.replay()?;
            } else {
                sequence.run_eager()?;
            }
            self.wait_for_steps(1)?;
            let mut words = vec![0; total as usize];
            self.device.download(times.address(), &mut words)?;
            let mut rest = words.as_slice();
            let spans = bytes.iter().map(|&bytes| {
                let (of_launch, behind) = rest.split_at(bytes as usize);
                rest = behind;
                LaunchSpan::of(&CtaTimes::read(of_launch).collect::<Vec<_>>()).expect("a launch has CTAs")
            });
            found.push(spans.collect());
        }
        found.remove(0);
        Ok(found)
    }

    /// The timed kernels of a plan, compiled and loaded.
    fn timed_kernels(&self, plan: &Plan) -> Result<Vec<Kernel>, EngineError> {
        let specs: Vec<_> = plan.kernels.iter().map(|kernel| kernel.spec.clone()).collect();
        let load = |compiled: emit::Emitted| -> device::Result<Kernel> {
            let name = &compiled.compiled.name;
            self.device.load(name, &compiled.compiled.ptx)?.kernel(name)
        };
        let compiled = emit::compile_timed(&specs, plan.target())?;
        Ok(compiled.into_par_iter().map(load).collect::<Result<_, _>>()?)
    }
}

/// The plan with the names of its timed kernels, which a captured graph has.
fn timed(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for kernel in &mut plan.kernels {
        kernel.name = emit::timed_name(&kernel.spec);
    }
    plan
}

/// Bytes of the times of a launch: whole cache lines, so that launches that overlap write to different ones.
fn bytes_of_times(launch: &Launch) -> u64 {
    let ctas: u64 = launch.grid.iter().map(|&ctas| u64::from(ctas)).product();
    (ctas * CtaTimes::BYTES).next_multiple_of(CACHE_LINE)
}

/// Bytes of a cache line.
const CACHE_LINE: u64 = 128;
