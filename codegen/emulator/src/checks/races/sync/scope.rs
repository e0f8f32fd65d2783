//! Scopes and memory orders of synchronisation.

/// Scope of a fence or a strong access: the set of threads to synchronise with. Wider scopes compare greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum MemoryScope {
    #[default]
    Cta,
    /// The same as `Cta` in clusters of one CTA.
    Cluster,
    /// `.gpu` and `.sys`, which the emulator does not distinguish.
    Grid,
}

/// Number of [`MemoryScope`]s.
pub(in crate::checks::races) const MEMORY_SCOPES: usize = 3;

/// Memory order of a strong access: acquire, release and scope.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct MemoryOrder {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
    pub(crate) scope: MemoryScope,
}

/// Semantics of a fence: `fence.acquire` only acquires, `fence.release` only releases, other fences do both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FenceSides {
    pub(in crate::checks::races) acquires: bool,
    pub(in crate::checks::races) releases: bool,
}

impl FenceSides {
    pub(crate) const BOTH: FenceSides = FenceSides { acquires: true, releases: true };
    pub(crate) const ACQUIRE: FenceSides = FenceSides { acquires: true, releases: false };
    pub(crate) const RELEASE: FenceSides = FenceSides { acquires: false, releases: true };
}
