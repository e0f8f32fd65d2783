//! Division of a GEMV among CTAs and warps.

use serde::{Deserialize, Serialize};

use crate::kernels::launching::{CopyEngine, Trigger};

/// Tiles of a quad, the unit of warpgroups: one for each warp.
pub(crate) const QUAD: u32 = 4;

/// Division of a GEMV among CTAs and warps, and the ring of stages in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// Number of shares of the tiles: of CTAs, or of clusters, whose CTAs have the same tiles ([`GemvShape::cluster`](super::GemvShape::cluster)).
    pub grid: u32,
    /// Consumer warps per CTA; there are producer warps besides, one or more.
    pub warps: u32,
    /// Number of groups of consumer warps. The groups take the stages of the ring in turn.
    pub groups: u32,
    /// Number of stages of the ring in shared memory. A stage holds the weights of one unit for each warp of a group.
    pub stages: u32,
    /// Largest number of stages whose copies are in flight at once.
    pub in_flight: u32,
    /// Number of CTAs per multiprocessor, including those of neighbouring launches, for which registers must suffice.
    pub resident: u32,
    /// Minimum dynamic shared memory of a CTA, in bytes. More than half of a multiprocessor's shared memory keeps two
    /// CTAs of a launch from sharing a multiprocessor while another one is idle.
    pub reserve: u32,
    /// The instruction that copies weights to shared memory.
    pub copy: CopyEngine,
    /// The event that lets the next launch start.
    pub trigger: Trigger,
    /// Division of a product of several tokens.
    pub several: TokenSchedule,
}

impl Schedule {
    /// One CTA with one consumer warp: a valid base for other schedules.
    pub const MINIMAL: Schedule = Schedule {
        grid: 1,
        warps: 1,
        groups: 1,
        stages: 2,
        in_flight: 2,
        resident: 1,
        reserve: 0,
        copy: CopyEngine::Async,
        trigger: Trigger::Never,
        several: TokenSchedule::ONE,
    };

    /// Number of units (see [`GemvShape::depth`](super::GemvShape::depth)) in a stage: one per warp of a group. In a checked plan `groups` divides
    /// `warps`; rounding up keeps the sizes of an unchecked plan finite.
    pub(super) fn units_per_stage(&self) -> u32 {
        self.warps.div_ceil(self.groups)
    }

    /// Whether the producer appends empty stages to a run of tiles, so that every group of warps gets the same number
    /// of stages. The next run of tiles then starts with the first group again. `units` is the number of units per tile.
    pub(super) fn pads(&self, units: u32) -> bool {
        self.groups > 1 && !units.is_multiple_of(self.warps)
    }
}

/// Division of a product of several tokens. A product in the loop of one token, of one to four tokens, has
/// [`TokenSchedule::ONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenSchedule {
    /// Whether an earlier launch has quantised the inputs: [`prepare`](super::tokens::prepare()), attention, or the product before
    /// ([`GemvShape::received`](super::GemvShape::received)). Otherwise each CTA quantises all inputs.
    pub prepared: bool,
    /// Number of columns of a slice: shared memory has the inputs of a slice at a time. A multiple of the columns of a
    /// unit of every segment, and of 128. Without preparation, one slice has all columns.
    pub slice: u32,
    /// Number of slices of prepared inputs that shared memory has room for.
    pub buffers: u32,
    /// Number of warps that share a unit: each multiplies it with a part of the tokens.
    pub parts: u32,
    /// Number of tiles of a segment whose sums shared memory has room for.
    pub tiles: u32,
    /// Whether shared memory has the sums of all steps of these tiles until their outputs are written, so that warps need no barrier
    /// between slices. Otherwise it has those of a slice, which are added to totals after each slice. Only for prepared inputs in several
    /// slices, without warpgroups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds: bool,
    /// Number of consumer warpgroups, which multiply with `wgmma` (`tokens/warpgroup`): on devices of compute capability 9.0
    /// only. 0 if warps multiply.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warpgroups: u32,
    /// Number of blocks into which the tokens are divided among CTAs; more than 1 with warpgroups only.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub blocks: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

fn one() -> u32 {
    1
}

impl TokenSchedule {
    /// The schedule of a product in the loop of one token, which does not use it.
    pub const ONE: TokenSchedule = TokenSchedule {
        prepared: false,
        slice: 0,
        buffers: 0,
        parts: 1,
        tiles: 0,
        holds: false,
        warpgroups: 0,
        blocks: 1,
    };

    /// Prepared inputs in slices of `slice` columns, `buffers` of which shared memory has room for, and the sums of `tiles` tiles.
    pub const fn sliced(slice: u32, buffers: u32, tiles: u32) -> TokenSchedule {
        TokenSchedule { prepared: true, slice, buffers, tiles, ..TokenSchedule::ONE }
    }
}
