//! Steps of a model that recites: whatever the prompt, its answer is one text again and again.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bespoke::device;
use bespoke::engine::{EngineError, NonFiniteLogits, SamplingParams};
use bespoke::scheduler::{Draft, Limits, PageEntry, StepRow, Steps};
use bespoke::tokenizer::Tokenizer;

use super::TEXT;

/// Sizes of the reciter.
#[derive(Clone, Debug)]
pub struct Sizes {
    pub slots: u32,
    pub context: u32,
    pub pages: u32,
    /// What is recited.
    pub text: &'static str,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { slots: 2, context: 256, pages: 8, text: TEXT }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The next step fails.
    Once,
    /// All steps fail.
    Always,
    /// The next step panics.
    Panic,
    /// The logits of sequences that begin with this token are not finite.
    Poisoned(u32),
}

#[derive(Default)]
struct State {
    /// Number of steps that may run; none for all.
    allowed: Option<u64>,
    steps: u64,
    failure: Option<Failure>,
}

/// Holds steps back and makes them fail, from the test's thread.
#[derive(Clone, Default)]
pub struct Pace(Arc<(Mutex<State>, Condvar)>);

impl Pace {
    /// Lets only `count` more steps run.
    pub fn allow(&self, count: u64) {
        let mut state = self.0.0.lock().unwrap();
        state.allowed = Some(state.steps + count);
        self.0.1.notify_all();
    }

    /// Lets all steps run.
    pub fn open(&self) {
        self.0.0.lock().unwrap().allowed = None;
        self.0.1.notify_all();
    }

    /// Number of steps so far.
    pub fn steps(&self) -> u64 {
        self.0.0.lock().unwrap().steps
    }

    /// Makes steps fail.
    pub fn fail(&self, failure: Option<Failure>) {
        self.0.0.lock().unwrap().failure = failure;
    }

    fn step(&self) -> Result<(), EngineError> {
        let mut state = self.0.0.lock().unwrap();
        while state.allowed.is_some_and(|allowed| state.steps >= allowed) {
            state = self.0.1.wait_timeout(state, Duration::from_millis(50)).unwrap().0;
        }
        state.steps += 1;
        if state.failure == Some(Failure::Panic) {
            drop(state);
            panic!("a bug with the text of a prompt");
        }
        if matches!(state.failure, Some(Failure::Once | Failure::Always)) {
            state.failure = state.failure.filter(|&failure| failure == Failure::Always);
            return Err(device::Error::Access("the device is gone".to_owned()).into());
        }
        Ok(())
    }
}

/// The steps.
pub struct Reciter {
    limits: Limits,
    text: Vec<u32>,
    /// Tokens of each slot by position.
    tokens: Vec<Vec<u32>>,
    last: Vec<StepRow>,
    pace: Pace,
}

/// A reciter, and what holds it back.
pub fn reciter(tokenizer: &Tokenizer, sizes: &Sizes) -> (Reciter, Pace) {
    let &Sizes { slots, context, pages, text } = sizes;
    let limits = Limits {
        slots,
        pages,
        context,
        vocab: tokenizer.len() as u32,
        sampling: true,
        decode: vec![1, slots],
        verify: Vec::new(),
        prefill: vec![16],
    };
    let pace = Pace::default();
    let text = tokenizer.encode(text).unwrap();
    let tokens = vec![Vec::new(); slots as usize];
    (Reciter { limits, text, tokens, last: Vec::new(), pace: pace.clone() }, pace)
}

impl Reciter {
    fn choose(&mut self, rows: &[StepRow]) {
        for row in rows.iter().filter(|row| row.chooses) {
            let tokens = &mut self.tokens[row.slot as usize];
            if row.position + 1 >= row.given {
                tokens.push(self.text[(row.position + 1 - row.given) as usize % self.text.len()]);
            }
        }
        self.last = rows.iter().filter(|row| row.chooses).copied().collect();
    }
}

impl Steps for Reciter {
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn start(&mut self, slot: u32, tokens: &[u32], _: &SamplingParams) -> Result<(), EngineError> {
        self.tokens[slot as usize] = tokens.to_vec();
        Ok(())
    }
    fn give_tokens(&mut self, slot: u32, _: u32, tokens: &[u32]) -> Result<(), EngineError> {
        self.tokens[slot as usize].extend(tokens);
        Ok(())
    }
    fn set_masks(&mut self, _: &[(u32, Vec<u32>)]) -> Result<(), EngineError> {
        Ok(())
    }
    fn discard(&mut self, slot: u32, position: u32, _: u32) -> Result<(), EngineError> {
        self.tokens[slot as usize].truncate(position as usize);
        Ok(())
    }
    fn set_pages(&mut self, _: &[PageEntry]) -> Result<(), EngineError> {
        Ok(())
    }
    fn clear_pages(&mut self, _: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }
    fn prefill(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        self.pace.step()?;
        self.choose(rows);
        Ok(())
    }
    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        self.pace.step()?;
        self.choose(rows);
        Ok(())
    }
    fn verify(&mut self, rows: &[StepRow], _: &[Draft]) -> Result<(), EngineError> {
        panic!("there are no verify steps: {rows:?}")
    }
    fn decode_again(&mut self) -> Result<(), EngineError> {
        let next = |row: &StepRow| StepRow { position: row.position + 1, ..*row };
        let rows: Vec<StepRow> = self.last.iter().map(next).collect();
        self.decode(&rows)
    }
    fn token(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        let tokens = &self.tokens[slot as usize];
        let failure = self.pace.0.0.lock().unwrap().failure;
        match tokens.get(position as usize) {
            Some(_) if failure == Some(Failure::Poisoned(tokens[0])) => {
                Err(NonFiniteLogits { position: position - 1, first: None }.into())
            }
            token => Ok(token.copied()),
        }
    }
    fn logits(&mut self, row: u32) -> Result<Vec<f32>, EngineError> {
        // The chosen token is e times as likely as each of the others.
        let StepRow { slot, position, .. } = self.last[row as usize];
        let mut logits = vec![0.0; self.limits.vocab as usize];
        logits[self.tokens[slot as usize][position as usize + 1] as usize] = 1.0;
        Ok(logits)
    }
    fn busy(&self, _: Duration, _: u32) -> Result<bool, EngineError> {
        Ok(false)
    }
    fn reset(&mut self) -> Result<(), EngineError> {
        match self.pace.0.0.lock().unwrap().failure {
            Some(Failure::Always) => Err(device::Error::Access("the device is still gone".to_owned()).into()),
            _ => Ok(()),
        }
    }
}
