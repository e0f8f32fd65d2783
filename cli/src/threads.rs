//! The threads of parallel work, where the system allows fewer of them than the machine has cores (`ulimit -u`, a
//! container's limit on processes).

use std::sync::mpsc::{self, Sender};
use std::thread;

use rayon::{ThreadBuilder, ThreadPoolBuildError, ThreadPoolBuilder};

/// Starts the threads of rayon's global pool: as many as there are cores, or as many as the system allows. Rayon itself
/// would panic at the first parallel work if a thread could not be started.
pub fn start() {
    // As rayon chooses it.
    let variable = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let wanted = variable.filter(|&count| count > 0).unwrap_or_else(cores).min(rayon::max_num_threads());
    let mut waiting = Vec::new();
    while waiting.len() < wanted
        && let Some(thread) = start_one()
    {
        waiting.push(thread);
    }
    if waiting.len() < wanted {
        // Others also need threads: the signals, a progress bar, an upload.
        waiting.truncate(waiting.len() / 2);
        let count = waiting.len().max(1);
        tracing::warn!("could not start {wanted} threads, using {count}: `ulimit -u` limits them");
    }
    if let Err(error) = build(waiting) {
        tracing::warn!("cannot create the thread pool: {error}");
    }
}

/// Starts a thread that waits for its part of the pool; none if the system refuses.
fn start_one() -> Option<Sender<ThreadBuilder>> {
    let (give, receive) = mpsc::channel::<ThreadBuilder>();
    let run = move || {
        // The sender of a thread that is not needed is dropped.
        if let Ok(worker) = receive.recv() {
            worker.run();
        }
    };
    thread::Builder::new().name("worker".to_owned()).spawn(run).ok().map(|_| give)
}

/// Builds the global pool of threads that wait; without any, of the calling thread.
fn build(mut waiting: Vec<Sender<ThreadBuilder>>) -> Result<(), ThreadPoolBuildError> {
    let builder = ThreadPoolBuilder::new().num_threads(waiting.len().max(1));
    if waiting.is_empty() {
        return builder.use_current_thread().build_global();
    }
    let give = move |worker: ThreadBuilder| {
        let gone = || std::io::Error::other("a thread has ended");
        waiting.pop().ok_or_else(gone)?.send(worker).map_err(|_| gone())
    };
    builder.spawn_handler(give).build_global()
}
