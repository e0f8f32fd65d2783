//! Roles of the warpgroups of a CTA.

use crate::device;
use crate::dsl::registers::{decrease_registers, increase_registers};
use crate::dsl::threads::warp_index;
use crate::dsl::value::Val;

/// Registers of a multiprocessor.
const REGISTERS: u32 = 1 << 16;

/// A warp-specialised CTA: its first warpgroup loads, and `consumers` further ones compute. The first warpgroup gives
/// registers to the others.
///
/// The kernel is a `#[kernel(threads = ROLES.threads(), min_blocks = 1)]`. [`Pipeline::of_tiles`](super::Pipeline::of_tiles)
/// has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpgroupRoles {
    /// Number of warpgroups that compute, from 1 to 7.
    pub consumers: u32,
}

impl WarpgroupRoles {
    /// Threads of the CTA.
    ///
    /// - PTX: none
    pub const fn threads(self) -> u32 {
        128 * (1 + self.consumers)
    }

    /// Registers per thread at the start of the kernel.
    const fn initial_registers(self) -> u32 {
        REGISTERS / self.threads() / 8 * 8
    }

    /// Registers per thread of the producer's warpgroup after [`WarpgroupRoles::start_producer`].
    ///
    /// - PTX: none
    pub const fn producer_registers(self) -> u32 {
        match self.consumers {
            0..=2 => 40,
            3 => 32,
            _ => 24,
        }
    }

    /// Registers per thread of the consumers after [`WarpgroupRoles::start_consumer`]: what the producer's warpgroup gives,
    /// divided among them. A single consumer starts with the maximum.
    ///
    /// - PTX: none
    pub const fn consumer_registers(self) -> u32 {
        let initial = self.initial_registers();
        let all = initial + (initial - self.producer_registers()) / self.consumers / 8 * 8;
        if all < 256 { all } else { 256 }
    }

    /// Whether the thread belongs to the producer's warpgroup.
    ///
    /// - PTX: `shr.u32`, `setp.eq.u32`
    /// - Target: sm_80
    /// - Example: [`Pipeline::of_tiles`](super::Pipeline::of_tiles)
    #[device]
    pub fn is_producer(self) -> Val<bool> {
        warp_index() / 4 == 0
    }

    /// Gives registers of the producer's warpgroup to the consumers.
    ///
    /// - PTX: `setmaxnreg.dec.sync.aligned.u32`; with one consumer nothing
    /// - Target: sm_90a
    /// - Requires: all warps of the producer's warpgroup; a kernel with `min_blocks = 1`
    /// - Example: [`Pipeline::of_tiles`](super::Pipeline::of_tiles)
    #[track_caller]
    pub fn start_producer(self) {
        if self.redistributes() {
            decrease_registers(self.producer_registers());
        }
    }

    /// Takes registers for a consumer. The result is the warpgroup's number among the consumers, from 0.
    ///
    /// - PTX: `setmaxnreg.inc.sync.aligned.u32`, with one consumer nothing; `shr.u32`, `sub.u32`
    /// - Target: sm_90a
    /// - Requires: all warps of the warpgroup; a kernel with `min_blocks = 1`
    /// - Example: [`Pipeline::of_tiles`](super::Pipeline::of_tiles)
    #[track_caller]
    pub fn start_consumer(self) -> Val<u32> {
        if self.redistributes() {
            increase_registers(self.consumer_registers());
        }
        warp_index() / 4 - 1
    }

    /// Whether the consumers need more registers than they start with.
    const fn redistributes(self) -> bool {
        self.consumer_registers() > self.initial_registers()
    }
}
