//! What kernels that stream their data share: who copies it, and when the next launch may start.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// How data comes into shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyEngine {
    /// `cp.async.bulk`: one instruction a stage (sm_90).
    Bulk,
    /// `cp.async`: 16 bytes a lane.
    Async,
}

impl CopyEngine {
    /// Who copies, and how.
    pub(crate) fn engine(self) -> Engine {
        match self {
            CopyEngine::Bulk => Engine::Bulk,
            CopyEngine::Async => Engine::Async { threads: WARP },
        }
    }

    /// How threads wait at an mbarrier: as the oldest target with the engine can.
    pub(crate) fn how(self) -> Wait {
        match self {
            CopyEngine::Bulk => Wait::Try,
            CopyEngine::Async => Wait::Test,
        }
    }

    /// Whether this lane of a loading warp copies.
    #[device]
    pub(crate) fn takes_lane(self) -> Val<bool> {
        if self == CopyEngine::Bulk { lane() == 0 } else { val(true) }
    }
}

/// When the launch after this one may start, in programmatic order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// When this one is over.
    Never,
    /// When all CTAs of this one run.
    AtStart,
    /// When the launches before this one are over: whatever starts then sees their results without waiting.
    AfterWait,
}

impl Trigger {
    /// At the kernel's start: lets the next launch start, if this is when.
    #[track_caller]
    pub(crate) fn at_start(self) {
        if self == Trigger::AtStart {
            launch_dependents();
        }
    }

    /// Waits for the launches before this one, and lets the next start, if this is when. A kernel that never does has
    /// a full edge before it, and need not wait.
    #[track_caller]
    pub(crate) fn wait(self) {
        if self != Trigger::Never {
            wait_for_dependencies();
        }
        if self == Trigger::AfterWait {
            launch_dependents();
        }
    }
}
