//! State of a warp: registers, local memory, lane masks and the divergence stack.

use std::collections::VecDeque;

use super::fault::{Fault, Missing};
use super::polls::Polls;
use super::uninitialised::UninitialisedBits;
use crate::asynchronous::Awaited;
use crate::lanes::{LANES, RegisterFile};
use crate::memory::{InitMap, ZeroedBytes};

/// The reconvergence point of lanes that never reconverge: they end by exiting.
pub(crate) const NEVER: usize = u32::MAX as usize;

/// Entry of the divergence stack: lanes that continue at `pc` later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) mask: u32,
    pub(super) pc: usize,
    /// Instruction at which these lanes stop and the stack entry below continues.
    reconvergence: usize,
    /// Whether these lanes wait at `pc` for lanes of other entries.
    pub(super) waits: bool,
}

/// Lanes that run together, in a warp whose groups of lanes are scheduled independently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) mask: u32,
    pub(super) pc: usize,
    /// Whether these lanes wait at `pc` for lanes of other groups.
    pub(super) waits: bool,
}

/// A group that waits at an instruction for other lanes, which must execute it too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneWait {
    pub(crate) pc: usize,
    /// The first lane of the group.
    pub(crate) lane: u32,
    /// The lanes that it waits for.
    pub(super) missing: u32,
}

/// A wait for other members at an instruction with a member mask.
pub(super) struct MemberWait {
    /// The lanes that wait.
    pub(super) lanes: u32,
    /// The members that they wait for.
    pub(super) missing: u32,
    /// The finding if the missing lanes never execute the instruction.
    pub(super) fault: Box<Fault>,
}

/// Outcome of a wait for other lanes of the warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    /// Lanes have joined: the instruction is executed again.
    Joined,
    /// The warp has switched to another side of a branch, which has not reached the instruction.
    OtherSide,
    /// It is the turn of another group.
    NextGroup,
    /// Waiting cannot help.
    No,
}

/// A failed wait for an mbarrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stalled {
    pub(crate) address: u64,
    pub(crate) awaited: Awaited,
    pub(crate) lane: u32,
    pub(crate) pc: usize,
}

/// Local memory of a warp: contiguous bytes for each lane, in lane order.
pub(crate) struct LocalMemory {
    /// Bytes of local memory per lane.
    pub(crate) bytes: u64,
    data: ZeroedBytes,
    pub(crate) map: InitMap,
    /// Offset of the stack of `alloca` in a lane's local memory, and the top of each lane's stack.
    pub(crate) stack: u64,
    pub(crate) top: [u64; LANES],
}

impl LocalMemory {
    fn new((bytes, stack): (u64, u64)) -> LocalMemory {
        let all = bytes * LANES as u64;
        let (data, map) = (ZeroedBytes::new(all as usize), InitMap::private(all));
        LocalMemory { bytes, data, map, stack, top: [stack; LANES] }
    }

    /// Host address of the byte at offset `at` in the local memory of all lanes.
    pub(crate) fn pointer(&self, at: u64) -> *mut u8 {
        self.data.pointer().wrapping_add(at as usize)
    }
}

/// A warp. The lanes of `mask` execute at `pc`. When they reach `reconvergence`, the entry on top of the stack
/// continues: the other side of a branch, or the lanes of both sides.
pub(crate) struct Warp {
    pub(crate) index: usize,
    pub(crate) regs: RegisterFile,
    pub(crate) local: LocalMemory,
    /// For each tracked register, the lanes in which the register was written.
    pub(crate) written: Vec<u32>,
    /// The uninitialised bits of the registers, if there are any.
    pub(crate) uninitialised: Option<Box<UninitialisedBits>>,
    /// The carry flag of the extended-precision instructions, one bit per lane.
    pub(crate) carry: u32,
    /// The lanes that the launch started.
    pub(crate) launched: u32,
    /// The lanes that have not exited.
    pub(crate) live: u32,
    pub(crate) mask: u32,
    pub(crate) pc: usize,
    pub(crate) reconvergence: usize,
    pub(super) stack: Vec<Entry>,
    /// Whether groups of lanes are scheduled independently; see the module `independent`.
    pub(crate) independent: bool,
    /// The groups that are not running, the next one first. Their lanes have not exited.
    pub(super) groups: VecDeque<Group>,
    /// Whether a wait for members has made the groups independent; then no lane may exit while others wait for it.
    pub(super) waits_for_members: bool,
    /// Current waits for members, if `waits_for_members`.
    pub(super) member_waits: Vec<MemberWait>,
    /// Whether the turn of the current group is over: the warp continues with the next group.
    pub(super) turn_over: bool,
    /// The last wait of a group for other lanes of the warp.
    pub(super) lane_wait: Option<LaneWait>,
    /// Whether the warp waits at a barrier.
    pub(crate) waiting: bool,
    /// Lanes that count as having executed `griddepcontrol.wait`: lanes that did, or that synchronised with a thread
    /// that did.
    pub(crate) waited: u32,
    /// For each register, the lanes whose value overflowed; used by the numeric checks.
    overflowed: Vec<u32>,
    /// The last failed wait for an mbarrier.
    pub(crate) stalled: Option<Stalled>,
    /// The last strong loads and atomic operations.
    polls: Polls,
    /// The instruction at which the last turn ended with a poll, a sleep or a wait, and the first lane there.
    pub(crate) yielded_at: (usize, u32),
    /// The instruction at which the last lanes exited.
    pub(crate) exited_at: usize,
}

impl Warp {
    /// A warp with registers of `register_bytes` bytes. `local` is the bytes of local memory per lane, and the offset of
    /// the stack in them.
    pub(crate) fn new(index: usize, register_bytes: u32, tracked: usize, local: (u64, u64)) -> Warp {
        Warp {
            index,
            regs: RegisterFile::new(register_bytes),
            local: LocalMemory::new(local),
            written: vec![0; tracked],
            uninitialised: None,
            carry: 0,
            launched: 0,
            live: 0,
            mask: 0,
            pc: 0,
            reconvergence: NEVER,
            stack: Vec::new(),
            independent: false,
            groups: VecDeque::new(),
            waits_for_members: false,
            member_waits: Vec::new(),
            turn_over: false,
            lane_wait: None,
            waiting: false,
            waited: 0,
            overflowed: Vec::new(),
            stalled: None,
            polls: Polls::default(),
            yielded_at: (0, 0),
            exited_at: 0,
        }
    }

    /// Restarts at the first instruction with the lanes of `launched`.
    pub(crate) fn reset(&mut self, launched: u32) {
        self.written.fill(0);
        self.uninitialised = None;
        self.local.map.clear();
        self.local.top = [self.local.stack; LANES];
        self.carry = 0;
        self.launched = launched;
        self.live = launched;
        self.mask = launched;
        self.pc = 0;
        self.reconvergence = NEVER;
        self.stack.clear();
        self.groups.clear();
        self.member_waits.clear();
        (self.independent, self.turn_over, self.lane_wait) = (false, false, None);
        self.waits_for_members = false;
        self.waiting = false;
        self.stalled = None;
        self.polls.clear();
        self.overflowed.fill(0);
    }

    /// Records that the current instruction, a strong load or an atomic operation, returned `value` to its first lane.
    /// Returns whether the warp probably waits for other threads in a loop.
    pub(crate) fn polls(&mut self, value: u64) -> bool {
        self.polls.record(self.pc, value)
    }

    /// The lanes in which the register at a slot counts as overflowed.
    pub(crate) fn overflowed_mut(&mut self, slot: u32) -> &mut u32 {
        /// Minimum distance in bytes between the slots of two registers of 16 bits or more.
        const SLOT_BYTES: usize = 64;
        let index = slot as usize / SLOT_BYTES;
        if self.overflowed.len() <= index {
            self.overflowed.resize(index + 1, 0);
        }
        &mut self.overflowed[index]
    }

    /// Executes a branch: the lanes of `taken` continue at `target`, the other lanes fall through, and all reconverge
    /// at `reconvergence`.
    #[inline(always)]
    pub(crate) fn branch(&mut self, taken: u32, target: usize, reconvergence: usize) {
        if taken == self.mask {
            self.pc = target;
        } else {
            self.diverge(taken, target, reconvergence);
        }
    }

    fn diverge(&mut self, taken: u32, target: usize, reconvergence: usize) {
        let (not_taken, next) = (self.mask & !taken, self.pc + 1);
        // If the current lanes already stop at this reconvergence point, the stack entry below has all of them.
        if reconvergence != self.reconvergence {
            let all =
                Entry { mask: self.mask, pc: reconvergence, reconvergence: self.reconvergence, waits: false };
            self.stack.push(all);
        }
        let sides = [(not_taken, next), (taken, target)];
        for (mask, pc) in sides.into_iter().filter(|&(_, pc)| pc != reconvergence) {
            self.stack.push(Entry { mask, pc, reconvergence, waits: false });
        }
        self.pop();
    }

    /// Lets the lanes of `first` execute the current instruction, and after them those of `rest`. All of the current lanes
    /// continue together after that.
    pub(crate) fn split(&mut self, first: u32, rest: u32) {
        let (pc, next) = (self.pc, self.pc + 1);
        if next != self.reconvergence {
            self.stack.push(Entry {
                mask: self.mask,
                pc: next,
                reconvergence: self.reconvergence,
                waits: false,
            });
        }
        self.stack.push(Entry { mask: rest, pc, reconvergence: next, waits: false });
        (self.mask, self.reconvergence) = (first, next);
    }

    /// Continues with the next stack entry that has live lanes, or with the next group; returns false if there is neither.
    pub(crate) fn pop(&mut self) -> bool {
        while let Some(entry) = self.stack.pop() {
            let mask = entry.mask & self.live;
            if mask != 0 && entry.pc != entry.reconvergence {
                self.mask = mask;
                self.pc = entry.pc;
                self.reconvergence = entry.reconvergence;
                return true;
            }
        }
        self.take_group() || {
            self.mask = 0;
            false
        }
    }

    /// Called by the current lanes at an instruction that the lanes of `missing` must execute with them.
    ///
    /// The sides of a branch may meet before their reconvergence point: a compiler lets several blocks branch to a common
    /// one. So if `missing` has lanes of another side, that side runs first, and the current lanes wait on the stack. When
    /// it comes to this instruction, its lanes join those that wait there. When it comes to the reconvergence point
    /// instead, the waiting lanes continue, and find nobody to wait for. Each side waits at most once at an instruction, so
    /// this ends.
    ///
    /// Only sides with the reconvergence point of the current lanes are considered.
    pub(super) fn wait_for_other_side(&mut self, missing: Missing) -> Waited {
        // Reconvergence points at which no other lanes wait.
        while let Some(&below) = self.stack.last()
            && below.pc == self.reconvergence
            && below.mask & self.live == self.mask
        {
            self.reconvergence = below.reconvergence;
            self.stack.pop();
        }
        let sides =
            self.stack.iter().rposition(|side| side.pc == self.reconvergence).map_or(0, |all| all + 1);
        let lanes = |side: &Entry| side.mask & self.live;
        let waits_here = |side: &Entry| {
            side.reconvergence == self.reconvergence
                && side.pc == self.pc
                && lanes(side) & missing.joinable != 0
        };
        if let Some(index) = self.stack[sides..].iter().position(waits_here) {
            let side = self.stack.remove(sides + index);
            self.mask |= side.mask & self.live;
            return Waited::Joined;
        }
        let may_come = |side: &Entry| {
            side.reconvergence == self.reconvergence && !side.waits && lanes(side) & missing.lanes != 0
        };
        let Some(index) = self.stack[sides..].iter().rposition(may_come) else { return Waited::No };
        let current = Entry { mask: self.mask, pc: self.pc, reconvergence: self.reconvergence, waits: true };
        let side = std::mem::replace(&mut self.stack[sides + index], current);
        (self.mask, self.pc) = (side.mask & self.live, side.pc);
        Waited::OtherSide
    }

    /// The lanes that wait at an instruction for other lanes, with the instruction.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u32, usize)> {
        let sides = self.stack.iter().filter(|side| side.waits).map(|side| (side.mask & self.live, side.pc));
        let groups = self.groups.iter().filter(|group| group.waits).map(|group| (group.mask, group.pc));
        sides.chain(groups).filter(|&(lanes, _)| lanes != 0)
    }

    /// Lets waiting lanes that are among `lanes` continue after the instruction at which they wait.
    pub(crate) fn advance_waiting(&mut self, lanes: u32) {
        self.lane_wait = None;
        self.forget_member_waits(lanes);
        let live = self.live;
        for side in self.stack.iter_mut().filter(|side| side.waits && side.mask & live & lanes != 0) {
            (side.pc, side.waits) = (side.pc + 1, false);
        }
        for group in self.groups.iter_mut().filter(|group| group.waits && group.mask & lanes != 0) {
            (group.pc, group.waits) = (group.pc + 1, false);
        }
    }

    /// Exits the lanes that have branched to an instruction for which `exits` is true, and wait there for the current lanes.
    pub(crate) fn exit_waiting_lanes(&mut self, exits: impl Fn(usize) -> bool) {
        let mut seen = self.mask;
        for entry in self.stack.iter().rev() {
            if exits(entry.pc) {
                self.live &= !(entry.mask & !seen);
            }
            seen |= entry.mask;
        }
    }

    /// Exits the lanes of `leaving`. Continues with the next stack entry if no current lane is left; returns false if
    /// no lane of the warp is left.
    pub(crate) fn exit(&mut self, leaving: u32) -> bool {
        self.live &= !leaving;
        self.mask &= !leaving;
        if self.live == 0 {
            self.exited_at = self.pc;
        }
        self.mask != 0 || self.pop()
    }
}
