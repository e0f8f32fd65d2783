//! Memory accesses as instructions describe them: kind, state space, memory order, and the generic address space.

use crate::finding::Space;

/// Where the shared memory of a cluster's CTAs starts in the generic address space.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// Where a thread's local memory starts.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
/// Where the parameters start when their address is taken.
pub(crate) const PARAM_WINDOW: u64 = 0x4000_0000;
/// Bytes of each window.
pub(crate) const WINDOW_BYTES: u64 = 1 << 24;

/// The space of a generic address, and the address within that space.
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

/// Position of the flags in an instruction's slots.
pub(crate) const FLAGS: usize = 6;
/// The bits of the flags that hold the [`StateSpace`].
const SPACE_BITS: u32 = 7;
/// The address register has 32 bits.
pub(crate) const FLAG_NARROW: u32 = 8;
/// A strong access: anything but `.weak`.
pub(crate) const FLAG_ORDERED: u32 = 16;
/// `.acquire` semantics.
pub(crate) const FLAG_ACQUIRE: u32 = 32;
/// `.release` semantics.
pub(crate) const FLAG_RELEASE: u32 = 64;
/// `.cta` scope.
pub(crate) const FLAG_CTA: u32 = 128;
/// `.cluster` scope.
pub(crate) const FLAG_CLUSTER: u32 = 256;

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
    /// The access in words that a memory space follows.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Access::Load => "load from",
            Access::Store => "store to",
            Access::Atomic => "atomic operation on",
            Access::Prefetch => "prefetch from",
        }
    }
}
