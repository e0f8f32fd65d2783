//! Phases of a server's life.

use tokio::sync::watch;

/// Phase of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The model is being loaded; requests are refused (503).
    Loading,
    /// Requests are answered.
    Serving,
    /// Requests that run may end; new ones are refused (503).
    Draining,
    /// Requests that still run are ended with an error.
    Ending,
}

/// The phase, which only moves forward.
pub struct Phases(watch::Sender<Phase>);

impl Phases {
    /// A server that loads its model.
    pub fn new() -> Phases {
        Phases(watch::Sender::new(Phase::Loading))
    }

    /// The phase now.
    pub fn now(&self) -> Phase {
        *self.0.borrow()
    }

    /// Moves forward to a phase. Does nothing in a later one.
    pub fn advance(&self, to: Phase) {
        self.0.send_if_modified(|now| {
            let forward = to > *now;
            *now = to.max(*now);
            forward
        });
    }

    /// A view of the phase that can be waited on.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }
}

/// Waits until a phase has begun.
pub async fn begun(phases: &mut watch::Receiver<Phase>, phase: Phase) {
    // The channel is closed only when the server has ended; there is nothing left to wait for.
    let _ = phases.wait_for(|&now| now >= phase).await;
}
