//! An engine that records the logits of every row that chooses, under permuted slots and pages.

use std::collections::BTreeSet;
use std::time::Duration;

use bespoke::engine::{EngineError, NonFiniteLogits, SamplingParams, Slots};
use bespoke::scheduler::{Draft, Limits, PageEntry, StepRow, Steps};

use crate::schedule::Schedule;

/// A sequence in a slot, and the logits of its rows that choose.
pub struct Recorded {
    /// Tokens that were written at the start: the prompt, and after a loss of the pages the tokens chosen so far.
    pub tokens: Vec<u32>,
    pub sampling: SamplingParams,
    /// Rows in the order of positions. The first one is that of the last prompt token.
    pub rows: Vec<RecordedRow>,
}

impl Recorded {
    /// The prompt; none if the sequence ended before its last token was processed.
    pub fn prompt(&self) -> Option<&[u32]> {
        self.tokens.get(..=self.rows.first()?.position as usize)
    }
}

/// A row of a step, which chooses.
pub struct RecordedRow {
    /// Index of the row among those of its step that choose, and number of these rows.
    pub place: (usize, usize),
    pub position: u32,
    /// Bits of the logits after the row.
    pub logits: Vec<u32>,
}

/// What schedules made happen.
#[derive(Debug, Default)]
pub struct Counts {
    /// Rows whose logits were recorded.
    pub rows: usize,
    /// Numbers of rows that decode steps had.
    pub decode_rows: BTreeSet<usize>,
    /// Numbers of rows that first-token steps had; 0 for prefill steps in which no prompt ends.
    pub first_tokens: BTreeSet<usize>,
    /// Decode steps that were enqueued without records from the host.
    pub decode_again: usize,
    /// Prefill steps.
    pub prefill: usize,
    /// Prefill steps with rows of several sequences.
    pub shared_prefill: usize,
    /// Pages that were cleared.
    pub cleared: usize,
    /// Tokens that were drafted.
    pub drafted: usize,
    /// Drafted tokens that were chosen.
    pub accepted: usize,
}

impl Counts {
    /// Adds the counts of another schedule.
    pub fn add(&mut self, other: &Counts) {
        self.rows += other.rows;
        self.decode_rows.extend(&other.decode_rows);
        self.first_tokens.extend(&other.first_tokens);
        self.decode_again += other.decode_again;
        self.prefill += other.prefill;
        self.shared_prefill += other.shared_prefill;
        self.cleared += other.cleared;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }
}

/// Steps of an engine that records logits.
pub struct Recording<'e> {
    engine: Slots<'e>,
    limits: Limits,
    /// The engine's slot and page of each slot and page that the scheduler names.
    slots: Vec<u32>,
    pages: Vec<u32>,
    /// Places at which prefill steps are cut into two, repeated; a place outside of a step leaves it whole.
    cuts: Vec<usize>,
    /// Rows of the last step that choose.
    last: Vec<StepRow>,
    /// Their logits. A prefill step may be cut into two, of which the engine only has the logits of the second.
    logits: Vec<Vec<f32>>,
    /// Index in `sequences` of the sequence of each slot.
    occupants: Vec<usize>,
    pub sequences: Vec<Recorded>,
    pub counts: Counts,
    /// Number of decode steps before a page in use is cleared: an error that the comparison must notice.
    pub clear_after: Option<usize>,
    decode_steps: usize,
}

impl<'e> Recording<'e> {
    /// Steps of `engine` with the slots, pages and chunk size of a schedule.
    pub fn new(mut engine: Slots<'e>, schedule: &Schedule) -> Recording<'e> {
        // Rows that do not exist load the first token of slot 0. A scheduler uses that slot first; permuted ones may not.
        engine.start(0, &[0], &SamplingParams::default()).unwrap();
        let limits = Limits {
            slots: schedule.slots.len() as u32,
            pages: schedule.pages.len() as u32,
            prefill: vec![schedule.chunk],
            ..engine.limits().clone()
        };
        assert!(schedule.slots.iter().all(|&slot| slot < engine.limits().slots));
        assert!(schedule.pages.iter().all(|&page| page < engine.limits().pages));
        Recording {
            engine,
            limits,
            slots: schedule.slots.clone(),
            pages: schedule.pages.clone(),
            cuts: schedule.cuts.clone(),
            last: Vec::new(),
            logits: Vec::new(),
            occupants: vec![usize::MAX; schedule.slots.len()],
            sequences: Vec::new(),
            counts: Counts::default(),
            clear_after: None,
            decode_steps: 0,
        }
    }

    fn in_engine(&self, rows: &[StepRow]) -> Vec<StepRow> {
        rows.iter().map(|row| StepRow { slot: self.slots[row.slot as usize], ..*row }).collect()
    }

    /// Records the logits of the last step, or of a part of it.
    fn record(&mut self) -> Result<(), EngineError> {
        let of = self.last.len();
        self.counts.rows += of;
        for (index, row) in self.last.iter().enumerate() {
            let of_row = self.engine.logits(index as u32)?;
            let logits = of_row.iter().copied().map(f32::to_bits).collect();
            self.logits.push(of_row);
            let rows = &mut self.sequences[self.occupants[row.slot as usize]].rows;
            rows.push(RecordedRow { place: (index, of), position: row.position, logits });
        }
        Ok(())
    }

    /// Records the logits of the last step, a decode or verify step.
    fn record_decode(&mut self) -> Result<(), EngineError> {
        self.counts.decode_rows.insert(self.last.len());
        self.logits.clear();
        self.record()?;
        self.decode_steps += 1;
        if self.clear_after == Some(self.decode_steps) {
            self.engine.clear_pages(&self.pages[..1])?;
        }
        Ok(())
    }

    /// Enqueues a prefill step, and records the logits of its rows that choose.
    fn prefill_part(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        self.engine.prefill(&self.in_engine(rows))?;
        self.last = rows.iter().filter(|row| row.chooses).copied().collect();
        self.counts.first_tokens.insert(self.last.len());
        self.record()
    }
}

impl Steps for Recording<'_> {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn start(&mut self, slot: u32, tokens: &[u32], sampling: &SamplingParams) -> Result<(), EngineError> {
        self.occupants[slot as usize] = self.sequences.len();
        let (tokens, sampling) = (tokens.to_vec(), sampling.clone());
        self.engine.start(self.slots[slot as usize], &tokens, &sampling)?;
        self.sequences.push(Recorded { tokens, sampling, rows: Vec::new() });
        Ok(())
    }

    fn set_pages(&mut self, entries: &[PageEntry]) -> Result<(), EngineError> {
        let in_engine = |entry: &PageEntry| PageEntry {
            slot: self.slots[entry.slot as usize],
            index: entry.index,
            page: self.pages[entry.page as usize],
        };
        self.engine.set_pages(&entries.iter().map(in_engine).collect::<Vec<_>>())
    }

    fn clear_pages(&mut self, pages: &[u32]) -> Result<(), EngineError> {
        self.counts.cleared += pages.len();
        let in_engine = |&page: &u32| self.pages[page as usize];
        self.engine.clear_pages(&pages.iter().map(in_engine).collect::<Vec<_>>())
    }

    fn give_tokens(&mut self, slot: u32, position: u32, tokens: &[u32]) -> Result<(), EngineError> {
        self.engine.give_tokens(self.slots[slot as usize], position, tokens)
    }

    fn discard(&mut self, slot: u32, position: u32, count: u32) -> Result<(), EngineError> {
        self.engine.discard(self.slots[slot as usize], position, count)
    }

    fn set_masks(&mut self, masks: &[(u32, Vec<u32>)]) -> Result<(), EngineError> {
        let in_engine = |(slot, mask): &(u32, Vec<u32>)| (self.slots[*slot as usize], mask.clone());
        self.engine.set_masks(&masks.iter().map(in_engine).collect::<Vec<_>>())
    }

    fn prefill(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        let cut = self.cuts[self.counts.prefill % self.cuts.len()];
        self.counts.prefill += 1;
        self.counts.shared_prefill += usize::from(rows.iter().any(|row| row.slot != rows[0].slot));
        self.logits.clear();
        let (first, second) = rows.split_at(if cut < rows.len() { cut } else { 0 });
        if !first.is_empty() {
            self.prefill_part(first)?;
        }
        self.prefill_part(second)
    }

    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        self.engine.decode(&self.in_engine(rows))?;
        self.last = rows.to_vec();
        self.record_decode()
    }

    fn verify(&mut self, rows: &[StepRow], drafts: &[Draft]) -> Result<(), EngineError> {
        let in_engine = |draft: &Draft| Draft { slot: self.slots[draft.slot as usize], ..draft.clone() };
        let engine_drafts: Vec<Draft> = drafts.iter().map(in_engine).collect();
        self.engine.verify(&self.in_engine(rows), &engine_drafts)?;
        self.last = rows.to_vec();
        self.record_decode()?;
        // The logits of a row whose drafted token was not chosen are not those of the sequence.
        for Draft { slot, position, tokens } in drafts {
            let wrong = (*position..).zip(tokens).find(|&(position, &token)| {
                self.engine.token(self.slots[*slot as usize], position).unwrap() != Some(token)
            });
            self.counts.drafted += tokens.len();
            self.counts.accepted += wrong.map_or(tokens.len(), |(at, _)| (at - position) as usize);
            if let Some((wrong, _)) = wrong {
                let rows = &mut self.sequences[self.occupants[*slot as usize]].rows;
                rows.retain(|row| row.position < wrong);
            }
        }
        Ok(())
    }

    fn decode_again(&mut self) -> Result<(), EngineError> {
        self.counts.decode_again += 1;
        self.engine.decode_again()?;
        self.last.iter_mut().for_each(|row| row.position += 1);
        self.record_decode()
    }

    fn token(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        self.engine.token(self.slots[slot as usize], position)
    }

    fn explain(&mut self, slot: u32, error: NonFiniteLogits) -> Result<NonFiniteLogits, EngineError> {
        self.engine.explain(self.slots[slot as usize], error)
    }

    fn logits(&mut self, row: u32) -> Result<Vec<f32>, EngineError> {
        Ok(self.logits[row as usize].clone())
    }

    fn busy(&self, waited: Duration, steps: u32) -> Result<bool, EngineError> {
        self.engine.busy(waited, steps)
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.engine.reset()
    }
}
