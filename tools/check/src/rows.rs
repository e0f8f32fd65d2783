//! Check of the steps of several rows of a model: prefill, first-token and decode steps.

use std::ops::Range;
use std::sync::Arc;

use bespoke::device::{self, Journal};
use bespoke::engine::{Engine, EngineError, EngineOptions, SamplingParams, Slots};
use bespoke::scheduler::{PAGE, PageEntry, ROW_GROUP, StepRow, Steps};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

use super::kernels::Progress;
use super::report::Report;
use super::{CheckError, Options};

/// Checks a model's steps of several rows, with their real edges: prefill steps of `rows` sequences, the last of which the
/// last sequence fills up with a longer prompt, first-token steps after them, then `steps` decode steps of all sequences.
///
/// # Errors
/// If the model cannot be loaded, its context has no room for two prompt tokens and `steps` more, or its logits are not finite
/// although there is no finding.
pub fn model_rows(
    gguf: &Gguf,
    shape: &ModelShape,
    rows: u32,
    steps: u32,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, CheckError> {
    let journal = Arc::new(Journal::new(options.lints || options.profile));
    let loading = EngineOptions {
        context: Some(shape.dimensions.context.min(POSITIONS + steps)),
        kv: options.kv,
        arithmetic: options.arithmetic,
        parallel: rows,
        multiprocessors: options.multiprocessors,
        ..EngineOptions::default()
    };
    let device = device::checking(journal.clone(), options.checks);
    let mut engine = Engine::load(device, gguf, shape, &loading, &|_, _| {})?;
    let ran = run(&mut Slots::new(&mut engine)?, rows, steps, progress);
    let report = Report::new(&shape.name, journal.entries(), options);
    match ran {
        // Logits are not those of the model after a finding.
        Err(error) if report.findings.is_empty() => Err(error.into()),
        _ => Ok(report),
    }
}

/// Positions of a prompt that fills a prefill step.
const POSITIONS: u32 = 2 * PAGE;

/// Runs the prefill steps, the first-token steps after them and the decode steps, and reads the logits of every row that
/// chooses.
fn run(slots: &mut Slots<'_>, rows: u32, steps: u32, progress: Progress<'_>) -> Result<(), EngineError> {
    let limits = slots.limits().clone();
    let total = 1 + steps as usize;
    progress(0, total, "steps");
    // Pages in descending order, so that the page table matters.
    let entries = limits.context.div_ceil(PAGE);
    let entry = |slot, index| PageEntry { slot, index, page: limits.pages - 1 - (slot * entries + index) };
    let table: Vec<PageEntry> = (0..rows)
        .flat_map(|slot| (0..entries).map(move |index| (slot, index)))
        .map(|(s, i)| entry(s, i))
        .collect();
    slots.set_pages(&table)?;

    let sizes = &limits.prefill;
    // Each sequence has a group of rows in a prefill step.
    let needed = rows * ROW_GROUP;
    let size = sizes.iter().find(|&&size| size >= needed).or(sizes.last()).copied().unwrap_or(needed);
    let per_step = size / ROW_GROUP;
    let in_last = (rows - 1) % per_step + 1;
    let room = limits.context.saturating_sub(steps);
    if room < SHORTEST {
        let (needed, context) = (u64::from(steps) + u64::from(SHORTEST), limits.context);
        return Err(EngineError::ContextFull { needed, context });
    }
    let extra = (size - (in_last - 1) * ROW_GROUP - SHORTEST).min(room - SHORTEST);
    let prompts = Prompts { sequences: rows, extra };
    for slot in 0..rows {
        let tokens: Vec<u32> =
            (0..prompts.length(slot)).map(|at| (1 + slot + 3 * at) % limits.vocab).collect();
        slots.start(slot, &tokens, &SamplingParams::default())?;
    }
    for first in (0..rows).step_by(per_step as usize) {
        let of_step = first..(first + per_step).min(rows);
        slots.prefill(&prompts.prefill_rows(of_step.clone()))?;
        for (row, slot) in (0..).zip(of_step) {
            read_row(slots, row, slot, prompts.length(slot) - 1)?;
        }
    }
    for step in 0..steps {
        progress(1 + step as usize, total, "steps");
        if step == 0 {
            slots.decode(&prompts.decode_rows())?;
        } else {
            slots.decode_again()?;
        }
        for slot in 0..rows {
            read_row(slots, slot, slot, prompts.length(slot) + step)?;
        }
    }
    progress(total, total, "");
    Ok(())
}

/// Reads the logits of a row of the last step: number `row` of those that choose, at `position` of the sequence in `slot`.
///
/// # Errors
/// If they are not finite, or if the step has chosen no token.
fn read_row(slots: &mut Slots<'_>, row: u32, slot: u32, position: u32) -> Result<(), EngineError> {
    slots.logits(row)?;
    match slots.token(slot, position + 1) {
        Err(EngineError::NonFinite(error)) => Err(slots.explain(slot, error)?.into()),
        Ok(None) => Err(EngineError::NoToken { position: position + 1 }),
        chosen => chosen.map(|_| ()),
    }
}

/// Number of tokens of the shortest prompt that has a prefill step.
const SHORTEST: u32 = 2;

/// Prompts of the sequences.
struct Prompts {
    sequences: u32,
    /// Number of tokens of the last sequence's prompt beyond those of the others, which have [`SHORTEST`].
    extra: u32,
}

impl Prompts {
    /// Number of prompt tokens of a slot.
    fn length(&self, slot: u32) -> u32 {
        SHORTEST + if slot + 1 == self.sequences { self.extra } else { 0 }
    }

    /// Rows of the prefill step of some slots.
    fn prefill_rows(&self, slots: Range<u32>) -> Vec<StepRow> {
        let row = |slot, position| {
            let given = self.length(slot);
            StepRow { slot, position, given, chooses: position + 1 == given }
        };
        let of_slot = |slot| (0..self.length(slot)).map(move |position| row(slot, position));
        slots.flat_map(of_slot).collect()
    }

    /// Rows of the first decode step.
    fn decode_rows(&self) -> Vec<StepRow> {
        let row = |slot| {
            let prompt = self.length(slot);
            StepRow { slot, position: prompt, given: prompt, chooses: true }
        };
        (0..self.sequences).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_continues_where_its_prefill_rows_end() {
        for (sequences, extra) in [(1, 14), (3, 10), (8, 0)] {
            let prompts = Prompts { sequences, extra };
            let (prefill, decode) = (prompts.prefill_rows(0..sequences), prompts.decode_rows());
            assert_eq!((prefill.len(), decode.len()), (16, sequences as usize));
            assert_eq!(prefill.iter().filter(|row| row.chooses).count(), sequences as usize);
            for (slot, row) in (0..).zip(&decode) {
                let processed = prefill.iter().filter(|row| row.slot == slot).count() as u32;
                assert_eq!((row.slot, row.position, row.given), (slot, processed, processed));
            }
        }
    }
}
