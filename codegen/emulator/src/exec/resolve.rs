//! From the addresses of a warp's lanes to host memory, with every check on the way.
//!
//! Bounds and alignment are always checked; whether bytes were written before they are read is
//! checked unless the launch turned checks off.

use super::cluster::{self, Reach};
use super::programmatic::{touch, touch_lanes, touch_run};
use super::races;
use crate::asynchronous::Holder;
use crate::code::access::{
    Access, FLAG_NARROW, FLAGS, PARAM_WINDOW, SHARED_WINDOW, SPACE_BITS, StateSpace, WINDOW_BYTES, classify,
};
use crate::code::operands::A;
use crate::context::{ExecutionContext, Fault, Flow, Inst, Resolved, Resolver};
use crate::finding::{FindingKind, Neighbour, Space};
use crate::lanes::{LANES, Pod, lanes_of};

/// The lanes' addresses, offset included.
#[inline(always)]
pub(crate) fn addresses(m: &ExecutionContext<'_>, i: &Inst) -> [u64; LANES] {
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

/// The lanes' addresses in shared memory, of an instruction that has no other operands there.
pub(crate) fn shared_addresses(m: &ExecutionContext<'_>, i: &Inst) -> [u64; LANES] {
    let addresses = addresses(m, i);
    match i.slots[FLAGS] & SPACE_BITS == StateSpace::Generic as u32 {
        true => addresses.map(|address| address.wrapping_sub(SHARED_WINDOW)),
        false => addresses,
    }
}

/// Resolves an access of `bytes` (a power of two) by each active lane, in the version that the CPU has.
///
/// It is one function for all loads and stores rather than part of each of their loops: there are
/// many of those, and the call costs little next to the access.
#[inline(always)]
pub(crate) fn resolve(m: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    if i.slots[FLAGS] & SPACE_BITS == StateSpace::ParamDirect as u32 {
        // The loader checked the offset against the parameter block, and the launch its size.
        return Resolved::Same(m.launch.params.as_ptr().wrapping_add(i.imm as usize).cast_mut());
    }
    if m.cluster.has_peers() && !cluster::reach_lanes(m, i, bytes, access) {
        return Resolved::Fault;
    }
    let resolver = m.launch.resolver;
    // SAFETY: the launch took the resolver that this CPU can run.
    let resolved = unsafe { resolver(m, i, bytes, access) };
    if m.cluster.races.is_some()
        && !matches!(resolved, Resolved::Fault)
        && !races::access(m, i, access, bytes, &resolved)
    {
        return Resolved::Fault;
    }
    resolved
}

/// The first lane's address in shared or in global memory, if that is where it is.
pub(crate) fn located_first(m: &ExecutionContext<'_>, i: &Inst) -> Option<(Space, u64)> {
    let address = match i.slots[FLAGS] & FLAG_NARROW {
        0 => m.warp.regs.lanes::<u64>(i.slots[A])[0].wrapping_add(i.imm),
        _ => m.warp.regs.lanes::<u32>(i.slots[A])[0].wrapping_add(i.imm as u32) as u64,
    };
    let (space, address) = match i.slots[FLAGS] & SPACE_BITS {
        0 => (Space::Global, address),
        1 | 6 => (Space::Shared, address),
        4 => classify(address),
        _ => return None,
    };
    matches!(space, Space::Global | Space::Shared).then_some((space, address))
}

/// The lanes' addresses in shared or in global memory, if that is where they are.
pub(crate) fn located(m: &ExecutionContext<'_>, i: &Inst) -> Option<(Space, [u64; LANES])> {
    let mut addresses = addresses(m, i);
    let space = match i.slots[FLAGS] & SPACE_BITS {
        0 => Some(Space::Global),
        1 | 6 => Some(Space::Shared),
        4 => generic(m, &mut addresses),
        _ => None,
    };
    space.filter(|space| matches!(space, Space::Global | Space::Shared)).map(|space| (space, addresses))
}

/// The resolver for this CPU.
pub(crate) fn resolver() -> Resolver {
    #[cfg(target_arch = "x86_64")]
    if crate::lanes::wide() {
        return resolve_wide;
    }
    resolve_portable
}

fn resolve_portable(m: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    resolve_lanes(m, i, bytes, access)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn resolve_wide(m: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    resolve_lanes(m, i, bytes, access)
}

/// How the addresses of 32 lanes follow one another.
#[derive(PartialEq)]
enum Pattern {
    /// Each `bytes` after the one before.
    Run,
    /// All the same.
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
fn resolve_lanes(m: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    if m.active == u32::MAX
        && let Some(resolved) = resolve_together(m, i, bytes, access)
    {
        return resolved;
    }
    let mut addresses = addresses(m, i);
    let space = match i.slots[FLAGS] & SPACE_BITS {
        0 => Space::Global,
        1 | 6 => Space::Shared,
        // A function that takes the address of its parameter finds that among the local variables.
        2 if addresses[m.active.trailing_zeros() as usize % LANES] >= WINDOW_BYTES => Space::Param,
        2 | 5 => return each(m, &addresses, bytes, (Some(Space::Local), access)),
        _ => match generic(m, &mut addresses) {
            Some(Space::Local) => return each(m, &addresses, bytes, (Some(Space::Local), access)),
            None => return each(m, &addresses, bytes, (None, access)),
            Some(space) => space,
        },
    };
    let resolved = match gathered(m, &addresses, bytes, (space, access)) {
        Some(pointers) => Resolved::Lanes(pointers),
        None => each(m, &addresses, bytes, (Some(space), access)),
    };
    if space == Space::Global
        && m.launch.order.is_some()
        && matches!(resolved, Resolved::Lanes(_))
        && !touch_lanes(m, &addresses, bytes, access)
    {
        return Resolved::Fault;
    }
    resolved
}

/// Resolves an access of all lanes that are at one place or one after the other, and that nothing is wrong
/// with, by looking at the range as a whole.
#[inline(always)]
fn resolve_together(m: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> Option<Resolved> {
    let narrow = i.slots[FLAGS] & FLAG_NARROW != 0;
    let (pattern, start) = if narrow {
        let base = m.warp.regs.lanes::<u32>(i.slots[A]);
        (pattern!(base, bytes as u32), base[0].wrapping_add(i.imm as u32) as u64)
    } else {
        let base = m.warp.regs.lanes::<u64>(i.slots[A]);
        (pattern!(base, bytes), base[0].wrapping_add(i.imm))
    };
    if start & (bytes - 1) != 0 {
        return None;
    }
    let (space, start) = match i.slots[FLAGS] & SPACE_BITS {
        0 => (Space::Global, start),
        1 | 6 => (Space::Shared, start),
        2 => (Space::Param, start),
        5 => (Space::Local, start),
        _ => classify(start),
    };
    if space == Space::Local {
        // Every lane has its own.
        return None;
    }
    let ordered = space == Space::Global && m.launch.order.is_some();
    match pattern {
        Pattern::Run => {
            let pointer = checked(m, space, start, LANES as u64 * bytes, access)?;
            if ordered && !touch_run(m, start, bytes, access) {
                return Some(Resolved::Fault);
            }
            Some(Resolved::Run(pointer))
        }
        Pattern::Same if access == Access::Load => {
            let pointer = checked(m, space, start, bytes, access)?;
            if ordered && !touch_lanes(m, &[start; LANES], bytes, access) {
                return Some(Resolved::Fault);
            }
            Some(Resolved::Same(pointer))
        }
        _ => None,
    }
}

/// The pointers of lanes that all access one allocation, or shared memory, and have nothing to hide.
#[inline(always)]
fn gathered(
    m: &mut ExecutionContext<'_>,
    addresses: &[u64; LANES],
    bytes: u64,
    what: (Space, Access),
) -> Option<[*mut u8; LANES]> {
    let (space, access) = what;
    let first = addresses[m.active.trailing_zeros() as usize % LANES];
    let (base, size, host, map) = match space {
        Space::Global => {
            let live = &m.launch.table.live;
            let hint = m.worker.hints[m.warp.pc] as usize;
            let index = match live.get(hint) {
                Some(allocation) if allocation.contains(first, bytes) => hint,
                _ => m.launch.table.find(first)?,
            };
            m.worker.hints[m.warp.pc] = index as u32;
            let allocation = &live[index];
            (allocation.base, allocation.bytes, allocation.pointer(allocation.base), &allocation.map)
        }
        Space::Shared => (0, m.cluster.shared.bytes, m.cluster.shared.pointer(0), &m.cluster.shared.map),
        Space::Param | Space::Local => return None,
    };
    // Offsets of 32 bits are compared several at a time; larger allocations are looked at lane by lane.
    let limit = u32::try_from(size.checked_sub(bytes)?).ok()?;
    let mut offsets = [0u32; LANES];
    let (mut low, mut high, mut beyond) = (u32::MAX, 0, 0);
    for lane in 0..LANES {
        // Inactive lanes follow the first active one.
        let offset = u64::choose(m.active >> lane & 1 != 0, addresses[lane], first).wrapping_sub(base);
        beyond |= offset;
        offsets[lane] = offset as u32;
    }
    for lane in 0..LANES {
        low = low.min(offsets[lane]);
        high = high.max(offsets[lane]);
    }
    // Allocations start at multiples of any access's size.
    if beyond > u32::MAX as u64 || high > limit || beyond & (bytes - 1) != 0 {
        return None;
    }
    let (low, high) = (low as u64, high as u64);
    // What is so for all bytes from the first to the last is so for each lane's.
    const NEAR: u64 = 2048;
    let span = high + bytes - low;
    let reservations = &m.cluster.shared.reservations;
    if space == Space::Shared
        && access != Access::Load
        && !reservations.unused()
        && (span > NEAR || reservations.any(low, span))
        && lanes_of(m.active).any(|lane| reservations.any(offsets[lane] as u64, bytes))
    {
        return None;
    }
    let known = || if span > NEAR { map.is_full(low, span) } else { map.is_initialised(low, span) };
    if (m.launch.checks || space == Space::Global) && !known() {
        for lane in lanes_of(m.active) {
            let offset = offsets[lane] as u64;
            if access != Access::Store && m.launch.checks && !map.is_initialised(offset, bytes) {
                return None;
            }
            if access != Access::Load {
                map.mark(offset, bytes);
            }
        }
    }
    // No `map`: its closure would not be compiled for the CPU that this is.
    let mut pointers = [host; LANES];
    for lane in 0..LANES {
        pointers[lane] = host.wrapping_add(offsets[lane] as usize);
    }
    Some(pointers)
}

/// The space of generic addresses, which become addresses there; `None` if lanes differ in it.
#[cold]
fn generic(m: &ExecutionContext<'_>, addresses: &mut [u64; LANES]) -> Option<Space> {
    let first = addresses[m.active.trailing_zeros() as usize % LANES];
    let (space, offset) = classify(first);
    if lanes_of(m.active).any(|lane| classify(addresses[lane]).0 != space) {
        return None;
    }
    let window = first - offset;
    addresses.iter_mut().for_each(|address| *address = address.wrapping_sub(window));
    Some(space)
}

/// The host pointer of a range that passes all checks but alignment.
#[inline(always)]
fn checked(
    m: &mut ExecutionContext<'_>,
    space: Space,
    address: u64,
    bytes: u64,
    access: Access,
) -> Option<*mut u8> {
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
            let shared = &m.cluster.shared;
            if address > shared.bytes || bytes > shared.bytes - address {
                return None;
            }
            if checks {
                if access != Access::Store && !shared.map.is_initialised(address, bytes) {
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
        // `address` counts the bytes of all lanes; `each` has looked at the lane's own bounds.
        Space::Local => {
            let local = &m.warp.local;
            if checks && access != Access::Store && !local.map.is_initialised(address, bytes) {
                return None;
            }
            if access != Access::Load {
                local.map.mark(address, bytes);
            }
            Some(local.pointer(address))
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

/// One lane's access to a range of any length that starts at a multiple of `alignment`; of shared memory, its own
/// CTA's.
pub(crate) fn range(
    m: &mut ExecutionContext<'_>,
    lane: usize,
    what: (Space, Access),
    range: (u64, u64),
    alignment: u64,
) -> Option<*mut u8> {
    let (address, bytes) = range;
    let reach = Reach { lane, address, bytes, access: what.1, own: true, later: false };
    match what.0 {
        Space::Shared => cluster_range(m, reach, alignment),
        _ => resolve_range(m, lane, what, range, alignment),
    }
}

/// [`range`], of any CTA's shared memory in the cluster if that says so.
pub(crate) fn cluster_range(m: &mut ExecutionContext<'_>, what: Reach, alignment: u64) -> Option<*mut u8> {
    if m.cluster.has_peers() && !cluster::reach(m, what) {
        return None;
    }
    let Reach { lane, address, bytes, access, .. } = what;
    resolve_range(m, lane, (Space::Shared, access), (address, bytes), alignment)
}

fn resolve_range(
    m: &mut ExecutionContext<'_>,
    lane: usize,
    what: (Space, Access),
    (address, bytes): (u64, u64),
    alignment: u64,
) -> Option<*mut u8> {
    let found = match what {
        (Space::Global, Access::Prefetch) => {
            let table = &m.launch.table;
            let allocation = table.find(address).map(|index| &table.live[index]);
            allocation.filter(|a| a.contains(address, bytes)).map(|a| a.pointer(address))
        }
        (space, access) => checked(m, space, address, bytes, access),
    };
    if found.is_none() || !address.is_multiple_of(alignment) {
        let kind = if found.is_some() { FindingKind::Misaligned } else { FindingKind::OutOfBounds };
        explain(m, kind, Refused { lane, address, bytes, alignment }, what);
        return None;
    }
    let (space, access) = what;
    if space == Space::Global && access != Access::Prefetch && !touch(m, lane, (address, bytes), access) {
        return None;
    }
    found
}

/// One lane after the other; without a space, addresses are generic.
#[inline(never)]
fn each(
    m: &mut ExecutionContext<'_>,
    addresses: &[u64; LANES],
    bytes: u64,
    what: (Option<Space>, Access),
) -> Resolved {
    let mut pointers = [std::ptr::null_mut(); LANES];
    for lane in lanes_of(m.active) {
        let (space, address) =
            what.0.map_or_else(|| classify(addresses[lane]), |space| (space, addresses[lane]));
        let aligned = address & (bytes - 1) == 0;
        let within = m.warp.local.bytes;
        let found = match space {
            Space::Local if address > within || bytes > within - address => None,
            Space::Local => checked(m, space, lane as u64 * within + address, bytes, what.1),
            _ => checked(m, space, address, bytes, what.1),
        };
        match found {
            Some(pointer) if aligned => pointers[lane] = pointer,
            found => {
                let kind = if found.is_some() { FindingKind::Misaligned } else { FindingKind::OutOfBounds };
                explain(m, kind, Refused { lane, address, bytes, alignment: bytes }, (space, what.1));
                return Resolved::Fault;
            }
        }
        let mixed = what.0.is_none() && space == Space::Global && m.launch.order.is_some();
        if mixed && !touch(m, lane, (address, bytes), what.1) {
            return Resolved::Fault;
        }
    }
    Resolved::Lanes(pointers)
}

/// An access that is not allowed.
struct Refused {
    lane: usize,
    address: u64,
    bytes: u64,
    alignment: u64,
}

/// Sets the fault of a refused access. `kind` is `OutOfBounds` for any reason but alignment.
#[cold]
fn explain(m: &mut ExecutionContext<'_>, kind: FindingKind, refused: Refused, what: (Space, Access)) -> Flow {
    let Refused { lane, address, bytes, alignment } = refused;
    let (space, access) = what;
    let nearest = match space {
        Space::Global => m.launch.table.nearest(address, bytes),
        Space::Shared => m.cluster.nearest_shared(address, bytes),
        Space::Param => Some(Neighbour {
            name: "parameters".into(),
            base: PARAM_WINDOW,
            bytes: m.launch.params.len() as u64,
            outside: address.wrapping_sub(PARAM_WINDOW).wrapping_add(bytes) as i64
                - m.launch.params.len() as i64,
            access: bytes,
            freed: false,
        }),
        Space::Local => None,
    };
    let inside = match space {
        Space::Global => {
            let found = m.launch.table.find(address);
            found.is_some_and(|index| m.launch.table.live[index].contains(address, bytes))
        }
        Space::Shared => address.checked_add(bytes).is_some_and(|end| end <= m.cluster.shared.bytes),
        Space::Local => address.checked_add(bytes).is_some_and(|end| end <= m.warp.local.bytes),
        Space::Param => access != Access::Load,
    };
    let holder = match space {
        Space::Shared if inside && m.cluster.shared.reservations.any(address, bytes) => {
            m.cluster.asynchronous.holder(address, bytes)
        }
        _ => None,
    };
    let kind = match (kind, holder) {
        (FindingKind::OutOfBounds, Some(Holder::Mbarrier)) => FindingKind::Mbarrier,
        (FindingKind::OutOfBounds, Some(_)) => FindingKind::AsyncCopy,
        (FindingKind::OutOfBounds, None) if inside && space != Space::Param => FindingKind::Uninitialised,
        (kind, _) => kind,
    };
    let verb = access.verb();
    let place = match space {
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Param => "parameter",
        Space::Local => "local",
    };
    let line = |pc| m.launch.program.place(pc).line;
    let why = match (kind, holder) {
        (FindingKind::Misaligned, _) => format!(", which is not a multiple of {alignment}"),
        (_, Some(Holder::Mbarrier)) => ", which holds an mbarrier".to_string(),
        (_, Some(Holder::Target(pc))) => {
            format!(", which the copy of PTX line {} writes: nothing has waited for it yet", line(pc))
        }
        (_, Some(Holder::Source(pc))) => {
            format!(", which the copy of PTX line {} reads: nothing has waited for it yet", line(pc))
        }
        (FindingKind::Uninitialised, None) => ", of which some bytes were never written".to_string(),
        _ => String::new(),
    };
    m.worker.fault = Some(Box::new(Fault {
        kind,
        lane: lane as u32,
        detail: format!("{bytes}-byte {verb} {place} memory at {address:#x}{why}"),
        address: Some(address),
        space: Some(space),
        nearest,
        other: None,
        pc: None,
    }));
    Flow::Fault
}
