//! Record of findings and profiles over many launches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bespoke_emulator as emulator;

/// Record of the findings and profiles of launches. A finding is recorded instead of stopping the run.
///
/// Filled by a device made by [`checking`](super::checking), or by a caller that runs the emulator directly.
pub struct Journal {
    profile: bool,
    entries: Mutex<JournalEntries>,
}

/// Contents of a [`Journal`]: counts, findings, profiles, and the PTX of kernels.
#[derive(Clone, Default)]
pub struct JournalEntries {
    /// Number of launches, including those that a finding stopped.
    pub launches: u64,
    /// Findings with their number of occurrences. Findings of one kind at one PTX line of one kernel are equal.
    pub findings: Vec<(emulator::Finding, u64)>,
    /// Profile of each kernel over its launches without a finding, in the order of first launches.
    pub profiles: Vec<emulator::Profile>,
    /// Profile of each kernel over its launches that a finding stopped, up to the finding.
    pub stopped: Vec<emulator::Profile>,
    /// Text that the launches printed with `printf`, in order.
    pub printed: String,
    /// PTX of every loaded kernel, by name.
    pub texts: HashMap<String, Arc<str>>,
}

impl Journal {
    /// Creates an empty journal. With `profile`, launches are profiled, which is slower.
    pub fn new(profile: bool) -> Journal {
        Journal { profile, entries: Mutex::default() }
    }

    /// Whether launches are profiled.
    pub fn profiles(&self) -> bool {
        self.profile
    }

    /// Records the PTX of kernels.
    pub fn loaded<'a>(&self, kernels: impl IntoIterator<Item = &'a str>, text: &str) {
        let text: Arc<str> = text.into();
        let mut entries = self.lock();
        entries.texts.extend(kernels.into_iter().map(|kernel| (kernel.to_owned(), text.clone())));
    }

    /// Records the outcome of a launch.
    pub fn record(&self, outcome: Result<emulator::Stats, Box<emulator::Finding>>) {
        let mut entries = self.lock();
        entries.launches += 1;
        match outcome {
            Ok(stats) => {
                entries.printed += &stats.printed;
                if let Some(profile) = stats.profile {
                    add_profile(&mut entries.profiles, *profile);
                }
            }
            Err(mut finding) => {
                entries.printed += &std::mem::take(&mut finding.printed);
                if let Some(profile) = finding.profile.take() {
                    add_profile(&mut entries.stopped, *profile);
                }
                entries.add_finding(*finding);
            }
        }
    }

    /// Returns a copy of the journal's contents.
    pub fn entries(&self) -> JournalEntries {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, JournalEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalEntries {
    fn add_finding(&mut self, finding: emulator::Finding) {
        let same = |known: &emulator::Finding| {
            (known.kind, known.ptx_line) == (finding.kind, finding.ptx_line) && known.kernel == finding.kernel
        };
        match self.findings.iter_mut().find(|(known, _)| same(known)) {
            Some((_, times)) => *times += 1,
            None => self.findings.push((finding, 1)),
        }
    }
}

/// Adds `profile` to the profile of the same kernel in `profiles`, or to the list if there is none.
fn add_profile(profiles: &mut Vec<emulator::Profile>, profile: emulator::Profile) {
    if !profiles.iter_mut().any(|known| known.kernel == profile.kernel && known.merge(&profile)) {
        profiles.push(profile);
    }
}
