//! Check of the steps of several rows of a model: a prefill step and decode steps.

use std::sync::Arc;

use bespoke::device::{self, Journal};
use bespoke::engine::{Engine, EngineError, EngineOptions, SamplingParams, Slots};
use bespoke::scheduler::{PAGE, PageEntry, PrefillBucket, StepRow, Steps};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

use super::kernels::Progress;
use super::report::Report;
use super::{CheckError, Options};

/// Checks a model's steps of several rows, with their real edges: a prefill step of `rows` sequences, which the last
/// sequence fills up with a longer prompt, then `steps` decode steps of all sequences.
///
/// # Errors
/// If the model cannot be loaded, or without a finding gives logits that are not finite.
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
        parallel: rows,
        prefill: true,
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

/// Runs the prefill step and the decode steps, and reads the logits of every row that chooses.
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

    let bucket = limits.prefill.iter().find(|bucket| bucket.rows >= rows).or(limits.prefill.last());
    let bucket = bucket.copied().unwrap_or(PrefillBucket { rows: 1, outputs: 1 });
    let room = limits.context.saturating_sub(steps).max(2);
    let prompts = Prompts::new(rows, bucket, room);
    for slot in 0..rows {
        let tokens: Vec<u32> =
            (0..prompts.length(slot)).map(|at| (1 + slot + 3 * at) % limits.vocab).collect();
        slots.start(slot, &tokens, &SamplingParams::default())?;
    }
    slots.prefill(&prompts.prefill_rows())?;
    for row in 0..prompts.choosing {
        slots.logits(row)?;
    }
    for step in 0..steps {
        progress(1 + step as usize, total, "steps");
        if step == 0 {
            slots.decode(&prompts.decode_rows())?;
        } else {
            slots.decode_again()?;
        }
        for row in 0..rows {
            slots.logits(row)?;
        }
    }
    progress(total, total, "");
    Ok(())
}

/// Prompts of the sequences, which a prefill step processes: those of the first sequences completely, so that they choose
/// a token; the others but for their last token.
struct Prompts {
    sequences: u32,
    /// Number of first sequences whose whole prompt is in the prefill step.
    choosing: u32,
    /// Number of tokens of the last sequence's prompt beyond those of the others.
    extra: u32,
}

impl Prompts {
    fn new(sequences: u32, bucket: PrefillBucket, room: u32) -> Prompts {
        let choosing = bucket.outputs.min(sequences);
        Prompts { sequences, choosing, extra: bucket.rows.saturating_sub(sequences).min(room - 2) }
    }

    /// Number of prompt tokens of a slot.
    fn length(&self, slot: u32) -> u32 {
        let extra = if slot + 1 == self.sequences { self.extra } else { 0 };
        extra + if slot < self.choosing { 1 } else { 2 }
    }

    /// Rows of the prefill step; those that choose come first.
    fn prefill_rows(&self) -> Vec<StepRow> {
        let mut rows = Vec::new();
        for slot in 0..self.sequences {
            let prompt = self.length(slot);
            let processed = if slot < self.choosing { prompt } else { prompt - 1 };
            for position in 0..processed {
                rows.push(StepRow { slot, position, prompt, chooses: position + 1 == prompt });
            }
        }
        rows.sort_by_key(|row| !row.chooses);
        rows
    }

    /// Rows of the first decode step.
    fn decode_rows(&self) -> Vec<StepRow> {
        let row = |slot| {
            let prompt = self.length(slot);
            let position = if slot < self.choosing { prompt } else { prompt - 1 };
            StepRow { slot, position, prompt, chooses: true }
        };
        (0..self.sequences).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefill_step_is_full() {
        let bucket = PrefillBucket { rows: 16, outputs: 8 };
        for sequences in [1, 3, 8, 9, 16] {
            let prompts = Prompts::new(sequences, bucket, 100);
            let (prefill, decode) = (prompts.prefill_rows(), prompts.decode_rows());
            assert_eq!(prefill.len(), 16, "{sequences}");
            let choosing = prefill.iter().take_while(|row| row.chooses).count();
            assert_eq!(choosing, sequences.min(8) as usize);
            assert!(prefill[choosing..].iter().all(|row| !row.chooses));
            // Every sequence continues where its prefill rows ended.
            for (slot, row) in (0..).zip(&decode) {
                let processed = prefill.iter().filter(|row| row.slot == slot).count() as u32;
                assert_eq!((row.slot, row.position), (slot, processed), "{sequences}");
            }
            assert_eq!(decode.len(), sequences as usize);
        }
    }

    #[test]
    fn a_short_context_shortens_the_longest_prompt() {
        let prompts = Prompts::new(2, PrefillBucket { rows: 64, outputs: 1 }, 10);
        assert_eq!((prompts.length(0), prompts.length(1)), (1, 10));
        assert_eq!(prompts.prefill_rows().len(), 1 + 9);
    }
}
