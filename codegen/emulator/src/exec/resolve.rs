//! From the addresses of a warp's lanes to host memory, with every check on the way.
//!
//! Bounds and alignment are always checked; whether bytes were written before they are read is
//! checked unless the launch turned checks off.

use super::cluster::{self, Reach};
use super::lanes::{LANES, Pod};
use super::{A, Fault, Flow, Inst, Machine, lanes_of};
use crate::checks::programmatic::{Touch, touch, touch_lanes};
use crate::checks::races;
use crate::context::asynchronous::Holder;
use crate::finding::{FindingKind, Neighbour, Space};

/// Where the shared memory of a cluster's CTAs lies in the generic address space.
pub(crate) const SHARED_WINDOW: u64 = 0x1_0000_0000;
/// Bytes of that window.
pub(crate) const WINDOW_BYTES: u64 = 1 << 24;
/// Where a thread's local memory lies.
pub(crate) const LOCAL_WINDOW: u64 = 0x2_0000_0000;
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
    Local = 5,
    /// Any CTA's of the cluster, where `Shared` is the thread's own.
    SharedCluster = 6,
}

/// The address register has 32 bits.
pub(crate) const FLAG_NARROW: u32 = 8;
/// The access orders others: anything but `.weak`.
pub(crate) const FLAG_ORDERED: u32 = 16;
/// … as an acquire, as a release, and only for threads of the CTA.
pub(crate) const FLAG_ACQUIRE: u32 = 32;
pub(crate) const FLAG_RELEASE: u32 = 64;
pub(crate) const FLAG_CTA: u32 = 128;
/// … or only for threads of the cluster.
pub(crate) const FLAG_CLUSTER: u32 = 256;
/// Position of the flags in `Inst::slots`.
pub(crate) const FLAGS: usize = 6;

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Load,
    Store,
    Atomic,
    /// A hint: neither reads nor writes.
    Prefetch,
}

/// Host pointers of an access.
#[allow(clippy::large_enum_variant, reason = "it lives for one instruction, on the stack")]
pub(crate) enum Resolved {
    /// All 32 lanes, one after the other.
    Run(*mut u8),
    /// All lanes at one place.
    Same(*mut u8),
    /// One pointer a lane; those of inactive lanes are not to be used.
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

/// The lanes' addresses in shared memory, of an instruction that has no other operands there.
pub(crate) fn shared_addresses(m: &Machine<'_>, i: &Inst) -> [u64; LANES] {
    let addresses = addresses(m, i);
    match i.slots[FLAGS] & 7 == StateSpace::Generic as u32 {
        true => addresses.map(|address| address.wrapping_sub(SHARED_WINDOW)),
        false => addresses,
    }
}

/// Resolves an access of `bytes` (a power of two) by each active lane, in the version that the CPU has.
///
/// It is one function for all loads and stores rather than part of each of their loops: there are
/// many of those, and the call costs little next to the access.
#[inline(always)]
pub(crate) fn resolve(m: &mut Machine<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    if i.slots[FLAGS] & 7 == StateSpace::ParamDirect as u32 {
        // The loader checked the offset against the parameter block, and the launch its size.
        return Resolved::Same(m.launch.params.as_ptr().wrapping_add(i.imm as usize).cast_mut());
    }
    if m.cta.cluster.has_peers() && !cluster::reach_lanes(m, i, bytes, access) {
        return Resolved::Fault;
    }
    let resolver = m.launch.resolver;
    // SAFETY: the launch took the resolver that this CPU can run.
    let resolved = unsafe { resolver(m, i, bytes, access) };
    if m.cta.races.is_some()
        && !matches!(resolved, Resolved::Fault)
        && !races::access(m, i, access, bytes, &resolved)
    {
        return Resolved::Fault;
    }
    resolved
}

/// The first lane's address in shared or in global memory, if that is where it is.
pub(crate) fn located_first(m: &Machine<'_>, i: &Inst) -> Option<(Space, u64)> {
    let address = match i.slots[FLAGS] & FLAG_NARROW {
        0 => m.warp.regs.lanes::<u64>(i.slots[A])[0].wrapping_add(i.imm),
        _ => m.warp.regs.lanes::<u32>(i.slots[A])[0].wrapping_add(i.imm as u32) as u64,
    };
    let (space, address) = match i.slots[FLAGS] & 7 {
        0 => (Space::Global, address),
        1 | 6 => (Space::Shared, address),
        4 => classify(address),
        _ => return None,
    };
    matches!(space, Space::Global | Space::Shared).then_some((space, address))
}

/// The lanes' addresses in shared or in global memory, if that is where they are.
pub(crate) fn located(m: &Machine<'_>, i: &Inst) -> Option<(Space, [u64; LANES])> {
    let mut addresses = addresses(m, i);
    let space = match i.slots[FLAGS] & 7 {
        0 => Some(Space::Global),
        1 | 6 => Some(Space::Shared),
        4 => generic(m, &mut addresses),
        _ => None,
    };
    space.filter(|space| matches!(space, Space::Global | Space::Shared)).map(|space| (space, addresses))
}

/// A version of the resolver.
///
/// # Safety
/// The CPU must have the features that it was compiled for.
pub(crate) type Resolver = for<'m, 'a, 'i> unsafe fn(&'m mut Machine<'a>, &'i Inst, u64, Access) -> Resolved;

/// The resolver for this CPU.
pub(crate) fn resolver() -> Resolver {
    #[cfg(target_arch = "x86_64")]
    if super::lanes::wide() {
        return resolve_wide;
    }
    resolve_portable
}

fn resolve_portable(m: &mut Machine<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    resolve_lanes(m, i, bytes, access)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn resolve_wide(m: &mut Machine<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
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
fn resolve_lanes(m: &mut Machine<'_>, i: &Inst, bytes: u64, access: Access) -> Resolved {
    if m.active == u32::MAX
        && let Some(resolved) = resolve_together(m, i, bytes, access)
    {
        return resolved;
    }
    let mut addresses = addresses(m, i);
    let space = match i.slots[FLAGS] & 7 {
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
fn resolve_together(m: &mut Machine<'_>, i: &Inst, bytes: u64, access: Access) -> Option<Resolved> {
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
    let (space, start) = match i.slots[FLAGS] & 7 {
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

/// Tells the launch's place in programmatic order of 32 accesses, one after the other.
#[inline(never)]
fn touch_run(m: &mut Machine<'_>, start: u64, bytes: u64, access: Access) -> bool {
    let all = LANES as u64 * bytes;
    if m.warp.waited == u32::MAX {
        return touch(m, Touch { lane: 0, address: start, bytes: all, access });
    }
    touch_lanes(m, &std::array::from_fn(|lane| start + lane as u64 * bytes), bytes, access)
}

/// The pointers of lanes that all access one allocation, or shared memory, and have nothing to hide.
#[inline(always)]
fn gathered(
    m: &mut Machine<'_>,
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
        Space::Shared => (0, m.cta.shared.bytes, m.cta.shared.pointer(0), &m.cta.shared.map),
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
    let reservations = &m.cta.shared.reservations;
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

/// The space of a generic address, and the address there.
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

/// The space of generic addresses, which become addresses there; `None` if lanes differ in it.
#[cold]
fn generic(m: &Machine<'_>, addresses: &mut [u64; LANES]) -> Option<Space> {
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
    m: &mut Machine<'_>,
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
pub(crate) fn cluster_range(m: &mut Machine<'_>, what: Reach, alignment: u64) -> Option<*mut u8> {
    if m.cta.cluster.has_peers() && !cluster::reach(m, what) {
        return None;
    }
    let Reach { lane, address, bytes, access, .. } = what;
    resolve_range(m, lane, (Space::Shared, access), (address, bytes), alignment)
}

fn resolve_range(
    m: &mut Machine<'_>,
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
    if space == Space::Global
        && access != Access::Prefetch
        && !touch(m, Touch { lane, address, bytes, access })
    {
        return None;
    }
    found
}

/// One lane after the other; without a space, addresses are generic.
#[inline(never)]
fn each(
    m: &mut Machine<'_>,
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
        if mixed && !touch(m, Touch { lane, address, bytes, access: what.1 }) {
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

/// What an access does, in a sentence that goes on with a space.
pub(crate) fn verb(access: Access) -> &'static str {
    match access {
        Access::Load => "load from",
        Access::Store => "store to",
        Access::Atomic => "atomic operation on",
        Access::Prefetch => "prefetch from",
    }
}

/// Sets the fault of a refused access. `kind` is `OutOfBounds` for any reason but alignment.
#[cold]
fn explain(m: &mut Machine<'_>, kind: FindingKind, refused: Refused, what: (Space, Access)) -> Flow {
    let Refused { lane, address, bytes, alignment } = refused;
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
        Space::Local => None,
    };
    let inside = match space {
        Space::Global => {
            let found = m.launch.table.find(address);
            found.is_some_and(|index| m.launch.table.live[index].contains(address, bytes))
        }
        Space::Shared => address.checked_add(bytes).is_some_and(|end| end <= m.cta.shared.bytes),
        Space::Local => address.checked_add(bytes).is_some_and(|end| end <= m.warp.local.bytes),
        Space::Param => verb != Access::Load,
    };
    let holder = match space {
        Space::Shared if inside && m.cta.shared.reservations.any(address, bytes) => {
            m.cta.asynchronous.holder(address, bytes)
        }
        _ => None,
    };
    let kind = match (kind, holder) {
        (FindingKind::OutOfBounds, Some(Holder::Mbarrier)) => FindingKind::Mbarrier,
        (FindingKind::OutOfBounds, Some(_)) => FindingKind::AsyncCopy,
        (FindingKind::OutOfBounds, None) if inside && space != Space::Param => FindingKind::Uninitialised,
        (kind, _) => kind,
    };
    let verb = self::verb(verb);
    let place = match space {
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Param => "parameter",
        Space::Local => "local",
    };
    let line = |pc| m.launch.kernel.place(pc).line;
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
