//! Launch parameters shared by the kernels that stream data: the copy engine, and the trigger of the next launch.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// The instruction that copies data to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyEngine {
    /// `cp.async.bulk`: one instruction per stage (sm_90).
    Bulk,
    /// `cp.async`: 16 bytes per lane.
    Async,
}

impl CopyEngine {
    /// The DSL's pipeline copy for this engine, with the number of threads that copy.
    pub(crate) fn engine(self) -> PipelineCopy {
        match self {
            CopyEngine::Bulk => PipelineCopy::Bulk,
            CopyEngine::Async => PipelineCopy::Async { threads: WARP },
        }
    }

    /// Whether this lane of a producer warp issues copies.
    #[device]
    pub(crate) fn takes_lane(self) -> Val<bool> {
        if self == CopyEngine::Bulk { lane() == 0 } else { val(true) }
    }
}

/// The event that lets the next launch start (programmatic dependent launch).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The end of this launch.
    Never,
    /// The start of this launch's last CTA.
    AtStart,
    /// The end of all earlier launches. The next launch then sees their results without a wait.
    AfterWait,
    /// The end of all earlier launches and the issue of this launch's last load of weights, whichever is later. The
    /// next launch then sees the results of earlier launches without a wait, and its loads do not delay this launch's.
    AfterLoads,
}

impl Trigger {
    /// Triggers the next launch if this is [`Trigger::AtStart`]. Call at the start of the kernel.
    #[track_caller]
    pub(crate) fn at_start(self) {
        if self == Trigger::AtStart {
            launch_dependents();
        }
    }

    /// Waits for the earlier launches, and triggers the next launch if this is [`Trigger::AfterWait`]. A kernel with
    /// [`Trigger::Never`] does not wait: the edge before it is a full dependency.
    #[track_caller]
    pub(crate) fn wait(self) {
        if self != Trigger::Never {
            wait_for_dependencies();
        }
        if self == Trigger::AfterWait {
            launch_dependents();
        }
    }

    /// Triggers the next launch if this is [`Trigger::AfterLoads`]. Call in the producer, after its last load.
    #[track_caller]
    pub(crate) fn after_loads(self) {
        if self == Trigger::AfterLoads {
            wait_for_dependencies();
            launch_dependents();
        }
    }
}
