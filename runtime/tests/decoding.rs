//! Decoding with steps enqueued ahead, on the emulator; host allocations for each token.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use bespoke::device::{Selector, open};
use bespoke::engine::{DecodeCursor, Engine, EngineError, EngineOptions, StepQueue, Tokens};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

/// Allocator that counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CONTEXT: u32 = 32;

fn engine(eager: bool) -> Engine {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama-q8_0.gguf");
    let gguf = Gguf::open(path).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    // Single steps process prompts, too.
    let options = EngineOptions { context: Some(CONTEXT), eager, prefill: false, ..EngineOptions::default() };
    Engine::load(open(Selector::Emulator).unwrap().device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

fn generate(engine: &mut Engine, n: u32) -> Vec<u32> {
    engine.generate(n).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A step of the emulator is complete when it is enqueued: another one would only delay the token.
#[test]
fn the_emulator_runs_no_step_ahead_of_a_token() {
    let mut engine = engine(false);
    engine.start(&[5, 17, 300]).unwrap();
    for position in 3..6 {
        assert_eq!(engine.generate(9).unwrap().take(1).count(), 1);
        assert_eq!(engine.position(), position);
    }
}

/// Decodes `n` tokens by single steps, waiting for each step.
fn stepped(engine: &mut Engine, prompt: &[u32], n: u32) -> Vec<u32> {
    engine.start(prompt).unwrap();
    for _ in 1..prompt.len() {
        engine.step().unwrap();
    }
    (0..n)
        .map(|_| {
            engine.step().unwrap();
            engine.wait().unwrap();
            engine.token(engine.position()).unwrap()
        })
        .collect()
}

#[test]
fn tokens_are_those_of_single_steps() {
    let mut replayed = engine(false);
    let prompt = [5, 17, 300];
    let expected = stepped(&mut replayed, &prompt, 12);
    for engine in [&mut replayed, &mut engine(true)] {
        engine.start(&prompt).unwrap();
        assert_eq!(generate(engine, 12), expected);
        assert_eq!(engine.position(), 14);
        // Generates in two parts; the first iterator is dropped with steps in flight.
        engine.start(&prompt).unwrap();
        let first: Vec<u32> = engine.generate(12).unwrap().take(5).map(Result::unwrap).collect();
        engine.step().unwrap();
        assert_eq!([first, generate(engine, 7)].concat(), expected);
    }
}

#[test]
fn a_new_start_clears_the_host_tokens() {
    let mut engine = engine(false);
    let expected = stepped(&mut engine, &[9], 4);
    engine.start(&[5, 17, 300]).unwrap();
    generate(&mut engine, 12);
    engine.start(&[9]).unwrap();
    let error = engine.token(1).unwrap_err();
    assert!(matches!(error, EngineError::NoToken { position: 1 }), "{error}");
    assert_eq!(generate(&mut engine, 4), expected);
    engine.start_at_depth(20).unwrap();
    assert_eq!(generate(&mut engine, 3).len(), 3);
    assert_eq!(engine.position(), 23);
}

#[test]
fn the_whole_cache_is_used_and_no_more() {
    let mut engine = engine(false);
    engine.start(&[1, 2, 3]).unwrap();
    let error = engine.generate(CONTEXT - 1).err().unwrap();
    assert!(matches!(error, EngineError::ContextFull { needed: 33, context: CONTEXT }), "{error}");
    // The last token needs no position in the cache.
    assert_eq!(generate(&mut engine, CONTEXT - 2).len(), 30);
    assert!(engine.step().is_err());
}

/// A device that finishes a step at every third poll.
struct Slow {
    cursor: DecodeCursor,
    polls: Cell<u32>,
}

impl StepQueue for Slow {
    fn cursor(&mut self) -> &mut DecodeCursor {
        &mut self.cursor
    }
    fn enqueue(&mut self) -> Result<(), EngineError> {
        self.cursor.enqueued += 1;
        Ok(())
    }
    fn token_at(&self, position: u32) -> Result<Option<u32>, EngineError> {
        self.polls.set(self.polls.get() + 1);
        let finished = (self.polls.get() / 3).min(self.cursor.enqueued);
        Ok((position <= finished).then_some(7))
    }
    fn busy(&self, _waited: Duration) -> Result<bool, EngineError> {
        Ok(true)
    }
}

#[test]
fn reading_a_token_does_not_allocate() {
    let steps = Slow { cursor: DecodeCursor { prompt: 3, ..DecodeCursor::default() }, polls: Cell::new(0) };
    let before = ALLOCATIONS.get();
    let count = Tokens::new(steps, 500).map(Result::unwrap).filter(|&token| token == 7).count();
    let allocated = ALLOCATIONS.get() - before;
    assert_eq!((count, allocated), (500, 0));
    drop(std::hint::black_box(Box::new(0)));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter works");
}
