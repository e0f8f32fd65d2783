//! Fake engine. Its model is a hash: the token after position p depends on the tokens up to p and on the seed. The "keys
//! and values" of a position are the hash of all tokens up to it, so that a step notices a page with other contents.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::device;
use crate::engine::{EngineError, NonFiniteLogits, SamplingParams};
use crate::scheduler::{Limits, PAGE, PageEntry, ROW_GROUP, StepRow, Steps};

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

/// The model's choice after tokens with a hash; none if the logits are not finite.
fn choose(hash: u64, seed: u64) -> Option<u32> {
    (hash != NAN).then(|| (mix(hash, seed) % u64::from(BAD)) as u32)
}

/// The first `count` tokens that the model chooses after a prompt without bad tokens.
pub fn alone(prompt: &[u32], seed: u64, count: usize) -> Vec<u32> {
    let mut hash = prompt.iter().fold(0, |hash, &token| extend(hash, token));
    let next = || {
        let token = choose(hash, seed)?;
        hash = extend(hash, token);
        Some(token)
    };
    std::iter::from_fn(next).take(count).collect()
}

enum Work {
    Start { slot: usize, tokens: Vec<u32>, seed: u64 },
    Pages(Vec<PageEntry>),
    Step(Vec<StepRow>),
}

struct Slot {
    tokens: Vec<u32>,
    seed: u64,
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
    pub resets: u32,
}

impl Fake {
    pub fn new(slots: u32, pages: u32, context: u32, prefill: &[u32]) -> Fake {
        let slot = || Slot { tokens: Vec::new(), seed: 0, processed: 0, pages: HashMap::new() };
        Fake {
            limits: Limits {
                slots,
                pages,
                context,
                vocab: VOCAB,
                sampling: true,
                decode: vec![1, 2, 4, 8],
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
            resets: 0,
        }
    }

    pub fn with_speed(self, speed: u32) -> Fake {
        Fake { speed: Some(speed), ..self }
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

impl Memory {
    fn run(&mut self, work: Work) {
        match work {
            Work::Start { slot, tokens, seed } => {
                self.slots[slot] = Slot { tokens, seed, processed: 0, pages: HashMap::new() };
            }
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
                rows.iter().for_each(|row| self.attend(row));
            }
        }
    }

    /// Reads the cache up to a row's position, and chooses the next token.
    fn attend(&mut self, row: &StepRow) {
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
        if row.chooses {
            assert_eq!(slot.tokens.len() as u32, row.position + 1);
            slot.tokens.push(choose(hash, slot.seed).unwrap_or(BAD));
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
        // The host's copy of the tokens is cleared at once.
        self.memory.borrow_mut().slots[slot as usize].tokens.clear();
        self.push(Work::Start { slot: slot as usize, tokens: tokens.to_vec(), seed: sampling.seed });
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
        assert!(rows.iter().all(|row| row.position + 1 < row.prompt && !row.chooses));
        let of_sequences = rows.chunk_by(|a, b| a.slot == b.slot);
        let groups: u32 = of_sequences.map(|rows| (rows.len() as u32).div_ceil(ROW_GROUP)).sum();
        let fits = |&it: &u32| groups <= it.div_ceil(ROW_GROUP) && rows.len() <= it as usize;
        assert!(!rows.is_empty() && self.limits.prefill.iter().any(fits), "no step has {} rows", rows.len());
        self.last_decode = None;
        self.step(rows);
        Ok(())
    }

    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        assert!(!rows.is_empty() && rows.len() <= 8);
        assert!(rows.iter().all(|row| row.chooses && row.position + 1 >= row.prompt));
        let slots: HashSet<u32> = rows.iter().map(|row| row.slot).collect();
        assert_eq!(slots.len(), rows.len(), "two rows have the same slot");
        self.last_decode = Some(rows.to_vec());
        self.step(rows);
        Ok(())
    }

    fn decode_again(&mut self) -> Result<(), EngineError> {
        let mut rows = self.last_decode.take().expect("a decode step");
        rows.iter_mut().for_each(|row| row.position += 1);
        self.decode(&rows)
    }

    fn token(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        let at = |memory: &Memory| memory.slots[slot as usize].tokens.get(position as usize).copied();
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
        let row = self.last_step[row as usize];
        assert!(row.chooses);
        let memory = self.memory.get_mut();
        let chosen = memory.slots[row.slot as usize].tokens[row.position as usize + 1];
        Ok((0..VOCAB).map(|token| if token == chosen { 1.0 } else { 0.0 }).collect())
    }

    fn busy(&self, _waited: Duration) -> Result<bool, EngineError> {
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
