//! Fake engine. Its model is a hash: the token after position p depends on the tokens up to p and on the seed. The "keys
//! and values" of a position are the hash of all tokens up to it, so that a step notices a page with other contents.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::device;
use crate::engine::{EngineError, NonFiniteLogits, SamplingParams};
use crate::generation::{Grammar, GrammarState, Next};
use crate::scheduler::{Draft, Limits, PAGE, PageEntry, ROW_GROUP, StepRow, Steps};

/// Size of the vocabulary.
pub const VOCAB: u32 = 100;
/// Token whose keys and values are not finite. The model never chooses it.
pub const BAD: u32 = VOCAB - 1;
/// Hash in place of values that are not finite.
const NAN: u64 = u64::MAX;

fn mix(hash: u64, value: u64) -> u64 {
    let mut z = (hash ^ value).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) >> 1
}

/// Hash of the tokens up to a position, from the hash up to the position before.
fn extend(hash: u64, token: u32) -> u64 {
    if hash == NAN || token == BAD { NAN } else { mix(hash, u64::from(token) + 1) }
}

/// The model's choice after tokens with a hash, of which `last` is the last; none if the logits are not finite. Mostly it
/// depends on the last token alone, so that texts repeat themselves.
fn choose(hash: u64, last: u32, seed: u64) -> Option<u32> {
    let random = mix(hash, seed);
    let token = if random.is_multiple_of(8) { random / 8 % u64::from(BAD) } else { u64::from(last % 12) + 1 };
    (hash != NAN).then_some(token as u32)
}

/// The model's choice among the tokens of a mask: the first one from its free choice on.
fn choose_of(mask: &[u32], free: u32) -> u32 {
    let word = |token: u32| mask.get(token as usize / 32).copied().unwrap_or(0);
    let allowed = |&token: &u32| word(token) >> (token % 32) & 1 == 1;
    (free..BAD).chain(0..free).find(allowed).expect("a token is allowed")
}

/// Bit mask of tokens: bit i of word w is that of token 32w + i.
fn mask_of(tokens: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut mask = vec![0; VOCAB.div_ceil(32) as usize];
    tokens.for_each(|token| mask[token as usize / 32] |= 1 << (token % 32));
    mask
}

/// The first `count` tokens that the model chooses after a prompt without bad tokens.
pub fn alone(prompt: &[u32], seed: u64, count: usize) -> Vec<u32> {
    let mut hash = prompt.iter().fold(0, |hash, &token| extend(hash, token));
    let mut last = prompt[prompt.len() - 1];
    let next = || {
        last = choose(hash, last, seed)?;
        hash = extend(hash, last);
        Some(last)
    };
    std::iter::from_fn(next).take(count).collect()
}

/// A grammar: tokens of one remainder modulo 3, which depends on the number of tokens so far; after a chosen token that is a
/// multiple of 5 come three certain ones. After `length` tokens the answer is complete.
#[derive(Clone, Debug)]
pub struct Toy {
    pub length: usize,
}

/// Tokens without an alternative.
const CERTAIN: [u32; 3] = [11, 13, 17];

struct ToyState {
    length: usize,
    count: usize,
    certain: bool,
}

impl Grammar for Toy {
    fn start(&self) -> Box<dyn GrammarState> {
        Box::new(ToyState { length: self.length, count: 0, certain: false })
    }
}

impl GrammarState for ToyState {
    fn next(&mut self) -> Result<Next, String> {
        if self.is_complete() {
            return Ok(Next::End);
        }
        if std::mem::take(&mut self.certain) {
            self.count += CERTAIN.len();
            return Ok(Next::Only(CERTAIN.to_vec()));
        }
        let allowed = |token: &u32| *token as usize % 3 == self.count % 3;
        Ok(Next::Any(mask_of((0..BAD).filter(allowed))))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        if token as usize % 3 != self.count % 3 {
            return Err(format!("token {token} may not follow {} tokens", self.count));
        }
        self.count += 1;
        self.certain = token.is_multiple_of(5);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.count >= self.length
    }
}

/// The first `count` tokens of a grammar that the model chooses after a prompt; none after a bad token.
pub fn alone_in(grammar: &Toy, prompt: &[u32], seed: u64, count: usize) -> Vec<u32> {
    let mut hash = prompt.iter().fold(0, |hash, &token| extend(hash, token));
    let (mut state, mut tokens) = (grammar.start(), Vec::new());
    while tokens.len() < count && !state.is_complete() {
        let next = match state.next().unwrap() {
            Next::Any(mask) => {
                let last = *tokens.last().or(prompt.last()).unwrap();
                let Some(free) = choose(hash, last, seed) else { break };
                let token = choose_of(&mask, free);
                state.accept(token).unwrap();
                vec![token]
            }
            Next::Only(tokens) => tokens,
            Next::End => break,
        };
        hash = next.iter().fold(hash, |hash, &token| extend(hash, token));
        tokens.extend(next);
    }
    tokens.truncate(count);
    tokens
}

enum Work {
    Start { slot: usize, tokens: Vec<u32>, seed: u64, masked: bool },
    Give { slot: usize, tokens: Vec<u32> },
    Mask { slot: usize, mask: Vec<u32> },
    Pages(Vec<PageEntry>),
    Draft(Draft),
    Step(Vec<StepRow>),
}

struct Slot {
    tokens: Vec<u32>,
    seed: u64,
    masked: bool,
    /// The mask of the next choice.
    mask: Option<Vec<u32>>,
    /// Number of positions that were processed.
    processed: u32,
    /// Pages by index, as far as they were written.
    pages: HashMap<u32, u32>,
}

/// Memory of the fake device.
struct Memory {
    slots: Vec<Slot>,
    /// Hash of each position of each page.
    pages: Vec<Vec<u64>>,
}

/// The fake engine. Work is done while the host polls, `speed` pieces at a poll; with `None`, at once.
pub struct Fake {
    limits: Limits,
    speed: Option<u32>,
    queue: RefCell<VecDeque<Work>>,
    memory: RefCell<Memory>,
    /// Last row position of each slot since its start, as enqueued.
    last: Vec<Option<u32>>,
    last_decode: Option<Vec<StepRow>>,
    last_step: Vec<StepRow>,
    /// Number of polls until the device fails.
    pub polls_left: Cell<Option<u32>>,
    /// Number of steps that were enqueued.
    pub steps: u32,
    /// Largest number of steps that were in flight.
    pub most_ahead: usize,
    pub cleared: u32,
    /// Number of tokens that were given after the start.
    pub given: u32,
    pub resets: u32,
    /// Number of tokens that were drafted.
    pub drafted: u32,
    /// Last position for which the last step of each slot has chosen a token, if it was a draft.
    verified: Vec<Option<u32>>,
}

impl Fake {
    pub fn new(slots: u32, pages: u32, context: u32, prefill: &[u32]) -> Fake {
        let slot = || Slot::new(Vec::new(), 0, false);
        Fake {
            limits: Limits {
                slots,
                pages,
                context,
                vocab: VOCAB,
                sampling: true,
                decode: vec![1, 2, 4, 8],
                verify: Vec::new(),
                prefill: prefill.to_vec(),
            },
            speed: None,
            queue: RefCell::default(),
            memory: RefCell::new(Memory {
                slots: (0..slots).map(|_| slot()).collect(),
                pages: vec![vec![0; PAGE as usize]; pages as usize],
            }),
            last: vec![None; slots as usize],
            last_decode: None,
            last_step: Vec::new(),
            polls_left: Cell::new(None),
            steps: 0,
            most_ahead: 0,
            cleared: 0,
            given: 0,
            resets: 0,
            drafted: 0,
            verified: vec![None; slots as usize],
        }
    }

    pub fn with_speed(self, speed: u32) -> Fake {
        Fake { speed: Some(speed), ..self }
    }

    pub fn with_verify_steps(mut self) -> Fake {
        self.limits.verify = vec![2, 4, 8, 16];
        self
    }

    pub fn with_decode_steps_of(mut self, rows: u32) -> Fake {
        self.limits.decode.push(rows);
        self
    }

    pub fn greedy_only(mut self) -> Fake {
        self.limits.sampling = false;
        self
    }

    fn push(&self, work: Work) {
        self.queue.borrow_mut().push_back(work);
        if self.speed.is_none() {
            self.run(u32::MAX);
        }
    }

    fn poll(&self) -> Result<(), EngineError> {
        if let Some(left) = self.polls_left.get() {
            self.polls_left.set(Some(left.saturating_sub(1)));
            if left == 0 {
                return Err(device::Error::Access("the kernel faulted".to_owned()).into());
            }
        }
        self.run(self.speed.unwrap_or(u32::MAX));
        Ok(())
    }

    fn run(&self, count: u32) {
        for _ in 0..count {
            let Some(work) = self.queue.borrow_mut().pop_front() else { break };
            self.memory.borrow_mut().run(work);
        }
    }

    /// Discards the tokens after the first row of each slot, except given ones.
    fn discard(&mut self, rows: &[StepRow]) {
        for rows in rows.chunk_by(|a, b| a.slot == b.slot) {
            let &StepRow { slot, position, given, .. } = &rows[0];
            if let Some(end) = self.verified[slot as usize].take() {
                assert!(!self.rows_in_flight(slot), "a row behind a draft that is not read");
                assert!(position <= end, "slot {slot}: no token for position {position}");
                let slot = &mut self.memory.get_mut().slots[slot as usize];
                slot.tokens.truncate((position + 1).max(given) as usize);
                slot.processed = slot.processed.min(position);
            }
        }
    }

    fn rows_in_flight(&self, slot: u32) -> bool {
        let queue = self.queue.borrow();
        queue.iter().any(|work| matches!(work, Work::Step(rows) if rows.iter().any(|row| row.slot == slot)))
    }

    fn step(&mut self, rows: &[StepRow]) {
        for row in rows {
            assert!(row.slot < self.limits.slots && row.position < self.limits.context);
            let slot = row.slot as usize;
            // Rows of a slot may come in any order within a step.
            assert!(self.last[slot].is_none_or(|last| row.position > last), "{row:?} is not new");
        }
        for row in rows {
            let last = &mut self.last[row.slot as usize];
            *last = Some(last.map_or(row.position, |last| last.max(row.position)));
        }
        self.steps += 1;
        self.last_step = rows.to_vec();
        self.push(Work::Step(rows.to_vec()));
        let queue = self.queue.borrow();
        self.most_ahead =
            self.most_ahead.max(queue.iter().filter(|work| matches!(work, Work::Step(_))).count());
    }
}

impl Slot {
    fn new(tokens: Vec<u32>, seed: u64, masked: bool) -> Slot {
        Slot { tokens, seed, masked, mask: None, processed: 0, pages: HashMap::new() }
    }
}

impl Memory {
    fn run(&mut self, work: Work) {
        match work {
            Work::Start { slot, tokens, seed, masked } => self.slots[slot] = Slot::new(tokens, seed, masked),
            Work::Give { slot, tokens } => self.slots[slot].tokens.extend(tokens),
            Work::Draft(Draft { slot, position, tokens }) => {
                let known = &mut self.slots[slot as usize].tokens;
                assert_eq!(known.len() as u32, position);
                known.extend(tokens);
            }
            Work::Mask { slot, mask } => self.slots[slot].mask = Some(mask),
            Work::Pages(entries) => {
                for PageEntry { slot, index, page } in entries {
                    self.slots[slot as usize].pages.insert(index, page);
                }
            }
            Work::Step(rows) => {
                // As on the device: all rows are appended to the cache before any row reads it.
                for row in &rows {
                    let slot = &mut self.slots[row.slot as usize];
                    slot.processed = slot.processed.max(row.position + 1);
                    let known = &slot.tokens[..=row.position as usize];
                    let hash = known.iter().fold(0, |hash, &token| extend(hash, token));
                    let page = slot.pages[&(row.position / PAGE)];
                    self.pages[page as usize][(row.position % PAGE) as usize] = hash;
                }
                // Choices replace drafted tokens after all rows have read them.
                let chosen: Vec<Option<u32>> = rows.iter().map(|row| self.attend(row)).collect();
                for (row, token) in rows.iter().zip(chosen) {
                    let tokens = &mut self.slots[row.slot as usize].tokens;
                    match (token, tokens.get_mut(row.position as usize + 1)) {
                        (Some(token), Some(draft)) => *draft = token,
                        (Some(token), None) => tokens.push(token),
                        (None, _) => {}
                    }
                }
            }
        }
    }

    /// Reads the cache up to a row's position, and chooses the next token, unless it is given.
    fn attend(&mut self, row: &StepRow) -> Option<u32> {
        let slot = &mut self.slots[row.slot as usize];
        let mut hash = 0;
        for position in 0..=row.position {
            hash = extend(hash, slot.tokens[position as usize]);
            let page = slot.pages[&(position / PAGE)];
            let cached = self.pages[page as usize][(position % PAGE) as usize];
            assert_eq!(cached, hash, "slot {}, position {position}: the page has other contents", row.slot);
        }
        // The rest of the last page is read too, with weights of zero.
        let page = &self.pages[slot.pages[&(row.position / PAGE)] as usize];
        let stale = page.iter().skip(slot.processed.saturating_sub(row.position / PAGE * PAGE) as usize);
        assert!(
            stale.into_iter().all(|&hash| hash != NAN),
            "slot {}: an unclean page is used again",
            row.slot
        );
        let next = row.position + 1;
        if row.chooses && next >= row.given {
            let free = choose(hash, slot.tokens[row.position as usize], slot.seed);
            // A mask is good for one choice.
            let mask = slot.mask.take();
            assert_eq!(mask.is_some(), slot.masked, "slot {}, position {next}", row.slot);
            let token = mask.zip(free).map(|(mask, free)| choose_of(&mask, free));
            Some(token.or(free).unwrap_or(BAD))
        } else {
            assert!(slot.tokens.len() as u32 > next, "the next token is given");
            None
        }
    }
}

impl Steps for Fake {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn start(&mut self, slot: u32, tokens: &[u32], sampling: &SamplingParams) -> Result<(), EngineError> {
        assert!(!self.rows_in_flight(slot), "the slot has rows in flight");
        assert!(tokens.len() as u32 <= self.limits.context);
        self.last[slot as usize] = None;
        self.verified[slot as usize] = None;
        // The host's copy of the tokens is cleared at once.
        self.memory.borrow_mut().slots[slot as usize].tokens.clear();
        let SamplingParams { seed, masked, .. } = *sampling;
        self.push(Work::Start { slot: slot as usize, tokens: tokens.to_vec(), seed, masked });
        Ok(())
    }

    fn give_tokens(&mut self, slot: u32, position: u32, tokens: &[u32]) -> Result<(), EngineError> {
        assert!(!tokens.is_empty());
        self.run(u32::MAX);
        assert_eq!(self.memory.get_mut().slots[slot as usize].tokens.len() as u32, position);
        self.given += tokens.len() as u32;
        self.push(Work::Give { slot: slot as usize, tokens: tokens.to_vec() });
        Ok(())
    }

    fn discard(&mut self, slot: u32, position: u32, count: u32) -> Result<(), EngineError> {
        assert!(!self.rows_in_flight(slot));
        let of = &mut self.memory.get_mut().slots[slot as usize];
        assert_eq!(of.tokens.len() as u32, position + count);
        of.tokens.truncate(position as usize);
        of.processed = of.processed.min(position);
        self.last[slot as usize] = position.checked_sub(2);
        self.verified[slot as usize] = None;
        Ok(())
    }

    fn set_masks(&mut self, masks: &[(u32, Vec<u32>)]) -> Result<(), EngineError> {
        for (slot, mask) in masks {
            self.push(Work::Mask { slot: *slot as usize, mask: mask.clone() });
        }
        Ok(())
    }

    fn set_pages(&mut self, entries: &[PageEntry]) -> Result<(), EngineError> {
        assert!(!entries.is_empty() && entries.iter().all(|entry| entry.page < self.limits.pages));
        self.push(Work::Pages(entries.to_vec()));
        Ok(())
    }

    fn clear_pages(&mut self, pages: &[u32]) -> Result<(), EngineError> {
        self.run(u32::MAX);
        let memory = self.memory.get_mut();
        pages.iter().for_each(|&page| memory.pages[page as usize].fill(0));
        self.cleared += pages.len() as u32;
        Ok(())
    }

    fn prefill(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        let of_sequences = rows.chunk_by(|a, b| a.slot == b.slot);
        for rows in of_sequences.clone() {
            let (last, before) = rows.split_last().expect("chunks have rows");
            assert!(before.iter().all(|row| row.position + 1 < row.given && !row.chooses));
            assert!(last.chooses || last.position + 1 < last.given);
        }
        let groups: u32 = of_sequences.map(|rows| (rows.len() as u32).div_ceil(ROW_GROUP)).sum();
        let fits = |&it: &u32| groups <= it.div_ceil(ROW_GROUP) && rows.len() <= it as usize;
        assert!(!rows.is_empty() && self.limits.prefill.iter().any(fits), "no step has {} rows", rows.len());
        self.last_decode = None;
        self.step(rows);
        Ok(())
    }

    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        let most = self.limits.decode.last().copied().unwrap_or(0) as usize;
        assert!(!rows.is_empty() && rows.len() <= most);
        assert!(rows.iter().all(|row| row.chooses));
        let slots: HashSet<u32> = rows.iter().map(|row| row.slot).collect();
        assert_eq!(slots.len(), rows.len(), "two rows have the same slot");
        self.discard(rows);
        self.last_decode = Some(rows.to_vec());
        self.step(rows);
        Ok(())
    }

    fn verify(&mut self, rows: &[StepRow], drafts: &[Draft]) -> Result<(), EngineError> {
        let most = self.limits.verify.last().copied().unwrap_or(0) as usize;
        assert!(rows.len() <= most && rows.iter().all(|row| row.chooses));
        self.discard(rows);
        self.last_decode = None;
        for draft in drafts {
            assert!(!draft.tokens.is_empty() && !self.rows_in_flight(draft.slot));
            self.push(Work::Draft(draft.clone()));
        }
        self.step(rows);
        let mut slots = HashSet::new();
        for rows in rows.chunk_by(|a, b| a.slot == b.slot) {
            let (first, last) = (rows[0], rows[rows.len() - 1]);
            assert!(slots.insert(first.slot), "the rows of a slot are not together");
            assert!((first.position..).zip(rows).all(|(position, row)| row.position == position));
            let draft = drafts.iter().find(|draft| draft.slot == first.slot);
            let known = draft.map_or(first.given.max(first.position + 1), |draft| {
                assert_eq!(draft.position, first.position + 1);
                draft.position + draft.tokens.len() as u32
            });
            assert!(last.position < known, "{last:?} has no token");
            if draft.is_some() {
                self.last[first.slot as usize] = Some(first.position);
                self.verified[first.slot as usize] = Some(last.position + 1);
                self.drafted += last.position - first.position;
            }
        }
        Ok(())
    }

    fn decode_again(&mut self) -> Result<(), EngineError> {
        let mut rows = self.last_decode.take().expect("a decode step");
        rows.iter_mut().for_each(|row| row.position += 1);
        self.decode(&rows)
    }

    fn token(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        let at = |memory: &Memory| {
            let slot = &memory.slots[slot as usize];
            slot.tokens.get(position as usize).copied().filter(|_| slot.processed >= position)
        };
        let before = at(&self.memory.borrow());
        if before.is_none() {
            self.poll()?;
        }
        match before {
            Some(BAD) => Err(NonFiniteLogits { position: position - 1, first: None }.into()),
            token => Ok(token),
        }
    }

    fn logits(&mut self, row: u32) -> Result<Vec<f32>, EngineError> {
        self.run(u32::MAX);
        let row =
            *self.last_step.iter().filter(|row| row.chooses).nth(row as usize).expect("the row chooses");
        let memory = self.memory.get_mut();
        let chosen = memory.slots[row.slot as usize].tokens[row.position as usize + 1];
        Ok((0..VOCAB).map(|token| if token == chosen { 1.0 } else { 0.0 }).collect())
    }

    fn busy(&self, _waited: Duration, _steps: u32) -> Result<bool, EngineError> {
        self.poll()?;
        Ok(!self.queue.borrow().is_empty())
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.polls_left.set(None);
        self.run(u32::MAX);
        self.resets += 1;
        let memory = self.memory.get_mut();
        memory.pages.iter_mut().for_each(|page| page.fill(0));
        Ok(())
    }
}
