//! Logits of a sequence alone.

use std::collections::HashMap;

use bespoke::engine::{SamplingParams, Slots};
use bespoke::scheduler::{PAGE, PageEntry, StepRow, Steps};

/// Rows of a prefill step of a sequence alone.
const CHUNK: usize = 64;

/// What a sequence computes when it is alone.
pub struct Alone {
    /// Bits of the logits after each row, from the last prompt token on.
    pub logits: Vec<Vec<u32>>,
    /// Tokens that were chosen from these logits.
    pub tokens: Vec<u32>,
}

/// Sequence: tokens at the start, and seed of the sampling.
type Key = (Vec<u32>, u64);

/// Computes sequences alone, in an engine of one slot, and keeps the results.
pub struct Reference<'e> {
    engine: Slots<'e>,
    known: HashMap<Key, Alone>,
}

impl<'e> Reference<'e> {
    /// A reference without results.
    pub fn new(engine: Slots<'e>) -> Reference<'e> {
        Reference { engine, known: HashMap::new() }
    }

    /// Decodes the sequence alone, and returns the logits from which at least its first `count` tokens were chosen.
    pub fn of(&mut self, tokens: &[u32], sampling: &SamplingParams, count: usize) -> &Alone {
        let key = (tokens.to_vec(), sampling.seed);
        if self.known.get(&key).is_none_or(|alone| alone.logits.len() < count) {
            let alone = self.compute(tokens, sampling, count);
            self.known.insert(key.clone(), alone);
        }
        &self.known[&key]
    }

    fn compute(&mut self, tokens: &[u32], sampling: &SamplingParams, count: usize) -> Alone {
        let (prompt, engine) = (tokens.len() as u32, &mut self.engine);
        engine.start(0, tokens, sampling).unwrap();
        let pages =
            (0..engine.limits().context.div_ceil(PAGE)).map(|i| PageEntry { slot: 0, index: i, page: i });
        engine.set_pages(&pages.collect::<Vec<_>>()).unwrap();
        let row =
            |position: u32| StepRow { slot: 0, position, given: prompt, chooses: position + 1 >= prompt };
        // A decode step processes a prompt of one token.
        let prefilled = if prompt == 1 { 0 } else { prompt };
        let rows: Vec<StepRow> = (0..prefilled).map(row).collect();
        rows.chunks(CHUNK).for_each(|rows| engine.prefill(rows).unwrap());
        let mut alone = Alone { logits: Vec::new(), tokens: Vec::new() };
        for position in prompt - 1..prompt - 1 + count as u32 {
            if position >= prefilled {
                engine.decode(&[row(position)]).unwrap();
            }
            alone.logits.push(engine.logits(0).unwrap().into_iter().map(f32::to_bits).collect());
            alone.tokens.push(engine.token(0, position + 1).unwrap().expect("the step is complete"));
        }
        alone
    }
}
