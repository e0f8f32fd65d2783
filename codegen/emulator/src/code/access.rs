//! Memory accesses as instructions describe them: kind, state space, memory order, and the generic address space.

use crate::finding::Space;

/// First generic address of the shared memory of a cluster's CTAs.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// First generic address of a thread's local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
/// First generic address of the parameter block, for parameters whose address is taken.
pub(crate) const PARAM_WINDOW: u64 = 0x4000_0000;
/// Size in bytes of the shared, local and parameter windows of the generic address space.
pub(crate) const WINDOW_BYTES: u64 = 1 << 24;

/// State space of a generic address, and the address within that space.
pub(crate) fn classify(address: u64) -> (Space, u64) {
    for (space, window) in [(Space::Shared, SHARED_WINDOW), (Space::Local, LOCAL_WINDOW)] {
        let offset = address.wrapping_sub(window);
        if offset < WINDOW_BYTES {
            return (space, offset);
        }
    }
    let in_param = address.wrapping_sub(PARAM_WINDOW) < WINDOW_BYTES;
    (if in_param { Space::Param } else { Space::Global }, address)
}

/// The state space of an access: the low bits of an instruction's flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum StateSpace {
    Global = 0,
    Shared = 1,
    /// Parameters at an address in a register.
    Param = 2,
    /// A parameter named directly: `imm` is its offset, checked when the kernel was loaded.
    ParamDirect = 3,
    Generic = 4,
    Local = 5,
    /// `.shared::cluster`: any CTA of the cluster; `Shared` is the thread's own CTA.
    SharedCluster = 6,
}

impl StateSpace {
    /// The state space in an instruction's flags.
    #[inline(always)]
    pub(crate) fn of(flags: u32) -> StateSpace {
        match flags & SPACE_BITS {
            0 => StateSpace::Global,
            1 => StateSpace::Shared,
            2 => StateSpace::Param,
            3 => StateSpace::ParamDirect,
            4 => StateSpace::Generic,
            5 => StateSpace::Local,
            _ => StateSpace::SharedCluster,
        }
    }
}

/// Index of the flags in an instruction's slots.
pub(crate) const FLAGS: usize = 6;
/// The bits of the flags that hold the [`StateSpace`].
const SPACE_BITS: u32 = 7;
/// Flag: the address register has 32 bits.
pub(crate) const FLAG_NARROW: u32 = 8;
/// Flag: strong access, any but `.weak`.
pub(crate) const FLAG_ORDERED: u32 = 16;
/// Flag: `.acquire` semantics.
pub(crate) const FLAG_ACQUIRE: u32 = 32;
/// Flag: `.release` semantics.
pub(crate) const FLAG_RELEASE: u32 = 64;
/// Flag: `.cta` scope.
pub(crate) const FLAG_CTA: u32 = 128;
/// Flag: `.cluster` scope.
pub(crate) const FLAG_CLUSTER: u32 = 256;
/// Flag: `.nc`, a load through a cache that is not coherent with writes.
pub(crate) const FLAG_NON_COHERENT: u32 = 512;

/// The kind of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Load,
    Store,
    Atomic,
    /// A hint: neither reads nor writes.
    Prefetch,
}

impl Access {
    /// Words for the access in messages, to be followed by the name of a memory space.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Access::Load => "load from",
            Access::Store => "store to",
            Access::Atomic => "atomic operation on",
            Access::Prefetch => "prefetch from",
        }
    }
}
