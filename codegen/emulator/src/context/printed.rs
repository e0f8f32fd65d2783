//! Text that the threads of a launch print.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of bytes that a launch may print, as on a device by default.
const MAX_BYTES: usize = 1 << 20;

/// Text printed by each cluster, by its position in the grid.
#[derive(Default)]
pub(crate) struct Printed(Mutex<Texts>);

#[derive(Default)]
struct Texts {
    clusters: BTreeMap<u64, String>,
    bytes: usize,
    /// Number of calls whose text did not fit.
    dropped: u64,
}

impl Printed {
    /// Appends a text to what the cluster has printed, if it fits.
    pub(crate) fn add(&self, cluster: u64, text: &str) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.bytes + text.len() > MAX_BYTES {
            texts.dropped += 1;
            return;
        }
        texts.bytes += text.len();
        texts.clusters.entry(cluster).or_default().push_str(text);
    }

    /// The texts of all clusters in the order of the grid.
    pub(crate) fn into_text(self) -> String {
        let Texts { clusters, dropped, .. } = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut text: String = clusters.into_values().collect();
        if dropped > 0 {
            text += &format!("[{dropped} more calls of `printf`: a launch prints up to {MAX_BYTES} bytes]\n");
        }
        text
    }
}
