//! What the emulator sees of many launches, written down instead of stopping at the first finding.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bespoke_emulator as emulator;

/// Findings and profiles of launches, for a device made by [`checking`](super::checking) or for whoever runs the
/// emulator itself.
pub struct Journal {
    profile: bool,
    entries: Mutex<JournalEntries>,
}

/// What a [`Journal`] holds.
#[derive(Clone, Default)]
pub struct JournalEntries {
    /// Launches that ran, to their end or to a finding.
    pub launches: u64,
    /// Findings and how often each was made: those of one kind at one PTX line of one kernel count as one.
    pub findings: Vec<(emulator::Finding, u64)>,
    /// A profile a kernel, in the order of their first launches; only of launches without a finding.
    pub profiles: Vec<emulator::Profile>,
    /// The same of launches that a finding stopped: what ran until then.
    pub stopped: Vec<emulator::Profile>,
    /// The PTX of every kernel that was loaded.
    pub texts: HashMap<String, Arc<str>>,
}

impl Journal {
    /// An empty journal; with `profile`, launches are profiled, which slows them down.
    pub fn new(profile: bool) -> Journal {
        Journal { profile, entries: Mutex::default() }
    }

    /// Whether launches are to be profiled.
    pub fn profiles(&self) -> bool {
        self.profile
    }

    /// Remembers the text of kernels.
    pub fn loaded<'a>(&self, kernels: impl IntoIterator<Item = &'a str>, text: &str) {
        let text: Arc<str> = text.into();
        let mut entries = self.lock();
        entries.texts.extend(kernels.into_iter().map(|kernel| (kernel.to_owned(), text.clone())));
    }

    /// Remembers what became of a launch.
    pub fn record(&self, outcome: Result<emulator::Stats, Box<emulator::Finding>>) {
        let mut entries = self.lock();
        entries.launches += 1;
        match outcome {
            Ok(stats) => {
                if let Some(profile) = stats.profile {
                    add_profile(&mut entries.profiles, *profile);
                }
            }
            Err(mut finding) => {
                if let Some(profile) = finding.profile.take() {
                    add_profile(&mut entries.stopped, *profile);
                }
                entries.add_finding(*finding);
            }
        }
    }

    /// What it holds so far.
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

/// Adds to the profile of the same kernel, if there is one.
fn add_profile(profiles: &mut Vec<emulator::Profile>, profile: emulator::Profile) {
    if !profiles.iter_mut().any(|known| known.kernel == profile.kernel && known.merge(&profile)) {
        profiles.push(profile);
    }
}
