//! Resolution of the lanes' addresses to host pointers, including all checks of memory accesses.
//!
//! Bounds and alignment are always checked. Initialisation of the bytes that are read, and the guard zones between local
//! variables, are checked unless the launch turned these checks off.

use super::addresses::{addresses, generic};
use super::programmatic::{check_access, check_lanes, check_run};
use super::races;
use super::refused_access::{RefusedAccess, refuse};
use super::shared_access::{SharedAccess, check_shared_access, check_shared_accesses};
use crate::code::access::{Access, FLAG_NARROW, FLAGS, PARAM_WINDOW, StateSpace, WINDOW_BYTES, classify};
use crate::code::operands::A;
use crate::context::{ExecutionContext, Inst, Resolved, Resolver};
use crate::finding::{FindingKind, Space};
use crate::lanes::{LANES, Pod, lanes_of};

/// Resolves an access of `bytes` bytes (a power of two) by each active lane, and checks the access for races.
///
/// All loads and stores call one resolver instead of inlining it: there are many load and store functions, and the call
/// costs little compared with the access.
#[inline(always)]
pub(crate) fn resolve(cx: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    if StateSpace::of(i.slots[FLAGS]) == StateSpace::ParamDirect {
        // The decoder checked the offset against the size of the parameter block, and the launch checked that size.
        return Resolved::Same(cx.launch.params.as_ptr().wrapping_add(i.imm as usize).cast_mut());
    }
    if cx.cluster.has_peers() && !check_shared_accesses(cx, i, bytes, access) {
        return Resolved::Fault;
    }
    let resolver = cx.launch.resolver;
    // SAFETY: the launch chose the resolver that this CPU can run.
    let resolved = unsafe { resolver(cx, i, bytes, access) };
    if cx.cluster.races.is_some()
        && !matches!(resolved, Resolved::Fault)
        && !races::access(cx, i, access, bytes, &resolved)
    {
        return Resolved::Fault;
    }
    resolved
}

/// Version of the resolver for this CPU: AVX2 if the CPU supports it, otherwise the baseline.
pub(crate) fn resolver() -> Resolver {
    #[cfg(target_arch = "x86_64")]
    if crate::lanes::wide() {
        return resolve_wide;
    }
    resolve_portable
}

fn resolve_portable(cx: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    resolve_lanes(cx, i, bytes, access)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn resolve_wide(cx: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    resolve_lanes(cx, i, bytes, access)
}

/// Pattern of the addresses of 32 active lanes.
#[derive(PartialEq)]
enum Pattern {
    /// Contiguous: each lane's address is `bytes` above that of the lane before.
    Run,
    /// All equal.
    Same,
    Other,
}

macro_rules! pattern {
    ($base:expr, $bytes:expr) => {{
        let base = $base;
        let (mut gaps, mut differences) = (0, 0);
        for lane in 1..LANES {
            let step = base[lane].wrapping_sub(base[lane - 1]);
            gaps |= step ^ $bytes;
            differences |= step;
        }
        match (gaps, differences) {
            (0, _) => Pattern::Run,
            (_, 0) => Pattern::Same,
            _ => Pattern::Other,
        }
    }};
}

#[inline(always)]
fn resolve_lanes(cx: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    if cx.active == u32::MAX
        && let Some(resolved) = resolve_as_range(cx, i, bytes, access)
    {
        return resolved;
    }
    let mut addresses = addresses(cx, i);
    let space = match StateSpace::of(i.slots[FLAGS]) {
        StateSpace::Global => Space::Global,
        StateSpace::Shared | StateSpace::SharedCluster => Space::Shared,
        // Kernel parameters have addresses in the parameter window; parameters of inlined calls are in local memory.
        StateSpace::Param if addresses[cx.active.trailing_zeros() as usize % LANES] >= WINDOW_BYTES => {
            Space::Param
        }
        StateSpace::Param | StateSpace::Local => {
            return resolve_each(cx, &addresses, bytes, (Some(Space::Local), access));
        }
        _ => match generic(cx, &mut addresses) {
            Some(Space::Local) => return resolve_each(cx, &addresses, bytes, (Some(Space::Local), access)),
            None => return resolve_each(cx, &addresses, bytes, (None, access)),
            Some(space) => space,
        },
    };
    let resolved = match resolve_scattered(cx, &addresses, bytes, (space, access)) {
        Some(pointers) => Resolved::Lanes(pointers),
        None => resolve_each(cx, &addresses, bytes, (Some(space), access)),
    };
    if space == Space::Global
        && cx.launch.order.is_some()
        && matches!(resolved, Resolved::Lanes(_))
        && !check_lanes(cx, &addresses, bytes, access)
    {
        return Resolved::Fault;
    }
    resolved
}

/// Resolves an access whose lanes are contiguous or all at one address, with one check of the whole range. `None` if
/// the addresses have another pattern or a check fails.
#[inline(always)]
fn resolve_as_range(cx: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Option<Resolved> {
    let narrow = i.slots[FLAGS] & FLAG_NARROW != 0;
    let (pattern, start) = if narrow {
        let base = cx.warp.regs.lanes::<u32>(i.slots[A]);
        (pattern!(base, bytes as u32), base[0].wrapping_add(i.imm as u32) as u64)
    } else {
        let base = cx.warp.regs.lanes::<u64>(i.slots[A]);
        (pattern!(base, bytes), base[0].wrapping_add(i.imm))
    };
    if start & (bytes - 1) != 0 {
        return None;
    }
    let (space, start) = match StateSpace::of(i.slots[FLAGS]) {
        StateSpace::Global => (Space::Global, start),
        StateSpace::Shared | StateSpace::SharedCluster => (Space::Shared, start),
        StateSpace::Param => (Space::Param, start),
        StateSpace::Local => (Space::Local, start),
        StateSpace::Generic | StateSpace::ParamDirect => classify(start),
    };
    if space == Space::Local {
        // Each lane has its own local memory, so the lanes do not access one range.
        return None;
    }
    let ordered = space == Space::Global && cx.launch.order.is_some();
    match pattern {
        Pattern::Run => {
            let pointer = checked_pointer(cx, space, start, LANES as u64 * bytes, access)?;
            if ordered && !check_run(cx, start, bytes, access) {
                return Some(Resolved::Fault);
            }
            Some(Resolved::Run(pointer))
        }
        Pattern::Same if access == Access::Load => {
            let pointer = checked_pointer(cx, space, start, bytes, access)?;
            if ordered && !check_lanes(cx, &[start; LANES], bytes, access) {
                return Some(Resolved::Fault);
            }
            Some(Resolved::Same(pointer))
        }
        _ => None,
    }
}

/// Resolves an access whose lanes access any addresses of one allocation, or of shared memory. `None` if a check fails.
#[inline(always)]
fn resolve_scattered(
    cx: &mut ExecutionContext<'_>,
    addresses: &[u64; LANES],
    bytes: u64,
    (space, access): (Space, Access),
) -> Option<[*mut u8; LANES]> {
    let first = addresses[cx.active.trailing_zeros() as usize % LANES];
    let (base, size, host, map) = match space {
        Space::Global => {
            let live = &cx.launch.table.live;
            let hint = cx.worker.hints[cx.warp.pc] as usize;
            let index = match live.get(hint) {
                Some(allocation) if allocation.contains(first, bytes) => hint,
                _ => cx.launch.table.find(first)?,
            };
            cx.worker.hints[cx.warp.pc] = index as u32;
            let allocation = &live[index];
            (allocation.base, allocation.bytes, allocation.pointer(allocation.base), &allocation.map)
        }
        Space::Shared => (0, cx.cluster.shared.bytes, cx.cluster.shared.pointer(0), &cx.cluster.shared.map),
        Space::Param | Space::Local => return None,
    };
    // 32-bit offsets are compared by vector instructions; larger allocations are resolved lane by lane.
    let limit = u32::try_from(size.checked_sub(bytes)?).ok()?;
    let mut offsets = [0u32; LANES];
    let (mut low, mut high, mut beyond) = (u32::MAX, 0, 0);
    for lane in 0..LANES {
        // An inactive lane uses the address of the first active lane.
        let offset = u64::choose(cx.active >> lane & 1 != 0, addresses[lane], first).wrapping_sub(base);
        beyond |= offset;
        offsets[lane] = offset as u32;
    }
    for lane in 0..LANES {
        low = low.min(offsets[lane]);
        high = high.max(offsets[lane]);
    }
    // The start of an allocation is a multiple of every access size.
    if beyond > u32::MAX as u64 || high > limit || beyond & (bytes - 1) != 0 {
        return None;
    }
    let (low, high) = (low as u64, high as u64);
    // A check that holds for the whole span holds for each lane. Only a narrow span is tested byte by byte.
    const NARROW: u64 = 2048;
    let span = high + bytes - low;
    let reservations = &cx.cluster.shared.reservations;
    if space == Space::Shared
        && access != Access::Load
        && !reservations.unused()
        && (span > NARROW || reservations.any(low, span))
        && lanes_of(cx.active).any(|lane| reservations.any(offsets[lane] as u64, bytes))
    {
        return None;
    }
    let initialised = || if span > NARROW { map.is_full(low, span) } else { map.is_initialised(low, span) };
    if (cx.launch.checks.memory || space == Space::Global) && !initialised() {
        for lane in lanes_of(cx.active) {
            let offset = offsets[lane] as u64;
            if access != Access::Store
                && cx.launch.checks.memory
                && !map.is_initialised(offset, bytes)
                && !cx.worker.admits_uninitialised
            {
                return None;
            }
            if access != Access::Load {
                map.mark(offset, bytes);
            }
        }
    }
    // A loop and not `map`, whose closure would be compiled without this function's target features.
    let mut pointers = [host; LANES];
    for lane in 0..LANES {
        pointers[lane] = host.wrapping_add(offsets[lane] as usize);
    }
    Some(pointers)
}

/// Host pointer of a range, if the range passes all checks except alignment.
#[inline(always)]
fn checked_pointer(
    cx: &mut ExecutionContext<'_>,
    space: Space,
    address: u64,
    bytes: u64,
    access: Access,
) -> Option<*mut u8> {
    let checks = cx.launch.checks.memory;
    match space {
        Space::Global => {
            let live = &cx.launch.table.live;
            let hint = cx.worker.hints[cx.warp.pc] as usize;
            let allocation = match live.get(hint) {
                Some(allocation) if allocation.contains(address, bytes) => allocation,
                _ => {
                    let found = cx.launch.table.find(address)?;
                    if !live[found].contains(address, bytes) {
                        return None;
                    }
                    cx.worker.hints[cx.warp.pc] = found as u32;
                    &live[found]
                }
            };
            let offset = address - allocation.base;
            if access != Access::Store
                && checks
                && !allocation.is_initialised(offset, bytes)
                && !cx.worker.admits_uninitialised
            {
                return None;
            }
            if access != Access::Load {
                allocation.mark(offset, bytes);
            }
            Some(allocation.pointer(address))
        }
        Space::Shared => {
            let shared = &cx.cluster.shared;
            if address > shared.bytes || bytes > shared.bytes - address {
                return None;
            }
            if checks {
                if access != Access::Store
                    && !shared.map.is_initialised(address, bytes)
                    && !cx.worker.admits_uninitialised
                {
                    return None;
                }
                if access != Access::Load {
                    if shared.reservations.any(address, bytes) {
                        return None;
                    }
                    shared.map.mark(address, bytes);
                }
            }
            Some(shared.pointer(address))
        }
        // Local addresses here cover the memory of all lanes; `resolve_each` has checked the bounds of the lane's own
        // part.
        Space::Local => {
            let local = &cx.warp.local;
            if checks
                && access != Access::Store
                && !local.map.is_initialised(address, bytes)
                && !cx.worker.admits_uninitialised
            {
                return None;
            }
            if access != Access::Load {
                local.map.mark(address, bytes);
            }
            Some(local.pointer(address))
        }
        Space::Param => {
            let offset = address.wrapping_sub(PARAM_WINDOW);
            let size = cx.launch.params.len() as u64;
            if access != Access::Load || offset > size || bytes > size - offset {
                return None;
            }
            Some(cx.launch.params.as_ptr().wrapping_add(offset as usize).cast_mut())
        }
    }
}

/// Resolves one lane's access to a range of any length that must be aligned to `alignment` bytes. A range in shared
/// memory must be in the lane's own CTA. `None` if a check reports a finding.
pub(crate) fn resolve_range(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    what: (Space, Access),
    range: (u64, u64),
    alignment: u64,
) -> Option<*mut u8> {
    let (address, bytes) = range;
    let shared =
        SharedAccess { lane, address, bytes, access: what.1, own_cta_only: true, asynchronous: false };
    match what.0 {
        Space::Shared => resolve_cluster_range(cx, shared, alignment),
        _ => resolve_checked_range(cx, lane, what, range, alignment),
    }
}

/// Resolves one lane's access to a range of the cluster's shared memory that must be aligned to `alignment` bytes.
/// `None` if a check reports a finding.
pub(crate) fn resolve_cluster_range(
    cx: &mut ExecutionContext<'_>,
    what: SharedAccess,
    alignment: u64,
) -> Option<*mut u8> {
    if cx.cluster.has_peers() && !check_shared_access(cx, what) {
        return None;
    }
    let SharedAccess { lane, address, bytes, access, .. } = what;
    resolve_checked_range(cx, lane, (Space::Shared, access), (address, bytes), alignment)
}

fn resolve_checked_range(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    what: (Space, Access),
    (address, bytes): (u64, u64),
    alignment: u64,
) -> Option<*mut u8> {
    let found = match what {
        (Space::Global, Access::Prefetch) => {
            let table = &cx.launch.table;
            let allocation = table.find(address).map(|index| &table.live[index]);
            allocation.filter(|a| a.contains(address, bytes)).map(|a| a.pointer(address))
        }
        (space, access) => checked_pointer(cx, space, address, bytes, access),
    };
    if found.is_none() || !address.is_multiple_of(alignment) {
        let kind = if found.is_some() { FindingKind::Misaligned } else { FindingKind::OutOfBounds };
        // Here local addresses are offsets in the memory of all lanes; a finding has the offset in the lane's own
        // memory.
        let of_others = if what.0 == Space::Local { lane as u64 * cx.warp.local.bytes } else { 0 };
        let address = address - of_others;
        refuse(cx, kind, RefusedAccess { lane, address, bytes, alignment }, what);
        return None;
    }
    let (space, access) = what;
    if space == Space::Global
        && access != Access::Prefetch
        && !check_access(cx, lane, (address, bytes), access)
    {
        return None;
    }
    found
}

/// Resolves an access lane by lane; if `space` is `None`, the addresses are generic.
#[inline(never)]
fn resolve_each(
    cx: &mut ExecutionContext<'_>,
    addresses: &[u64; LANES],
    bytes: u64,
    (common_space, access): (Option<Space>, Access),
) -> Resolved {
    let mut pointers = [std::ptr::null_mut(); LANES];
    for lane in lanes_of(cx.active) {
        let (space, address) =
            common_space.map_or_else(|| classify(addresses[lane]), |space| (space, addresses[lane]));
        let aligned = address & (bytes - 1) == 0;
        let local = cx.warp.local.bytes;
        let found = match space {
            Space::Local if address > local || bytes > local - address => None,
            Space::Local
                if cx.launch.checks.memory && !cx.launch.program.is_in_local_variable(address, bytes) =>
            {
                None
            }
            Space::Local => checked_pointer(cx, space, lane as u64 * local + address, bytes, access),
            _ => checked_pointer(cx, space, address, bytes, access),
        };
        match found {
            Some(pointer) if aligned => pointers[lane] = pointer,
            found => {
                let kind = if found.is_some() { FindingKind::Misaligned } else { FindingKind::OutOfBounds };
                refuse(cx, kind, RefusedAccess { lane, address, bytes, alignment: bytes }, (space, access));
                return Resolved::Fault;
            }
        }
        let mixed = common_space.is_none() && space == Space::Global && cx.launch.order.is_some();
        if mixed && !check_access(cx, lane, (address, bytes), access) {
            return Resolved::Fault;
        }
    }
    Resolved::Lanes(pointers)
}
