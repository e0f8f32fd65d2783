//! Profiled steps in the JSON format of Chrome's trace viewer, which Perfetto reads.
//!
//! Format: "Trace Event Format" of the Chromium project. Complete events (`ph: X`) with start and duration in
//! microseconds, and metadata events (`ph: M`) that name processes and threads. A profile is a process; its launches,
//! its layers and the replay are threads. A timeline is a process, too.

use serde_json::{Value, json};

use crate::profile::{LaunchTime, Profile};
use crate::timeline::{TimedLaunch, Timeline};

/// Thread numbers of a profile, in the order of display.
const LAYERS: u32 = 1;
const KERNELS: u32 = 2;
const REPLAY: u32 = 3;

/// The trace of profiles and timelines.
pub fn trace(profiles: &[Profile], lines: &[Timeline]) -> Value {
    let mut events = Vec::new();
    for (line, pid) in lines.iter().zip(1 + profiles.len() as u32..) {
        events.extend(timeline(line, pid));
    }
    for (profile, pid) in profiles.iter().zip(1u32..) {
        let name = format!("{} on {}", profile.info.title(), profile.info.place());
        events.push(named("process_name", pid, 0, &name));
        events.push(named("thread_name", pid, LAYERS, "layers"));
        let kernels = "kernels: eager launches, an event around each, no overlap";
        events.push(named("thread_name", pid, KERNELS, kernels));
        events.extend(launches(profile, pid));
        if let Some(replay) = profile.replay_microseconds {
            events.push(named("thread_name", pid, REPLAY, "the same step as a replay of the graph, in all"));
            let args = json!({ "kernels_sum_us": profile.kernels_microseconds });
            events.push(slice("replay", (pid, REPLAY), (0.0, replay), args));
        }
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ns" })
}

/// Slices of the launches of a timeline, and within them their work after the wait. A launch that starts before another one
/// ends is on another thread.
fn timeline(line: &Timeline, pid: u32) -> Vec<Value> {
    let name = format!("{}, replays of the graph on {}", line.info.title(), line.info.place());
    let mut events = vec![named("process_name", pid, 0, &name)];
    let mut ends: Vec<f64> = Vec::new();
    for launch in &line.launches {
        let thread = ends.iter().position(|&end| end <= launch.start).unwrap_or(ends.len());
        let tid = thread as u32 + 1;
        if thread == ends.len() {
            events.push(named("thread_name", pid, tid, "launches"));
            ends.push(0.0);
        }
        ends[thread] = launch.end;
        let TimedLaunch { label, kernel, start, resumed, first_end, end } = launch;
        let args = json!({ "kernel": kernel, "first CTA ends": first_end });
        events.push(slice(label, (pid, tid), (*start, end - start), args));
        events.push(slice("after the wait", (pid, tid), (*resumed, end - resumed), json!({})));
    }
    events
}

/// Slices of the launches, and above the launches the slices of their layers.
fn launches(profile: &Profile, pid: u32) -> Vec<Value> {
    let mut events = Vec::new();
    let mut at = 0.0;
    let mut layer: Option<(&str, f64)> = None;
    for launch in &profile.launches {
        let of = layer_of(launch);
        if let Some((name, start)) = layer.filter(|(name, _)| Some(*name) != of) {
            events.push(slice(name, (pid, LAYERS), (start, at - start), json!({})));
        }
        if layer.map(|(name, _)| name) != of {
            layer = of.map(|name| (name, at));
        }
        let duration = launch.traffic.microseconds;
        events.push(slice(&launch.label, (pid, KERNELS), (at, duration), args(launch)));
        at += duration;
    }
    if let Some((name, start)) = layer {
        events.push(slice(name, (pid, LAYERS), (start, at - start), json!({})));
    }
    events
}

/// Layer of a launch: `blk.3` for `blk.3.attn_qkv`.
fn layer_of(launch: &LaunchTime) -> Option<&str> {
    let rest = launch.label.strip_prefix("blk.")?;
    Some(&launch.label[.."blk.".len() + rest.find('.')?])
}

fn args(launch: &LaunchTime) -> Value {
    let traffic = &launch.traffic;
    json!({
        "kernel": launch.kernel,
        "grid": launch.grid,
        "threads": launch.threads,
        "bytes": traffic.bytes,
        "GB/s": traffic.bytes_per_second / 1e9,
        "of ceiling": traffic.fraction_of_ceiling,
    })
}

fn slice(name: &str, (pid, tid): (u32, u32), (start, duration): (f64, f64), args: Value) -> Value {
    json!({ "ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, "args": args })
}

fn named(what: &str, pid: u32, tid: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } })
}
