//! Checks of tuning rules: against the limits of every model and target, and of a plan's model and GPU.

use std::fmt;

use bespoke_codegen::dsl::WARP;

use super::TuningError;
use super::rule::{MAX_THREADS, Rule, trigger_name};
use crate::kernels::gemv::{Arithmetic, GemvShape};
use crate::kernels::launching::Trigger;
use crate::plan::{Gpu, LaunchRole, StepKind};

impl Rule {
    /// Checks the rule against the limits of every model and target.
    pub(super) fn check(&self) -> Result<(), TuningError> {
        if !self.role.is_tunable() {
            return Err(TuningError::Role(self.role));
        }
        let sizes = StepKind::Decode.sizes();
        if let Some(rows) = self.rows.filter(|rows| !sizes.contains(rows)) {
            return Err(TuningError::Rows(rows));
        }
        if (self.rows, self.arithmetic) == (Some(1), Some(Arithmetic::F16)) {
            return Err(TuningError::OneRowOfF16);
        }
        let is_product = self.role != LaunchRole::Attention;
        if let (None, Some(Arithmetic::F16), true, Some((knob, value))) =
            (self.rows, self.arithmetic, is_product, self.numbers().next())
        {
            let limit = "a rule for f16 needs `rows` (2 and more); without it only `trigger` applies";
            return Err(self.reject(knob.name(), value, limit.to_owned()));
        }
        let (own, kind) = self.own_knobs();
        let mut names: Vec<&str> = own.iter().map(|knob| knob.name()).collect();
        if self.role != LaunchRole::Attention {
            names.push("trigger");
        }
        if let Some((knob, value)) = self.knobs().into_iter().find(|(knob, _)| !names.contains(knob)) {
            return Err(self.reject(knob, value, format!("the knobs of {kind} are {}", names.join(", "))));
        }
        for (knob, value) in self.numbers() {
            let range = knob.range();
            if !range.contains(&value) {
                let limit = format!("must be {} to {}", range.start(), range.end());
                return Err(self.reject(knob.name(), value, limit));
            }
        }
        Ok(())
    }

    fn reject(&self, knob: &'static str, value: impl fmt::Display, limit: String) -> TuningError {
        TuningError::Knob { place: self.to_string(), knob, value: value.to_string(), limit }
    }

    /// Rejects the rule with the message `limit`. The error names the first entry of `knobs` that the rule sets; if the
    /// rule sets none of them, the first knob that it does set. A rule that sets no knob is accepted.
    fn reject_first(&self, knobs: &[&'static str], limit: String) -> Result<(), TuningError> {
        let set = self.knobs();
        match knobs.iter().find_map(|knob| set.iter().find(|(name, _)| name == knob)).or(set.first()) {
            Some((knob, value)) => Err(self.reject(knob, value, limit)),
            None => Ok(()),
        }
    }

    /// Checks a GEMV divided by this rule. `shared` is the shared memory of a CTA, in bytes.
    pub(super) fn check_gemv(&self, gpu: &Gpu, s: &GemvShape, shared: u32) -> Result<(), TuningError> {
        let schedule = &s.schedule;
        let tiles = s.shared_tiles();
        if schedule.grid > tiles {
            self.reject_first(&["grid"], format!("there are {tiles} tiles of 16 rows"))?;
        }
        // The greedy choice has a thread for each CTA's candidate.
        if self.role == LaunchRole::Output && schedule.grid > MAX_THREADS {
            self.reject_first(&["grid"], format!("the head has at most {MAX_THREADS} CTAs"))?;
        }
        self.check_divided(s, gpu.shared_per_cta)?;
        if s.threads() > MAX_THREADS {
            let (most, loading) = (MAX_THREADS / WARP, s.threads() / WARP - schedule.warps);
            let limit = format!(
                "a CTA has at most {most} warps, of which {loading} load: at most {}",
                most - loading
            );
            self.reject_first(&["warps"], limit)?;
        }
        for (what, count) in [("warps", schedule.warps), ("stages", schedule.stages)] {
            if !count.is_multiple_of(schedule.groups) {
                self.reject_first(
                    &["groups", what],
                    format!("groups must divide the number of {what}, which is {count}"),
                )?;
            }
        }
        if schedule.in_flight > schedule.stages {
            let limit = format!("the ring has {} stages", schedule.stages);
            self.reject_first(&["in_flight"], limit)?;
        }

        let max = gpu.shared_per_cta;
        if shared > max {
            let limit = format!("a CTA needs {shared} bytes of shared memory; the limit is {max}");
            let larger = ["stages", "in_flight", "groups", "warps", "resident", "grid"];
            self.reject_first(&larger, limit)?;
        }
        let (fit, resident) = (gpu.resident(s.threads(), shared), schedule.resident);
        if resident > fit {
            let limit = format!(
                "a multiprocessor has room for {fit} CTAs of {} threads and {shared} bytes",
                s.threads()
            );
            self.reject_first(&["resident"], limit)?;
        }
        // `.minnctapersm` promises registers for `resident` CTAs.
        let threads = resident * s.threads();
        let max = gpu.threads_per_multiprocessor;
        if threads > max {
            let limit = format!("{resident} CTAs of {} threads exceed a multiprocessor's {max}", s.threads());
            self.reject_first(&["warps"], limit)?;
        }
        match self.trigger {
            Some(trigger) => self.check_trigger(gpu, trigger),
            None => Ok(()),
        }
    }

    /// Checks that a product of several rows is divided as the rule says. If no division with all of its values fits, the cost
    /// model has chosen another one.
    fn check_divided(&self, s: &GemvShape, shared: u32) -> Result<(), TuningError> {
        if s.tokens == 1 {
            return Ok(());
        }
        match self.violated(s) {
            Some((knob, value)) => {
                let limit = format!(
                    "no division of a product of {} rows has it, with the rule's other knobs, and fits in {shared} bytes of \
                     shared memory",
                    s.tokens
                );
                Err(self.reject(knob.name(), value, limit))
            }
            None => Ok(()),
        }
    }

    fn check_trigger(&self, gpu: &Gpu, trigger: Trigger) -> Result<(), TuningError> {
        let limit = match trigger {
            Trigger::AtStart | Trigger::AfterWait | Trigger::AfterLoads if !gpu.is_programmatic() => {
                "the target has no programmatic dependent launch; only never is possible"
            }
            Trigger::AtStart if self.role == LaunchRole::AttnQkv => {
                "attention reads the position before it waits; only after_wait, after_loads and never are possible"
            }
            _ => return Ok(()),
        };
        Err(self.reject("trigger", trigger_name(trigger), limit.to_owned()))
    }

    /// Checks attention divided by this rule. `shared` is the shared memory of a CTA, in bytes.
    pub(super) fn check_attention(&self, gpu: &Gpu, shared: u32) -> Result<(), TuningError> {
        let max = gpu.shared_per_cta;
        if shared <= max {
            return Ok(());
        }
        let limit = format!("a CTA needs {shared} bytes of shared memory; the limit is {max}");
        self.reject_first(&["stages"], limit)
    }
}
