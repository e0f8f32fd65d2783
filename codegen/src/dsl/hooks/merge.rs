//! Merge points: the targets of run-time jumps out of code that is being recorded.

use super::slot::{Saved, Slot, leaves, save, set_leaves};
use crate::dsl::recorder::{MergeId, Site, with};
use crate::ir::{Block, Value};

/// The block after an unrolled loop, after one of the loop's iterations, or after a function. The first run-time jump
/// to the block creates the block.
pub(super) struct MergePoint {
    id: MergeId,
    open: Option<Open>,
}

struct Open {
    block: Block,
    params: Vec<Value>,
    before: Vec<Saved>,
}

impl MergePoint {
    /// Declares a merge point of the construct at `site`.
    pub fn new(site: Site) -> MergePoint {
        MergePoint { id: with(|r| r.declare_merge(site)), open: None }
    }

    /// Whether a jump to this point has been recorded.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// In a replay: if a jump to this point was recorded here, follows it.
    pub fn follow(&self, slots: &mut [Slot<'_>], site: Site) {
        let values = leaves(slots);
        if let Some(params) = with(|r| r.follow_merge(self.id, &values, site)) {
            set_leaves(slots, &params);
        }
    }

    /// Records a jump to this point, unless the current point of recording is unreachable.
    pub fn jump(&mut self, slots: &[Slot<'_>], site: Site) {
        if !with(|r| r.is_live()) {
            return;
        }
        let values = leaves(slots);
        let open = self.open.get_or_insert_with(|| {
            let (block, params) = with(|r| r.merge_block(self.id, &values, site));
            Open { block, params, before: save(slots) }
        });
        for (slot, saved) in slots.iter().zip(&open.before) {
            slot.require_same(saved, site);
        }
        with(|r| r.jump(open.block, values, site));
    }

    /// If a jump to this point was recorded, continues recording here; the variables in `slots` become block
    /// parameters.
    pub fn arrive(&mut self, slots: &mut [Slot<'_>], site: Site) {
        if !self.is_open() {
            return;
        }
        self.jump(slots, site);
        if let Some(Open { block, params, before }) = self.open.take() {
            with(|r| r.switch_to(block));
            // Compile-time assignments in unreachable code are discarded.
            for (slot, saved) in slots.iter_mut().zip(&before) {
                slot.load(saved);
            }
            set_leaves(slots, &params);
        }
    }
}
