//! From the addresses of a warp's lanes to host memory, with every check on the way.
//!
//! Bounds and alignment are always checked; whether bytes were written before they are read is
//! checked unless the launch turned checks off.

use super::lanes::LANES;
use super::{A, Fault, Flow, Inst, Machine, lanes_of};
use crate::finding::{FindingKind, Neighbour, Space};

/// Where a CTA's shared memory lies in the generic address space.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// Bytes of that window.
const SHARED_WINDOW_BYTES: u64 = 1 << 24;
/// Where the parameters lie when their address is taken.
pub(crate) const PARAM_WINDOW: u64 = 0x4000_0000;

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
}

/// The address register has 32 bits.
pub(crate) const FLAG_NARROW: u32 = 8;
/// The access orders others: anything but `.weak`.
pub(crate) const FLAG_ORDERED: u32 = 16;
/// Position of the flags in `Inst::slots`.
pub(crate) const FLAGS: usize = 6;

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Load,
    Store,
    Atomic,
}

/// Host pointers of an access.
pub(crate) enum Resolved {
    /// All 32 lanes, one after the other.
    Run(*mut u8),
    /// All lanes at one place.
    Same(*mut u8),
    /// One pointer a lane; those of inactive lanes are null.
    Lanes([*mut u8; LANES]),
    /// `worker.fault` is set.
    Fault,
}

/// The lanes' addresses, offset included.
#[inline(always)]
pub(crate) fn addresses(m: &Machine<'_>, i: &Inst) -> [u64; LANES] {
    let mut addresses = [0u64; LANES];
    if i.slots[FLAGS] & FLAG_NARROW != 0 {
        let base = m.warp.regs.lanes::<u32>(i.slots[A]);
        for lane in 0..LANES {
            addresses[lane] = base[lane].wrapping_add(i.imm as u32) as u64;
        }
    } else {
        let base = m.warp.regs.lanes::<u64>(i.slots[A]);
        for lane in 0..LANES {
            addresses[lane] = base[lane].wrapping_add(i.imm);
        }
    }
    addresses
}

/// Resolves an access of `bytes` (a power of two) by each active lane.
#[inline(always)]
pub(crate) fn resolve(m: &mut Machine<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    let flags = i.slots[FLAGS];
    if flags & 7 == StateSpace::ParamDirect as u32 {
        // The loader checked the offset against the parameter block, and the launch its size.
        return Resolved::Same(m.launch.params.as_ptr().wrapping_add(i.imm as usize).cast_mut());
    }
    let mut addresses = addresses(m, i);
    let space = match flags & 7 {
        0 => Space::Global,
        1 => Space::Shared,
        2 => Space::Param,
        _ => generic(m, &mut addresses),
    };
    let start = addresses[0];
    if m.active == u32::MAX && start & (bytes - 1) == 0 {
        let mut consecutive = true;
        let mut equal = true;
        for lane in 0..LANES {
            consecutive &= addresses[lane] == start.wrapping_add(lane as u64 * bytes);
            equal &= addresses[lane] == start;
        }
        if consecutive && let Some(pointer) = checked(m, space, start, LANES as u64 * bytes, access) {
            return Resolved::Run(pointer);
        }
        if equal
            && access == Access::Load
            && let Some(pointer) = checked(m, space, start, bytes, access)
        {
            return Resolved::Same(pointer);
        }
    }
    each(m, &addresses, bytes, (space, access))
}

/// Generic addresses are shared memory's if the first active lane's is, else global memory's.
#[cold]
fn generic(m: &Machine<'_>, addresses: &mut [u64; LANES]) -> Space {
    let first = addresses[m.active.trailing_zeros() as usize % LANES];
    if first.wrapping_sub(SHARED_WINDOW) < SHARED_WINDOW_BYTES {
        addresses.iter_mut().for_each(|address| *address = address.wrapping_sub(SHARED_WINDOW));
        Space::Shared
    } else if first.wrapping_sub(PARAM_WINDOW) < SHARED_WINDOW_BYTES {
        Space::Param
    } else {
        Space::Global
    }
}

/// The host pointer of a range that passes all checks but alignment.
#[inline(always)]
fn checked(m: &mut Machine<'_>, space: Space, address: u64, bytes: u64, access: Access) -> Option<*mut u8> {
    let checks = m.launch.checks;
    match space {
        Space::Global => {
            let live = &m.launch.table.live;
            let hint = m.worker.hints[m.warp.pc] as usize;
            let allocation = match live.get(hint) {
                Some(allocation) if allocation.contains(address, bytes) => allocation,
                _ => {
                    let found = m.launch.table.find(address)?;
                    if !live[found].contains(address, bytes) {
                        return None;
                    }
                    m.worker.hints[m.warp.pc] = found as u32;
                    &live[found]
                }
            };
            let offset = address - allocation.base;
            if access != Access::Store && checks && !allocation.is_initialised(offset, bytes) {
                return None;
            }
            if access != Access::Load {
                allocation.mark(offset, bytes);
            }
            Some(allocation.pointer(address))
        }
        Space::Shared => {
            let shared = &m.cta.shared;
            if address > shared.bytes || bytes > shared.bytes - address {
                return None;
            }
            if checks {
                if access != Access::Store && !shared.map.is_initialised(address, bytes) {
                    return None;
                }
                if access != Access::Load {
                    shared.map.mark(address, bytes);
                }
            }
            Some(shared.pointer(address))
        }
        Space::Param => {
            let offset = address.wrapping_sub(PARAM_WINDOW);
            let size = m.launch.params.len() as u64;
            if access != Access::Load || offset > size || bytes > size - offset {
                return None;
            }
            Some(m.launch.params.as_ptr().wrapping_add(offset as usize).cast_mut())
        }
    }
}

#[inline(never)]
fn each(m: &mut Machine<'_>, addresses: &[u64; LANES], bytes: u64, what: (Space, Access)) -> Resolved {
    let mut pointers = [std::ptr::null_mut(); LANES];
    for lane in lanes_of(m.active) {
        let address = addresses[lane];
        let aligned = address & (bytes - 1) == 0;
        match checked(m, what.0, address, bytes, what.1) {
            Some(pointer) if aligned => pointers[lane] = pointer,
            found => {
                let kind = if found.is_some() { FindingKind::Misaligned } else { FindingKind::OutOfBounds };
                explain(m, kind, (lane, address, bytes), what);
                return Resolved::Fault;
            }
        }
    }
    Resolved::Lanes(pointers)
}

/// Sets the fault of a refused access. `kind` is `OutOfBounds` for any reason but alignment.
#[cold]
fn explain(m: &mut Machine<'_>, kind: FindingKind, access: (usize, u64, u64), what: (Space, Access)) -> Flow {
    let (lane, address, bytes) = access;
    let (space, verb) = what;
    let nearest = match space {
        Space::Global => m.launch.table.nearest(address, bytes),
        Space::Shared => m.cta.nearest_shared(m.launch, address, bytes),
        Space::Param => Some(Neighbour {
            name: "parameters".into(),
            base: PARAM_WINDOW,
            bytes: m.launch.params.len() as u64,
            outside: address.wrapping_sub(PARAM_WINDOW).wrapping_add(bytes) as i64
                - m.launch.params.len() as i64,
            access: bytes,
            freed: false,
        }),
    };
    let inside = match space {
        Space::Global => {
            let found = m.launch.table.find(address);
            found.is_some_and(|index| m.launch.table.live[index].contains(address, bytes))
        }
        Space::Shared => address.checked_add(bytes).is_some_and(|end| end <= m.cta.shared.bytes),
        Space::Param => verb != Access::Load,
    };
    let kind = match kind {
        FindingKind::OutOfBounds if inside && space != Space::Param => FindingKind::Uninitialised,
        kind => kind,
    };
    let verb = match verb {
        Access::Load => "load from",
        Access::Store => "store to",
        Access::Atomic => "atomic operation on",
    };
    let place = match space {
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Param => "parameter",
    };
    let why = match kind {
        FindingKind::Misaligned => format!(", which is not a multiple of {bytes}"),
        FindingKind::Uninitialised => ", of which some bytes were never written".to_string(),
        _ => String::new(),
    };
    m.worker.fault = Some(Box::new(Fault {
        kind,
        lane: lane as u32,
        detail: format!("{bytes}-byte {verb} {place} memory at {address:#x}{why}"),
        address: Some(address),
        space: Some(space),
        nearest,
        pc: None,
    }));
    Flow::Fault
}
