//! Measurement of decode steps on a device.

use bespoke::device;
use bespoke::engine::{EngineError, Variant, Variants};
use bespoke_kernels::plan::{Plan, Tuning};

use crate::search::{Comparison, Meter};

/// How two plans are compared: at which depths, and how often.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Numbers of positions in the cache; at least one. A time is the mean over the depths.
    pub depths: Vec<u32>,
    /// Graph replays at each depth; the time is their mean.
    pub replays: u32,
    /// Number of turns; each turn times the present plan and the other plan once.
    pub turns: u32,
}

/// Number of turns after which a clearly slower plan is dropped, and the loss that counts as clear, as a fraction of
/// the time.
const FIRST_TURNS: usize = 3;
const CLEARLY: f64 = 0.01;

/// Final comparison of the plan by the new rules with the cost model's.
#[derive(Debug)]
pub struct Confirmation {
    /// Comparison by the mean time over the depths.
    pub total: Comparison,
    /// Each depth, in positions, with the comparison there.
    pub by_depth: Vec<(u32, Comparison)>,
}

/// Times decode steps of an engine.
pub struct DeviceMeter<'a> {
    variants: Variants<'a>,
    effort: Effort,
    /// Variant of the present plan, kept for the next comparison.
    present: Option<Variant>,
}

impl<'a> DeviceMeter<'a> {
    /// Creates a meter for the variants of an engine.
    pub fn new(variants: Variants<'a>, effort: Effort) -> DeviceMeter<'a> {
        DeviceMeter { variants, effort, present: None }
    }

    /// Compares two plans by the mean over the depths, and at each depth. Runs all `turns` turns, also if one plan is clearly
    /// slower.
    pub fn confirm(&mut self, before: &Plan, after: &Plan, turns: u32) -> Result<Confirmation, EngineError> {
        let mut before = self.variants.make(before.clone())?;
        let mut after = self.variants.make(after.clone())?;
        let times = self.turns(&mut before, &mut after, turns, false)?;
        let at = |(index, depth): (usize, &u32)| {
            let pairs: Vec<(f64, f64)> = times.iter().map(|turn| (turn.0[index], turn.1[index])).collect();
            (*depth, Comparison::of(&pairs))
        };
        let by_depth = self.effort.depths.iter().enumerate().map(at).collect();
        Ok(Confirmation { total: Comparison::of(&means(&times)), by_depth })
    }

    /// Logits of both plans after the same tokens, f32 `[row][vocab]`.
    pub fn logits(
        &mut self,
        before: &Plan,
        after: &Plan,
        prompt: &[u32],
    ) -> Result<[Vec<f32>; 2], EngineError> {
        let mut of = |plan: &Plan| {
            let mut variant = self.variants.make(plan.clone())?;
            self.variants.logits(&mut variant, prompt)
        };
        Ok([of(before)?, of(after)?])
    }

    /// Times both plans alternately, so that a drift of the clocks affects both; the plan that is timed first
    /// alternates as well.
    fn turns(
        &mut self,
        first: &mut Variant,
        second: &mut Variant,
        turns: u32,
        give_up: bool,
    ) -> Result<Vec<Turn>, EngineError> {
        // A graph's first replay loads code and raises the clocks.
        self.times(first)?;
        self.times(second)?;
        let mut times = Vec::new();
        for turn in 0..turns {
            times.push(if turn % 2 == 0 {
                let before = self.times(first)?;
                (before, self.times(second)?)
            } else {
                let after = self.times(second)?;
                (self.times(first)?, after)
            });
            if give_up && times.len() == FIRST_TURNS && Comparison::of(&means(&times)).fraction() < -CLEARLY {
                break;
            }
        }
        Ok(times)
    }

    /// Times of a step at each depth, in milliseconds.
    fn times(&mut self, variant: &mut Variant) -> Result<Vec<f64>, EngineError> {
        let Effort { depths, replays, .. } = &self.effort;
        depths.iter().map(|&depth| self.variants.time(variant, depth, *replays)).collect()
    }
}

/// Times of two plans at each depth.
type Turn = (Vec<f64>, Vec<f64>);

/// Mean times of two plans over the depths.
fn means(times: &[Turn]) -> Vec<(f64, f64)> {
    let mean = |times: &Vec<f64>| times.iter().sum::<f64>() / times.len() as f64;
    times.iter().map(|(before, after)| (mean(before), mean(after))).collect()
}

impl Meter for DeviceMeter<'_> {
    type Error = EngineError;

    fn plan(&mut self, tuning: &Tuning) -> Option<Plan> {
        match self.variants.plan(tuning) {
            Ok(plan) => Some(plan),
            Err(error) => {
                tracing::debug!("passed over: {error}");
                None
            }
        }
    }

    fn compare(&mut self, present: &Plan, other: &Plan) -> Result<Option<Comparison>, EngineError> {
        let mut first = match self.present.take() {
            Some(variant) if variant.plan() == present => variant,
            _ => self.variants.make(present.clone())?,
        };
        let compared = match self.variants.make(other.clone()) {
            Ok(mut second) => match self.turns(&mut first, &mut second, self.effort.turns, true) {
                Ok(times) => Some(Comparison::of(&means(&times))),
                Err(error) => {
                    if let EngineError::Device(device::Error::Hung { .. }) = error {
                        let kernels: Vec<&str> =
                            other.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
                        tracing::error!(
                            "this is a bug, please report it; the kernels: {}",
                            kernels.join(", ")
                        );
                    }
                    return Err(error);
                }
            },
            // The kernel needs too many registers for its number of threads, which only the assembler knows.
            Err(EngineError::Device(error @ device::Error::Launch { .. })) => {
                tracing::debug!("passed over: {error}");
                None
            }
            Err(error) => return Err(error),
        };
        self.present = Some(first);
        Ok(compared)
    }
}

#[cfg(test)]
mod tests {
    use bespoke::device::{Selector, open};
    use bespoke::engine::{Engine, EngineOptions};
    use bespoke_gguf::Gguf;
    use bespoke_kernels::plan::LaunchRole;
    use bespoke_kernels::plan::tuning::Knob;
    use bespoke_kernels::shape::ModelShape;
    use bespoke_logits::nmse;

    use super::*;
    use crate::search::{Setting, with};

    /// Runs on the emulator, whose times are ignored.
    #[test]
    fn a_step_is_timed_in_turns_with_another() {
        let gguf =
            Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/llama-q8_0.gguf")).unwrap();
        let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
        let options = EngineOptions { context: Some(80), ..EngineOptions::default() };
        let device = open(Selector::Emulator).unwrap().device;
        let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
        let start = engine.plan().clone();

        let effort = Effort { depths: vec![0, 70], replays: 2, turns: 4 };
        let mut meter = DeviceMeter::new(Variants::new(&mut engine, 1).unwrap(), effort.clone());
        let tuned = |knob, value| {
            with(&Tuning::default(), &start, LaunchRole::Attention, Setting::Number(knob, value))
        };
        assert!(meter.plan(&tuned(Knob::Stages, 64)).is_none(), "more shared memory than a CTA has");
        let other = meter.plan(&tuned(Knob::MinPages, 1)).unwrap();
        let compared = meter.compare(&start, &other).unwrap().unwrap();
        assert!(compared.before > 0.0 && compared.noise > 0.0, "{compared:?}");
        // The present plan is not compiled again, and may be replaced.
        assert!(meter.compare(&other, &start).unwrap().is_some());
        assert_eq!(meter.present.as_ref().map(Variant::plan), Some(&other));

        let [before, after] = meter.logits(&start, &other, &[1, 2, 3]).unwrap();
        assert!(nmse(&after, &before).is_some_and(|error| error < 1e-10));
        let confirmed = meter.confirm(&start, &other, 3).unwrap();
        assert_eq!(confirmed.by_depth.iter().map(|(depth, _)| *depth).collect::<Vec<_>>(), effort.depths);
        assert!(confirmed.by_depth.iter().all(|(_, compared)| compared.before > 0.0));
        let deep = Effort { depths: vec![79], ..effort };
        let mut meter = DeviceMeter::new(Variants::new(&mut engine, 1).unwrap(), deep);
        let error = meter.confirm(&start, &other, 1).unwrap_err();
        assert!(error.to_string().starts_with("the context is full: 81 positions"), "{error}");
    }
}
