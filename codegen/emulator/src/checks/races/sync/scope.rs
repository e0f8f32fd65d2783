//! Scopes and memory orders of synchronisation.

/// Threads that a fence or a strong access synchronises with. Wider scopes are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum MemoryScope {
    #[default]
    Cta,
    /// The same as `Cta` in clusters of one CTA.
    Cluster,
    /// `.gpu` and `.sys`, which do not differ here.
    Grid,
}

/// Number of [`MemoryScope`]s.
pub(in crate::checks::races) const MEMORY_SCOPES: usize = 3;

/// How a strong access takes part in synchronisation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct MemoryOrder {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
    pub(crate) scope: MemoryScope,
}
