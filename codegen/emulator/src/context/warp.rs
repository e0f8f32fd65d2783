//! One warp's state and its divergence stack.

use crate::asynchronous::Awaited;
use crate::lanes::{LANES, RegisterFile};
use crate::memory::{InitMap, ZeroedBytes};

/// A reconvergence point that is never reached: lanes meet only by exiting.
pub(crate) const NEVER: usize = u32::MAX as usize;

/// Lanes that wait for their turn.
#[derive(Clone, Copy, Debug)]
struct Entry {
    mask: u32,
    pc: usize,
    /// Where these lanes hand over to the entry below.
    reconvergence: usize,
}

/// A wait for an mbarrier that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stalled {
    pub(crate) address: u64,
    pub(crate) awaited: Awaited,
    pub(crate) lane: u32,
    pub(crate) pc: usize,
}

/// What the lanes of a warp have for themselves in memory: one lane's bytes after the other's.
pub(crate) struct LocalMemory {
    /// Bytes of one lane.
    pub(crate) bytes: u64,
    data: ZeroedBytes,
    pub(crate) map: InitMap,
}

impl LocalMemory {
    fn new(bytes: u64) -> LocalMemory {
        let all = bytes * LANES as u64;
        LocalMemory { bytes, data: ZeroedBytes::new(all as usize), map: InitMap::private(all) }
    }

    /// The host address of a byte that `LocalMemory::map` counts.
    pub(crate) fn pointer(&self, at: u64) -> *mut u8 {
        self.data.pointer().wrapping_add(at as usize)
    }
}

/// One warp. The lanes of `mask` execute at `pc`; when they get to `reconvergence` the entry on top of
/// the stack takes over, which is either the other side of a branch or the lanes of both sides.
pub(crate) struct Warp {
    pub(crate) index: usize,
    pub(crate) regs: RegisterFile,
    pub(crate) local: LocalMemory,
    /// Per tracked register: the lanes in which it was written.
    pub(crate) written: Vec<u32>,
    /// The carry flag of the extended-precision instructions, one bit a lane.
    pub(crate) carry: u32,
    /// The lanes that the launch started, and those that have not exited.
    pub(crate) launched: u32,
    pub(crate) live: u32,
    pub(crate) mask: u32,
    pub(crate) pc: usize,
    pub(crate) reconvergence: usize,
    stack: Vec<Entry>,
    pub(crate) waiting: bool,
    /// The lanes for which the launches before this one are complete.
    pub(crate) waited: u32,
    /// By slot: the lanes in which a number has wrapped, if somebody looks at that.
    wrapped: Vec<u32>,
    /// The last wait for an mbarrier that failed.
    pub(crate) stalled: Option<Stalled>,
    /// The instruction at which the warp's last lanes exited.
    pub(crate) exited_at: usize,
}

impl Warp {
    pub(crate) fn new(index: usize, register_bytes: u32, tracked: usize, local_bytes: u64) -> Warp {
        Warp {
            index,
            regs: RegisterFile::new(register_bytes),
            local: LocalMemory::new(local_bytes),
            written: vec![0; tracked],
            carry: 0,
            launched: 0,
            live: 0,
            mask: 0,
            pc: 0,
            reconvergence: NEVER,
            stack: Vec::new(),
            waiting: false,
            waited: 0,
            wrapped: Vec::new(),
            stalled: None,
            exited_at: 0,
        }
    }

    /// Back to the first instruction, with the lanes of `launched`.
    pub(crate) fn reset(&mut self, launched: u32) {
        self.written.fill(0);
        self.local.map.clear();
        self.carry = 0;
        self.launched = launched;
        self.live = launched;
        self.mask = launched;
        self.pc = 0;
        self.reconvergence = NEVER;
        self.stack.clear();
        self.waiting = false;
        self.stalled = None;
        self.wrapped.fill(0);
    }

    /// The lanes in which the register at a slot has wrapped.
    pub(crate) fn wrapped_mut(&mut self, slot: u32) -> &mut u32 {
        /// Registers of 16 bits and more are this far apart.
        const APART: usize = 64;
        let index = slot as usize / APART;
        if self.wrapped.len() <= index {
            self.wrapped.resize(index + 1, 0);
        }
        &mut self.wrapped[index]
    }

    /// The lanes of `taken` go to `target`, the others on; they meet at `reconvergence`.
    #[inline(always)]
    pub(crate) fn branch(&mut self, taken: u32, target: usize, reconvergence: usize) {
        if taken == self.mask {
            self.pc = target;
        } else {
            self.diverge(taken, target, reconvergence);
        }
    }

    fn diverge(&mut self, taken: u32, target: usize, reconvergence: usize) {
        let (passed, next) = (self.mask & !taken, self.pc + 1);
        // If this entry already ends where the sides meet, the entry below holds all of its lanes.
        if reconvergence != self.reconvergence {
            let all = Entry { mask: self.mask, pc: reconvergence, reconvergence: self.reconvergence };
            self.stack.push(all);
        }
        let sides = [(passed, next), (taken, target)];
        for (mask, pc) in sides.into_iter().filter(|&(_, pc)| pc != reconvergence) {
            self.stack.push(Entry { mask, pc, reconvergence });
        }
        self.pop();
    }

    /// Goes on with the next lanes that have not exited; false if there are none.
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
        self.mask = 0;
        false
    }

    /// The lanes of `leaving` exit. Returns false if no lane is left in the warp; if the executing
    /// entry has none left, the warp has moved on to the next.
    pub(crate) fn exit(&mut self, leaving: u32) -> bool {
        self.live &= !leaving;
        self.mask &= !leaving;
        if self.live == 0 {
            self.exited_at = self.pc;
        }
        self.mask != 0 || self.pop()
    }
}
