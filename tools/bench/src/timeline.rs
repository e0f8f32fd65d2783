//! Timeline of a step: what each launch waits for and how long it works, in replays of the step's graph.

use std::collections::BTreeMap;

use bespoke::device::Kind;
use bespoke::engine::{EngineError, LaunchSpan, StepRows};
use bespoke_kernels::plan::LaunchRole;
use serde::Serialize;

use crate::Subject;
use crate::step::{MeasuredStep, StepInfo};

/// A step of a model as the launches of its graph overlap. Times are in microseconds.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// Model, device and step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// Number of replays; times are means over them.
    pub replays: usize,
    /// Time from the first instruction of the step to the last.
    pub microseconds: f64,
    /// Means by kind of launch and kernel, in the order of their first launches.
    pub roles: Vec<RoleSpan>,
    /// The launches in order.
    pub launches: Vec<TimedLaunch>,
}

/// A launch on the timeline, in microseconds from the start of the step.
#[derive(Debug, Serialize)]
pub struct TimedLaunch {
    /// Label of the launch in the plan.
    pub label: String,
    /// The kernel's name.
    pub kernel: String,
    /// Start of the first CTA.
    pub start: f64,
    /// When the first CTA continues after the wait for earlier launches; its start if the kernel does not wait.
    pub resumed: f64,
    /// End of the first CTA that ends.
    pub first_end: f64,
    /// End of the last CTA.
    pub end: f64,
}

/// Means of the launches of a kind with the same kernel, in microseconds a launch.
#[derive(Debug, Serialize)]
pub struct RoleSpan {
    /// What the launches compute, such as `attn_qkv`.
    pub role: LaunchRole,
    /// The kernel's name.
    pub kernel: String,
    /// Number of launches.
    pub launches: usize,
    /// Time from the start of the first CTA to the end of the launch before: negative if there is none to overlap.
    pub early: f64,
    /// Time from the end of the launch before until the first CTA continues after its wait.
    pub gap: f64,
    /// Time from then to the end of the last CTA.
    pub work: f64,
    /// Time from the end of the first CTA to the end of the last one.
    pub uneven: f64,
    /// `gap` and `work` of all launches, divided by the time of the step.
    pub share: f64,
}

/// Number of replays; one on the emulator, and fewer if the cache has no room for as many decode steps.
const REPLAYS: u32 = 24;

/// Measures the timeline of a step: the times of its launches, as means over several replays.
///
/// # Errors
/// If the engine has no such step, the cache is too small, or the device fails.
pub fn timeline(subject: &mut Subject<'_>, step: MeasuredStep) -> Result<Timeline, EngineError> {
    let info = StepInfo::new(subject, step);
    let rows = step.rows;
    let engine = &mut subject.engine;
    let most = if engine.device().info().kind == Kind::Emulator { 1 } else { REPLAYS };
    let room = engine.plan().params.context.saturating_sub(rows.depth() + 1);
    let replays = match rows {
        StepRows::Decode { .. } => most.min(room).max(1),
        StepRows::Prompt { .. } | StepRows::FirstToken { .. } => most,
    };
    let found = engine.timeline(rows, replays)?;
    let plan = engine.step_plan(rows)?;
    let spans = mean(&found);
    let launches: Vec<TimedLaunch> = plan
        .launches
        .iter()
        .zip(&spans)
        .map(|(launch, &Span { start, resumed, first_end, end })| TimedLaunch {
            label: launch.label.to_string(),
            kernel: plan.kernels[launch.kernel].name.clone(),
            start,
            resumed,
            first_end,
            end,
        })
        .collect();
    let roles = plan.launches.iter().zip(&launches);
    let roles = roles.map(|(planned, launch)| (planned.label.role, launch.kernel.as_str()));
    Ok(Timeline {
        info,
        replays: found.len(),
        microseconds: spans.last().map_or(0.0, |span| span.end),
        roles: by_role(roles, &spans),
        launches,
    })
}

/// Mean times of a launch in microseconds from the start of the step: see [`TimedLaunch`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Span {
    start: f64,
    resumed: f64,
    first_end: f64,
    end: f64,
}

/// Means over the replays, for each launch.
fn mean(replays: &[Vec<LaunchSpan>]) -> Vec<Span> {
    let launches = replays.first().map_or(0, Vec::len);
    let mut sums = vec![Span::default(); launches];
    for replay in replays {
        let first = replay.iter().map(|span| span.start[0]).min().unwrap_or(0);
        for (sum, span) in sums.iter_mut().zip(replay) {
            let part = |time: u64| (time - first) as f64 / 1e3 / replays.len() as f64;
            sum.start += part(span.start[0]);
            sum.resumed += part(span.resumed.unwrap_or(span.start)[0]);
            sum.first_end += part(span.end[0]);
            sum.end += part(span.end[1]);
        }
    }
    sums
}

/// Means by kind of launch and kernel, in the order of first launches.
fn by_role<'a>(roles: impl Iterator<Item = (LaunchRole, &'a str)>, spans: &[Span]) -> Vec<RoleSpan> {
    let total = spans.last().map_or(1.0, |span| span.end);
    let mut order: BTreeMap<(LaunchRole, &str), usize> = BTreeMap::new();
    let mut found: Vec<RoleSpan> = Vec::new();
    let mut before = 0.0;
    for ((role, kernel), span) in roles.zip(spans) {
        let index = *order.entry((role, kernel)).or_insert(found.len());
        if index == found.len() {
            let kernel = kernel.to_owned();
            found.push(RoleSpan {
                role,
                kernel,
                launches: 0,
                early: 0.0,
                gap: 0.0,
                work: 0.0,
                uneven: 0.0,
                share: 0.0,
            });
        }
        let of_role = &mut found[index];
        of_role.launches += 1;
        of_role.early += before - span.start;
        of_role.gap += span.resumed - before;
        of_role.work += span.end - span.resumed;
        of_role.uneven += span.end - span.first_end;
        before = span.end;
    }
    for of_role in &mut found {
        of_role.share = (of_role.gap + of_role.work) / total;
        let count = of_role.launches as f64;
        for sum in [&mut of_role.early, &mut of_role.gap, &mut of_role.work, &mut of_role.uneven] {
            *sum /= count;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_between_the_end_of_a_launch_and_the_next_one_after_its_wait() {
        let first = LaunchSpan { start: [5_000, 5_100], resumed: None, end: [7_000, 8_000] };
        let second =
            LaunchSpan { start: [5_500, 8_100], resumed: Some([8_500, 8_600]), end: [9_000, 11_000] };
        let spans = mean(&[vec![first, second], vec![first, second]]);
        assert_eq!(spans[1], Span { start: 0.5, resumed: 3.5, first_end: 4.0, end: 6.0 });
        let roles = [(LaunchRole::Embed, "embed"), (LaunchRole::AttnQkv, "gemv")];
        let found = by_role(roles.into_iter(), &spans);
        let numbers = |role: &RoleSpan| [role.early, role.gap, role.work, role.uneven, role.share * 6.0];
        assert_eq!(numbers(&found[0]), [0.0, 0.0, 3.0, 1.0, 3.0]);
        assert_eq!(numbers(&found[1]), [2.5, 0.5, 2.5, 2.0, 3.0]);
    }
}
