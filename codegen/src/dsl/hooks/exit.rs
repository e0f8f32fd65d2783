//! Where run-time jumps out of code that is being recorded meet again.

use super::slot::{Saved, Slot, leaves, save, set_leaves};
use crate::dsl::record::{Site, with};
use crate::ir::{Block, Value};

/// The block after an unrolled loop, after one of its iterations, or after a function; made when the first
/// run-time jump to it is recorded.
#[derive(Default)]
pub(super) struct Exit(Option<Open>);

struct Open {
    block: Block,
    params: Vec<Value>,
    before: Vec<Saved>,
}

impl Exit {
    /// Whether a jump to here has been recorded.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Records a jump to here. Code that nothing reaches needs none.
    pub fn jump(&mut self, slots: &[Slot<'_>], site: Site) {
        if !with(|r| r.is_live()) {
            return;
        }
        let values = leaves(slots);
        let open = self.0.get_or_insert_with(|| {
            let (block, params) = with(|r| r.block_like(&values));
            Open { block, params, before: save(slots) }
        });
        for (slot, saved) in slots.iter().zip(&open.before) {
            slot.require_same(saved, site);
        }
        with(|r| r.jump(open.block, values, site));
    }

    /// If some jump to here was recorded, goes on here: the slots become what the jumps gave them.
    pub fn arrive(&mut self, slots: &mut [Slot<'_>], site: Site) {
        if !self.is_open() {
            return;
        }
        self.jump(slots, site);
        if let Some(Open { block, params, before }) = self.0.take() {
            with(|r| r.switch_to(block));
            // What code that nothing reaches did to compile-time variables did not happen.
            for (slot, saved) in slots.iter_mut().zip(&before) {
                slot.load(saved);
            }
            set_leaves(slots, &params);
        }
    }
}
